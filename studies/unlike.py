"""Models that are equally good and differ from the data in different ways, by every test, with the default options.

Writes docs/evidence/calibration/unlike.md.

python -m studies.unlike [--trials 1000] [--workers 2] [--store FILE]
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.stats import poisson

from relfit import Collection, Density, Gaussian, Polynomial, compare, decide, estimate
from studies.close import rare_scores, tail_scores
from studies.relpsi import densities, paired, sizes
from studies.study import ALPHA, Part, Study, level, main, table, write_page

# How far the models are from the data: the length of a shift with the same MMD².
NEAR, FAR = 0.2, 0.5
TWO = ("shifted", "narrow")


@dataclass(frozen=True)
class Mixture:
    """A mixture of normal distributions with independent columns: weights (k,), centres and scales (k, d)."""

    weights: np.ndarray
    centres: np.ndarray
    scales: np.ndarray

    def draw(self, rng, n, noise=None):
        """n rows, of noise (n, d) where that is given."""
        part = rng.choice(len(self.weights), size=n, p=self.weights)
        noise = rng.normal(size=(n, self.centres.shape[1])) if noise is None else noise
        return self.centres[part] + self.scales[part] * noise

    def kernel(self, other, bandwidth):
        """The mean of a Gaussian kernel between two of them."""
        width = self.scales[:, None] ** 2 + other.scales**2 + bandwidth**2
        apart = (self.centres[:, None] - other.centres) ** 2
        values = np.prod(bandwidth / np.sqrt(width), axis=2) * np.exp(-(apart / (2.0 * width)).sum(axis=2))
        return float(self.weights @ values @ other.weights)


def squared_mmd(p, q, bandwidth):
    return p.kernel(p, bandwidth) + q.kernel(q, bandwidth) - 2.0 * p.kernel(q, bandwidth)


def normal(d, centre=0.0, scale=1.0):
    """Normal rows, moved along the first column."""
    return Mixture(np.ones(1), centre * np.eye(d)[:1], np.broadcast_to(scale, (1, d)).astype(float))


def mixed(weight, first, second):
    """The first with probability 1 − weight, the second with probability `weight`."""
    weights = np.concatenate([(1.0 - weight) * first.weights, weight * second.weights])
    centres = np.concatenate([first.centres, second.centres])
    return Mixture(weights, centres, np.concatenate([first.scales, second.scales]))


# Each way to differ: a distribution for every size, and the range of sizes.
WAYS = {
    "shifted": (lambda t, d: normal(d, t), (0.0, 5.0)),
    "wide": (lambda t, d: normal(d, 0.0, t), (1.0, 4.0)),
    "narrow": (lambda t, d: normal(d, 0.0, 1.0 / t), (1.0, 20.0)),
    "heavy": (lambda t, d: mixed(0.3, normal(d), normal(d, 0.0, t)), (1.0, 20.0)),
    "outliers": (lambda t, d: mixed(0.2, normal(d), normal(d, t)), (0.0, 20.0)),
    "two modes": (lambda t, d: mixed(0.5, normal(d, -t), normal(d, t)), (0.0, 5.0)),
    "stretched": (lambda t, d: normal(d, 0.0, np.where(np.arange(d) == 0, t, 1.0)), (1.0, 50.0)),
}


@cache
def equally_far(shift, d, bandwidth, ways=tuple(WAYS)):
    """Distributions with the MMD² that a shift by this length has to the standard normal one."""
    data = normal(d)
    goal = squared_mmd(data, normal(d, shift), bandwidth)
    found = {}
    for name in ways:
        make, (low, high) = WAYS[name]
        size = brentq(lambda t, make=make: squared_mmd(data, make(t, d), bandwidth) - goal, low, high)
        found[name] = make(size, d)
    return found


def families(n, seed, shift=NEAR, d=3, bandwidth=1.7, ways=tuple(WAYS), rows=None, shared=False):
    """Normal rows of n, and models that differ in these ways; `rows` of each, or n."""
    rng = np.random.default_rng(seed)
    counts = rows or (n,) * len(ways)
    noise = rng.normal(size=(n, d)) if shared else None
    models = {
        name: each.draw(rng, count, noise)
        for (name, each), count in zip(equally_far(shift, d, bandwidth, ways).items(), counts, strict=True)
    }
    options = {"kernel": Gaussian(bandwidth), **({"dependence": "shared"} if shared else {})}
    return rng.normal(size=(n, d)), models, options


def many_shifts(n, seed, models=30, d=10, shift=FAR):
    """A narrow and a wide model beside shifts along all axes, in both directions and along diagonals."""
    rng = np.random.default_rng(seed)
    directions = np.random.default_rng(0).normal(size=(models - 2, d))
    directions *= shift / np.linalg.norm(directions, axis=1, keepdims=True)
    drawn = {f"shift {k}": rng.normal(size=(n, d)) + by for k, by in enumerate(directions)}
    for name, each in equally_far(shift, d, 4.5, ("narrow", "wide")).items():
        drawn[name] = each.draw(rng, n)
    return rng.normal(size=(n, d)), drawn, {"kernel": Gaussian(4.5)}


def grouped(n, seed, shift=FAR, d=3, bandwidth=1.7, size=4):
    """n groups of rows that share half of their variance."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(n), size)

    def noise():
        return np.sqrt(0.5) * (rng.normal(size=(n, d))[labels] + rng.normal(size=(n * size, d)))

    ways = ("shifted", "wide", "stretched")
    far = equally_far(shift, d, bandwidth, ways)
    models = {name: each.draw(rng, n * size, noise()) for name, each in far.items()}
    groups = {"reference": labels, **dict.fromkeys(models, labels)}
    return noise(), models, {"kernel": Gaussian(bandwidth), "groups": groups}


