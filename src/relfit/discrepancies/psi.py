"""Estimates with their ψ rows, and the joint covariance those rows give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Dependence = Literal["independent", "shared", "paired", "chain"]

# Directions that vary less than this, relative to the most varying one, are rounding.
NO_DIRECTION = 1e-13
TRACE = 1e-6


@dataclass(frozen=True)
class Psi:
    """The first-order contribution of every row to every estimate.

    Args:
        reference: (n, l), the contributions of the reference rows (or of row pairs, in linear designs;
            or of the rows joined with the models' rows, when everything is paired); None where the reference
            is a density.
        models: one (m_i,) vector per model, empty where the models have no sample of their own.
        shared: whether the models' rows were generated from common random numbers.
    """

    reference: Array | None
    models: tuple[Array, ...] = ()
    shared: bool = False

    def covariance(self) -> Array:
        """``V = ψRᵀψR/(n(n−1)) + diag_i(ψX_iᵀψX_i/(m_i(m_i−1)))``, with the full Gram when shared.

        A sum of Gram matrices: symmetric and positive semi-definite by construction.
        """
        total = np.zeros((len(self.models),) * 2) if self.reference is None else _gram(self.reference)
        if not self.models:
            return total
        if self.shared:
            return total + _gram(np.stack(self.models, axis=1))
        own = [float(psi @ psi) / (len(psi) * (len(psi) - 1)) for psi in self.models]
        return total + np.diag(own)


@dataclass(frozen=True)
class Estimates:
    """Discrepancies of l models with their ψ rows.

    `second_order` is the part of the covariance (l, l), or of each variance (l,) where that is all there is, that
    remains when a model equals the data (complete estimators only); its share of the whole variance tells how far the
    normal approximation can be trusted. `notes` are sentences for the reader. `covariance` is that of the estimates
    where it is not the one of the ψ rows.
    """

    values: Array
    psi: Psi
    second_order: Array | None = None
    notes: tuple[str, ...] = ()
    covariance: Array | None = None

    @property
    def projection(self) -> Array:
        """V, by first-order theory where the design is complete."""
        return self.psi.covariance() if self.covariance is None else self.covariance

    @property
    def corrected(self) -> Array:
        """``PSD₊(V − 2·S2) + S2``: the ψ rows of a complete design count the second-order part S2 twice."""
        if self.second_order is None or self.second_order.ndim != 2:
            return self.projection
        whole = self.projection
        return self.second_order + positive_part(whole - 2.0 * self.second_order, mixed(self.second_order, whole))


def centred(g: Array) -> Array:
    """``ψ = 2(g − ḡ)`` for row means g."""
    return np.asarray(2.0 * (g - g.mean(axis=0)))


def mixed(unit: Array, whole: Array) -> Array:
    """`unit` with a trace of `whole`, so that no direction in which `whole` varies is without a unit."""
    return np.asarray(unit + TRACE * whole)


def positive_part(matrix: Array, unit: Array) -> Array:
    """A symmetric matrix without negative eigenvalues relative to `unit`, and with less of what may be noise.

    `unit` is a covariance of the same estimates. With unit = L Lᵀ it is L A₊ Lᵀ; A₊ has the eigenvalues of
    A = L⁻¹ matrix L⁻ᵀ, each lowered by as much as it falls short of −λ, λ ≤ 0 the lowest one, and not below 0. Where
    the matrix is an unbiased estimate of a covariance, λ tells how far noise reaches; to keep all of it above 0 and
    none below would make the sum too large. A change of basis of the estimates changes nothing, and no difference of
    two gains more than a multiple of its own variance in `unit`. Ordinary eigenvalues would let the large common noise
    of similar models spill into their differences.

    >>> positive_part(np.diag([4.0, 0.75, 0.25, -1.0]), np.eye(4)).diagonal().round(9).tolist()
    [4.0, 0.5, 0.0, 0.0]
    """
    scale = np.sqrt(np.diag(unit))
    scale = np.where(scale > 0.0, scale, 1.0)
    outer = np.outer(scale, scale)
    sizes, axes = np.linalg.eigh(unit / outer)
    kept = sizes > NO_DIRECTION * sizes[-1]
    sides = np.sqrt(sizes[kept])
    inverse, root = axes[:, kept] / sides, axes[:, kept] * sides
    values, vectors = np.linalg.eigh(inverse.T @ (matrix / outer) @ inverse)
    short = np.maximum(-values.min(initial=0.0) - values, 0.0)
    half = scale[:, None] * (root @ (vectors * np.sqrt(np.maximum(values - short, 0.0))))
    return np.asarray(half @ half.T)


def _gram(psi: Array) -> Array:
    n = len(psi)
    gram = psi.T @ psi / (n * (n - 1))
    return np.asarray((gram + gram.T) / 2.0)
