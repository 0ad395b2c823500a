"""Results as JSON, there and back. A file may be damaged, or written by somebody else: every
field is checked.

A field says where it is declared what a file must have there, and under which label the page
lists it::

    alpha: float = held(FRACTION, "level α")
"""

from __future__ import annotations

import json
import math
import os
import platform
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, wraps
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar, cast

import numpy as np
import scipy

from relfit.data.encode import Encoding
from relfit.kernels import kernel_from_dict
from relfit.kernels.base import Kernel
from relfit.results.table import LONGEST_NAME, Display, as_text
from relfit.stats.tests import TESTS
from relfit.util import __version__, attached
from relfit.util.errors import InputError
from relfit.util.files import write_text_atomic
from relfit.util.text import is_text

SCHEMA = 2
# What decides the last digits of a result.
VERSIONS = dict(
    relfit=__version__,
    numpy=np.__version__,
    scipy=scipy.__version__,
    python=platform.python_version(),
)
Check = Callable[[Any], bool]
T = TypeVar("T")
F = TypeVar("F", bound="Form")
M = TypeVar("M", bound=Callable[..., Any])
Shape = Literal["models", "pairs", "limits", "sizes", "rows"]
_LONGEST_WORD = 200


# ── what a file has for a field ───────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Form:
    """What a field holds.

    Attributes:
        expected: what a file must have here, in words.
        check: whether a value from a file is that.
        read: the value in a result; None stays None.
        shape: how much of it there is: one for each of the "models", a matrix of "pairs", two
            "limits" a model, "sizes" of the reference or of the models too, or "rows" of any
            number. None for what is no list.
        optional: whether there may be none.
    """

    expected: str
    check: Check = lambda _value: True
    read: Callable[[Any], Any] = lambda value: value
    shape: Shape | None = None
    optional: bool = False

    def revived(self, name: str, value: Any, count: int) -> Any:
        """The value in a result on so many models; one that the field cannot have is
        refused.
        """
        if value is None and self.optional:
            return None
        if not self.check(value):
            raise ValueError(f"{name}: expected {self.expected}, got {reprlib.repr(value)}")
        read = self.read(value)
        if self.shape is not None:
            shape = read.shape if isinstance(read, np.ndarray) else (len(read),)
            right = {
                "models": shape == (count,),
                "pairs": shape == (count, count),
                "limits": shape == (count, 2),
                "sizes": shape in ((1,), (1 + count,)),
                "rows": len(shape) == 2,
            }
            if not right[self.shape]:
                raise ValueError(f"{name} of shape {shape} for {count} names")
        return read


@dataclass(frozen=True)
class Numbers(Form):
    """An array of numbers from `low` to `high`; `infinite` if ±∞ can be among them."""

    expected: str = "numbers"
    check: Check = lambda value: value is not None
    read: Callable[[Any], Any] = lambda value: np.array(value, dtype=float)
    shape: Shape | None = "models"
    low: float = -math.inf
    high: float = math.inf
    infinite: bool = False

    def revived(self, name: str, value: Any, count: int) -> Any:
        """The array; NaN and numbers that no test can give are refused."""
        array = super().revived(name, value, count)
        if array is not None:
            inside = (self.low <= array) & (array <= self.high)
            if not (inside & (np.isfinite(array) | self.infinite)).all():
                raise ValueError(
                    f"{name}: expected numbers from {self.low:g} to {self.high:g}, got others"
                )
        return array


def maybe(form: F) -> F:
    """The same, or nothing."""
    return replace(form, expected=f"{form.expected} or null", optional=True)


