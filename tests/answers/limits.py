"""Calls on both sides of a limit: where a constant decides something, and where it does not any more.

What is recorded are numbers that the constant moves, or how many notes a call has more than one that cannot have it.
"""

import numpy as np

import relfit

NAMES = list("abcd")
LOSSES = np.random.default_rng(5).exponential(1 + np.array([0.0, 0.0, 0.1, 0.4]), size=(1600, 4))
WALK = 0.02 * np.cumsum(LOSSES - 1.1, axis=0) + LOSSES


def losses(rows, **options):
    return lambda: relfit.compare_losses(rows, names=NAMES, higher_is_better=False, rng=2, **options)


def opposed():
    """People who disagree with the judge: the slope of model a would be below 0."""
    human = LOSSES[:250] * [-1.0, 1.0, 1.0, 1.0] + 4.0 * (np.arange(4) == 0)
    human[60:] = np.nan
    return relfit.compare_losses(LOSSES[:250], names=NAMES, labels=human, higher_is_better=False, rng=2)


def between(ratio, rows=120):
    """Of model c: a is two standard errors better, and b worse by this many."""
    joint = relfit.JointEstimate(("a", "b", "c"), [0.0, 0.2 + 0.1 * ratio, 0.2], 0.005 * np.eye(3), sizes=(rows,))
    return lambda: relfit.decide(joint, rng=0)


def drawn_rows(count, columns=10, rows=3000, **options):
    """Landmarks that miss so much that the number of rows that are drawn follows from the aim."""

    def run():
        rng = np.random.default_rng(20)
        models = {name: rng.normal(shift, 1.0, (rows, columns)) for name, shift in (("a", 0.1), ("b", 0.2))}
        data = rng.normal(size=(rows, columns))
        return relfit.compare(data, models, estimator=relfit.Landmarks(count=count), rng=5, progress=False, **options)

    return run


def noted(call, *values):
    """How many notes each call has more than the same one on data that cannot have the note."""

    def run():
        return {"notes": [len(call(value).warnings) - len(call(value, False).warnings) for value in values]}

    return run


def aligned(part, in_order=True):
    """Rows of a model that go with the reference rows of the same number, more or less, or are in another order."""
    rng = np.random.default_rng(21)
    x, y, z = rng.normal(size=(3, 100, 3))
    a = part * x + np.sqrt(1 - part**2) * y
    return relfit.compare(x, {"a": a if in_order else rng.permutation(a), "b": z}, rng=0, progress=False)


def modes(distance, known=True):
    """Two mixtures with other weights of two modes, so far apart; their log densities are known or not."""

    def density(weight):
        def log_prob(x):
            left = np.log(weight) - 0.5 * (x[:, 0] + distance) ** 2
            return np.logaddexp(left, np.log1p(-weight) - 0.5 * (x[:, 0] - distance) ** 2)

        def score(x):
            odds = np.log(weight / (1 - weight)) - 2 * distance * x
            return -x - distance + 2 * distance / (1 + np.exp(odds))

        return relfit.Density(score, log_prob if known else None, dim=1)

    rng = np.random.default_rng(22)
    x = rng.normal(size=(400, 1)) + distance * rng.permutation(np.repeat([[-1.0], [1.0]], 200, axis=0))
    return relfit.compare(x, {"even": density(0.5), "uneven": density(0.65)}, rng=0, progress=False)


def scored(factor):
    """A score that is off by a factor."""
    x = np.random.default_rng(23).normal(size=(50, 2))
    density = relfit.Density(lambda x: -factor * x, lambda x: -0.5 * (x**2).sum(axis=1))
    return relfit.check_score(density, x)


def ending(power):
    """A density that goes to 0 like a power of the distance from the edge, where there are data."""
    x = np.random.default_rng(25).gamma(power + 1.0, size=(400, 1))

    def log_prob(x):
        inside = np.where(x[:, 0] > 0.0, x[:, 0], 1.0)
        return np.where(x[:, 0] > 0.0, power * np.log(inside) - inside, -np.inf)

    return {"ok": relfit.check_score(relfit.Density(log_prob=log_prob, dim=1), x).ok}


def carved(values, variances):
    """Bounds of a model near the data, whose variances change with the difference that is supposed."""
    names = NAMES[: len(values)]
    joint = relfit.JointEstimate(names, values, np.diag(variances), near_degeneracy=np.zeros(len(values)))
    return lambda: {"interval": relfit.decide(joint, test="carve", rng=1).confidence_interval(0.9)}


def near_data():
    """Models of whose variance 28%, 32% and 50% are of second order."""
    parts = [0.28, 0.32, 0.5]
    joint = relfit.JointEstimate(NAMES[:3], [0.1, 0.15, 0.4], 0.01 * np.eye(3), near_degeneracy=parts)
    return {"status": relfit.decide(joint, rng=0).status}


CALLS = {
    "lags of 1,600 items": losses(WALK, dependence="series"),
    "lags of 900 items": losses(WALK[:900], dependence="series"),
    "labels against the judge": opposed,
    **{f"a model {ratio} standard errors worse": between(ratio) for ratio in (1.5, 2.28, 3.0)},
    "moment selection of 1,000 rows": between(2.45, 1000),
    "near degeneracy": near_data,
    **{f"losses of {count} items": losses(LOSSES[:count]) for count in (240, 270, 320)},
    "landmarks, rows by the aim": drawn_rows(80),
    "landmarks, rows by the aim, imq": drawn_rows(60, 5, kernel="imq"),
    "aligned rows": noted(aligned, 0.35, 0.4, 0.45, 0.5),
    "modes": noted(modes, 2.7, 2.8, 2.9, 3.0),
    **{f"a score times {factor}": lambda factor=factor: scored(factor) for factor in (1.00005, 1.0005, 1.005)},
    **{f"an edge with power {power}": lambda power=power: ending(power) for power in (0.2, 0.3, 1.0)},
    **{f"scores from {rows} rows": between(0.5, rows) for rows in (4, 8)},
    "carve near the data": carved([0.01, 0.1], [0.01, 0.01]),
    "carve nearer": carved([0.0, 0.05], [0.01, 0.01]),
    "carve at some distance": carved([0.3, 0.4, 0.9], [0.01, 0.02, 0.02]),
}
