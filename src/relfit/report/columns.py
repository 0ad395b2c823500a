"""Which columns are wrong: each column of a model beside that of the data, and its part in
the joint discrepancy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import wasserstein_distance

from relfit.data.encode import Column, Encoding
from relfit.estimators.mmd import squared_mmd
from relfit.kernels.base import Kernel
from relfit.report.recall import MOST_COLUMNS, Moments, PanelData
from relfit.report.witness import pictured
from relfit.results.comparison import Comparison
from relfit.results.words import measure_of
from relfit.util.arrays import Array
from relfit.util.text import visible

# Columns without names have a panel up to so many.
MOST_NAMELESS = 12
# Rows of each sample for the shares, the most kernel matrices, and the most permutations of a
# column.
_ROWS = 400
_MATRICES = 240
_PERMUTATIONS = 2
# Splits of the data into halves, for the noise of a distance.
_SPLITS = 10
# A share is shown for a discrepancy of at least so many standard errors.
_CLEAR = 2.0
# A share that is marked: a column that is right by itself would show no sign of a wrong joint
# distribution.
LARGE_SHARE = 0.25
# Bins of a histogram, the quantiles between which it is drawn, and the most levels that have a
# bar.
_BINS = 20
_FRAME = (0.005, 0.995)
_BARS = 10
# Columns of whole numbers have up to so many bins, which hold equally many of the numbers.
_MOST_BINS = 40
WIDTH = 120.0
HEIGHT = 40.0
# Values are equal if closer than this part of their range, and evenly spaced up to this part of
# a step.
_EQUAL = 1e-9
_EVEN = 0.01


@dataclass(frozen=True)
class Part:
    """One column of one model.

    Attributes:
        apart: the distance to the reference: Wasserstein-1 in units of the reference's
            standard deviation for numbers, total variation for categories.
        share: which part of the joint discrepancy goes when the column's cells are dealt to
            model and data at random; None where there is no clear discrepancy.
        says: the difference in words.
        paths: the drawings of the data and of the model.
    """

    apart: float
    share: float | None
    says: str
    paths: tuple[str, str]


def column_panel(comparison: Comparison, recalled: PanelData) -> dict[str, Any] | None:
    """A row for each column, with a `Part` for each pictured model; None for densities and
    very many columns.
    """
    data = recalled.data
    encoding = data.encoding or Encoding(
        "none", tuple(Column(f"column {k}") for k in range(data.reference.shape[1]))
    )
    most = MOST_NAMELESS if data.encoding is None else MOST_COLUMNS
    compared = data.kind == "samples" and measure_of(comparison).pairs
    if not compared or len(encoding.columns) > most:
        return None
    names = pictured(comparison)
    originals = [recalled.original(name) for name in names]
    samples = [data.samples[original] for original in originals]
    shares: list[list[float] | None] = [None] * len(names)
    for k, (name, sample) in enumerate(zip(names, samples, strict=True)):
        i = comparison.names.index(name)
        if comparison.discrepancy[i] > _CLEAR * comparison.standard_error[i]:
            shares[k] = column_shares(
                sample, data.reference, recalled.kernel, encoding.slices, len(names)
            )
    rows: list[dict[str, Any]] = []
    moments = recalled.moments
    for k, (column, at) in enumerate(zip(encoding.columns, encoding.slices, strict=True)):
        of_data = data.reference[:, at]
        of_models = [sample[:, at] for sample in samples]
        parts = [
            Part(
                distance(column, cells, of_data),
                None if known is None else known[k],
                _says(column, at, moments[original], moments[None]),
                paths,
            )
            for original, cells, known, paths in zip(
                originals, of_models, shares, _drawings(column, of_data, of_models), strict=True
            )
        ]
        rows.append(
            {
                "name": visible(column.name),
                "kind": column.kind,
                "noise": noise(column, of_data),
                "parts": parts,
            }
        )
    largest = {
        "by_distance": [max(part.apart for part in row["parts"]) for row in rows],
        "by_share": [max(part.share or 0.0 for part in row["parts"]) for row in rows],
    }
    for key, values in largest.items():
        for place, k in enumerate(np.argsort(np.negative(values), kind="stable").tolist()):
            rows[k][key] = place
    shared = any(known is not None for known in shares)
    return {
        "names": names,
        "rows": rows,
        "left_out": {} if data.encoding is None else data.encoding.left_out,
        "large_share": LARGE_SHARE,
        "shares": shared,
        "source": _source(recalled, shared),
        "width": WIDTH,
        "height": HEIGHT,
    }


def _source(recalled: PanelData, shared: bool) -> str:
    """How many rows the panel's numbers come from, where these are not all rows."""
    sentences = []
    if not recalled.complete:
        used = (
            f"Drawings, distances and noise come from at most {recalled.most_rows:,} rows "
            f"of each sample"
        )
        sentences.append(f"{used}; means, spreads and percentages come from all rows.")
    if shared and recalled.most_rows > _ROWS:
        sentences.append(f"Shares come from at most {_ROWS} rows of each sample.")
    return " ".join(sentences)


