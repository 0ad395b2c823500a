"""Tied models of different sizes and shapes, strata, labels, clusters, series, equivalence of 0/1 scores, and pairs.

Writes docs/evidence/calibration/ties.md.

python -m studies.ties [--trials 1000] [--workers 2]
"""

from functools import cache

import numpy as np
from scipy.optimize import brentq
from scipy.signal import lfilter

from relfit import Density, Gaussian, compare, compare_losses, compare_pair
from studies.study import ALPHA, Part, Study, main, table, write_page

# Reference rows, rows of the two models, columns, and the shift of each model.
SIZES = (
    {"n": 500, "m": (60, 2000), "d": 5, "shift": 0.3},
    {"n": 500, "m": (60, 2000), "d": 5, "shift": 0.6},
    {"n": 300, "m": (50, 2000), "d": 3, "shift": 0.3},
    {"n": 400, "m": (100, 1000), "d": 8, "shift": 0.25},
    {"n": 1000, "m": (100, 5000), "d": 5, "shift": 0.3},
)
STRATA = {
    "8 tasks of 3 to 60 items": [3, 4, 5, 8, 12, 20, 30, 60],
    "10 tasks of 3 items": [3] * 10,
    "40 tasks of 10 items": [10] * 40,
}
# Items, the true gap, and the margin.
EQUIVALENCE = (
    (20, 0.07, 0.05),
    (30, 0.07, 0.05),
    (50, 0.042, 0.03),
    (50, 0.028, 0.02),
    (100, 0.021, 0.01),
    (200, 0.05, 0.05),
    (400, 0.05, 0.05),
)

# Models, rows of each sample, the shift of all models but the last, and that of the last.
STEPS = (
    (10, 300, 0.1, 0.35),
    (10, 300, 0.2, 0.5),
    (10, 150, 0.1, 0.1),
    (10, 150, 0.5, 0.5),
    (30, 150, 0.3, 0.3),
)

# Rows of each sample, columns, and the shift of two of three models.
SHAPES = ((30, 5, 0.4), (60, 5, 0.4), (100, 5, 0.4), (300, 5, 0.4), (1000, 5, 0.4), (200, 2, 0.4), (100, 10, 0.5))
# How the rows belong together, rows of each sample, and the shift of two of three models.
TOGETHER = tuple(
    (rows, n, shift)
    for rows, n in (
        ("groups of 4", 240),
        ("groups of 4, shared", 240),
        ("groups of 4, paired", 240),
        ("shared", 60),
        ("paired", 60),
        ("paired, correlation 0.7", 60),
    )
    for shift in (0.15, 0.5)
)
# Rows of the models, which are shifted along axes of their own and tie under every kernel, and the shift.
KERNELS = (((60, 60, 60), 0.15), ((60, 60, 60), 0.5), ((50, 200, 2000), 0.15), ((50, 200, 2000), 0.5))
# How the score of a density differs from that of the standard normal distribution, for one column.
UNLIKE_SCORES = {
    "constant": np.ones_like,
    "slope": lambda x: x,
    "tail": lambda x: np.maximum(x - 1.5, 0.0),
    "local": lambda x: (np.abs(x - 1.0) < 0.13).astype(float),
    "sine": lambda x: np.sin(4.0 * x),
}
# Items of each cluster, by the number of clusters.
CLUSTERS = {
    "10": lambda count: np.full(count, 10),
    "1 to 40, even steps": lambda count: np.linspace(1, 40, count).round().astype(int),
    "2 to 60, even ratios": lambda count: np.geomspace(2, 60, count).round().astype(int),
}
# Clusters, their items, models, and by how much the last one is worse.
CLUSTERED = (
    (6, "10", 3, 0.0),
    (6, "1 to 40, even steps", 3, 0.0),
    (12, "10", 5, 0.0),
    (12, "1 to 40, even steps", 5, 0.0),
    (20, "1 to 40, even steps", 5, 0.0),
    (20, "2 to 60, even ratios", 5, 0.0),
    (40, "1 to 40, even steps", 10, 0.0),
    (40, "2 to 60, even ratios", 10, 0.0),
    (40, "1 to 40, even steps", 4, 0.45),
    (40, "1 to 40, even steps", 10, 0.45),
    (40, "2 to 60, even ratios", 10, 0.6),
)
# The dependence of a series: autocorrelations of all models or of each, or a moving average of so many items.
SERIES = {
    "AR(.5)": 0.5,
    "AR(.8)": 0.8,
    "AR(.9)": 0.9,
    "independent": 0.0,
    "one AR(.9), others independent": (0.9, 0.0, 0.0, 0.0, 0.0),
    "mean of 5 items": "average",
}
# The dependence, items, models, and by how many standard errors of the difference the last one is worse.
SERIAL = (
    ("AR(.8)", 60, 2, 0.0),
    ("AR(.8)", 60, 10, 0.0),
    ("AR(.9)", 200, 5, 0.0),
    ("AR(.5)", 60, 10, 0.0),
    ("independent", 60, 10, 0.0),
    ("one AR(.9), others independent", 60, 5, 0.0),
    ("one AR(.9), others independent", 200, 5, 0.0),
    ("mean of 5 items", 200, 5, 0.0),
    ("AR(.8)", 60, 10, 4.0),
    ("AR(.9)", 200, 5, 4.0),
    ("independent", 60, 10, 4.0),
    ("mean of 5 items", 200, 5, 4.0),
)


