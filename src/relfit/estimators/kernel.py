"""The kernel for the data: its bandwidth, the choice among kernels on held-out rows, columns
that outweigh others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from relfit.data.load import Data
from relfit.estimators.base import EstimateSettings, Kind, sample_name, samples_of
from relfit.estimators.pairkernel import row_products, squared_distances
from relfit.kernels.base import Kernel, median_distance
from relfit.kernels.composite import Collection, MultiScale, Select, Tilted
from relfit.kernels.custom import FunctionKernel
from relfit.kernels.standard import Gaussian
from relfit.stats.decision import differences
from relfit.stats.joint import JointEstimate
from relfit.util.arrays import Array, host, library, medians, parts
from relfit.util.errors import InputError
from relfit.util.random import stream

EstimateFunction = Callable[[Data, EstimateSettings], JointEstimate]
BANDWIDTH_ROWS = 1000
# More held-out rows than this do not improve a choice, and would cost as much as the test.
MOST_HELD = 2000
# A column with more than this fraction of the variance within samples outweighs the others.
OUTWEIGHS = 0.95
# Numbers of a tensor that are worked on at once.
_TENSOR_NUMBERS = 2**27
# Each sample is judged by about this many numbers, in at most and at least this many rows.
_NUMBERS = 2**18
_MOST_ROWS = 1000
# Rows at which the symmetry of a function is looked at.
_SYMMETRY_ROWS = 30
_FEWEST_ROWS = 20

# Rows, evenly spaced, whose nearest neighbours are looked at. Neighbours at most as far apart
# as this fraction of the bandwidth are close, and few may lie between this and the wider one:
# smooth data in one dimension have 4 times as many neighbours within the second.
_NEIGHBOURS = 200
_CLOSE = 1.0 / 16.0
_WIDE_AGAIN = 1.0 / 4.0
# At least this fraction of the rows has a close neighbour, and at most this many times as many
# pairs are within the wider distance.
_MOST_CLOSE = 0.5
_NO_MORE = 1.25
# Squared distances up to this fraction of the squared norms are those of equal rows.
_EQUAL = 1e-12


def resolve_kernel(
    data: Data, kind: Kind, kernel: Kernel | None, seed: int
) -> tuple[Kernel, str]:
    """The kernel with its bandwidth filled in, and how the bandwidth was chosen: "median" or
    "given".
    """
    chosen = Gaussian() if kernel is None else kernel
    median = _median(data, seed) if chosen.needs_median else 1.0
    rule = "median" if chosen.needs_median else "given"
    return _resolved(data, kind, chosen, median, seed, rule), rule


def resolve_candidates(data: Data, kind: Kind, select: Select, seed: int) -> tuple[Kernel, ...]:
    """The candidates with their bandwidths filled in: the median is that of all rows, as for
    a single kernel.
    """
    median = _median(data, seed) if select.needs_median else 1.0
    return tuple(
        _resolved(data, kind, kernel, median, seed, "candidate")
        for kernel in select.kernels(median)
    )


def _resolved(
    data: Data, kind: Kind, kernel: Kernel, median: float, seed: int, rule: str
) -> Kernel:
    if isinstance(kernel, Collection):
        return Collection(
            tuple(_resolved(data, kind, each, median, seed, rule) for each in kernel.kernels)
        )
    resolved = kernel.with_median(median).with_dimension(data.reference.shape[1])
    if isinstance(resolved, MultiScale) and kernel.needs_median:
        resolved = _reaching(resolved, data)
    if isinstance(resolved, Tilted) and resolved.needs_centre:
        resolved = resolved.with_centre(centre_of(_pool(data, seed)))
    if isinstance(resolved, FunctionKernel):
        resolved.check_symmetric(host(_pool(data, seed))[:_SYMMETRY_ROWS])
        if kind.smooth:
            resolved = resolved.with_step(_median(data, seed))
    if kind.smooth and not resolved.smooth:
        raise InputError(
            f"kernel: KSD needs a smooth radial kernel (with φ' and φ''), got "
            f"{resolved.describe()}"
        )
    if resolved.variable == "r2" and not 1.0 / kind.largest < resolved.length < kind.largest:
        raise InputError(
            f"kernel: expected a bandwidth between {1.0 / kind.largest:g} and "
            f"{kind.largest:g}, got "
            f"{resolved.length:g} ({rule}); rescale the data"
        )
    _check_entries(data, resolved)
    return resolved


def _reaching(kernel: MultiScale, data: Data) -> MultiScale:
    """The kernel with bandwidths down to the distance of nearest neighbours, if that is far
    below its smallest one.
    """
    step = fine_structure(data.rows, kernel.length)
    return kernel if step is None else kernel.reaching(step)


def fine_structure(rows: Any, length: float) -> float | None:
    """The typical distance between nearest neighbours, if a kernel of this length resolves
    none of the structure.

    It does not if most rows have neighbours within a sixteenth of the length and hardly any
    between that and a quarter of it: seen with the kernel, tight clusters are points. Equal
    rows are no neighbours.

    >>> rng = np.random.default_rng(0)
    >>> fine_structure(rng.normal(size=(300, 1)), 1.0) is None
    True
    >>> clusters = 10.0 * rng.integers(3, size=(300, 2)) + rng.normal(0.0, 0.05, (300, 2))
    >>> round(fine_structure(clusters, 10.0), 2)
    0.02
    """
    if len(rows) < 2:
        return None
    some = np.asarray(host(rows[:: -(-len(rows) // _NEIGHBOURS)]), dtype=np.float64) / length
    some = some - np.median(some, axis=0)
    norms = row_products(some, some)
    squares = squared_distances(some, some, 1.0)
    different = squares > _EQUAL * np.maximum(norms[:, None], norms)
    close = different & (squares <= _CLOSE**2)
    near = different & (squares <= _WIDE_AGAIN**2)
    if close.any(axis=1).mean() <= _MOST_CLOSE or near.sum() > _NO_MORE * close.sum():
        return None
    nearest = np.where(close, squares, np.inf).min(axis=1)
    return length * float(np.sqrt(np.median(nearest[np.isfinite(nearest)])))


def choose_kernel(
    data: Data,
    settings: EstimateSettings,
    kernels: Sequence[Kernel],
    estimate: EstimateFunction,
    rows: str,
) -> tuple[Kernel, str]:
    """The kernel that separates the models best, whichever of them it favours, and a note
    that names these `rows`.
    """
    if len(data.models) < 2:
        raise InputError(
            'kernel="select": expected at least 2 different models to tell '
            "apart, got 1; name a kernel"
        )
    separations = [
        separation(estimate(data, replace(settings, kernel=kernel))) for kernel in kernels
    ]
    note = (
        f"kernel chosen among {len(kernels)} candidates for the largest separation of the "
        f"models (root mean square of "
        f"difference over standard error: {max(separations):.2f}, against "
        f"{min(separations):.2f} for the worst "
        f"candidate) on {rows}; the kernel also decides which model counts as best"
    )
    return kernels[int(np.argmax(separations))], note


def separation(joint: JointEstimate) -> float:
    """``√(mean_{i<j} (D_i − D_j)²/s_ij²)`` over the pairs of models whose difference varies;
    0 if none does.

    The square does not depend on which of two models is better: the choice is symmetric in
    the models.

    >>> separation(JointEstimate(("a", "b"), [0.1, 0.5], [[0.01, 0.0], [0.0, 0.03]]))
    2.0
    """
    pairs = differences(joint)
    kept = np.triu(pairs.varies, 1)
    ratios = pairs.gap[kept] / pairs.error[kept]
    return float(np.sqrt(np.mean(np.square(ratios)))) if len(ratios) else 0.0


def _check_entries(data: Data, kernel: Kernel) -> None:
    """Refuse numbers whose kernel values, or sums of their squares, would leave float64."""
    most = kernel.largest_entry(data.reference.shape[1])
    if math.isinf(most):
        return
    if not most > 0.0:
        raise InputError(
            f"kernel: expected an offset whose power stays within float64, got "
            f"{kernel.describe()}"
        )
    for key, rows in samples_of(data).items():
        chunks = (rows[part] for part in parts(rows.shape))
        largest = max(
            (max(-float(chunk.min()), float(chunk.max())) for chunk in chunks), default=0.0
        )
        if largest > most:
            raise InputError(
                f"{sample_name(key)}: expected numbers below {most:.3g} in size for the "
                f"{kernel.describe()}, got "
                f"{largest:g}; rescale the data"
            )


def centre_of(rows: Any) -> Array:
    """The median of some rows: subtracting it removes a large offset of the data, and an
    outlier cannot move it.
    """
    step = max(1, len(rows) // BANDWIDTH_ROWS)
    return host(medians(shifted(rows[::step], 0.0)))


def _median(data: Data, seed: int) -> float:
    rows = _pool(data, seed)
    return median_distance(shifted(rows, centre_of(rows)))


def _pool(data: Data, seed: int) -> Any:
    """Some rows of the reference and of every sample, in proportion to their numbers, where
    they are.
    """
    samples = samples_of(data)
    fraction = BANDWIDTH_ROWS / sum(len(rows) for rows in samples.values())
    drawn = [
        _subsample(
            rows,
            fraction * len(rows),
            stream(seed, "bandwidth", "reference" if key is None else "models"),
        )
        for key, rows in samples.items()
    ]
    rows = library(drawn[0]).concatenate(drawn)
    if (rows == rows[0]).all():
        rows = host(rows)
        # Nearly all rows are the same: look at the distinct rows instead.
        blocks = (
            np.asarray(host(x[part]), dtype=np.float64)
            for x in samples.values()
            for part in parts(x.shape)
        )
        distinct = [block[(block != rows[0]).any(axis=1)] for block in blocks]
        rows = np.unique(np.concatenate([rows[:1], *distinct]), axis=0)
        rows = _subsample(rows, BANDWIDTH_ROWS, stream(seed, "bandwidth", "distinct"))
    return rows


def _subsample(rows: Any, count: float, rng: np.random.Generator) -> Any:
    size = max(1, round(count))
    return shifted(
        rows[:] if size >= len(rows) else rows[rng.choice(len(rows), size, replace=False)], 0.0
    )


def centre_for(rows: Any, kernel: Kernel) -> Array | float:
    """The point to subtract: a shift leaves distances as they are, but not a function of
    x·y.
    """
    return centre_of(rows) if kernel.variable == "r2" else 0.0


def shifted(x: Any, centre: Array | float) -> Any:
    """x − c in float64, on the device where x is."""
    if isinstance(x, np.ndarray):
        return x - centre
    there = x.double()
    if isinstance(centre, float):
        return there
    return there - library(there).as_tensor(centre, device=there.device)


def in_parts(x: Any, centre: Array | float) -> Iterator[Any]:
    """All rows, shifted, a part at a time."""
    numbers = None if isinstance(x, np.ndarray) else _TENSOR_NUMBERS
    return (shifted(x[part], centre) for part in parts(x.shape, numbers))


def largest_norm(data: Data, kernel: Kernel) -> float:
    """The largest ‖x − c‖² of all rows, with c as the estimators choose it."""
    samples = list(samples_of(data).values())
    centre = centre_for(samples[0], kernel)
    largest = [
        (part**2).sum(axis=1).max() for rows in samples for part in in_parts(rows, centre)
    ]
    return float(library(largest[0]).stack(largest).max())


def column_notes(data: Data, kernel: Kernel) -> tuple[str, ...]:
    """A sentence if one of several columns that vary holds nearly all of the variance and
    the kernel is radial.

    The quartiles must agree: an outlier can dominate a variance, but not a median distance.
    """
    if kernel.variable != "r2" or data.reference.shape[1] < 2:
        return ()
    samples = list(samples_of(data).values())
    unit = float(abs(_evenly_spaced(samples[0])).max()) or 1.0

    def some() -> Iterator[Array]:
        """Some rows of every sample in turn: those of all would take much memory."""
        return (host(_evenly_spaced(rows)) / unit for rows in samples)

    # Columns 1e154 times as large as the unit say nothing.
    with np.errstate(over="ignore", invalid="ignore"):
        variance = np.mean([rows.var(axis=0) for rows in some()], axis=0)
        first = int(np.argmax(variance))
        total = float(variance.sum())
        fraction = float(variance[first]) / total if 0.0 < total < math.inf else 0.0
        if fraction <= OUTWEIGHS:
            return ()
        varies = np.any([rows.min(axis=0) < rows.max(axis=0) for rows in some()], axis=0)
        if varies.sum() < 2:
            return ()
        between = np.mean([_quartile_range(rows) ** 2 for rows in some()], axis=0)
    if not between[first] > OUTWEIGHS * between.sum():
        return ()
    name = (
        f"column {first} (counted from 0)"
        if data.encoding is None
        else repr(data.encoding.labels[first])
    )
    advice = 'standardise the columns (scale="auto")'
    if data.kind != "samples":
        advice = 'whiten the columns (scale="whiten"), which changes the scores with the rows'
    share = f"{math.floor(1000.0 * fraction) / 10.0:g}%"
    effect = "of the variance, so the other columns barely affect the kernel"
    return (f"{name} holds {share} {effect}; if the units differ, {advice}",)


def _quartile_range(rows: Array) -> Array:
    low, high = np.quantile(rows, (0.25, 0.75), axis=0)
    return np.asarray(high - low)


def _evenly_spaced(rows: Any) -> Any:
    count = min(_MOST_ROWS, max(_FEWEST_ROWS, _NUMBERS // rows.shape[1]))
    return shifted(rows[:: max(1, len(rows) // count)], 0.0)
