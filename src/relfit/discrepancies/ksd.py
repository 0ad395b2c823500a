"""Squared kernel Stein discrepancy of several densities to one reference, all from one pass over the kernel.

``u_i(x,y) = s_i(x)·s_i(y) k + s_i(x)·∇_y k + ∇_x k·s_i(y) + tr ∇_x∇_y k`` with k = φ(r²), where
∇_x k = 2φ'(x−y), ∇_y k = −2φ'(x−y) and tr ∇_x∇_y k = −2dφ' − 4r²φ''.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.backends import Backend, Points, Weight, host
from relfit.discrepancies.columns import Columns, independent_columns
from relfit.discrepancies.psi import Estimates, Psi
from relfit.discrepancies.rows import shifted
from relfit.discrepancies.second_order import Rows, second_order
from relfit.kernels import Kernel, library
from relfit.patches import Patch, Sums, described, matrix_sums
from relfit.tiles import Job, Products, Runtime

Array = NDArray[np.float64]


def complete(
    reference: Any,
    scores: Sequence[Any],
    kernel: Kernel,
    runtime: Runtime,
    rng: np.random.Generator,
    *,
    centre: Array | float = 0.0,
) -> Estimates:
    """KSD² of each model, scores (n, d) at the reference rows (n, d), with ψ rows.

    ``g_i(x_a) = Σ_{b≠a} u_i(x_a,x_b)/(n−1)``, D_i = mean g_i and ψ = 2(g − ḡ)·(n−1)/(n−2): the factor
    makes ψᵀψ/(n(n−1)) the jackknife covariance, which the plain projection falls short of by
    ((n−2)/(n−1))². The kernel is that of rows with the `centre` subtracted.
    """
    n = len(reference)
    g = _row_sums(reference, scores, kernel, runtime, centre) / (n - 1)
    values = g.mean(axis=0)
    psi = Psi(host((g - values) * (2.0 * (n - 1) / (n - 2))))
    return Estimates(host(values), psi, _second_order(reference, scores, kernel, rng, centre))


def row_sums(x: Any, scores: Sequence[Any], kernel: Kernel, runtime: Runtime, *, centre: Array | float = 0.0) -> Array:
    """Σ_{b≠a} u_i(x_a, x_b) for every row and model: (n, l)."""
    return host(_row_sums(x, scores, kernel, runtime, centre))


def pair_values(kernel: Kernel, first: tuple[Array, Sequence[Array]], second: tuple[Array, Sequence[Array]]) -> Array:
    """u_i(x_a, y_a) for paired rows: (pairs, l). `first` and `second` hold rows and, per model, their scores."""
    (x, s), (y, t) = first, second
    s, left = tilted(kernel, x, s)
    t, right = tilted(kernel, y, t)
    gap = x - y
    r2 = np.einsum("ij,ij->i", gap, gap)
    phi, dphi, r2ddphi = kernel.untilted.weights(r2, ("phi", "dphi", "r2ddphi"))
    trace = -2.0 * x.shape[1] * dphi - 4.0 * r2ddphi
    columns = [
        phi * np.einsum("ij,ij->i", a, b) + 2.0 * dphi * np.einsum("ij,ij->i", gap, b - a) + trace
        for a, b in zip(s, t, strict=True)
    ]
    return np.stack(columns, axis=1) * (left * right)


def tilted(kernel: Kernel, x: Array, scores: Sequence[Array]) -> tuple[Sequence[Array], Array]:
    """Scores and row weights (n, 1) with which the untilted kernel does what the tilted one does with the scores.

    The Stein kernel of w(x) w(y) k(x, y) is w(x) w(y) times that of k with scores s + ∇ log w.
    """
    if kernel.tilt is None:
        return scores, np.ones((1, 1))
    slope = kernel.tilt.gradient(x)
    return [s + slope for s in scores], kernel.tilt.weights(x)[:, None]


def _row_sums(x: Any, scores: Sequence[Any], kernel: Kernel, runtime: Runtime, centre: Array | float) -> Array:
    """`row_sums`, where the backend works if that is a single patch."""
    measure = SteinSums(kernel, centre, len(scores))
    return matrix_sums(measure, (x, *scores), [(0, 0)], runtime)[0].rows


@dataclass(frozen=True)
class _Side:
    """Some rows prepared: `columns` to be multiplied with the kernel matrix, and what makes sums of the products."""

    points: Points
    columns: Mapping[Weight, Columns]
    finish: Callable[[Mapping[Weight, Array]], Array]


@dataclass(frozen=True)
class SteinSums:
    """Row sums of every u_i; the sources are the rows and then each model's scores at them."""

    kernel: Kernel
    centre: Array | float
    models: int
    passes: int = 1

    def key(self) -> str:
        """See `Measure`."""
        return f"Stein sums {described(self.kernel, self.centre)}"

    def needs(self, patch: Patch) -> tuple[int, ...]:
        """The rows and all scores."""
        return tuple(range(1 + self.models))

    def width(self, sources: Sequence[Any]) -> int:
        """All columns that are multiplied with the kernel matrix."""
        return len(sources) * (int(sources[0].shape[1]) + 1)

    def side(self, sources: Sequence[Any], which: int, rows: slice, backend: Backend) -> _Side:
        """Rows and their scores, where the backend works."""
        x, plain = shifted(sources[which][rows], self.centre), self.kernel.untilted
        given, weight = tilted(self.kernel, x, [s[rows] for s in sources[1:]])
        x, weight, *scores = (backend.array(part) for part in (x, weight, *given))
        gaussian = plain.unit_rate is not None
        right, finish = _gaussian_columns(x, scores, plain) if gaussian else _general_columns(x, scores)
        columns = {w: independent_columns(matrix * weight) for w, matrix in right.items()}
        return _Side(backend.points(plain, x), columns, lambda products: finish(products) * weight)

    def jobs(self, x: _Side, y: _Side, patch: Patch) -> list[Job]:
        """The kernel matrix times the columns of the other side."""
        right = {w: part.basis for w, part in y.columns.items()}
        if patch.symmetric:
            return [Job(self.kernel.untilted, x.points, None, right)]
        left = {w: part.basis for w, part in x.columns.items()}
        return [Job(self.kernel.untilted, x.points, y.points, right, left)]

    def sums(self, x: _Side, y: _Side, products: Sequence[Products]) -> Sums:
        """Σ_b u_i(x_a, x_b) over the rows b of the other side."""
        found = products[0]
        rows = x.finish({w: part.expand(found.rows[w]) for w, part in y.columns.items()})
        if not found.columns:
            return Sums(rows)
        return Sums(rows, y.finish({w: part.expand(found.columns[w]) for w, part in x.columns.items()}))


