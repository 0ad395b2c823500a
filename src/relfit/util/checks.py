"""Checks of options that are one number or one word."""

from __future__ import annotations

import re
import reprlib
import sys
from collections.abc import Collection
from difflib import get_close_matches
from typing import Any

import numpy as np

from relfit.util.errors import InputError

_BETWEEN = "a number between 0 and 1"


# Choices of options that were removed, and what to use in place of them; to be deleted in version 0.4.
REMOVED = {
    "nystroem": 'use estimator="landmarks", which is unbiased for the MMD²',
    "corrected": 'use variance="auto", which counts the second-order part once',
}


def check_choice(argument: str, value: Any, choices: Collection[str]) -> str:
    """The value, which must be one of the choices."""
    if not isinstance(value, str) or value not in choices:
        check_removed(argument, value)
        close = get_close_matches(value.lower(), choices, 1) if isinstance(value, str) else []
        hint = f"; did you mean {close[0]}?" if close else ""
        raise InputError(f"{argument}: expected one of {', '.join(choices)}, got {reprlib.repr(value)}{hint}")
    return value


def check_removed(argument: str, value: Any) -> None:
    """Refuse a choice that was removed, and say what replaces it."""
    if isinstance(value, str) and value in REMOVED:
        raise InputError(f'{argument}="{value}": was removed; {REMOVED[value]}')


def as_choice(argument: str, value: Any, choices: Collection[str]) -> str:
    """The choice that has the letters of the value, such as "relpsi" for "RelPSI"; others are errors.

    >>> as_choice("test", "Best_Set", ["best-set", "relpsi"])
    'best-set'
    """
    spelled = {_letters(choice): choice for choice in choices}
    if isinstance(value, str):
        value = spelled.get(_letters(value), value)
    return check_choice(argument, value, choices)


def _letters(word: str) -> str:
    """The word in small letters, without hyphens, underscores and spaces."""
    return re.sub("[-_ ]", "", word).lower()


def check_alpha(alpha: Any) -> float:
    """The error rate of a test, above 0 and at most 0.5: one that is larger was meant as a confidence level."""
    rate = check_number("alpha", alpha, 0.0, 1.0, _BETWEEN)
    if rate > 0.5:
        meant = f"{1.0 - rate:.3g}"
        raise InputError(f"alpha: expected the error rate, at most 0.5, got {rate:g}; did you mean {meant}?")
    return rate


def check_level(level: Any) -> float:
    """A confidence level, which must lie strictly between 0 and 1."""
    return check_number("level", level, 0.0, 1.0, _BETWEEN)


def check_fraction(fraction: Any) -> float:
    """The fraction of rows used for selection, which must lie strictly between 0 and 1."""
    return check_number("select_fraction", fraction, 0.0, 1.0, _BETWEEN)


def check_margin(margin: Any) -> float:
    """The largest difference that counts as irrelevant, which must be finite and at least 0."""
    expected = "a number of at least 0, in the units of the discrepancy"
    return check_number("margin", margin, 0.0, float("inf"), expected, low_ok=True)


def check_number(argument: str, value: Any, low: float, high: float, expected: str, *, low_ok: bool = False) -> float:
    """A number between the limits, of which the lower one may be allowed itself."""
    number = isinstance(value, int | float | np.floating | np.integer) and not isinstance(value, bool)
    too_large = isinstance(value, int) and value > sys.float_info.max  # whole numbers have no limit of their own
    if not number or too_large or not (low < value < high or (low_ok and value == low)):
        shown = f"{value:g}" if isinstance(value, float | np.floating) else reprlib.repr(value)
        raise InputError(f"{argument}: expected {expected}, got {shown}")
    return float(value)


def check_whole(argument: str, value: Any, fewest: int, what: str = "") -> int:
    """A whole number of at least `fewest`."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < fewest:
        about = f" ({what})" if what else ""
        raise InputError(f"{argument}: expected a whole number of at least {fewest}{about}, got {reprlib.repr(value)}")
    return int(value)
