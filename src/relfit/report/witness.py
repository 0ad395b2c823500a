"""The functions that see a difference: MMD's witness, and the share of every row in KSD."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import cdist

from relfit.data.models import Density, scores_of
from relfit.kernels.base import Kernel
from relfit.report.recall import Recalled
from relfit.results.comparison import Comparison
from relfit.util.arrays import Array, Rows
from relfit.util.errors import InputError

# Beyond so many columns a matrix product is much quicker than differences.
_PRODUCT_COLUMNS = 32


@dataclass(frozen=True)
class Heights:
    """Values of a function at k points, each with its standard error over the sample; (k,) both."""

    values: Array
    errors: Array

    def __neg__(self) -> Heights:
        return Heights(-self.values, self.errors)


def witness(points: Array, sample: Array, reference: Array, kernel: Kernel) -> Heights:
    """``f(z) = mean_c k(x_c, z) − mean_a k(r_a, z)`` at points (k, d): above 0 the model has too much mass around z.

    The standard error is √(var_c k(x_c, z)/m + var_a k(r_a, z)/n).

    >>> from relfit.kernels.standard import Gaussian
    >>> x, r = np.array([[0.0], [2.0]]), np.array([[2.0], [2.0]])
    >>> witness(np.array([[0.0]]), x, r, Gaussian(2.0)).values  # (1 + e^−½)/2 − e^−½
    array([0.19673467])
    """
    own, other = (_moments(kernel_values(points, rows, kernel)) for rows in (sample, reference))
    return _difference(own, other)


def row_witness(sample: Array, reference: Array, kernel: Kernel) -> tuple[Heights, Heights]:
    """The witness at the model's own rows and at the reference rows, a row never being compared with itself.

    ``f(x_c) = Σ_{c'≠c} k(x_c,x_c')/(m−1) − mean_a k(x_c,r_a)``,
    ``f(r_a) = mean_c k(x_c,r_a) − Σ_{b≠a} k(r_a,r_b)/(n−1)``, so that MMD² = mean f(x_c) − mean f(r_a).
    """
    cross = kernel_values(sample, reference, kernel)
    at_sample = _difference(_moments_without_self(sample, kernel), _moments(cross))
    at_reference = _difference(_moments(cross.T), _moments_without_self(reference, kernel))
    return at_sample, at_reference


def stein_contributions(x: Array, scores: Array, kernel: Kernel) -> Heights:
    """``g(x_a) = Σ_{b≠a} u(x_a, x_b)/(n−1)`` of every row (n, d) with its scores (n, d); KSD² = mean g.

    ``u(x,y) = s(x)·s(y) φ + 2φ'(x−y)·(s(y) − s(x)) − 2dφ' − 4r²φ''``. Under the right model E u(x, ·) = 0 for every x,
    so a row with a large g lies where the model's slope is wrong. A weighted kernel w(x) w(y) φ gives w(x) w(y) u with
    the score s + ∇ log w.
    """
    weight = np.ones(len(x))
    if kernel.tilt is not None:
        weight, scores = kernel.tilt.weights(x), scores + kernel.tilt.gradient(x)
    r2 = _squared_distances(x, x)
    phi, dphi, r2ddphi = kernel.untilted.weights(r2, ("phi", "dphi", "r2ddphi"))
    projected = x @ scores.T
    own = np.diag(projected)
    slopes = projected + projected.T - own[:, None] - own
    u = phi * (scores @ scores.T) + 2.0 * dphi * slopes - 2.0 * x.shape[1] * dphi - 4.0 * r2ddphi
    return Heights(*_without_diagonal(weight[:, None] * u * weight))


def kernel_values(x: Array, y: Array, kernel: Kernel) -> Array:
    """k(x_a, y_b), (n, m)."""
    plain = kernel.untilted
    values = np.asarray(plain.phi(x @ y.T if plain.variable == "dot" else _squared_distances(x, y)))
    if kernel.tilt is None:
        return values
    return np.asarray(kernel.tilt.weights(x)[:, None] * values * kernel.tilt.weights(y))


def _squared_distances(x: Array, y: Array) -> Array:
    if x.shape[1] <= _PRODUCT_COLUMNS:
        return np.asarray(cdist(x, y, "sqeuclidean"))
    centre = y.mean(axis=0)
    x, y = x - centre, y - centre
    total = np.einsum("ij,ij->i", x, x)[:, None] + np.einsum("ij,ij->i", y, y)
    return np.asarray(np.maximum(total - 2.0 * (x @ y.T), 0.0))


def _moments(values: Array) -> tuple[Array, Array]:
    """Mean along each row, and its standard error."""
    count = values.shape[1]
    spread = values.std(axis=1, ddof=1) if count > 1 else np.zeros(len(values))
    return values.mean(axis=1), spread / np.sqrt(count)


def _moments_without_self(rows: Array, kernel: Kernel) -> tuple[Array, Array]:
    return _without_diagonal(kernel_values(rows, rows, kernel))


def _without_diagonal(square: Array) -> tuple[Array, Array]:
    """`_moments` of the rows of a square matrix, its diagonal left out."""
    count = len(square)
    off = square[~np.eye(count, dtype=bool)].reshape(count, count - 1)
    return _moments(off)


def _difference(own: tuple[Array, Array], other: tuple[Array, Array]) -> Heights:
    return Heights(own[0] - other[0], np.hypot(own[1], other[1]))


# --------------------
# How much every row of a sample shows of the difference between a model and the data.


# Values recomputed here differ from the result's by rounding only; this much of a standard error is no rounding.
_SAME = 1e-3
# Estimators and samples for which the mean of the rows is the discrepancy itself.
_PLAIN = {"estimator": (None, "complete"), "dependence": (None, "independent", "shared")}


@dataclass(frozen=True)
class Side:
    """Some rows of one sample, their numbers in it, and the function's heights there."""

    rows: Array
    numbers: Rows
    heights: Heights


