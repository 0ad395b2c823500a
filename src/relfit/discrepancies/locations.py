"""Discrepancies at J locations v_j: UME² of samples, FSSD² of densities. Linear in the rows, in time and in memory.

Both are U-statistics of features τ(x): ``mean_{a≠b} τ_a·τ_b`` needs the sum of the features only, so one pass over
the rows gives the sums, and a second one the contribution of every row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from relfit.discrepancies.ksd import tilted
from relfit.discrepancies.psi import Dependence, Estimates, Psi, centred
from relfit.kernels import Kernel

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
Features = Callable[[slice], Array]
Scores = Callable[[slice], Sequence[Array]]

# Numbers in one array of a part of the rows: 2 MB.
CHUNK_NUMBERS = 2**18
# Of the largest, what counts as 0 in the kernel matrix of the locations.
SMALLEST_EIGENVALUE = 1e-10
# Rows whose pairs measure the second-order variance of FSSD.
SECOND_ORDER_ROWS = 500


@dataclass(frozen=True, eq=False)
class Locations:
    """J locations (J, d), and the numbers of the rows that were used up for them (key None: the reference's).

    `whitened` says that they are those of the Nyström approximation, `note` in words how they were chosen.
    """

    points: Array
    left_out: Mapping[str | None, Rows] = field(default_factory=dict)
    note: str = ""
    whitened: bool = False


@dataclass(frozen=True, eq=False)
class Chunked:
    """The rows (n, d) of one sample, or those numbered `kept`, less a `centre`; read a part at a time, never copied.

    `width` is the number of features that will be made of a row.
    """

    rows: Array
    kept: Rows | None = None
    centre: Array | None = None
    width: int = 1

    def __len__(self) -> int:
        return len(self.rows) if self.kept is None else len(self.kept)

    def __getitem__(self, part: slice) -> Array:
        rows = self.rows[part] if self.kept is None else self.rows[self.kept[part]]
        return rows if self.centre is None else rows - self.centre

    def parts(self) -> Iterator[slice]:
        """Consecutive parts of the rows, in each of which the rows and their features are few numbers."""
        size = max(64, CHUNK_NUMBERS // max(16, self.width, self.rows.shape[1]))
        return (slice(a, min(a + size, len(self))) for a in range(0, len(self), size))


def ume(
    reference: Chunked,
    samples: Sequence[Chunked],
    points: Array,
    kernel: Kernel,
    dependence: Dependence,
    *,
    whitened: bool = False,
) -> Estimates:
    """UME² of each sample to the reference at the locations (J, d), with ψ rows; unequal sizes allowed.

    It is MMD² under the kernel τ(x)·τ(y) with ``τ(x) = (k(x,v_j))_j/√J``:
    ``D_i = mean_{c≠c'} τ(x_c)·τ(x_c') + mean_{a≠b} τ(r_a)·τ(r_b) − 2 mean_{c,a} τ(x_c)·τ(r_a)``,
    ``g_i(r_a) = τ(r_a)·(Σ_{b≠a} τ(r_b)/(n−1) − mean_c τ(x_c))`` and f_i likewise for the model's rows. `whitened` takes
    ``τ(x) = K^(−½) (k(x,v_j))_j`` with K = k(v,v'): MMD² under the kernel that the locations span (Nyström).
    """
    root = whitening(kernel, points) if whitened else None
    reference, *samples = (replace(x, width=len(points)) for x in (reference, *samples))
    own, *others = (_embedding(kernel, x, points, root) for x in (reference, *samples))
    if dependence == "paired":
        return _paired([_Sample.of(reference, _difference(features, own)) for features in others])
    ours, *theirs = (_Sample.of(x, f) for x, f in zip((reference, *samples), (own, *others), strict=True))
    values = np.array([ours.squared_norm + x.squared_norm - 2.0 * float(ours.mean @ x.mean) for x in theirs])
    g = ours.contributions(np.stack([ours.others - x.mean for x in theirs], axis=1))
    f = [x.contributions((x.others - ours.mean)[:, None])[:, 0] for x in theirs]
    psi = Psi(centred(g), tuple(centred(row) for row in f), shared=dependence == "shared")
    each = np.array([_second_order(x, x) + 2.0 * _second_order(x, ours) for x in theirs])
    common = _second_order(ours, ours)
    # The variances of models from common random numbers are these; their second-order covariances are not known.
    return Estimates(values, psi, each + common if dependence == "shared" else np.diag(each) + common)


def fssd(reference: Chunked, scores: Scores, points: Array, kernel: Kernel) -> Estimates:
    """FSSD² of each model at the locations (J, d), with ψ rows; `scores` gives every model's at a part of the rows.

    ``D_i = mean_{a≠b} τ_i(x_a)·τ_i(x_b)`` with ``τ_i(x) = (s_i(x) k(x,v_j) + ∇_x k(x,v_j))_j/√(dJ)``, and
    ``g_i(x_a) = τ_i(x_a)·Σ_{b≠a} τ_i(x_b)/(n−1)``. ψ = 2(g − ḡ)·(n−1)/(n−2), the jackknife's, as for KSD.
    """
    n, reference = len(reference), replace(reference, width=len(points))

    def part_of(part: slice) -> _SteinPart:
        return _SteinPart.of(kernel, reference[part], scores(part), points)

    totals = np.sum([part_of(part).totals() for part in reference.parts()], axis=0)
    g = np.empty((n, len(totals)))
    for part in reference.parts():
        g[part] = part_of(part).contributions(totals) / ((n - 1) * points.size)
    some = part_of(slice(0, n, -(-n // SECOND_ORDER_ROWS)))
    psi = Psi(centred(g) * ((n - 1) / (n - 2)))
    return Estimates(g.mean(axis=0), psi, some.second_moments() * (2.0 / (n * (n - 1) * points.size**2)))


@dataclass(frozen=True)
class _Sample:
    """The features (n, J) of n rows, a part at a time, with their sum (J,) and second moments Στ_jτ_k (J, J)."""

    rows: Chunked
    features: Features
    total: Array
    second: Array

    @classmethod
    def of(cls, rows: Chunked, features: Features) -> _Sample:
        total, second = np.zeros(1), np.zeros((1, 1))
        for part in rows.parts():
            tau = features(part)
            total, second = total + tau.sum(axis=0), second + tau.T @ tau
        return cls(rows, features, total, second)

    @property
    def mean(self) -> Array:
        return np.asarray(self.total / len(self.rows))

    @property
    def others(self) -> Array:
        """``Σ_b τ_b/(n−1)``."""
        return np.asarray(self.total / (len(self.rows) - 1))

    @property
    def squared_norm(self) -> float:
        """``mean_{a≠b} τ_a·τ_b``."""
        n = len(self.rows)
        return float(self.total @ self.total - np.trace(self.second)) / (n * (n - 1))

    @property
    def covariance(self) -> Array:
        return np.asarray(self.second / len(self.rows) - np.outer(self.mean, self.mean))

    def contributions(self, directions: Array) -> Array:
        """``τ_a·m_i − ‖τ_a‖²/(n−1)`` for every row and direction m_i, `directions` (J, l): (n, l)."""
        out = np.empty((len(self.rows), directions.shape[1]))
        for part in self.rows.parts():
            tau = self.features(part)
            out[part] = tau @ directions - np.einsum("ij,ij->i", tau, tau)[:, None] / (len(self.rows) - 1)
        return out


def whitening(kernel: Kernel, points: Array) -> Array:
    """(J, J') a root of the inverse of K = k(v,v'), in the directions in which K is not 0 but for rounding."""
    values, vectors = np.linalg.eigh(_kernel_values(kernel, points, points))
    kept = values > SMALLEST_EIGENVALUE * values[-1]
    return np.asarray(vectors[:, kept] / np.sqrt(values[kept]))


def _kernel_values(kernel: Kernel, rows: Array, points: Array) -> Array:
    """k(x_a, v_j): (n, J)."""
    t = rows @ points.T if kernel.variable == "dot" else cdist(rows, points, "sqeuclidean")
    values = kernel.untilted.phi(t)
    if kernel.tilt is None:
        return values
    return np.asarray(values * kernel.tilt.weights(rows)[:, None] * kernel.tilt.weights(points))


def _embedding(kernel: Kernel, rows: Chunked, points: Array, root: Array | None) -> Features:
    """The features ``k(x_a, v)/√J``, or ``k(x_a, v) @ root``, of a part of the rows."""
    if root is None:
        return lambda part: _kernel_values(kernel, rows[part], points) / np.sqrt(len(points))
    return lambda part: _kernel_values(kernel, rows[part], points) @ root


def _difference(model: Features, reference: Features) -> Features:
    return lambda part: model(part) - reference(part)


def _paired(differences: Sequence[_Sample]) -> Estimates:
    """Paired rows: τ_a = τ(x_a) − τ(r_a) and ``D = mean_{a≠b} τ_a·τ_b``, which leaves out the pairs of one row."""
    values = np.array([x.squared_norm for x in differences])
    g = np.hstack([x.contributions(x.others[:, None]) for x in differences])
    return Estimates(values, Psi(centred(g)), np.array([_second_order(x, x) for x in differences]))


def _second_order(a: _Sample, b: _Sample) -> float:
    """``2ζ/(nm)``, or 2ζ/(n(n−1)) within a sample, with ζ = E(τ̃·τ̃')² = tr(C C') of the centred features."""
    pairs = len(a.rows) * (len(b.rows) - (a is b))
    return 2.0 * float(np.vdot(a.covariance, b.covariance)) / pairs


@dataclass(frozen=True)
class _SteinPart:
    """φ, 2φ' and r² of some rows (n, d) to the locations (J, d), each (n, J), and the models' scores at the rows.

    The features s φ + 2φ'·(x − v), (n, J, d) for every model, are never formed but for a few rows.
    """

    rows: Array
    points: Array
    scores: Sequence[Array]
    phi: Array
    slope: Array
    r2: Array

    @classmethod
    def of(cls, kernel: Kernel, rows: Array, scores: Sequence[Array], points: Array) -> _SteinPart:
        scores, weight = tilted(kernel, rows, scores)
        r2 = cdist(rows, points, "sqeuclidean")
        if kernel.tilt is not None:
            weight = weight * kernel.tilt.weights(points)
        phi, dphi = kernel.untilted.weights(r2, ("phi", "dphi"))
        return cls(rows, points, scores, phi * weight, 2.0 * dphi * weight, r2)

    def totals(self) -> Array:
        """The sum of the features of every model: (l, J, d)."""
        gradient = self.slope.T @ self.rows - self.slope.sum(axis=0)[:, None] * self.points
        return np.stack([self.phi.T @ s + gradient for s in self.scores])

    def contributions(self, totals: Array) -> Array:
        """``τ_a·(T − τ_a)`` for every row and model, T its total: (n, l)."""
        columns = []
        for s, total in zip(self.scores, totals, strict=True):
            along = self.phi * (s @ total.T)
            along += self.slope * (self.rows @ total.T - np.einsum("ij,ij->i", self.points, total))
            across = np.einsum("ij,ij->i", s, self.rows)[:, None] - s @ self.points.T
            along -= self.phi**2 * np.einsum("ij,ij->i", s, s)[:, None]
            along -= self.slope * (2.0 * self.phi * across + self.slope * self.r2)
            columns.append(along.sum(axis=1))
        return np.stack(columns, axis=1)

    def features(self, score: Array, j: int) -> Array:
        """One model's features at one location: (n, d)."""
        return np.asarray(self.phi[:, j, None] * score + self.slope[:, j, None] * (self.rows - self.points[j]))

    def second_moments(self) -> Array:
        """``ζ_ij = mean_{a≠b} (τ̃_a·τ̃_b)_i (τ̃_a·τ̃_b)_j`` of the centred features: (l, l)."""
        n = len(self.rows)
        flat = np.stack([self._gram(s).ravel() for s in self.scores])
        return np.asarray(flat @ flat.T / (n * (n - 1)))

    def _gram(self, score: Array) -> Array:
        """``τ̃_a·τ̃_b`` for a ≠ b, and 0 for a = b: (n, n); the features of all locations together would be large."""
        gram = np.zeros((len(self.rows),) * 2)
        for j in range(len(self.points)):
            tau = self.features(score, j)
            tau -= tau.mean(axis=0)
            gram += tau @ tau.T
        np.fill_diagonal(gram, 0.0)
        return gram
