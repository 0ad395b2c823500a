"""Models close to the data: level and power of the best set with each variance; writes docs/calibration/close.md.

python -m studies.close [--trials 1000] [--workers 2]
"""

import numpy as np

from relfit import IMQ, Complete, compare
from relfit.paper.experiment import rate
from studies.study import ALPHA, Part, Study, main, table, write_page

VARIANCES = ("projection", "corrected", "second-order")
KERNELS = {"gaussian": {}, "imq": {"kernel": IMQ()}, "kid": {"preset": "kid"}}
NOISE = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "skewed": lambda rng, shape: rng.exponential(size=shape) - 1.0,
    "heavy": lambda rng, shape: rng.standard_t(3, size=shape) / np.sqrt(3.0),
}
# Distance of all models to the data, rows, columns, models, sizes, law of the rows, kernel, directions of the shifts.
# Chosen so that nearly all pairs of two factors' values occur; many columns or models have few rows, for time.
TIES = """\
.5 200 10 2 equal normal gaussian same
.05 50 500 10 unequal skewed kid random
.2 200 2 50 unequal heavy imq same
.3 1000 10 10 equal skewed imq random
.1 1000 2 10 unequal normal gaussian same
0 50 2 2 equal heavy kid random
.2 50 500 2 equal skewed gaussian same
.05 200 10 50 equal normal kid random
.3 50 10 50 unequal heavy gaussian same
.1 200 500 2 unequal heavy imq random
0 200 2 10 unequal skewed imq same
.1 50 10 50 equal skewed imq random
.05 1000 2 2 unequal heavy kid same
.5 1000 2 10 unequal normal imq random
.3 200 500 2 equal normal kid same
0 50 10 50 equal normal gaussian random
.2 1000 10 10 unequal normal imq same
.5 50 500 2 unequal skewed kid random
.2 50 500 10 unequal heavy kid same
.5 200 10 10 unequal heavy gaussian random
.05 50 2 10 unequal skewed gaussian same
.05 50 500 2 equal heavy imq random
.3 200 2 10 unequal heavy imq same
.1 50 2 10 unequal normal kid random
0 1000 10 10 unequal normal gaussian same
.2 200 10 2 equal normal gaussian random
.2 1000 2 2 equal heavy gaussian same
.1 200 2 10 equal skewed gaussian random
.3 200 10 10 equal normal imq random
.2 600 10 2 equal normal imq random
"""


def ties():
    """Settings in which all models are equally far from the data."""
    names = ("distance", "n", "columns", "models", "sizes", "rows", "kernel", "directions")
    kinds = (float, int, int, int, str, str, str, str)
    return [
        {name: kind(word) for name, kind, word in zip(names, kinds, line.split(), strict=True)}
        for line in TIES.split("\n")
        if line
    ]


def worse_models():
    """Nine models at one distance and one at a larger one, and ten models equal to the data."""
    common = {"columns": 10, "models": 10, "sizes": "equal", "rows": "normal", "kernel": "gaussian"}
    cells = [(0.0, None, 200), (0.1, 0.35, 300), (0.2, 0.5, 300), (0.3, 0.6, 300), (0.5, 1.0, 200)]
    return [
        {"distance": distance, "worse": worse, "n": n, "directions": directions, **common}
        for distance, worse, n in cells
        for directions in (("same", "random") if distance else ("same",))
    ]


def trial(setting, seed):
    """The numbers of the models that each variance declares worse."""
    rng = np.random.default_rng(seed)
    n, d, noise = setting["n"], setting["columns"], NOISE[setting["rows"]]
    distances = [setting["distance"]] * setting["models"]
    if setting.get("worse") is not None:
        distances[-1] = setting["worse"]
    m = n if setting["sizes"] == "equal" else max(40, n // 2)
    models = {}
    for k, distance in enumerate(distances):
        direction = np.eye(d)[0] if setting["directions"] == "same" else rng.normal(size=d)
        models[str(k)] = noise(rng, (m, d)) + distance * direction / np.linalg.norm(direction)
    reference = noise(rng, (n, d))
    out = {}
    for variance in VARIANCES:
        options = {"estimator": Complete(variance=variance), "rng": seed, "progress": False}
        result = compare(reference, models, **options, **KERNELS[setting["kernel"]])
        out[variance] = np.flatnonzero(result.worse).tolist()
    return out


def _wrong(setting, results, variance):
    """The error rate: the fraction of the best models that are declared worse."""
    best = setting["models"] - (setting.get("worse") is not None)
    return rate([sum(k < best for k in result[variance]) / best for result in results])


def tie_rows(setting, results):
    """The error rate of each variance."""
    rates = {variance: _wrong(setting, results, variance) for variance in VARIANCES}
    error = rates["second-order"]
    return [{**setting, **rates, "level": "kept" if error[0] <= ALPHA + 3.0 * error[1] else "EXCEEDED"}]


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


def write(docs, results):
    """The page."""
    write_page(
        docs,
        "calibration/close.md",
        tie_trials=min(len(trials) for _, trials in results["ties"]),
        found_trials=min(len(trials) for _, trials in results["found"]),
        ties=table(tie_rows, results["ties"]),
        found=table(found_rows, results["found"]),
    )
    return all(row["level"] == "kept" for setting, trials in results["ties"] for row in tie_rows(setting, trials))


STUDY = Study(
    {"found": Part("close-found", worse_models, trial, 1000), "ties": Part("close-ties", ties, trial, 1000)},
    "close.sqlite",
    "1",
    write,
)

if __name__ == "__main__":
    main(STUDY, __doc__)
