"""The plan of an estimate within a budget of memory: what it needs at least, and how large its parts may be."""

from __future__ import annotations

from dataclasses import replace

from relfit.backends.numpy_backend import TILE
from relfit.discrepancies.locations import CHUNK_NUMBERS
from relfit.discrepancies.windows import fewest_bytes, pairs_at_once
from relfit.inputs import Data
from relfit.kernels import Collection, Kernel
from relfit.measure.layout import block_size, lags_of
from relfit.measure.plan import Plan
from relfit.memory import Budget

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
    rows = rows // TILE * TILE if rows > 4 * TILE else rows
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
