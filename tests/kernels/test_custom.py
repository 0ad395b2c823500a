"""Kernels the user brings: radial profiles with their derivatives, and kernel matrices."""

import numpy as np
import pytest
from refusals import refused

import relfit
from relfit.kernels import kernel_from_dict
from relfit.kernels.choice import Collection, Select
from relfit.kernels.composite import Tilted
from relfit.kernels.custom import Precomputed, Radial, Recorded
from relfit.kernels.standard import IMQ, Gaussian, Matern

R2 = np.array([0.0, 1e-6, 0.3, 1.0, 7.0, 60.0])


def imq(u):
    return (1.0 + u) ** -0.5


def d_imq(u):
    return -0.5 * (1.0 + u) ** -1.5


def dd_imq(u):
    return 0.75 * (1.0 + u) ** -2.5


def samples(rng, n=60):
    reference = rng.normal(size=(n, 2))
    return reference, {"a": rng.normal(size=(n, 2)), "b": rng.normal(1.0, 1.0, (n, 2))}


def densities():
    return {name: relfit.Density(score=lambda x, m=m: m - x, dim=2) for name, m in (("a", 0.1), ("b", 1.0))}


def test_a_profile_is_a_function_of_r2_over_scale_squared():
    """(1 + r²/4)^−½ = 2 (4 + r²)^−½: twice IMQ of scale 2, with all its derivatives."""
    own, known = Radial(imq, d_imq, dd_imq, scale=2.0), IMQ(2.0)
    for found, wanted in zip(
        own.weights(R2, ("phi", "dphi", "r2ddphi")), known.weights(R2, ("phi", "dphi", "r2ddphi")), strict=True
    ):
        np.testing.assert_allclose(found, 2.0 * wanted, rtol=1e-14)
    assert own.smooth
    assert Radial(imq, scale="median").with_median(2.0).length == 2.0
    assert own == Radial(imq, d_imq, dd_imq, scale=2.0)


@pytest.mark.parametrize("kind", ["samples", "densities"])
def test_comparisons_are_those_of_the_kernel_it_is(kind, rng):
    reference, models = samples(rng)
    models = models if kind == "samples" else densities()
    own = relfit.compare(reference, models, kernel=Radial(imq, d_imq, dd_imq, name="mine"), rng=0)
    known = relfit.compare(reference, models, kernel=IMQ(), rng=0)
    np.testing.assert_allclose(own.discrepancy, known.discrepancy, rtol=1e-12)
    np.testing.assert_allclose(own.covariance, known.covariance, rtol=1e-9)
    assert "mine kernel, scale 1" in str(own)
    again = relfit.Comparison.from_json(own.to_json())
    assert isinstance(again.kernel, Recorded)
    assert again.to_json() == own.to_json()


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_derivatives_by_automatic_differentiation(library, rng):
    pytest.importorskip(library, reason=f"{library} is not installed")
    kernel, known = Radial(imq, autodiff=library, scale=1.5), Radial(imq, d_imq, dd_imq, scale=1.5)
    tile = rng.exponential(size=(7, 5))
    for name in ("phi", "dphi", "ddphi"):
        np.testing.assert_allclose(getattr(kernel, name)(tile), getattr(known, name)(tile), rtol=1e-12)
    x = rng.normal(size=(40, 2))
    found = relfit.estimate(x, densities(), kernel=kernel, rng=0)
    np.testing.assert_allclose(found.values, relfit.estimate(x, densities(), kernel=known, rng=0).values, rtol=1e-10)


def test_a_linear_profile_has_second_derivative_zero():
    pytest.importorskip("torch", reason="torch is not installed")
    triangle = Radial(lambda u: 10.0 - u, autodiff="torch")
    np.testing.assert_array_equal(triangle.ddphi(np.array([0.5, 2.0])), [0.0, 0.0])


