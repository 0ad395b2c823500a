"""The log-likelihood as a discrepancy: the mean of −log p over the reference rows, a loss for each row."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import numpy as np

from relfit.compute.rows import LazyRows
from relfit.data.likelihoods import log_densities
from relfit.data.load import Data
from relfit.data.models import Density
from relfit.estimators import base
from relfit.estimators.base import Dependence, Estimates, EstimateSettings, Estimator, PairSource
from relfit.estimators.losses import row_means
from relfit.util.arrays import Array, Rows
from relfit.util.errors import InputError
from relfit.util.text import listed


class Likelihood(base.Kind):
    """Normalised densities compared with a sample, by D_i = mean_a −log p_i(x_a) = KL(data‖P_i) + a common constant.

    V is the covariance of the rows' losses over n; of rows in groups that of the groups' sums.
    """

    words = "normalised densities"
    discrepancies = ("loglik",)

    def check(self, data: Data, estimator: Estimator, dependence: Dependence, *, grouped: bool) -> None:
        if dependence != "independent":
            raise InputError(f'dependence={dependence!r}: expected "independent" for loglik, whose models have no rows')

    def sources(self, data: Data, settings: EstimateSettings, *, in_order: bool = False) -> list[PairSource]:
        return []

    def complete(self, data: Data, settings: EstimateSettings) -> Estimates:
        return _estimates(data, None)

    def grouped(self, data: Data, settings: EstimateSettings, groups: base.Groups) -> Estimates:
        return _estimates(data, groups.codes[None])

    def right_hand_sides(self, data: Data) -> int:
        return 0

    def bands(self, data: Data) -> int:
        return 0


def _estimates(data: Data, members: Rows | None) -> Estimates:
    losses = -log_densities(data.reference, data.densities)
    return Estimates(*row_means(losses, np.zeros(len(losses), dtype=np.intp), np.ones(1), members))


# Rows at which log densities and scores of two models are compared, and the most models that are.
_ROWS, _MODELS = 1000, 20
# The part of the rows left out at either end: rare rows between two modes have slopes that KSD does not notice.
_TAIL = 0.02
# Log densities differ if by this many nats, and slopes do not if they explain only this part of that. Of smooth
# densities on one cluster of rows they explain at least a tenth, heavy tails included.
_NATS, _PART = 0.1, 0.05
_MOST_PAIRS = 3


def unseen_heights(densities: Mapping[str, Density], reference: Array | LazyRows) -> tuple[str, ...]:
    """A note on models whose log densities differ where the data are, while their scores, all that KSD sees, do not.

    f = log p_i − log p_j varies by about ‖∇f‖ times the width of the data where the rows hang together. Where they do
    not, as in separated modes to which the models give other weights, it can vary without any slope at the rows.

    >>> from relfit.data.adapters.scipy_sklearn import gaussian_mixture
    >>> means, roots = np.array([[-4.0], [4.0]]), np.ones((2, 1, 1))
    >>> models = {f"{w}": gaussian_mixture(np.array([w, 1.0 - w]), means, roots) for w in (0.5, 0.65)}
    >>> x = np.random.default_rng(0).normal(size=(400, 1)) + np.repeat([[-4.0], [4.0]], 200, axis=0)
    >>> unseen_heights(models, x)[0][:75]
    "KSD does not see how '0.5' and '0.65' differ: where the data are, their log d"
    """
    rows = np.asarray(reference[:: max(1, -(-len(reference) // _ROWS))])
    chosen = {name: density for name, density in densities.items() if density.log_prob is not None}
    names = list(chosen)[:_MODELS]
    if len(names) < 2:
        return ()
    log_probs = {name: chosen[name].log_probs(rows).astype(np.float64) for name in names}
    scores = {name: chosen[name].scores(rows) for name in names}
    width = float(np.linalg.norm(_spread(rows)))
    pairs = []
    for a, b in combinations(names, 2):
        apart = float(_spread(log_probs[a] - log_probs[b]))
        slopes = np.linalg.norm(scores[a] - scores[b], axis=1)
        slope = float(np.sqrt(np.square(slopes[slopes <= np.quantile(slopes, 1.0 - _TAIL)]).mean()))
        if apart >= _NATS and slope * width <= _PART * apart:
            pairs.append((a, b, apart))
    if not pairs:
        return ()
    shown = "; ".join(f"{listed([a, b], quote=repr)}" for a, b, _ in pairs[:_MOST_PAIRS])
    more = f" (and {len(pairs) - _MOST_PAIRS} more pairs)" if len(pairs) > _MOST_PAIRS else ""
    return (
        f"KSD does not see how {shown}{more} differ: where the data are, their log densities differ by about "
        f"{max(apart for *_, apart in pairs):.2g} nats and their slopes do not, as with other weights of separated "
        'modes; compare them by discrepancy="loglik" too, if they are normalised',
    )


def _spread(values: Array) -> Array:
    """Half the distance between the outer quantiles of each column."""
    low, high = np.quantile(values, [_TAIL, 1.0 - _TAIL], axis=0)
    return np.asarray((high - low) / 2.0)
