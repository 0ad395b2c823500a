"""The log-likelihood as a discrepancy: the mean of −log p over the reference rows, a loss for each row."""

from __future__ import annotations

import numpy as np

from relfit.data.likelihoods import log_densities
from relfit.data.load import Data
from relfit.estimators import base
from relfit.estimators.base import Dependence, Estimates, EstimateSettings, Estimator, PairSource
from relfit.estimators.losses import row_means
from relfit.util.arrays import Rows
from relfit.util.errors import InputError


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


def _estimates(data: Data, members: Rows | None) -> Estimates:
    losses = -log_densities(data.reference, data.densities)
    values, psi, _ = row_means(losses, np.zeros(len(losses), dtype=np.intp), np.ones(1), members)
    return Estimates(values, psi)
