"""RelMulti: some of the rows select the best model, and the other rows test every other
model against it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtr, ndtri

from relfit.stats.decision import Decision, decided_against, gaps_to, lowest, sign_condition
from relfit.stats.joint import JointEstimate
from relfit.stats.tests.base import FALSE_POSITIVE_RATE, Criteria, Test, Trials, Words
from relfit.util.arrays import Array, Rows
from relfit.util.checks import Fraction, described, option

_AUTO_NOTES = {
    "bh": "Benjamini–Hochberg, because no two differences to the selected model are "
    "negatively correlated",
    "by": "Benjamini–Yekutieli, because some differences to the selected model are negatively "
    "correlated",
}


@described
@dataclass(frozen=True)
class RelMulti(Test):
    """RelMulti of Lim, Yamada, Schölkopf and Jitkrittum (2019): data splitting.

    A random fraction of the rows selects the model with the smallest estimate; the other
    rows test every other model against it. With its default correction (Benjamini–Yekutieli)
    it controls the false discovery rate.
    """

    select_fraction: float = option(
        0.25,
        Fraction(),
        "the fraction of the rows that selects the best model",
        flag="--select-fraction FRACTION",
    )

    name = "relmulti"
    words = Words(
        name="RelMulti",
        question=(
            "A random {fraction} of the rows selected a model. On the other rows every other model "
            "was tested for being no worse than the selected one."
        ),
        error=FALSE_POSITIVE_RATE,
        methods=(
            "A random {fraction} of the rows selected the model with the smallest "
            "discrepancy; on the other rows we "
            "tested for each other model the one-sided hypothesis that it is no worse{margin} "
            "than the selected one "
            "(RelMulti [lim2019kernel])."
        ),
        lead="{best} was selected on {fraction} of the rows",
        rows="for testing",
        line="-.",
    )
    default_correction = "by"
    auto_correction = "auto"
    selects = True
    both_parts = True

    @property
    def split(self) -> float:  # type: ignore[override]
        return self.select_fraction

    def decide(
        self, joint: JointEstimate, criteria: Criteria, selection: JointEstimate | None = None
    ) -> Decision:
        """The verdicts of RelMulti.

        J = argmin of the D of the selecting rows; for each i ≠ J a one-sided z test of ``D_i
        ≤ D_J + δ`` on the testing rows, whose l − 1 p-values are adjusted.
        """
        # The pipeline splits the rows for a test that asks for it.
        assert selection is not None  # noqa: S101
        selected, tied = lowest(selection.values, np.diag(selection.covariance))
        best = int(selected)
        margin = criteria.margin
        gaps = gaps_to(joint, best)
        decision = decided_against(
            *(
                gaps,
                best,
                gaps.z_log_pvalues(margin)[0],
                gaps.z_log_equivalence(margin)[0] if margin else None,
            ),
            alpha=criteria.alpha,
            correction=self.resolved_correction(criteria.correction, joint.covariance, best),
            tied=tied,
        )
        reason = _AUTO_NOTES.get(decision.correction)
        noted = criteria.correction == "auto" and reason
        return replace(decision, notes=(f'correction="auto": {reason}',)) if noted else decision

    def log_pvalues(
        self, trials: Trials, models: list[int], alpha: float, *, exact: bool
    ) -> tuple[Rows, Array]:
        best = np.argmin(trials.selection(), axis=1)
        return best, trials.covariances.gaps(trials.values, best).z_log_pvalues()[:, models]

    def two_model_power(self, signal: float, alpha: float, correction: str) -> float:
        """Φ(√(1−ρ) r) Φ(√ρ r − z_{1−α}): the better model is selected, and a fraction ρ of
        the rows finds the other.
        """
        selected = ndtr(math.sqrt(self.select_fraction) * signal)
        return float(
            selected * ndtr(math.sqrt(1.0 - self.select_fraction) * signal + ndtri(alpha))
        )

    @classmethod
    def resolved_correction(cls, correction: str, covariance: Array, best: int) -> str:
        """The correction that is really applied: "auto" is BH where its sign condition
        holds, otherwise BY.
        """
        used = super().resolved_correction(correction, covariance, best)
        return used if used != "auto" else "bh" if sign_condition(covariance, best) else "by"
