"""The data behind a finished comparison, and the axes they are drawn along.

A page loads its data once, here: `recall` checks that they are those of the result and
chooses the rows that every panel is made from. Whoever holds the loaded data already passes
them, and nothing is loaded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.stats import ks_2samp

from relfit.checks.robustness import Sensitivity
from relfit.compute.memory import Budget, budget_of
from relfit.data.load import Data, is_rows, load
from relfit.data.presets import PRESETS
from relfit.estimators.groups import row_orders
from relfit.kernels.base import Kernel
from relfit.kernels.composite import Collection
from relfit.kernels.custom import Recorded
from relfit.results.comparison import Comparison
from relfit.results.words import measure_of
from relfit.settings import computing
from relfit.util.arrays import Array, Rows, host, parts
from relfit.util.errors import InputError
from relfit.util.text import listed, visible

# Panels are made from at most so many rows of a sample, and from fewer where rows are long or
# models many.
MOST_ROWS = 1000
FEWEST_ROWS = 100
# Beyond so many columns, those of features of images and texts, single columns mean nothing by
# themselves.
MOST_COLUMNS = 60
# Numbers that may be worked through for one page.
_BUDGET = 3.6e9
# A kernel value costs about as much as so many columns.
_KERNEL_COLUMNS = 30
# Principal axes that are looked at.
CANDIDATES = 12
# An axis with a smaller part of the variance than this has none but rounding.
_VARIES = 1e-12
# Up to so many rows or columns they come from a singular value decomposition, beyond from so
# many iterations.
_EXACT = 200
_ITERATIONS = 12


@dataclass(frozen=True)
class Moments:
    """(d,) mean and standard deviation of each number over all rows of a sample, and the
    part of rows where it is > 0.

    >>> Moments.of([np.array([[1.0], [2.0]]), np.array([[6.0]])])
    Moments(mean=array([3.]), spread=array([2.1602469]), positive=array([1.]))
    """

    mean: Array
    spread: Array
    positive: Array

    @classmethod
    def of(cls, blocks: Iterable[Array]) -> Moments:
        count = 0
        mean = squares = positive = np.zeros(1)
        for block in blocks:
            # Sums of squares about the means of parts are added up without loss of digits.
            own = block.mean(axis=0)
            before = count
            count = count + len(block)
            gap = own - mean
            squares = (
                squares
                + np.square(block - own).sum(axis=0)
                + before * len(block) / count * gap**2
            )
            mean = mean + len(block) / count * gap
            positive = positive + (block > 0.0).sum(axis=0)
        return cls(mean, np.sqrt(squares / count), positive / count)


@dataclass(frozen=True)
class PanelData:
    """The rows of a comparison that its panels are made from.

    Attributes:
        data: every distinct model once; of samples and reference the chosen rows, as the kernel
            is used on them.
        kernel: the comparison's kernel.
        rows: for the reference (key None) and every sample the numbers of the chosen rows,
            ascending.
        sizes: for the same keys the numbers of all rows.
        moments: for the same keys those of all rows; none for densities and very many columns.
        others: the verdicts at other bandwidths, once somebody asked for them.
    """

    data: Data
    kernel: Kernel
    rows: dict[str | None, Rows]
    sizes: dict[str | None, int]
    moments: dict[str | None, Moments]
    others: Sensitivity | None = None

    @property
    def complete(self) -> bool:
        """True if every row was chosen."""
        return all(len(self.rows[key]) == size for key, size in self.sizes.items())

    def original(self, name: str) -> str:
        """The model that this one is, or that it is a copy of."""
        return self.data.copies.get(name, name)

    @property
    def most_rows(self) -> int:
        """The most rows that were chosen of any sample."""
        return max(map(len, self.rows.values()))

    @cached_property
    def encoded(self) -> Data:
        """The data in the coordinates in which the kernel measures distances."""
        return self.data.encoded()

    @cached_property
    def pooled(self) -> Array:
        """The rows of the reference and of every sample."""
        return np.concatenate([self.data.reference, *self.data.samples.values()])

    @cached_property
    def main_axes(self) -> MainAxes:
        """The main axes of the pooled rows, which all pictures share."""
        return replace(main_axes(self.pooled), labels=self.labels)

    @property
    def labels(self) -> tuple[str, ...] | None:
        """What each column of the rows stands for; None where columns have no names."""
        encoding = self.data.encoding
        return None if encoding is None else tuple(map(visible, encoding.labels))


def recall(comparison: Comparison, data: Any, *, most: int | None = None) -> PanelData:
    """The rows of this result's data that panels are made from; other data are refused.

    `data` is the pair (reference, models) that was compared, and is loaded as `compare` did
    it: generators are drawn from again with the result's seed, and files are read in parts
    inside ``with computing(memory=...)``. Or it is the `Data` that `compare` loaded. `most`
    bounds the rows. What was recalled already is returned as it is.
    """
    if isinstance(data, PanelData):
        return data
    if comparison.kernel is None:
        raise InputError(
            "data: this result was made from scores, likelihoods or a discrepancy of your own "
            "and has no kernel; leave data out"
        )
    if comparison.kernel.by_blocks or isinstance(comparison.kernel, Collection | Recorded):
        raise InputError(
            f"data: expected a kernel of relfit or a Radial one, got "
            f"{comparison.kernel.describe()}"
        )
    with computing() as compute, ExitStack() as stack:
        memory = compute.memory
        budget = None if memory is None else stack.enter_context(budget_of(memory))
        loaded, redrawn = data, set[str | None]()
        if not isinstance(data, Data):
            loaded, redrawn = _load(comparison, data, budget)
        _check_same_data(comparison, loaded, redrawn)
        sizes: dict[str | None, int] = {None: len(loaded.reference)}
        sizes |= {name: len(rows) for name, rows in loaded.samples.items()}
        if most is None:
            # So many rows that the panels are a matter of seconds.
            width = loaded.reference.shape[1] + _KERNEL_COLUMNS
            affordable = math.isqrt(int(_BUDGET / ((2 * len(loaded.models) + 1) * width)))
            most = max(FEWEST_ROWS, min(MOST_ROWS, affordable))
        if comparison.dependence == "chain":
            # A chain's draws mean something in their order only.
            rows = {key: np.arange(min(size, most)) for key, size in sizes.items()}
        else:
            dependence: Any = comparison.dependence or "independent"
            orders = row_orders(loaded, dependence, comparison.seed or 0, "pictures")
            rows = {key: np.sort(order[:most]) for key, order in orders.items()}
        return PanelData(
            _taken(comparison, loaded, rows),
            comparison.kernel,
            rows,
            sizes,
            _moments(comparison, loaded),
        )


def _load(
    comparison: Comparison, data: Any, budget: Budget | None
) -> tuple[Data, set[str | None]]:
    """The data, and which samples (None: the reference) were not given as rows: those drawn
    anew may differ.
    """
    pair = isinstance(data, tuple | list) and len(data) == 2
    if not pair or not isinstance(data[1], Mapping | Sequence):
        raise InputError(
            f"data: expected a pair (reference, models) as given to compare, got "
            f"{type(data).__name__}"
        )
    reference, models = data
    # A result without an encoding was made from rows as they are.
    options: dict[str, Any] = (
        {"plain": True} if comparison.encoding is None else {"encoding": comparison.encoding}
    )
    loaded = load(
        reference,
        models,
        seed=comparison.seed or 0,
        all_samples=measure_of(comparison).kind == "samples",
        fewest_models=1,
        budget=budget,
        **options,
    )
    values = [reference, *(models.values() if isinstance(models, Mapping) else models)]
    named = zip((None, *loaded.names), values, strict=True)
    return loaded, {name for name, value in named if not is_rows(value)}


def _check_same_data(comparison: Comparison, data: Data, redrawn: set[str | None]) -> None:
    """Refuse other models or other rows than the result's. A result without digests cannot
    tell the last.
    """
    if data.names != comparison.names:
        came = f"({listed(comparison.names)}), got {listed(data.names)}"
        raise InputError(f"data: expected the models of this result {came}")
    inputs = comparison.inputs or {}
    recorded = {None: inputs.get("reference"), **(inputs.get("models") or {})}
    for key, digest in data.digests.items():
        if recorded.get(key) not in (None, digest) and key not in redrawn:
            what = "the reference" if key is None else f"model {key!r}"
            raise InputError(
                f"data: expected the data this result was made from; the rows of {what} are "
                f"not the same (changed, "
                "reordered, or a different selection of rows or columns)"
            )


def _taken(comparison: Comparison, data: Data, rows: Mapping[str | None, Rows]) -> Data:
    """The data with these rows only, in memory, and prepared as the result's preset does it:
    once more does no harm.
    """
    samples = {
        name: _prepared(comparison, sample[rows[name]]) for name, sample in data.samples.items()
    }
    kept = replace(
        data,
        reference=_prepared(comparison, data.reference[rows[None]]),
        models={**data.models, **samples},
        device=None,
        folder=None,
    )
    return kept if data.kind == "samples" else replace(kept, encoding=comparison.encoding)


def _prepared(comparison: Comparison, rows: Any) -> Array:
    """These rows in memory, as the result's preset prepares them."""
    taken = np.asarray(host(rows), dtype=np.float64)
    preset = comparison.preset
    return taken if preset is None else PRESETS[preset].prepare("data", taken)


