"""Means and variances by quadrature, against exact formulas, laws and relfit's own estimates."""

import numpy as np
import pytest
from scipy.stats import norm

import relfit
from relfit.experiments import population
from relfit.experiments.population import Gap, ksd_gap, mmd_gap, nodes, tpr_relmulti, tpr_relpsi
from relfit.problems import draw, mixture_1d, population_mmd, rotation_2d


def variance_of_difference(joint):
    v = joint.covariance
    return v[0, 0] + v[1, 1] - 2.0 * v[0, 1]


def test_nodes_give_the_moments_of_the_mixture():
    """M(.7): mean .7 − .3 = .4, second moment 1 + 1 = 2."""
    x, w = nodes(mixture_1d().distribution("P1").as_mixture())
    assert w.sum() == pytest.approx(1.0)
    assert w @ x[:, 0] == pytest.approx(0.4)
    assert w @ x[:, 0] ** 2 == pytest.approx(2.0)


def test_mmd_gap_has_the_exact_mean():
    exact = population_mmd(mixture_1d(), 1.0)
    assert mmd_gap(mixture_1d(), 1.0).mean == pytest.approx(exact[1] - exact[0], rel=1e-9)


def test_ksd_gap_follows_the_law_of_the_angle():
    """KSD² ∝ sin²(angle), so the gap to P2 at π/2 is ∝ cos²(angle)."""
    gaps = [ksd_gap(rotation_2d(angle), 1.0).mean / np.cos(angle) ** 2 for angle in (1.4, 1.0, 0.5)]
    assert gaps == pytest.approx([gaps[0]] * 3, rel=1e-3)


def test_quadrature_has_converged(monkeypatch):
    coarse = ksd_gap(rotation_2d(1.4), 1.0)
    monkeypatch.setattr(population, "ORDER", 44)
    assert coarse == pytest.approx(ksd_gap(rotation_2d(1.4), 1.0), rel=1e-3)


@pytest.mark.parametrize("measure", ["mmd", "ksd"])
def test_variances_are_those_of_the_estimates(measure):
    """relfit's plain V is the truth plus its second-order part once more: first/n + 2·second/n² in the mean."""
    problem, n = mixture_1d() if measure == "mmd" else rotation_2d(1.0), 400
    gap = (mmd_gap if measure == "mmd" else ksd_gap)(problem, 1.0)
    densities = {name: relfit.Density(score=problem.score(name), dim=problem.dim) for name in problem.models}
    found = []
    for seed in range(60):
        reference, samples = draw(problem, n, seed)
        models = samples if measure == "mmd" else densities
        found.append(variance_of_difference(relfit.estimate(reference, models, kernel=relfit.Gaussian(1.0), rng=0)))
    expected = gap.first / n + 2.0 * gap.second / n**2
    error = np.std(found, ddof=1) / np.sqrt(len(found))
    assert error < 0.05 * expected
    assert abs(np.mean(found) - expected) < 3.5 * error


def test_second_order_variance_matches_simulation():
    """At n = 40 the second-order part is a third of the variance; simulated estimates agree with the sum."""
    problem, n = mixture_1d(), 40
    gap = mmd_gap(problem, 1.0)
    joints = [relfit.estimate(*draw(problem, n, seed), kernel=relfit.Gaussian(1.0), rng=0) for seed in range(600)]
    differences = np.array([joint.values[1] - joint.values[0] for joint in joints])
    expected = gap.first / n + gap.second / n**2
    assert gap.second / n**2 > 0.3 * expected
    # The standard error of a variance over 600 draws is about √(2/600) = 6% for normal ones.
    assert differences.var(ddof=1) == pytest.approx(expected, rel=0.2)


def test_closed_forms_by_hand():
    """μ = .1, s = 1/√n: at n = 400 the signal is 2; split in halves it is √2 on both sides."""
    gap = Gap(0.1, 1.0, 0.0)
    assert tpr_relpsi(gap, 400) == pytest.approx(norm.cdf(2.0 - 1.959964))
    halves = norm.cdf(np.sqrt(2.0)) * norm.cdf(np.sqrt(2.0) - 1.644854)
    assert tpr_relmulti(gap, 400, 0.5) == pytest.approx(halves)