def kept(
    form: Form | None = None,
    label: str | None = None,
    *,
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
    """A field with this metadata. A function as the default is called for it; where the
    default is None, a file may have null.
    """
    if form is not None and default is None:
        form = maybe(form)
    told = kept(form, label, first=first, written=written)
    if callable(default):
        return field(default_factory=default, metadata=told)
    return field(default=default, metadata=told)


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
    digest = _or_none(_is_word)
    return (
        isinstance(value, Mapping)
        and set(value) <= {"reference", "models"}
        and digest(value.get("reference"))
        and _table(digest)(value.get("models", {}))
    )


NAME = Form("a name", is_text)
NAMES = Form(
    "different names",
    lambda value: _each(is_text)(value) and 0 < len(value) == len(set(value)),
    tuple,
)
BEATERS = maybe(Form("names", _each(_or_none(is_text)), tuple, "models"))
NAMES_BY_NAME = Form("names by name", _table(is_text))
TEXT = Form("a text", is_text)
TEXTS = Form("texts", _each(is_text), tuple)
WORD = Form("a word", _is_word)
WORD_LISTS = Form(
    "lists of words",
    _each(_each(is_text)),
    lambda value: tuple(tuple(words) for words in value),
    "models",
)
TEST = Form(
    f"one of {', '.join(TESTS)}", lambda value: isinstance(value, str) and value in TESTS
)
COUNT = Form("a whole number", _is_count)
SIZES = maybe(Form("whole numbers", _each(_is_count), tuple, "sizes"))
COUNTS_BY_NAME = Form("whole numbers by name", _table(_is_count))
FRACTIONS_BY_NAME = Form("numbers from 0 to 1 by name", _table(_is_number(0.0, 1.0)))
NUMBER = Form("a number")
FRACTION = Form("a number from 0 to 1", _is_number(0.0, 1.0))
NOT_NEGATIVE = Form("a number of at least 0", _is_number(0.0, 1e300))
POSITIVE = Form("a number above 0", _is_number(math.ulp(0.0), math.inf))
FLAG = Form("true or false", _is_flag)
FLAG_LIST = Form("true or false for each", _each(_is_flag), tuple, "models")
WORDS_BY_NAME = Form("versions by name", _table(_is_word))
DIGESTS = Form("digests", _are_digests)
KERNEL = Form("a kernel", read=kernel_from_dict)
ENCODING = Form("an encoding", read=Encoding.from_dict)
FLAGS = Numbers("true or false for each", _each(_is_flag), np.array)
VALUES = Numbers()
INFINITE = Numbers(infinite=True)
ERRORS = Numbers(low=0.0)
PVALUES = Numbers(low=0.0, high=1.0)
LOG_PVALUES = Numbers(high=0.0, infinite=True)
MATRIX = Numbers(shape="pairs")
BOUNDS = Numbers(shape="pairs", infinite=True)
LIMITS = Numbers(shape="limits", infinite=True)
ROWS = Numbers(shape="rows")


# ── the attributes of a result ────────────────────────────────────────────────────────────────


class Attribute(cached_property[T]):
    """An attribute that follows from the parts of a result, computed once.

    `metadata` is as that of a field. `source` says where a file's value belongs, if it is one
    of a part: the part, its field and the number of axes with an entry for each model.
    """

    def __init__(
        self,
        get: Callable[[Any], T],
        metadata: Mapping[str, Any],
        source: tuple[str, str, int] | None = None,
    ) -> None:
        super().__init__(get)
        self.metadata = metadata
        self.source = source


def of(
    path: str, form: Form | None = None, label: str | None = None, *, first: bool = False
) -> Any:
    """The attribute of a part, such as "method.alpha"; with a form, a file has it besides the
    part.
    """
    part, name = path.split(".")
    told = kept(form, label, first=first, written=form is not None)
    return Attribute(attrgetter(path), told, (part, name, 0))


def derived(
    form: Form, label: str | None = None
) -> Callable[[Callable[[Any], T]], Attribute[T]]:
    """An attribute that a file has and that the decorated function computes from the
    result.
    """
    return lambda get: Attribute(get, kept(form, label))


def by_report(method: M) -> M:
    """A method that `relfit.report` does; the decorated one has its signature and its
    description.
    """

    @wraps(method)
    def call(*args: Any, **options: Any) -> Any:
        return attached(method.__qualname__)(*args, **options)

    return cast(M, call)


class Record:
    """A finished result: it shows itself as a table, in terminals and in notebooks, and can
    be written as JSON.
    """

    def _display(self, longest_name: int = LONGEST_NAME) -> Display:
        """What it shows; names longer than `longest_name` are cut."""
        raise NotImplementedError

    def __str__(self) -> str:
        return as_text(self._display()).plain

    # A dataclass has to be told to leave it: @dataclass(repr=False).
    __repr__ = __str__

    @by_report
    def _repr_html_(self) -> Any:
        """What it shows, as HTML for notebooks."""

    # The records among the fields whose fields a file has.
    PARTS: ClassVar[Mapping[str, Any]] = {}

    @classmethod
    def described(cls) -> dict[str, Mapping[str, Any]]:
        """What a file has of the result, with the metadata of each; fields of parts stand in
        their place.
        """
        items: list[Any] = []
        for item in fields(cls):  # type: ignore[arg-type]
            items += fields(cls.PARTS[item.name]) if item.name in cls.PARTS else [item]
        found = {item.name: item.metadata for item in items}
        found |= {name: each.metadata for name, each in cls.attributes().items()}
        return {name: told for name, told in found.items() if told.get("written", True)}

    @classmethod
    def attributes(cls) -> dict[str, Attribute[Any]]:
        """The attributes that a file has besides the fields."""
        held = {
            name: value for base in reversed(cls.__mro__) for name, value in vars(base).items()
        }
        return {
            name: each
            for name, each in held.items()
            if isinstance(each, Attribute) and each.metadata["written"]
        }

    def held(self) -> dict[str, Any]:
        """The values that a file has."""
        sources = [*(getattr(self, part) for part in self.PARTS), self]
        return {
            name: next(getattr(source, name) for source in sources if hasattr(source, name))
            for name in self.described()
        }

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able form; ±infinity is written as the text "inf" or "-inf", and NaN as
        null.
        """
        kind = {"schema": SCHEMA, "type": f"relfit.{type(self).__name__}"}
        return {**kind, **plain(self.held())}

    def changed(self, **changes: Any) -> Self:
        """A copy with other values of some fields, which may be those of its parts."""
        own = fields(self)  # type: ignore[arg-type]
        for item in own:
            part = getattr(self, item.name)
            inner = set(changes) & set(getattr(part, "__dataclass_fields__", ()))
            inner -= {each.name for each in own}
            if inner:
                changes[item.name] = replace(
                    part, **{name: changes.pop(name) for name in inner}
                )
        return replace(self, **changes)  # type: ignore[type-var]

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """The dictionary as JSON text (RFC 8259: no NaN, no Infinity), which is also written
        to `path` if given.
        """
        return also_written(as_json(self.to_dict()), path)


# ── writing and reading ───────────────────────────────────────────────────────────────────────


def also_written(text: str, path: str | os.PathLike[str] | None) -> str:
    """The text, after writing it to a file if one is given, its last line ended."""
    if path is not None:
        write_text_atomic(path, text.removesuffix("\n") + "\n")
    return text


def text_of(source: str | os.PathLike[str]) -> str:
    """The JSON text itself, or that of the file."""
    expected = "source: expected JSON written by to_json, or its file, got"
    if not isinstance(source, str | os.PathLike):
        raise InputError(f"{expected} {type(source).__name__}")
    if isinstance(source, str) and (
        source.lstrip()[:1] in ("", *'{["') or len(source.splitlines()) > 1
    ):
        return source
    try:
        return Path(source).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is not text in UTF-8"
        raise InputError(f"{expected} {str(source)!r:.200}: {why}") from None


def as_json(data: Mapping[str, Any]) -> str:
    """A dictionary as JSON text (RFC 8259: no NaN, no Infinity)."""
    return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False)


def plain(value: Any) -> Any:
    """The value in the types that JSON has."""
    if isinstance(value, Record | Kernel | Encoding):
        return plain(value.to_dict())
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


def parsed(text: str) -> Any:
    """The value of JSON text."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"text: expected JSON written by to_json, got something else ({error})"
        ) from None


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is not allowed in JSON")