def _moments(comparison: Comparison, data: Data) -> dict[str | None, Moments]:
    """Those of the reference and of every sample, read a part at a time."""
    columns = data.reference.shape[1] if data.encoding is None else len(data.encoding.columns)
    if data.kind != "samples" or columns > MOST_COLUMNS:
        return {}
    moments = {}
    for name, rows in ((None, data.reference), *data.samples.items()):
        blocks = parts(tuple(rows.shape))
        moments[name] = Moments.of(_prepared(comparison, rows[block]) for block in blocks)
    return moments


@dataclass(frozen=True)
class View:
    """Axes of a picture: z = (x − centre) @ directionsᵀ, their names, and these with the
    variance along each.

    `projected`: the axes are not the columns themselves, but two main axes of more columns.
    """

    centre: Array
    directions: Array
    names: tuple[str, ...]
    labels: tuple[str, ...]
    projected: bool

    def of(self, rows: Array) -> Array:
        """The rows in the picture, (n, 1) or (n, 2)."""
        return np.asarray((rows - self.centre) @ self.directions.T)


@dataclass(frozen=True)
class MainAxes:
    """The first principal directions (k, d) of some rows about their centre, and each one's
    part of the variance.
    """

    centre: Array
    directions: Array
    fraction: Array
    labels: tuple[str, ...] | None = None

    def view(self, chosen: Sequence[int] = (0, 1)) -> View:
        """A picture along two of them."""
        of = "the variance" if self.labels is None else "variance"
        names = []
        labels = []
        for k in chosen:
            name = f"main axis {k + 1}"
            if self.labels is not None:
                most = int(np.abs(self.directions[k]).argmax())
                name += f", mostly {self.labels[most][:20]}"
            percent = 100 * self.fraction[k]
            shown = f"{percent:.2g}" if percent < 9.5 else f"{percent:.0f}"
            names.append(name)
            labels.append(f"{name} ({shown}% of {of})")
        directions = self.directions[list(chosen)]
        return View(self.centre, directions, tuple(names), tuple(labels), projected=True)