def distance(column: Column, cells: Array, reference: Array) -> float:
    """How far the cells of a column are from those of the reference, both encoded.

    >>> distance(
    ...     Column("x"), np.array([[1.0], [2.0]]), np.array([[0.0], [2.0]])
    ... )  # ½·1, and the deviation is 1
    0.5
    """
    if column.kind == "category":
        return float(0.5 * np.abs(_levels(cells) - _levels(reference)).sum())
    (a, gaps_a) = _numbers(column, cells)
    (b, gaps_b) = _numbers(column, reference)
    spread = float(b.std()) if len(b) and b.std() > 0.0 else 1.0
    moved = float(wasserstein_distance(a, b)) / spread if len(a) and len(b) else 0.0
    return moved + abs(gaps_a - gaps_b)


def noise(column: Column, cells: Array) -> float:
    """The mean distance between two samples of this size from one law: that between halves,
    over √2.
    """
    rng = np.random.default_rng(0)
    half = len(cells) // 2
    apart = []
    for _ in range(_SPLITS):
        order = rng.permutation(len(cells))
        apart.append(distance(column, cells[order[:half]], cells[order[half:]]))
    return float(np.mean(apart) / np.sqrt(2.0))


def column_shares(
    sample: Array, reference: Array, kernel: Kernel, slices: Sequence[slice], models: int = 1
) -> list[float]:
    """For each column 1 − D'/D, where D' has the column's cells of model and reference dealt
    out at random.

    Dealt out, they differ neither between the two nor in how they go with other columns.
    Between 0 and 1.
    """
    x = sample[:_ROWS]
    r = reference[:_ROWS]
    repeats = max(1, min(_PERMUTATIONS, _MATRICES // (models * len(slices))))
    pooled = np.concatenate([x, r])
    rng = np.random.default_rng(0)
    whole = squared_mmd(x, r, kernel)
    if not whole > 0.0:
        return [0.0] * len(slices)
    shares = []
    for at in slices:
        dealt = []
        for _ in range(repeats):
            changed = pooled.copy()
            changed[:, at] = pooled[rng.permutation(len(pooled)), at]
            dealt.append(squared_mmd(changed[: len(x)], changed[len(x) :], kernel))
        shares.append(float(np.clip(1.0 - np.mean(dealt) / whole, 0.0, 1.0)))
    return shares


def _levels(cells: Array) -> Array:
    """The fraction of rows at each level."""
    return np.asarray((cells > 0.0).mean(axis=0))


def _numbers(column: Column, cells: Array) -> tuple[Array, float]:
    """The numbers that are there, and the fraction of rows without."""
    gaps = cells[:, -1] > 0.0 if column.missing else np.zeros(len(cells), dtype=bool)
    return cells[~gaps, 0], float(gaps.mean())


def _says(column: Column, at: slice, model: Moments, data: Moments) -> str:
    """The difference in a few words: the level that differs most, or how mean and spread
    differ.
    """
    if column.kind == "category":
        here = model.positive[at]
        there = data.positive[at]
        k = int(np.abs(here - there).argmax())
        label = column.labels[k].removeprefix(f"{column.name} ").removeprefix("= ")
        return f"{visible(label)[:24]}: {100 * here[k]:.0f}% (data {100 * there[k]:.0f}%)"
    mean_a, spread_a, gaps_a = _centre(column, at, model)
    mean_b, spread_b, gaps_b = _centre(column, at, data)
    missing = f"missing {100 * gaps_a:.0f}% (data {100 * gaps_b:.0f}%)"
    if gaps_a == 1.0 or spread_b == 0.0:
        return missing.replace(" ", ": ", 1)
    moved = f"{round((mean_a - mean_b) / spread_b, 2) + 0.0:+.2f}".replace("-", "−")
    gaps = f", {missing}" if gaps_a or gaps_b else ""
    return f"mean {moved} s.d., spread ×{spread_a / spread_b:.2f}{gaps}"


def _centre(column: Column, at: slice, of_all: Moments) -> tuple[float, float, float]:
    """Mean and spread of the numbers that are there, and the fraction of rows without; these
    hold 0.
    """
    mean = float(of_all.mean[at.start])
    spread = float(of_all.spread[at.start])
    gaps = float(of_all.positive[at.stop - 1]) if column.missing else 0.0
    if gaps in (0.0, 1.0):
        return mean, spread if gaps == 0.0 else 0.0, gaps
    there = mean / (1.0 - gaps)
    variance = (spread**2 + mean**2) / (1.0 - gaps) - there**2
    # Of equal numbers there is a rest from rounding.
    return there, math.sqrt(variance) if variance > 1e-12 * there**2 else 0.0, gaps


def _drawings(
    column: Column, reference: Array, samples: Sequence[Array]
) -> list[tuple[str, str]]:
    """For each sample the paths of the data and of the sample, on one scale: histograms, or
    bars of levels.
    """
    if column.kind == "category":
        order = np.argsort(-_levels(reference), kind="stable")
        heights = [_levels(cells)[order] for cells in (reference, *samples)]
        if len(order) > _BARS + 1:
            heights = [np.append(part[:_BARS], part[_BARS:].sum()) for part in heights]
    else:
        values = [_numbers(column, cells)[0] for cells in (reference, *samples)]
        pool = np.concatenate(values)
        low, high = np.quantile(pool, _FRAME) if len(pool) else (0.0, 1.0)
        edges = bins(values[0], float(low), float(high))
        heights = [
            np.histogram(np.clip(part, edges[0], edges[-1]), edges)[0] / max(1, len(part))
            for part in values
        ]
    tallest = max(float(part.max(initial=0.0)) for part in heights) or 1.0
    filled, *lines = (_steps(part / tallest, gap=column.kind == "category") for part in heights)
    return [(filled, line) for line in lines]


def bins(values: Array, low: float, high: float) -> Array:
    """The edges of a histogram; those of evenly spaced values, such as whole numbers, lie
    between the values.

    >>> bins(np.array([1.0, 2.0, 4.0]), 1.0, 4.0)
    array([0.5, 1.5, 2.5, 3.5, 4.5])
    """
    step = spacing(values)
    if step is None:
        return np.linspace(low, high if high > low else low + 1.0, _BINS + 1)
    first = float(values.min())
    start = round((low - first) / step)
    steps = round((high - first) / step) - start + 1
    width = -(-steps // _MOST_BINS)
    count = -(-steps // width)
    return first + step * (start - 0.5 + width * np.arange(count + 1.0))


def spacing(values: Array) -> float | None:
    """The distance of neighbouring values, if all values are multiples of it apart; None
    otherwise.
    """
    levels = np.unique(values)
    # Equal numbers can differ in their last digits after scaling.
    gaps = np.diff(levels)
    gaps = gaps[gaps > _EQUAL * np.ptp(levels)] if len(gaps) else gaps
    if not len(gaps):
        return None
    step = float(gaps.min())
    places = (levels - levels[0]) / step
    return step if bool((np.abs(places - places.round()) < _EVEN).all()) else None


def _steps(heights: Array, *, gap: bool) -> str:
    """The outline of bars of these heights, from 0 to 1."""
    step = WIDTH / len(heights)
    space = 0.12 * step if gap else 0.0
    down = f"V{HEIGHT:g}"
    path = "" if gap else f"M0.0 {HEIGHT:g}"
    for k, height in enumerate(heights):
        left = k * step + space
        right = (k + 1) * step - space
        bar = f"L{left:.1f} {HEIGHT * (1.0 - height):.1f}H{right:.1f}"
        path += f"M{left:.1f} {HEIGHT:g}{bar}{down}" if gap else bar
    return path if gap else path + down
