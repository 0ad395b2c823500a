"""Columns of unlike units and kinds as rows of numbers: an encoding, fitted on the reference, applied to all samples.

A number becomes (x − centre)/scale. The encoding is a small record that results keep, so that the same rows can be made
again.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import reduce
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from relfit.compute.rows import LazyRows, parts
from relfit.util.arrays import Array, Rows
from relfit.util.checks import check_number
from relfit.util.errors import InputError
from relfit.util.text import is_text

# "whiten" is for densities: the score must be transformed with the rows.
SCALES = ("auto", "none", "robust", "whiten")
# Medians are taken over at most so many rows, evenly spaced. The MAD of a normal law times this is its standard
# deviation.
_MEDIAN_ROWS, _MAD = 1_000_000, 1.482602218505602

# One word for all columns, or a scale for each of some columns by name; the others are then scaled as by "auto".
Scale = str | Mapping[str, float]


def as_scale(value: Any) -> Scale | None:
    """The `scale` argument, checked; None stands for "auto" where columns have names, and for "none" elsewhere."""
    if value is None or (isinstance(value, str) and value in SCALES):
        return value
    if isinstance(value, Mapping) and value:
        return {
            str(name): check_number(f"scale[{name!r}]", s, 0.0, math.inf, "a number above 0")
            for name, s in value.items()
        }
    words = ", ".join(SCALES)
    raise InputError(f"scale: expected one of {words}, or a mapping of columns to scales, got {reprlib.repr(value)}")


@dataclass(frozen=True)
class Column:
    """How one column becomes numbers.

    Attributes:
        name: its name; "column 0", "column 1", … where columns have none.
        kind: "number".
        centre, scale: a number x becomes (x − centre)/scale.
    """

    name: str
    kind: str = "number"
    centre: float = 0.0
    scale: float = 1.0

    @property
    def width(self) -> int:
        """How many numbers it becomes."""
        return 1


@dataclass(frozen=True)
class Encoding:
    """How the columns of a table become rows of numbers.

    Attributes:
        scale: "auto" (mean and standard deviation of the reference), "robust" (median and scaled median absolute
            deviation), "none", or "given" where some scales were given.
        columns: the columns in use, in order.
        left_out: the other columns, each with the reason.
        root: (d, d) the lower triangle R with RRᵀ the correlations of the scaled columns, for "whiten": the scaled row
            z becomes R⁻¹z.
    """

    scale: str
    columns: tuple[Column, ...]
    left_out: dict[str, str] = field(default_factory=dict)
    root: tuple[tuple[float, ...], ...] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns in use."""
        return tuple(column.name for column in self.columns)

    @property
    def centres(self) -> Array:
        """(d,) the centres of columns of numbers."""
        return np.array([column.centre for column in self.columns])

    @property
    def scales(self) -> Array:
        """(d,) the scales of columns of numbers."""
        return np.array([column.scale for column in self.columns])

    def apply(self, rows: Any) -> Any:
        """The rows (n, d) of numbers, encoded: an array, or `LazyRows`, which are encoded as they are read."""
        if self.scale == "none":
            return rows
        if isinstance(rows, LazyRows):
            return EncodedRows(rows, self)
        return self.applied(rows)

    def applied(self, rows: Array) -> Array:
        """The rows (n, d) of numbers, each column moved and scaled, and the rows whitened if there is a root."""
        # What overflows is refused by the check of the values.
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = np.asarray((rows - self.centres) / self.scales)
        if self.root is None or not len(rows):
            return scaled
        return np.ascontiguousarray(solve_triangular(np.array(self.root), scaled.T, lower=True).T)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able form."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Any) -> Encoding:
        """The encoding that `to_dict` described; anything else is refused."""
        try:
            known = {item.name for item in fields(Column)}
            columns = tuple(
                Column(**{key: value for key, value in each.items() if key in known}) for each in data["columns"]
            )
            left_out = {str(name): str(why) for name, why in data.get("left_out", {}).items()}
            root = None if data.get("root") is None else np.array(data["root"], dtype=np.float64)
            encoding = cls(data["scale"], columns, left_out, None if root is None else tuple(map(tuple, root.tolist())))
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"encoding: expected what Encoding.to_dict gives ({error})") from None
        for column in columns:
            numbers = isinstance(column.centre, int | float) and isinstance(column.scale, int | float)
            if (
                not is_text(column.name)
                or not numbers
                or not (math.isfinite(column.centre) and 0.0 < column.scale < math.inf)
            ):
                raise ValueError("encoding: expected columns with names, finite centres and scales above 0")
        if root is not None and not (
            root.shape == (len(columns),) * 2
            and np.isfinite(root).all()
            and (np.diag(root) > 0.0).all()
            and np.array_equal(root, np.tril(root))
        ):
            raise ValueError("encoding: expected a root that is a lower triangle with a diagonal above 0")
        if encoding.scale not in (*SCALES, "given") or not columns or len(set(encoding.names)) < len(columns):
            raise ValueError("encoding: expected a word for the scale and columns of different names")
        return encoding


