"""Results as JSON, there and back. A file may be damaged, or written by somebody else: every
field is checked.
"""

from __future__ import annotations

import json
import math
import os
import platform
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import scipy

from relfit.data.encode import Encoding
from relfit.kernels.base import Kernel
from relfit.results.stored import Form, Numbers, kept
from relfit.results.table import LONGEST_NAME, Display, as_text
from relfit.util import __version__, attached
from relfit.util.errors import InputError
from relfit.util.files import write_text_atomic

SCHEMA = 2
# What decides the last digits of a result.
VERSIONS = dict(
    relfit=__version__,
    numpy=np.__version__,
    scipy=scipy.__version__,
    python=platform.python_version(),
)


class Attribute:
    """An attribute that follows from the parts of a result, computed once.

    `told` is the metadata of a field. `source` says where a file's value belongs, if it is
    one of a part: the part, its field and the number of axes with an entry for each model.
    """

    def __init__(
        self,
        get: Callable[[Any], Any],
        told: Mapping[str, Any],
        source: tuple[str, str, int] | None = None,
    ) -> None:
        self.get = get
        self.told = told
        self.source = source

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, result: Any, owner: type) -> Any:
        if result is None:
            return self
        value = self.get(result)
        result.__dict__[self.name] = value
        return value


class Passed(Attribute):
    """An attribute that a part has under the same name."""

    def __init__(self, part: str, told: Mapping[str, Any]) -> None:
        super().__init__(lambda result: getattr(getattr(result, part), self.name), told)
        self.part = part

    def __set_name__(self, owner: type, name: str) -> None:
        super().__set_name__(owner, name)
        self.source = (self.part, name, 0)


def of(
    part: str, form: Form | None = None, label: str | None = None, *, first: bool = False
) -> Any:
    """The attribute that a part has under the same name; with a form, a file has it besides
    the part.
    """
    return Passed(part, kept(form, label=label, first=first, written=form is not None))


def derived(get: Callable[[Any], Any], form: Form, label: str | None = None) -> Any:
    """An attribute that a file has and that this function computes from the result."""
    return Attribute(get, kept(form, label=label))


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

    def _repr_html_(self) -> str:
        return str(attached("Record._repr_html_")(self))

    # The records among the fields whose fields a file has.
    PARTS: ClassVar[Mapping[str, Any]] = {}

    @classmethod
    def described(cls) -> dict[str, Mapping[str, Any]]:
        """What a file has of the result, with the metadata of each; fields of parts stand in
        their place.
        """
        found: dict[str, Mapping[str, Any]] = {}
        for item in fields(cls):  # type: ignore[arg-type]
            part = cls.PARTS.get(item.name)
            if part is not None:
                found |= {each.name: each.metadata for each in fields(part)}
            elif item.metadata.get("written", True):
                found[item.name] = item.metadata
        return {**found, **{name: each.told for name, each in cls.attributes().items()}}

    @classmethod
    def attributes(cls) -> dict[str, Attribute]:
        """The attributes that a file has besides the fields."""
        held = {
            name: value for base in reversed(cls.__mro__) for name, value in vars(base).items()
        }
        return {
            name: each
            for name, each in held.items()
            if isinstance(each, Attribute) and each.told["written"]
        }

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able form; ±infinity is written as the text "inf" or "-inf", and NaN as
        null.
        """
        kind = {"schema": SCHEMA, "type": f"relfit.{type(self).__name__}"}
        return {**kind, **{name: plain(value) for name, value in self.held().items()}}

    def held(self) -> dict[str, Any]:
        """The values that a file has."""
        found: dict[str, Any] = {}
        for name in self.described():
            parts = [getattr(self, part) for part in self.PARTS]
            source = next((part for part in parts if name in part.__dataclass_fields__), self)
            found[name] = getattr(source, name)
        return found

    def changed(self, **changes: Any) -> Self:
        """A copy with other values of some fields, which may be those of its parts."""
        items = fields(self)  # type: ignore[arg-type]
        own = {item.name: getattr(self, item.name) for item in items}
        for name in set(changes) - set(own):
            parts = [
                key
                for key, value in own.items()
                if name in getattr(value, "__dataclass_fields__", ())
            ]
            if not parts:
                raise TypeError(f"{type(self).__name__} has no field {name}")
            own |= {key: replace(own[key], **{name: changes[name]}) for key in parts}
        own |= {name: value for name, value in changes.items() if name in own}
        return replace(self, **own)  # type: ignore[type-var]

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """The dictionary as JSON text (RFC 8259: no NaN, no Infinity), which is also written
        to `path` if given.
        """
        return also_written(as_json(self.to_dict()), path)


def also_written(text: str, path: str | os.PathLike[str] | None) -> str:
    """The text, after writing it to a file if one is given, its last line ended."""
    if path is not None:
        write_text_atomic(path, text.removesuffix("\n") + "\n")
    return text


def text_of(source: str | os.PathLike[str]) -> str:
    """The JSON text itself, or that of the file."""
    if isinstance(source, str) and (
        source.lstrip()[:1] in ("", *'{["') or len(source.splitlines()) > 1
    ):
        return source
    if not isinstance(source, str | os.PathLike):
        raise InputError(
            f"source: expected JSON written by to_json, or its file, got "
            f"{type(source).__name__}"
        )
    try:
        return Path(source).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is not text in UTF-8"
        raise InputError(
            f"source: expected JSON written by to_json, or its file, got "
            f"{str(source)!r:.200}: {why}"
        ) from None


def as_json(data: Mapping[str, Any]) -> str:
    """A dictionary as JSON text (RFC 8259: no NaN, no Infinity)."""
    return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False)


def plain(value: Any) -> Any:
    """The value in the types that JSON has."""
    if isinstance(value, Record):
        return value.to_dict()
    if isinstance(value, Kernel | Encoding):
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
    forms = {
        name: told["form"]
        for name, told in kind.described().items()
        if told.get("form") is not None
    }
    try:
        found = _revived(forms, data)
        _check_arrays(forms, found)
        _check_names(found)
        result = kind.restored(found)
    except (
        ArithmeticError,
        AttributeError,
        KeyError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise InputError(f"data: not a complete relfit.Comparison ({error})") from None
    _check_verdicts(result, found["worse"])
    for name in ("grade", *kind.attributes()):
        if name in data and not _same(data[name], plain(getattr(result, name))):
            raise InputError(
                f"data: contradicts itself: {name} is not that of its other numbers"
            )
    return _with_others(kind, result, data.get("also", ()))


def _same(one: Any, other: Any) -> bool:
    """True if two values of JSON are the same, numbers but for their last digits."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    numbers = isinstance(one, int | float) and isinstance(other, int | float)
    return (
        math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-300)
        if numbers
        else bool(one == other)
    )


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
    measures = [result.measure, *(other.measure for other in also)]
    if any(other.names != result.names for other in also) or len(set(measures)) < len(measures):
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