def missing_mode(n, seed, part=0.05, d=2, bandwidth=1.5):
    """Data with a small mode; a model without it, and a shifted one, at the same MMD²."""
    data, lost, moved = _missing(part, d, bandwidth)
    rng = np.random.default_rng(seed)
    models = {"mode missing": lost.draw(rng, n), "shifted": moved.draw(rng, n)}
    return data.draw(rng, n), models, {"kernel": Gaussian(bandwidth)}


@cache
def _missing(part, d, bandwidth):
    def data(shift):
        return mixed(part, normal(d, shift), normal(d, 5.0 + shift))

    truth = data(0.0)
    goal = squared_mmd(truth, normal(d), bandwidth)
    size = brentq(lambda t: squared_mmd(truth, data(t), bandwidth) - goal, 0.0, 5.0)
    return truth, normal(d), data(size)


def counts(n, seed, bandwidth=2.0):
    """Poisson counts of mean 4; larger ones, smaller ones, and a mixture of both, at the same MMD²."""
    rng = np.random.default_rng(seed)
    more, less, both = _counts(bandwidth)
    mixture = np.where(rng.random(n) < 0.5, 4.0 - both, 4.0 + both)
    models = {
        "more": rng.poisson(4.0 + more, n),
        "less": rng.poisson(4.0 - less, n),
        "mixture": rng.poisson(mixture),
    }
    columns = {name: rows[:, None].astype(float) for name, rows in models.items()}
    return rng.poisson(4.0, (n, 1)).astype(float), columns, {"kernel": Gaussian(bandwidth)}


@cache
def _counts(bandwidth, more=0.5):
    x = np.arange(60)
    kernel = np.exp(-np.square(x[:, None] - x) / (2.0 * bandwidth**2))

    def distance(weights):
        gap = weights - poisson.pmf(x, 4.0)
        return float(gap @ kernel @ gap)

    goal = distance(poisson.pmf(x, 4.0 + more))
    less = brentq(lambda t: distance(poisson.pmf(x, 4.0 - t)) - goal, 0.0, 3.0)
    both = brentq(lambda t: distance((poisson.pmf(x, 4.0 - t) + poisson.pmf(x, 4.0 + t)) / 2.0) - goal, 0.0, 3.99)
    return more, less, both


def rare_rows(n, seed, part=0.004, far=12.0):
    """The cubic kernel of KID: a shift, and rare rows 12 standard deviations away, at the same MMD²."""
    rng = np.random.default_rng(seed)
    moments = far * part, far**2 * part, part * (far**3 + 3.0 * far)
    goal = _cubic(*moments)
    shift = brentq(lambda t: _cubic(t, t**2, t**3 + 3.0 * t) - goal, 0.0, 5.0)
    rare = rng.normal(size=(n, 1))
    rare[rng.random(n) < part] += far
    models = {"shifted": rng.normal(size=(n, 1)) + shift, "rare rows": rare}
    return rng.normal(size=(n, 1)), models, {"kernel": Polynomial(3, 1.0, 1.0)}


def _cubic(first, second, third):
    """MMD² of the kernel (xy + 1)³ from the differences of the first three moments."""
    return 3.0 * first**2 + 3.0 * second**2 + third**2