def test_r2_times_an_infinite_second_derivative_is_zero_at_zero():
    """Matérn 3/2 by hand, a = √(3u): φ = (1+a)e^−a, φ' = −(3/2)e^−a, φ'' = 9/(4a) e^−a, infinite at 0."""

    def a(u):
        return np.sqrt(3.0 * u)

    with np.errstate(divide="ignore"):
        own = Radial(
            lambda u: (1 + a(u)) * np.exp(-a(u)),
            lambda u: -1.5 * np.exp(-a(u)),
            lambda u: 2.25 / a(u) * np.exp(-a(u)),
        )
    found = own.weights(R2, ("phi", "dphi", "r2ddphi"))
    for ours, wanted in zip(found, Matern(1.5, 1.0).weights(R2, ("phi", "dphi", "r2ddphi")), strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=1e-12)


def test_profiles_that_are_no_kernels_or_do_not_fit_are_refused(rng):
    refused(lambda: Radial("phi"), "profile of Radial", "str")
    refused(lambda: Radial(lambda u: -np.exp(-u)), "φ(0) > 0")
    refused(lambda: Radial(lambda u: 1.0 + u), "|φ| ≤ φ(0)", "φ(7.1) = 8.1")
    refused(lambda: Radial(lambda u: u[:2]), "profile of Radial", "shape (2,)")
    refused(lambda: Radial(lambda u: np.where(u > 1, np.nan, 1.0)), "profile of Radial", "nan")
    refused(lambda: Radial(lambda u: u.missing), "profile of Radial", "it failed")
    refused(lambda: Radial(imq, lambda u: -((1.0 + u) ** -1.5), dd_imq), "derivative of Radial", "about -0.499")
    refused(lambda: Radial(imq, d_imq, d_imq), "second_derivative of Radial", "about 0.747")
    refused(
        lambda: Radial(lambda u: np.exp(-np.sqrt(u)), lambda u: -0.5 / np.sqrt(u + 0.0) * np.exp(-np.sqrt(u))), "at 0"
    )
    refused(lambda: Radial(imq, autodiff="numpy"), "autodiff", "'numpy'")
    refused(lambda: Radial(imq, scale=-1.0), "scale")
    refused(lambda: Radial(imq).dphi(R2), "no derivatives", "autodiff")
    x, models = rng.normal(size=(30, 2)), densities()
    refused(lambda: relfit.estimate(x, models, kernel=Radial(imq)), "KSD needs", "radial kernel, scale 1")


def gram(kernel, rows):
    return kernel.phi(np.square(rows[:, None] - rows).sum(axis=2))


@pytest.fixture
def pooled(rng):
    """Rows of the reference and two models, one below the other, and their kernel matrix."""
    reference, models = samples(rng)
    models["b"] = models["b"][:45]
    rows = np.concatenate([reference, *models.values()])
    return reference, models, Precomputed(gram(Gaussian(1.3), rows))


@pytest.mark.parametrize(
    "options", [{}, {"test": "relmulti"}, {"test": "best-set"}, {"variance": "corrected"}], ids=str
)
def test_a_matrix_gives_what_its_kernel_gives(pooled, options):
    reference, models, kernel = pooled
    by_rows = relfit.compare(reference, models, kernel=Gaussian(1.3), rng=0, **options)
    by_matrix = relfit.compare(60, {"a": 60, "b": 45}, kernel=kernel, rng=0, **options)
    np.testing.assert_allclose(by_matrix.discrepancy, by_rows.discrepancy, rtol=1e-9)
    np.testing.assert_allclose(by_matrix.covariance, by_rows.covariance, rtol=1e-8)
    np.testing.assert_allclose(by_matrix.near_degeneracy, by_rows.near_degeneracy, rtol=1e-7)
    np.testing.assert_allclose(by_matrix.pvalue, by_rows.pvalue, rtol=1e-6)
    assert "kernel matrix of 165 items" in str(by_matrix)
    assert relfit.Comparison.from_json(by_matrix.to_json()).to_json() == by_matrix.to_json()


