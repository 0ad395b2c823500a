"""Densities, scores, samplers, streams and true sets of the problems, each against a second derivation."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from relfit.paper import problems
from relfit.paper.problems import candidates, draw, stream
from relfit.util.errors import InputError
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
    model = problems.rbm([0.7]).models["P1"]
    y = np.random.default_rng(1).normal(size=(6, 20)) * 2.0
    states = np.array(list(itertools.product([-1.0, 1.0], repeat=5)))
    terms = np.array(
        [
            [0.5 * row @ model.coupling @ h + model.visible @ row + model.latent @ h - 0.5 * row @ row for h in states]
            for row in y
        ]
    )
    brute = np.log(np.exp(terms).sum(1))
    constant = model.log_density(y) - brute
    np.testing.assert_allclose(constant, constant[0], atol=1e-10)
    posterior = np.exp(terms - brute[:, None])
    expected = posterior @ states @ model.coupling.T / 2 + model.visible - y
    np.testing.assert_allclose(model.score(y), expected, atol=1e-10)


def test_rbm_score_agrees_with_that_of_its_mixture():
    model = problems.rbm([0.4]).models["P1"]
    y = np.random.default_rng(2).normal(size=(8, 20)) * 3.0
    np.testing.assert_allclose(model.score(y), problems.GaussianMixture.score(model, y), atol=1e-10)


def test_rbm_density_is_normalised():
    """log Z = log Σ_h exp(cᵀh + ½‖½Bh + b‖²) + (d/2) log 2π: at y = 0 log p is Σ_j log 2cosh(c_j) − log Z."""
    model = problems.rbm([0.4]).models["P1"]
    states = np.array(list(itertools.product([-1.0, 1.0], repeat=5)))
    centres = 0.5 * states @ model.coupling.T + model.visible
    log_z = np.logaddexp.reduce(states @ model.latent + 0.5 * (centres**2).sum(1)) + 10.0 * np.log(2.0 * np.pi)
    expected = np.log(2.0 * np.cosh(model.latent)).sum() - log_z
    assert model.log_density(np.zeros((1, 20)))[0] == pytest.approx(expected)


def test_rbm_perturbs_one_entry_only():
    problem = problems.rbm([0.3, 0.0])
    change = problem.models["P1"].coupling - problem.reference.coupling
    assert change[0, 0] == pytest.approx(0.3)
    assert np.count_nonzero(change) == 1
    assert set(np.unique(problem.reference.coupling)) == {-1.0, 1.0}
    np.testing.assert_array_equal(problem.models["P2"].coupling, problem.reference.coupling)


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


def test_stein_identity_of_the_exact_rbm_sampler():
    """E s(y) = 0 and E y s(y)ᵀ = −I: the sampler and the score belong to the same density."""
    problem = problems.rbm([0.6])
    y = problem.models["P1"].sample(20_000, np.random.default_rng(5))
    s = problem.models["P1"].score(y)
    products = y[:, :, None] * s[:, None, :]
    assert np.abs(s.mean(0) / (s.std(0) / np.sqrt(len(y)))).max() < 5
    assert np.abs((products.mean(0) + np.eye(20)) / (products.std(0) / np.sqrt(len(y)))).max() < 5


def test_blobs_keep_their_centres_and_turn_their_covariance():
    """P1 is turned by π/2, so its components are upright: diag(.5, 5); R's lie: diag(5, .5)."""
    problem = problems.blobs()
    np.testing.assert_allclose(problem.reference.covariance, np.diag([5.0, 0.5]), atol=1e-12)
    np.testing.assert_allclose(problem.models["P1"].covariance, np.diag([0.5, 5.0]), atol=1e-12)
    major = np.linalg.eigh(problem.models["P2"].covariance)[1][:, 1]
    assert abs(major[1] / major[0]) == pytest.approx(np.tan(np.pi / 5))
    np.testing.assert_array_equal(problem.models["P2"].means, problem.reference.means)


# --- streams


def test_streams_are_independent():
    """No model shares rows with another or with the reference, and noise is uncorrelated (|z| < 5)."""
    problem, n = problems.rbm([0.0, 0.0, 0.0]), 2000
    reference, samples = draw(problem, n, seed=7)
    everyone = [reference, *samples.values()]
    for x, y in itertools.combinations(everyone, 2):
        assert not np.isin(x[:, 0], y[:, 0]).any()
        correlation = np.corrcoef(x.T, y.T)[:20, 20:]
        assert np.abs(correlation).max() * np.sqrt(n) < 5


