"""The estimator that `estimator="auto"` stands for: all pairs where that takes seconds, otherwise as many as do."""

from __future__ import annotations

from dataclasses import replace

from relfit.compute.backend import TILE as TILE_ROWS
from relfit.compute.memory import Budget
from relfit.data.load import Data
from relfit.estimators.base import Dependence, Plan
from relfit.estimators.designs import DEFAULT_LAGS, block_size, fewest_bytes, lags_of, pairs_at_once
from relfit.estimators.locations import CHUNK_NUMBERS
from relfit.kernels.base import Kernel
from relfit.kernels.choice import Collection
from relfit.util.libraries import usable_cores

# What an estimate may take, in seconds.
PATIENCE = 10.0
# Nanoseconds of one core, to within a factor of two or so on processors of the last ten years: for one kernel value
# and each of its columns in tiles and in bands, and for each right-hand side that a value is multiplied with.
TILE, TILE_COLUMN = 1.6, 0.05
BAND, BAND_COLUMN = 8.0, 0.15
RIGHT_HAND_SIDE = 0.09
# A CUDA device does the complete estimate as fast as so many cores, at the least.
DEVICE_CORES = 200


def chosen_estimator(
    data: Data, dependence: Dependence, *, grouped: bool = False, device: bool = False
) -> tuple[str, int | None, str]:
    """(estimator, pairs, why): complete if its time is short or nothing else fits, else incomplete in that time.

    `device`: all pairs would be computed on a CUDA device. The incomplete estimate is always made on the host.
    """
    sizes = {len(x) for x in (data.reference, *data.samples.values()) if len(x)}
    rows, whole = max(sizes), complete_seconds(data)
    if device:
        whole *= usable_cores() / DEVICE_CORES
    place = "a CUDA device" if device else _cores()
    where = f"for {rows:,} rows, {len(data.models)} models and {data.reference.shape[1]} columns on {place}"
    picked = 'estimator="auto": the complete one, '
    if whole <= PATIENCE:
        return "complete", None, f"{picked}as all pairs take about {_duration(whole)} {where}"
    alone = {
        'with dependence="chain"': dependence == "chain",
        "for rows in groups": grouped,
        "for rows that live on a device": hasattr(data.reference, "is_cuda"),
        "for samples of different sizes": data.kind == "samples" and len(sizes) > 1,
    }
    if any(alone.values()):
        reason = next(reason for reason, holds in alone.items() if holds)
        return "complete", None, f"{picked}about {_duration(whole)}, as there is no other {reason}"
    lags = max(DEFAULT_LAGS, min(int(PATIENCE / lag_seconds(data)), (rows - 1) // 2))
    why = f'estimator="auto": the incomplete one, as all pairs would take about {_duration(whole)} {where}'
    return "incomplete", rows * lags, why


def complete_seconds(data: Data) -> float:
    """About how long all pairs take."""
    n, d = data.reference.shape
    lengths = [len(x) for x in data.samples.values()]
    value = TILE + TILE_COLUMN * d
    if data.kind == "samples":
        return _shared_out(value * (n * n / 2 + sum(m * (m / 2 + n) for m in lengths)))
    models = len(data.models) if data.kind == "densities" else 1
    value += RIGHT_HAND_SIDE * (1 + d) * (1 + models)
    return _shared_out(value * sum(m * m / 2 for m in lengths or [n]))


def lag_seconds(data: Data) -> float:
    """About how long the incomplete estimator takes for each pair that a row is the first of, scores not counted."""
    n, d = data.reference.shape
    lengths = [len(x) for x in data.samples.values()]
    bands = {"samples": n * (1 + 3 * len(lengths)), "densities": n * (1 + len(data.models)), "target": 2 * sum(lengths)}
    return _shared_out((BAND + BAND_COLUMN * d) * bands[data.kind])


def _shared_out(nanoseconds: float) -> float:
    return 1e-9 * nanoseconds / usable_cores()


def _cores() -> str:
    count = usable_cores()
    return "1 core" if count == 1 else f"{count} cores"


def _duration(seconds: float) -> str:
    if seconds < 1.0:
        return "1 s or less"
    if seconds < 120.0:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200.0 else f"{seconds / 3600:.0f} h"


# --------------------
# The plan of an estimate within a budget of memory: what it needs at least, and how large its parts may be.

# Bytes of one thread's tiles; all threads' take a quarter of the memory at most.
_THREAD = 8_000_000
# Rows of the smallest patch of a kernel matrix.
_FEWEST_ROWS = 64
# Numbers held for every number of a row of a patch: two prepared sides, a third in the making; for KSD, the products
# of all columns with the kernel matrix too.
_MMD_NUMBERS, _TILTED_NUMBERS, _KSD_NUMBERS = 12, 20, 30
# Numbers held for every model and row of the reference, and for every row of a model that has contributions of its own.
_NUMBERS = {"complete": 6, "incomplete": 4, "block": 4, "linear": 2}


def within(data: Data, plan: Plan, budget: Budget) -> Plan:
    """The plan with its parts so small that the process stays within the budget; refuses one that is too small."""
    patch = _patch_bytes(data, plan.kernel)
    memory = budget.working(kept_bytes(data, plan), max(_pairs_bytes(data, plan), patch))
    threads = max(1, min(plan.runtime.threads, memory // (4 * _THREAD)))
    rows = memory // (patch // _FEWEST_ROWS)
    # Whole numbers of tiles waste nothing at the edges; of few tiles the last, small one still helps another thread.
    rows = rows // TILE_ROWS * TILE_ROWS if rows > 4 * TILE_ROWS else rows
    runtime = replace(plan.runtime, memory=memory, threads=threads, patch_rows=rows)
    return replace(plan, runtime=runtime, folder=budget.folder)


def kept_bytes(data: Data, plan: Plan) -> int:
    """What is held for every row while the estimate is made: orders, sums, contributions and their temporaries."""
    n, lengths = len(data.reference), [len(x) for x in data.samples.values()]
    kernels = len(plan.kernel.kernels) if isinstance(plan.kernel, Collection) else 1
    together = data.kind == "samples" and plan.estimator != "complete"
    rows = len(data.models) * n + (0 if together else sum(lengths))
    return 16 * (n + max(lengths, default=0)) + 8 * (_NUMBERS[plan.estimator] + kernels - 1) * rows


def _pairs_bytes(data: Data, plan: Plan) -> int:
    """The least that a pair design, or one at locations, can work with."""
    d, rows = int(data.reference.shape[1]), max([len(data.reference), *(len(x) for x in data.samples.values())])
    together = 2 if data.kind == "target" and plan.dependence != "shared" else 1 + len(data.models)
    width = d * (2 * len(data.models) if data.kind == "target" and plan.dependence == "shared" else together)
    if plan.estimator == "incomplete":
        return fewest_bytes(width, lags_of(rows, plan.pairs))
    if plan.estimator == "block":
        return fewest_bytes(width, block_size(rows, len(data.models), plan.blocks) - 1)
    if plan.estimator == "linear":
        return 64 * pairs_at_once(width, 0) * width
    return 64 * max(CHUNK_NUMBERS, 64 * d)


def _patch_bytes(data: Data, kernel: Kernel) -> int:
    """The least that all pairs can be worked on with: also where a kernel is chosen on some rows."""
    d = int(data.reference.shape[1])
    if data.measure == "ksd":
        models = len(data.models) if data.kind == "densities" else 1
        return 8 * _FEWEST_ROWS * _KSD_NUMBERS * (1 + models) * (1 + d)
    return 8 * _FEWEST_ROWS * (_MMD_NUMBERS if kernel.tilt is None else _TILTED_NUMBERS) * (2 + d)
