"""Finite differences: exact on quartics, sized to the data, honest about their error."""

import numpy as np

from relfit.data import autodiff as finite


def test_a_quartic_has_no_truncation_error(rng):
    """(4D(h) − D(2h))/3 is off by h⁴f⁽⁵⁾/30, and f⁽⁵⁾ = 0: what remains is rounding, ε|f|/h with h ≈ 1e-4."""
    x = rng.normal(size=(50, 2))
    got = finite.finite_gradient(lambda x: x[:, 0] ** 4 - 3.0 * x[:, 1] ** 3 * x[:, 0], x)
    expected = np.stack([4.0 * x[:, 0] ** 3 - 3.0 * x[:, 1] ** 3, -9.0 * x[:, 1] ** 2 * x[:, 0]], axis=1)
    np.testing.assert_allclose(got, expected, atol=1e-9)


def test_the_error_estimate_covers_the_error(rng):
    """sin(50x) has f⁽⁵⁾ = 50⁵cos: with h = 2^round(log₂(ε^¼ · 0.67)) ≈ 1e-4 the error is some 1e-9 of the slope."""
    x = rng.normal(size=(500, 1))
    slope = 50.0 * np.cos(50.0 * x)
    wrong = finite.finite_gradient(lambda x: np.sin(50.0 * x[:, 0]), x) - slope
    actual = np.sqrt(np.mean(wrong**2) / np.mean(slope**2))
    estimate = finite.finite_error(lambda x: np.sin(50.0 * x[:, 0]), x)
    assert 1e-11 < actual < estimate < 1e3 * actual


def test_steps_shrink_beside_the_edge_and_rows_outside_are_nan():
    """h ≈ 1e-4 shrinks to 64⁻² of it for the row at 1e-6: h/x ≈ 0.03, and the error is h⁴f⁽⁵⁾/30 = 0.8(h/x)⁴."""
    x = np.array([[-1.0], [1e-6], [1.0], [2.0], [3.0]])
    with np.errstate(invalid="ignore", divide="ignore"):
        got = finite.finite_gradient(lambda x: np.where(x[:, 0] > 0.0, np.log(np.abs(x[:, 0])), -np.inf), x)
    assert np.isnan(got[0, 0])
    np.testing.assert_allclose(got[1:], 1.0 / x[1:], rtol=1e-5)


def test_a_jacobian():
    """s = (x₁x₂, x₁²): ∂s₁ = (x₂, x₁), ∂s₂ = (2x₁, 0)."""
    x = np.array([[1.0, 2.0], [3.0, -1.0]])
    got = finite.jacobian(lambda x: np.stack([x[:, 0] * x[:, 1], x[:, 0] ** 2], axis=1), x)
    np.testing.assert_allclose(got, [[[2, 1], [2, 0]], [[-1, 3], [6, 0]]], atol=1e-9)
