"""Squared kernel Stein discrepancy of several densities to one reference, all from one pass over the kernel.

``u_i(x,y) = s_i(x)·s_i(y) k + s_i(x)·∇_y k + ∇_x k·s_i(y) + tr ∇_x∇_y k`` with k = φ(r²), where
∇_x k = 2φ'(x−y), ∇_y k = −2φ'(x−y) and tr ∇_x∇_y k = −2dφ' − 4r²φ''.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from relfit.backends import Weight
from relfit.discrepancies.columns import independent_columns
from relfit.discrepancies.psi import Estimates, Psi, centred
from relfit.kernels import Kernel
from relfit.tiles import Job, Runtime, run

Array = NDArray[np.float64]

# Pairs drawn to measure the second-order variance: enough for a share that is compared with 0.3.
SECOND_ORDER_PAIRS = 5_000


def complete(
    reference: Array, scores: Sequence[Array], kernel: Kernel, runtime: Runtime, rng: np.random.Generator
) -> Estimates:
    """KSD² of each model, scores (n, d) at the reference rows (n, d), with ψ rows.

    ``g_i(x_a) = Σ_{b≠a} u_i(x_a,x_b)/(n−1)``, D_i = mean g_i and ψ = 2(g − ḡ)·(n−1)/(n−2): the factor
    makes ψᵀψ/(n(n−1)) the jackknife covariance, which the plain projection falls short of by
    ((n−2)/(n−1))².
    """
    n = len(reference)
    g = row_sums(reference, scores, kernel, runtime) / (n - 1)
    psi = Psi(centred(g) * ((n - 1) / (n - 2)))
    return Estimates(g.mean(axis=0), psi, _second_order(reference, scores, kernel, rng))


def row_sums(x: Array, scores: Sequence[Array], kernel: Kernel, runtime: Runtime) -> Array:
    """Σ_{b≠a} u_i(x_a, x_b) for every row and model: (n, l)."""
    sums = _gaussian_row_sums if kernel.unit_rate is not None else _general_row_sums
    return sums(x, scores, kernel, runtime)


def pair_values(kernel: Kernel, first: tuple[Array, Sequence[Array]], second: tuple[Array, Sequence[Array]]) -> Array:
    """u_i(x_a, y_a) for paired rows: (pairs, l). `first` and `second` hold rows and, per model, their scores."""
    (x, s), (y, t) = first, second
    gap = x - y
    r2 = np.einsum("ij,ij->i", gap, gap)
    phi, dphi, r2ddphi = kernel.weights(r2, ("phi", "dphi", "r2ddphi"))
    trace = -2.0 * x.shape[1] * dphi - 4.0 * r2ddphi
    columns = [
        phi * np.einsum("ij,ij->i", a, b) + 2.0 * dphi * np.einsum("ij,ij->i", gap, b - a) + trace
        for a, b in zip(s, t, strict=True)
    ]
    return np.stack(columns, axis=1)


def _gaussian_row_sums(x: Array, scores: Sequence[Array], kernel: Kernel, runtime: Runtime) -> Array:
    """Row sums of every u_i from φ alone: with φ' = −γφ, and v = s − 2γx, c = 2γ s·x − 4γ²‖x‖² + dγ,

    ``u(a,b) = φ (v_a·v_b + 4γ² x_a·x_b + c_a + c_b)``: one product φ @ [1, x, v_1..v_l, c_1..c_l].
    """
    n, d = x.shape
    gamma = -(kernel.unit_rate or 0.0) / kernel.length**2
    norms = np.einsum("ij,ij->i", x, x)
    v = [s - 2.0 * gamma * x for s in scores]
    c = np.stack([2.0 * gamma * np.einsum("ij,ij->i", s, x) for s in scores], axis=1)
    c += (d * gamma - 4.0 * gamma**2 * norms)[:, None]
    right = np.hstack([np.ones((n, 1)), x, c, *v])
    product = _kernel_products(x, kernel, {"phi": right}, runtime)["phi"]
    ones, kx, kc, kv = _split(product, 1, d, len(scores))
    shared = 4.0 * gamma**2 * np.einsum("ij,ij->i", x, kx)
    own = np.stack([np.einsum("ij,ij->i", a, b) for a, b in zip(v, kv, strict=True)], axis=1)
    return np.asarray(own + shared[:, None] + c * ones + kc)


def _general_row_sums(x: Array, scores: Sequence[Array], kernel: Kernel, runtime: Runtime) -> Array:
    """Row sums of every u_i for any radial kernel, from φ @ s, φ' @ [1, x, s, x·s] and the row sums of r²φ''."""
    n, d = x.shape
    xs = np.stack([np.einsum("ij,ij->i", x, s) for s in scores], axis=1)
    right: dict[Weight, Array] = {
        "phi": np.hstack(scores),
        "dphi": np.hstack([np.ones((n, 1)), x, xs, *scores]),
        "r2ddphi": np.ones((n, 1)),
    }
    rows = _kernel_products(x, kernel, right, runtime)
    phi_s = np.hsplit(rows["phi"], len(scores))
    ones, dphi_x, dphi_xs, dphi_s = _split(rows["dphi"], 1, d, len(scores))
    trace = -2.0 * d * ones[:, 0] - 4.0 * rows["r2ddphi"][:, 0]
    columns = [
        np.einsum("ij,ij->i", s, phi_s[i] + 2.0 * dphi_x)
        + 2.0 * (np.einsum("ij,ij->i", x, dphi_s[i]) - xs[:, i] * ones[:, 0] - dphi_xs[:, i])
        + trace
        for i, s in enumerate(scores)
    ]
    return np.stack(columns, axis=1)


def _kernel_products(x: Array, kernel: Kernel, right: Mapping[Weight, Array], runtime: Runtime) -> dict[Weight, Array]:
    """W(x, x) @ right[W] without the diagonal, for each weight W."""
    columns = {w: independent_columns(matrix) for w, matrix in right.items()}
    job = Job(kernel, runtime.backend.points(kernel, x), None, {w: part.basis for w, part in columns.items()})
    rows = run([job], runtime)[0].rows
    return {w: part.expand(rows[w]) for w, part in columns.items()}


def _split(product: Array, one: int, d: int, models: int) -> tuple[Array, Array, Array, list[Array]]:
    cuts = np.cumsum([one, d, models])
    ones, x, scalars, vectors = np.split(product, cuts, axis=1)
    return ones, x, scalars, np.hsplit(vectors, models)


def _second_order(x: Array, scores: Sequence[Array], kernel: Kernel, rng: np.random.Generator) -> Array:
    """C_ii/M, with C_ii the variance of u_i over random pairs and M the number of pairs."""
    n = len(x)
    count = min(20 * n, SECOND_ORDER_PAIRS)
    a = rng.integers(n, size=count)
    b = (a + rng.integers(1, n, size=count)) % n
    h = pair_values(kernel, (x[a], [s[a] for s in scores]), (x[b], [s[b] for s in scores]))
    return np.asarray(h.var(axis=0, ddof=1) / (n * (n - 1) / 2))
