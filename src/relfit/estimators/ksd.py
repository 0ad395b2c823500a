"""Right-hand sides that repeat each other are multiplied once.

The scores of related models span few columns: those of Gaussians are combinations of 1 and x, those of
networks that differ in one unit share the others. A kernel matrix times their independent columns gives
the rest by a small product.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import block_diag, qr, solve_triangular

from relfit.compute.backend import Backend, Points, Products
from relfit.compute.reduce import Job, Patch, Runtime, Sums, described, matrix_sums
from relfit.compute.rows import LazyRows
from relfit.data.load import Data
from relfit.data.scores import scores_of, stored_scores
from relfit.estimators import designs
from relfit.estimators.base import Estimates, Plan, second_order, shifted
from relfit.estimators.designs import BandValues, Source, ksd_values, of_pairs
from relfit.estimators.kernel import centre_of
from relfit.estimators.split import orders_of
from relfit.kernels.base import Kernel, Weight
from relfit.stats.joint import Psi, centred
from relfit.util.arrays import Array, Rows, host, library
from relfit.util.random import stream

# Columns count as dependent only when every row is reproduced to this part of the column's size.
TOLERANCE = 1e-13
# Below this saving the search is not worth its cost.
WORTHWHILE = 0.8


@dataclass(frozen=True)
class Columns:
    """``matrix ≈ basis @ coefficients``, to rounding; coefficients None means the matrix itself."""

    basis: Array
    coefficients: Array | None = None

    def expand(self, product: Array) -> Array:
        """K @ matrix, given K @ basis."""
        return product if self.coefficients is None else product @ self.coefficients


def independent_columns(matrix: Array) -> Columns:
    """Some columns of the matrix (n, c) that the others are combinations of; all of them where that saves little.

    A matrix on a device is left as it is: there products cost less than the search.
    """
    n, c = matrix.shape
    whole = Columns(matrix)
    if c > n // 8 or not isinstance(matrix, np.ndarray):
        return whole
    some = matrix[:: max(1, n // (2 * c + 32))]
    scale = _sizes(some)
    triangle, order = qr(some / scale, mode="r", pivoting=True, check_finite=False)
    diagonal = np.abs(np.diag(triangle))
    rank = int((diagonal > TOLERANCE * diagonal[0]).sum())
    if not 0 < rank <= WORTHWHILE * c:
        return whole
    coefficients = np.zeros((rank, c))
    coefficients[:, order[:rank]] = np.eye(rank)
    coefficients[:, order[rank:]] = solve_triangular(triangle[:rank, :rank], triangle[:rank, rank:])
    basis = matrix[:, order[:rank]]
    coefficients *= scale / scale[order[:rank], None]
    # The rows looked at may agree by accident: keep the short form only if every row does.
    if np.abs(basis @ coefficients - matrix).max(axis=0) @ (1.0 / _sizes(matrix)) > 100.0 * TOLERANCE * c:
        return whole
    return Columns(np.ascontiguousarray(basis), coefficients)


def _sizes(matrix: Array) -> Array:
    """The largest entry of each column, 1 for a column of zeros."""
    largest = np.abs(matrix).max(axis=0)
    return np.where(largest == 0.0, 1.0, largest)


# --------------------
# Squared kernel Stein discrepancy of several densities to one reference, all from one pass over the kernel.
#
# ``u_i(x,y) = s_i(x)·s_i(y) k + s_i(x)·∇_y k + ∇_x k·s_i(y) + tr ∇_x∇_y k`` with k = φ(r²), where ∇_x k = 2φ'(x−y),
# ∇_y k = −2φ'(x−y) and tr ∇_x∇_y k = −2dφ' − 4r²φ''.


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
    """`row_sums`, left where the backend computes if the matrix is a single patch."""
    [sums] = matrix_sums(SteinSums(kernel, centre, len(scores)), (x, *scores), [(0, 0)], runtime)
    return sums.rows


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
        """See `Reduction`."""
        return f"Stein sums {described(self.kernel, self.centre)}"

    def needs(self, patch: Patch) -> tuple[int, ...]:
        """The rows and all scores."""
        return tuple(range(1 + self.models))

    def width(self, sources: Sequence[Any]) -> int:
        """All columns that are multiplied with the kernel matrix."""
        return len(sources) * (int(sources[0].shape[1]) + 1)

    def prepare(self, sources: Sequence[Any], which: int, rows: slice, backend: Backend) -> _Side:
        """Rows and their scores, where the backend computes."""
        x, plain = shifted(sources[which][rows], self.centre), self.kernel.untilted
        moved, weight = tilted(self.kernel, x, [s[rows] for s in sources[1:]])
        x, weight, *scores = (backend.array(part) for part in (x, weight, *moved))
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

    def finish(self, x: _Side, y: _Side, products: Sequence[Products]) -> Sums:
        """Σ_b u_i(x_a, x_b) over the rows b of the other side."""
        [product] = products
        rows = x.finish({w: part.expand(product.rows[w]) for w, part in y.columns.items()})
        if not product.columns:
            return Sums(rows)
        return Sums(rows, y.finish({w: part.expand(product.columns[w]) for w, part in x.columns.items()}))


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


# --------------------
# KSD² of Markov chain draws to a target density: neighbouring draws depend on each other.


@dataclass(frozen=True)
class ChainEstimate:
    """KSD² of one chain, its ψ averaged over batches, and how the batches were chosen."""

    value: float
    batch_psi: Array
    batch_length: int
    autocorrelation_time: float


def chain_ksd(x: Array, scores: Array, kernel: Kernel, runtime: Runtime) -> ChainEstimate:
    """KSD² from the pairs of draws (m, d) at least one batch length apart, with ψ as batch means.

    Near pairs depend on each other and would bias D; they are left out. The variance of the mean of a
    correlated series is that of its batch means, ``V = Σ_b ψ̄_b²/(B(B−1))`` over B batches of length L.
    """
    m = len(x)
    sums = row_sums(x, [scores], kernel, runtime)[:, 0]
    tau = autocorrelation_time(sums)
    length = batch_length(m, tau)
    sums -= _near_sums(x, scores, kernel, length)
    g = sums * (m / _far_pairs(m, length))
    batches = m // length
    psi = centred(g)[: batches * length].reshape(batches, length).mean(axis=1)
    return ChainEstimate(float(g.mean()), psi - psi.mean(), length, tau)


def batch_length(m: int, tau: float) -> int:
    """``L = ⌈m^{1/3} τ^{2/3}⌉``: the order that balances the bias and the variance of batch means."""
    return int(min(max(1, math.ceil(m ** (1 / 3) * tau ** (2 / 3))), max(1, m // 4)))


def autocorrelation_time(series: Array) -> float:
    """τ = 1 + 2Σρ_k of a stationary series (m,), the sum ended by Geyer's initial positive sequence rule.

    >>> white = np.random.default_rng(0).normal(size=4000)
    >>> 0.7 < autocorrelation_time(white) < 1.4
    True
    """
    centre = series - series.mean()
    m = len(centre)
    size = 1 << (2 * m - 1).bit_length()
    spectrum = np.fft.rfft(centre, size)
    covariance = np.fft.irfft(spectrum * spectrum.conj(), size)[:m]
    if covariance[0] <= 0.0:
        return 1.0
    rho = covariance / covariance[0]
    pairs = rho[: m // 2 * 2].reshape(-1, 2).sum(axis=1)
    negative = np.flatnonzero(pairs <= 0.0)
    end = int(negative[0]) if len(negative) else len(pairs)
    return max(1.0, float(2.0 * pairs[:end].sum() - 1.0))


def _near_sums(x: Array, scores: Array, kernel: Kernel, length: int) -> Array:
    """Σ u(x_a, x_b) over 0 < |a − b| < L, for every a."""
    near = np.zeros(len(x))
    for lag in range(1, length):
        u = pair_values(kernel, (x[:-lag], [scores[:-lag]]), (x[lag:], [scores[lag:]]))[:, 0]
        near[:-lag] += u
        near[lag:] += u
    return near


def _far_pairs(m: int, length: int) -> int:
    """The number of ordered pairs with |a − b| ≥ L."""
    return (m - length) * (m - length + 1)


# --------------------
# KSD² of densities to a reference sample.


def of_densities(data: Data, plan: Plan) -> Estimates:
    """KSD² of every density, with ψ rows."""
    if plan.estimator == "linear":
        return _density_linear(data, plan)
    centre = centre_of(data.reference)
    if plan.estimator != "complete":
        return _density_pairs(data, plan, centre)
    x, scores = _with_all_scores(data, plan)
    rng = stream(plan.seed, "second order")
    return complete(x, scores, plan.kernel.moved(centre), plan.runtime, rng, centre=centre)


def _density_linear(data: Data, plan: Plan) -> Estimates:
    order = orders_of(data, plan)[None]

    def values(a: Rows, b: Rows) -> Array:
        first, second = (_with_scores(data, data.reference[order[k]]) for k in (a, b))
        return pair_values(plan.kernel, first, second)

    width = data.reference.shape[1] * (1 + len(data.densities))
    return designs.linear(len(order), values, plan.runtime, width)


def _density_pairs(data: Data, plan: Plan, centre: Array) -> Estimates:
    order = orders_of(data, plan)[None]

    def fetch(rows: Rows) -> list[Array]:
        x, scores = _with_scores(data, data.reference[order[rows]])
        return [x - centre, *scores]

    width = data.reference.shape[1] * (1 + len(data.densities))
    source = Source(len(order), len(data.densities), fetch, ksd_values(plan.kernel.moved(centre)), width)
    return of_pairs(source, plan)


def _with_all_scores(data: Data, plan: Plan) -> tuple[Any, list[Any]]:
    x = data.reference
    if not isinstance(x, LazyRows) or plan.folder is None:
        return _with_scores(data, x)
    return x, [stored_scores(name, density, x, plan.folder) for name, density in data.densities.items()]


def _with_scores(data: Data, x: Array) -> tuple[Array, list[Array]]:
    return x, [scores_of(name, density, x) for name, density in data.densities.items()]


# --------------------
# KSD² of samples to one target density: which sampler or approximation is closest to it?

# With fewer batches their means are too few for a normal approximation.
FEWEST_BATCHES = 20


def of_target(data: Data, plan: Plan) -> Estimates:
    """KSD² of every sample (m_i, d) to the target, each from its own rows and scores, with ψ rows."""
    if plan.dependence == "chain":
        return _chains(data, plan)
    shared = plan.dependence == "shared"
    if plan.estimator in ("block", "incomplete"):
        together = [data.samples] if shared else [{name: x} for name, x in data.samples.items()]
        each = [_target_pairs(samples, data, plan) for samples in together]
    else:
        make = _target_linear if plan.estimator == "linear" else _target_complete
        each = [make(name, x, data, plan) for name, x in data.samples.items()]
    found = _side_by_side(each, shared=shared)
    if shared and plan.variance == "corrected":
        return replace(found, second_order=_target_second_order(data, plan))
    return found


def _side_by_side(each: Sequence[Estimates], *, shared: bool) -> Estimates:
    """Estimates of different models as one; what they have in common, if they do, is in the ψ rows alone."""
    values = np.concatenate([e.values for e in each])
    rows = tuple(column for e in each if e.psi.reference is not None for column in e.psi.reference.T)
    second = [e.second_order for e in each if e.second_order is not None]
    own = [e.covariance for e in each if e.covariance is not None]
    return Estimates(
        values,
        Psi(None, rows, shared=shared),
        block_diag(*second) if second else None,
        each[0].notes,
        block_diag(*own) if own else None,
    )


def _target_complete(name: str, x: Array, data: Data, plan: Plan) -> Estimates:
    scores = _all_scores(name, x, data, plan)
    # The same pairs for every model of a size: rows from common random numbers stay together.
    rng = stream(plan.seed, "second order")
    centre = centre_of(x)
    return complete(x, [scores], plan.kernel.moved(centre), plan.runtime, rng, centre=centre)


def _target_linear(name: str, x: Array, data: Data, plan: Plan) -> Estimates:
    order = orders_of(data, plan)[name]

    def values(a: Rows, b: Rows) -> Array:
        first, second = ((x[order[k]], [_scores(name, x[order[k]], data)]) for k in (a, b))
        return pair_values(plan.kernel, first, second)

    return designs.linear(len(order), values, plan.runtime, 2 * x.shape[1])


def _target_pairs(samples: Mapping[str, Array], data: Data, plan: Plan) -> Estimates:
    """Samples of one size whose rows are taken in one order, or a single one."""
    orders = orders_of(data, plan)
    centres = {name: centre_of(x) for name, x in samples.items()}

    def fetch(rows: Rows) -> list[Array]:
        taken = {name: x[orders[name][rows]] for name, x in samples.items()}
        return [a for name, x in taken.items() for a in (x - centres[name], _scores(name, x, data))]

    def values(window: Sequence[Array]) -> BandValues:
        kernels = [plan.kernel.moved(centre) for centre in centres.values()]
        each = [ksd_values(kernel)(window[2 * i : 2 * i + 2]) for i, kernel in enumerate(kernels)]
        return lambda part: np.concatenate([of_model(part) for of_model in each])

    count, d = next(iter(samples.values())).shape
    return of_pairs(Source(count, len(samples), fetch, values, 2 * d * len(samples)), plan)


def _target_second_order(data: Data, plan: Plan) -> Array:
    """Of samples from common random numbers: the same pairs of rows in every model."""

    def of_model(name: str, x: Array, a: Rows, b: Rows) -> Array:
        first, second = ((x[k], [_scores(name, x[k], data)]) for k in (a, b))
        return pair_values(plan.kernel, first, second)

    def values(a: Rows, b: Rows) -> Array:
        return np.hstack([of_model(name, x, a, b) for name, x in data.samples.items()])

    n, d = next(iter(data.samples.values())).shape
    return second_order(n, 2 * d * len(data.samples), values, stream(plan.seed, "second order"))


def _chains(data: Data, plan: Plan) -> Estimates:
    each = {name: _chain(name, x, data, plan) for name, x in data.samples.items()}
    values = np.array([chain.value for chain in each.values()])
    notes = tuple(_note(name, chain) for name, chain in each.items())
    return Estimates(values, Psi(None, tuple(chain.batch_psi for chain in each.values())), None, notes)


def _chain(name: str, x: Array, data: Data, plan: Plan) -> ChainEstimate:
    centre = centre_of(x)
    return chain_ksd(x - centre, _scores(name, x, data), plan.kernel.moved(centre), plan.runtime)


def _note(name: str, chain: ChainEstimate) -> str:
    batches = len(chain.batch_psi)
    text = (
        f"chain {name!r}: autocorrelation time {chain.autocorrelation_time:.3g}, {batches} batches of "
        f"{chain.batch_length} draws"
    )
    few = batches < FEWEST_BATCHES
    return text + ("; too few for a reliable standard error, run the chain longer" if few else "")


def _all_scores(name: str, x: Array, data: Data, plan: Plan) -> Any:
    if not isinstance(x, LazyRows) or plan.folder is None:
        return _scores(name, x, data)
    assert data.target is not None  # noqa: S101  (the kind of data was checked)
    return stored_scores(f"target at model {name!r}", data.target, x, plan.folder)


def _scores(name: str, x: Array, data: Data) -> Array:
    assert data.target is not None  # noqa: S101  (the kind of data was checked)
    return scores_of(f"target at model {name!r}", data.target, x)
