"""The yardstick: how far two halves of the data are apart, in the units of the discrepancy."""

from itertools import combinations

import numpy as np
import pytest
from oracle import dense
from refusals import refused

import relfit
from relfit.api import published
from relfit.compute.reduce import Runtime
from relfit.estimators import mmd
from relfit.report.page import notebook_table, render_report
from relfit.results.words import yardstick

KERNELS = [relfit.Gaussian(1.5), relfit.IMQ(), relfit.Polynomial(scale=0.5), relfit.Tilted(relfit.IMQ())]
SMOOTH = [relfit.Gaussian(1.5), relfit.IMQ(), relfit.Gaussian(0.8) + relfit.IMQ(2.0), relfit.Tilted(relfit.IMQ())]


def gaussian(mean):
    return relfit.Density(score=lambda x: mean - x, dim=2)


DENSITIES = {"off": gaussian(0.5), "right": gaussian(0.0), "far": gaussian(-2.0)}


def pair_matrix(values):
    """The kernel matrix of rows, from a function of pairs of rows."""
    return lambda x: np.array([values(np.tile(row, (len(x), 1)), x) for row in x])


def plain(matrix, first):
    """The plain MMD² of two halves, all pairs of rows counted: (2/n)² wᵀ K w with w = ±1; (splits, half) rows."""
    signs = -np.ones((len(first), len(matrix)))
    np.put_along_axis(signs, first, 1.0, axis=1)
    return ((signs @ matrix) * signs).sum(axis=1) * (2.0 / len(matrix)) ** 2