def test_linear_estimates_pair_items(pooled):
    reference, models, kernel = pooled
    by_rows = relfit.estimate(reference, {"a": models["a"]}, kernel=Gaussian(1.3), rng=0, estimator="linear")
    items = {"a": np.arange(60, 120)}
    by_matrix = relfit.estimate(np.arange(60), items, kernel=kernel, rng=0, estimator="linear")
    np.testing.assert_allclose(by_matrix.values, by_rows.values, rtol=1e-12)
    np.testing.assert_allclose(by_matrix.covariance, by_rows.covariance, rtol=1e-12)


def test_row_numbers_may_come_in_any_order(pooled):
    _, _, kernel = pooled
    order = np.random.default_rng(0).permutation(165)
    place = np.argsort(order)
    mixed = Precomputed(kernel.matrix[np.ix_(order, order)])
    given = relfit.estimate(60, [60, 45], kernel=kernel, rng=0)
    found = relfit.estimate(place[:60], [place[60:120], place[120:]], kernel=mixed, rng=0)
    np.testing.assert_allclose(found.values, given.values, rtol=1e-12)


def test_matrices_can_be_chosen_from(pooled):
    """The identity, which tells no two items apart, separates nothing."""
    _, _, kernel = pooled
    blind = Precomputed(np.eye(165))
    result = relfit.compare(60, [60, 45], kernel=Select((blind, kernel), share=0.5), rng=0)
    assert result.kernel is kernel
    refused(lambda: relfit.compare(60, [60, 45], kernel=Select((blind, Gaussian()))), "kernel matrices", "some of each")


def test_misused_matrices_are_refused(pooled):
    _, _, kernel = pooled
    good = kernel.matrix
    refused(lambda: Precomputed(good[:60]), "square matrix", "(60, 165)")
    refused(lambda: Precomputed([["a"]]), "square matrix of numbers")
    refused(lambda: Precomputed(np.where(good > 0.99, np.nan, good)), "finite")
    refused(lambda: Precomputed(np.triu(good)), "symmetric")
    refused(lambda: Precomputed(np.abs(np.subtract.outer(np.arange(9.0), np.arange(9.0)))), "are these distances?")
    refused(lambda: Precomputed(-np.eye(5)), "kernel values")
    refused(lambda: relfit.compare(60, [60, 44], kernel=kernel), "add up to the 165 rows", "60 + 60 + 44 = 164")
    refused(lambda: relfit.compare(60, [105, 0], kernel=kernel), "add up")
    refused(lambda: relfit.compare(60, [60, np.arange(45)], kernel=kernel), "model 'm2'", "number of items")
    refused(lambda: relfit.compare(np.arange(60), [np.arange(60, 166), np.arange(9)], kernel=kernel), "0 to 164", "165")
    refused(lambda: relfit.compare(np.zeros(60, int), [np.arange(60), np.arange(9)], kernel=kernel), "more than once")
    refused(lambda: relfit.compare(good[:60], [good[60:], good[:9]], kernel=kernel), "reference", "row numbers")
    refused(lambda: relfit.compare(60, [60, 45], kernel=kernel, estimator="incomplete"), "matrix", "'incomplete'")
    refused(lambda: Tilted(kernel), "kernel of Tilted")
    refused(lambda: kernel + Gaussian(), "cannot add")
    with pytest.raises(ValueError, match="read-only"):
        kernel.matrix[0, 0] = 2.0
    for density in (relfit.Density(score=lambda x: -x, dim=1),):
        refused(lambda m=density: relfit.compare(np.arange(60), [m, m], kernel=kernel), "model 'm1'", "Density")


def test_dictionaries_hold_words_only(pooled):
    """Also where such a kernel is part of another, and where two have the same words."""
    _, _, kernel = pooled
    assert kernel_from_dict(kernel.to_dict()) == Recorded("kernel matrix of 165 items")
    own = Radial(imq)
    for whole in (
        own + Gaussian(1.0),
        Tilted(own),
        Collection((own, IMQ())),
        Collection((kernel, Precomputed(np.eye(9)))),
    ):
        again = kernel_from_dict(whole.to_dict())
        assert again == Recorded(whole.describe())
        assert again.to_dict() == whole.to_dict()
