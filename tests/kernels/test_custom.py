"""Kernels given by a function of r², with its derivatives given or taken by a library."""

import numpy as np
import pytest
from refusals import refused

import relfit
from relfit.kernels import kernel_from_dict
from relfit.kernels.composite import Collection, Tilted
from relfit.kernels.custom import Radial, Recorded
from relfit.kernels.standard import IMQ, Gaussian

R2 = np.array([0.0, 1e-6, 0.3, 1.0, 7.0, 60.0])
WEIGHTS = ("phi", "dphi", "r2ddphi")


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
    kernel = Radial(imq, d_imq, dd_imq, scale=2.0)
    np.testing.assert_allclose(kernel.weights(R2, WEIGHTS), 2.0 * np.array(IMQ(2.0).weights(R2, WEIGHTS)), rtol=1e-14)
    assert kernel.smooth
    assert Radial(imq, scale="median").with_median(2.0).length == 2.0
    assert kernel == Radial(imq, d_imq, dd_imq, scale=2.0)


@pytest.mark.parametrize("kind", ["samples", "densities"])
def test_comparisons_are_those_of_the_kernel_it_is(kind, rng):
    reference, models = samples(rng)
    models = models if kind == "samples" else densities()
    result = relfit.compare(reference, models, kernel=Radial(imq, d_imq, dd_imq, name="mine"), rng=0)
    expected = relfit.compare(reference, models, kernel=IMQ(), rng=0)
    np.testing.assert_allclose(result.discrepancy, expected.discrepancy, rtol=1e-12)
    np.testing.assert_allclose(result.covariance, expected.covariance, rtol=1e-9)
    assert "mine kernel, scale 1" in str(result)
    again = relfit.Comparison.from_json(result.to_json())
    assert isinstance(again.kernel, Recorded)
    assert again.to_json() == result.to_json()


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_derivatives_by_automatic_differentiation(library, rng):
    pytest.importorskip(library, reason=f"{library} is not installed")
    kernel, known = Radial(imq, autodiff=library, scale=1.5), Radial(imq, d_imq, dd_imq, scale=1.5)
    tile = rng.exponential(size=(7, 5))
    np.testing.assert_allclose(kernel.weights(tile, WEIGHTS), known.weights(tile, WEIGHTS), rtol=1e-12)
    x = rng.normal(size=(40, 2))
    joint, expected = (relfit.estimate(x, densities(), kernel=k, rng=0) for k in (kernel, known))
    np.testing.assert_allclose(joint.values, expected.values, rtol=1e-10)


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


def test_files_hold_the_description_only(rng):
    """Also where such a kernel is part of another."""
    kernel = Radial(imq)
    assert kernel_from_dict(kernel.to_dict()) == Recorded("radial kernel, scale 1")
    for whole in (kernel + Gaussian(1.0), Tilted(kernel), Collection((kernel, IMQ()))):
        again = kernel_from_dict(whole.to_dict())
        assert again == Recorded(whole.describe())
        assert again.to_dict() == whole.to_dict()
        refused(lambda again=again: again.phi(R2), "read from a file", "cannot be evaluated")
    for models in (samples(rng)[1], densities()):
        refused(
            lambda models=models: relfit.compare(rng.normal(size=(60, 2)), models, kernel=again),
            *("was read from a file", "pass the kernel itself"),
        )
