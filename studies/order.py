"""The check of the rows' order: how often it is wrong of independent rows, and what it finds in the order of time.

Writes docs/evidence/calibration/order.md.

python -m studies.order [--trials 40] [--workers 2]
"""

from functools import partial

import numpy as np
from scipy.signal import lfilter

from relfit import Density, compare, compare_losses
from studies.study import Part, Study, main, table, write_page

# Comparisons in one trial, so that storing a trial costs little beside it.
EACH = 25
DRAWS = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "t, 2 degrees of freedom": lambda rng, shape: rng.standard_t(2, size=shape),
    "lognormal": lambda rng, shape: np.exp(2.0 * rng.normal(size=shape)),
    "right or wrong": lambda rng, shape: (rng.random(shape) < 0.5).astype(float),
    "rarely wrong": lambda rng, shape: (rng.random(shape) < 0.02).astype(float),
}
# Ways to compare samples of two columns, or densities.
WAYS = {
    "all pairs": {},
    "linear": {"estimator": "linear"},
    "incomplete": {"estimator": "incomplete"},
    "RelMulti": {"test": "relmulti"},
    "kernel chosen": {"kernel": "select"},
    "KSD": {},
    "log-likelihood": {"discrepancy": "loglik"},
}
SAYS = ("successive", "sorted or come in blocks", "changes along the table")


def normal(mean):
    """A normal density of two columns."""
    return Density(
        log_prob=lambda x: -0.5 * np.square(x - mean).sum(axis=1) - np.log(2.0 * np.pi),
        score=lambda x: mean - x,
        dim=2,
        normalised=True,
    )


def in_time(rng, phi, shape):
    """Stationary AR(1) columns of variance 1; independent ones where φ is 0."""
    noise = np.sqrt(1.0 - phi**2) * rng.normal(size=(shape[0] + 300, shape[1]))
    return lfilter([1.0], [1.0, -phi], noise, axis=0)[300:]


def compared(way, phi, rng):
    """Two models that are equally good, by one of the ways."""
    data = in_time(rng, phi, (200, 2))
    if way in ("KSD", "log-likelihood"):
        models = {"a": normal(0.1), "b": normal(-0.1)}
    else:
        models = {name: in_time(rng, phi, (200, 2)) for name in "ab"}
    return compare(data, models, rng=0, progress=False, **WAYS[way])


def outcome(result):
    """Whether a model is called worse, and whether there is a note or a doubt about the order."""
    noted = any(words in note for note in result.warnings for words in SAYS)
    return [bool(result.worse.any()), noted, bool(result.doubts)]


def counted(outcomes):
    """How often each of the three was so."""
    return dict(zip(("worse", "notes", "doubts"), np.sum(outcomes, axis=0).tolist(), strict=True))


def score_trial(setting, seed):
    """Scores of three models that do not differ."""
    rng = np.random.default_rng(seed)
    shape = setting["n"], 3
    draws = [DRAWS[setting["scores"]](rng, shape) for _ in range(EACH)]
    return counted([outcome(compare_losses(rows, higher_is_better=True, rng=0)) for rows in draws])


def sample_trial(setting, seed):
    """Samples and densities, with independent rows or rows in the order of time."""
    rng = np.random.default_rng(seed)
    return counted([outcome(compared(setting["compared by"], setting["phi"], rng)) for _ in range(EACH)])


def row(setting, results):
    """The setting with the numbers of comparisons, and of those with a verdict, a note and a doubt."""
    sums = {key: sum(result[key] for result in results) for key in ("worse", "notes", "doubts")}
    return [{**setting, "comparisons": EACH * len(results), **sums}]


def write(docs, results):
    """The page; False if notes of independent rows are more frequent than 1 in 1,000 and chance allows."""
    independent = [each for part in ("scores", "samples") for each in results[part]]
    total = sum(EACH * len(trials) for _, trials in independent)
    notes = sum(trial["notes"] for _, trials in independent for trial in trials)
    doubts = sum(trial["doubts"] for _, trials in independent for trial in trials)
    parts = {name: table(row, found) for name, found in results.items()}
    write_page(docs, "calibration/order.md", total=f"{total:,}", notes=notes, doubts=doubts, **parts)
    return notes <= 1e-3 * total + 3.0 * np.sqrt(1e-3 * total)


def scores():
    """Every distribution with few and with more items."""
    return [{"scores": name, "n": n} for name in DRAWS for n in (40, 200)]


def ways(phi):
    """Every way to compare, with this autocorrelation of the rows."""
    return [{"compared by": way, "phi": phi} for way in WAYS]


PARTS = {
    "scores": Part("order of scores", scores, score_trial, 40),
    "samples": Part("order of rows", partial(ways, 0.0), sample_trial, 10),
    "time": Part("rows in time", partial(ways, 0.95), sample_trial, 4),
}
STUDY = Study(PARTS, "order.sqlite", "1", write)

if __name__ == "__main__":
    main(STUDY, __doc__)
