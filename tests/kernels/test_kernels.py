import numpy as np
import pytest

from relfit.api import compare
from relfit.estimators.base import MMD
from relfit.kernels import kernel_from_dict
from relfit.kernels.base import Sum, median_distance
from relfit.kernels.choice import NAMED, as_kernel
from relfit.kernels.composite import MultiScale, Tilted
from relfit.kernels.standard import IMQ, Gaussian, Matern, Polynomial, RationalQuadratic
from relfit.util.errors import InputError

KERNELS = [
    Gaussian(0.7),
    Gaussian(3.0),
    IMQ(),
    IMQ(2.0, -0.3),
    Matern(1.5, 1.2),
    Matern(2.5, 0.8),
    RationalQuadratic(1.3, 0.7),
    MultiScale((0.5, 1.0, 2.0), 1.4),
    Gaussian(1.0) + IMQ(),
    Gaussian(0.5) + Gaussian(4.0) + IMQ(),
]
R2 = np.array([0.0, 1e-8, 0.3, 1.0, 7.0, 60.0])


def test_gaussian_is_the_convention_of_the_docs():
    assert Gaussian(2.0).phi(np.array([8.0]))[0] == pytest.approx(np.exp(-1.0))


def test_imq_is_the_convention_of_the_docs():
    assert IMQ(2.0, -1.0).phi(np.array([5.0]))[0] == pytest.approx(1 / 9)


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_derivatives_agree_with_differences(kernel):
    step = 1e-5
    r2 = R2[2:]  # away from 0, where a Matérn kernel is not smooth in r²
    for f, df in ((kernel.phi, kernel.dphi), (kernel.dphi, kernel.ddphi)):
        numeric = (f(r2 + step) - f(r2 - step)) / (2 * step)
        np.testing.assert_allclose(df(r2), numeric, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_weights_are_the_single_functions(kernel):
    phi, dphi, r2ddphi = kernel.weights(R2, ("phi", "dphi", "r2ddphi"))
    np.testing.assert_allclose(phi, kernel.phi(R2), rtol=1e-14)
    np.testing.assert_allclose(dphi, kernel.dphi(R2), rtol=1e-14)
    np.testing.assert_allclose(r2ddphi[1:], R2[1:] * kernel.ddphi(R2[1:]), rtol=1e-13)
    assert r2ddphi[0] == 0.0
    np.testing.assert_array_equal(kernel.weights(R2, ("r2ddphi", "phi"))[1], phi)


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_gram_matrices_are_positive_semi_definite(kernel, rng):
    x = rng.normal(size=(40, 3))
    gram = kernel.phi(((x[:, None] - x[None]) ** 2).sum(2))
    assert np.linalg.eigvalsh(gram)[0] > -1e-10


@pytest.mark.parametrize(
    "kernel", [*KERNELS, Gaussian(), IMQ("median") + Gaussian(), Polynomial(2), Matern(0.5)], ids=str
)
def test_dictionaries_round_trip(kernel):
    assert kernel_from_dict(kernel.to_dict()) == kernel


def test_multiscale_is_the_sum_of_its_gaussians():
    parts = Gaussian(0.7) + Gaussian(1.4) + Gaussian(2.8)
    whole = MultiScale((0.5, 1.0, 2.0), 1.4)
    for name in ("phi", "dphi", "ddphi"):
        np.testing.assert_allclose(getattr(whole, name)(R2), getattr(parts, name)(R2), rtol=1e-13)
    assert MultiScale().with_median(3.0).length == 0.75


def test_matern_one_half_is_for_mmd_only():
    kernel = Matern(0.5, 2.0)
    assert kernel.phi(np.array([4.0]))[0] == pytest.approx(np.exp(-1.0))
    assert not kernel.smooth
    with pytest.raises(InputError, match="smoothness"):
        kernel.dphi(R2)
    with pytest.raises(InputError, match="smoothness"):
        Matern(1.0)


def test_polynomial_is_the_kernel_of_kid():
    """(x·y/d + 1)³ with d = 4 and x·y = 4 is 8."""
    kernel = Polynomial().with_dimension(4)
    assert kernel == Polynomial(scale=0.25)
    assert kernel.phi(np.array([4.0]))[0] == 8.0
    np.testing.assert_array_equal(kernel.diagonal(np.array([[2.0, 0.0, 0.0, 0.0]])), [8.0])
    for bad in ({"degree": 0}, {"degree": 1.5}, {"offset": -1.0}, {"scale": 0.0}):
        with pytest.raises(InputError):
            Polynomial(**bad)
    with pytest.raises(InputError, match="cannot add"):
        Polynomial() + Gaussian()


def test_sums_are_flat_values_that_compare_and_hash():
    a, b, c = Gaussian(1.0), IMQ(), Gaussian(2.0)
    assert (a + b) + c == a + (b + c) == Sum((a, b, c))
    assert hash(a + b) == hash(Sum((a, b)))
    with pytest.raises(TypeError):
        a + 1.0  # type: ignore[operator]


def test_median_is_filled_in_everywhere_and_only_where_wanted():
    kernel = Gaussian() + IMQ("median") + Gaussian(5.0)
    assert kernel.needs_median
    assert kernel.with_median(2.0) == Gaussian(2.0) + IMQ(2.0) + Gaussian(5.0)
    with pytest.raises(InputError, match="median"):
        Gaussian().phi(R2)


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf, "mean", None, True, [1.0]])
def test_bad_lengths_are_refused_in_one_line(bad):
    for make in (Gaussian, IMQ):
        with pytest.raises(InputError) as caught:
            make(bad)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("bad", [0.0, 0.5, np.nan, -np.inf, "x"])