def over_all_splits(matrix):
    n = len(matrix)
    return plain(matrix, np.array(list(combinations(range(n), n // 2)))).mean()


@pytest.fixture
def samples(rng):
    """A reference of 20 rows, the fewest, and two models."""
    return rng.normal(size=(20, 2)), {"a": rng.normal(size=(20, 2)), "b": rng.normal(0.7, 1, (33, 2))}


def test_two_rows_by_hand():
    """R = {0, 1}, k = exp(−r²/2): its halves are one row each, ‖φ(0) − φ(1)‖² = k(0) + k(0) − 2 k(1) = 2 − 2/√e."""
    reference, model = np.array([[0.0], [1.0]]), np.array([[3.0], [5.0]])
    got = mmd.complete(reference, [model], relfit.Gaussian(1.0), "independent", Runtime())
    assert got.yardstick == pytest.approx(2.0 - 2.0 * np.exp(-0.5), abs=1e-15)


@pytest.mark.parametrize("dependence", ["independent", "shared", "paired"])
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_it_is_the_mean_over_all_halves_of_the_data(samples, kernel, dependence):
    """The mean over the 184,756 ways to halve 20 rows is 4/n times their variance with divisor n − 1."""
    reference, models = samples
    models = {"a": models["a"], "b": models["b"][:20]}
    joint = relfit.estimate(reference, models, kernel=kernel, dependence=dependence, rng=0)
    resolved = relfit.compare(reference, models, kernel=kernel, rng=0).kernel
    assert joint.yardstick == pytest.approx(over_all_splits(pair_matrix(resolved.pairs)(reference)), rel=1e-11)


@pytest.mark.parametrize("kernel", SMOOTH, ids=str)
def test_ksd_takes_the_stein_kernel_of_the_best_model(rng, kernel):
    x = rng.normal(size=(20, 2)) + 5.0
    densities = {name: relfit.Density(score=lambda x, m=m: m - x) for name, m in (("off", 5.5), ("right", 5.0))}
    result = relfit.compare(x, densities, kernel=kernel, rng=0)
    assert result.best == "right"
    if result.kernel.tilt is None:
        matrix = dense.stein_matrix(x, 5.0 - x, result.kernel)
    else:
        # The Stein kernel of w k is w(x) w(y) times that of k with the scores s + ∇ log w.
        tilt, weights = result.kernel.tilt, result.kernel.tilt.weights(x)
        matrix = np.outer(weights, weights)
        matrix = matrix * dense.stein_matrix(x, 5.0 - x + tilt.gradient(x), result.kernel.untilted)
    assert result.yardstick == pytest.approx(over_all_splits(matrix), rel=1e-10)


@pytest.mark.parametrize("dependence", ["independent", "paired"])
def test_groups_are_not_divided(rng, dependence):
    """20 groups of 3 rows that resemble each other: halves of 10 groups, whose means make a smaller matrix."""
    labels = np.repeat(np.arange(20), 3)
    reference = rng.normal(size=(20, 2))[labels] + 0.3 * rng.normal(size=(60, 2))
    models, kernel = {"a": rng.normal(size=(60, 2)), "b": rng.normal(1, 1, (60, 2))}, relfit.Gaussian(1.2)
    groups = labels if dependence == "paired" else dict.fromkeys(("reference", "a", "b"), labels)
    joint = relfit.estimate(reference, models, groups=groups, dependence=dependence, kernel=kernel, rng=0)
    means = dense.gram(kernel, reference, reference).reshape(20, 3, 20, 3).mean(axis=(1, 3))
    assert joint.yardstick == pytest.approx(over_all_splits(means), rel=1e-11)
    assert joint.yardstick > 1.5 * relfit.estimate(reference, models, kernel=kernel, rng=0).yardstick
    by_density = relfit.estimate(reference, DENSITIES, groups=labels, kernel=kernel, rng=0)
    best = (0.5, 0.0, -2.0)[int(np.argmin(by_density.values))]
    stein = dense.stein_matrix(reference, best - reference, kernel).reshape(20, 3, 20, 3).mean(axis=(1, 3))
    assert by_density.yardstick == pytest.approx(over_all_splits(stein), rel=1e-11)


def test_it_is_none_where_it_is_not_known(rng):
    x, models = rng.normal(size=(60, 2)), {"a": rng.normal(size=(60, 2)), "b": rng.normal(1, 1, (60, 2))}
    unknown = [
        *(relfit.estimate(x, models, estimator=name, rng=0) for name in ("linear", "incomplete", "block")),
        relfit.estimate(x, models, discrepancy="ume", rng=0),
        relfit.estimate(x, DENSITIES, discrepancy="fssd", rng=0),
        relfit.estimate(gaussian(0.0), models, rng=0),
        relfit.estimate(gaussian(0.0), models, dependence="chain", rng=0),
        relfit.estimate(gaussian(0.0), models, groups=dict.fromkeys(models, np.repeat(np.arange(20), 3)), rng=0),
        relfit.from_losses(rng.normal(size=(50, 3))),
        published("cmmd", x, models),
    ]
    assert [joint.yardstick for joint in unknown] == [None] * len(unknown)
    assert "two halves" not in str(relfit.compare(x, models, estimator="linear", margin=0.01, rng=0))
    # Rows that are all alike have halves that are alike.
    assert relfit.estimate(np.ones((20, 2)), models, kernel=relfit.Gaussian(1.0), rng=0).yardstick == 0.0


def test_results_keep_it_and_old_files_have_none(samples):
    reference, models = samples
    joint = relfit.estimate(reference, models, rng=0)
    result = relfit.compare(reference, {**models, "copy of a": models["a"]}, rng=0)
    pair = relfit.compare_pair(reference, models["a"], models["b"], rng=0)
    assert result.yardstick == pair.yardstick == joint.yardstick == result.distinct().yardstick
    assert relfit.decide(joint).yardstick == joint.yardstick
    assert pair.to_dict()["yardstick"] == joint.yardstick
    assert relfit.Comparison.from_json(result.to_json()).yardstick == joint.yardstick
    stored = result.to_dict()
    del stored["yardstick"]
    assert relfit.Comparison.from_dict(stored).yardstick is None
    for wrong in (-1.0, "inf", float("nan"), "0.1", [0.1], True, 10**400):
        hostile = {**stored, "yardstick": wrong}
        refused(lambda hostile=hostile: relfit.Comparison.from_dict(hostile), "yardstick: expected a number")
        refused(
            lambda wrong=wrong: relfit.JointEstimate(("a",), [0.1], [[0.1]], yardstick=wrong), "yardstick: expected"
        )


def test_the_words(rng):
    reference, models = rng.normal(size=(301, 2)), {"a": rng.normal(size=(150, 2)), "b": rng.normal(1, 1, (150, 2))}
    result = relfit.compare(reference, models, kernel=relfit.Gaussian(1.0), margin=0.01, rng=0)
    share = f"{0.01 / result.yardstick:.2g}"
    line = (
        f"Two random halves of the data (150 rows each) differ by about {result.yardstick:.2g} in MMD² before bias "
        f"correction. The margin is {share} times this distance."
    )
    assert line in render_report(result)
    assert line not in str(result)
    assert line not in notebook_table(result)
    pair = relfit.compare_pair(reference, *models.values(), kernel=relfit.Gaussian(1.0), margin=0.01, rng=0)
    assert line == yardstick(pair)
    testing = render_report(relfit.compare(reference, models, test="relmulti", margin=0.01, rng=0))
    assert "(113 rows each of those for testing)" in testing
    labels = {"reference": np.arange(301) // 5, **dict.fromkeys(models, np.arange(150) // 3)}
    assert "(30 groups each)" in render_report(relfit.compare(reference, models, groups=labels, margin=0.01, rng=0))
    assert "in KSD²" in render_report(relfit.compare(reference, DENSITIES, margin=0.01, rng=0))
