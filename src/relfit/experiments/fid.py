"""The Fréchet distance between Gaussians fitted to two samples of features (FID when they are Inception's)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Moments(NamedTuple):
    """Mean (d,) and covariance (d, d)."""

    mean: Array
    covariance: Array


def moments(x: Array) -> Moments:
    """Those of the rows of x (n, d)."""
    return Moments(x.mean(axis=0), np.atleast_2d(np.cov(x, rowvar=False)))


def fids(reference: Array, samples: Mapping[str, Array]) -> dict[str, float]:
    """‖μ − μ'‖² + tr(C + C' − 2(C^½ C' C^½)^½) of every sample to the reference.

    C^½ and the eigenvalues of the symmetric C^½ C' C^½ are all that is needed: no root of CC', which is not symmetric
    and whose computed root may be complex.

    >>> x = np.array([[-1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    >>> round(fids(x, {"moved": x + [3.0, 4.0]})["moved"], 6)
    25.0
    """
    known = moments(reference)
    root = _root(known.covariance)
    return {name: _distance(known, root, moments(x)) for name, x in samples.items()}


def _root(covariance: Array) -> Array:
    sizes, directions = np.linalg.eigh(covariance)
    return np.asarray((directions * np.sqrt(np.maximum(sizes, 0.0))) @ directions.T)


def _distance(a: Moments, root_of_a: Array, b: Moments) -> float:
    product = np.linalg.eigvalsh(root_of_a @ b.covariance @ root_of_a)
    # Singular covariances (n < d) have eigenvalues of 0, which rounding makes negative.
    overlap = np.sqrt(np.maximum(product, 0.0)).sum()
    gap = a.mean - b.mean
    return float(gap @ gap + np.trace(a.covariance) + np.trace(b.covariance) - 2.0 * overlap)
