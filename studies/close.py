"""The law with both its parts: level and power of the best set with each variance.

Writes docs/evidence/calibration/close.md.

python -m studies.close [--trials 1000] [--workers 2]
"""

from dataclasses import replace
from functools import cache
from itertools import combinations, product

import numpy as np
from scipy import optimize, stats

from relfit import IMQ, Complete, Density, Gaussian, compare, decide, estimate
from relfit.paper.experiment import rate
from relfit.paper.problems import digits
from relfit.stats.joint import mixed, positive_part
from relfit.stats.tests.best_set import BestSet, best_set
from relfit.stats.tests.carve import Carve
from relfit.stats.tests.relmulti import RelMulti
from relfit.stats.tests.relpsi import RelPSI
from studies.calibration import levels
from studies.calibration.cases import case
from studies.study import ALPHA, Part, Study, declared, error_rates, level, main, table, unadjusted, write_page

VARIANCES = ("projection", "corrected", "auto")
# Draws of the other two variances.
DRAWS = 2000
KERNELS = {"gaussian": {}, "imq": {"kernel": IMQ()}, "kid": {"preset": "kid"}, "ksd": {}}
# Rows, and the scores of the density they come from.
NOISE = {
    "normal": (lambda rng, shape: rng.normal(size=shape), lambda z: -z),
    "skewed": (lambda rng, shape: rng.gumbel(size=shape), lambda z: np.exp(-z) - 1.0),
    "heavy": (lambda rng, shape: rng.standard_t(3, size=shape), lambda z: -4.0 * z / (3.0 + z**2)),
}
FACTORS = {
    "distance": (0.0, 0.05, 0.1, 0.2, 0.3, 0.5),
    "n": (50, 200, 1000),
    "columns": (2, 10, 500),
    "models": (2, 10, 50),
    "sizes": ("equal", "unequal"),
    "rows": tuple(NOISE),
    "kernel": tuple(KERNELS),
    "directions": ("same", "random"),
}
SETTINGS = 64
# Kernel values of one estimate, counted once for every ten columns, or every one of KSD's: more take too long.
MOST_VALUES = 6e7


def cost(setting):
    """The kernel values of an estimate, weighted by their columns."""
    n, d, count = setting["n"], setting["columns"], setting["models"]
    values = n * n * (count + 1) * 1.5
    return values * (1 + d / (10 if setting["kernel"] == "ksd" else 100))


@cache
def ties():
    """Settings in which all models are equally far from the data, such that nearly all pairs of two factors meet.

    One setting after the other is chosen to have most pairs that none before it has; those left over go to settings of
    their own choice.
    """
    everything = [dict(zip(FACTORS, values, strict=True)) for values in product(*FACTORS.values())]
    allowed = [
        setting
        for setting in everything
        if cost(setting) <= MOST_VALUES
        and not (setting["kernel"] == "ksd" and (setting["sizes"] == "unequal" or setting["distance"] == 0.0))
        and not (setting["kernel"] == "ksd" and setting["directions"] == "same")
    ]
    order = np.random.default_rng(0).permutation(len(allowed))
    pairs = [frozenset(combinations(setting.items(), 2)) for setting in (allowed[k] for k in order)]
    seen, chosen = set(), []
    while len(chosen) < SETTINGS:
        gains = [len(pair - seen) for pair in pairs]
        best = int(np.argmax(gains))
        # Once all pairs have met, any setting will do.
        best = best if gains[best] else len(chosen) * 97 % len(pairs)
        seen |= pairs[best]
        chosen.append(allowed[order[best]])
    return chosen


def worse_models():
    """Nine models at one distance and one at a larger one, and ten models equal to the data."""
    common = {"columns": 10, "models": 10, "sizes": "equal", "rows": "normal", "kernel": "gaussian"}
    cells = [(0.0, None, 200), (0.1, 0.35, 300), (0.2, 0.5, 300), (0.3, 0.6, 300), (0.5, 1.0, 200)]
    return [
        {"distance": distance, "worse": worse, "n": n, "directions": directions, **common}
        for distance, worse, n in cells
        for directions in (("same", "random") if distance else ("same",))
    ]


def verdicts(joint, seed):
    """The numbers of the models that each variance declares worse."""
    plain, second = replace(joint, close=None), joint.close.second
    half = positive_part(joint.covariance - 2.0 * second, mixed(second, joint.covariance))
    joints = {
        "projection": plain,
        "corrected": replace(plain, covariance=second + half),
        "auto": BestSet().prepared(joint),
    }
    return {
        variance: np.flatnonzero(best_set(each, ALPHA, rng=np.random.default_rng(seed), draws=DRAWS).worse).tolist()
        for variance, each in joints.items()
    }