def size_trial(setting, seed):
    """Two models shifted equally along different axes."""
    rng = np.random.default_rng(seed)
    d = setting["d"]
    data = rng.normal(size=(setting["n"], d))
    models = {
        name: rng.normal(size=(count, d)) + setting["shift"] * np.eye(d)[axis]
        for axis, (name, count) in enumerate(zip(("small", "large"), setting["m"], strict=True))
    }
    result = compare(data, models, kernel=Gaussian(np.sqrt(2.0 * d)), rng=seed, progress=False)
    return verdicts(result)


def step_trial(setting, seed):
    """Models shifted along axes of their own, one of them further."""
    rng = np.random.default_rng(seed)
    d = 10
    shifts = [setting["shift"]] * (setting["models"] - 1) + [setting["worse"]]
    data = rng.normal(size=(setting["n"], d))
    models = {f"m{k}": rng.normal(size=data.shape) + shift * np.eye(d)[k % d] for k, shift in enumerate(shifts)}
    result = compare(data, models, kernel=Gaussian(np.sqrt(2.0 * d)), rng=seed, progress=False)
    return verdicts(result)


def step_rates(setting, results):
    """How often the worse model is found by each p-value, and a best one by the adjusted p-value."""
    trials = len(results)
    tied = setting["worse"] == setting["shift"]
    alone = np.array([trial["alone"] for trial in results])
    together = np.array([trial["together"] for trial in results])
    best = slice(None) if tied else slice(None, -1)
    return [
        {
            **setting,
            "trials": trials,
            "found, none": "–" if tied else rated(alone[:, -1].mean(), trials),
            "found, step-down": "–" if tied else rated(together[:, -1].mean(), trials),
            "best lost, step-down": rated(together[:, best].any(axis=1).mean(), trials),
        }
    ]


def verdicts(result):
    """Which models have p ≤ α each by itself, and for all at once."""
    alone = (result.pvalue <= ALPHA).tolist()
    together = (result.simultaneous_pvalue <= ALPHA).tolist()
    return {"alone": alone, "together": together}


def strata_trial(setting, seed):
    """Six models that are equally good in every task; tasks of up to four items have three times the spread."""
    rng = np.random.default_rng(seed)
    sizes = STRATA[setting["design"]]
    tasks = np.repeat(np.arange(len(sizes)), sizes)
    spread = np.where(np.array(sizes) <= 4, 3.0, 1.0)[tasks]
    losses = (rng.exponential(size=(len(tasks), 6)) - 1.0) * spread[:, None]
    weights = None
    if setting["weight of the first"] != 1:
        weights = {str(task): 1.0 for task in range(len(sizes))} | {"0": setting["weight of the first"]}
    options = {"strata": tasks.astype(str), "weights": weights, "higher_is_better": False}
    return verdicts(compare_losses(losses, rng=seed, **options))