def comparison_from(kind: Any, data: Any) -> Any:
    """The Comparison that `to_dict` described; another schema number is refused."""
    if (
        not isinstance(data, Mapping)
        or data.get("schema") != SCHEMA
        or data.get("type") != "relfit.Comparison"
    ):
        raise InputError(
            f"data: expected a relfit.Comparison of schema {SCHEMA}, got {_described(data)}"
        )
    try:
        found = _revived(kind, data)
        result = kind.restored(found)
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise InputError(f"data: not a complete relfit.Comparison ({error})") from None
    _check_verdicts(result, found["worse"])
    for name in ("verdicts", *kind.attributes()):
        if name in data and not _same(data[name], plain(getattr(result, name))):
            raise InputError(
                f"data: contradicts itself: {name} is not that of its other numbers"
            )
    return _with_others(kind, result, data.get("also", ()))


def _revived(kind: Any, data: Mapping[str, Any]) -> dict[str, Any]:
    """The fields in a file as a result holds them."""
    names = NAMES.revived("names", data["names"], 0)
    found = {}
    for name, told in kind.described().items():
        form = told.get("form")
        if isinstance(form, Numbers) and name not in data and not form.optional:
            raise ValueError(f"{name}: expected numbers, got none")
        if form is not None and name in data:
            found[name] = form.revived(name, data[name], len(names))
    copies = found.get("copies", {})
    mentioned = {*copies, *copies.values()}
    mentioned |= {*found.get("shared_rows", ()), *found.get("impossible", ())}
    if not mentioned <= set(names) or set(copies.values()) & set(copies):
        raise ValueError("copies, shared_rows or impossible name a model that is not there")
    return found


