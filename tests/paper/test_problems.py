"""Densities, scores, samplers, streams and true sets of the problems, each against a second derivation."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from refusals import refused

from relfit.paper import problems
from relfit.paper.problems import draw, stream
from studies.problems import all_tied, graded, mean_kernel, true_mmd

PROBLEMS = {
    "mean-shift-pair": problems.mean_shift_pair(),
    "mean-shift-l10": problems.mean_shift_l10(),
    "blobs": problems.blobs(),
    "rbm": problems.rbm([0.8, 0.3]),
    "rbm-l7": problems.rbm_l7(0.2),
    "mixture": problems.mixture_1d(),
    "rotation": problems.rotation_2d(np.pi / 5),
    "calibration": problems.calibration_1d(2.5, -2.5),
    "all-tied": all_tied(10),
    "graded": graded(),
}
BANDWIDTHS = (0.1, 0.3, 1.0, 3.0, 10.0, 50.0)


@pytest.fixture(params=PROBLEMS.values(), ids=PROBLEMS.keys())
def problem(request):
    return request.param


def population_ksd(problem, bandwidth, x, weights=None):
    """KSD² = E k(x, x') δ(x)·δ(x'), δ the difference of the scores, over x of the reference.

    With quadrature `weights` the mean is an integral; without, a U-statistic (the diagonal left out). This
    form needs no derivative of the kernel, because the score of the reference is known.
    """
    squares = (x**2).sum(1)
    kernel = np.exp(-(squares[:, None] + squares - 2.0 * x @ x.T) / (2.0 * bandwidth**2))
    if weights is None:
        np.fill_diagonal(kernel, 0.0)
        weights = np.full(len(x), 1.0 / np.sqrt(len(x) * (len(x) - 1)))
    kernel *= weights[:, None] * weights
    deltas = [problem.models[name].score(x) - problem.reference.score(x) for name in problem.models]
    return np.array([np.sum(delta * (kernel @ delta)) for delta in deltas])


# --- densities and scores


def test_score_is_the_gradient_of_the_log_density(problem):
    x = draw(problem, 20, seed=3)[0] * 1.5
    step = 1e-5
    for name in problem.models:
        log_density = problem.models[name].log_density
        shifts = step * np.eye(problem.dim)
        differences = [(log_density(x + s) - log_density(x - s)) / (2 * step) for s in shifts]
        np.testing.assert_allclose(problem.models[name].score(x), np.stack(differences, 1), rtol=1e-6, atol=1e-7)


def test_rbm_density_is_the_sum_over_latent_states():
    """log Σ_h exp(½yᵀBh + bᵀy + cᵀh − ½‖y‖²), term by term, up to one constant; score from the same sum."""
    draws = np.random.default_rng(2)
    coupling, visible, latent = draws.normal(size=(20, 5)), draws.normal(size=20), draws.normal(size=5)
    model = problems.gaussian_bernoulli_rbm(coupling, visible, latent)
    y = np.random.default_rng(1).normal(size=(6, 20)) * 2.0
    states = np.array(list(itertools.product([-1.0, 1.0], repeat=5)))
    terms = np.array(
        [[0.5 * row @ coupling @ h + visible @ row + latent @ h - 0.5 * row @ row for h in states] for row in y]
    )
    brute = np.log(np.exp(terms).sum(1))
    constant = model.log_density(y) - brute
    np.testing.assert_allclose(constant, constant[0], atol=1e-10)
    posterior = np.exp(terms - brute[:, None])
    expected = posterior @ states @ coupling.T / 2 + visible - y
    np.testing.assert_allclose(model.score(y), expected, atol=1e-10)


@pytest.mark.parametrize("name", ["mixture", "blobs"])
def test_log_density_integrates_to_one(name):
    problem = PROBLEMS[name]
    axis = np.linspace(-18.0, 18.0, 721)
    grid = np.stack(np.meshgrid(*[axis] * problem.dim, indexing="ij"), -1).reshape(-1, problem.dim)
    cell = (axis[1] - axis[0]) ** problem.dim
    for model in problem.models.values():
        assert np.exp(model.log_density(grid)).sum() * cell == pytest.approx(1.0, abs=1e-8)


# --- samplers


def test_sample_moments_match_theory(problem):
    """Mean Σwμ and covariance C + Σw(μ−μ̄)(μ−μ̄)ᵀ, each entry within five Monte-Carlo standard errors."""
    n = 20_000
    for name, mixture in {None: problem.reference, **problem.models}.items():
        x = mixture.sample(n, stream(11, name))
        mean = mixture.weights @ mixture.means
        spread = (mixture.means - mean).T @ ((mixture.means - mean) * mixture.weights[:, None])
        products = (x - mean)[:, :, None] * (x - mean)[:, None, :]
        z_mean = (x.mean(0) - mean) / (x.std(0) / np.sqrt(n))
        z_covariance = (products.mean(0) - mixture.covariance - spread) / (products.std(0) / np.sqrt(n))
        assert np.abs(z_mean).max() < 5
        assert np.abs(z_covariance).max() < 5


# --- true sets


@pytest.mark.parametrize("bandwidth", BANDWIDTHS)
def test_best_for_mmd_is_the_argmin_of_the_closed_form(problem, bandwidth):
    """Tied models agree to rounding of E k(r, r'), worse ones are larger by far more than rounding."""
    values = true_mmd(problem, bandwidth)
    # In d=10 or 20 a narrow kernel has E k ~ σ^d: ties and gaps are judged on that scale.
    scale = mean_kernel(problem.reference, problem.reference, bandwidth)
    best = np.array([name in problem.best for name in problem.models])
    np.testing.assert_allclose(values[best], values.min(), rtol=0, atol=1e-12 * scale)
    assert np.all(values[~best] > values[best].max() + 1e-9 * scale)


@pytest.mark.parametrize("angle", [0.3, np.pi / 4, 1.2, np.pi - 1.2])
def test_rotation_ksd_is_sin_squared_of_the_angle(angle):
    """AᵀA ∝ sin²(angle)·I: the ratio to P2 (at π/2) is sin² exactly, on any sample and bandwidth."""
    problem = problems.rotation_2d(angle)
    x = draw(problem, 200, seed=2)[0]
    p1, p2 = population_ksd(problem, 1.0, x)
    assert p1 / p2 == pytest.approx(np.sin(angle) ** 2)
    assert problem.best == {"P1"}


@pytest.mark.parametrize(("eps", "best"), [(0.18, {"P1"}), (0.19, {"P1"}), (0.2, {"P1", "P2"}), (0.22, {"P2"})])
def test_rbm_l7_turns_at_the_fixed_perturbation(eps, best):
    assert problems.rbm_l7(eps).best == best
    assert list(problems.rbm_l7(eps).models) == [f"P{i}" for i in range(1, 8)]


# --- refusals


def test_refusals_say_what_was_expected():
    refused(lambda: problems.rbm([]), "perturbations: expected")
    refused(lambda: problems.rbm([-0.2, 0.3]), "between 0 and 1")
    refused(lambda: problems.rbm([1.5]), "where the truth is known")
