"""Checks of options that are one number or one word."""

from __future__ import annotations

import reprlib
from collections.abc import Collection
from typing import Any

import numpy as np

from relfit.util.errors import InputError


def check_choice(argument: str, value: Any, choices: Collection[str]) -> str:
    """The value, which must be one of the choices."""
    if not isinstance(value, str) or value not in choices:
        raise InputError(f"{argument}: expected one of {', '.join(choices)}, got {reprlib.repr(value)}")
    return value


def check_alpha(alpha: Any) -> float:
    """The level of a test, which must lie strictly between 0 and 1."""
    return _between_0_and_1("alpha", alpha)


def check_level(level: Any) -> float:
    """A confidence level, which must lie strictly between 0 and 1."""
    return _between_0_and_1("level", level)


def check_fraction(fraction: Any) -> float:
    """The fraction of rows used for selection, which must lie strictly between 0 and 1."""
    return _between_0_and_1("select_fraction", fraction)


def check_margin(margin: Any) -> float:
    """The largest difference that counts as irrelevant, which must be finite and at least 0."""
    if not _is_number(margin) or not 0.0 <= margin < float("inf"):
        raise InputError(
            f"margin: expected a number of at least 0, in the units of the discrepancy, got {_shown(margin)}"
        )
    return float(margin)


def _between_0_and_1(argument: str, value: Any) -> float:
    if not _is_number(value) or not 0.0 < value < 1.0:
        raise InputError(f"{argument}: expected a number between 0 and 1, got {_shown(value)}")
    return float(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.floating | np.integer) and not isinstance(value, bool)


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