def scored(make):
    """Densities of one column from two scores."""

    def drawn(n, seed, rows, bandwidth):
        names = ("A", "B")
        models = {name: Density(score=score, dim=1) for name, score in zip(names, make(), strict=True)}
        return rows(np.random.default_rng(seed), n), models, {"kernel": Gaussian(bandwidth)}

    return drawn


def rare_tail(n, seed):
    """A shifted density, and one that is wrong in the upper 0.8% only, at the same KSD²."""
    return scored(lambda: rare_scores(0.8))(n, seed, lambda rng, n: rng.normal(size=(n, 1)), 1.0)


def heavy_tails(n, seed):
    """Rows of Student's t distribution; a shifted one and a normal one, at the same KSD²."""
    return scored(lambda: tail_scores(3))(n, seed, lambda rng, n: rng.standard_t(3, size=(n, 1)), 1.5)


def several_kernels(n, seed):
    """Shifts along different axes, which every kernel finds equally far."""
    rng = np.random.default_rng(seed)
    models = {f"axis {k}": rng.normal(size=(n, 5)) + 0.3 * np.eye(5)[k] for k in range(3)}
    return rng.normal(size=(n, 5)), models, {"kernel": Collection([Gaussian(1.0), Gaussian(2.0), Gaussian(4.0)])}


Draw = Callable[[int, int], tuple[Any, dict[str, Any], dict[str, Any]]]
FORMS: dict[str, tuple[Draw, tuple[int, ...]]] = {
    "seven ways, near": (families, (30, 100, 300, 1000)),
    "seven ways, far": (lambda n, seed: families(n, seed, FAR), (30, 100, 300, 1000)),
    "seven ways, small bandwidth": (lambda n, seed: families(n, seed, NEAR, bandwidth=0.8), (100, 400)),
    "two ways": (lambda n, seed: families(n, seed, FAR, ways=TWO), (30, 60, 100, 300, 1000)),
    "ten columns": (lambda n, seed: families(n, seed, FAR, 10, 3.2, TWO), (60, 300)),
    "mode of 5% missing": (missing_mode, (100, 400, 1000)),
    "counts": (counts, (40, 200, 1000)),
    "thirty models": (many_shifts, (200,)),
    "50, 500 and 5000 rows": (
        lambda n, seed: families(n, seed, FAR, ways=("shifted", "wide", "narrow"), rows=(50, 500, 5000)),
        (300,),
    ),
    "2000 rows a model": (lambda n, seed: families(n, seed, FAR, rows=(2000,) * len(WAYS)), (50,)),
    "40 rows a model": (lambda n, seed: families(n, seed, FAR, rows=(40,) * len(WAYS)), (2000,)),
    "60 and 2000 rows": (sizes, (500,)),
    "50 and 2000 rows": (lambda n, seed: sizes(n, seed, (50, 2000), 3), (300,)),
    "100 and 1000 rows": (lambda n, seed: sizes(n, seed, (100, 1000), 8, 0.25), (400,)),
    "100 and 5000 rows": (lambda n, seed: sizes(n, seed, (100, 5000)), (2000,)),
    "shared noise, near": (lambda n, seed: families(n, seed, shared=True), (60, 300)),
    "paired": (paired, (60, 300)),
    "groups of 4": (grouped, (20, 60)),
    "several kernels": (several_kernels, (60, 300)),
    "rare rows, KID": (rare_rows, (200, 400, 1000)),
    "five densities, near": (lambda n, seed: densities(n, seed, distance=0.1), (40, 150, 500, 2000)),
    "five densities, far": (densities, (40, 150, 500, 2000)),
    "five densities, 10 columns": (lambda n, seed: densities(n, seed, 10, 4.5, 0.3), (60, 300)),
    "densities, rare tail": (rare_tail, (100, 400, 1500)),
    "densities, heavy tails": (heavy_tails, (60, 200, 800)),
}


def settings():
    return [{"models": name, "n": n} for name, (_, counts) in FORMS.items() for n in counts]


