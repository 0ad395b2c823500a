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

    `second_order` is the part of each variance that remains when a model equals the data (complete
    estimators only); its share of the whole variance tells how far the normal approximation can be
    trusted. `notes` are sentences for the reader.
    """

    values: Array
    psi: Psi
    second_order: Array | None = None
    notes: tuple[str, ...] = ()


def centred(g: Array) -> Array:
    """``ψ = 2(g − ḡ)`` for row means g."""
    return np.asarray(2.0 * (g - g.mean(axis=0)))


def _gram(psi: Array) -> Array:
    n = len(psi)
    gram = psi.T @ psi / (n * (n - 1))
    return np.asarray((gram + gram.T) / 2.0)
