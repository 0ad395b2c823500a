"""Discrepancies that a user brings, under every test: the level, and what is found.

Writes docs/evidence/calibration/discrepancies.md.

python -m studies.discrepancies [--trials 1000] [--workers 2]
"""

import numpy as np
from scipy.spatial.distance import cdist

from relfit import Discrepancy, compare, decide, estimate
from studies.study import ALPHA, Part, Study, main, table, write_page
from studies.ties import rated

TESTS = ("best-set", "relpsi", "relmulti", "carve")
ROWS = 150
COLUMNS = 3
SHIFT = 0.5
WORSE = 1.0
# Directions of the sliced Wasserstein distance, the same for all samples.
DIRECTIONS = np.linalg.qr(np.random.default_rng(20191208).normal(size=(20, COLUMNS)).T)[0].T


def energy_distance(reference, model):
    """The unbiased energy distance, with the contribution of every row."""
    n, m = len(reference), len(model)
    across = cdist(reference, model)
    within = cdist(reference, reference).sum(axis=1) / (n - 1)
    own = cdist(model, model).sum(axis=1) / (m - 1)
    value = 2.0 * across.mean() - within.mean() - own.mean()
    return value, 2.0 * (across.mean(axis=1) - within), 2.0 * (across.mean(axis=0) - own)


def sliced_wasserstein(reference, model):
    """The mean squared distance of the quantiles along some directions."""
    levels = (np.arange(100) + 0.5) / 100
    both = [np.quantile(rows @ DIRECTIONS.T, levels, axis=0) for rows in (reference, model)]
    return float(np.square(both[0] - both[1]).mean())


def frechet_distance(reference, model):
    """FID of the columns as they are."""
    gap = reference.mean(axis=0) - model.mean(axis=0)
    first, second = np.cov(reference.T), np.cov(model.T)
    root = np.sqrt(np.maximum(np.linalg.eigvals(first @ second).real, 0.0)).sum()
    return float(gap @ gap + np.trace(first) + np.trace(second) - 2.0 * root)


def separability(reference, model):
    """How often a linear classifier tells the model's rows from the data, beyond one half."""
    gap = model.mean(axis=0) - reference.mean(axis=0)
    centre = (model.mean(axis=0) + reference.mean(axis=0)) / 2.0
    direction = np.linalg.solve(np.cov(reference.T) + np.cov(model.T), gap)
    right = [((model - centre) @ direction > 0.0).mean(), ((reference - centre) @ direction < 0.0).mean()]
    return float(np.mean(right)) - 0.5


OWN = {
    "energy distance, contributions given": Discrepancy(energy_distance),
    "sliced Wasserstein, jackknife": Discrepancy(sliced_wasserstein),
    "Fréchet distance, jackknife": Discrepancy(frechet_distance),
    "classifier's accuracy, bootstrap": Discrepancy(separability, resampling="bootstrap"),
}


def settings():
    """Every discrepancy, with three tied models and with one that is worse."""
    return [{"discrepancy": name, "worse": worse} for name in OWN for worse in (SHIFT, WORSE)]


def trial(setting, seed):
    """Three models shifted along axes of their own, the last one perhaps further."""
    rng = np.random.default_rng(seed)
    data = rng.normal(size=(ROWS, COLUMNS))
    models = {
        f"m{axis}": rng.normal(size=data.shape) + shift * np.eye(COLUMNS)[axis]
        for axis, shift in enumerate((SHIFT, SHIFT, setting["worse"]))
    }
    own = OWN[setting["discrepancy"]]
    joint = estimate(data, models, discrepancy=own, rng=seed, progress=False)
    results = {test: decide(joint, test=test, rng=seed) for test in TESTS if test != "relmulti"}
    results["relmulti"] = compare(data, models, discrepancy=own, test="relmulti", rng=seed, progress=False)
    return {test: (result.pvalue <= ALPHA).tolist() for test, result in results.items()}


def rates(setting, results):
    """The largest rate of a tied model, or how often the worse one is found, by each test."""
    tied = setting["worse"] == SHIFT
    shown = {"discrepancy": setting["discrepancy"], "models": "tied" if tied else "one worse", "trials": len(results)}
    for test in TESTS:
        each = np.mean([result[test] for result in results], axis=0)
        shown[test] = rated(float(each.max() if tied else each[-1]), len(results))
    return [shown]


def highest(results):
    """The largest rate of a tied model under any test."""
    return max(
        np.mean([result[test] for result in trials], axis=0).max()
        for setting, trials in results
        if setting["worse"] == SHIFT
        for test in TESTS
    )


def write(docs, results):
    """The page; False if a tied model is called worse too often."""
    found = results["levels"]
    trials = min(len(each) for _, each in found)
    worst = highest(found)
    write_page(docs, "calibration/discrepancies.md", levels=table(rates, found), worst=rated(float(worst), trials))
    return worst <= ALPHA + 3.0 * np.sqrt(ALPHA * (1.0 - ALPHA) / trials)


STUDY = Study(
    parts={"levels": Part("own discrepancies", settings, trial, 1000)},
    store="discrepancies.sqlite",
    version="1",
    write=write,
)

if __name__ == "__main__":
    main(STUDY, __doc__)
