"""How much every row of a sample shows of the difference between a model and the data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relfit.errors import InputError
from relfit.evidence.recall import Recalled
from relfit.evidence.witness import Heights, kernel_values, row_witness, stein_contributions
from relfit.inputs import scores_of
from relfit.models import Density
from relfit.result import Comparison

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

# Values recomputed here differ from the result's by rounding only; this much of a standard error is no rounding.
_SAME = 1e-3
# Estimators and samples for which the mean of the rows is the discrepancy itself.
_PLAIN = {"estimator": (None, "complete"), "dependence": (None, "independent", "shared")}


@dataclass(frozen=True)
class Side:
    """Some rows of one sample, their numbers in it, and the function's heights there."""

    rows: Array
    numbers: Rows
    heights: Heights


@dataclass(frozen=True)
class Differing:
    """Where one model differs from the data, row by row.

    Attributes:
        name: the model.
        kind: "mass" (MMD's witness: above 0 the model has too much mass) or "slope" (KSD: the row's contribution).
        model: the model's own rows; None for a density.
        reference: the reference rows; None where the reference is a density.
        typical: with MMD, mean_a k(x_c, r_a) of the model's rows: how much they are like the data.
    """

    name: str
    kind: str
    model: Side | None
    reference: Side | None
    typical: Array | None = None

    @property
    def sides(self) -> tuple[Side, ...]:
        """The sides there are."""
        return tuple(side for side in (self.model, self.reference) if side is not None)

    @property
    def discrepancy(self) -> float:
        """The discrepancy of these rows: mean f(x) − mean f(r) for MMD², mean g for KSD²."""
        if self.kind == "mass" and self.model is not None and self.reference is not None:
            return float(self.model.heights.values.mean() - self.reference.heights.values.mean())
        return float(self.sides[0].heights.values.mean())


def differing_rows(comparison: Comparison, recalled: Recalled, name: str) -> Differing:
    """The rows of one model and of the data with what each shows of their difference.

    Where every row is used their mean is the result's discrepancy; data that give another one are refused.
    """
    data, kernel = recalled.data, recalled.kernel
    original = data.copies.get(name, name)
    if original not in data.models:
        raise InputError(f"name: expected one of {', '.join(map(repr, data.names[:8]))}, got {name!r}")
    model = data.models[original]
    if isinstance(model, Density):
        x = recalled.reference
        found = Differing(name, "slope", None, _side(recalled, None, x, _contributions(name, model, x, recalled)))
    elif data.target is not None:
        x = recalled.sample(original)
        heights = _contributions("target", data.target, x, recalled)
        found = Differing(name, "slope", _side(recalled, original, x, heights), None)
    else:
        x, r = recalled.sample(original), recalled.reference
        at_model, at_reference = row_witness(x, r, kernel)
        typical = kernel_values(x, r, kernel).mean(axis=1)
        found = Differing(
            name, "mass", _side(recalled, original, x, at_model), _side(recalled, None, r, at_reference), typical
        )
    _check_same(comparison, recalled, found)
    return found


def _contributions(name: str, density: Density, x: Array, recalled: Recalled) -> Heights:
    return stein_contributions(x, scores_of(name, density, x), recalled.kernel)


def _side(recalled: Recalled, key: str | None, rows: Array, heights: Heights) -> Side:
    return Side(rows, recalled.rows[key], heights)


def _check_same(comparison: Comparison, recalled: Recalled, found: Differing) -> None:
    # Rows in groups have fewer pairs in the result than here.
    comparable = comparison.groups is None
    comparable = comparable and all(getattr(comparison, key) in values for key, values in _PLAIN.items())
    if not recalled.complete or not comparable or comparison.measure not in ("mmd", "ksd"):
        return
    sizes = comparison.sizes
    if comparison.test == "relmulti" or sizes is None or sizes[0] != len(recalled.data.reference):
        return
    i = comparison.names.index(found.name)
    error = float(comparison.standard_error[i])
    if abs(found.discrepancy - float(comparison.discrepancy[i])) > _SAME * error + 1e-9:
        raise InputError(
            f"data: expected the data this result was made from; the discrepancy of {found.name!r} is "
            f"{found.discrepancy:.6g} with these and {float(comparison.discrepancy[i]):.6g} in the result"
        )
