"""Laws that every kernel obeys, those of the table `NAMED` among them, and the formulas of single kernels by hand."""

import math

import numpy as np
import pytest
from oracle import dense
from refusals import refused

import relfit
from relfit.api import compare, estimate
from relfit.kernels import NAMED, kernel_from_dict
from relfit.kernels.base import median_distance
from relfit.kernels.composite import MultiScale, Tilted
from relfit.kernels.standard import IMQ, Gaussian, Matern, Polynomial, RationalQuadratic
from relfit.util.errors import InputError

# A kernel that is added to the table is tested by being there; the others have parameters unlike the defaults.
KERNELS = [
    *(kernel.with_median(1.2) for kernel in NAMED.values()),
    Gaussian(3.0),
    IMQ(2.0, -0.3),
    RationalQuadratic(1.3, 0.7),
    MultiScale((0.5, 1.0, 2.0), 1.4),
    Gaussian(1.0) + IMQ(),
    Gaussian(0.5) + Gaussian(4.0) + IMQ(),
]
SMOOTH = [kernel for kernel in KERNELS if kernel.smooth]
R2 = np.array([0.0, 1e-8, 0.3, 1.0, 7.0, 60.0])


@pytest.mark.parametrize("kernel", SMOOTH, ids=str)
def test_derivatives_agree_with_differences(kernel):
    step = 1e-5
    r2 = R2[2:]  # away from 0, where a Matérn kernel is not smooth in r²
    for function, derivative in ((kernel.phi, kernel.dphi(r2)), (kernel.dphi, kernel.r2ddphi(r2) / r2)):
        numeric = (function(r2 + step) - function(r2 - step)) / (2 * step)
        np.testing.assert_allclose(derivative, numeric, rtol=1e-6, atol=1e-9)
    assert kernel.r2ddphi(R2)[0] == 0.0


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_gram_matrices_are_positive_semi_definite(kernel, rng):
    gram = dense.gram(kernel, *[rng.normal(size=(40, 3))] * 2)
    assert np.linalg.eigvalsh(gram)[0] > -1e-10


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_short_forms_of_phi_are_phi(kernel):
    """Backends use exp(q r²/length²) or a power of r² instead of φ where the kernel says that φ has that form."""
    assert 0.0 < kernel.length < math.inf
    if kernel.unit_rate is not None:
        np.testing.assert_allclose(np.exp(kernel.unit_rate * R2 / kernel.length**2), kernel.phi(R2), rtol=1e-14)
    if kernel.power is not None:
        peak, offset, slope, exponent = kernel.power
        np.testing.assert_allclose(peak * (offset + slope * R2) ** exponent, kernel.phi(R2), rtol=1e-14)


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_estimates_are_those_of_the_dense_formulas(kernel, rng):
    x, y, z = rng.normal(size=(3, 25, 2))
    joint = estimate(x, [y, z], kernel=kernel, rng=0)
    np.testing.assert_allclose(joint.values, dense.mmd(x, [y, z], kernel)[0], rtol=1e-9, atol=1e-13)
    if kernel.smooth:
        models = [relfit.Density(score=lambda x, m=m: m - x, dim=2) for m in (0.0, 0.5)]
        joint = estimate(x, models, kernel=kernel, rng=0)
        np.testing.assert_allclose(joint.values, dense.ksd(x, [-x, 0.5 - x], kernel)[0], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "kernel", [*KERNELS, *NAMED.values(), IMQ("median") + Gaussian(), Polynomial(2), Polynomial(4, 0.5, 2.0)], ids=str
)
def test_dictionaries_round_trip(kernel):
    assert kernel_from_dict(kernel.to_dict()) == kernel


def test_matern_one_half_is_for_mmd_only_and_the_median_is_filled_in():
    kernel = Matern(0.5, 2.0)
    assert kernel.phi(np.array([4.0]))[0] == pytest.approx(np.exp(-1.0))
    assert not kernel.smooth
    refused(lambda: kernel.dphi(R2), "smoothness")
    refused(lambda: Matern(1.0), "smoothness")
    kernel = Gaussian() + IMQ("median") + Gaussian(5.0)
    assert kernel.needs_median
    assert kernel.with_median(2.0) == Gaussian(2.0) + IMQ(2.0) + Gaussian(5.0)
    refused(lambda: Gaussian().phi(R2), "median")


