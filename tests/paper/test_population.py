"""Means, variances and rates from the population, against exact formulas, laws and relfit's own estimates."""

import numpy as np
import pytest
from scipy.stats import norm

import relfit
from relfit.paper import tpr
from relfit.paper.problems import draw, mean_shift_l10, mixture_1d, rotation_2d
from relfit.paper.tpr import Gap, ksd_gap, mmd_gap
from studies.problems import true_ksd, true_mmd


def variance_of_difference(joint):
    v = joint.covariance
    return v[0, 0] + v[1, 1] - 2.0 * v[0, 1]


def test_gaps_have_their_exact_means():
    exact = true_mmd(mixture_1d(), 1.0)
    assert mmd_gap(mixture_1d(), 1.0).mean == pytest.approx(exact[1] - exact[0], rel=1e-9)
    # KSD² ∝ sin²(angle), so the gap to P2 at π/2 is ∝ cos²(angle).
    gaps = [ksd_gap(rotation_2d(angle), 1.0).mean / np.cos(angle) ** 2 for angle in (1.4, 1.0, 0.5)]
    assert gaps == pytest.approx([gaps[0]] * 3, rel=1e-3)
    # Shifts μ: s − s_R = μ, so KSD² = ‖μ‖² E k, and E exp(−‖x−y‖²/(2σ²)) = (σ²/(σ² + 2))^(d/2).
    shifted = true_ksd(mean_shift_l10(), 4.5)
    assert shifted == pytest.approx(np.array([0.25] * 9 + [1.0]) * (4.5**2 / (4.5**2 + 2)) ** 5)
    turned = true_ksd(rotation_2d(1.4), 1.0)
    assert turned[1] - turned[0] == pytest.approx(ksd_gap(rotation_2d(1.4), 1.0).mean, rel=1e-3)


@pytest.mark.parametrize("measure", ["mmd", "ksd"])
def test_variances_are_those_of_the_estimates(measure):
    """relfit's plain V is the truth plus its second-order part once more: first/n + 2·second/n² in the mean."""
    problem, n = mixture_1d() if measure == "mmd" else rotation_2d(1.0), 400
    gap = (mmd_gap if measure == "mmd" else ksd_gap)(problem, 1.0)
    densities = problem.densities()
    found = []
    for seed in range(60):
        reference, samples = draw(problem, n, seed)
        models = samples if measure == "mmd" else densities
        found.append(variance_of_difference(relfit.estimate(reference, models, kernel=relfit.Gaussian(1.0), rng=0)))
    expected = gap.first / n + 2.0 * gap.second / n**2
    error = np.std(found, ddof=1) / np.sqrt(len(found))
    assert error < 0.05 * expected
    assert abs(np.mean(found) - expected) < 3.5 * error


def gap_of(mean, projections, eigenvalues):
    return Gap(mean, np.array(projections, dtype=float), np.array(eigenvalues, dtype=float))


def test_closed_forms_by_hand():
    """μ = .1, s = 1/√n (b = ½): at n = 400 the signal is 2; split in halves it is √2 on both sides."""
    gap = gap_of(0.1, [0.5], [0.0])
    assert gap.first == 1.0
    assert tpr.relpsi_limit(gap, 400) == pytest.approx(norm.cdf(2.0 - 1.959964))
    halves = norm.cdf(np.sqrt(2.0)) * norm.cdf(np.sqrt(2.0) - 1.644854)
    assert tpr.relmulti_limit(gap, 400, 0.5) == pytest.approx(halves)
