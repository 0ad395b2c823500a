"""RelPSI and carving for models that differ from the data in different ways: the published scale and the root scale.

Writes docs/evidence/calibration/relpsi.md.

python -m studies.relpsi [--trials 1000] [--workers 2]
"""

from dataclasses import replace
from functools import cache

import numpy as np

from relfit import Density, Gaussian, estimate
from relfit.stats.maxt import seeded
from relfit.stats.tests.base import Criteria
from relfit.stats.tests.carve import Carve, carve
from relfit.stats.tests.relpsi import RelPSI
from relfit.stats.tests.unlike import UNEQUAL_VARIANCES, most_unlike
from studies.calibration.cases import case
from studies.study import ALPHA, Part, Study, level, main, table, write_page
from studies.ties import UNLIKE_SCORES, as_far, rated

PUBLISHED, ROOT, ONCE, CARVED = "published", "root", "published, terms once", "carving"
FORMS = (PUBLISHED, ROOT, ONCE, CARVED)


def shapes(n, seed, d=5, shift=0.4, rows=None):
    """A wide model between two that are shifted along different axes, all at the same MMD²."""
    rng = np.random.default_rng(seed)
    size = (rows or n, d)
    models = {
        "shifted": rng.normal(size=size) + shift * np.eye(d)[0],
        "wide": as_far(shift, d, np.sqrt(d)) * rng.normal(size=size),
        "other axis": rng.normal(size=size) - shift * np.eye(d)[1],
    }
    return rng.normal(size=(n, d)), models, {"kernel": Gaussian(np.sqrt(d))}


def sizes(n, seed, rows=(60, 2000), d=5, shift=0.3):
    """Two models of different sizes, shifted equally along different axes."""
    rng = np.random.default_rng(seed)
    models = {f"{count} rows": rng.normal(size=(count, d)) + shift * np.eye(d)[k] for k, count in enumerate(rows)}
    return rng.normal(size=(n, d)), models, {"kernel": Gaussian(np.sqrt(2.0 * d))}


def paired(n, seed, d=5, shift=0.8):
    """Models that are functions of the reference rows: two shifts and a stretch, all at the same MMD²."""
    data = np.random.default_rng(seed).normal(size=(n, d))
    models = {
        "shifted": data + shift * np.eye(d)[0],
        "stretched": as_far(shift, d, np.sqrt(d)) * data,
        "other axis": data - shift * np.eye(d)[1],
    }
    return data, models, {"kernel": Gaussian(np.sqrt(d)), "dependence": "paired"}


@cache
def factors(distance, d, bandwidth):
    """The factors of `UNLIKE_SCORES` in the first of d columns that give every density this KSD, by quadrature.

    In every other column the kernel contributes its mean, 1/√(1 + 2/b²).
    """
    x = np.linspace(-8.0, 8.0, 4001)
    weight = np.exp(-(x**2) / 2.0) / np.sqrt(2.0 * np.pi) * (x[1] - x[0])
    kernel = np.exp(-np.square(x[:, None] - x) / (2.0 * bandwidth**2))
    parts = {name: difference(x) * weight for name, difference in UNLIKE_SCORES.items()}
    others = (1.0 + 2.0 / bandwidth**2) ** (-(d - 1) / 2.0)
    return {name: distance / np.sqrt(others * (part @ kernel @ part)) for name, part in parts.items()}


def densities(n, seed, d=1, bandwidth=1.0, distance=0.3):
    """Five densities whose scores are wrong in different places of one column, all at the same KSD²."""

    def density(name, factor):
        def score(x):
            wrong = np.zeros_like(x)
            wrong[:, 0] = factor * UNLIKE_SCORES[name](x[:, 0])
            return wrong - x

        return Density(score=score, dim=d)

    models = {name: density(name, factor) for name, factor in factors(distance, d, bandwidth).items()}
    return np.random.default_rng(seed).normal(size=(n, d)), models, {"kernel": Gaussian(bandwidth)}


def few_worse(n, seed, models=5, shift=0.2, worse=0.5, d=10):
    """Models shifted along different axes, the last one further."""
    rng = np.random.default_rng(seed)
    shifts = [shift] * (models - 1) + [worse]
    drawn = {f"m{k}": rng.normal(size=(n, d)) + by * np.eye(d)[k] for k, by in enumerate(shifts)}
    return rng.normal(size=(n, d)), drawn, {"kernel": Gaussian(np.sqrt(2.0 * d))}


# Models that differ from the data in different ways, all of them equally good: how they are drawn, and rows.
UNLIKE = {
    "shapes": (shapes, (30, 100, 300)),
    "shapes, further off": (lambda n, seed: shapes(n, seed, shift=0.9), (30, 300)),
    "shapes, 40 rows a model": (lambda n, seed: shapes(n, seed, shift=0.8, rows=40), (1000,)),
    "60 and 2000 rows": (sizes, (500,)),
    "shapes, paired": (paired, (60, 300)),
    "densities, KSD .1": (lambda n, seed: densities(n, seed, distance=0.1), (40, 150, 500)),
    "densities, KSD .3": (densities, (40, 150, 500, 2000)),
    "densities, 10 columns": (lambda n, seed: densities(n, seed, 10, 4.5, 0.3), (60, 300)),
}
# Cases of `studies.calibration.cases`: models that differ in one way, with the measure and rows.
LIKE = (
    ("tied-l2", "mmd", (50, 200, 500)),
    ("tied-l10", "mmd", (50, 200)),
    ("reference", "mmd", (200,)),
    ("atoms", "mmd", (200,)),
    ("tied-l2", "ksd", (200,)),
    ("tied-l10", "ksd", (50, 200)),
)
POWER = (
    ("meanshift-l10", "mmd", (200, 500)),
    ("meanshift-l10", "ksd", (200,)),
    ("mixture", "mmd", (500,)),
    ("rotation", "ksd", (200,)),
)
FEW_WORSE = {
    "two, .3 and .6": (lambda n, seed: few_worse(n, seed, 2, 0.3, 0.6), (150,)),
    "four at .2, one at .5": (few_worse, (300,)),
    "nine at .1, one at .35": (lambda n, seed: few_worse(n, seed, 10, 0.1, 0.35), (300,)),
}