def label_trial(setting, seed):
    """Five models, 330 items with a judge's scores, of which some have labels of people."""
    rng = np.random.default_rng(seed)
    draw = rng.exponential if setting["losses"] == "exponential" else rng.normal
    people = draw(size=(330, 5))
    judge = people + 0.5 * rng.normal(size=people.shape)
    labels = np.full_like(people, np.nan)
    labels[: setting["labels"]] = people[: setting["labels"]]
    return verdicts(compare_losses(judge, labels=labels, higher_is_better=False, rng=seed))


def cluster_trial(setting, seed):
    """Normal losses; .3 of their variance is common to the items of a cluster."""
    rng = np.random.default_rng(seed)
    sizes = CLUSTERS[setting["items"]](setting["clusters"])
    groups = np.repeat(np.arange(len(sizes)), sizes)
    shared = rng.normal(size=(len(sizes), setting["models"]))[groups]
    losses = np.sqrt(0.3) * shared + np.sqrt(0.7) * rng.normal(size=shared.shape)
    losses[:, -1] += setting["worse"]
    return {"worse": compare_losses(losses, groups=groups, higher_is_better=False, rng=seed).worse.tolist()}


def series_trial(setting, seed):
    """Normal losses of variance 1; the last model is worse by a multiple of the true standard error."""
    rng = np.random.default_rng(seed)
    kind, n = SERIES[setting["series"]], setting["n"]
    noise = rng.normal(size=(n + 200, setting["models"]))
    if kind == "average":
        losses, variance = lfilter(np.full(5, 5**-0.5), 1.0, noise, axis=0)[200:], 5.0
    else:
        rhos = np.broadcast_to(kind, setting["models"])
        columns = zip(rhos, noise.T, strict=True)
        losses = np.stack([lfilter([np.sqrt(1.0 - r * r)], [1.0, -r], column)[200:] for r, column in columns], axis=1)
        variance = (1.0 + rhos[-1]) / (1.0 - rhos[-1])
    losses[:, -1] += setting["worse by"] * np.sqrt(2.0 * variance / n)
    return {"worse": compare_losses(losses, dependence="series", higher_is_better=False, rng=seed).worse.tolist()}


def dependent_rates(setting, results):
    """How often any best model is called worse, and the worse one."""
    worse = np.array([trial["worse"] for trial in results])
    tied = not (setting.get("worse") or setting.get("worse by"))
    best = worse if tied else worse[:, :-1]
    shown = {
        "best lost": rated(best.any(axis=1).mean(), len(worse)),
        "found": "–" if tied else rated(worse[:, -1].mean(), len(worse)),
    }
    return [{**setting, "trials": len(worse), **shown}]


def equivalence_trial(setting, seed):
    """Two models that err on the same fifth of the items, and the second one on some more."""
    rng = np.random.default_rng(seed)
    first = rng.random(setting["n"]) < 0.2
    second = first | (rng.random(setting["n"]) < setting["gap"] / 0.8)
    losses = np.stack([first, second], axis=1).astype(float)
    result = compare_losses(losses, higher_is_better=False, margin=setting["margin"], rng=seed)
    return {"equivalent": bool(result.equivalent[1])}


def as_far(shift, columns, bandwidth):
    """The scale of a normal model whose MMD² to the standard normal equals that of one with this shift."""

    def kernel(variance, distance=0.0):
        width = bandwidth**2 + variance
        return (bandwidth**2 / width) ** (columns / 2) * np.exp(-(distance**2) / (2.0 * width))

    target = 2.0 * kernel(2.0) - 2.0 * kernel(2.0, shift)

    def excess(scale):
        return kernel(2.0 * scale**2) + kernel(2.0) - 2.0 * kernel(1.0 + scale**2) - target

    return brentq(excess, 1.0, 4.0)


def shape_trial(setting, seed):
    """A wide model between two that are shifted along different axes, all at the same MMD²."""
    rng = np.random.default_rng(seed)
    n, d, shift = setting["n"], setting["d"], setting["shift"]
    bandwidth = np.sqrt(d)
    data = rng.normal(size=(n, d))
    models = {
        "shifted": rng.normal(size=(n, d)) + shift * np.eye(d)[0],
        "wide": as_far(shift, d, bandwidth) * rng.normal(size=(n, d)),
        "other axis": rng.normal(size=(n, d)) - shift * np.eye(d)[1],
    }
    return verdicts(compare(data, models, kernel=Gaussian(bandwidth), rng=seed, progress=False))


