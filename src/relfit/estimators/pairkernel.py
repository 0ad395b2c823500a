"""Kernel values k(x, y) and Stein kernel values u(x, y): of all pairs of rows, row by row,
in bands, and as columns.

For a density with score s and k = φ(r²), with ∇_x k = 2φ'(x−y), ∇_y k = −2φ'(x−y) and tr
∇_x∇_y k = −2dφ' − 4r²φ'',

``u(x, y) = φ s(x)·s(y) + 2φ' (x−y)·(s(y)−s(x)) − 2dφ' − 4r²φ''``.

A kernel w(x) w(y) k has the Stein kernel w(x) w(y) u, with the scores s + ∇ log w in u.

Designs, landmarks, locations and the report read values from here. Sums over whole kernel
matrices never hold u: a backend multiplies φ, φ' and r²φ'' with a few columns, and row sums
of u follow from the products.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.lib.stride_tricks import as_strided, sliding_window_view
from scipy.spatial.distance import cdist

from relfit.compute.backend import LARGEST_PRODUCT_RATIO, NumpyBackend
from relfit.compute.nearby import Together
from relfit.compute.rows import parts
from relfit.kernels.base import Kernel, Weight
from relfit.kernels.precomputed import Precomputed
from relfit.util.arrays import Array, library

STEIN_WEIGHTS: tuple[Weight, ...] = ("phi", "dphi", "r2ddphi")
# Beyond this many columns a matrix product is much quicker than differences.
PRODUCT_COLUMNS = 32
# Below this fraction of ‖x‖² + ‖y‖² a product leaves few digits of r².
NEARLY_EQUAL = 1e-12
# Rows multiplied at once: more would evaluate many pairs outside the band, fewer would leave
# BLAS idle.
STEP = 8

RowSums = Callable[[Mapping[Weight, Array]], Array]


class Part(NamedTuple):
    """The pairs (a, a+r), first ≤ a < last, r = 1..lags, of a window that holds at least
    last + lags rows.
    """

    first: int
    last: int
    lags: int


class SteinTerms(NamedTuple):
    """Of pairs of rows with d columns: r², the s·s' and (x − x')·(s' − s) of each model, and
    the weight of each pair, if there is one.
    """

    columns: int
    squares: Array
    products: list[Array]
    slopes: list[Array]
    weight: Array | None


BandValues = Callable[[Part], Array]
"""The values of the pairs of a part, for each model: (l, last−first, lags)."""


@dataclass(frozen=True)
class PairKernel:
    """Values of a kernel, and of the Stein kernels of l models, between rows x (n, d) and y
    (m, d).

    `dense` values are those of all pairs, (n, m); others are row by row, (n,). Rows with
    scores are a sequence: the rows, then each model's scores at them.

    >>> from relfit.kernels.standard import Gaussian
    >>> k = PairKernel(Gaussian(1.0))
    >>> x = np.array([[0.0], [1.0]])
    >>> k.values(x, x).round(4)
    array([[1.    , 0.6065],
           [0.6065, 1.    ]])
    >>> k.stein([x, -x], [x, -x])[0].round(4)  # the standard normal: (xy + 1 − 2r²) e^(−r²/2)
    array([[ 1.    , -0.6065],
           [-0.6065,  2.    ]])
    """

    kernel: Kernel

    def values(self, x: Array, y: Array, *, dense: bool = True) -> Array:
        """k(x_a, y_b)."""
        if not dense:
            return self.kernel.pairs(x, y)
        if isinstance(self.kernel, Precomputed):
            return self.kernel.block(x, y)
        return self.weights(x, y, ("phi",))[0]

    def weights(self, x: Array, y: Array, which: Sequence[Weight]) -> tuple[Array, ...]:
        """φ, φ' and r²φ'' (n, m), with the weights of the rows if there are any."""
        plain = self.kernel.untilted
        dot = plain.variable == "dot"
        t = x @ y.T if dot else squared_distances(x, y, plain.length)
        weights = plain.weights(t, which)
        tilt = self.kernel.tilt
        if tilt is None:
            return weights
        scale = tilt.weights(x)[:, None] * tilt.weights(y)
        return tuple(scale * weight for weight in weights)

    def stein(
        self, first: Sequence[Array], second: Sequence[Array], *, dense: bool = True
    ) -> list[Array]:
        """u_i(x_a, y_b) of each model; `first` and `second` hold rows with scores."""
        if not dense:
            return self.stein_of(self.stein_terms(first, second))
        x = first[0]
        y = second[0]
        s = self.tilted_scores(*first)
        t = self.tilted_scores(*second)
        phi, dphi, r2ddphi = self.weights(x, y, STEIN_WEIGHTS)
        trace = -2.0 * x.shape[1] * dphi - 4.0 * r2ddphi

        def value(a: Array, b: Array) -> Array:
            slopes = x @ b.T + a @ y.T - row_products(x, a)[:, None] - row_products(y, b)
            return np.asarray(phi * (a @ b.T) + 2.0 * dphi * slopes + trace)

        return [value(a, b) for a, b in zip(s, t, strict=True)]

    def stein_terms(self, first: Sequence[Array], second: Sequence[Array]) -> SteinTerms:
        """What `stein_of` needs of pairs, row by row: it is the same for every length."""
        x = first[0]
        y = second[0]
        gap = x - y
        both = list(zip(self.tilted_scores(*first), self.tilted_scores(*second), strict=True))
        products = [row_products(s, t) for s, t in both]
        slopes = [row_products(gap, t - s) for s, t in both]
        tilt = self.kernel.tilt
        weight = None if tilt is None else tilt.weights(x) * tilt.weights(y)
        return SteinTerms(x.shape[1], row_products(gap, gap), products, slopes, weight)

    def stein_of(self, terms: SteinTerms) -> list[Array]:
        """u_i of each model, from the terms of pairs."""
        phi, dphi, r2ddphi = self.kernel.untilted.weights(terms.squares, STEIN_WEIGHTS)
        if terms.weight is not None:
            phi, dphi, r2ddphi = (terms.weight * each for each in (phi, dphi, r2ddphi))
        trace = -2.0 * terms.columns * dphi - 4.0 * r2ddphi
        both = zip(terms.products, terms.slopes, strict=True)
        return [np.asarray(phi * s + 2.0 * dphi * slope + trace) for s, slope in both]

    def stein_pairs(self, first: Sequence[Array], second: Sequence[Array]) -> Array:
        """u_i(x_a, y_a) row by row: (n, l)."""
        return np.stack(self.stein(first, second, dense=False), axis=1)

    def tilted_scores(self, x: Array, *scores: Array) -> Sequence[Array]:
        """s + ∇ log w, the scores with which the plain kernel gives what the weighted one
        gives.
        """
        if self.kernel.tilt is None:
            return scores
        slope = self.kernel.tilt.gradient(x)
        return [s + slope for s in scores]

    def value_columns(self, ones: Array) -> tuple[dict[Weight, Array], RowSums]:
        """A column of ones for every kernel, and the row sums Σ_b φ(x_a, x_b): (n,), or (n,
        k) of several kernels.
        """
        plain = self.kernel.untilted
        if isinstance(plain, Together):
            names = plain.names
            return dict.fromkeys(names, ones), lambda products: np.stack(
                [products[name] for name in names], axis=1
            )
        return {"phi": ones}, lambda products: products["phi"]

    def stein_columns(
        self, x: Array, scores: Sequence[Array]
    ) -> tuple[dict[Weight, Array], RowSums]:
        """Columns R of every weight, and the row sums Σ_b u_i(x_a, y_b) (n, l) given W(x, y)
        @ R(y), without w.

        With e = x·s' + s·x' − x·s − x'·s', which is bilinear in [1, x, s, x·s], u = φ s·s' +
        φ'(2e − 2d) − 4r²φ''. Where φ' = −γφ, as for a Gaussian, everything is φ times a
        bilinear form: with v = s − 2γx and c = 2γ s·x − 4γ²‖x‖² + dγ, ``u = φ (v·v' + 4γ²
        x·x' + c + c')``, which takes φ @ [1, x, c_i, v_i] alone.
        """
        plain = self.kernel.untilted
        if isinstance(plain, Together):
            return _columns_together(plain.kernels, x, scores)
        d = x.shape[1]
        arrays = library(x)
        one = arrays.ones_like(x[:, :1])
        gamma = decay_rate(plain)
        if gamma is not None:
            v, c = _gaussian_terms(x, scores, gamma, 4.0)
            right: dict[Weight, Array] = {
                "phi": arrays.hstack([one, x, arrays.stack(c, axis=1), *v])
            }

            def gaussian(products: Mapping[Weight, Array]) -> Array:
                sums = _bilinear_sums(products["phi"], d, c, v)
                shared = 4.0 * gamma**2 * row_products(x, products["phi"][:, 1 : 1 + d])
                return sums + shared[:, None]

            return right, gaussian

        c = [-row_products(x, s) for s in scores]
        vectors = arrays.hstack(list(scores))
        dphi = arrays.hstack([one, x, arrays.stack(c, axis=1), vectors])

        def radial(products: Mapping[Weight, Array]) -> Array:
            slopes = products["dphi"]
            at_x = slopes[:, 1 : 1 + d]
            trace = -2.0 * d * slopes[:, 0] - 4.0 * products["r2ddphi"][:, 0]
            sums = 2.0 * _bilinear_sums(slopes, d, c, [x] * len(c)) + trace[:, None]
            phi = arrays.hsplit(products["phi"], len(c))
            own = [
                row_products(s, part + 2.0 * at_x) for s, part in zip(scores, phi, strict=True)
            ]
            return cast(Array, sums + arrays.stack(own, axis=1))

        return {"phi": vectors, "dphi": dphi, "r2ddphi": one}, radial

    def stein_bands(self, window: Sequence[Array]) -> BandValues:
        """u_i of the pairs in a window of rows with scores."""
        rows = window[0]
        scores = self.tilted_scores(*window)
        x = BandRows(self.kernel, rows)
        gamma = decay_rate(x.kernel)
        if gamma is None:
            return _radial_bands(x, rows, scores)
        return _gaussian_bands(x, rows, scores, gamma)


def side_by_side(
    each: Sequence[tuple[dict[Weight, Array], RowSums]],
) -> tuple[dict[Weight, Array], RowSums]:
    """The columns of one model after another, and their sums (n, l)."""

    def finish(products: Mapping[Weight, Array]) -> Array:
        arrays = library(next(iter(products.values())))
        split = {w: arrays.hsplit(product, len(each)) for w, product in products.items()}
        sums = [
            finish_one({w: part[i] for w, part in split.items()})
            for i, (_, finish_one) in enumerate(each)
        ]
        return cast(Array, arrays.hstack(sums))

    return {
        w: library(matrix).hstack([right[w] for right, _ in each])
        for w, matrix in each[0][0].items()
    }, finish


def _columns_together(
    kernels: Sequence[Kernel], x: Array, scores: Sequence[Array]
) -> tuple[dict[Any, Array], RowSums]:
    """Columns that do not depend on the length of the kernel, and the row sums (n, k, l) of
    all k kernels.
    """
    each = [PairKernel(kernel).stein_columns(x, scores) for kernel in kernels]
    rates = [decay_rate(kernel) for kernel in kernels]
    right: dict[Any, Array] = {}
    if None in rates:
        for k in range(len(kernels)):
            right |= {(k, weight): matrix for weight, matrix in each[0][0].items()}
    else:
        slopes = np.stack([row_products(s, x) for s in scores], axis=1)
        one = np.ones((len(x), 1))
        columns = np.hstack([one, x, row_products(x, x)[:, None], slopes, *scores])
        right = {(k, "phi"): columns for k in range(len(kernels))}

    def finish(products: Mapping[Any, Array]) -> Array:
        sums = []
        for k, (own, finish_one) in enumerate(each):
            found = {weight: products[k, weight] for weight in own}
            rate = rates[k]
            if rate is not None:
                found["phi"] = _of_rate(found["phi"], rate, x.shape[1], len(scores))
            sums.append(finish_one(found))
        return np.stack(sums, axis=1)

    return right, finish


def _of_rate(product: Array, gamma: float, d: int, models: int) -> Array:
    """W @ [1, x, c_i, v_i] of a Gaussian, from W @ [1, x, ‖x‖², s_i·x, s_i]."""
    one, x, squares, slopes, scores = np.split(
        product, np.cumsum([1, d, 1, models]).tolist(), axis=1
    )
    c = 2.0 * gamma * slopes + d * gamma * one - 4.0 * gamma**2 * squares
    v = scores - 2.0 * gamma * np.tile(x, models)
    return np.hstack([one, x, c, v])


def decay_rate(kernel: Kernel) -> float | None:
    """γ of a kernel φ = exp(−γr²), None for others."""
    return None if kernel.unit_rate is None else -kernel.unit_rate / kernel.length**2


def row_products(a: Array, b: Array) -> Array:
    """a·b row by row: (n,)."""
    return cast(Array, library(a).einsum("ij,ij->i", a, b))


def squared_distances(x: Array, y: Array, length: float) -> Array:
    """‖x_a − y_b‖² (n, m), exact enough for a kernel of this length.

    A product of rows gives r² up to 2⁻⁵² max‖x‖². Differences are taken of (nearly) equal
    rows, whose r² a kernel may take the root of, and of all rows if some are far out in
    units of the length.
    """
    if x.shape[1] <= PRODUCT_COLUMNS:
        return np.asarray(cdist(x, y, "sqeuclidean"))
    centre = y.mean(axis=0)
    a = x - centre
    b = y - centre
    norms = row_products(a, a)[:, None] + row_products(b, b)
    if not norms.max() <= 2.0 * LARGEST_PRODUCT_RATIO * length**2:
        return np.asarray(cdist(x, y, "sqeuclidean"))
    squares = norms - 2.0 * (a @ b.T)
    first, second = np.nonzero(squares <= NEARLY_EQUAL * norms)
    for part in parts((len(first), x.shape[1])):
        gap = a[first[part]] - b[second[part]]
        squares[first[part], second[part]] = row_products(gap, gap)
    return np.asarray(squares)


def _gaussian_terms(
    x: Array, scores: Sequence[Array], gamma: float, squares: float
) -> tuple[list[Array], list[Array]]:
    """v_i = s_i − 2γx and c_i = 2γ s_i·x + dγ − `squares` γ²‖x‖²; ‖x‖² is wholly in c with
    4, half of it with 2.
    """
    drift = 2.0 * gamma * x
    shared = x.shape[1] * gamma - squares * gamma**2 * row_products(x, x)
    v = [s - drift for s in scores]
    c = [2.0 * gamma * row_products(s, x) + shared for s in scores]
    return v, c


def _bilinear_sums(product: Array, d: int, c: Sequence[Array], left: Sequence[Array]) -> Array:
    """Σ_b W(x_a, y_b) (left_i·right_i + c_i + c_i') of every model (n, l), from W @ [1, x,
    c_1.., right_1..].
    """
    arrays = library(product)
    models = len(c)
    at_one = product[:, 0]
    at_c = product[:, 1 + d : 1 + d + models]
    at_right = arrays.hsplit(product[:, 1 + d + models :], models)
    sums = [
        row_products(a, part) + own * at_one
        for a, part, own in zip(left, at_right, c, strict=True)
    ]
    return cast(Array, arrays.stack(sums, axis=1) + at_c)


def band_products(left: Array, right: Array, part: Part) -> Array:
    """``left_a · right_{a+r}``: (last−first, lags), from left (n, c) and right (c, n).

    >>> x = np.arange(4.0)[:, None]
    >>> band_products(x, x.T, Part(0, 2, 2))
    array([[0., 0.],
           [2., 3.]])
    """
    first, last, lags = part
    whole = (last - first) // STEP * STEP
    out = np.empty((last - first, lags))
    if whole:
        few = left[first : first + whole].reshape(-1, STEP, left.shape[1])
        many = sliding_window_view(
            right[:, first + 1 : first + whole + lags], STEP + lags - 1, axis=1
        )[:, ::STEP]
        out[:whole] = _diagonals(few @ many.transpose(1, 0, 2), lags).reshape(whole, lags)
    if first + whole < last:
        rest = left[first + whole : last] @ right[:, first + whole + 1 : last + lags]
        out[whole:] = _diagonals(rest[None], lags)[0]
    return out


def _diagonals(tiles: Array, lags: int) -> Array:
    """Row i of each tile (groups, rows, rows+lags−1) from its column i on: (groups, rows,
    lags).
    """
    group, row, column = tiles.strides
    return as_strided(
        tiles, (*tiles.shape[:2], lags), (group, row + column, column), writeable=False
    )


class BandRows:
    """Rows prepared for a kernel without its weight; `tilt` (n,) holds the weights of the
    rows, if there is one.
    """

    def __init__(self, kernel: Kernel, rows: Array) -> None:
        self.kernel = kernel.untilted
        self.rows = rows
        self.points = NumpyBackend().points(self.kernel, rows)
        self.tilt = None if kernel.tilt is None else kernel.tilt.weights(rows)

    def argument(self, other: BandRows, part: Part) -> Array:
        """The argument of φ; for an exponential of r², the exponent."""
        rate = self.kernel.unit_rate
        if not self.points.by_differences and not other.points.by_differences:
            t = band_products(self.points.left, other.points.right, part)
            return (
                t
                if self.kernel.variable == "dot" or rate is not None
                else np.maximum(t, 0.0, out=t)
            )
        # The rows are so far out that products of them would lose their digits.
        first, last, lags = part
        unit = 1.0 if rate is None else self.kernel.length
        gaps = (
            (self.rows[first:last] - other.rows[first + r : last + r]) / unit
            for r in range(1, lags + 1)
        )
        r2 = np.stack([row_products(gap, gap) for gap in gaps], axis=1)
        return r2 if rate is None else rate * r2

    def weights(
        self, other: BandRows, part: Part, which: Sequence[Weight]
    ) -> tuple[Array, ...]:
        """The functions named in `which` at the pairs (x_a, y_{a+r})."""
        t = self.argument(other, part)
        weights = (
            self.kernel.weights(t, which)
            if self.kernel.unit_rate is None
            else (np.exp(t, out=t),)
        )
        return tuple(self.tilted(other, part, w) for w in weights)

    def values(self, other: BandRows, part: Part) -> Array:
        """k(x_a, y_{a+r})."""
        return self.weights(other, part, ("phi",))[0]

    def tilted(self, other: BandRows, part: Part, values: Array) -> Array:
        """The values times w(x_a) w(y_{a+r}), if there is a weight."""
        if self.tilt is None or other.tilt is None:
            return values
        partners = sliding_window_view(
            other.tilt[part.first + 1 : part.last + part.lags], part.lags
        )
        return np.asarray(values * self.tilt[part.first : part.last, None] * partners)


def _gaussian_bands(
    x: BandRows, rows: Array, scores: Sequence[Array], gamma: float
) -> BandValues:
    """``u = φ (v·v' + c + c' − 2γ²r²)`` with half of ‖x‖² in r²: one product a model, from
    exponents already known.
    """
    v, c = _gaussian_terms(rows, scores, gamma, 2.0)
    sides = [_with_sums(a, a, own) for a, own in zip(v, c, strict=True)]

    def values(part: Part) -> Array:
        exponent = x.argument(x, part)  # −γr²
        phi = x.tilted(x, part, np.exp(exponent))
        exponent *= 2.0 * gamma
        u = np.empty((len(sides), *phi.shape))
        for out, side in zip(u, sides, strict=True):
            np.add(band_products(*side, part), exponent, out=out)
            out *= phi
        return u

    return values


def _radial_bands(x: BandRows, rows: Array, scores: Sequence[Array]) -> BandValues:
    """Any radial kernel: s·s' is one product, and (x−x')·(s'−s) = x·s' + s·x' − x·s − x'·s'
    another.
    """
    sides = [
        _with_sums(np.hstack([rows, s]), np.hstack([s, rows]), -row_products(rows, s))
        for s in scores
    ]

    def values(part: Part) -> Array:
        phi, dphi, r2ddphi = x.weights(x, part, STEIN_WEIGHTS)
        trace = -2.0 * rows.shape[1] * dphi - 4.0 * r2ddphi
        dphi = 2.0 * dphi
        u = np.empty((len(sides), *phi.shape))
        for out, s, side in zip(u, scores, sides, strict=True):
            np.multiply(band_products(s, s.T, part), phi, out=out)
            out += band_products(*side, part) * dphi
            out += trace
        return u

    return values


def _with_sums(left: Array, right: Array, c: Array) -> tuple[Array, Array]:
    """Sides whose products are left_a·right_b + c_a + c_b."""
    ones = np.ones(len(c))
    return np.column_stack([left, c, ones]), np.column_stack([right, ones, c]).T
