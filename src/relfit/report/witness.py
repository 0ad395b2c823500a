"""Where a model and the data differ, row by row: MMD's witness function, and the share of every row in KSD."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import cdist

from relfit.data.models import Density, scores_of
from relfit.kernels.base import Kernel
from relfit.report.recall import Recalled
from relfit.report.words import measure_of
from relfit.results.comparison import Comparison
from relfit.util.arrays import Array, Rows
from relfit.util.errors import InputError
from relfit.util.text import listed

# Beyond so many columns a matrix product is much quicker than differences. It gives r² up to 2⁻⁵² max‖x‖²: beyond so
# many squared kernel lengths, differences are taken all the same.
_PRODUCT_COLUMNS, _LARGEST_PRODUCT_RATIO = 32, 1e5
# Values recomputed here differ from the result's by rounding only; this much of a standard error is no rounding.
_SAME = 1e-3


@dataclass(frozen=True)
class Heights:
    """Values of a function at k points, each with its standard error over the sample; (k,) both."""

    values: Array
    errors: Array


def witness(points: Array, sample: Array, reference: Array, kernel: Kernel) -> Heights:
    """``f(z) = mean_c k(x_c, z) − mean_a k(r_a, z)`` at points (k, d): above 0 the model has too much mass around z.

    The standard error is √(var_c k(x_c, z)/m + var_a k(r_a, z)/n).

    >>> from relfit.kernels.standard import Gaussian
    >>> x, r = np.array([[0.0], [2.0]]), np.array([[2.0], [2.0]])
    >>> witness(np.array([[0.0]]), x, r, Gaussian(2.0)).values  # (1 + e^−½)/2 − e^−½
    array([0.19673467])
    """
    model, data = (_moments(kernel_values(points, rows, kernel)) for rows in (sample, reference))
    return _difference(model, data)


def row_witness(sample: Array, reference: Array, kernel: Kernel) -> tuple[Heights, Heights, Array]:
    """The witness at the model's own rows and at the reference rows, a row never being compared with itself.

    ``f(x_c) = Σ_{c'≠c} k(x_c,x_c')/(m−1) − mean_a k(x_c,r_a)``,
    ``f(r_a) = mean_c k(x_c,r_a) − Σ_{b≠a} k(r_a,r_b)/(n−1)``, so that MMD² = mean f(x_c) − mean f(r_a).
    The third is ``mean_a k(x_c,r_a)`` (m,): how typical of the data each row of the model is.
    """
    cross = kernel_values(sample, reference, kernel)
    typical = _moments(cross)
    at_sample = _difference(_moments_without_self(kernel_values(sample, sample, kernel)), typical)
    at_reference = _difference(_moments(cross.T), _moments_without_self(kernel_values(reference, reference, kernel)))
    return at_sample, at_reference, typical[0]


def stein_contributions(x: Array, scores: Array, kernel: Kernel) -> Heights:
    """``g(x_a) = Σ_{b≠a} u(x_a, x_b)/(n−1)`` of every row (n, d) with its scores (n, d); KSD² = mean g.

    ``u(x,y) = s(x)·s(y) φ + 2φ'(x−y)·(s(y) − s(x)) − 2dφ' − 4r²φ''``. Under the right model E u(x, ·) = 0 for every x,
    so a row with a large g lies where the model's slope is wrong. A weighted kernel w(x) w(y) φ gives w(x) w(y) u with
    the score s + ∇ log w.
    """
    weight, plain = np.ones(len(x)), kernel.untilted
    if kernel.tilt is not None:
        weight, scores = kernel.tilt.weights(x), scores + kernel.tilt.gradient(x)
    phi, dphi, r2ddphi = plain.weights(squared_distances(x, x, plain.length), ("phi", "dphi", "r2ddphi"))
    projected = x @ scores.T
    along = np.diag(projected)
    slopes = projected + projected.T - along[:, None] - along
    u = phi * (scores @ scores.T) + 2.0 * dphi * slopes - 2.0 * x.shape[1] * dphi - 4.0 * r2ddphi
    return Heights(*_moments_without_self(weight[:, None] * u * weight))


def kernel_values(x: Array, y: Array, kernel: Kernel) -> Array:
    """k(x_a, y_b), (n, m)."""
    plain = kernel.untilted
    values = np.asarray(plain.phi(x @ y.T if plain.variable == "dot" else squared_distances(x, y, plain.length)))
    if kernel.tilt is None:
        return values
    return np.asarray(kernel.tilt.weights(x)[:, None] * values * kernel.tilt.weights(y))


def squared_distances(x: Array, y: Array, length: float) -> Array:
    """‖x_a − y_b‖² (n, m), exact enough for a kernel of this length."""
    if x.shape[1] > _PRODUCT_COLUMNS:
        centre = y.mean(axis=0)
        a, b = x - centre, y - centre
        norms = [np.einsum("ij,ij->i", rows, rows) for rows in (a, b)]
        if max(part.max() for part in norms) <= _LARGEST_PRODUCT_RATIO * length**2:
            return np.asarray(np.maximum(norms[0][:, None] + norms[1] - 2.0 * (a @ b.T), 0.0))
    return np.asarray(cdist(x, y, "sqeuclidean"))


def _moments(values: Array) -> tuple[Array, Array]:
    """Mean along each row, and its standard error."""
    count = values.shape[1]
    spread = values.std(axis=1, ddof=1) if count > 1 else np.zeros(len(values))
    return values.mean(axis=1), spread / np.sqrt(count)


def _moments_without_self(square: Array) -> tuple[Array, Array]:
    """`_moments` of the rows of a square matrix, its diagonal left out."""
    count = len(square)
    return _moments(square[~np.eye(count, dtype=bool)].reshape(count, count - 1))


def _difference(first: tuple[Array, Array], second: tuple[Array, Array]) -> Heights:
    return Heights(first[0] - second[0], np.hypot(first[1], second[1]))


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
    data, rows, kernel = recalled.data, recalled.rows, recalled.kernel
    original = data.copies.get(name, name)
    if original not in data.models:
        raise InputError(f"name: expected the name of a model ({listed(data.names, 'or')}), got {name!r}")
    model, reference = data.models[original], data.reference
    if isinstance(model, Density):
        heights = stein_contributions(reference, scores_of(name, model, reference), kernel)
        differing = Differing(name, "slope", None, Side(reference, rows[None], heights))
    elif data.target is not None:
        heights = stein_contributions(model, scores_of("target", data.target, model), kernel)
        differing = Differing(name, "slope", Side(model, rows[original], heights), None)
    else:
        at_model, at_reference, typical = row_witness(model, reference, kernel)
        sides = Side(model, rows[original], at_model), Side(reference, rows[None], at_reference)
        differing = Differing(name, "mass", *sides, typical)
    _check_same(comparison, recalled, differing)
    return differing


def _check_same(comparison: Comparison, recalled: Recalled, differing: Differing) -> None:
    """Refuse rows that give another discrepancy, where it is the mean over these very rows.

    It is not for estimators other than "complete", pairs, chains, rows in groups, which leave pairs out, and tests
    that split the rows.
    """
    alike = (
        measure_of(comparison).pairs
        and comparison.estimator in (None, "complete")
        and comparison.dependence in (None, "independent", "shared")
        and comparison.groups is None
        and comparison.select_fraction is None
        and recalled.complete
    )
    if not alike or comparison.sizes is None or comparison.sizes[0] != recalled.sizes[None]:
        return
    i = comparison.names.index(differing.name)
    error, value = float(comparison.standard_error[i]), float(comparison.discrepancy[i])
    if abs(differing.discrepancy - value) > _SAME * error + 1e-9:
        raise InputError(
            f"data: expected the data this result was made from; the discrepancy of {differing.name!r} is "
            f"{differing.discrepancy:.6g} with these and {value:.6g} in the result"
        )
