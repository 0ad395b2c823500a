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

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.lib.stride_tricks import as_strided, sliding_window_view
from scipy.spatial.distance import cdist

from relfit.compute.backend import LARGEST_PRODUCT_RATIO, Together
from relfit.kernels.base import Kernel, Weight
from relfit.kernels.custom import FunctionKernel
from relfit.util.arrays import Array, library, parts

STEIN_WEIGHTS: tuple[Weight, ...] = ("phi", "dphi", "r2ddphi")
# Beyond this many columns a matrix product is much quicker than differences.
PRODUCT_COLUMNS = 32
# Below this fraction of ‖x‖² + ‖y‖² a product leaves few digits of r².
NEARLY_EQUAL = 1e-12
# Rows multiplied at once: more would evaluate many pairs outside the band, fewer would leave
# BLAS idle.
STEP = 8
# Single pairs of a kernel that is a function come from blocks of so many rows.
FUNCTION_PAIRS = 16

RowSums = Callable[[Mapping[Weight, Array]], Array]


class Layout:
    """Which pairs of rows x (n, d) and y are evaluated."""

    def products(self, a: Array, b: Array) -> Array:
        """a·b of every pair, from numbers (n, c) of both sides."""
        raise NotImplementedError

    def sides(self, u: Array, v: Array) -> tuple[Array, Array]:
        """One number of each row of both sides, in shapes that go with those of the pairs."""
        raise NotImplementedError

    def squares(self, x: Array, y: Array, length: float) -> Array:
        """‖x − y‖² of every pair, exact enough for a kernel of this length; of equal rows it
        may be a little below 0.
        """
        raise NotImplementedError

    def slopes(self, x: Array, y: Array, s: Array, t: Array) -> Array:
        """(x − y)·(t − s) of every pair."""
        left = np.hstack([x, s])
        right = np.hstack([t, y])
        return self.products_and_sums(left, right, -row_products(x, s), -row_products(y, t))

    def products_and_sums(self, a: Array, b: Array, u: Array, v: Array) -> Array:
        """a·b + u + v of every pair, by one product."""
        columns = a.shape[1]
        left = np.ones((len(a), columns + 2))
        left[:, :columns] = a
        left[:, columns] = u
        right = np.ones((len(b), columns + 2))
        right[:, :columns] = b
        right[:, columns + 1] = v
        return self.products(left, right)


class AllPairs(Layout):
    """Every row with every other: (n, m)."""

    def products(self, a: Array, b: Array) -> Array:
        return np.asarray(a @ b.T)

    def sides(self, u: Array, v: Array) -> tuple[Array, Array]:
        return u[:, None], v

    def squares(self, x: Array, y: Array, length: float) -> Array:
        return squared_distances(x, y, length)


class RowByRow(Layout):
    """Row a with row a: (n,)."""

    def products(self, a: Array, b: Array) -> Array:
        return row_products(a, b)

    def sides(self, u: Array, v: Array) -> tuple[Array, Array]:
        return u, v

    def squares(self, x: Array, y: Array, length: float) -> Array:
        gap = x - y
        return row_products(gap, gap)

    def slopes(self, x: Array, y: Array, s: Array, t: Array) -> Array:
        return row_products(x - y, t - s)


@dataclass(frozen=True)
class Band(Layout):
    """Row a with the rows a + 1, …, a + lags: (n, lags), of n + lags rows on both sides.

    >>> x = np.arange(4.0)[:, None]
    >>> Band(2).products(x, x)
    array([[0., 0.],
           [2., 3.]])
    """

    lags: int

    def products(self, a: Array, b: Array) -> Array:
        lags = self.lags
        rows = len(a) - lags
        whole = rows // STEP * STEP
        out = np.empty((rows, lags))
        if whole:
            few = a[:whole].reshape(-1, STEP, a.shape[1])
            row, column = b.strides
            shape = (len(few), b.shape[1], STEP + lags - 1)
            many = as_strided(b[1:], shape, (STEP * row, column, row), writeable=False)
            out[:whole].reshape(-1, STEP, lags)[:] = self._diagonals(few @ many)
        if whole < rows:
            out[whole:] = self._diagonals((a[whole:rows] @ b[whole + 1 :].T)[None])[0]
        return out

    def _diagonals(self, tiles: Array) -> Array:
        """Row i of each tile (groups, rows, rows+lags−1) from its column i on: (groups, rows,
        lags).
        """
        group, row, column = tiles.strides
        shape = (*tiles.shape[:2], self.lags)
        return as_strided(tiles, shape, (group, row + column, column), writeable=False)

    def sides(self, u: Array, v: Array) -> tuple[Array, Array]:
        return u[: -self.lags, None], sliding_window_view(v[1:], self.lags)

    def squares(self, x: Array, y: Array, length: float) -> Array:
        ones = np.ones(x.shape[1])
        first = (x * x) @ ones  # faster than einsum, for few columns
        second = (y * y) @ ones
        if not first.max() + second.max() <= 2.0 * LARGEST_PRODUCT_RATIO * length**2:
            # Products of rows so far out would lose their digits.
            rows = len(x) - self.lags
            gaps = (x[:rows] - y[r : rows + r] for r in range(1, self.lags + 1))
            return np.stack([row_products(gap, gap) for gap in gaps], axis=1)
        return self.products_and_sums(-2.0 * x, y, first, second)


