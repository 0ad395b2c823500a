"""Where the models and the data differ: the pictures, and the same in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relfit.evidence import Differing, Landscape, Recalled, differing_rows, landscape
from relfit.evidence.landscape import CLEAR
from relfit.evidence.rows import Side
from relfit.report.svg import Drawing, drawing, largest_difference
from relfit.report.table import number_format
from relfit.result import Comparison

Array = NDArray[np.float64]

# Pictures of more models are left out, from the middle of the table.
MOST_MODELS = 6
_PLACES = 3


@dataclass(frozen=True)
class Where:
    """One picture a model, on one scale of colours, and the rows that show most.

    `places` has a row per model: its name, where the picture is highest and lowest, and the rows that show most.
    """

    kind: str
    projected: bool
    drawings: tuple[Drawing, ...]
    largest: str
    places: tuple[tuple[str, str, str, str], ...]
    left_out: int
    rows: int
    complete: bool
    clear: float = CLEAR


def where(comparison: Comparison, recalled: Recalled) -> tuple[Where, list[Differing]]:
    """The pictures of up to six models, and the rows they were made from."""
    names = shown_models([row["name"] for row in comparison.rows()])
    found = [differing_rows(comparison, recalled, name) for name in names]
    landscapes = [landscape(recalled, each) for each in found]
    largest = largest_difference(landscapes)
    sizes = [len(rows) for key, rows in recalled.rows.items() if key is not None or recalled.data.target is None]
    panel = Where(
        kind=found[0].kind,
        projected=landscapes[0].projected,
        drawings=tuple(drawing(each, largest) for each in landscapes),
        largest=_short(largest),
        places=tuple(
            (each.name, _peak(drawn, 1.0), _peak(drawn, -1.0), _rows(each))
            for each, drawn in zip(found, landscapes, strict=True)
        ),
        left_out=len(comparison.names) - len(names),
        rows=max(sizes),
        complete=recalled.complete,
    )
    return panel, found


def shown_models(names: Sequence[str]) -> list[str]:
    """All names, or where they are many the first and the last of them.

    >>> shown_models(list("abcdefghi"))
    ['a', 'b', 'c', 'g', 'h', 'i']
    """
    if len(names) <= MOST_MODELS:
        return list(names)
    half = MOST_MODELS // 2
    return [*names[:half], *names[-half:]]


def strongest(side: Side, sign: float, count: int = _PLACES) -> list[int]:
    """Which rows of a side have the largest (sign 1) or smallest (−1) heights, if clear of their errors."""
    signed = sign * side.heights.values
    order = np.argsort(-signed, kind="stable")[:count]
    return [int(k) for k in order if signed[k] > CLEAR * side.heights.errors[k]]


def _peak(drawn: Landscape, sign: float) -> str:
    """Where the picture is highest (sign 1) or lowest (−1), in the words of its axes."""
    heights = np.where(drawn.clear, sign * drawn.values, 0.0)
    if heights.max() <= 0.0:
        return "nowhere clear of the noise"
    at = np.unravel_index(int(heights.argmax()), heights.shape)[::-1]
    coordinates = [_coordinate(axis, int(k)) for axis, k in zip(drawn.grid, at, strict=True)]
    if drawn.projected:
        names = [label.partition(" (")[0] for label in drawn.labels]
        return ", ".join(f"{value} on {name}" for value, name in zip(coordinates, names, strict=True))
    return coordinates[0] if len(coordinates) == 1 else f"({', '.join(coordinates)})"


def _coordinate(axis: Array, k: int) -> str:
    """The number to about a hundredth of the axis."""
    decimals = max(0, 2 - math.floor(math.log10(float(axis[-1] - axis[0]))))
    shown = f"{axis[k]:.{decimals}f}"
    return (shown.lstrip("-") if float(shown) == 0.0 else shown).replace("-", "−")


def _rows(found: Differing) -> str:
    """The numbers of the rows that show most of the difference."""
    first = "reference" if found.model is None else "its own"
    parts = [_numbers(found.sides[0], 1.0, first)]
    if found.kind == "mass":
        parts.append(_numbers(found.sides[-1], -1.0, "reference"))
    return "; ".join(part for part in parts if part) or "none clear of the noise"


def _numbers(side: Side, sign: float, owner: str) -> str:
    rows = strongest(side, sign)
    return f"{owner} {', '.join(str(side.numbers[k]) for k in rows)}" if rows else ""


def _short(value: float) -> str:
    return number_format([value], [value])(value) if value > 0.0 else "0"
