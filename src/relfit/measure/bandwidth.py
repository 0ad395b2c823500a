"""The kernel with its bandwidth computed from the pooled data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from relfit.backends import host
from relfit.errors import InputError
from relfit.inputs import Data, stream
from relfit.kernels import Collection, Gaussian, Kernel, Select, median_distance
from relfit.stored import parts

Array = NDArray[np.float64]

BANDWIDTH_ROWS = 1000
# Beyond these the kernel's length, squared (for KSD to the fourth power), leaves float64.
LARGEST = {"mmd": 1e152, "ksd": 1e50}


def resolve_kernel(data: Data, kernel: Kernel | None, seed: int) -> tuple[Kernel, str]:
    """The kernel with its bandwidth filled in, and the rule it came by ("median" or "given")."""
    wanted = Gaussian() if kernel is None else kernel
    if not isinstance(wanted, Kernel):
        raise InputError(
            f'kernel: expected a relfit kernel such as Gaussian() or IMQ(), or "select", got {type(kernel).__name__}'
        )
    rule = "median" if wanted.needs_median else "given"
    median = _median(data, seed) if wanted.needs_median else 1.0
    return _resolved(data, wanted, median, seed, rule), rule


def resolve_candidates(data: Data, select: Select, seed: int) -> tuple[Kernel, ...]:
    """The candidates with their bandwidths filled in: the median is that of all rows, as for a single kernel."""
    median = _median(data, seed) if select.needs_median else 1.0
    return tuple(_resolved(data, kernel, median, seed, "candidate") for kernel in select.kernels(median))


def _resolved(data: Data, kernel: Kernel, median: float, seed: int, rule: str) -> Kernel:
    if isinstance(kernel, Collection):
        return Collection(tuple(_resolved(data, each, median, seed, rule) for each in kernel.kernels))
    resolved = kernel.with_median(median).with_dimension(data.reference.shape[1])
    if resolved.needs_centre:
        resolved = resolved.with_centre(centre_of(_pool(data, seed)))
    if data.measure == "ksd" and not resolved.smooth:
        raise InputError(f"kernel: KSD needs a smooth radial kernel (with φ' and φ''), got {resolved.describe()}")
    largest = LARGEST[data.measure]
    if resolved.variable == "r2" and not 1.0 / largest < resolved.length < largest:
        raise InputError(
            f"kernel: expected a bandwidth between {1.0 / largest:g} and {largest:g}, got {resolved.length:g} "
            f"({rule}); rescale the data"
        )
    _check_entries(data, resolved)
    return resolved


def _check_entries(data: Data, kernel: Kernel) -> None:
    """Refuse numbers whose kernel values, or sums of their squares, would leave float64."""
    most = kernel.largest_entry(data.reference.shape[1])
    if math.isinf(most):
        return
    if not most > 0.0:
        raise InputError(f"kernel: expected an offset whose power stays within float64, got {kernel.describe()}")
    named = {"reference": data.reference, **{f"model {name!r}": rows for name, rows in data.samples.items()}}
    for argument, rows in named.items():
        largest = max((_largest(rows[part]) for part in parts(rows.shape)), default=0.0)
        if largest > most:
            raise InputError(
                f"{argument}: expected numbers below {most:.3g} in size for the {kernel.describe()}, got {largest:g}; "
                "rescale the data"
            )


def _largest(rows: Array) -> float:
    return max(-float(rows.min()), float(rows.max()))


def centre_of(rows: Array) -> Array:
    """The median of some rows: far-off data lose their offset by it, and an outlier cannot move it."""
    step = max(1, len(rows) // BANDWIDTH_ROWS)
    return np.asarray(np.median(np.asarray(host(rows[::step]), dtype=np.float64), axis=0))


def _median(data: Data, seed: int) -> float:
    rows = _pool(data, seed)
    return median_distance(rows - centre_of(rows))


def _pool(data: Data, seed: int) -> Array:
    """Some rows of the reference and of every sample, in proportion to their numbers."""
    pool = [data.reference, *data.samples.values()]
    keys = ["reference", *("models" for _ in data.samples)]
    share = BANDWIDTH_ROWS / sum(len(rows) for rows in pool)
    drawn = [
        _subsample(rows, share * len(rows), stream(seed, "bandwidth", key))
        for rows, key in zip(pool, keys, strict=True)
    ]
    rows = np.concatenate(drawn)
    if (rows == rows[0]).all():
        # Nearly all rows are one atom: look at the distinct rows instead.
        rows = np.unique(np.concatenate([rows[:1], *_different(pool, rows[0])]), axis=0)
        rows = _subsample(rows, BANDWIDTH_ROWS, stream(seed, "bandwidth", "distinct"))
    return rows


def _different(pool: Sequence[Array], row: Array) -> Iterator[Array]:
    """The rows that differ from this one."""
    for rows in pool:
        for part in parts(rows.shape):
            block = np.asarray(host(rows[part]), dtype=np.float64)
            yield block[(block != row).any(axis=1)]


def _subsample(rows: Array, count: float, rng: np.random.Generator) -> Array:
    wanted = max(1, round(count))
    drawn = rows[:] if wanted >= len(rows) else rows[rng.choice(len(rows), wanted, replace=False)]
    return np.asarray(host(drawn), dtype=np.float64)
