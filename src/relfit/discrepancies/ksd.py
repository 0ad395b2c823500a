"""Squared kernel Stein discrepancy of several densities to one reference, all from one pass over the kernel.

``u_i(x,y) = s_i(x)·s_i(y) k + s_i(x)·∇_y k + ∇_x k·s_i(y) + tr ∇_x∇_y k`` with k = φ(r²), where
∇_x k = 2φ'(x−y), ∇_y k = −2φ'(x−y) and tr ∇_x∇_y k = −2dφ' − 4r²φ''.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from relfit.backends import Weight, host
from relfit.discrepancies.columns import independent_columns
from relfit.discrepancies.psi import Estimates, Psi
from relfit.discrepancies.second_order import Rows, second_order
from relfit.kernels import Kernel, library
from relfit.tiles import Job, Runtime, run_in_place

Array = NDArray[np.float64]


def complete(
    reference: Array, scores: Sequence[Array], kernel: Kernel, runtime: Runtime, rng: np.random.Generator
) -> Estimates:
    """KSD² of each model, scores (n, d) at the reference rows (n, d), with ψ rows.

    ``g_i(x_a) = Σ_{b≠a} u_i(x_a,x_b)/(n−1)``, D_i = mean g_i and ψ = 2(g − ḡ)·(n−1)/(n−2): the factor
    makes ψᵀψ/(n(n−1)) the jackknife covariance, which the plain projection falls short of by
    ((n−2)/(n−1))².
    """
    n = len(reference)
    g = _row_sums(reference, scores, kernel, runtime) / (n - 1)
    values = g.mean(axis=0)
    psi = Psi(host((g - values) * (2.0 * (n - 1) / (n - 2))))
    return Estimates(host(values), psi, _second_order(reference, scores, kernel, rng))


def row_sums(x: Array, scores: Sequence[Array], kernel: Kernel, runtime: Runtime) -> Array:
    """Σ_{b≠a} u_i(x_a, x_b) for every row and model: (n, l)."""
    return host(_row_sums(x, scores, kernel, runtime))


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


def _row_sums(x: Array, scores: Sequence[Array], kernel: Kernel, runtime: Runtime) -> Array:
    """`row_sums` where the backend works."""
    scores, weight = tilted(kernel, x, scores)
    sums = _gaussian_row_sums if kernel.untilted.unit_rate is not None else _general_row_sums
    x, weight, *scores = (runtime.backend.array(part) for part in (x, weight, *scores))
    return sums(x, scores, kernel.untilted, runtime, weight) * weight


def _gaussian_row_sums(x: Array, scores: Sequence[Array], kernel: Kernel, runtime: Runtime, weight: Array) -> Array:
    """Row sums of every u_i from φ alone: with φ' = −γφ, and v = s − 2γx, c = 2γ s·x − 4γ²‖x‖² + dγ,

    ``u(a,b) = φ (v_a·v_b + 4γ² x_a·x_b + c_a + c_b)``: one product φ @ [1, x, v_1..v_l, c_1..c_l].
    """
    d, arrays = x.shape[1], library(x)
    gamma = -(kernel.unit_rate or 0.0) / kernel.length**2
    v = [s - 2.0 * gamma * x for s in scores]
    c = arrays.stack([2.0 * gamma * _dots(s, x) for s in scores], axis=1)
    c += (d * gamma - 4.0 * gamma**2 * _dots(x, x))[:, None]
    right = arrays.hstack([arrays.ones_like(x[:, :1]), x, c, *v])
    product = _kernel_products(x, kernel, {"phi": right * weight}, runtime)["phi"]
    ones, kx, kc, kv = _split(product, d, len(scores))
    shared = 4.0 * gamma**2 * _dots(x, kx)
    own = arrays.stack([_dots(a, b) for a, b in zip(v, kv, strict=True)], axis=1)
    out: Array = own + shared[:, None] + c * ones + kc
    return out


def _general_row_sums(x: Array, scores: Sequence[Array], kernel: Kernel, runtime: Runtime, weight: Array) -> Array:
    """Row sums of every u_i for any radial kernel, from φ @ s, φ' @ [1, x, s, x·s] and the row sums of r²φ''."""
    d, arrays = x.shape[1], library(x)
    xs = arrays.stack([_dots(x, s) for s in scores], axis=1)
    one = arrays.ones_like(x[:, :1])
    right: dict[Weight, Array] = {
        "phi": arrays.hstack(scores),
        "dphi": arrays.hstack([one, x, xs, *scores]),
        "r2ddphi": one,
    }
    rows = _kernel_products(x, kernel, {w: matrix * weight for w, matrix in right.items()}, runtime)
    phi_s = arrays.hsplit(rows["phi"], len(scores))
    ones, dphi_x, dphi_xs, dphi_s = _split(rows["dphi"], d, len(scores))
    trace = -2.0 * d * ones[:, 0] - 4.0 * rows["r2ddphi"][:, 0]
    columns = [
        _dots(s, phi_s[i] + 2.0 * dphi_x) + 2.0 * (_dots(x, dphi_s[i]) - xs[:, i] * ones[:, 0] - dphi_xs[:, i]) + trace
        for i, s in enumerate(scores)
    ]
    out: Array = arrays.stack(columns, axis=1)
    return out


def _kernel_products(x: Array, kernel: Kernel, right: Mapping[Weight, Array], runtime: Runtime) -> dict[Weight, Array]:
    """W(x, x) @ right[W] without the diagonal, for each weight W."""
    columns = {w: independent_columns(matrix) for w, matrix in right.items()}
    job = Job(kernel, runtime.backend.points(kernel, x), None, {w: part.basis for w, part in columns.items()})
    rows = run_in_place([job], runtime)[0].rows
    return {w: part.expand(rows[w]) for w, part in columns.items()}


def _split(product: Array, d: int, models: int) -> tuple[Array, Array, Array, Sequence[Array]]:
    """The columns of 1, of x, of one number a model and of one vector a model."""
    vectors = library(product).hsplit(product[:, 1 + d + models :], models)
    return product[:, :1], product[:, 1 : 1 + d], product[:, 1 + d : 1 + d + models], vectors


def _dots(a: Array, b: Array) -> Array:
    """a_i·b_i for every row."""
    out: Array = library(a).einsum("ij,ij->i", a, b)
    return out


def _second_order(x: Array, scores: Sequence[Array], kernel: Kernel, rng: np.random.Generator) -> Array:
    """C/M (l, l), with C the covariance of (u_1..u_l) over random pairs and M the number of pairs."""
    taken = _taker(x, scores)

    def values(a: Rows, b: Rows) -> Array:
        return pair_values(kernel, taken(a), taken(b))

    return second_order(len(x), x.shape[1] * (1 + len(scores)), values, rng)


def _taker(x: Array, scores: Sequence[Array]) -> Callable[[Rows], tuple[Array, Sequence[Array]]]:
    """Rows of x and of the scores, on the host; from a device all of them come in one piece."""
    if isinstance(x, np.ndarray):
        return lambda rows: (x[rows], [s[rows] for s in scores])
    joined = library(x).hstack([x, *scores])

    def taken(rows: Rows) -> tuple[Array, Sequence[Array]]:
        first, *others = np.hsplit(host(joined[rows]), 1 + len(scores))
        return first, others

    return taken