def test_polynomial_is_the_kernel_of_kid():
    """(x·y/d + 1)³ with d = 4 and x·y = 4 is 8."""
    kernel = Polynomial().with_dimension(4)
    assert kernel == Polynomial(scale=0.25)
    assert kernel.phi(np.array([4.0]))[0] == 8.0
    np.testing.assert_array_equal(kernel.diagonal(np.array([[2.0, 0.0, 0.0, 0.0]])), [8.0])
    for bad in ({"degree": 0}, {"degree": 1.5}, {"offset": -1.0}, {"scale": 0.0}):
        with pytest.raises(InputError):
            Polynomial(**bad)
    refused(lambda: Polynomial() + Gaussian(), "cannot add")


def test_bad_lengths_and_unknown_kernels_are_refused_in_one_line():
    for bad in (0.0, -1.0, np.nan, np.inf, "mean", None, True, [1.0]):
        for make in (Gaussian, IMQ):
            refused(lambda make=make, bad=bad: make(bad))
    refused(lambda: kernel_from_dict({"type": "Laplace", "scale": 1.0}), "type")


@pytest.mark.parametrize("d", [1, 3, 64, 65, 200])
def test_median_distance_is_the_median_of_pairs_or_the_mean_of_distinct_ones(d, rng):
    x = rng.normal(size=(37, d))
    pairs = [np.linalg.norm(x[a] - x[b]) for a in range(37) for b in range(a)]
    assert median_distance(x) == pytest.approx(np.median(pairs), rel=1e-12)
    # Eight rows at 0 and two at distance √d: 16 of 45 pairs are distinct, the median of all is 0.
    atoms = np.zeros((10, d))
    atoms[8:] = 1.0
    assert median_distance(atoms) == pytest.approx(np.sqrt(d))
    refused(lambda: median_distance(np.ones((30, d))), "coincide")


@pytest.mark.parametrize(
    "kernel", [Polynomial(), Polynomial(1, 0.0), Polynomial(4, 2.0, 1e-9), Polynomial(2) + Polynomial(3)], ids=range(4)
)
def test_largest_entries_of_polynomials(kernel):
    """The largest value, of two rows with every entry at the bound, is 1e70: (γ d A² + c)^p."""
    d = 5
    kernel = kernel.with_dimension(d)
    most = kernel.largest_entry(d)
    row = np.full((1, d), most)
    assert kernel.pairs(row, row)[0] == pytest.approx(1e70, rel=1e-9)
    assert Gaussian(1.0).largest_entry(d) == np.inf
    assert Polynomial(50, offset=100.0).with_dimension(d).largest_entry(d) == 0.0


@pytest.mark.parametrize("discrepancy", ["mmd", "ume"])
@pytest.mark.parametrize("kernel", [Polynomial(), Polynomial(1, 0.0), Tilted(Polynomial())], ids=range(3))
@pytest.mark.filterwarnings("error")
def test_polynomials_never_overflow(kernel, discrepancy, rng):
    """Just below the bound every number is finite and NumPy gives no warning; a number just above it is refused."""
    most = kernel.with_dimension(3).largest_entry(3)
    data, a, b = rng.uniform(-most, most, (3, 60, 3))
    result = compare(data, {"a": a, "b": b}, kernel=kernel, discrepancy=discrepancy, rng=0)
    assert np.isfinite(result.covariance).all()
    b[7, 1] = 1.001 * most
    with pytest.raises(InputError, match=r"model 'b': expected numbers below \S+ in size for the Polynomial kernel"):
        compare(data, {"a": a, "b": b}, kernel=kernel, discrepancy=discrepancy, rng=0)
    with pytest.raises(InputError, match="kernel: expected an offset"):
        compare(data, {"a": a, "b": b}, kernel=Polynomial(50, offset=100.0), rng=0)
