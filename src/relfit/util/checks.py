"""Options described once: each field of a record has its default, its check and a sentence
of help.

A record of options is a frozen dataclass whose fields say all that others need to know about
them::

    @described
    @dataclass(frozen=True)
    class Block(Estimator):
        blocks: int | None = option(None, Whole(1), "the number of blocks", shown="√n")

`checked` refuses wrong values, `described` lists the fields in the docstring, from which the
page of the API is made, and `relfit.cli.options` makes options of the command line.
"""

from __future__ import annotations

import re
import reprlib
import sys
from collections.abc import Callable, Collection, Iterable
from dataclasses import Field, dataclass, field, fields
from difflib import get_close_matches
from textwrap import fill
from typing import Any, TypeVar

import numpy as np

from relfit.util.errors import InputError

T = TypeVar("T")

_BETWEEN = "a number between 0 and 1"

# Choices of options that were removed, and what to use in place of them; to be deleted in
# version 0.4.
REMOVED = {
    "nystroem": 'use estimator="landmarks", which is unbiased for the MMD²',
    "corrected": 'use variance="auto", which counts the second-order part once',
}


@dataclass(frozen=True)
class Choice:
    """One of these words."""

    words: Collection[str]

    def __call__(self, argument: str, value: Any) -> str:
        return check_choice(argument, value, self.words)


@dataclass(frozen=True)
class Whole:
    """A whole number of at least `fewest`."""

    fewest: int

    def __call__(self, argument: str, value: Any) -> int:
        return check_whole(argument, value, self.fewest)


@dataclass(frozen=True)
class Fraction:
    """A number strictly between 0 and 1."""

    def __call__(self, argument: str, value: Any) -> float:
        return check_number(argument, value, 0.0, 1.0, _BETWEEN)


Constraint = Choice | Whole | Fraction


def option(
    default: Any,
    check: Constraint | Callable[[Any], Any] | None = None,
    help: str = "",
    *,
    python: str = "",
    flag: str = "",
    shown: str = "",
    words: Iterable[str] = (),
    recorded: str = "",
    kw_only: bool = False,
) -> Any:
    """A field of a record of options.

    Args:
        default: None passes every constraint where it is the default.
        check: a constraint, or a function of the value; it returns the value to use.
        help: what the option does, for the command line and the docstring.
        python: what values it can have in Python besides, for the docstring.
        flag: its name on the command line with what follows, such as "--alpha LEVEL";
            without one the field is no option there.
        shown: the default in words, where that is None.
        words: the choices on the command line, where the check is a function.
        recorded: the field of a result that keeps its value, None for the default.
        kw_only: as in `dataclasses.field`.
    """
    told = {
        "check": check,
        "help": help,
        "python": python,
        "flag": flag,
        "shown": shown,
        "words": check.words if isinstance(check, Choice) else tuple(words),
        "recorded": recorded,
    }
    return field(default=default, metadata=told, kw_only=kw_only)


def flagged(record: Any) -> list[Field[Any]]:
    """The fields of a record that are options of the command line."""
    return [item for item in fields(record) if item.metadata.get("flag")]


def checked(record: Any) -> None:
    """Replace every field of a frozen record by what its check makes of it."""
    for item in fields(record):
        check = item.metadata.get("check")
        value = getattr(record, item.name)
        if isinstance(check, Constraint):
            if value is not None or item.default is not None:
                object.__setattr__(record, item.name, check(item.name, value))
        elif check is not None:
            object.__setattr__(record, item.name, check(value))


def unless_none(check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The same check for options that may be left out: None stays None.

    >>> unless_none(float)("0.5"), unless_none(float)(None)
    (0.5, None)
    """
    return lambda value: None if value is None else check(value)


def described(record: type[T]) -> type[T]:
    """Add what the fields say of themselves to the docstring of a record."""
    if record.__doc__ is not None:
        lines = arguments(fields(record))  # type: ignore[arg-type]
        record.__doc__ = f"{record.__doc__.rstrip()}\n\n    Args:\n{lines}"
    return record


def arguments(items: Iterable[Field[Any]]) -> str:
    """The lines of a docstring about the fields that have a help."""
    lines = []
    for item in items:
        told = item.metadata
        if not told.get("help"):
            continue
        default = f"Default: {told['shown']}." if told["shown"] else ""
        sentences = f"{told['help'].rstrip('.')}.", told["python"], default
        said = " ".join(filter(None, sentences))
        name = f"        {item.name}: "
        lines.append(fill(said, 100, initial_indent=name, subsequent_indent=" " * 12))
    return "\n".join(lines)


def check_choice(argument: str, value: Any, choices: Collection[str]) -> str:
    """The value, which must be one of the choices."""
    if not isinstance(value, str) or value not in choices:
        check_removed(argument, value)
        close = get_close_matches(value.lower(), choices, 1) if isinstance(value, str) else []
        hint = f"; did you mean {close[0]}?" if close else ""
        raise InputError(
            f"{argument}: expected one of {', '.join(choices)}, got {reprlib.repr(value)}{hint}"
        )
    return value


def check_removed(argument: str, value: Any) -> None:
    """Refuse a choice that was removed, and say what replaces it."""
    if isinstance(value, str) and value in REMOVED:
        raise InputError(f'{argument}="{value}": was removed; {REMOVED[value]}')


def as_choice(argument: str, value: Any, choices: Collection[str]) -> str:
    """The choice that has the letters of the value, such as "relpsi" for "RelPSI"; others
    are errors.

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
    """The error rate of a test, above 0 and at most 0.5: one that is larger was meant as a
    confidence level.
    """
    rate = check_number("alpha", alpha, 0.0, 1.0, _BETWEEN)
    if rate > 0.5:
        meant = f"{1.0 - rate:.3g}"
        raise InputError(
            f"alpha: expected the error rate, at most 0.5, got {rate:g}; did you mean {meant}?"
        )
    return rate


def check_level(level: Any) -> float:
    """A confidence level, which must lie strictly between 0 and 1."""
    return check_number("level", level, 0.0, 1.0, _BETWEEN)


def check_margin(margin: Any) -> float:
    """The largest difference that counts as irrelevant, which must be finite and at least 0."""
    expected = "a number of at least 0, in the units of the discrepancy"
    return check_number("margin", margin, 0.0, float("inf"), expected, low_ok=True)


def check_number(
    argument: str, value: Any, low: float, high: float, expected: str, *, low_ok: bool = False
) -> float:
    """A number between the limits, of which the lower one may be allowed itself."""
    number = isinstance(value, int | float | np.floating | np.integer)
    # Whole numbers have no limit of their own.
    too_large = isinstance(value, int) and value > sys.float_info.max
    if (
        not number
        or isinstance(value, bool)
        or too_large
        or not (low < value < high or (low_ok and value == low))
    ):
        shown = f"{value:g}" if isinstance(value, float | np.floating) else reprlib.repr(value)
        raise InputError(f"{argument}: expected {expected}, got {shown}")
    return float(value)


def check_whole(argument: str, value: Any, fewest: int, what: str = "") -> int:
    """A whole number of at least `fewest`."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < fewest:
        about = f" ({what})" if what else ""
        raise InputError(
            f"{argument}: expected a whole number of at least {fewest}{about}, "
            f"got {reprlib.repr(value)}"
        )
    return int(value)