def _revived(forms: Mapping[str, Form], data: Mapping[str, Any]) -> dict[str, Any]:
    """The fields in a file as a result holds them; a value that a field cannot have is
    refused.
    """
    found = {}
    for name, form in forms.items():
        if name not in data:
            continue
        value = data[name]
        if form.refuses(value):
            raise ValueError(f"{name}: expected {form.expected}, got {reprlib.repr(value)}")
        found[name] = None if value is None else form.read(value)
    return found


def _check_arrays(forms: Mapping[str, Form], found: Mapping[str, Any]) -> None:
    """Refuse wrong shapes, and numbers that no test can give: NaN, negative errors,
    probabilities outside 0 to 1.
    """
    count = len(found["names"])
    shapes = {"models": (count,), "pairs": (count, count), "limits": (count, 2)}
    impossible = np.array([name in found.get("impossible", ()) for name in found["names"]])
    for name, form in forms.items():
        array = found.get(name)
        if not isinstance(form, Numbers) or (array is None and form.optional):
            continue
        if array is None:
            raise ValueError(f"{name}: expected numbers, got none")
        if array.ndim != 2 if form.shape == "rows" else array.shape != shapes[form.shape]:
            raise ValueError(f"{name} of shape {array.shape} for {count} names")
        finite = np.isfinite(array).all() or (
            form.infinite is True and not np.isnan(array).any()
        )
        if form.infinite == "impossible":
            finite = bool(
                (np.isfinite(array) != impossible).all() and (array[impossible] > 0.0).all()
            )
        if not finite or (array < form.low).any() or (array > form.high).any():
            raise ValueError(
                f"{name}: expected numbers from {form.low:g} to {form.high:g}, got others"
            )


def _check_names(found: Mapping[str, Any]) -> None:
    """Names that other fields refer to are those of models, and an original is not a copy
    itself.
    """
    names = found["names"]
    copies = found.get("copies", {})
    count = len(names)
    per_model = {
        name: found.get(name) for name in ("status", "robust_to_bandwidth", "beaten_by")
    }
    for name, values in per_model.items():
        if values is not None and len(values) != count:
            raise ValueError(f"{name}: {len(values)} for {count} names")
    for counts in (found.get("sizes"), found.get("groups")):
        if counts is not None and len(counts) not in (1, 1 + count):
            raise ValueError(f"sizes or groups: {len(counts)} numbers for {count} names")
    mentioned = {
        *copies,
        *copies.values(),
        *found.get("shared_rows", ()),
        *found.get("impossible", ()),
    }
    if not mentioned <= set(names) or set(copies.values()) & set(copies):
        raise ValueError("copies, shared_rows or impossible name a model that is not there")


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