def test_order_of_the_models_does_not_matter():
    problem = problems.rbm([0.1, 0.2, 0.3])
    forward = draw(problem, 50, seed=4)
    backward = draw(replace(problem, models=dict(reversed(problem.models.items()))), 50, seed=4)
    np.testing.assert_array_equal(forward[0], backward[0])
    for name in problem.models:
        np.testing.assert_array_equal(forward[1][name], backward[1][name])


def test_draw_repeats_with_the_seed_and_changes_with_it():
    problem = problems.mean_shift_pair()
    first, again, other = (draw(problem, 30, seed=s)[0] for s in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.isin(first, other).any()


def test_stream_is_apart_from_plain_seeding_and_from_a_model_called_reference():
    assert stream(0, None).random() != np.random.default_rng(0).random()
    assert stream(0, None).random() != stream(0, "reference").random()


def test_sizes_override_one_model_only():
    reference, samples = draw(problems.mean_shift_pair(), 12, seed=0, sizes={"P1": 5})
    assert [len(reference), len(samples["P1"]), len(samples["P2"])] == [12, 5, 12]
    np.testing.assert_array_equal(samples["P2"], draw(problems.mean_shift_pair(), 12, seed=0)[1]["P2"])


# --- true sets


def test_best_and_worse_partition_the_models(problem):
    assert problem.best | problem.worse == set(problem.models)
    assert problem.best
    assert not problem.best & problem.worse


def test_candidates_are_samples_or_densities_with_the_same_reference():
    problem = problems.blobs()
    reference, samples = draw(problem, 40, seed=3)
    by_sample, by_score = (candidates(problem, measure, 40, seed=3) for measure in ("mmd", "ksd"))
    np.testing.assert_array_equal(by_sample[0], reference)
    np.testing.assert_array_equal(by_score[0], reference)
    for name in problem.models:
        np.testing.assert_array_equal(by_sample[1][name], samples[name])
        np.testing.assert_array_equal(by_score[1][name].scores(reference), problem.models[name].score(reference))


@pytest.mark.parametrize("bandwidth", BANDWIDTHS)
def test_best_for_mmd_is_the_argmin_of_the_closed_form(problem, bandwidth):
    """Tied models agree to rounding of E k(r, r'), worse ones are larger by far more than rounding."""
    values = true_mmd(problem, bandwidth)
    # In d=10 or 20 a narrow kernel has E k ~ σ^d: ties and gaps are judged on that scale.
    scale = mean_kernel(problem.reference, problem.reference, bandwidth)
    best = np.array([name in problem.best for name in problem.models])
    np.testing.assert_allclose(values[best], values.min(), rtol=0, atol=1e-12 * scale)
    assert np.all(values[~best] > values[best].max() + 1e-9 * scale)


def test_population_mmd_agrees_with_the_u_statistic():
    """The closed form against a complete U-statistic at n = 1500, within five of its standard errors."""
    problem, bandwidth, n = problems.blobs(), 2.0, 1500
    reference, samples = draw(problem, n, seed=21)

    def mean_and_rows(x, y, same):
        squared = ((x[:, None, :] - y[None, :, :]) ** 2).sum(-1)
        kernel = np.exp(-squared / (2.0 * bandwidth**2))
        if same:
            np.fill_diagonal(kernel, 0.0)
        count = len(y) - same
        return kernel.sum(1) / count, kernel.sum(0) / (len(x) - same)

    rr = mean_and_rows(reference, reference, True)[0]
    for name, expected in zip(problem.models, true_mmd(problem, bandwidth), strict=True):
        xx = mean_and_rows(samples[name], samples[name], True)[0]
        xr, rx = mean_and_rows(samples[name], reference, False)
        estimate = xx.mean() + rr.mean() - 2.0 * xr.mean()
        error = 2.0 * np.sqrt(np.var(xx - xr) / n + np.var(rr - rx) / n)
        assert abs(estimate - expected) < 5 * error


def test_mixture_mmd_is_proportional_to_the_squared_gap_of_the_weights():
    """(ρ − ½)²: .04 for P1 and .0625 for P2."""
    for bandwidth in (0.5, 1.0, 4.0):
        values = true_mmd(problems.mixture_1d(), bandwidth)
        assert values[1] / values[0] == pytest.approx(0.0625 / 0.04)


@pytest.mark.parametrize("bandwidth", [0.1, 0.5, 1.0, 3.0, 10.0])
def test_mixture_ksd_order_by_quadrature(bandwidth):
    problem = problems.mixture_1d()
    x = np.linspace(-9.0, 9.0, 1501)[:, None]
    weights = np.exp(problem.reference.log_density(x)) * (x[1] - x[0])
    p1, p2 = population_ksd(problem, bandwidth, x, weights)
    assert 0 < p1 < 0.8 * p2


@pytest.mark.parametrize("bandwidth", [0.5, 1.0, 2.0, 5.0, 10.0])
def test_blobs_ksd_order_by_quadrature(bandwidth):
    problem = problems.blobs()
    axes = np.linspace(-13.0, 13.0, 61), np.linspace(-8.0, 8.0, 61)
    x = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2)
    weights = np.exp(problem.reference.log_density(x))
    weights *= (axes[0][1] - axes[0][0]) * (axes[1][1] - axes[1][0])
    p1, p2 = population_ksd(problem, bandwidth, x, weights)
    assert 0 < p2 < 0.5 * p1