def _check_verdicts(result: Any, worse: Any) -> None:
    """The verdicts are those of the p-values at alpha, as in every test; the best and its
    copies are never worse.
    """
    tested = np.array([original != result.best for original in result.originals().values()])
    wrong = np.flatnonzero(worse != (tested & (result.adjusted_pvalue <= result.alpha)))
    if len(wrong):
        i = int(wrong[0])
        verdict = "worse" if worse[i] else "not worse"
        raise InputError(
            f"data: contradicts itself: {result.names[i]!r} is {verdict}, with an adjusted "
            f"p-value of "
            f"{result.adjusted_pvalue[i]:.4g} at alpha {result.alpha:g}; to change a level, "
            f"compare again"
        )


def _same(one: Any, other: Any) -> bool:
    """True if two values of JSON are the same, numbers but for their last digits."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, int | float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-300)
    return bool(one == other)


def _with_others(kind: Any, result: Any, others: Any) -> Any:
    """The result with the comparisons of the same models by other discrepancies."""
    if not isinstance(others, list | tuple):
        raise InputError(
            f"data: also: expected a list of comparisons, got {reprlib.repr(others)}"
        )
    if any(isinstance(other, Mapping) and other.get("also") for other in others):
        raise InputError(
            "data: also: expected comparisons by one discrepancy each, got some "
            "with more in them"
        )
    also = tuple(comparison_from(kind, other) for other in others)
    measures = {result.measure, *(other.measure for other in also)}
    if any(other.names != result.names for other in also) or len(measures) <= len(also):
        raise InputError(
            "data: also: expected the same models, each time by another discrepancy, got others"
        )
    return replace(result, also=also)


def _described(data: Any) -> str:
    if not isinstance(data, Mapping):
        return type(data).__name__
    kind = data.get("type")
    named = (
        f"a {kind}"
        if isinstance(kind, str) and kind.startswith("relfit.")
        else "something else"
    )
    return f"{named} of schema {data.get('schema')!r:.20}"
