"""What in the data could make the verdicts wrong: rows in an order or too close for the kernel,
clusters, lost modes, scores that are no gradients, draws on another scale.

KSD sees slopes of the log density, and hardly sees how much weight separate clusters have.
The notes on the order of items of losses, which are made without a `Plan`, are those of
`relfit.estimators.losses`.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from scipy.spatial.distance import cdist

from relfit.checks.base import Compared, Estimated, Findings
from relfit.data.load import Data
from relfit.data.models import Density
from relfit.estimators import joint_estimate
from relfit.estimators.base import Complete, PairDesign, samples_of
from relfit.estimators.groups import take
from relfit.estimators.kernel import fine_structure
from relfit.estimators.pairkernel import PairKernel
from relfit.kernels.base import Kernel
from relfit.kernels.composite import Collection
from relfit.settings.resolve import Plan
from relfit.stats.decision import difference_variance
from relfit.stats.dependence import (
    DOUBT_INFLATION,
    NOTE_INFLATION,
    STEPS,
    OrderEffect,
    is_sorted,
    order_effect,
)
from relfit.stats.joint import JointEstimate, psi_rows
from relfit.util.arrays import Array, Mask, Rows, host
from relfit.util.text import listed, quoted

# Rows that tell whether a sample is sorted by a column.
_ROWS = 1000
# Rows of each sample that are looked at where the estimate is not of rows in the order given.
_FIRST = 500
# Draws that are examined for lost modes, of each model and of all other models together.
_DRAWS = 200
# Draws of other models are missed by a model if its nearest draw is so many times further away
# than usual neighbours are; so many of them, and such a fraction, make a mode.
_APART = 1.25
_MORE = 0.75
_USUAL = 0.95
_FEWEST = 8
_SMALLEST = 0.03
# Stein's identities at the draws of a mode: the mean score is 0 up to this fraction of the
# scores' spread, and -E s(x)·(x - mean) is the number of columns up to this factor.
_SLOPE = 0.5
_FACTOR = 3.0
# On so many lines from the mode to the model's own draws, evaluated at so many points, log p
# falls by so many nats. The ends are means of so many draws.
_PATHS = 5
_STEPS = 65
_VALLEY = 1.0
_NEAREST = 10
# The least mass of a mode, relative to that where the model's draws are.
_LEAST_MASS = 0.02
# A target is far if every model is so many standard errors from it, and its KSD² is such a part
# of that of draws whose scores all point the same way. The first grows with the number of
# draws, the second does not.
_FAR = 20.0
_FAR_PART = 0.35
_FAR_DRAWS = 100
# Rows at which the Jacobian of a score is looked at, and the asymmetry that counts, as a
# fraction of its size.
_JACOBIANS = 6
_ASYMMETRIC = 1e-3
_LIKELIHOOD = 'discrepancy="loglik"'
# Rows, evenly spaced, that clusters are looked for among. A cluster holds at least this
# fraction of them; fewer are outliers. A gap is at least so many times the usual step between
# neighbours, this quantile of all steps; only so many of the widest gaps are tried.
_CLUSTER_ROWS = 120
_SMALLEST_CLUSTER = 0.05
_WIDE = 4.0
_USUAL_STEP = 0.9
_TRIED = 60


def rows_in_order(estimated: Estimated) -> Findings:
    """A note if rows of the samples depend on the rows before them, and a doubt where they
    do so strongly.

    Of a fixed pair the second model is the one compared with.
    """
    best = estimated.decision.best if isinstance(estimated, Compared) else 1
    plan = estimated.plan
    joint = estimated.joint
    estimate = plan.estimate
    declared = estimate.groups is not None or estimate.dependence == "chain"
    if joint.psi is None or declared or _in_random_blocks(plan, joint):
        return Findings()
    if estimated.given is not plan.data or isinstance(estimate.estimator, PairDesign):
        plan = _of_first_rows(plan, estimated.given)
        effect = _effect_in_order(joint_estimate(plan.data, plan.estimate), joint, best)
    else:
        effect = order_effect(joint.psi, best)
    if effect is None:
        return Findings()
    if _is_sorted(plan, joint, effect):
        effect = replace(effect, fades=False, doubtful=False)
    note = _note(plan, joint, effect, best)
    return Findings((note,), (note,) if effect.doubtful else ())


def _in_random_blocks(plan: Plan, joint: JointEstimate) -> bool:
    """Whether the contributions are those of random blocks or draws, which have no order."""
    own = plan.data.own
    if own is None:
        return False
    return own.resampling == "bootstrap" or (psi_rows(joint) or 0) < _fewest(joint)


def _of_first_rows(plan: Plan, given: Data) -> Plan:
    """The plan for all pairs of the first rows of every sample, in the order given.

    The ψ of a pair design, or of a random part of the rows, are not in that order.
    """
    rows = {
        key: np.arange(min(len(sample), _FIRST)) for key, sample in samples_of(given).items()
    }
    first = replace(plan, data=take(given, {None: np.arange(0), **rows}))
    return first.estimated_with(
        kernel=_first_kernel(plan),
        estimator=Complete(variance="projection"),
        runtime=plan.estimate.runtime.in_this_process(),
    )


def _first_kernel(plan: Plan) -> Kernel:
    """The kernel, or the first of several."""
    kernel = plan.estimate.kernel
    return kernel.kernels[0] if isinstance(kernel, Collection) else kernel


def _effect_in_order(
    first: JointEstimate, joint: JointEstimate, best: int
) -> OrderEffect | None:
    """What the order of the first rows shows, for the standard error of the estimate of all
    rows.

    Dependence adds to the variance what it adds to that of all pairs of rows. A design of
    fewer pairs has a larger variance, so that this is a smaller part of it.
    """
    effect = None if first.psi is None else order_effect(first.psi, best)
    if effect is None:
        return None
    own = difference_variance(joint.covariance, effect.model, best)
    of_all_pairs = (
        difference_variance(first.covariance, effect.model, best)
        * _fewest(first)
        / _fewest(joint)
    )
    part = min(of_all_pairs / own, 1.0) if own > 0.0 else 1.0
    inflation = math.sqrt(1.0 + part * (effect.inflation**2 - 1.0))
    if inflation < NOTE_INFLATION:
        return None
    return replace(
        effect, inflation=inflation, doubtful=effect.doubtful and inflation >= DOUBT_INFLATION
    )


def _fewest(joint: JointEstimate) -> int:
    """The rows of the smallest sample."""
    return min(size for size in joint.sizes or (1,) if size)


def _is_sorted(plan: Plan, joint: JointEstimate, effect: OrderEffect) -> bool:
    """Whether the rows are in the order of a column, which shows nothing about their
    dependence.
    """
    samples = plan.data.samples
    shared = [plan.data.reference] if len(plan.data.reference) else []
    together = [*shared, *samples.values()] if _joined(plan) else shared
    rows = together if effect.sample is None else [samples[joint.names[effect.sample]]]
    return any(is_sorted(host(each[:_ROWS])) for each in rows)


def _joined(plan: Plan) -> bool:
    """Whether the rows of several samples belong together."""
    return plan.estimate.dependence in ("shared", "paired")


def _note(plan: Plan, joint: JointEstimate, effect: OrderEffect, best: int) -> str:
    whose = "the reference"
    if effect.sample is not None:
        whose = quoted(joint.names[effect.sample])
    elif _joined(plan):
        whose = "the samples"
    pair = f"{quoted(joint.names[effect.model])} and {quoted(joint.names[best])}"
    size = f"lag-1 autocorrelation {effect.autocorrelation:.2f}"
    if effect.fades:
        chain = (
            'dependence="chain" for the draws of a Markov chain, or '
            if plan.data.kind == "target"
            else ""
        )
        return (
            f"successive rows of {whose} depend on each other ({size} of their contributions "
            f"to the difference between "
            f"{pair}), so the standard error is too small by a factor of about "
            f"{effect.inflation:.2g} and a model may "
            f"be called worse by chance: pass {chain}groups= with one label for the rows of "
            f"one prompt, document or "
            "stretch of time"
        )
    return (
        f"the rows of {whose} are sorted or come in blocks ({size} of their contributions to "
        f"the difference between "
        f"{pair}, and much the same {STEPS} rows apart), so the standard error may be too "
        f"small: pass groups= if the "
        "blocks are prompts, documents or stretches of time; rows sorted by class or value "
        "need no option"
    )


def check_fine_structure(estimated: Estimated) -> Findings:
    """A note if nearest neighbours are much closer than the kernel resolves."""
    plan = estimated.plan
    kernel = plan.estimate.kernel
    if kernel.variable != "r2" or not math.isfinite(kernel.length):
        return Findings()
    step = fine_structure(plan.data.rows, kernel.length)
    return Findings() if step is None else Findings((fine_structure_note(step, kernel.length),))


def fine_structure_note(step: float, length: float) -> str:
    """The sentence about neighbours this far apart, for a kernel of this length."""
    return (
        f"most rows have neighbours about {step:.2g} away, far below the bandwidth "
        f"{length:.3g}, and none between: the "
        "kernel does not resolve such tight clusters, so a model that is wrong within them "
        "passes; choose a smaller "
        'bandwidth or several (kernel="multiscale", kernel="select")'
    )


def lost_modes(estimated: Estimated) -> Findings:
    """A note on each model without draws where the other models' draws and mass of the
    target are.
    """
    data = estimated.plan.data
    if data.target is None or len(data.samples) < 2:
        return Findings()
    draws = {name: np.asarray(_some(x, _DRAWS)) for name, x in data.samples.items()}
    notes = []
    for name, own in draws.items():
        each = -(-_DRAWS // (len(draws) - 1))
        others = np.concatenate([_some(x, each) for other, x in draws.items() if other != name])
        fraction = lost_fraction(data.target, own, others)
        if fraction:
            notes.append(
                f"{name!r} has no draws where about {fraction:.0%} of the other models' draws "
                f"lie and the target has "
                "mass: it may have lost a mode, which KSD hardly notices; check it with "
                "chains from other starting "
                "points"
            )
    return Findings(tuple(notes), tuple(notes))


def lost_fraction(target: Density, own: Array, others: Array) -> float:
    """The fraction of the other draws (m, d) that lie in modes of the target without own
    draws (n, d); 0 if none do.

    >>> target = Density(
    ...     log_prob=lambda x: np.logaddexp(
    ...         -0.5 * (x[:, 0] - 4) ** 2, -0.5 * (x[:, 0] + 4) ** 2
    ...     )
    ... )
    >>> rng = np.random.default_rng(0)
    >>> one, both = (
    ...     rng.normal(4.0, 1.0, (200, 1)),
    ...     rng.normal(np.repeat([[-4.0], [4.0]], 100, axis=0)),
    ... )
    >>> lost_fraction(target, one, both), lost_fraction(target, both, one)
    (0.49, 0.0)
    """
    missed = _missed(own, others)
    fraction = float(missed.mean())
    if missed.sum() < _FEWEST or fraction < _SMALLEST:
        return 0.0
    mode = others[missed]
    # Like draws of the target from a region behind a valley with a fair part of its mass.
    is_mode = _is_stationary(target, mode) and _is_apart(target, mode, own)
    return fraction if is_mode and _has_mass(target, mode, own) else 0.0


def _missed(own: Array, others: Array) -> Mask:
    """(m,) the other draws that are far from all own draws, in units of the own draws'
    spread.
    """
    units = _whitening(own)
    own = own @ units
    others = others @ units
    apart = cdist(others, own).min(axis=1)
    # Distances between neighbours vary less, the more columns there are.
    factor = _APART + _MORE / np.sqrt(own.shape[1])
    missed: Mask = apart > factor * np.quantile(_neighbours(own), _USUAL)
    if missed.sum() >= _FEWEST:
        missed &= apart > factor * _neighbours(others)
    # Draws just outside the own ones are not those of another mode.
    least = 0.5 * float(np.median(apart[missed])) if missed.any() else 0.0
    return np.asarray(missed & (apart >= least))


def _neighbours(x: Array) -> Array:
    """(n,) the distance of each row to the nearest other one."""
    distances = cdist(x, x)
    np.fill_diagonal(distances, np.inf)
    return np.asarray(distances.min(axis=1))


def _is_stationary(target: Density, mode: Array) -> bool:
    """True if Stein's identities hold about, as for draws of the target restricted to a
    mode.
    """
    scores = target.raw_scores(mode).astype(np.float64)
    gaps = mode - mode.mean(axis=0)
    if not np.isfinite(scores).all():
        return False
    mean = scores.mean(axis=0)
    spread = scores.std(axis=0)
    if np.linalg.norm(mean) > _SLOPE * np.linalg.norm(spread):
        return False
    identity = -float((scores * gaps).sum(axis=1).mean()) / mode.shape[1]
    return bool(1.0 / _FACTOR <= identity <= _FACTOR)


def _is_apart(target: Density, mode: Array, own: Array) -> bool:
    """True if log p has a valley between most of the rows and the own draws, and none of
    these lie among the rows.
    """
    units = _whitening(own)
    middle = np.abs(own - np.median(own, axis=0)).sum(axis=1).argmin()
    end, _, _ = _around(own, own[middle], own, units)
    found = []
    for row in _some(mode, _PATHS):
        start, radius, others = _around(mode, row, own, units)
        found.append(others > radius and _depth(target, start, end) >= _VALLEY)
    return bool(np.mean(found) >= 0.5)


def _around(x: Array, row: Array, own: Array, units: Array) -> tuple[Array, float, float]:
    """The mean of the rows nearest to this one, which is close to the top of their mode.

    Also the distances from it of the last of them and of the nearest own draw, in these units.
    """
    near = x[np.linalg.norm((x - row) @ units, axis=1).argsort()[:_NEAREST]]
    centre = near.mean(axis=0)
    radius = np.linalg.norm((near - centre) @ units, axis=1).max()
    return centre, float(radius), float(np.linalg.norm((own - centre) @ units, axis=1).min())


def _depth(target: Density, start: Array, end: Array) -> float:
    """By how much log p falls, on the line between two points, below the lower of them; from
    the slopes along it.
    """
    path = start + np.linspace(0.0, 1.0, _STEPS)[:, None] * (end - start)
    slopes = target.raw_scores(path).astype(np.float64) @ (end - start)
    heights = np.append(0.0, np.cumsum(0.5 * (slopes[1:] + slopes[:-1]) / (_STEPS - 1)))
    return float(min(heights[0], heights[-1]) - heights.min())


def _has_mass(target: Density, mode: Array, own: Array) -> bool:
    """True if the target has a fair part of its mass where the rows are; scores cannot tell."""
    if target.log_prob is None:
        return True
    return bool(_log_mass(target, mode) - _log_mass(target, own) >= np.log(_LEAST_MASS))


def _log_mass(target: Density, x: Array) -> float:
    """About the log of ∫p where these rows lie: mean log p and the entropy of a Gaussian
    with their covariance.
    """
    heights = target.log_probs(x).astype(np.float64)
    return float(heights.mean()) - float(np.linalg.slogdet(_whitening(x))[1])


def _whitening(x: Array) -> Array:
    """(d, d) the factor that makes the rows uncorrelated with variance 1, or scales columns
    where rows are few.
    """
    n, d = x.shape
    variances = np.maximum(x.var(axis=0), np.finfo(np.float64).tiny)
    if n <= 5 * d:
        return np.diag(variances**-0.5)
    values, vectors = np.linalg.eigh(np.cov(x.T).reshape(d, d))
    floor = 1e-12 * max(float(values[-1]), float(variances.max()))
    return np.asarray(vectors * np.maximum(values, floor) ** -0.5)


def _some(x: Array, count: int) -> Array:
    """At most so many of the rows, evenly spaced."""
    return x[:: max(1, -(-len(x) // count))]


def far_target(estimated: Estimated) -> Findings:
    """A note if every model is so far from the target that its draws are probably on another
    scale.
    """
    joint = estimated.joint
    errors = joint.standard_error
    if not (joint.values > _FAR * errors).all() or not (errors > 0.0).all():
        return Findings()
    if min(_parts(estimated)) < _FAR_PART:
        return Findings()
    ratio = float((joint.values / errors).min())
    return Findings(
        (
            f"every model is at least {ratio:.0f} standard errors from the target: the draws "
            f"may be on another scale "
            "than the density; give the unconstrained parameters, such as log sigma for sigma",
        )
    )


def _parts(estimated: Estimated) -> list[float]:
    """KSD² of each model, as a part of the mean of its Stein kernel at equal draws."""
    data = estimated.plan.data
    stein = PairKernel(_first_kernel(estimated.plan)).stein_pairs
    target = data.target
    assert target is not None  # noqa: S101  (checked by the caller)
    parts = []
    for name, value in zip(estimated.joint.names, estimated.joint.values, strict=True):
        x = np.asarray(_some(data.samples[data.copies.get(name, name)], _FAR_DRAWS))
        rows = (x, target.raw_scores(x).astype(np.float64))
        parts.append(float(value / stein(rows, rows).mean()))
    return parts


def check_clusters(estimated: Estimated) -> Findings:
    """A note if the data of a comparison by KSD fall into clusters far apart."""
    apart = separated_clusters(estimated.plan.data.rows)
    if apart is None:
        return Findings()
    small, steps = apart
    note = (
        f"the data fall into clusters ({100 * small:.0f}% and {100 * (1.0 - small):.0f}% of "
        f"the rows, "
        f"{steps:.0f} times further apart than neighbours), whose weights KSD hardly sees: a "
        f"model with wrong weights "
        "passes; compare the weights of the clusters by other means"
    )
    return Findings((note,))


def separated_clusters(x: Array) -> tuple[float, float] | None:
    """The widest gap between rows (n, d) with at least 5% of them on either side, if it is
    wide.

    Returns the fraction of the rows on the smaller side, and the gap in units of the usual
    step between neighbours.

    Gaps are edges of the minimum spanning tree, which joins every row to the others by the
    shortest steps; a gap is wide from four times the 90% point of all its edges, and of
    those on the smaller side: rows of a tail are far from each other, too.

    >>> rng = np.random.default_rng(0)
    >>> separated_clusters(rng.normal(size=(300, 2))) is None
    True
    >>> two = np.concatenate([rng.normal(size=(100, 2)), rng.normal(20.0, 1.0, (300, 2))])
    >>> fraction, steps = separated_clusters(two)
    >>> round(fraction, 2)
    0.25
    """
    if len(x) < 2:
        return None
    some = np.asarray(host(_some(x, _CLUSTER_ROWS)), dtype=np.float64)
    steps, order, beyond = _spanning_tree(cdist(some, some))
    step = float(np.quantile(steps, _USUAL_STEP))
    if step <= np.finfo(float).tiny:
        # Most rows are repeated: steps between them say nothing.
        return None
    for k in np.argsort(-steps, kind="stable")[:_TRIED]:
        if steps[k] < _WIDE * step:
            return None
        side = beyond[k] if 2 * beyond[k].sum() <= len(some) else ~beyond[k]
        small = side.mean()
        within = np.delete(steps, k)[side[np.delete(order, k)]]
        of_a_tail = within.size > 0 and steps[k] < _WIDE * np.quantile(within, _USUAL_STEP)
        if small >= _SMALLEST_CLUSTER and not of_a_tail:
            return float(small), float(steps[k]) / step
    return None


def _spanning_tree(distances: Array) -> tuple[Array, Rows, Mask]:
    """The edges of the minimum spanning tree (Prim's algorithm).

    Returns their lengths, the row that each leads to, and for each a mask of the rows beyond
    it.
    """
    count = len(distances)
    nearest = distances[0].copy()
    nearest[0] = np.inf
    parent = np.zeros(count, dtype=np.intp)
    taken = np.zeros(count, dtype=bool)
    taken[0] = True
    order = np.empty(count - 1, dtype=np.intp)
    lengths = np.empty(count - 1)
    for k in range(count - 1):
        new = int(nearest.argmin())
        order[k] = new
        lengths[k] = nearest[new]
        taken[new] = True
        closer = distances[new] < nearest
        parent[closer & ~taken] = new
        np.minimum(nearest, distances[new], out=nearest)
        nearest[taken] = np.inf
    beyond = np.eye(count, dtype=bool)
    for new in order[::-1]:
        beyond[parent[new]] |= beyond[new]
    return lengths, order, beyond[order]


def check_symmetry(estimated: Estimated) -> Findings:
    """A note on scores without log densities whose Jacobian is not symmetric.

    Scores with log densities are compared with their gradients when the data are loaded.
    """
    data = estimated.plan.data
    rows = data.rows
    densities = {repr(name): density for name, density in data.densities.items()}
    if data.target is not None:
        densities = {"reference": data.target}
    own = {name: density for name, density in densities.items() if density.log_prob is None}
    if not own or rows.shape[1] < 2 or len(rows) < 2:
        return Findings()
    x = np.asarray(_some(rows, _JACOBIANS))
    spread = x.std(axis=0)
    scale = np.where(spread > 0.0, spread, 1.0)
    v, w = np.random.default_rng(0).standard_normal((2, *x.shape)) * scale
    wrong = [name for name, density in own.items() if not _may_be_gradient(density, x, v, w)]
    if not wrong:
        return Findings()
    whose = "scores are" if len(wrong) > 1 else "score is"
    note = (
        f"{listed(wrong, quote=str)}: the {whose} the gradient of no log density (the "
        f"Jacobian is not symmetric), so "
        "KSD compares what no density has; relfit.check_score gives details"
    )
    return Findings((note,))


def _may_be_gradient(density: Density, x: Array, v: Array, w: Array) -> bool:
    """Whether v·Jw = w·Jv at most rows, J being the Jacobian of the score.

    v and w are random directions at each row (n, d), in units of the columns' spread.
    """
    try:
        with np.errstate(all="ignore"):
            first = _crossed(density, x, v, w, 1.0)
            if first is None or _agree(first, np.zeros(len(x))):
                return True
            second = _crossed(density, x, v, w, 2.0)
    # A function that accepts only the rows it was made for can raise anything.
    except Exception:  # noqa: BLE001
        return True
    if second is None or not (np.isfinite(first).all() and np.isfinite(second).all()):
        return True
    return _agree(first, np.abs(first - second).max(axis=0))


def _crossed(density: Density, x: Array, v: Array, w: Array, widen: float) -> Array | None:
    """(2, n) v·Jw and w·Jv by central differences; None for scores in single precision."""
    h = widen * np.finfo(float).eps ** (1.0 / 3.0)
    scores = density.raw_scores(np.concatenate([x + h * w, x - h * w, x + h * v, x - h * v]))
    if scores.dtype.itemsize < 8:
        return None
    ahead, behind, up, down = scores.reshape(4, *x.shape)
    crossed = np.stack([(v * (ahead - behind)).sum(axis=1), (w * (up - down)).sum(axis=1)])
    return crossed / (2.0 * h)


def _agree(values: Array, change: Array) -> bool:
    """Whether the two rows of values (2, n) agree in most places, but for how much they
    `change` with the step (n,).
    """
    size = float(np.sqrt(np.square(values).mean()))
    allowed = _ASYMMETRIC * size + 10.0 * np.maximum(change, np.median(change))
    return bool((np.abs(values[0] - values[1]) <= allowed).mean() >= 0.5)


def likelihood_at_hand(compared: Compared) -> Findings:
    """A note if KSD was the default, left a verdict inconclusive, and all densities are
    normalised.
    """
    plan = compared.plan
    densities = plan.data.densities
    if compared.asked != "auto" or plan.measure != "ksd":
        return Findings()
    undecided = int((~compared.decision.worse).sum()) > 1
    normalised = all(density.normalised for density in densities.values())
    known = any(_LIKELIHOOD in note for note in plan.notes)
    if not undecided or not normalised or known:
        return Findings()
    return Findings(
        (
            f"all densities are normalised: {_LIKELIHOOD} can compare them too, and may decide "
            f"what KSD leaves open",
        )
    )