def trial(setting, seed):
    """The numbers of the models that each variance declares worse."""
    rng = np.random.default_rng(seed)
    n, d, (noise, score) = setting["n"], setting["columns"], NOISE[setting["rows"]]
    distances = [setting["distance"]] * setting["models"]
    if setting.get("worse") is not None:
        distances[-1] = setting["worse"]
    m = n if setting["sizes"] == "equal" else max(40, n // 2)
    models = {}
    for k, distance in enumerate(distances):
        direction = np.eye(d)[0] if setting["directions"] == "same" else rng.normal(size=d)
        shift = distance * direction / np.linalg.norm(direction)
        if setting["kernel"] == "ksd":
            models[str(k)] = Density(score=lambda x, shift=shift: score(x - shift), dim=d)
        else:
            models[str(k)] = noise(rng, (m, d)) + shift
    reference = noise(rng, (n, d))
    return verdicts(estimate(reference, models, rng=seed, progress=False, **KERNELS[setting["kernel"]]), seed)


def unlike():
    """Two densities with the same KSD² that are wrong in unlike ways, and real rows."""
    rare = [{"case": "rare rows", "percent": p, "n": n} for p in (2.3, 0.8) for n in (400, 1000)]
    tails = [{"case": "heavy tails", "freedom": f, "n": n} for f in (3, 5) for n in (100, 200, 400, 1000)]
    return [*rare, *tails, {"case": "digits", "n": 300}]


def unlike_trial(setting, seed):
    """Which of the two (or four) each variance declares worse."""
    rng = np.random.default_rng(seed)
    if setting["case"] == "digits":
        images, _ = digits()
        images = images.reshape(len(images), -1).astype(float)
        parts = np.array_split(rng.permutation(len(images)), 5)
        reference, *models = (images[part[: setting["n"]]] for part in parts)
        return verdicts(estimate(reference, dict(zip("1234", models, strict=True)), rng=seed, progress=False), seed)
    if setting["case"] == "rare rows":
        x, width, scores = rng.normal(size=(setting["n"], 1)), 1.0, rare_scores(setting["percent"])
    else:
        x, width = rng.standard_t(setting["freedom"], size=(setting["n"], 1)), 1.5
        scores = tail_scores(setting["freedom"])
    models = {name: Density(score=score, dim=1) for name, score in zip("AB", scores, strict=True)}
    return verdicts(estimate(x, models, kernel=Gaussian(width), rng=seed, progress=False), seed)


def _population(errors, weights, points, width):
    """KSD² by quadrature, from score errors at points with these weights."""
    kernel = np.exp(-np.square(points[:, None] - points) / (2.0 * width**2))
    return float((errors * weights) @ kernel @ (errors * weights))


@cache
def rare_scores(percent):
    """A normal density shifted by 0.3, and one whose score is wrong in the upper tail only; KSD² is the same."""
    z, cut = np.linspace(-8.0, 8.0, 4001), {2.3: 2.0, 0.8: 2.4}[percent]
    weights = stats.norm.pdf(z) * (z[1] - z[0])
    shifted = _population(np.full_like(z, 0.3), weights, z, 1.0)
    size = np.sqrt(shifted / _population((z > cut).astype(float), weights, z, 1.0))
    return (lambda x: 0.3 - x), (lambda x: size * (x > cut) - x)


@cache
def tail_scores(freedom):
    """A shifted t distribution, and a normal one with the variance of the data; KSD² is the same."""
    z = np.linspace(-60.0, 60.0, 6001)
    weights, variance = stats.t.pdf(z, freedom) * (z[1] - z[0]), freedom / (freedom - 2.0)

    def score(x):
        return -(freedom + 1.0) * x / (freedom + x**2)

    normal = _population(-z / variance - score(z), weights, z, 1.5)
    shift = optimize.brentq(lambda s: _population(score(z - s) - score(z), weights, z, 1.5) - normal, 1e-3, 1.5)
    return (lambda x: score(x - shift)), (lambda x: -x / variance)


def covered():
    """Samples with known MMD², and four Gaussian models of skewed real rows with known KSD²."""
    shifts = ([0.0] * 4, [0.1] * 4, [0.2, 0.2, 0.2, 0.4], [0.5] * 4, [0.5, 0.6, 0.8, 1.0])
    return [{"shifts": each, "n": 200} for each in shifts] + [{"shifts": None, "n": n} for n in (150, 400)]


def cover_trial(setting, seed):
    """For plain variances and both parts: which 95% statements hold for all models, and the length of an interval."""
    rng, n = np.random.default_rng(seed), setting["n"]
    if setting["shifts"] is None:
        rows, gaussians, truth = diabetes()
        reference = rows[rng.integers(len(rows), size=n)]
        models = {name: Density(score=score, dim=rows.shape[1]) for name, score in gaussians.items()}
        width = DIABETES_WIDTH
    else:
        d, shifts = 10, np.array(setting["shifts"])
        width, directions = float(np.sqrt(2.0 * d)), rng.normal(size=(len(shifts), d))
        means = shifts[:, None] * directions / np.linalg.norm(directions, axis=1, keepdims=True)
        models = {str(k): rng.normal(size=(n, d)) + mean for k, mean in enumerate(means)}
        reference = rng.normal(size=(n, d))
        # E k(x, y) of two normal samples whose means are a distance s apart.
        near = (width**2 / (width**2 + 2.0)) ** (d / 2)
        truth = 2.0 * near * (1.0 - np.exp(-np.square(shifts) / (2.0 * (width**2 + 2.0))))
    out = {}
    for variance in ("projection", "auto"):
        options = {"estimator": Complete(variance=variance), "kernel": Gaussian(width), "progress": False}
        result = compare(reference, models, rng=seed, **options)
        regret, apart, ends = truth - truth.min(), np.subtract.outer(truth, truth), result.pair_intervals()
        interval, tiny = result.confidence_interval(), 1e-12
        out[variance] = {
            "interval": bool(((interval[:, 0] <= regret + tiny) & (regret <= interval[:, 1] + tiny)).all()),
            "upper bound": bool((regret <= result.upper_bound() + tiny).all()),
            "all pairs": bool(((ends[..., 0] <= apart + tiny) & (apart <= ends[..., 1] + tiny)).all()),
            "length": float(np.ptp(ends[0, 1])),
        }
    return out


class _BothParts:
    """A test whose covariance has both parts of the law."""

    def prepared(self, joint):
        return replace(BestSet().prepared(joint), close=None)


class LawfulRelPSI(_BothParts, RelPSI):
    """RelPSI with both parts."""


class LawfulCarve(_BothParts, Carve):
    """Carving with both parts."""


KNOWN = {
    "best-set": "best set: FPR",
    "relmulti": "RelMulti: FDR",
    "relmulti alone": "RelMulti, no correction: FPR",
    "carve": "carving: FPR",
    "relpsi": "RelPSI: FPR",
}
TESTS = {"best-set": BestSet(), "relmulti": RelMulti(), "carve": LawfulCarve(), "relpsi": LawfulRelPSI()}


def known():
    """The settings of docs/evidence/calibration/levels.md with the complete estimate; the slowest is last."""
    complete = [setting for setting in levels.cells() if setting["estimator"] == "complete"]
    return sorted(complete, key=lambda setting: setting["problem"] == "tied-l200")


def known_trial(setting, seed):
    """The models that each test declares worse with both parts of the law, and RelMulti without a correction."""
    problem = case(setting["problem"])
    reference, models = problem.candidates(setting["measure"], setting["n"], seed)
    options = {"alpha": ALPHA, "rng": seed}
    results = {
        "relmulti": compare(reference, models, test=TESTS["relmulti"], progress=False, **options, **problem.options)
    }
    more = {**problem.options, "kernel": results["relmulti"].kernel}
    joint = estimate(reference, models, rng=seed, progress=False, **more)
    for name in ("best-set", "carve", "relpsi"):
        if joint.psi is None:  # `compare` knows exact copies
            results[name] = compare(reference, models, test=TESTS[name], correction=unadjusted(name), **options, **more)
        else:
            results[name] = decide(joint, test=TESTS[name], correction=unadjusted(name), **options)
    out = {name: declared(result.names, result.worse) for name, result in results.items()}
    split = results["relmulti"]
    return {**out, "relmulti alone": declared(split.names, split.pvalue <= ALPHA)}


DIABETES_WIDTH = 2.5


@cache
def diabetes():
    """Four columns of scikit-learn's diabetes data, four Gaussian models' scores, and their KSD² to these rows."""
    from sklearn.datasets import load_diabetes

    rows = load_diabetes().data[:, [2, 3, 4, 8]]
    rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    mean, spread = rows.mean(axis=0), np.cov(rows.T)
    models = {
        "full": (mean, spread),
        "diagonal": (mean, np.diag(np.diag(spread))),
        "shifted": (mean + 0.15, spread),
        "wide": (mean, 1.3 * spread),
    }
    rate, square = 0.5 / DIABETES_WIDTH**2, np.square(rows[:, None] - rows).sum(axis=2)
    kernel, scores, truth = np.exp(-rate * square), {}, []
    for name, (centre, covariance) in models.items():
        inverse = np.linalg.inv(covariance)
        scores[name] = lambda x, centre=centre, inverse=inverse: (centre - x) @ inverse
        s = scores[name](rows)
        across = s @ rows.T
        own = np.diag(across)
        u = s @ s.T + 2.0 * rate * (own[:, None] + own - across - across.T) + 2.0 * rows.shape[1] * rate
        truth.append(float((kernel * (u - 4.0 * rate**2 * square)).mean()))
    return rows, scores, np.array(truth)


def known_rows(setting, results):
    """The error that each test claims to hold, with both parts of the law."""
    problem = case(setting["problem"])
    row = {key: setting[key] for key in ("problem", "measure", "n")}
    for test, label in KNOWN.items():
        row[label] = error_rates(problem, [result[test] for result in results])[label.split(": ")[1]]
    return [row]


def cover_rows(setting, results):
    """Coverage with plain variances and with both parts, and the ratio of the intervals' lengths."""
    shifts = setting["shifts"]
    row = {"models": "diabetes, KSD" if shifts is None else "shifts " + ", ".join(map(str, shifts)), "n": setting["n"]}
    for variance in ("projection", "auto"):
        for what in ("interval", "upper bound", "all pairs"):
            row[f"{variance}: {what}"] = rate([float(result[variance][what]) for result in results])
    lengths = {v: np.mean([result[v]["length"] for result in results]) for v in ("projection", "auto")}
    row["length, auto / projection"] = f"{lengths['auto'] / lengths['projection']:.2f}"
    return [row]


def _wrong(setting, results, variance):
    """The error rate: the fraction of the best models that are declared worse."""
    best = setting["models"] - (setting.get("worse") is not None)
    return rate([sum(k < best for k in result[variance]) / best for result in results])


def tie_rows(setting, results):
    """The error rate of each variance."""
    rates = {variance: _wrong(setting, results, variance) for variance in VARIANCES}
    return [{**setting, **rates, "level": level(rates["auto"])}]


def found_rows(setting, results):
    """The error rate of each variance, and how often it finds the worse model."""
    last, shown = setting["models"] - 1, ("distance", "worse", "n", "directions")
    row = {name: "—" if setting[name] is None else setting[name] for name in shown}
    for variance in VARIANCES:
        row[f"{variance}: wrong"] = _wrong(setting, results, variance)
        found = rate([last in result[variance] for result in results])
        row["found"] = "—" if setting["worse"] is None else f"{found[0]:.3f} ± {found[1]:.3f}"
        row[f"{variance}: found"] = row.pop("found")
    return [row]


def unlike_rows(setting, results):
    """How often each model is declared worse; of the digits, the mean over the models."""
    case = {
        "rare rows": lambda: f"{setting['percent']}% rare rows",
        "heavy tails": lambda: f"t rows, {setting['freedom']} degrees of freedom",
        "digits": lambda: "parts of the digits",
    }[setting["case"]]()
    row = {"case": case, "n": setting["n"]}
    for variance in VARIANCES:
        if setting["case"] == "digits":
            row[f"{variance}: A"] = rate([len(result[variance]) / 4 for result in results])
            row[f"{variance}: B"] = "—"
        else:
            for k, name in enumerate("AB"):
                row[f"{variance}: {name}"] = rate([float(k in result[variance]) for result in results])
    return [row]


def write(docs, results):
    """The page."""
    write_page(
        docs,
        "calibration/close.md",
        **{f"{name}_trials": min(len(trials) for _, trials in part) for name, part in results.items()},
        settings=len(results["ties"]),
        ties=table(tie_rows, results["ties"]),
        found=table(found_rows, results["found"]),
        unlike=table(unlike_rows, results["unlike"]),
        covered=table(cover_rows, results["covered"]),
        known=table(known_rows, results["known"]),
    )
    return all(row["level"] == "kept" for setting, trials in results["ties"] for row in tie_rows(setting, trials))


STUDY = Study(
    {
        "found": Part("close-found", worse_models, trial, 1000),
        "unlike": Part("close-unlike", unlike, unlike_trial, 1000),
        "covered": Part("close-covered", covered, cover_trial, 1000),
        "ties": Part("close-ties", ties, trial, 1000),
        "known": Part("close-known", known, known_trial, 1000),
    },
    "close.sqlite",
    "2",
    write,
)

if __name__ == "__main__":
    main(STUDY, __doc__)