def test_bad_exponents_are_refused(bad):
    with pytest.raises(InputError, match="exponent"):
        IMQ(1.0, bad)


def test_unknown_kernel_dictionaries_are_refused():
    with pytest.raises(InputError, match="type"):
        kernel_from_dict({"type": "Laplace", "scale": 1.0})


@pytest.mark.parametrize("d", [1, 3, 64, 65, 200])
def test_median_distance_is_the_median_of_all_pairs(d, rng):
    x = rng.normal(size=(37, d))
    pairs = [np.linalg.norm(x[a] - x[b]) for a in range(37) for b in range(a)]
    assert median_distance(x) == pytest.approx(np.median(pairs), rel=1e-12)


@pytest.mark.parametrize("d", [2, 80])
def test_atoms_give_the_mean_distance_of_distinct_pairs(d):
    """Eight rows at 0 and two at distance √d: 16 of 45 pairs are distinct, the median of all is 0."""
    x = np.zeros((10, d))
    x[8:] = 1.0
    assert median_distance(x) == pytest.approx(np.sqrt(d))


@pytest.mark.parametrize("scale", [1e-300, 1e-20, 1.0, 1e20, 1e300])
def test_median_distance_scales(scale, rng):
    x = rng.normal(size=(50, 4))
    assert median_distance(x * scale) / scale == pytest.approx(median_distance(x), rel=1e-12)


def test_coinciding_rows_have_no_median_distance():
    with pytest.raises(InputError, match="coincide"):
        median_distance(np.ones((30, 2)))


@pytest.mark.parametrize(
    "kernel", [Polynomial(), Polynomial(1, 0.0), Polynomial(4, 2.0, 1e-9), Polynomial(2) + Polynomial(3)], ids=range(4)
)
def test_entries_that_polynomials_can_bear(kernel):
    """The largest value, of two rows with every entry at the bound, is 1e70: (γ d A² + c)^p."""
    d = 5
    kernel = kernel.with_dimension(d)
    most = kernel.largest_entry(d)
    row = np.full((1, d), most)
    assert kernel.pairs(row, row)[0] == pytest.approx(1e70, rel=1e-9)
    assert Gaussian(1.0).largest_entry(d) == np.inf
    assert Polynomial(50, offset=100.0).with_dimension(d).largest_entry(d) == 0.0


@pytest.mark.parametrize("discrepancy", ["mmd", "ume", "nystroem"])
@pytest.mark.parametrize("kernel", [Polynomial(), Polynomial(1, 0.0), Tilted(Polynomial())], ids=range(3))
@pytest.mark.filterwarnings("error")
def test_polynomials_never_overflow(kernel, discrepancy, rng):
    """Just below the bound every number is finite, without a complaint of NumPy; just above it is refused."""
    most = kernel.with_dimension(3).largest_entry(3)
    data, a, b = rng.uniform(-most, most, (3, 60, 3))
    result = compare(data, {"a": a, "b": b}, kernel=kernel, discrepancy=discrepancy, rng=0)
    assert np.isfinite(result.covariance).all()
    b[7, 1] = 1.001 * most
    with pytest.raises(InputError, match=r"model 'b': expected numbers below \S+ in size for the Polynomial kernel"):
        compare(data, {"a": a, "b": b}, kernel=kernel, discrepancy=discrepancy, rng=0)
    with pytest.raises(InputError, match="kernel: expected an offset"):
        compare(data, {"a": a, "b": b}, kernel=Polynomial(50, offset=100.0), rng=0)


def test_kernels_by_name(rng):
    data, a, b = rng.normal(size=(3, 30, 2))
    for name, kernel in NAMED.items():
        assert as_kernel(name) is kernel
    assert compare(data, {"a": a, "b": b}, kernel="imq", rng=0).kernel == IMQ()
    assert compare(data, {"a": a, "b": b}, discrepancy=MMD("matern32"), rng=0).kernel.smoothness == 1.5
    with pytest.raises(InputError, match=r"kernel: expected gaussian, imq, .* or a relfit kernel, got 'rbf'"):
        compare(data, {"a": a, "b": b}, kernel="rbf")