Prepared = tuple[dict[Weight, Array], Callable[[Mapping[Weight, Array]], Array]]


def _gaussian_columns(x: Array, scores: Sequence[Array], kernel: Kernel) -> Prepared:
    """Row sums of every u_i from φ alone: with φ' = −γφ, and v = s − 2γx, c = 2γ s·x − 4γ²‖x‖² + dγ,

    ``u(a,b) = φ (v_a·v_b + 4γ² x_a·x_b + c_a + c_b)``: one product φ @ [1, x, v_1..v_l, c_1..c_l].
    """
    d, arrays = x.shape[1], library(x)
    gamma = -(kernel.unit_rate or 0.0) / kernel.length**2
    v = [s - 2.0 * gamma * x for s in scores]
    c = arrays.stack([2.0 * gamma * _dots(s, x) for s in scores], axis=1)
    c += (d * gamma - 4.0 * gamma**2 * _dots(x, x))[:, None]

    def finish(products: Mapping[Weight, Array]) -> Array:
        ones, kx, kc, kv = _split(products["phi"], d, len(scores))
        shared = 4.0 * gamma**2 * _dots(x, kx)
        own = arrays.stack([_dots(a, b) for a, b in zip(v, kv, strict=True)], axis=1)
        out: Array = own + shared[:, None] + c * ones + kc
        return out

    return {"phi": arrays.hstack([arrays.ones_like(x[:, :1]), x, c, *v])}, finish


def _general_columns(x: Array, scores: Sequence[Array]) -> Prepared:
    """Row sums of every u_i for any radial kernel, from φ @ s, φ' @ [1, x, s, x·s] and the row sums of r²φ''."""
    d, arrays = x.shape[1], library(x)
    xs = arrays.stack([_dots(x, s) for s in scores], axis=1)
    one = arrays.ones_like(x[:, :1])
    right: dict[Weight, Array] = {
        "phi": arrays.hstack(scores),
        "dphi": arrays.hstack([one, x, xs, *scores]),
        "r2ddphi": one,
    }

    def finish(products: Mapping[Weight, Array]) -> Array:
        phi_s = arrays.hsplit(products["phi"], len(scores))
        ones, dphi_x, dphi_xs, dphi_s = _split(products["dphi"], d, len(scores))
        trace = -2.0 * d * ones[:, 0] - 4.0 * products["r2ddphi"][:, 0]
        columns = [
            _dots(s, phi_s[i] + 2.0 * dphi_x)
            + 2.0 * (_dots(x, dphi_s[i]) - xs[:, i] * ones[:, 0] - dphi_xs[:, i])
            + trace
            for i, s in enumerate(scores)
        ]
        out: Array = arrays.stack(columns, axis=1)
        return out

    return right, finish


def _split(product: Array, d: int, models: int) -> tuple[Array, Array, Array, Sequence[Array]]:
    """The columns of 1, of x, of one number a model and of one vector a model."""
    vectors = library(product).hsplit(product[:, 1 + d + models :], models)
    return product[:, :1], product[:, 1 : 1 + d], product[:, 1 + d : 1 + d + models], vectors


def _dots(a: Array, b: Array) -> Array:
    """a_i·b_i for every row."""
    out: Array = library(a).einsum("ij,ij->i", a, b)
    return out


def _second_order(
    x: Any, scores: Sequence[Any], kernel: Kernel, rng: np.random.Generator, centre: Array | float
) -> Array:
    """C/M (l, l), with C the covariance of (u_1..u_l) over random pairs and M the number of pairs."""
    taken = _taker(x, scores, centre)

    def values(a: Rows, b: Rows) -> Array:
        return pair_values(kernel, taken(a), taken(b))

    return second_order(len(x), x.shape[1] * (1 + len(scores)), values, rng)


def _taker(x: Any, scores: Sequence[Any], centre: Array | float) -> Callable[[Rows], tuple[Array, Sequence[Array]]]:
    """Rows of x, shifted, and of the scores, on the host; from a device all of them come in one piece."""
    if not hasattr(x, "is_cuda"):
        return lambda rows: (x[rows] - centre, [s[rows] for s in scores])
    joined = library(x).hstack([shifted(x, centre), *scores])

    def taken(rows: Rows) -> tuple[Array, Sequence[Array]]:
        first, *others = np.hsplit(host(joined[rows]), 1 + len(scores))
        return first, others

    return taken
