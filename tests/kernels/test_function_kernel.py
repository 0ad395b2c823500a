"""Kernels that are functions of two arrays of rows."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

import relfit
from relfit import FunctionKernel, Gaussian, InputError


def gaussian(x, y):
    return np.exp(-cdist(x, y, "sqeuclidean") / 2.0 / 1.5**2)


def scaled_gaussian(x, y):
    """A Gaussian whose columns have lengths of their own: not radial."""
    lengths = np.array([0.5, 2.0])
    return np.exp(-cdist(x / lengths, y / lengths, "sqeuclidean") / 2.0)


def linear(x, y):
    """Not shift invariant."""
    return 1.0 + x @ y.T


def problem(n=60):
    rng = np.random.default_rng(0)
    data = rng.normal(5.0, 1.0, (n, 2))
    return data, {f"m{k}": rng.normal(5.0 + shift, 1, (n, 2)) for k, shift in enumerate((0.1, 0.2, 1.0))}


def densities(means=(5.0, 5.2, 6.0)):
    return {f"m{k}": relfit.Density(score=lambda x, m=m: m - x) for k, m in enumerate(means)}


@pytest.mark.parametrize("dependence", ["independent", "shared", "paired"])
def test_mmd_is_that_of_the_same_kernel_of_relfit(dependence):
    data, models = problem()
    options = {"dependence": dependence, "rng": 0}
    ours = relfit.compare(data, models, kernel=Gaussian(1.5), **options)
    own = relfit.compare(data, models, kernel=gaussian, **options)
    np.testing.assert_allclose(own.discrepancy, ours.discrepancy, rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(own.standard_error, ours.standard_error, rtol=1e-9)
    assert own.worse.tolist() == ours.worse.tolist()
    assert "gaussian kernel" in str(own)


def test_rows_in_groups_and_the_linear_estimator():
    data, models = problem()
    labels = {"reference": np.arange(60) // 2} | {name: np.arange(60) // 2 for name in models}
    for options in ({"groups": labels}, {"estimator": "linear"}):
        ours = relfit.estimate(data, models, kernel=Gaussian(1.5), rng=0, **options)
        own = relfit.estimate(data, models, kernel=gaussian, rng=0, **options)
        np.testing.assert_allclose(own.values, ours.values, rtol=1e-9, atol=1e-14)
        np.testing.assert_allclose(own.covariance, ours.covariance, rtol=1e-8, atol=1e-16)


def test_ksd_by_differences_is_that_of_the_same_kernel_of_relfit():
    data, _ = problem(120)
    ours = relfit.estimate(data, densities(), kernel=Gaussian(1.5), rng=0)
    own = relfit.estimate(data, densities(), kernel=gaussian, rng=0)
    np.testing.assert_allclose(own.values, ours.values, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(own.covariance, ours.covariance, rtol=1e-4)


def test_ksd_of_a_kernel_that_is_not_radial():
    """k = exp(−Σ (x_j − y_j)²/(2 l_j²)) is radial in x/l, where a score s becomes l s."""
    data, _ = problem(80)
    lengths = np.array([0.5, 2.0])
    own = relfit.estimate(data, densities(), kernel=scaled_gaussian, rng=0)
    scores = [mean - data for mean in (5.0, 5.2, 6.0)]
    gaps = (data[:, None] - data) / lengths**2
    k = scaled_gaussian(data, data)
    # By hand: ∇_x k = −gap k, ∇_y k = gap k, ∂²k/∂x_j∂y_j = (1/l_j² − gap_j²) k.
    trace = (1.0 / lengths**2 - gaps**2).sum(axis=2)
    for value, s in zip(own.values, scores, strict=True):
        u = s @ s.T + np.einsum("ad,abd->ab", s, gaps) - np.einsum("bd,abd->ab", s, gaps) + trace
        u = u * k
        np.fill_diagonal(u, 0.0)
        np.testing.assert_allclose(value, u.sum() / (80 * 79), rtol=1e-5, atol=1e-7)


def test_a_kernel_that_is_not_shift_invariant_sees_the_rows_as_they_are():
    data, models = problem()
    joint = relfit.estimate(data, models, kernel=linear, rng=0)

    def mean_apart(x):
        values = linear(x, x)
        return (values.sum() - np.trace(values)) / (len(x) * (len(x) - 1))

    for value, x in zip(joint.values, models.values(), strict=True):
        expected = mean_apart(x) + mean_apart(data) - 2.0 * linear(x, data).mean()
        np.testing.assert_allclose(value, expected, rtol=1e-9, atol=1e-12)


WRONG = {
    "shape": (lambda x, y: np.ones(len(x)), "expected values of shape"),
    "nan": (lambda x, y: np.full((len(x), len(y)), np.nan), "expected finite values"),
    "asymmetric": (lambda x, y: x[:, :1] + 2.0 * y[:, 0], r"expected k\(x, y\) = k\(y, x\)"),
}


@pytest.mark.parametrize(("function", "message"), WRONG.values(), ids=WRONG)
def test_wrong_functions_get_one_line(function, message):
    data, models = problem()
    with pytest.raises(InputError, match=message) as error:
        relfit.compare(data, models, kernel=FunctionKernel(function, "similarity"), rng=0)
    assert str(error.value).startswith("similarity kernel: ")


def test_what_does_not_go_with_a_function_is_refused():
    data, models = problem()
    for options, message in (
        ({"estimator": "landmarks"}, "expected one of complete, linear"),
        ({"discrepancy": "ume"}, "use mmd or ksd with this one"),
        ({"compute": relfit.Compute(memory="1GB")}, "a precomputed kernel or a function"),
    ):
        with pytest.raises(InputError, match=message):
            relfit.compare(data, models, kernel=gaussian, rng=0, **options)
    with pytest.raises(InputError, match="functions or kernel matrices throughout"):
        relfit.compare(data, models, kernel=[FunctionKernel(gaussian), Gaussian(1.0)], rng=0)


def test_several_functions_in_one_test_and_files():
    data, models = problem()
    kernels = [FunctionKernel(gaussian, "one"), scaled_gaussian]
    result = relfit.compare(data, models, kernel=kernels, rng=0)
    assert result.worse.tolist() == [False, False, True]
    again = type(result).from_json(result.to_json())
    assert "any of 2 kernels: one kernel; scaled_gaussian kernel" in again.kernel.describe()


def test_what_the_report_and_other_backends_cannot_do_is_said():
    data, models = problem()
    torch = relfit.Compute(backend="torch")
    result = relfit.compare(data, models, kernel=gaussian, rng=0, compute=torch)
    assert any("always works in numpy" in note for note in result.warnings)
    with pytest.raises(InputError, match="data: expected a kernel of relfit or a Radial one, got gaussian kernel"):
        result.report("page.html", (data, models))