def drawn_settings(makers):
    return [
        {"models": name, "measure": "ksd" if name.startswith("densities") else "mmd", "n": n}
        for name, (_, counts) in makers.items()
        for n in counts
    ]


def case_settings(cases):
    return [{"models": name, "measure": measure, "n": n} for name, measure, counts in cases for n in counts]


def drawn(setting, seed):
    """The reference, the models and the options of one trial."""
    makers = {**UNLIKE, **FEW_WORSE}
    if setting["models"] in makers:
        return makers[setting["models"]][0](setting["n"], seed)
    problem = case(setting["models"])
    return *problem.candidates(setting["measure"], setting["n"], seed), problem.options


def trial(setting, seed):
    """Which models are selected and declared worse in each form, and whether the note on variances is made."""
    reference, models, options = drawn(setting, seed)
    joint = estimate(reference, models, rng=seed, progress=False, **options)
    plain = RelPSI().prepared(joint)
    criteria = Criteria(ALPHA)
    root = RelPSI(scale="root")
    decisions = {
        PUBLISHED: RelPSI().decide(plain, criteria),
        ROOT: root.decide(root.prepared(joint), criteria),
        ONCE: RelPSI().decide(once(joint), criteria),
        CARVED: carve(Carve().prepared(joint), ALPHA, rng=seeded(seed, "carve")),
    }
    found = {name: {"best": each.best, "worse": each.worse.tolist()} for name, each in decisions.items()}
    ratio = most_unlike(plain, decisions[PUBLISHED].best)[2]
    return {**found, "noted": bool(ratio >= UNEQUAL_VARIANCES)}


def once(joint):
    """The estimate whose covariance has the first- and second-order terms once each; itself where they are unknown."""
    law = joint.close
    return joint if law is None else replace(joint, covariance=law.covariance(joint.values), close=None)


def tied_rates(setting, results):
    """The largest rate at which a tied model is declared worse given that another one is selected, and the mean."""
    row = {**setting, "trials": len(results)}
    for form in FORMS:
        worst, mean = _given_another(results, form)
        row |= {f"{form}: worst": shown(worst), f"{form}: mean": shown(mean)}
    return [{**row, "note": rated(np.mean([trial["noted"] for trial in results]), len(results))}]


def _given_another(results, form):
    """The worst rate of a model and the mean rate, each with its standard error."""
    worse = np.array([trial[form]["worse"] for trial in results], dtype=float)
    best = np.array([trial[form]["best"] for trial in results])
    other = best[:, None] != np.arange(worse.shape[1])
    counts = other.sum(axis=0)
    rates = (worse * other).sum(axis=0) / np.maximum(counts, 1)
    at = int(np.argmax(np.where(counts >= len(results) / 20, rates, 0.0)))
    share = (worse * other).sum(axis=1) / other.sum(axis=1)
    mean = (float(share.mean()), float(share.std() / np.sqrt(len(results))))
    return (float(rates[at]), float(np.sqrt(ALPHA * (1.0 - ALPHA) / counts[at]))), mean


def shown(rate):
    """A rate with its standard error, in bold where it is above α by more than three of them."""
    text = f"{rate[0]:.3f} ± {rate[1]:.3f}"
    return text if level(rate) == "kept" else f"**{text}**"


def power_rates(setting, results):
    """How often a worse model is found, and a best one lost."""
    row = {**setting, "trials": len(results)}
    worse = _worse_ones(setting)
    for form in FORMS:
        found = np.array([trial[form]["worse"] for trial in results])[:, worse]
        row[form] = rated(found.mean(), found.size)
    return [row]


def _worse_ones(setting):
    """Which models are truly worse, in their order."""
    if setting["models"] in FEW_WORSE:
        return [-1]
    problem = case(setting["models"])
    _, models = problem.candidates(setting["measure"], 20, 0)
    return [k for k, name in enumerate(models) if name in problem.worse]


def write(docs, results):
    """The page; True if the root scale keeps its level wherever models differ."""
    parts = {name: table(power_rates if name == "power" else tied_rates, found) for name, found in results.items()}
    write_page(docs, "calibration/relpsi.md", **parts, counts=_counts(results))
    return _kept(results["unlike"], ROOT) == len(results["unlike"])


def _kept(found, form):
    return sum(level(_given_another(trials, form)[0]) == "kept" for _, trials in found)


def _counts(results):
    """In how many settings each form keeps the level of its worst model."""
    parts = []
    for form in FORMS:
        numbers = [f"{_kept(results[part], form)} of {len(results[part])} {part}" for part in ("unlike", "like")]
        parts.append(f"{form} {' and '.join(numbers)}")
    return "; ".join(parts)


STUDY = Study(
    parts={
        "unlike": Part("relpsi, unlike", lambda: drawn_settings(UNLIKE), trial, 1000),
        "like": Part("relpsi, like", lambda: case_settings(LIKE), trial, 1000),
        "power": Part("relpsi, power", lambda: [*case_settings(POWER), *drawn_settings(FEW_WORSE)], trial, 1000),
    },
    store="relpsi.sqlite",
    version="1",
    write=write,
)

if __name__ == "__main__":
    main(STUDY, __doc__)