@dataclass(frozen=True, eq=False)
class EncodedRows(LazyRows):
    """The rows of another `LazyRows`, encoded as they are read."""

    rows: LazyRows
    encoding: Encoding

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.shape

    def __getitem__(self, rows: slice | Rows) -> Array:
        return self.encoding.applied(self.rows[rows])


def fit_rows(reference: Any, scale: Scale, names: Sequence[str] | None = None) -> Encoding:
    """The encoding of columns of numbers, from the reference rows (n, d), an array or `LazyRows`.

    >>> fit_rows(np.array([[0.0, 5.0], [2.0, 5.0]]), "auto").columns[0]
    Column(name='column 0', kind='number', centre=1.0, scale=1.0)
    """
    names = [f"column {k}" for k in range(reference.shape[1])] if names is None else names
    given = scale if isinstance(scale, Mapping) else {}
    unknown = next((name for name in given if name not in names), None)
    if unknown is not None:
        raise InputError(f"scale: expected names of columns ({reprlib.repr(list(names))}), got {unknown!r}")
    if scale == "none":
        return Encoding("none", tuple(map(Column, names)))
    word = "given" if given else str(scale)
    centres, scales = (robust if word == "robust" else moments)(reference)
    columns = (
        Column(name, "number", float(c), float(given.get(name, s)))
        for name, c, s in zip(names, centres, scales, strict=True)
    )
    return Encoding(word, tuple(columns))


def moments(rows: Any) -> tuple[Array, Array]:
    """(d,) the mean and the standard deviation of each column; 1 for a constant one. Rows are read in parts."""
    first = rows[:1][0]
    largest = _over(rows, lambda block: np.abs(block - first).max(axis=0), np.maximum)
    unit = np.where(largest > 0.0, largest, 1.0)
    mean = _over(rows, lambda block: ((block - first) / unit).sum(axis=0), np.add) / len(rows)
    squares = _over(rows, lambda block: np.square((block - first) / unit - mean).sum(axis=0), np.add) / len(rows)
    return first + unit * mean, np.where(largest > 0.0, unit * np.sqrt(squares), 1.0)


def robust(rows: Any) -> tuple[Array, Array]:
    """(d,) the median of each column and its scaled median absolute deviation (where that is 0, the standard one)."""
    some = rows[:: max(1, -(-len(rows) // _MEDIAN_ROWS))]
    centre = np.median(some, axis=0)
    spread = _MAD * np.median(np.abs(some - centre), axis=0)
    return centre, np.where(spread > 0.0, spread, moments(rows)[1])


def _over(rows: Any, each: Callable[[Array], Array], join: Callable[[Array, Array], Array]) -> Array:
    """A statistic of all rows from that of each part."""
    return reduce(join, (each(rows[part]) for part in parts(rows.shape)))
