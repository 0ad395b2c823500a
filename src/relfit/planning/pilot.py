"""What a plan starts from: a pilot's estimate, or gaps that are assumed."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.errors import InputError
from relfit.estimate import JointEstimate
from relfit.measure.checks import FEWEST_ROWS, FEWEST_SELECTION_ROWS
from relfit.planning.laws import Law, law_of
from relfit.procedures.differences import differences, psi_rows, smallest_sample
from relfit.result import Comparison

Array = NDArray[np.float64]

# A pilot says little about samples a thousand times its size.
FARTHEST, FEWEST_MOST = 1000, 1_000_000


@dataclass(frozen=True)
class Assumed:
    """Gaps that are assumed rather than measured.

    Args:
        gaps: model name → how much worse than the best it is (≥ 0), or one number for a single model. The best model
            is one with gap 0; where none has it, a model called "best" is added.
        standard_error: of one model's discrepancy, measured on `n` rows, the "s.e." of a comparison's table.
        correlation: between the estimates of any two models, in [0, 1); the standard error of a difference is
            √(2(1 − correlation)) times `standard_error`.
        n: the rows behind that standard error; it is taken to shrink like 1/√n.

    >>> Assumed(0.01, standard_error=0.02, n=500).joint().names
    ('best', 'm1')
    """

    gaps: Mapping[str, float] | float
    standard_error: float
    correlation: float = 0.0
    n: int = 1

    def joint(self) -> JointEstimate:
        """The gaps as an estimate, the best model first."""
        gaps = self.gaps if isinstance(self.gaps, Mapping) else {"m1": self.gaps}
        for name, gap in gaps.items():
            _check_number(f"gap of {name!r}", gap, 0.0, math.inf, "a number ≥ 0 (0 for the best model)", low_ok=True)
        _check_number("standard_error", self.standard_error, 0.0, math.inf, "a number above 0")
        _check_number("correlation", self.correlation, 0.0, 1.0, "a number from 0 to below 1", low_ok=True)
        check_whole("n", self.n, 1, "the rows behind the standard error")
        if not any(gap == 0.0 for gap in gaps.values()):
            if "best" in gaps:
                raise InputError(f"gaps: expected 0 for the model called 'best', got {gaps['best']:g}; rename it")
            gaps = {"best": 0.0, **gaps}
        count = len(gaps)
        matrix = (1.0 - self.correlation) * np.eye(count) + self.correlation
        return JointEstimate(
            tuple(gaps), np.array(list(gaps.values()), float), self.standard_error**2 * matrix, (int(self.n),)
        )


@dataclass(frozen=True)
class Pilot:
    """A checked pilot: D and V at n₀ rows, whether D is measured (and so uncertain), and the sizes allowed."""

    joint: JointEstimate
    law: Law
    rows: int
    measured: bool
    fewest_tested: int
    fewest_selected: int

    @property
    def best(self) -> int:
        """The index of the smallest D."""
        return int(np.argmin(self.joint.values))

    @property
    def gap(self) -> Array:
        """(l,) D_i − D_best."""
        return np.asarray(self.joint.values - self.joint.values[self.best])

    @property
    def error(self) -> Array:
        """(l,) standard errors of the gaps at n₀ rows."""
        return differences(self.joint).error[:, self.best]

    @property
    def most(self) -> int:
        """The largest number of rows that is looked at."""
        return max(FARTHEST * self.rows, FEWEST_MOST)

    def fewest(self, test: str, select_fraction: float) -> int:
        """The fewest rows with which the test runs at all; relmulti needs them in both of its shares."""
        if test != "relmulti":
            return self.fewest_tested
        testing = math.ceil(self.fewest_tested / (1.0 - select_fraction) - 1e-9)
        return max(testing, math.ceil(self.fewest_selected / select_fraction - 1e-9))


def as_pilot(pilot: Any) -> Pilot:
    """A JointEstimate, the one behind a Comparison, or `Assumed`; checked."""
    known = None
    if isinstance(pilot, Comparison):
        if pilot.margin:
            raise InputError(
                f"pilot: expected a comparison without a margin, which plans do not know, got {pilot.margin:g}"
            )
        known, pilot = pilot.estimator, pilot._distinct()
    measured = isinstance(pilot, JointEstimate)
    if not isinstance(pilot, JointEstimate | Assumed):
        raise InputError(
            f"pilot: expected a JointEstimate (relfit.estimate, relfit.from_losses), a Comparison or relfit.Assumed "
            f"gaps, got {type(pilot).__name__}"
        )
    joint = pilot.joint() if isinstance(pilot, Assumed) else pilot
    if len(joint.names) < 2:
        raise InputError("pilot: expected at least 2 models, got 1")
    counted = smallest_sample(joint)
    if counted is None:
        raise InputError("pilot: expected an estimate with its sizes, got none; give sizes=(rows,) to JointEstimate")
    # Fewer ψ rows than rows (or groups) are pairs: the linear estimator.
    estimator = "linear" if known == "linear" or (psi_rows(joint) or counted) < counted else "complete"
    fewest = FEWEST_ROWS[estimator], FEWEST_SELECTION_ROWS[estimator]
    # Plans count rows, also where rows are in groups: V shrinks like 1/n with more groups of the same size.
    rows = min((size for size in joint.sizes or () if size > 0), default=counted)
    return Pilot(joint, law_of(joint, rows), rows, measured, *fewest)


def check_whole(argument: str, value: Any, fewest: int, what: str) -> int:
    """A whole number of at least `fewest`."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < fewest:
        raise InputError(
            f"{argument}: expected a whole number of at least {fewest} ({what}), got {reprlib.repr(value)}"
        )
    return int(value)


def _check_number(argument: str, value: Any, low: float, high: float, expected: str, *, low_ok: bool = False) -> None:
    number = isinstance(value, int | float | np.floating | np.integer) and not isinstance(value, bool)
    if not number or not (low < value < high or (low_ok and value == low)):
        raise InputError(f"{argument}: expected {expected}, got {reprlib.repr(value)}")