def plain_view(recalled: PanelData) -> View:
    """The one or two columns themselves."""
    d = recalled.pooled.shape[1]
    names = recalled.labels or tuple(f"column {k}" for k in range(d))
    data = recalled.data
    # Rows that go with densities are shown as they were given.
    if data.kind == "samples" and data.encoding is not None and data.encoding.scale != "none":
        names = tuple(f"{name}, standardised" for name in names)
    return View(np.zeros(d), np.eye(d), names, names, projected=False)


def chosen_view(axes: MainAxes, sample: Array, reference: Array) -> View:
    """The two main axes along which these two samples differ most.

    The difference along an axis is sup_t |F_a(t) − F_b(t)| of the two distribution functions
    (Kolmogorov–Smirnov). Rows that chose the axes must not be drawn: along the best of many
    axes even equal samples look different.
    """
    along = [((rows - axes.centre) @ axes.directions.T).T for rows in (sample, reference)]
    apart = [ks_2samp(a, b, method="asymp").statistic for a, b in zip(*along, strict=True)]
    return axes.view(sorted(np.argsort(apart, kind="stable")[::-1][:2].tolist()))


def main_axes(rows: Array) -> MainAxes:
    """The first twelve principal axes; of many long rows by subspace iteration, exact enough
    for a picture.
    """
    centre = rows.mean(axis=0)
    moved = rows - centre
    if min(moved.shape) <= _EXACT:
        directions = np.linalg.svd(moved, full_matrices=False)[2][:CANDIDATES]
    else:
        basis = np.random.default_rng(0).normal(size=(moved.shape[1], 2 * CANDIDATES))
        for _ in range(_ITERATIONS):
            basis, _ = np.linalg.qr(moved.T @ (moved @ basis))
        directions = (basis @ np.linalg.svd(moved @ basis, full_matrices=False)[2].T).T[
            :CANDIDATES
        ]
    # The sign of a direction is arbitrary: its largest entry is made positive.
    signs = np.sign(directions[np.arange(len(directions)), np.abs(directions).argmax(axis=1)])
    fraction = np.square(moved @ directions.T).sum(axis=0) / (
        float(np.square(moved).sum()) or 1.0
    )
    # Directions in which nothing varies, such as the sum of a column's levels, are no axes of a
    # picture.
    kept = max(2, int((fraction > _VARIES).sum()))
    return MainAxes(centre, (signs[:, None] * directions)[:kept], fraction[:kept])
