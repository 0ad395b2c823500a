"""How the fields of results are kept: in a file, where each is checked when it is read, and
on the page.

A field says it where it is declared::

    alpha: float = held(FRACTION, "level α")

`relfit.results.serial` reads and writes by it, and the page lists the settings by it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

import numpy as np

from relfit.data.encode import Encoding
from relfit.kernels import kernel_from_dict
from relfit.stats.tests import TESTS
from relfit.util.text import is_text

Check = Callable[[Any], bool]
T = TypeVar("T", bound="Form")
_LONGEST_WORD = 200


def _is_anything(_value: Any) -> bool:
    return True


def _as_it_is(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Form:
    """What a field holds.

    Attributes:
        expected: what a file must have here, in words.
        check: whether a value from a file is that.
        read: the value in a result; None stays None.
        optional: whether there may be none.
    """

    expected: str
    check: Check = _is_anything
    read: Callable[[Any], Any] = _as_it_is
    optional: bool = False

    def refuses(self, value: Any) -> bool:
        """Whether a file cannot have this value."""
        return not (value is None and self.optional) and not self.check(value)


def maybe(form: T) -> T:
    """The same, or nothing."""
    return replace(form, expected=f"{form.expected} or null", optional=True)


@dataclass(frozen=True)
class Numbers(Form):
    """An array, whose shape and range are checked once the result is there.

    Attributes:
        shape: one number a model, a matrix of "pairs", two "limits" a model, or "rows" of
        any number. low, high: the range.
        infinite: True if ±∞ can be among them; "impossible" where they are for impossible
            models alone.
    """

    expected: str = "numbers"
    read: Callable[[Any], Any] = lambda value: np.array(value, dtype=float)
    shape: Literal["models", "pairs", "limits", "rows"] = "models"
    low: float = -math.inf
    high: float = math.inf
    infinite: bool | Literal["impossible"] = False


def kept(
    form: Form | None = None,
    *,
    label: str | None = None,
    first: bool = False,
    written: bool = True,
) -> Mapping[str, Any]:
    """The metadata of a field.

    Args:
        form: what it holds, for results that are read back from files.
        label: the name under which the page lists it among the settings; None for what is no
            setting.
        first: whether it stands before the other settings.
        written: whether a file has it.
    """
    return {"form": form, "label": label, "first": first, "written": written}


def held(
    form: Form | None = None,
    label: str | None = None,
    *,
    default: Any = None,
    first: bool = False,
    written: bool = True,
) -> Any:
    """A field with this metadata; a function as the default is called for it."""
    told = kept(form, label=label, first=first, written=written)
    return (
        field(default_factory=default, metadata=told)
        if callable(default)
        else field(default=default, metadata=told)
    )


def _is_word(value: Any) -> bool:
    """A setting, which is shown as it is: no control characters, which a terminal would
    obey.
    """
    return is_text(value) and value.isprintable() and len(value) <= _LONGEST_WORD


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_number(low: float, high: float) -> Check:
    return lambda value: (
        isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high
    )


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool | np.bool_)


def _or_none(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _each(check: Check) -> Check:
    return lambda value: isinstance(value, list | tuple) and all(map(check, value))


def _table(check: Check) -> Check:
    return lambda value: (
        isinstance(value, Mapping) and all(is_text(k) and check(v) for k, v in value.items())
    )


def _are_digests(value: Any) -> bool:
    parts = isinstance(value, Mapping) and set(value) <= {"reference", "models"}
    return (
        parts
        and _or_none(_is_word)(value.get("reference"))
        and _table(_or_none(_is_word))(value.get("models", {}))
    )


def _words_of(value: Any) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(words) for words in value)


def _flags(value: Any) -> Any:
    return np.array(value, dtype=bool)


NAME = Form("a name", is_text)
NAMES = Form(
    "different names",
    lambda value: _each(is_text)(value) and 0 < len(value) == len(set(value)),
    tuple,
)
NAMES_OR_NULL = maybe(Form("names", _each(_or_none(is_text)), tuple))
NAMES_BY_NAME = Form("names by name", _table(is_text))
TEXTS = Form("texts", _each(is_text), tuple)
MAYBE_TEXTS = maybe(TEXTS)
MAYBE_TEXT = maybe(Form("a text", is_text))
WORD = Form("a word", _is_word)
MAYBE_WORD = maybe(WORD)
WORD_LISTS = Form("lists of words", _each(_each(is_text)), _words_of)
TEST = Form(
    f"one of {', '.join(TESTS)}", lambda value: isinstance(value, str) and value in TESTS
)
INDEX = Form("a whole number", _is_count)
MAYBE_COUNT = maybe(INDEX)
MAYBE_COUNTS = maybe(Form("whole numbers", _each(_is_count), tuple))
COUNTS_BY_NAME = Form("whole numbers by name", _table(_is_count))
MAYBE_COUNTS_BY_NAME = maybe(COUNTS_BY_NAME)
NUMBER = Form("a number")
FRACTION = Form("a number from 0 to 1", _is_number(0.0, 1.0))
MAYBE_FRACTION = maybe(FRACTION)
NOT_NEGATIVE = Form("a number of at least 0", _is_number(0.0, 1e300))
MAYBE_NOT_NEGATIVE = maybe(NOT_NEGATIVE)
POSITIVE = Form("a number above 0", _is_number(math.ulp(0.0), math.inf))
FLAG = Form("true or false", _is_flag)
VERSIONS_BY_NAME = Form("versions by name", _table(_is_word))
DIGESTS = maybe(Form("digests", _are_digests))
KERNEL = maybe(Form("a kernel", read=kernel_from_dict))
ENCODING = maybe(Form("an encoding", read=Encoding.from_dict))
FLAG_LIST = maybe(Form("true or false for each", _each(_is_flag), tuple))
FLAGS = Numbers("true or false for each", _each(_is_flag), _flags)
MAYBE_FLAGS = maybe(FLAGS)
VALUES = maybe(Numbers())
ESTIMATED = Numbers(infinite="impossible")
ERRORS = Numbers(low=0.0)
PVALUES = Numbers(low=0.0, high=1.0)
LOG_PVALUES = Numbers(high=0.0, infinite=True)
MATRIX = Numbers(shape="pairs")
MAYBE_MATRIX = maybe(MATRIX)
LIMITS = maybe(Numbers(shape="limits", infinite=True))
ROWS = maybe(Numbers(shape="rows"))