@dataclass(frozen=True)
class Differing:
    """Where one model differs from the data, row by row.

    Attributes:
        name: the model.
        kind: "mass" (MMD's witness: above 0 the model has too much mass) or "slope" (KSD: the row's contribution).
        model: the model's own rows; None for a density.
        reference: the reference rows; None where the reference is a density.
        typical: with MMD, mean_a k(x_c, r_a) of the model's rows: how much they are like the data.
    """

    name: str
    kind: str
    model: Side | None
    reference: Side | None
    typical: Array | None = None

    @property
    def sides(self) -> tuple[Side, ...]:
        """The sides there are."""
        return tuple(side for side in (self.model, self.reference) if side is not None)

    @property
    def discrepancy(self) -> float:
        """The discrepancy of these rows: mean f(x) − mean f(r) for MMD², mean g for KSD²."""
        if self.kind == "mass" and self.model is not None and self.reference is not None:
            return float(self.model.heights.values.mean() - self.reference.heights.values.mean())
        return float(self.sides[0].heights.values.mean())


def differing_rows(comparison: Comparison, recalled: Recalled, name: str) -> Differing:
    """The rows of one model and of the data with what each shows of their difference.

    Where every row is used their mean is the result's discrepancy; data that give another one are refused.
    """
    data, kernel = recalled.data, recalled.kernel
    original = data.copies.get(name, name)
    if original not in data.models:
        raise InputError(f"name: expected one of {', '.join(map(repr, data.names[:8]))}, got {name!r}")
    model = data.models[original]
    if isinstance(model, Density):
        x = recalled.reference
        found = Differing(name, "slope", None, _side(recalled, None, x, _contributions(name, model, x, recalled)))
    elif data.target is not None:
        x = recalled.sample(original)
        heights = _contributions("target", data.target, x, recalled)
        found = Differing(name, "slope", _side(recalled, original, x, heights), None)
    else:
        x, r = recalled.sample(original), recalled.reference
        at_model, at_reference = row_witness(x, r, kernel)
        typical = kernel_values(x, r, kernel).mean(axis=1)
        found = Differing(
            name, "mass", _side(recalled, original, x, at_model), _side(recalled, None, r, at_reference), typical
        )
    _check_same(comparison, recalled, found)
    return found


def _contributions(name: str, density: Density, x: Array, recalled: Recalled) -> Heights:
    return stein_contributions(x, scores_of(name, density, x), recalled.kernel)


def _side(recalled: Recalled, key: str | None, rows: Array, heights: Heights) -> Side:
    return Side(rows, recalled.rows[key], heights)


def _check_same(comparison: Comparison, recalled: Recalled, found: Differing) -> None:
    # Rows in groups have fewer pairs in the result than here.
    comparable = comparison.groups is None
    comparable = comparable and all(getattr(comparison, key) in values for key, values in _PLAIN.items())
    if not recalled.complete or not comparable or comparison.measure not in ("mmd", "ksd"):
        return
    sizes = comparison.sizes
    if comparison.test == "relmulti" or sizes is None or sizes[0] != len(recalled.data.reference):
        return
    i = comparison.names.index(found.name)
    error = float(comparison.standard_error[i])
    if abs(found.discrepancy - float(comparison.discrepancy[i])) > _SAME * error + 1e-9:
        raise InputError(
            f"data: expected the data this result was made from; the discrepancy of {found.name!r} is "
            f"{found.discrepancy:.6g} with these and {float(comparison.discrepancy[i]):.6g} in the result"
        )
