"""The law of squared distances that are close to 0, where estimates are not normal.

D_i = ‖μ_i − μ_r‖² is the squared distance of two means in the kernel's feature space, δ_i = μ_i − μ_r. With e_i and e_r
the errors of the two means the unbiased estimate is

    D̂_i = D_i + 2 δ_i·(e_i − e_r) + (‖e_i − e_r‖² − its mean).

The second term is of first order: normal, with a variance in proportion to D_i. The third is of second order: a
quadratic form that does not vanish with D_i. First-order theory takes V, the covariance of the ψ rows, for that of D̂;
but V holds the second-order covariance S2 twice, and for models close to the data nothing else. The law here has both
parts, each with its own size:

- *First order.* V − 2·S2 is unbiased for the covariance of 2 δ_i·(e_i − e_r), but too noisy to use as it is: it has
  negative eigenvalues, and cutting them off leaves the positive noise. Its diagonal is therefore taken as D_i w_i, with
  w_i = 4 u_i·(Σ_i/m + Σ_r/n) u_i the variance along the direction u_i of δ_i: from features at landmarks close to the
  data, and as the ratio of (V − 2·S2)_ii and D̂_i away from them. Off the diagonal V − 2·S2 is shrunk towards its mean
  by what noise explains of its spread.
- *Second order.* ‖e_i − e_r‖² − mean is drawn in the features, e ~ N(0, Σ/size), with the same e_r for all models. What
  the features miss of S2, which is known from all pairs of rows, is added as normal noise.

*The level.* H_i says that model i is no worse than any other. Where it is tightest, i ties with its contenders, all
their D equal D_0, and their first-order variances are D_0 w_j, whatever the estimates are. So the law is taken there,
with D_0 the mean of the contenders' estimates: pooling takes most of the noise out of the first-order part, and a model
that is far worse does not inflate the law it is tested by with a variance that only a far worse model has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr

from relfit.util.arrays import Array, Mask, Rows

# Rounds in which the contenders and the law at their common value are found in turn.
_ROUNDS = 3


@dataclass(frozen=True, eq=False)
class CloseLaw:
    """Both parts of the law of l estimated squared distances.

    Attributes:
        first: (l, l) V − 2·S2, unbiased for the covariance of the first-order parts.
        along: (l,) w_i, the variance of the first-order part of D̂_i in units of D_i.
        second_order: (l, l) S2.
        second: (l, draws) draws of the second-order parts, with mean 0 and covariance S2.
        normal: (l, draws) standard normal draws for the first-order parts.
        shrunk: (draws,) √(χ²/ν), by which estimates of standard errors vary.
    """

    first: Array
    along: Array
    second_order: Array
    second: Array
    normal: Array
    shrunk: Array

    def at(self, index: Sequence[int]) -> CloseLaw:
        """The law of the models at these places."""
        both = np.ix_(index, index)
        rows = self.along[index], self.second_order[both], self.second[index], self.normal[index]
        return CloseLaw(self.first[both], *rows, self.shrunk)

    def covariance(self, values: Array) -> Array:
        """(l, l) the covariance of the estimates, with the values for the truth; negative ones count as 0."""
        everyone = np.arange(len(values))
        return self._first_order(values, np.maximum(values, 0.0), everyone) + self.second_order

    def _first_order(self, values: Array, at: Array, models: Rows) -> Array:
        """(k, k) the covariance of the first-order parts of these models, if their squared distances are `at`."""
        both = np.ix_(models, models)
        at, along = at[models], self.along[models]
        scale = np.sqrt(np.divide(at, np.maximum(values[models], at), out=np.zeros_like(at), where=at > 0.0))
        estimated = scale[:, None] * self.first[both] * scale
        apart = ~np.eye(len(models), dtype=bool)
        if len(models) > 2:
            # The noise of an entry is about twice the covariance that the reference's second-order part adds.
            noise = 2.0 * float(self.second_order[both][apart].mean())
            mean, spread = float(estimated[apart].mean()), float(estimated[apart].std())
            kept = 1.0 - min(1.0, noise / spread) ** 2 if spread > 0.0 else 0.0
            estimated = mean + kept * (estimated - mean)
        limit = np.sqrt(at * along)
        covariance = np.clip(estimated, -np.outer(limit, limit), np.outer(limit, limit))
        np.fill_diagonal(covariance, at * along)
        sizes, axes = np.linalg.eigh(covariance)
        return np.asarray((axes * np.maximum(sizes, 0.0)) @ axes.T)

    def test(self, values: Array, margin: float, lowest: float) -> tuple[Array, Array]:
        """The max-t test of "D_i ≤ min_j D_j + δ" for every i: log p (l,), and the ratios (l, l).

        ``T_i = max_j (D̂_i − D̂_j − δ)/s_ij`` over the contenders j, whose ratio is above `lowest`; s_ij is the spread of
        the draws of D̂_i − D̂_j where the hypothesis is tightest, and T_i is compared with the same maximum of the draws.
        """
        count = len(values)
        log_p, ratios = np.zeros(count), np.full((count, count), -math.inf)
        for i in range(count):
            others = np.arange(count) != i
            contenders: Mask = others
            for _ in range(_ROUNDS):
                models = np.flatnonzero(contenders | ~others)
                shifted = values - margin * ~others
                tie = max(float(shifted[models].mean()), 0.0)
                at = np.full(count, tie) + margin * ~others
                draws = self.second.copy()
                draws[models] += _root(self._first_order(values, at, models)) @ self.normal[models]
                gaps = draws[i] - draws[others]
                error = gaps.std(axis=1)
                # A pair without variance drops out, and a model that is left out has its second-order part only.
                ratio, gap = np.full(count, -math.inf), values[i] - values[others] - margin
                ratio[others] = np.divide(gap, error, out=np.full_like(gap, -math.inf), where=error > 0.0)
                contenders = ratio > lowest
                if not contenders.any():
                    break
            ratios[i] = ratio
            if contenders.any():
                kept = contenders[others]
                top = (gaps[kept] / error[kept, None]).max(axis=0) / self.shrunk
                statistic = float(ratio.max())
                reached = int((top >= statistic).sum())
                log_p[i] = math.log((1 + reached) / (1 + len(top)))
                if not reached:
                    # Beyond the draws, tails are normal: there the first-order part is the larger one.
                    log_p[i] = min(log_p[i], math.log(contenders.sum()) + float(log_ndtr(-statistic)))
        return log_p, ratios


def _root(covariance: Array) -> Array:
    sizes, axes = np.linalg.eigh(covariance)
    return np.asarray((axes * np.sqrt(np.maximum(sizes, 0.0))) @ axes.T)
