"""Other bandwidths: the very comparisons one would make oneself, and densities asked once."""

from __future__ import annotations

import numpy as np
import pytest

import relfit
from relfit.kernels.composite import Decay, Tilted
from relfit.report.recall import recall
from relfit.report.sensitivity import bandwidth_sensitivity, scaled


@pytest.fixture
def three(rng):
    shifts = {"a": 0.0, "b": 0.2, "c": 0.8}
    return rng.normal(size=(90, 2)), {k: rng.normal(m, 1, (90, 2)) for k, m in shifts.items()}


@pytest.mark.parametrize("test", ["relpsi", "relmulti", "best-set", "carve"])
def test_each_is_the_comparison_at_that_bandwidth(three, test):
    result = relfit.compare(*three, test=test, alpha=0.1, rng=3)
    found = bandwidth_sensitivity(result, recall(result, three), (0.5, 1.0, 3.0))
    for factor, length, each in zip(found.factors, found.lengths, found.results, strict=True):
        own = relfit.compare(*three, test=test, alpha=0.1, rng=3, kernel=relfit.Gaussian(factor * result.kernel.length))
        assert length == factor * result.kernel.length
        np.testing.assert_array_equal(each.pvalue, own.pvalue)
        assert each.best == own.best
    np.testing.assert_array_equal(found.results[1].worse, result.worse)


def test_kinds_ratios_and_stability(three):
    result = relfit.compare(*three, rng=3)
    found = bandwidth_sensitivity(result, recall(result, three), (0.5, 1.0, 2.0))
    at_one = found.results[1]
    assert found.ratios()[2, 1] == pytest.approx(at_one.difference[2] / at_one.difference_standard_error[2])
    assert found.kinds(at_one.best)[1] == "best"
    assert found.kinds("c") == ("worse",) * 3
    assert found.stable == all(len(set(found.kinds(name))) == 1 for name in result.names)


def test_densities_are_asked_once_for_each_set_of_rows(rng):
    data = rng.normal(size=(60, 2))
    calls = []

    def make(m):
        def score(x):
            calls.append(len(x))
            return m - x

        return relfit.Density(score=score, dim=2)

    models = {"a": make(0.0), "b": make(1.0)}
    result = relfit.compare(data, models, rng=0)
    recalled = recall(result, (data, models))
    calls.clear()
    bandwidth_sensitivity(result, recalled)
    assert len(calls) <= 6


def test_kernels_without_a_length(three):
    result = relfit.compare(*three, kernel=relfit.Polynomial(), rng=0)
    assert bandwidth_sensitivity(result, recall(result, three)) is None


def test_every_length_is_scaled():
    tilted = Tilted(relfit.Gaussian(2.0), Decay(exponent=1.0, scale=3.0, centre=0.0))
    assert scaled(tilted, 0.5) == Tilted(relfit.Gaussian(1.0), tilted.weight)
    assert scaled(relfit.MultiScale((1.0, 2.0), 3.0), 2.0) == relfit.MultiScale((1.0, 2.0), 6.0)
    assert scaled(relfit.Matern(1.5, 1.0) + relfit.IMQ(2.0), 3.0) == relfit.Matern(1.5, 3.0) + relfit.IMQ(6.0)
