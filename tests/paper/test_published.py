"""The algorithms as published, and the N of Theorem 4.1."""

import numpy as np
import pytest
from refusals import refused
from scipy.stats import norm

import relfit
from relfit.paper import problems
from relfit.paper.tpr import Gap, relmulti_limit, relpsi_limit, rows_of_theorem


@pytest.mark.parametrize("test", ["relpsi", "relmulti"])
def test_the_options_are_those_of_the_algorithms(test):
    problem = problems.mean_shift_l10()
    reference, samples = problems.draw(problem, 200, seed=0)
    options = relfit.as_published(test)
    result = relfit.compare(reference, samples, **options, rng=0)
    assert (result.test, result.correction) == (test, {"relpsi": "none", "relmulti": "by"}[test])
    assert result.variance == "projection"
    if test == "relmulti":
        assert result.select_fraction == 0.5
        others = np.arange(10) != result.best_index
        ratio = result.difference[others] / result.difference_standard_error[others]
        np.testing.assert_allclose(result.pvalue[others], norm.sf(ratio), rtol=1e-9)


def test_other_tests_have_no_published_form():
    refused(lambda: relfit.as_published("best-set"), "test: expected one of relpsi, relmulti", "got 'best-set'")


@pytest.mark.parametrize("select_fraction", [0.25, 0.5, 0.75])
def test_with_n_rows_of_the_theorem_relpsi_finds_at_least_as_much(select_fraction):
    for mean in (0.02, 0.1, 0.5):
        gap = Gap(mean, np.array([0.3, 0.4]), np.zeros(2))
        rows = rows_of_theorem(gap, select_fraction)
        # By hand: N = (σ z_{1−α/2}/(μ (1 − √ρ)))², σ = 2 √(.09 + .16) = 1.
        by_hand = (norm.isf(0.025) / (mean * (1.0 - np.sqrt(1.0 - select_fraction)))) ** 2
        assert rows == pytest.approx(by_hand)
        for n in (rows, 2 * rows, 10 * rows):
            assert relpsi_limit(gap, n) >= relmulti_limit(gap, n, select_fraction)
