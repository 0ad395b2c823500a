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
        return self.second_order + nearest_positive(whole - 2.0 * self.second_order, mixed(self.second_order, whole))


def centred(g: Array) -> Array:
    """``ψ = 2(g − ḡ)`` for row means g."""
    return np.asarray(2.0 * (g - g.mean(axis=0)))


def mixed(unit: Array, whole: Array) -> Array:
    """`unit` with a trace of `whole`, so that no direction in which `whole` varies is without a unit."""
    return np.asarray(unit + TRACE * whole)


def nearest_positive(matrix: Array, unit: Array) -> Array:
    """The covariance nearest to a symmetric matrix and of the same trace, relative to `unit`; 0 if that is below 0.

    `unit` is a covariance of the same estimates. With unit = L Lᵀ it is L (A − τ)₊ Lᵀ, A = L⁻¹ matrix L⁻ᵀ, with the
    τ ≥ 0 for which (A − τ)₊ has the trace of A: a change of basis of the estimates changes nothing, and no difference
    of two gains more than a multiple of its own variance in `unit`. Ordinary eigenvalues would let the large common
    noise of similar models spill into their small differences, and dropping the negative ones (τ = 0) would make the
    trace of an unbiased estimate too large.

    >>> nearest_positive(np.diag([4.0, 2.0, -1.0]), np.eye(3)).round(9).tolist()
    [[3.5, 0.0, 0.0], [0.0, 1.5, 0.0], [0.0, 0.0, 0.0]]
    """
    scale = np.sqrt(np.diag(unit))
    scale = np.where(scale > 0.0, scale, 1.0)
    outer = np.outer(scale, scale)
    sizes, axes = np.linalg.eigh(unit / outer)
    kept = sizes > NO_DIRECTION * sizes[-1]
    sides = np.sqrt(sizes[kept])
    inverse, root = axes[:, kept] / sides, axes[:, kept] * sides
    values, vectors = np.linalg.eigh(inverse.T @ (matrix / outer) @ inverse)
    half = scale[:, None] * (root @ (vectors * np.sqrt(_lowered(values))))
    return np.asarray(half @ half.T)


def _lowered(values: Array) -> Array:
    """``(λ − τ)₊`` with the sum of the ascending λ; 0 if that is negative.

    If the k largest stay above 0, τ = −(sum of the others)/k; the right k is the largest whose own λ stays.
    """
    others = np.cumsum(values) - values
    count = np.arange(len(values), 0, -1)
    stays = np.flatnonzero(count * values + others > 0.0)
    if values.sum() <= 0.0 or not len(stays):
        return np.zeros_like(values)
    return np.asarray(np.maximum(values + others[stays[0]] / count[stays[0]], 0.0))


def _gram(psi: Array) -> Array:
    n = len(psi)
    gram = psi.T @ psi / (n * (n - 1))
    return np.asarray((gram + gram.T) / 2.0)