@pytest.mark.parametrize("angle", [0.3, np.pi / 4, 1.2, np.pi - 1.2])
def test_rotation_ksd_is_sin_squared_of_the_angle(angle):
    """AᵀA ∝ sin²(angle)·I: the ratio to P2 (at π/2) is sin² exactly, on any sample and bandwidth."""
    problem = problems.rotation_2d(angle)
    x = draw(problem, 200, seed=2)[0]
    p1, p2 = population_ksd(problem, 1.0, x)
    assert p1 / p2 == pytest.approx(np.sin(angle) ** 2)
    assert problem.best == {"P1"}


@pytest.mark.parametrize("angle", [np.pi / 2, -np.pi / 2, 1.5 * np.pi])
def test_rotation_ties_at_a_right_angle(angle):
    problem = problems.rotation_2d(angle)
    assert problem.best == {"P1", "P2"}


@pytest.mark.parametrize("bandwidth", [3.0, 6.0, 12.0])
def test_rbm_discrepancies_rise_with_the_perturbation(bandwidth):
    """Exact MMD², and KSD² on one sample of the reference shared by all models."""
    problem = problems.rbm(np.linspace(0.0, 1.0, 11))
    x = draw(problem, 800, seed=9)[0]
    assert np.all(np.diff(true_mmd(problem, bandwidth)) > 0)
    assert np.all(np.diff(population_ksd(problem, bandwidth, x)) > 0)


@pytest.mark.parametrize(("eps", "best"), [(0.18, {"P1"}), (0.19, {"P1"}), (0.2, {"P1", "P2"}), (0.22, {"P2"})])
def test_rbm_l7_turns_at_the_fixed_perturbation(eps, best):
    assert problems.rbm_l7(eps).best == best
    assert list(problems.rbm_l7(eps).models) == [f"P{i}" for i in range(1, 8)]


def test_mean_shift_sets_by_hand():
    assert problems.mean_shift_pair().best == {"P1", "P2"}
    assert problems.mean_shift_l10().worse == {"P10"}
    assert problems.calibration_1d(2.5, 2.5).best == {"P1", "P2"}
    assert problems.calibration_1d(-0.5, 1.0).best == {"P1"}
    assert graded().best == {"P1"}
    means = np.vstack([m.means for m in graded().models.values()])
    np.testing.assert_allclose(means[:, 0], [0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95])
    assert not means[:, 1:].any()


@pytest.mark.parametrize("l", [1, 2, 10, 20, 50])
def test_all_tied_is_tied_and_has_no_copies(l):
    problem = all_tied(l)
    means = np.vstack([m.means for m in problem.models.values()])
    assert problem.worse == frozenset()
    np.testing.assert_allclose(np.linalg.norm(means, axis=1), 0.5)
    assert len(np.unique(means.round(6), axis=0)) == l
    values = true_mmd(problem, 4.0)
    np.testing.assert_allclose(values, values[0], rtol=1e-12)


# --- refusals


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: draw(problems.blobs(), 5, 0, sizes={"Q": 3}), "names of models; got Q"),
        (lambda: problems.rbm([]), "perturbations: expected"),
        (lambda: problems.rbm([-0.2, 0.3]), "between 0 and 1"),
        (lambda: problems.rbm([1.5]), "where the truth is known"),
    ],
)
def test_refusals_say_what_was_expected(call, words):
    with pytest.raises(InputError, match=words) as caught:
        call()
    assert "\n" not in str(caught.value)