def trial(setting, seed):
    """For every test, which models it selects and declares worse, and whether intervals of all pairs hold 0."""
    reference, models, options = FORMS[setting["models"]][0](setting["n"], seed)
    call = {"rng": seed, "progress": False, **options}
    if isinstance(options["kernel"], Collection):
        best = compare(reference, models, correction="stepdown", **call)
        return {"none": (best.pvalue <= ALPHA).tolist(), "step-down": best.worse.tolist()}
    joint = estimate(reference, models, **call)
    best = decide(joint, correction="stepdown", rng=seed)
    found = {"none": (best.pvalue <= ALPHA).tolist(), "step-down": best.worse.tolist()}
    for test in ("relpsi", "carve"):
        result = decide(joint, test=test, correction="none", rng=seed)
        found[test] = {"best": result.best_index, "worse": result.worse.tolist()}
    found["relmulti"] = _relmulti(reference, models, call)
    # As in `compare_pair`, which is the best set with two models.
    pair = decide(joint.at([0, 1], joint.names[:2]), correction="none", rng=seed)
    both = (pair.pvalue <= ALPHA).tolist()
    intervals = best.pair_intervals()
    held = (intervals[..., 0] <= 0.0) & (intervals[..., 1] >= 0.0)
    return {**found, "pair": both, "held": bool(held.all())}


def _relmulti(reference, models, call):
    """Any model that is declared worse; None where too few rows are left to test with."""
    counts = [len(reference), *(len(rows) for rows in models.values() if isinstance(rows, np.ndarray))]
    if "groups" in call:
        counts = [len(np.unique(call["groups"]["reference"]))]
    if min(counts) < 30:
        return None
    return bool(compare(reference, models, test="relmulti", **call).worse.any())


def rows(setting, results):
    """The rates of one setting: of the worst model and the mean over all, or of any error, with standard errors."""
    out = {**setting, "trials": len(results)}
    none = np.array([trial["none"] for trial in results], dtype=float)
    out["best set: worst"] = shown(*rate_of(none.mean(axis=0).max(), len(results)))
    out["mean"] = f"{none.mean():.3f}"
    out["step-down: any"] = shown(*rate_of(np.mean([any(trial["step-down"]) for trial in results]), len(results)))
    for test, name in (("relpsi", "RelPSI"), ("carve", "carving")):
        out[f"{name}: worst"], out[f"{name}: mean"] = _given_another(results, test)
    multi = [trial["relmulti"] for trial in results if trial.get("relmulti") is not None]
    out["RelMulti: any"] = shown(*rate_of(np.mean(multi), len(multi))) if multi else "–"
    pairs = [trial["pair"] for trial in results if "pair" in trial]
    out["pair: worse side"] = shown(*rate_of(np.mean(pairs, axis=0).max(), len(pairs))) if pairs else "–"
    held = [trial["held"] for trial in results if "held" in trial]
    out["pairs covered"] = f"{np.mean(held):.3f}" if held else "–"
    return [out]


def rate_of(value, trials):
    """A rate and its standard error, which is no smaller than that of a true rate of α."""
    spread = max(value * (1.0 - value), ALPHA * (1.0 - ALPHA))
    return float(value), float(np.sqrt(spread / trials))


def _given_another(results, test):
    """The largest rate of a model given that another one is selected, and the mean over the models."""
    if test not in results[0]:
        return "–", "–"
    worse = np.array([trial[test]["worse"] for trial in results], dtype=float)
    best = np.array([trial[test]["best"] for trial in results])
    other = best[:, None] != np.arange(worse.shape[1])
    counts = other.sum(axis=0)
    rates = (worse * other).sum(axis=0) / np.maximum(counts, 1)
    # Models that are nearly always selected have too few trials to say anything.
    at = int(np.argmax(np.where(counts >= len(results) / 10.0, rates, -1.0)))
    return shown(*rate_of(rates[at], counts[at])), f"{(worse * other).sum() / other.sum():.3f}"


def shown(value, error):
    """A rate with its standard error, in bold where it is above α by more than three of them."""
    text = f"{value:.3f} ± {error:.3f}"
    return text if level((value, error)) == "kept" else f"**{text}**"


COLUMNS = ("best set: worst", "step-down: any", "RelPSI: worst", "carving: worst", "RelMulti: any", "pair: worse side")


def write(docs, results):
    """The page; True if the default keeps its level in every setting."""
    found = [row for setting, trials in results["unlike"] for row in rows(setting, trials)]
    counts = []
    for column in COLUMNS:
        cells = [row[column] for row in found if row[column] != "–"]
        counts.append(f"{column} {sum('**' not in cell for cell in cells)} of {len(cells)}")
    write_page(
        docs,
        "calibration/unlike.md",
        counts="; ".join(counts),
        unlike=table(rows, results["unlike"]),
    )
    return all("**" not in row["step-down: any"] for row in found)


STUDY = Study(
    parts={"unlike": Part("unlike models", settings, trial, 1000)},
    store="unlike.sqlite",
    version="1",
    write=write,
)

if __name__ == "__main__":
    main(STUDY, __doc__)