ALL_PAIRS = AllPairs()
ROW_BY_ROW = RowByRow()


class SteinTerms(NamedTuple):
    """Of pairs of rows with d columns: r², the weight of each pair, if there is one, and s·s'
    and (x − x')·(s' − s) of one model after another.
    """

    columns: int
    squares: Array
    weight: Array | None
    models: Iterable[tuple[Array, Array]]


@dataclass(frozen=True)
class PairKernel:
    """Values of a kernel, and of the Stein kernels of l models, between rows x (n, d) and y
    (m, d).

    The layout says of which pairs: all of them by default. Rows with scores are a sequence:
    the rows, then each model's scores at them.

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

    def values(self, x: Array, y: Array, layout: Layout = ALL_PAIRS) -> Array:
        """k(x_a, y_b)."""
        if layout is ROW_BY_ROW:
            return self.kernel.pairs(x, y)
        if self.kernel.by_blocks:
            values: Array = cast(Any, self.kernel).block(x, y)
            return values
        return self.weights(x, y, ("phi",), layout)[0]

    def weights(
        self, x: Array, y: Array, which: Sequence[Weight], layout: Layout = ALL_PAIRS
    ) -> tuple[Array, ...]:
        """φ, φ' and r²φ'', with the weights of the rows if there are any."""
        plain = self.kernel.untilted
        dot = plain.variable == "dot"
        t = layout.products(x, y) if dot else self._squares(x, y, layout)
        weight = self._tilt(x, y, layout)
        if plain.unit_rate is not None and which == ("phi",):
            t /= plain.length**2 / plain.unit_rate
            weights: tuple[Array, ...] = (np.exp(t, out=t),)
        else:
            weights = plain.weights(t, which)
        return weights if weight is None else tuple(weight * each for each in weights)

    def _squares(self, x: Array, y: Array, layout: Layout) -> Array:
        """‖x − y‖² of every pair, at least 0 if the kernel may take its root."""
        plain = self.kernel.untilted
        squares = layout.squares(x, y, plain.length)
        exponential = plain.unit_rate is not None
        return squares if exponential else np.maximum(squares, 0.0, out=squares)

    def _tilt(self, x: Array, y: Array, layout: Layout) -> Array | None:
        """w(x_a) w(y_b) of a tilted kernel."""
        tilt = self.kernel.tilt
        if tilt is None:
            return None
        left, right = layout.sides(tilt.weights(x), tilt.weights(y))
        return np.asarray(left * right)

    def stein(
        self, first: Sequence[Array], second: Sequence[Array], layout: Layout = ALL_PAIRS
    ) -> list[Array]:
        """u_i(x_a, y_b) of each model; `first` and `second` hold rows with scores."""
        if isinstance(self.kernel, FunctionKernel):
            return self._function_stein(self.kernel, first, second, layout)
        gamma = decay_rate(self.kernel.untilted)
        if gamma is not None and isinstance(layout, Band):
            return self._gaussian_stein(gamma, first, second, layout)
        return self.stein_of(self.stein_terms(first, second, layout))

    def _gaussian_stein(
        self, gamma: float, first: Sequence[Array], second: Sequence[Array], layout: Layout
    ) -> list[Array]:
        """``u = φ (v·v' + c + c' − 2γ²r²)``, where φ' = −γφ: one product a model.

        With v = s − 2γx and c = 2γ s·x + dγ − 2γ²‖x‖².
        """
        x = first[0]
        y = second[0]
        squares = self._squares(x, y, layout)
        phi = self.kernel.untilted.weights(squares, ("phi",))[0]
        weight = self._tilt(x, y, layout)
        if weight is not None:
            phi *= weight
        squares *= -2.0 * gamma**2

        def terms(x: Array, s: Array) -> tuple[Array, Array]:
            c = row_products(2.0 * gamma * x, s - gamma * x) + x.shape[1] * gamma
            return s - 2.0 * gamma * x, c

        values = []
        both = zip(self.tilted_scores(*first), self.tilted_scores(*second), strict=True)
        for s, t in both:
            v, c = terms(x, s)
            w, e = terms(y, t)
            u = layout.products_and_sums(v, w, c, e)
            u += squares
            u *= phi
            values.append(u)
        return values

    def _function_stein(
        self,
        kernel: FunctionKernel,
        first: Sequence[Array],
        second: Sequence[Array],
        layout: Layout,
    ) -> list[Array]:
        """``u = k s·s' + s·∇_y k + s'·∇_x k + Σ_j ∂²k/∂x_j∂y_j``, from differences of k."""
        if layout is ROW_BY_ROW:
            count = len(first[0])
            found = np.empty((len(first) - 1, count))
            for start in range(0, count, FUNCTION_PAIRS):
                part = slice(start, start + FUNCTION_PAIRS)
                some = [x[part] for x in first], [y[part] for y in second]
                for row, block in zip(found, self.stein(*some), strict=True):
                    row[part] = block.diagonal()
            return list(found)
        x, *scores = first
        y, *others = second
        k, by_x, by_y, trace = kernel.derivatives(x, y)
        return [
            k * (s @ t.T)
            + np.einsum("ad,abd->ab", s, by_y)
            + np.einsum("bd,abd->ab", t, by_x)
            + trace
            for s, t in zip(scores, others, strict=True)
        ]

    def stein_terms(
        self, first: Sequence[Array], second: Sequence[Array], layout: Layout = ALL_PAIRS
    ) -> SteinTerms:
        """What `stein_of` needs of pairs: it is the same for every length."""
        x = first[0]
        y = second[0]
        both = zip(self.tilted_scores(*first), self.tilted_scores(*second), strict=True)
        return SteinTerms(
            x.shape[1],
            self._squares(x, y, layout),
            self._tilt(x, y, layout),
            ((layout.products(s, t), layout.slopes(x, y, s, t)) for s, t in both),
        )

    def stein_of(self, terms: SteinTerms) -> list[Array]:
        """u_i of each model, from the terms of pairs."""
        phi, dphi, r2ddphi = self.kernel.untilted.weights(terms.squares, STEIN_WEIGHTS)
        if terms.weight is not None:
            phi, dphi, r2ddphi = (terms.weight * each for each in (phi, dphi, r2ddphi))
        trace = -2.0 * terms.columns * dphi - 4.0 * r2ddphi
        dphi = 2.0 * dphi
        values = []
        for product, slope in terms.models:
            u = phi * product
            u += dphi * slope
            u += trace
            values.append(u)
        return values

    def stein_pairs(self, first: Sequence[Array], second: Sequence[Array]) -> Array:
        """u_i(x_a, y_a) row by row: (n, l)."""
        return np.stack(self.stein(first, second, ROW_BY_ROW), axis=1)

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

    def stein_columns(self, x: Array, scores: Sequence[Array]) -> dict[Weight, Array]:
        """Columns R of every weight, whose products with the kernel matrices `stein_sums`
        takes. They do not depend on the length of the kernel.

        Where φ' = −γφ, as for a Gaussian, every product follows from φ @ [1, x, x·s_i, s_i,
        ‖x‖²].
        """
        plain = self.kernel.untilted
        if isinstance(plain, Together):
            each = PairKernel(plain.kernels[0]).stein_columns(x, scores)
            names: Any = [(k, w) for k in range(len(plain.kernels)) for w in each]
            return {name: each[name[1]] for name in names}
        arrays = library(x)
        one = arrays.ones_like(x[:, :1])
        along = arrays.stack([row_products(x, s) for s in scores], axis=1)
        columns = [one, x, along, *scores]
        if decay_rate(plain) is not None:
            return {"phi": arrays.hstack([*columns, row_products(x, x)[:, None]])}
        vectors = arrays.hstack(list(scores))
        return {"phi": vectors, "dphi": arrays.hstack(columns), "r2ddphi": one}

    def stein_sums(
        self, x: Array, scores: Sequence[Array], products: Mapping[Any, Array]
    ) -> Array:
        """The row sums Σ_b u_i(x_a, x_b), (n, l), or (n, k, l) of k kernels, given W(x, y) @
        R(y), without w.

        With e = x·s' + s·x' − x·s − x'·s', which is bilinear in [1, x, s, x·s], u = φ s·s' +
        2φ'e − 2dφ' − 4r²φ''.
        """
        plain = self.kernel.untilted
        arrays = library(x)
        if isinstance(plain, Together):
            each = [
                PairKernel(kernel).stein_sums(
                    x, scores, {w: part for (j, w), part in products.items() if j == k}
                )
                for k, kernel in enumerate(plain.kernels)
            ]
            return cast(Array, arrays.stack(each, axis=1))
        d = x.shape[1]
        first = 1 + d + len(scores)
        last = first + d * len(scores)
        phi = products["phi"]
        gamma = decay_rate(plain)
        if gamma is None:
            dphi = products["dphi"]
            r2ddphi = products["r2ddphi"][:, 0]
        else:
            dphi = -gamma * phi[:, :last]
            r2 = row_products(x, x) * phi[:, 0] + phi[:, last]
            r2ddphi = gamma**2 * (r2 - 2.0 * row_products(x, phi[:, 1 : 1 + d]))
            phi = phi[:, first:last]
        at_one = dphi[:, 0]
        at_x = dphi[:, 1 : 1 + d]
        trace = -2.0 * d * at_one - 4.0 * r2ddphi
        sums = []
        for i, s in enumerate(scores):
            own = slice(i * d, (i + 1) * d)
            slopes = row_products(x, dphi[:, first:last][:, own]) + row_products(s, at_x)
            slopes = slopes - row_products(x, s) * at_one - dphi[:, 1 + d + i]
            sums.append(row_products(s, phi[:, own]) + 2.0 * slopes + trace)
        return cast(Array, arrays.stack(sums, axis=1))


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