def together_trial(setting, seed):
    """The three models of `shape_trial`, made from rows that belong together."""
    rng = np.random.default_rng(seed)
    n, d, shift = setting["n"], 5, setting["shift"]
    bandwidth = np.sqrt(d)
    kind = setting["rows"]
    groups = np.repeat(np.arange(n // 4), 4)

    def rows():
        if not kind.startswith("groups"):
            return rng.normal(size=(n, d))
        return np.sqrt(0.5) * (rng.normal(size=(n // 4, d))[groups] + rng.normal(size=(n, d)))

    data = rows()
    common = rows() if "shared" in kind else data
    correlation = 0.7 if "0.7" in kind else 1.0 if "shared" in kind or "paired" in kind else 0.0

    def noise():
        return correlation * common + np.sqrt(1.0 - correlation**2) * rows()

    models = {
        "shifted": noise() + shift * np.eye(d)[0],
        "wide": as_far(shift, d, bandwidth) * noise(),
        "other axis": noise() - shift * np.eye(d)[1],
    }
    options = {"kernel": Gaussian(bandwidth), "rng": seed, "progress": False}
    options["dependence"] = "shared" if "shared" in kind else "paired" if "paired" in kind else "independent"
    if kind.startswith("groups"):
        options["groups"] = dict.fromkeys(("reference", *models), groups)
    return verdicts(compare(data, models, **options))


def kernels_trial(setting, seed):
    """Models shifted equally along different axes, compared with three kernels in one test."""
    rng = np.random.default_rng(seed)
    d = 5
    kernels = [Gaussian(factor * np.sqrt(d)) for factor in (0.5, 1.0, 2.0)]
    data = rng.normal(size=(60, d))
    models = {
        f"{count} rows, axis {axis}": rng.normal(size=(count, d)) + setting["shift"] * np.eye(d)[axis]
        for axis, count in enumerate(setting["m"])
    }
    return verdicts(compare(data, models, kernel=kernels, rng=seed, progress=False))


@cache
def scaled_scores(distance):
    """The factors of `UNLIKE_SCORES` that give every density this KSD, with a Gaussian kernel of bandwidth 1.

    KSD² = E h(x) h(y) k(x, y) for a score that differs by h from the true one, here by quadrature.
    """
    x = np.linspace(-8.0, 8.0, 4001)
    weight = np.exp(-(x**2) / 2.0) / np.sqrt(2.0 * np.pi) * (x[1] - x[0])
    kernel = np.exp(-np.square(x[:, None] - x) / 2.0)
    parts = {name: difference(x) * weight for name, difference in UNLIKE_SCORES.items()}
    return {name: distance / np.sqrt(part @ kernel @ part) for name, part in parts.items()}


def density_trial(setting, seed):
    """Five densities whose scores are wrong in different places, all at the same KSD²."""
    data = np.random.default_rng(seed).normal(size=(setting["n"], 1))

    def density(name, factor):
        return Density(score=lambda x: factor * UNLIKE_SCORES[name](x) - x, dim=1)

    models = {name: density(name, factor) for name, factor in scaled_scores(setting["KSD"]).items()}
    return verdicts(compare(data, models, kernel=Gaussian(1.0), rng=seed, progress=False))


def pair_trial(setting, seed):
    """A shifted model and a wide one at the same MMD², each tested against the other."""
    rng = np.random.default_rng(seed)
    n, d = setting["n"], 5
    bandwidth = np.sqrt(d)
    data = rng.normal(size=(n, d))
    shifted = rng.normal(size=(n, d)) + 0.4 * np.eye(d)[0]
    wide = as_far(0.4, d, bandwidth) * rng.normal(size=(n, d))
    options = {"kernel": Gaussian(bandwidth), "rng": seed, "progress": False, "test": setting["test"]}
    forward = compare_pair(data, shifted, wide, **options).pvalue
    backward = compare_pair(data, wide, shifted, **options).pvalue
    return {"alone": [forward <= ALPHA, backward <= ALPHA], "together": [False, False]}


def rates(setting, results):
    """The largest rate of a model by itself and the rate of any for all at once, with standard errors."""
    trials = len(results)
    worst = np.mean([trial["alone"] for trial in results], axis=0).max()
    any_of = np.mean([any(trial["together"]) for trial in results])
    shown = {key: "/".join(map(str, value)) if isinstance(value, tuple) else value for key, value in setting.items()}
    return [{**shown, "trials": trials, "worst model": rated(worst, trials), "any, at once": rated(any_of, trials)}]


def pair_rates(setting, results):
    """The largest of the rates of the two directions."""
    return [{key: value for key, value in rates(setting, results)[0].items() if key != "any, at once"}]


def equivalence_rates(setting, results):
    """How often the second model is called equivalent."""
    shown = np.mean([trial["equivalent"] for trial in results])
    return [{**setting, "trials": len(results), '"equivalent"': rated(shown, len(results))}]


def rated(value, trials):
    """A rate with its Monte-Carlo standard error."""
    return f"{value:.3f} ± {np.sqrt(value * (1.0 - value) / trials):.3f}"


def largest(results):
    """The largest rate of a model by itself in these settings, and whether it may be α."""
    worst = [(np.mean([trial["alone"] for trial in trials], axis=0).max(), len(trials)) for _, trials in results]
    return all(value <= ALPHA + 3.0 * np.sqrt(ALPHA * (1.0 - ALPHA) / trials) for value, trials in worst)


def write(docs, results):
    """The page; False if a model of another size loses too often."""
    rows = {
        "equivalence": equivalence_rates,
        "pairs": pair_rates,
        "steps": step_rates,
        "clusters": dependent_rates,
        "series": dependent_rates,
    }
    parts = {name: table(rows.get(name, rates), found) for name, found in results.items()}
    write_page(docs, "calibration/ties.md", **parts)
    return largest(results["sizes"])


STUDY = Study(
    parts={
        "sizes": Part("model sizes", lambda: [dict(setting) for setting in SIZES], size_trial, 1000),
        "shapes": Part(
            "shapes",
            lambda: [{"n": n, "d": d, "shift": shift} for n, d, shift in SHAPES],
            shape_trial,
            1000,
        ),
        "densities": Part(
            "densities",
            lambda: [{"n": n, "KSD": distance} for distance in (0.1, 0.3) for n in (40, 150, 500, 2000)],
            density_trial,
            1000,
        ),
        "together": Part(
            "rows that belong together",
            lambda: [{"rows": rows, "n": n, "shift": shift} for rows, n, shift in TOGETHER],
            together_trial,
            1000,
        ),
        "kernels": Part(
            "several kernels",
            lambda: [{"m": m, "shift": shift} for m, shift in KERNELS],
            kernels_trial,
            1000,
        ),
        "strata": Part(
            "strata",
            lambda: (
                [{"design": design, "weight of the first": 1} for design in STRATA]
                + [{"design": next(iter(STRATA)), "weight of the first": 10}]
            ),
            strata_trial,
            1000,
        ),
        "labels": Part(
            "labels",
            lambda: [{"losses": kind, "labels": count} for kind in ("normal", "exponential") for count in (30, 100)],
            label_trial,
            1000,
        ),
        "clusters": Part(
            "clusters",
            lambda: [
                {"clusters": count, "items": items, "models": models, "worse": worse}
                for count, items, models, worse in CLUSTERED
            ],
            cluster_trial,
            1000,
        ),
        "series": Part(
            "series",
            lambda: [
                {"series": kind, "n": n, "models": models, "worse by": worse} for kind, n, models, worse in SERIAL
            ],
            series_trial,
            1000,
        ),
        "equivalence": Part(
            "equivalence",
            lambda: [{"n": n, "gap": gap, "margin": margin} for n, gap, margin in EQUIVALENCE],
            equivalence_trial,
            1000,
        ),
        "steps": Part(
            "step-down",
            lambda: [{"models": models, "n": n, "shift": shift, "worse": worse} for models, n, shift, worse in STEPS],
            step_trial,
            1000,
        ),
        "pairs": Part(
            "pairs",
            lambda: [{"n": n, "test": test} for n in (30, 60, 100, 300) for test in ("auto", "z")],
            pair_trial,
            1000,
        ),
    },
    store="ties.sqlite",
    version="2",
    write=write,
)

if __name__ == "__main__":
    main(STUDY, __doc__)
