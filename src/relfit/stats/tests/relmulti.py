"""RelMulti: some of the rows select the best model, and the other rows test every other model against it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri

from relfit.stats.decision import (
    Covariances,
    Decision,
    adjust_others,
    constant_word,
    equivalent_to,
    known_log_equivalence,
    lowest,
    sign_condition,
)
from relfit.stats.joint import JointEstimate
from relfit.stats.tests.base import Test, Trials
from relfit.stats.tests.relpsi import selective_bounds
from relfit.util.arrays import Array, Rows
from relfit.util.checks import check_fraction


@dataclass(frozen=True)
class RelMulti(Test):
    """RelMulti of Lim, Yamada, Schölkopf and Jitkrittum (2019): data splitting.

    A random fraction of the rows selects the model with the smallest estimate; the other rows test every other model
    against it. With its default correction (Benjamini–Yekutieli) it controls the false discovery rate.

    Args:
        select_fraction: the fraction of the rows that selects.
    """

    select_fraction: float = 0.25

    name: ClassVar[str] = "relmulti"
    default_correction: ClassVar[str] = "by"
    selects: ClassVar[bool] = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "select_fraction", check_fraction(self.select_fraction))

    @property
    def split(self) -> float:  # type: ignore[override]
        return self.select_fraction

    def decide(
        self,
        joint: JointEstimate,
        *,
        alpha: float,
        correction: str,
        margin: float = 0.0,
        seed: int = 0,
        selection: JointEstimate | None = None,
    ) -> Decision:
        assert selection is not None  # noqa: S101  (the pipeline splits the rows for a test that asks for it)
        decision = relmulti(selection, joint, alpha, correction, margin=margin)
        reason = _AUTO_NOTES.get(decision.correction)
        return replace(decision, notes=(reason,)) if correction == "auto" and reason else decision

    def bounds(
        self, joint: JointEstimate, level: float, *, best: int, truncation: Array | None, seed: int
    ) -> tuple[Array, Array]:
        return selective_bounds(joint, level, best, None)

    def log_pvalues(self, trials: Trials, models: Sequence[int], alpha: float, *, exact: bool) -> tuple[Rows, Array]:
        best = np.argmin(trials.selection(), axis=1)
        return best, _log_pvalues(trials.values, trials.covariances, best, 0.0)[0][:, list(models)]

    def two_model_power(self, signal: float, alpha: float, correction: str) -> float:
        """Φ(√(1−ρ) r) Φ(√ρ r − z_{1−α}): the better model is selected, and the test finds the other; ρ tests."""
        chosen = ndtr(math.sqrt(self.select_fraction) * signal)
        return float(chosen * ndtr(math.sqrt(1.0 - self.select_fraction) * signal + ndtri(alpha)))

    def resolved_correction(self, correction: str, covariance: Array, best: int) -> str:
        """The correction that is really applied: "auto" is BH where its sign condition holds, otherwise BY."""
        if correction == "auto" and len(covariance) > 2:
            return "bh" if sign_condition(covariance, best) else "by"
        return super().resolved_correction(correction, covariance, best)


_AUTO_NOTES = {
    "bh": 'correction="auto": Benjamini–Hochberg, because no two differences to the selected model are negatively '
    "correlated",
    "by": 'correction="auto": Benjamini–Yekutieli, because some differences to the selected model are negatively '
    "correlated",
}


def relmulti(
    selection: JointEstimate, testing: JointEstimate, alpha: float, correction: str = "by", *, margin: float = 0.0
) -> Decision:
    """The verdicts of RelMulti.

    J = argmin of the D of the selecting rows; for each i ≠ J a one-sided z test of ``D_i ≤ D_J + δ`` on the testing
    rows, δ = `margin`, whose l − 1 p-values are adjusted.
    """
    first, tied = lowest(selection.values, np.diag(selection.covariance))
    best = int(first)
    covariances = Covariances(testing.covariance)
    log_p, log_equivalence = (
        each[0] for each in _log_pvalues(testing.values[None], covariances, np.array([best]), margin)
    )
    against = covariances.against(best)
    gap, rounding = testing.values - testing.values[best], against.rounding[0]
    status: list[tuple[str, ...]] = [("tie",) if tie else () for tie in tied]
    for i in np.flatnonzero(against.constant[0]).tolist():
        if i != best:
            status[i] = (*status[i], constant_word(float(gap[i]), float(rounding[i])))
            log_equivalence[i] = known_log_equivalence(float(gap[i]), margin)
    used = RelMulti().resolved_correction(correction, testing.covariance, best)
    adjusted = adjust_others(np.exp(log_p), best, used)
    worse = adjusted <= alpha
    worse[best] = False
    equivalent = equivalent_to(best, log_equivalence, alpha, used) if margin else None
    return Decision(best, log_p, adjusted, worse, tuple(status), used, equivalent=equivalent)


def _log_pvalues(values: Array, covariances: Covariances, best: Rows, margin: float) -> tuple[Array, Array]:
    """(trials, l) log p of the z tests against J, and of their twins, which show equivalence; 0 for J itself."""
    against = covariances.against(best)
    gap, s = values - np.take_along_axis(values, best[:, None], axis=1), against.error
    varies = np.broadcast_to(s > 0.0, gap.shape)
    z = (gap - margin) / np.where(s > 0.0, s, 1.0)
    log_p = np.where(varies, log_ndtr(-z), 0.0)
    for k in np.flatnonzero(~varies.all(axis=0)).tolist():
        log_p[:, k] = np.where(varies[:, k], log_p[:, k], against.certain(gap[:, k], k, margin))
    np.put_along_axis(log_p, best[:, None], 0.0, axis=1)
    return log_p, np.where(varies, log_ndtr(z), 0.0)
