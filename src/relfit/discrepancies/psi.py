"""Estimates with their ψ rows, and the joint covariance those rows give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Dependence = Literal["independent", "shared", "paired", "chain"]


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
        return positive_part(whole - 2.0 * self.second_order, np.diag(whole)) + self.second_order


def centred(g: Array) -> Array:
    """``ψ = 2(g − ḡ)`` for row means g."""
    return np.asarray(2.0 * (g - g.mean(axis=0)))


def positive_part(matrix: Array, variances: Array) -> Array:
    """A symmetric matrix without its negative eigenvalues, taken in units in which `variances` (l,) are 1.

    The units keep a model with a large variance from drowning the others in rounding.

    >>> positive_part(np.diag([4.0, -1.0]), np.ones(2)).tolist()
    [[4.0, 0.0], [0.0, 0.0]]
    """
    scale = np.sqrt(variances)
    scale[scale == 0.0] = 1.0
    values, vectors = np.linalg.eigh(matrix / scale / scale[:, None])
    root = scale[:, None] * vectors * np.sqrt(np.maximum(values, 0.0))
    return np.asarray(root @ root.T)


def _gram(psi: Array) -> Array:
    n = len(psi)
    gram = psi.T @ psi / (n * (n - 1))
    return np.asarray((gram + gram.T) / 2.0)
