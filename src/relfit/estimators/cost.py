"""What an estimate costs in time and memory, and the estimator that `estimator="auto"`
stands for.
"""

from __future__ import annotations

import math
from dataclasses import replace

from relfit.compute.backend import TILE
from relfit.compute.memory import Budget
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
from relfit.estimators.landmarks import (
    FACTORISATION,
    Landmarks,
    Trade,
    chosen_sizes,
    few_pairs,
    trades,
)
from relfit.estimators.locations import CHUNK_NUMBERS
from relfit.kernels.composite import Collection
from relfit.util.libraries import usable_cores

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
