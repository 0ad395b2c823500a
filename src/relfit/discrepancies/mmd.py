"""Squared maximum mean discrepancy of several samples to one reference, all pairs, unequal sizes allowed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from relfit.backends import host
from relfit.discrepancies.psi import Dependence, Estimates, Psi, centred
from relfit.kernels import Kernel, Squared
from relfit.tiles import Job, Products, Runtime, run

Array = NDArray[np.float64]


def complete(
    reference: Array, samples: Sequence[Array], kernel: Kernel, dependence: Dependence, runtime: Runtime
) -> Estimates:
    """MMD² of each sample (m_i, d) to the reference (n, d), with ψ rows.

    ``D_i = mean_{c≠c'} k(x_c,x_c') + mean_{a≠b} k(r_a,r_b) − 2 mean_{c,a} k(x_c,r_a)``;
    ``g_i(r_a) = Σ_{b≠a} k(r_a,r_b)/(n−1) − mean_c k(x_c,r_a)`` and f_i likewise for the model's rows.
    When paired, the cross means leave out c = a, which would bias D by O(1/n).
    """
    paired = dependence == "paired"
    products = kernel_sums(kernel, reference, samples, runtime, paired=paired)
    own_products, cross_products = products[: 1 + len(samples)], products[1 + len(samples) :]
    within = [p.rows["phi"] / (len(p.rows["phi"]) - 1) for p in own_products]
    dropped = 1 if paired else 0
    to_reference = [p.rows["phi"] / (len(reference) - dropped) for p in cross_products]
    from_models = [p.columns["phi"] / (len(x) - dropped) for p, x in zip(cross_products, samples, strict=True)]
    values = np.array(
        [x.mean() + within[0].mean() - 2.0 * c.mean() for x, c in zip(within[1:], to_reference, strict=True)]
    )
    g = within[0][:, None] - np.stack(from_models, axis=1)
    f = [x - c for x, c in zip(within[1:], to_reference, strict=True)]
    diagonals = [kernel.diagonal(x) for x in (reference, *samples)]
    return Estimates(values, _psi(g, f, dependence), _second_order(diagonals, own_products, cross_products))


def kernel_sums(
    kernel: Kernel, reference: Array, samples: Sequence[Array], runtime: Runtime, *, paired: bool = False
) -> list[Products]:
    """Row sums, column sums and Σk² of the kernel matrix within each sample, the reference first, then across.

    For a tilted kernel w(x) w(y) φ: φ @ w with each row times its own weight, and Σk² = w²·(φ² @ w²).
    """
    rows, plain, tilt = (reference, *samples), kernel.untilted, kernel.tilt
    if tilt is None:
        return run(_jobs(plain, rows, [np.ones(len(x)) for x in rows], runtime, paired), runtime)
    weights = [tilt.weights(host(x)) for x in rows]
    first = run(_jobs(plain, rows, weights, runtime, paired), runtime)
    second = run(_jobs(Squared(plain), rows, [w**2 for w in weights], runtime, paired), runtime)
    sides = [*weights, *weights[1:]]
    return [
        Products(
            {"phi": product.rows["phi"] * w},
            {name: column * weights[0] for name, column in product.columns.items()},
            float(square.rows["phi"] @ w**2),
        )
        for product, square, w in zip(first, second, sides, strict=True)
    ]


def _jobs(kernel: Kernel, rows: Sequence[Array], sides: Sequence[Array], runtime: Runtime, paired: bool) -> list[Job]:
    """The kernel matrix of each sample with itself, then of each model with the reference, times the other side."""
    points = [runtime.backend.points(kernel, x) for x in rows]
    own = [Job(kernel, p, None, {"phi": side}, squares=True) for p, side in zip(points, sides, strict=True)]
    cross = [
        Job(kernel, p, points[0], {"phi": sides[0]}, {"phi": side}, diagonal=not paired, squares=True)
        for p, side in zip(points[1:], sides[1:], strict=True)
    ]
    return [*own, *cross]


def pair_values(kernel: Kernel, first: tuple[Array, Sequence[Array]], second: tuple[Array, Sequence[Array]]) -> Array:
    """``h_i = k(x,x') + k(r,r') − k(x,r') − k(x',r)`` for paired rows: (pairs, l).

    `first` and `second` each hold reference rows and, per model, the rows that go with them.
    """
    (r, xs), (r2, xs2) = first, second
    within = kernel.pairs(r, r2)
    columns = [
        kernel.pairs(x, x2) + within - kernel.pairs(x, r2) - kernel.pairs(x2, r) for x, x2 in zip(xs, xs2, strict=True)
    ]
    return np.stack(columns, axis=1)


def _psi(g: Array, f: Sequence[Array], dependence: Dependence) -> Psi:
    if dependence == "paired":
        return Psi(centred(g + np.stack(f, axis=1)))
    return Psi(centred(g), tuple(centred(row) for row in f), shared=dependence == "shared")


def _second_order(diagonals: Sequence[Array], own: Sequence[Products], cross: Sequence[Products]) -> Array:
    """``S2_ij = 2ζ_rr/(n(n−1)) + 1{i=j}[2ζ_xx/(m(m−1)) + 4ζ_xr/(nm)]`` (l, l), for independent samples.

    ζ is the mean of the squares of the doubly centred kernel matrix.
    """
    reference, *models = (_own_part(p, diagonal) for p, diagonal in zip(own, diagonals, strict=True))
    return reference + np.diag([x + _cross_part(p) for x, p in zip(models, cross, strict=True)])


def _own_part(product: Products, diagonal: Array) -> float:
    sums = product.rows["phi"] + diagonal
    n = len(sums)
    means, mean = sums / n, float(sums.mean()) / n
    total = product.squares + float(diagonal @ diagonal) - 2.0 * n * float(means @ means) + (n * mean) ** 2
    on_diagonal = float(np.square(diagonal - 2.0 * means + mean).sum())
    pairs = n * (n - 1)
    return 2.0 * max(total - on_diagonal, 0.0) / pairs**2


def _cross_part(product: Products) -> float:
    rows, columns = product.rows["phi"], product.columns["phi"]
    pairs = len(rows) * len(columns)
    centring = float(rows @ rows) / len(columns) + float(columns @ columns) / len(rows)
    total = product.squares - centring + float(rows.sum()) ** 2 / pairs
    return 4.0 * max(total, 0.0) / pairs**2
