"""How the estimates of n rows, and the covariance that the tests are told, are distributed.

`Plain`: D ~ N(θ, V n₀/n), and the tests are told V n₀/n. For means of losses, linear estimators and assumed gaps.

`Squared`: MMD² and KSD² are squared lengths ‖w_i‖² of vectors whose estimates are normal. Taking each w_i for an
eigenvector of its noise, with e ~ N(0, Λ n₀/n) and u_i = √θ_i + e_i,

    D_i = u_i² − Λ_ii n₀/n + rest_i,    rest ~ N(0, R (n₀/n)²),    told V_ij = 4 u_i u_j Λ_ij n₀/n + 2 R_ij (n₀/n)²,

so the variance has a part that shrinks like 1/n and one like 1/n², the tests are told the latter twice over, the
estimates are skewed, and the told variance of a model is large where its D is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from relfit.discrepancies.psi import positive_part
from relfit.estimate import JointEstimate
from relfit.planning.geometry import Geometry
from relfit.procedures.streams import covariance_root

Array = NDArray[np.float64]


class Drawn(NamedTuple):
    """Estimates x (trials, l), and the covariance that the tests are told."""

    x: Array
    geometry: Geometry


@dataclass(frozen=True)
class Plain:
    """Normal estimates whose covariance, V with n₀ `rows`, shrinks like 1/n."""

    covariance: Array
    rows: int
    parts: int = 1

    def drawn(self, centres: Array, n: float, z: Array) -> Drawn:
        """Estimates with n rows of the populations `centres` (trials, l) from standard normal z (1, trials, l)."""
        told = self.told(centres[0], n)
        return Drawn(centres + z[0] @ covariance_root(told).T, Geometry(told))

    def told(self, _centre: Array, n: float) -> Array:
        """The covariance that the tests are given with n rows."""
        return self.covariance * (self.rows / n)

    def noise(self, z: Array, n: float) -> tuple[Array | None, Array]:
        """What N(0, told) is made of, from standard normal z (1, …, l): nothing that goes with a scale, and itself."""
        return None, z[0] @ covariance_root(self.told(z[0], n)).T


@dataclass(frozen=True)
class Squared:
    """Estimates of squared lengths: Λ and R with n₀ `rows`."""

    along: Array
    rest: Array
    rows: int
    parts: int = 2

    def drawn(self, centres: Array, n: float, z: Array) -> Drawn:
        """Estimates with n rows of the populations `centres` (trials, l) from standard normal z (2, trials, l)."""
        share = self.rows / n
        u = np.sqrt(np.maximum(centres, 0.0)) + math.sqrt(share) * (z[0] @ covariance_root(self.along).T)
        x = np.minimum(centres, 0.0) + u**2 - np.diag(self.along) * share
        x += share * (z[1] @ covariance_root(self.rest).T)
        return Drawn(x, Geometry(2.0 * share**2 * self.rest, 4.0 * share * self.along, u))

    def told(self, centre: Array, n: float) -> Array:
        """The mean covariance that the tests are given with n rows of one population (l,)."""
        share, root = self.rows / n, np.sqrt(np.maximum(centre, 0.0))
        first = 4.0 * share * self.along * np.outer(root, root)
        return np.asarray(first + share**2 * (4.0 * self.along**2 + 2.0 * self.rest))

    def noise(self, z: Array, n: float) -> tuple[Array | None, Array]:
        """What N(0, told) is made of, from standard normal z (2, …, l): a part to be scaled by u, and the rest."""
        share = self.rows / n
        moving = 2.0 * math.sqrt(share) * (z[0] @ covariance_root(self.along).T)
        return moving, math.sqrt(2.0) * share * (z[1] @ covariance_root(self.rest).T)


Law = Plain | Squared


def law_of(joint: JointEstimate, rows: int) -> Law:
    """The law of a pilot's estimates: `Squared` where the second-order part B of its covariance is known.

    With A = V − 2B the first-order part, 4 θ_i Λ_ii = A_ii, and 2Λ_ii² is the share of B_ii that lies along w_i; it
    cannot be more than all of it, which bounds Λ where θ is small. Λ has the correlations of A, and R = B − 2Λ².

    >>> pair = JointEstimate(("a", "b"), [1.0, 4.0], np.diag([4.5, 16.5]), (100,), second_order=np.diag([2.25, 2.25]))
    >>> law_of(pair, 100).along.round(9).tolist()
    [[0.0, 0.0], [0.0, 0.75]]
    """
    second = joint.second_order
    if second is None or not second.any():
        return Plain(joint.covariance, rows)
    first = positive_part(joint.covariance - 2.0 * second, joint.covariance)
    variance, most = np.diag(first), np.sqrt(np.maximum(np.diag(second), 0.0) / 2.0)
    along = np.divide(variance, 4.0 * joint.values, out=most.copy(), where=joint.values > 0.0)
    length = np.sqrt(np.minimum(along, most))
    error = np.sqrt(variance)
    unit = np.divide(length, error, out=np.zeros_like(error), where=error > 0.0)
    along = first * np.outer(unit, unit)
    return Squared(along, positive_part(second - 2.0 * along**2, second), rows)
