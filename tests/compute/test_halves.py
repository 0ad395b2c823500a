"""Operands of halves: their float64 product is the kernel's argument to 22 bits, whatever the layout."""

import numpy as np
import pytest

from relfit.kernels.standard import IMQ, Gaussian, Polynomial, RationalQuadratic

torch = pytest.importorskip("torch")
pytest.importorskip("triton", reason="triton is not installed")

from relfit.compute import triton_backend as halves  # noqa: E402
from relfit.compute.triton_backend import form_of, layout_of, operand, sides  # noqa: E402


def argument(kernel, x, y, weight="phi"):
    """What a fused kernel sees of two samples, multiplied out in float64."""
    largest = max(float((rows**2).sum(1).max()) for rows in (x, y))
    form = form_of(kernel, weight, largest)
    left = operand(torch.as_tensor(x), form, "left", 64).double()
    right = operand(torch.as_tensor(y), form, "right", 64).double()
    return form, (left @ right.T).numpy()[: len(x), : len(y)]


@pytest.mark.parametrize("d", [1, 3, 10, 64, 100])
def test_a_gaussian_is_a_power_of_two(d, rng):
    x, y = rng.normal(size=(2, 20, d))
    kernel = Gaussian(np.sqrt(2.0 * d))
    form, s = argument(kernel, x, y)
    wanted = -((x[:, None] - y[None]) ** 2).sum(2) * np.log2(np.e) / (2.0 * kernel.length**2)
    assert form.factor == 1.0
    np.testing.assert_allclose(s, wanted, rtol=0, atol=2.0**-21)


@pytest.mark.parametrize("kernel", [IMQ(1.4, -0.7), RationalQuadratic(1.4, 2.0)], ids=["imq", "rational"])
@pytest.mark.parametrize("weight", ["phi", "dphi", "r2ddphi"])
def test_powers_of_a_distance_and_their_derivatives(kernel, weight, rng):
    """factor · s^e (· (s − 1)) is the weight itself: the chain rule, checked against the kernel's own formulas."""
    x, y = rng.normal(size=(2, 20, 3))
    form, s = argument(kernel, x, y, weight)
    found = form.factor * s**form.exponent * (s - 1.0 if form.times_r2 else 1.0)
    (wanted,) = kernel.weights(((x[:, None] - y[None]) ** 2).sum(2), (weight,))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6 * np.abs(wanted).max())


def test_powers_of_a_product(rng):
    x, y = rng.normal(size=(2, 20, 5)) * 100.0
    kernel = Polynomial(3, offset=1.0, scale=0.2)
    form, s = argument(kernel, x, y)
    values = form.unit * s + form.offset
    assert np.abs(values).max() <= 1.0
    wanted = kernel.phi(x @ y.T)
    np.testing.assert_allclose(form.factor * values**3, wanted, rtol=0, atol=1e-6 * np.abs(wanted).max())


def test_rows_far_out_have_no_form():
    assert form_of(Gaussian(1.0), "phi", halves.LARGEST_NORM / 2.0) is not None
    assert form_of(Gaussian(1.0), "phi", halves.LARGEST_NORM) is None
    assert form_of(IMQ(1.0), "dphi", 1.1 * halves.LARGEST_NORM) is None
    assert form_of(Gaussian(1e150), "phi", 1e300) is not None


def test_layouts_hold_what_is_needed_in_pieces_a_kernel_can_read():
    for dim in range(1, 110):
        layout = layout_of(dim, halves.GAUSSIAN)
        assert layout.columns >= 3 * dim + 6
        assert layout.piece in (16, 32, 64)
        assert layout.tail in (0, 16, 32)
        assert layout.held == (layout.columns <= halves.LONGEST_HELD)
        assert layout.pieces <= 4 or not layout.held
    assert layout_of(10, halves.GAUSSIAN).columns == 48
    assert layout_of(16, halves.DOT).columns == 48


def test_right_hand_sides_keep_22_bits_of_every_column(rng):
    matrix = torch.as_tensor(rng.normal(size=(50, 4)) * np.array([1e-40, 1.0, 1e40, 0.0]))
    some = sides(matrix, 64)
    found = ((some.high.double() + some.low.double())[:50, :4] * some.unscale * halves.VALUE_RANGE).numpy()
    np.testing.assert_allclose(found, matrix.numpy(), rtol=2.0**-21)
    assert not some.high[50:].any()
    assert not some.high[:, 4:].any()
