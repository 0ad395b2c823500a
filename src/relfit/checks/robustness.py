"""Does a verdict depend on the kernel's bandwidth, or on the seed of a test that selects the
best model at random?
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtr

from relfit.checks.base import Compared, Findings
from relfit.compute.backend import NearbyBackend, NumpyBackend, SharedSums
from relfit.data.load import Data
from relfit.data.models import Density
from relfit.estimators import joint_estimate
from relfit.estimators.base import Complete, EstimateSettings, complete_seconds, pair_count
from relfit.estimators.groups import split
from relfit.kernels.base import Kernel, ScaledKernel, Sum, check_positive
from relfit.kernels.composite import Tilted
from relfit.results.scale import (
    INCONCLUSIVE,
    SIGNIFICANTLY_WORSE,
    by_margin,
    is_worse,
    kind_of,
    scale_of,
)
from relfit.results.verdicts import words_of
from relfit.settings.resolve import Plan
from relfit.stats.decision import Decision, difference_variance, differences
from relfit.stats.joint import JointEstimate
from relfit.stats.maxt import covariance_root, normal_draws, seeded, streams
from relfit.stats.tests.base import Criteria, Test
from relfit.stats.tests.carve import GAMMA
from relfit.util.arrays import Array, Mask
from relfit.util.errors import RelfitError
from relfit.util.libraries import usable_cores
from relfit.util.text import listed, quoted

# The multiples of the bandwidth in which a verdict should stay what it is, in words.
NEAR = {0.5: "half", 2.0: "twice"}
# Columns from which on the report computes distances once for all bandwidths: they cost more
# than kernel values do.
SHARED_COLUMNS = 128
# The longest that all pairs of rows may take one core, in seconds. It does not depend on the
# machine's cores.
LONGEST = 2.0
# P-values at another bandwidth are approximated where they differ from the level by this factor.
LEEWAY = 3.0
# The most models that the note names.
_MOST_NAMES = 4
# Draws of a random selection, and the probability of another model from which on the reader is
# told.
_DRAWS = 500
_OFTEN = 0.1


@dataclass(frozen=True)
class Sensitivity:
    """The comparison repeated with the kernel's length multiplied by each factor.

    Attributes:
        factors, lengths: the multiples, and the lengths they give.
        results: the estimate and the verdicts of the distinct models for each.
        copies: the name of every copy, and the model that it is a copy of.
        test: the name of the test.
    """

    factors: tuple[float, ...]
    lengths: tuple[float, ...]
    results: tuple[tuple[JointEstimate, Decision], ...]
    copies: Mapping[str, str]
    test: str

    def verdicts(self, name: str) -> tuple[str, ...]:
        """For every factor the verdict on this model."""
        i = self._index(name)
        return tuple(words_of(decision, self.test)[i] for _, decision in self.results)

    def kinds(self, name: str) -> tuple[str, ...]:
        """For every factor the kind of its verdict."""
        return tuple(map(kind_of, self.verdicts(name)))

    def ratios(self, name: str) -> tuple[float, ...]:
        """For every factor the model's difference to the best over its standard error; 0
        where it has none.
        """
        i = self._index(name)
        ratios = []
        for joint, decision in self.results:
            error = difference_variance(joint.covariance, i, decision.best) ** 0.5
            difference = float(joint.values[i] - joint.values[decision.best])
            ratios.append(difference / error if error > 0.0 else 0.0)
        return tuple(ratios)

    def changed(self) -> list[str]:
        """The models whose verdict is not the same from half the length to twice it."""
        near = [k for k, factor in enumerate(self.factors) if min(NEAR) <= factor <= max(NEAR)]
        changing = []
        for name in (*self.results[0][0].names, *self.copies):
            verdicts = self.verdicts(name)
            if len({is_worse(verdicts[k]) for k in near}) > 1:
                changing.append(name)
        return changing

    def remark(self, name: str) -> str | None:
        """What the verdict becomes at half or twice the bandwidth, where it changes;
        otherwise None.
        """
        verdicts = dict(zip(self.factors, self.verdicts(name), strict=True))
        return remark(verdicts[1.0], {factor: verdicts[factor] for factor in NEAR})

    def _index(self, name: str) -> int:
        return self.results[0][0].names.index(self.copies.get(name, name))


def remark(used: str, others: Mapping[float, str]) -> str | None:
    """What a verdict becomes at other multiples of the bandwidth, where it changes;
    otherwise None.

    >>> remark("inconclusive", {0.5: "best observed", 2.0: "significantly worse"})
    'significantly worse at twice the bandwidth'
    """
    differ = {
        NEAR[factor]: _said(verdict)
        for factor, verdict in others.items()
        if is_worse(verdict) != is_worse(used)
    }
    if len(differ) == len(NEAR):
        return f"{differ['half']} at half and twice the bandwidth"
    return (
        ", ".join(f"{verdict} at {word} the bandwidth" for word, verdict in differ.items())
        or None
    )


def _said(verdict: str) -> str:
    """The verdict in a sentence "the model is …"; which of several models is best observed
    changes easily, so that this is inconclusive.
    """
    return verdict if is_worse(verdict) else INCONCLUSIVE.shown


# ── the check of every comparison ─────────────────────────────────────────────────────────────


def check_bandwidth(compared: Compared) -> Findings:
    """A note, and the field `robust_to_bandwidth`, on verdicts that change at half or twice
    the bandwidth.
    """
    plan = compared.plan
    criteria = compared.criteria
    # A margin is in the units of the discrepancy with this bandwidth.
    if criteria.margin or not is_affordable(plan):
        return Findings()
    try:
        joints = near_estimates(compared.kept or plan)
        selecting = compared.selecting
        selections = [None] * len(NEAR) if selecting is None else near_estimates(selecting)
        others = [
            _near_worse(compared, compared.test.prepared(joint), selection)
            for joint, selection in zip(joints, selections, strict=True)
        ]
    except RelfitError:
        return Findings()
    decision = compared.decision
    worse = scale_of(type(compared.test), decision.correction, len(decision.worse)).worse.shown
    worse = worse.format(**by_margin(criteria.margin))
    used = words_of(decision, compared.test.name)
    found = {}
    for i, name in enumerate(plan.data.models):
        near = {
            factor: worse if each[i] else INCONCLUSIVE.shown
            for factor, each in zip(NEAR, others, strict=True)
        }
        text = remark(used[i], near)
        if text is not None:
            found[name] = text
    robust = tuple(original not in found for original in plan.originals.values())
    return Findings(_notes(plan, found), fields={"robust_to_bandwidth": robust})


def _near_worse(
    compared: Compared, joint: JointEstimate, selection: JointEstimate | None
) -> Mask:
    """(l,) the models that are worse at another bandwidth."""
    test = compared.test
    criteria = compared.criteria
    if test.tests_best and test.draws:
        worse = worse_without_draws(compared.joint, compared.decision, joint, criteria)
        if worse is not None:
            return worse
    few = replace(criteria, draws_on=False)
    return test.decide(joint, few, selection).worse


def worse_without_draws(
    joint: JointEstimate, decision: Decision, near: JointEstimate, criteria: Criteria
) -> Mask | None:
    """The models that the best set finds worse from an estimate with another bandwidth, from
    the p-values of the decision; None where a p-value is too near the level for that.

    The p-value of T, a model's largest ratio of a difference to its standard error, lies
    between Φ(−T) and so many times that as there are hypotheses. How many times it is is
    known from the decision, and hardly depends on the bandwidth. It must differ from the
    level by a factor of `LEEWAY`.
    """
    own = _tails(joint, criteria.margin)
    other = _tails(near, criteria.margin)
    hypotheses = len(own) ** 2
    known = decision.adjusted_pvalue
    times = np.divide(known, own, out=np.full(len(own), float(hypotheses)), where=own > 0.0)
    pvalue = np.minimum(np.clip(times, 1.0, hypotheses) * other, 1.0)
    strict = pvalue <= criteria.alpha / LEEWAY
    lenient = pvalue <= criteria.alpha * LEEWAY
    return strict if np.array_equal(strict, lenient) else None


def _tails(joint: JointEstimate, margin: float) -> Array:
    """(l,) Φ(−T), T being each model's largest ratio of a difference, less the margin, to
    its standard error.
    """
    return np.asarray(ndtr(-differences(joint, margin).ratio.max(axis=1, initial=-math.inf)))


def pair_findings(plan: Plan, worse: bool, decide: Callable[[JointEstimate], bool]) -> Findings:
    """The same for a fixed pair: `decide` says whether the first model is worse, from an
    estimate.
    """
    if not is_affordable(plan):
        return Findings()
    try:
        verdicts = [decide(joint) for joint in near_estimates(plan)]
    except RelfitError:
        return Findings()
    near = zip(verdicts, NEAR.values(), strict=True)
    changing = [word for verdict, word in near if verdict != worse]
    said = INCONCLUSIVE.shown if worse else SIGNIFICANTLY_WORSE.name
    texts = sorted(f"{said} at {word} the bandwidth" for word in changing)
    found = {plan.data.names[0]: ", ".join(texts)} if texts else {}
    return Findings(_notes(plan, found), fields={"robust_to_bandwidth": not found})


def _notes(plan: Plan, found: Mapping[str, str]) -> tuple[str, ...]:
    """One sentence on the verdicts that change."""
    held_out = plan.estimate.dependence != "chain" and plan.estimate.groups is None
    return (bandwidth_note(found, held_out=held_out),) if found else ()


def bandwidth_note(found: Mapping[str, str], *, held_out: bool, rows: int | None = None) -> str:
    """The sentence on the verdicts that change, from so many rows of each sample; None is
    all of them.
    """
    changing: dict[str, list[str]] = {}
    for name, text in list(found.items())[:_MOST_NAMES]:
        changing.setdefault(text, []).append(name)
    shown = [
        f"{listed(names)} {'is' if len(names) == 1 else 'are'} {text}"
        for text, names in changing.items()
    ]
    if len(found) > _MOST_NAMES:
        shown.append(f"{len(found) - _MOST_NAMES} more verdicts change")
    whose = "verdict" if len(found) == 1 else "verdicts"
    how = 'on held-out rows (kernel="select")' if held_out else "on other data"
    where = "" if rows is None else f"by {rows:,} rows of each sample, "
    return (
        f"{where}{', '.join(shown)}, so the {whose} may hold for this kernel only; choose the "
        f"bandwidth before the comparison, or {how}"
    )


def is_affordable(plan: Plan) -> bool:
    """True if other bandwidths can be tried, and all pairs of rows take one core two seconds
    at most.
    """
    data = plan.data
    estimate = plan.estimate
    at_locations = plan.at_locations is not None or estimate.locations is not None
    if at_locations or not isinstance(estimate.estimator, Complete):
        return False
    if data.without_kernel or scaled(estimate.kernel, 1.0) is None:
        return False
    pairs = pair_count(len(data.reference), [len(x) for x in data.samples.values()])
    columns = int(data.reference.shape[1])
    seconds = complete_seconds(pairs, columns, plan.kind.right_hand_sides(data))
    return seconds * usable_cores() <= LONGEST


def near_estimates(plan: Plan) -> list[JointEstimate]:
    """The estimates at half and at twice the bandwidth, in single precision where that is
    exact enough.
    """
    data = plan.data
    runtime = plan.estimate.runtime.in_this_process()
    on_host = data.device is None
    if on_host:
        runtime = replace(runtime, backend=NumpyBackend("single"))
    estimate = replace(plan.estimate, runtime=runtime)
    return estimates_at(data, estimate, _at_lengths(estimate.kernel, NEAR), shared=on_host)


def estimates_at(
    data: Data, estimate: EstimateSettings, kernels: Sequence[Kernel], *, shared: bool
) -> list[JointEstimate]:
    """The estimate with each of these kernels, which differ in length only.

    The distances are computed once for all of them if they are to be `shared`.
    """
    if shared and estimate.kernel.tilt is None:
        runtime = estimate.runtime
        precision: Any = getattr(runtime.backend, "precision", "double")
        longest_first = sorted(kernels, key=lambda kernel: -kernel.length)
        sums = SharedSums(tuple(longest_first))
        runtime = replace(runtime, backend=NearbyBackend(precision), shared=sums)
        estimate = replace(estimate, runtime=runtime)
    return [joint_estimate(data, replace(estimate, kernel=kernel)) for kernel in kernels]


# ── other bandwidths in full, for the report ──────────────────────────────────────────────────


def sensitivity(
    data: Data,
    estimate: EstimateSettings,
    test: Test,
    criteria: Criteria,
    factors: Sequence[float],
) -> Sensitivity:
    """The same test of these data for several multiples of the kernel's length.

    It shows how far the answer depends on the bandwidth. It is no way to choose one: a
    bandwidth chosen because of what these data say about the models makes the p-values
    wrong.
    """
    kernels = _at_lengths(estimate.kernel, factors)
    shared = data.reference.shape[1] >= SHARED_COLUMNS
    testing = remembering(data)
    selections: list[Any] = [None] * len(kernels)
    if test.split is not None:
        selecting, testing = split(testing, test.split, estimate.dependence, estimate.seed)
        selections = estimates_at(selecting, estimate, kernels, shared=shared)
    joints = [
        test.prepared(joint)
        for joint in estimates_at(testing, estimate, kernels, shared=shared)
    ]
    few = replace(criteria, draws_on=False)
    decided = [test.decide(each, few, by) for each, by in zip(joints, selections, strict=True)]
    lengths = tuple(kernel.length for kernel in kernels)
    results = tuple(zip(joints, decided, strict=True))
    return Sensitivity(tuple(factors), lengths, results, data.copies, test.name)


def _at_lengths(kernel: Kernel, factors: Iterable[float]) -> list[Kernel]:
    """The kernel with its length multiplied by each factor; none where it has no length."""
    found = (scaled(kernel, factor) for factor in factors)
    return [each for each in found if each is not None]


def scaled(kernel: Kernel, factor: float) -> Kernel | None:
    """The kernel with every length multiplied by the factor; None where it has no length.

    >>> from relfit.kernels.standard import Gaussian, IMQ, Polynomial
    >>> (
    ...     scaled(Gaussian(2.0), 0.5),
    ...     scaled(Gaussian(1.0) + IMQ(), 3.0),
    ...     scaled(Polynomial(), 2.0),
    ... )
    (Gaussian(bandwidth=1.0), Sum(terms=(Gaussian(bandwidth=3.0), IMQ(scale=3.0, exponent=-0.5))), None)
    """  # noqa: E501
    check_positive("factors", factor)
    if isinstance(kernel, Sum):
        terms = [scaled(term, factor) for term in kernel.terms]
        known = tuple(term for term in terms if term is not None)
        return Sum(known) if len(known) == len(terms) else None
    if isinstance(kernel, Tilted):
        inner = scaled(kernel.kernel, factor)
        return None if inner is None else replace(kernel, kernel=inner)
    if not isinstance(kernel, ScaledKernel):
        return None
    length = factor * float(getattr(kernel, kernel.length_field))
    changed: dict[str, Any] = {kernel.length_field: length}
    return replace(kernel, **changed)


def with_scores_kept(plan: Plan) -> Plan:
    """The plan that keeps scores and terms of the Stein kernel, if `check_bandwidth` needs
    them again.
    """
    if (
        plan.data.kind == "samples"
        or plan.estimate.folder is not None
        or not is_affordable(plan)
    ):
        return plan
    return replace(plan.estimated_with(kept={}), data=remembering(plan.data))


def remembering(data: Data) -> Data:
    """The data with densities that are asked only once for their scores at the same rows."""
    densities = {name: _remembering(each) for name, each in data.densities.items()}
    target = None if data.target is None else _remembering(data.target)
    return replace(data, models={**data.models, **densities}, target=target)


def _remembering(density: Density) -> Density:
    known: dict[bytes, Array] = {}

    def score(x: Array) -> Array:
        key = np.asarray(x).tobytes()
        if key not in known:
            known[key] = density.scores(x)
        return known[key]

    return Density(score=score, dim=density.dim)


# ── another seed ──────────────────────────────────────────────────────────────────────────────


def check_choice(compared: Compared) -> Findings:
    """A note if another seed would often select another model."""
    test = compared.test
    if not test.randomised:
        return Findings()
    joint = compared.joint
    best = joint.names[compared.decision.best]
    chance = chance_of_another(joint, best, compared.criteria.seed)
    if not is_often(chance):
        return Findings()
    note = (
        f"another seed would select another model than {quoted(best)} with probability about "
        f"{chance:.0%}, because "
        f'test="{test.name}" selects at random: report the seed, or use test="best-set", '
        f"which selects no model"
    )
    return Findings((note,))


def chance_of_another(joint: JointEstimate, best: str, seed: int) -> float:
    """About how often another seed of carving, which adds noise to the estimates, selects
    another model than this one.

    >>> import numpy as np
    >>> chance_of_another(JointEstimate(("a", "b"), [0.0, 9.0], np.eye(2)), "a", 0)
    0.0
    """
    models = streams(seeded(seed, "choice"), joint.values).models
    noise = GAMMA * normal_draws(covariance_root(joint.covariance), models, _DRAWS)
    draws = joint.values[:, None] + noise
    return float((draws.argmin(axis=0) != joint.names.index(best)).mean())


def is_often(chance: float) -> bool:
    """Whether the reader is told about the chance."""
    return chance >= _OFTEN
