"""Checks of plain options, and the random streams everything seeded draws from."""

from __future__ import annotations

import reprlib
from collections.abc import Collection
from typing import Any

import numpy as np

from relfit.util.errors import InputError


def check_choice(argument: str, value: Any, choices: Collection[str]) -> str:
    """The value if it is one of the choices."""
    if not isinstance(value, str) or value not in choices:
        raise InputError(f"{argument}: expected one of {', '.join(choices)}, got {reprlib.repr(value)}")
    return value


def check_alpha(alpha: Any) -> float:
    """A level strictly between 0 and 1."""
    return _between("alpha", alpha, 0.0, 1.0)


def check_level(level: Any) -> float:
    """A confidence level strictly between 0 and 1."""
    return _between("level", level, 0.0, 1.0)


def check_fraction(fraction: Any) -> float:
    """A share strictly between 0 and 1."""
    return _between("select_fraction", fraction, 0.0, 1.0)


def check_margin(margin: Any) -> float:
    """A difference that does not matter: finite and not negative."""
    number = isinstance(margin, int | float | np.floating | np.integer) and not isinstance(margin, bool)
    if not number or not 0.0 <= margin < float("inf"):
        raise InputError(
            f"margin: expected a number of at least 0, in the units of the discrepancy, got {_shown(margin)}"
        )
    return float(margin)


def _between(argument: str, value: Any, low: float, high: float) -> float:
    number = isinstance(value, int | float | np.floating | np.integer) and not isinstance(value, bool)
    if not number or not low < value < high:
        raise InputError(f"{argument}: expected a number between {low:g} and {high:g}, got {_shown(value)}")
    return float(value)


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float | np.floating) else reprlib.repr(value)


def check_number(argument: str, value: Any, low: float, high: float, expected: str, *, low_ok: bool = False) -> float:
    """A number between the limits, of which the lower one may be allowed itself."""
    number = isinstance(value, int | float | np.floating | np.integer) and not isinstance(value, bool)
    if not number or not (low < value < high or (low_ok and value == low)):
        raise InputError(f"{argument}: expected {expected}, got {reprlib.repr(value)}")
    return float(value)


def check_whole(argument: str, value: Any, fewest: int, what: str = "") -> int:
    """A whole number of at least `fewest`."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < fewest:
        about = f" ({what})" if what else ""
        raise InputError(f"{argument}: expected a whole number of at least {fewest}{about}, got {reprlib.repr(value)}")
    return int(value)
