"""From loaded data and settings to a joint estimate: one file for each discrepancy, design
or kind of data; and what an estimate costs in time and memory, which decides what
`estimator="auto"` stands for.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from relfit.compute.backend import TILE
from relfit.compute.memory import Budget
from relfit.compute.reduce import one_blas_thread
from relfit.data.load import Data
from relfit.estimators.base import (
    Complete,
    Dependence,
    EstimateSettings,
    Estimator,
    Kind,
    PairDesign,
    complete_seconds,
    pair_count,
)
from relfit.estimators.designs import Block, Incomplete, Linear
from relfit.estimators.discrepancy import Functions
from relfit.estimators.kernel import column_notes
from relfit.estimators.ksd import Densities, Target
from relfit.estimators.landmarks import (
    FACTORISATION,
    Landmarks,
    Trade,
    chosen_sizes,
    few_pairs,
    trades,
)
from relfit.estimators.locations import CHUNK_NUMBERS, at_locations, sizes_left
from relfit.estimators.losses import Likelihood
from relfit.estimators.mmd import Samples
from relfit.kernels.composite import Collection
from relfit.stats.close import CloseLaw
from relfit.stats.joint import NEAR_DEGENERATE, ROUNDING, JointEstimate, Psi, in_blocks
from relfit.util.arrays import Array
from relfit.util.libraries import usable_cores
from relfit.util.text import listed, quoted

ESTIMATORS: dict[str, type[Estimator]] = {
    each.name: each for each in (Complete, Linear, Block, Incomplete, Landmarks)
}
KINDS: dict[str, Kind] = {
    "samples": Samples(),
    "densities": Densities(),
    "target": Target(),
    "likelihoods": Likelihood(),
    "functions": Functions(),
}


def _spread(data: Data) -> Array:
    """(l,) 1/n + 1/m_i for samples, 1/m_i for samples of a target density, and 1 for
    densities (`CloseLaw.spread`).
    """
    if data.kind not in ("samples", "target"):
        return np.ones(len(data.models))
    sizes = np.array([len(data.samples[name]) for name in data.models])
    reference = 1.0 / len(data.reference) if data.kind == "samples" else 0.0
    return np.asarray(reference + 1.0 / sizes)


def joint_estimate(data: Data, settings: EstimateSettings) -> JointEstimate:
    """D and V of every distinct model, in the order of `data.models`."""
    kind = KINDS[data.kind]
    groups = settings.groups
    estimator = settings.estimator
    with one_blas_thread:
        if settings.locations is not None:
            estimates = at_locations(data, settings, settings.locations)
        else:
            estimates = estimator.estimate(kind, data, settings)
        covariance = estimates.projection
        close = None
        quadratic = estimates.quadratic
        if quadratic is not None and estimator.variance == "auto":
            # V holds S2 twice: an S2 far above it is rounding, as of constant rows.
            varies = np.diag(covariance) > 1e-6 * np.diag(quadratic.covariance)
            part = quadratic.covariance * np.outer(varies, varies)
            third = estimates.psi.third()
            first = covariance - 2.0 * part
            close = CloseLaw(
                first,
                part,
                quadratic.trace,
                quadratic.components,
                third,
                _spread(data),
            )
    # V holds the second-order part twice, and it is known off the diagonal too.
    plain = settings.dependence == "independent" and groups is None
    second = estimates.second_order if close is None else close.second
    note = (settings.note,) if settings.note else ()
    group_sizes = None
    if groups is not None:
        counts = {key: len(np.unique(codes)) for key, codes in groups.codes.items()}
        group_sizes = (counts.get(None, 0), *(counts[name] for name in data.samples))
    sizes = (len(data.reference), *(len(x) for x in data.samples.values()))
    columns = () if data.without_kernel else column_notes(data, settings.kernel)
    return JointEstimate(
        tuple(data.models),
        estimates.values,
        covariance,
        sizes if settings.locations is None else sizes_left(data, settings.locations),
        estimates.psi,
        estimates.second_order_fraction(),
        (*note, *estimates.notes, *columns),
        group_sizes,
        second if plain and second is not None and second.ndim == 2 else None,
        close=close,
        yardstick=estimates.yardstick,
        measure="loglik" if data.likelihood else "score",
        leading=columns,
        design=f"given {data.covariates} covariate{'s' * (data.covariates > 1)}"
        if data.covariates
        else None,
    )


# A larger cosine of the ψ rows of two samples means that the samples are nearly the same rows.
NEAR_COPY = 0.99
_MOST_PAIRS = 3


def estimate_notes(joint: JointEstimate, settings: EstimateSettings) -> list[str]:
    """Notes for the reader about an estimate made with these settings."""
    notes = [*joint.notes, *size_notes(joint)]
    if not joint.covariance.any() and joint.measure in ("mmd", "ksd", "score"):
        notes.append(
            "the kernel has one value on all pairs of rows, so it shows no difference between "
            "the models; choose a bandwidth "
            "near the median distance"
        )
    # The law with both parts finds differences there, too.
    fractions = (
        ()
        if joint.near_degeneracy is None or joint.close is not None
        else joint.near_degeneracy
    )
    close = [
        name
        for name, fraction in zip(joint.names, fractions, strict=False)
        if fraction > NEAR_DEGENERATE
    ]
    if close:
        fit = "fit" if len(close) > 1 else "fits"
        notes.append(f"{listed(close)} {fit} so well that real differences may be missed")
    checkpoint = settings.runtime.checkpoint
    if checkpoint is not None and checkpoint.damaged:
        notes.append(f"damaged parts of the checkpoint, computed again: {checkpoint.damaged}")
    if settings.dependence == "independent" and not isinstance(settings.estimator, PairDesign):
        notes += _near_copies(joint)
    return notes


# With fewer rows that decide, no law of a difference can be trusted.
FEW_ROWS = 10.0


def effective_sample_size(psi: Psi, best: int) -> Array:
    """(l,) (Σz²)²/Σz⁴ of the rows' contributions z to D_i − D_best: how many rows, all
    alike, would vary as much.
    """
    variance = psi.covariance().diagonal()
    # The fourth powers of very large or small values do not fit into float64.
    unit = math.ldexp(1.0, math.frexp(math.sqrt(float(variance.max())))[1])

    sums = np.zeros((2, len(variance)))
    for columns in psi.together:
        for z in in_blocks(columns):
            gaps = np.square((z - z[best]) / (len(columns[0]) * unit))
            sums += gaps.sum(axis=1), np.einsum("ij,ij->i", gaps, gaps)
    if psi.models and not psi.shared:
        own = [np.square(z / (len(z) * unit)) for z in psi.models]
        each = np.array([[z.sum() for z in own], [z @ z for z in own]])
        sums += each + each[:, [best]]
    squares, fourth = sums
    # Of a difference that never varies only rounding is left.
    varies = squares > ROUNDING**2 * (variance + variance[best]) / unit**2
    return np.asarray(
        np.divide(
            squares**2,
            fourth,
            out=np.full(len(fourth), math.inf),
            where=varies & (fourth > 0.0),
        )
    )


def _deciding_notes(joint: JointEstimate) -> list[str]:
    """A note if a handful of rows decides how a model differs from the best."""
    psi = joint.psi
    best = int(np.argmin(joint.values))
    if psi is None or joint.lags is not None:
        return []
    rows = zip(joint.names, effective_sample_size(psi, best).tolist(), strict=True)
    few = {
        name: count for name, count in rows if count < FEW_ROWS and name != joint.names[best]
    }
    if not few:
        return []
    unit = "group" if joint.groups is not None else "item" if joint.measure == "loss" else "row"
    differences = "differences" if len(few) > 1 else "difference"
    of = f"{listed(list(few))} to {quoted(joint.names[best])}"
    count = f"{min(few.values()):.0f}"
    drive = f"{unit} drives" if count == "1" else f"{unit}s drive"
    return [
        f"about {count} influential {drive} the {differences} of {of}, so p-values "
        f"can be too small; collect more {unit}s"
    ]


def size_notes(joint: JointEstimate) -> list[str]:
    """Notes if there are too many models for the covariance to be trusted, or too few rows
    that decide.
    """
    return [*_many_notes(joint), *_deciding_notes(joint)]


def _many_notes(joint: JointEstimate) -> list[str]:
    sizes, what = (joint.sizes, "rows") if joint.groups is None else (joint.groups, "groups")
    # A reference without rows is a density: the covariance is then diagonal and needs no rows
    # per model.
    if sizes is None or not sizes[0] or len(joint.names) <= sizes[0] / 5:
        return []
    # With a single size the rows are the items that losses were measured on; there is no
    # reference.
    whose = "reference " if len(sizes) > 1 else ""
    return [
        f"{len(joint.names)} models are many for {sizes[0]} {whose}{what}: their covariance "
        f"is noisy and the "
        f"error rate can exceed alpha; use at least 5 {what} per model"
    ]


def _near_copies(joint: JointEstimate) -> list[str]:
    rows = () if joint.psi is None else joint.psi.models
    pairs = []
    for size in sorted({len(row) for row in rows}):
        same = [i for i, row in enumerate(rows) if len(row) == size]
        gram = sum((part @ part.T for part in in_blocks([rows[i] for i in same])), np.zeros(()))
        norms = np.sqrt(gram.diagonal())
        pairs += [
            (same[a], same[b])
            for a, b in np.argwhere(np.triu(gram > NEAR_COPY * np.outer(norms, norms), 1))
        ]
    notes = [
        f"the samples of {joint.names[a]!r} and {joint.names[b]!r} are nearly the same rows, "
        "so one of them hides the difference to the others; if they come from common random "
        'numbers, use dependence="shared", otherwise leave one out'
        for a, b in pairs[:_MOST_PAIRS]
    ]
    if len(pairs) > _MOST_PAIRS:
        notes.append(
            f"{len(pairs) - _MOST_PAIRS} more pairs of samples are nearly the same rows"
        )
    return notes


# ── what an estimate costs ───────────────────────────────────────────────────────────────────────

# The longest that an automatically chosen estimate may take, in seconds.
LONGEST = 10.0
# The largest part that automatically chosen landmarks may add to the variance.
LARGEST_ADDED = 0.2
# The factorisations of all tried numbers of landmarks and the last, in units of that of the
# last.
FACTORISATIONS = 2.5
# A CUDA device computes the complete estimate at least as fast as this many cores.
DEVICE_CORES = 200
# Bytes of one thread's tiles; those of all threads take a quarter of the memory at most.
_THREAD = 8_000_000
# Rows of the smallest patch of a kernel matrix.
_FEWEST_ROWS = 64
# Numbers held for every number of a row of a patch: two prepared sides, and a third that is
# being prepared; for KSD, the products of all columns with the kernel matrix too.
_MMD_NUMBERS = 12
_TILTED_NUMBERS = 20
_KSD_NUMBERS = 30


def trade_seconds(
    trade: Trade, count: int, drawn: int, columns: int, right_hand_sides: int = 0
) -> float:
    """The time that landmarks take where their number and that of the drawn rows are known."""
    factorised = FACTORISATIONS * FACTORISATION * trade.matrices * count**3
    return complete_seconds(
        trade.values(count, drawn), columns, right_hand_sides
    ) + complete_seconds(factorised, 0)


def automatic_estimator(
    data: Data, kind: Kind, dependence: Dependence, *, grouped: bool, device: bool
) -> tuple[Estimator, str]:
    """The estimator and why: complete if its time is short or nothing else fits, otherwise
    landmarks.

    `device`: the sums would be computed on a CUDA device. Landmarks are to be `reconsidered`
    once the kernel is known.
    """
    seconds, where = _all_pairs(data, kind, device)
    complete = 'estimator="auto": the complete one, '
    if seconds <= LONGEST:
        return Complete(), f"{complete}because all pairs take about {duration(seconds)} {where}"
    reasons = {
        'with dependence="chain"': dependence == "chain",
        "for rows in groups": grouped,
    }
    reason = next((words for words, holds in reasons.items() if holds), None)
    if reason is not None:
        return (
            Complete(),
            f"{complete}about {duration(seconds)}, because there is no other {reason}",
        )
    lengths = [len(x) for x in data.samples.values()]
    rows, columns = data.reference.shape
    shorter = Landmarks().seconds(rows, lengths, columns, kind.right_hand_sides(data))
    return Landmarks(), _by_landmarks(seconds, where, shorter / _speed(device))


def reconsidered(
    data: Data, kind: Kind, settings: EstimateSettings, *, device: bool
) -> EstimateSettings:
    """The settings; those of landmarks with other ones where these lose too much, found on
    some rows.

    Landmarks add at most `LARGEST_ADDED` to the variance of a model equal to the data, and
    less to that of others: more rows are drawn where the usual numbers add more. If that
    takes more than half of the time of all pairs, or more memory than there is, all pairs
    are used.
    """
    if not isinstance(settings.estimator, Landmarks) or few_pairs(data, settings):
        return settings
    seconds, where = _all_pairs(data, kind, device)
    kernels = (
        settings.kernel.kernels
        if isinstance(settings.kernel, Collection)
        else (settings.kernel,)
    )
    found = [
        trade
        for kernel in kernels
        for trade in trades(kind, data, replace(settings, kernel=kernel))
    ]
    d = int(data.reference.shape[1])
    sides = kind.right_hand_sides(data)
    shorter = 0.0
    all_pairs = 0.0
    most_added = 0.0
    pairs = 0
    fits = True
    for trade in found:
        count, drawn = chosen_sizes(Landmarks(), trade)
        added = trade.added(count, drawn)
        if added > LARGEST_ADDED:
            drawn = math.ceil(drawn * added / LARGEST_ADDED)
            pairs = max(pairs, drawn * trade.smallest)
        fits = (
            fits
            and drawn <= min(trade.rows, trade.most_drawn)
            and trade.cost(count, drawn) < trade.longest
        )
        most_added = max(most_added, added)
        shorter += trade_seconds(trade, count, drawn, d, sides)
        all_pairs += complete_seconds(trade.longest, d, sides)
    quick = shorter < (0.5 if pairs else 1.0) * all_pairs
    if fits and quick:
        note = _by_landmarks(seconds, where, shorter / _speed(device))
        return replace(settings, estimator=Landmarks(residual_pairs=pairs or None), note=note)
    lost = (
        f"would add about {most_added:.0%} to the variance" if pairs else "would take no less"
    )
    note = (
        f'estimator="auto": the complete one, about {duration(seconds)} {where}, because '
        f"landmarks {lost}"
    )
    return replace(settings, estimator=Complete(), note=note)


def _all_pairs(data: Data, kind: Kind, device: bool) -> tuple[float, str]:
    """The time that all pairs of rows take, and where."""
    lengths = [len(x) for x in data.samples.values()]
    d = int(data.reference.shape[1])
    sides = kind.right_hand_sides(data)
    seconds = complete_seconds(pair_count(len(data.reference), lengths), d, sides) / _speed(
        device
    )
    cores = usable_cores()
    place = "a CUDA device" if device else "1 core" if cores == 1 else f"{cores} cores"
    rows = max(len(data.reference), *lengths, 0)
    return seconds, f"for {rows:,} rows, {len(data.models)} models and {d} columns on {place}"


def _speed(device: bool) -> float:
    """By how much the machine is faster than all its cores."""
    return DEVICE_CORES / usable_cores() if device else 1.0


def _by_landmarks(seconds: float, where: str, shorter: float) -> str:
    why = (
        f"because all pairs would take about {duration(seconds)} {where}, and this about "
        f"{duration(shorter)}"
    )
    return f'estimator="auto": the one by landmarks, {why}'


def duration(seconds: float) -> str:
    """A rough time in words."""
    if seconds < 1.0:
        return "a second"
    if seconds < 120.0:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200.0 else f"{seconds / 3600:.0f} h"


def within_budget(
    data: Data, kind: Kind, settings: EstimateSettings, budget: Budget
) -> EstimateSettings:
    """The settings with parts so small that the process stays within the budget; too small a
    budget is refused.
    """
    d = int(data.reference.shape[1])
    models = len(data.models)
    estimator = settings.estimator
    n = len(data.reference)
    lengths = [len(x) for x in data.samples.values()]
    # The smallest patch of all pairs, also where a kernel is chosen on some rows.
    if kind.smooth:
        row_bytes = 8 * _KSD_NUMBERS * kind.right_hand_sides(data)
    else:
        row_bytes = (
            8 * (_MMD_NUMBERS if settings.kernel.tilt is None else _TILTED_NUMBERS) * (2 + d)
        )
    # The least that a design, or a discrepancy at locations, can work with.
    design_bytes = estimator.fewest_bytes(
        max([n, *lengths]), models, kind.width(data, settings.dependence)
    )
    design_bytes = design_bytes or 64 * max(CHUNK_NUMBERS, 64 * d)
    # Held for the rows while the estimate is made: orders, sums, contributions and temporary
    # arrays. A pair design of samples has contributions of whole rows z = (reference row, model
    # rows).
    kernels = len(settings.kernel.kernels) if isinstance(settings.kernel, Collection) else 1
    joined = data.kind == "samples" and isinstance(estimator, PairDesign)
    contributions = (estimator.numbers_kept + kernels - 1) * (
        models * n + (0 if joined else sum(lengths))
    )
    kept = 16 * (n + max(lengths, default=0)) + 8 * contributions
    memory = budget.working(kept, max(design_bytes, _FEWEST_ROWS * row_bytes))
    threads = max(1, min(settings.runtime.threads, memory // (4 * _THREAD)))
    rows = memory // row_bytes // estimator.memory_parts
    # Whole numbers of tiles waste nothing at the edges; with few tiles the last, small one
    # still helps another thread.
    rows = rows // TILE * TILE if rows > 4 * TILE else rows
    runtime = replace(settings.runtime, memory=memory, threads=threads, patch_rows=rows)
    return replace(settings, runtime=runtime, folder=budget.folder)
