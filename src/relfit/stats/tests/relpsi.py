"""RelPSI: select the best model and test every other one against it, given the selection.

*The root form.* The first-order variance of an estimated squared distance is in proportion to
it, so that a model whose D̂ is low by chance has a low estimated variance, too. That of √D̂ does
not follow it: Cov(√D̂_i, √D̂_j) ≈ V_ij/(4 √(D_i D_j)). `RelPSI(scale="root")` computes standard
errors and truncation limits for √D̂, and multiplies those of model i by the slope
(D̂_i − D̂_J)/(√D̂_i − √D̂_J), so that differences, margins and bounds stay those of D. Below m, two
typical standard errors, the root is replaced by its tangent at m, and V by the covariance that
counts the first- and second-order terms once each (`relfit.stats.close`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtr, ndtri

from relfit.stats.decision import (
    Decision,
    Gaps,
    decided_against,
    gaps_to,
    lowest,
    selective_log_equivalence,
)
from relfit.stats.joint import JointEstimate
from relfit.stats.tests.base import (
    FALSE_POSITIVE_RATE,
    SAME_ROWS,
    SELECTIVE,
    Criteria,
    Test,
    Trials,
    Words,
)
from relfit.stats.tests.unlike import unlike_notes
from relfit.stats.truncnorm import selective_log_pvalue
from relfit.util.arrays import Array, Mask, Rows
from relfit.util.checks import Choice, described, option
from relfit.util.errors import InputError
from relfit.util.text import listed

# Smaller than the square of any standard error.
_SMALLEST = 1e-300
# A model this many standard errors above the best that is not declared worse is masked by a
# near tie.
MASKED_ERRORS = 4.0
# With 10 samples RelPSI keeps its level, with 50 it does not (docs/evidence/calibration/).
MANY_SAMPLES = 20
# Numbers that one step over several trials works on.
_NUMBERS = 1_000_000
# The root form takes tangents for estimates of fewer standard errors.
_CLOSE_ERRORS = 2.0
# Measures that are no squared distances.
_NO_DISTANCE = ("loss", "elpd", "loglik")


@described
@dataclass(frozen=True)
class RelPSI(Test):
    """RelPSI of Lim, Yamada, Schölkopf and Jitkrittum (2019): post-selection inference.

    Selects the model with the smallest estimate, and tests every other one given that
    selection. It controls the false positive rate among the models that are as good as the
    selected one.
    """

    scale: str = option(
        "published",
        Choice(("published", "root")),
        "published: the estimates as in the paper; root: their square roots, for models that "
        "differ from the data in different ways",
        flag="--test-scale",
    )

    name = "relpsi"
    words = Words(
        name="RelPSI",
        question=(
            "The model with the {smallest} value was selected, and every other model was tested "
            f"for being no worse than that one. {SAME_ROWS}"
        ),
        error=FALSE_POSITIVE_RATE,
        methods=(
            "The model with the {smallest} value was selected, and for each other model we "
            "tested the hypothesis that "
            "it is no worse{margin} than the selected one, conditionally on that selection "
            "(RelPSI [lim2019kernel]), "
            "with p-values from a truncated normal distribution [lee2016exact]."
        ),
        line=":",
        **SELECTIVE,
    )

    def decide(
        self, joint: JointEstimate, criteria: Criteria, selection: JointEstimate | None = None
    ) -> Decision:
        """The verdicts of RelPSI.

        J = argmin D. For each i, ``t = D_i − D_J`` is, given that J was selected, a normal
        variable truncated to [V⁻, V⁺]; ``p = P(N(δ, s²) > t | V⁻, V⁺)`` with the mean at the
        least favourable value of "D_i − D_J ≤ δ".
        """
        selected, tied = lowest(joint.values, np.diag(joint.covariance))
        best = int(selected)
        margin = criteria.margin
        gaps = gaps_to(joint, best)
        tested = np.flatnonzero(~gaps.constant[0]).tolist()
        if self.scale == "root":
            roots, slopes = _roots(joint, gaps)
            lower, upper = _limits(roots, tied[None], tested) * slopes[:, tested]
            gaps = self.gaps(joint, best)
        else:
            lower, upper = _limits(gaps, tied[None], tested)
        limits = np.tile([-math.inf, math.inf], (len(joint.names), 1))
        limits[tested] = np.stack([lower[0], upper[0]], axis=1)
        log_pvalue = gaps.known_log_pvalues(margin)[0]
        log_equivalence = None
        log_pvalue[tested] = _log_pvalues(gaps, tested, lower, upper, margin)[0]
        if margin:
            t = gaps.gap[:, tested]
            s = gaps.error[:, tested]
            log_equivalence = gaps.known_log_equivalence(margin)[0]
            log_equivalence[tested] = selective_log_equivalence(t, s, lower, upper, margin)[0]
        decision = decided_against(
            *(gaps, best, log_pvalue, log_equivalence),
            alpha=criteria.alpha,
            # The sign condition of BH is about untruncated differences; BY holds whatever their
            # dependence.
            correction=self.resolved_correction(criteria.correction, joint.covariance, best),
            tied=tied | (limits[:, 0] == limits[:, 1]),
            truncation=limits,
        )
        unlike = unlike_notes(joint, best, self.name) if self.scale == "published" else ()
        return replace(decision, notes=(*_notes(joint, decision, margin), *unlike))

    def prepared(self, joint: JointEstimate) -> JointEstimate:
        law = joint.close
        plain = super().prepared(joint)
        if self.scale == "published" or law is None:
            return plain
        variance = np.diag(joint.covariance)
        once = np.diag(law.covariance(joint.values))
        counted = np.where(variance > 0.0, once / np.where(variance > 0.0, variance, 1.0), 1.0)
        close = joint.values < _tangent(joint)
        part = np.sqrt(np.where(close, counted, 1.0))
        return replace(plain, covariance=joint.covariance * np.outer(part, part))

    def gaps(self, joint: JointEstimate, best: int) -> Gaps:
        gaps = super().gaps(joint, best)
        if self.scale == "published":
            return gaps
        roots, slopes = _roots(joint, gaps)
        return replace(gaps, error=np.where(gaps.constant, 0.0, roots.error * slopes))

    def log_pvalues(
        self, trials: Trials, models: list[int], alpha: float, *, exact: bool
    ) -> tuple[Rows, Array]:
        if self.scale == "root":
            return self._root_log_pvalues(trials, models, alpha)
        best, tied = lowest(trials.values, trials.covariances.variance)
        gaps = trials.covariances.gaps(trials.values, best)
        size = max(1, _NUMBERS // trials.values.size)
        parts = [models[start : start + size] for start in range(0, len(models), size)]
        return best, np.hstack(
            [_log_pvalues(gaps, part, *_limits(gaps, tied, part), 0.0) for part in parts]
        )

    def _root_log_pvalues(
        self, trials: Trials, models: list[int], alpha: float
    ) -> tuple[Rows, Array]:
        """As `log_pvalues`, one trial after the other: every one has its own covariance."""
        count = trials.values.shape[1]
        names = tuple(map(str, range(count)))
        matrices = trials.covariances.rows(list(range(count)))
        shape = (len(trials.values), *matrices.shape[1:])
        decisions = [
            self.decide(JointEstimate(names, values, covariance), Criteria(alpha))
            for values, covariance in zip(
                trials.values, np.broadcast_to(matrices, shape), strict=True
            )
        ]
        best = np.array([decision.best for decision in decisions])
        return best, np.stack([decision.log_pvalue[models] for decision in decisions])

    def two_model_power(self, signal: float, alpha: float, correction: str) -> float:
        """Φ(r − z_{1−α/2}): given the selection the difference is half-normal, as in a
        two-sided test.
        """
        return float(ndtr(signal + ndtri(alpha / 2.0)))


def _tangent(joint: JointEstimate) -> float:
    """The estimate m below which the root is replaced by its tangent."""
    return max(_CLOSE_ERRORS * float(np.median(joint.standard_error)), _SMALLEST)


def _roots(joint: JointEstimate, gaps: Gaps) -> tuple[Gaps, Array]:
    """The differences √D_k − √D_J with their covariances, and (1, l) by how much to multiply
    them for the differences D_k − D_J.
    """
    if joint.measure in _NO_DISTANCE:
        raise InputError(
            'test: RelPSI(scale="root") needs squared distances such as MMD² or KSD², got '
            f'{joint.measure!r}; use test="relpsi"'
        )
    least = _tangent(joint)
    base = np.maximum(joint.values, least)
    roots = np.sqrt(base) + np.minimum(joint.values - least, 0.0) / (2.0 * math.sqrt(least))
    slope = 1.0 / (2.0 * np.sqrt(base))
    best = int(np.argmin(joint.values))
    scaled = replace(
        joint,
        values=roots,
        covariance=joint.covariance * np.outer(slope, slope),
        psi=None,
        close=None,
    )
    found = gaps_to(scaled, best)
    found = replace(found, error=np.where(gaps.constant, 0.0, found.error))
    times = np.divide(gaps.gap, found.gap, out=np.zeros_like(gaps.gap), where=found.gap != 0.0)
    # Of nearly equal values the quotient is rounding: it lies between the slopes at both.
    root = np.sqrt(base)
    smaller = 2.0 * np.minimum(root, root[best])
    larger = 2.0 * np.maximum(root, root[best])
    return found, np.clip(times, smaller, larger)


def _limits(gaps: Gaps, tied: Mask, models: list[int]) -> tuple[Array, Array]:
    """(trials, models) truncation limits V⁻ and V⁺ of t = D_i − D_J, J = argmin D; `tied`
    (trials, l) are tied with J.

    Given N = D − c t with c = Vη/s², which is independent of t, J is selected where ``D_k −
    D_J ≥ 0`` for all k, which bounds t by ``t − (D_k − D_J)/d_k`` from below (slope d_k > 0)
    and from above (d_k < 0). Model i itself has d_i = 1, so V⁻ ≥ 0. A model tied with J
    would set V⁺ = t, and a tie is no evidence against i: it does not count for V⁺.
    """
    t = gaps.gap[:, models]
    gap = gaps.gap[:, None]
    slope = gaps.slopes(models)
    shape = np.broadcast_shapes(gap.shape, slope.shape)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        rising = np.divide(gap, slope, out=np.full(shape, math.inf), where=slope > 0.0).min(
            axis=2, initial=math.inf
        )
        falling = np.full(t.shape, -math.inf)
        counted = (slope < 0.0) & ~tied[:, None]
        if counted.any():
            falling = np.divide(gap, slope, out=np.full(shape, -math.inf), where=counted).max(
                axis=2
            )
    return np.minimum(t - rising, t), np.maximum(t - falling, t)


def _log_pvalues(
    gaps: Gaps, models: list[int], lower: Array, upper: Array, margin: float
) -> Array:
    """(trials, models) log p given the limits; constant differences are decided by their
    values.
    """
    t = gaps.gap[:, models]
    s = gaps.error[:, models]
    varies = np.broadcast_to(s > 0.0, t.shape)
    log_pvalue = gaps.known_log_pvalues(margin)[:, models]
    t, s, lower, upper = (
        np.broadcast_to(array, varies.shape)[varies] for array in (t, s, lower, upper)
    )
    log_pvalue[varies] = selective_log_pvalue(t - margin, s, lower - margin, upper - margin)
    return log_pvalue


def _notes(joint: JointEstimate, decision: Decision, margin: float) -> tuple[str, ...]:
    """Notes where a tie or near tie for the best, and not the data, decides p-values; and
    about many samples.
    """
    notes = []
    count = len(joint.names)
    gaps = gaps_to(joint, decision.best)
    tied = lowest(joint.values, np.diag(joint.covariance))[1]
    gap = gaps.gap[0]
    error = gaps.error[0]
    constant = gaps.constant[0]
    level = [k for k in np.flatnonzero(tied).tolist() if k == decision.best or not constant[k]]
    masked = np.flatnonzero(
        ~decision.worse & (gap - margin > MASKED_ERRORS * error) & (error > 0.0)
    ).tolist()
    if len(level) > 1 and not (tied | constant).all():
        notes.append(
            f"{listed([joint.names[k] for k in level])} are tied to the last digit; given "
            f"such a tie, relpsi has no "
            'power against the other models: use test="best-set", or leave one of them out'
        )
    elif masked:
        are, them = ("is", "it") if len(masked) == 1 else ("are", "them")
        notes.append(
            f"{listed([joint.names[k] for k in masked])} {are} more than {MASKED_ERRORS:g} "
            f"standard errors above "
            f"{joint.names[decision.best]!r}{' and the margin' if margin else ''}, but relpsi "
            f"cannot call {them} "
            'worse, because another model is nearly tied with the best; test="best-set" does '
            "not have this weakness"
        )
    if joint.psi is not None and joint.psi.models and count > MANY_SAMPLES:
        notes.append(
            f"relpsi selects among {count} samples, where its error rate can exceed alpha "
            f"slightly (simulated: 0.064 "
            'instead of 0.05 with 50 tied models); test="best-set" keeps it'
        )
    return tuple(notes)
