"""Results as JSON, there and back. A file may be damaged, or written by somebody else: every field is checked."""

from __future__ import annotations

import json
import math
import os
import platform
import reprlib
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import scipy

from relfit.data.encode import Encoding
from relfit.kernels.base import Kernel
from relfit.results.stored import Form, Numbers
from relfit.results.table import LONGEST_NAME, Display, as_text
from relfit.util import __version__
from relfit.util.attached import attached
from relfit.util.errors import InputError
from relfit.util.files import write_text_atomic

SCHEMA = 2
# What decides the last digits of a result.
VERSIONS = dict(relfit=__version__, numpy=np.__version__, scipy=scipy.__version__, python=platform.python_version())

T = TypeVar("T")


class Record:
    """A finished result: it shows itself as a table, in terminals and in notebooks, and can be written as JSON."""

    def _display(self, longest_name: int = LONGEST_NAME) -> Display:
        """What it shows; names longer than `longest_name` are cut."""
        raise NotImplementedError

    def __str__(self) -> str:
        return as_text(self._display()).plain

    # A dataclass has to be told to leave it: @dataclass(repr=False).
    __repr__ = __str__

    def _repr_html_(self) -> str:
        return str(attached("Record._repr_html_")(self))

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able form; ±infinity is written as the text "inf" or "-inf", and NaN as null."""
        kind = {"schema": SCHEMA, "type": f"relfit.{type(self).__name__}"}
        written = [item.name for item in fields(self) if item.metadata.get("written", True)]  # type: ignore[arg-type]
        return {**kind, **{name: plain(getattr(self, name)) for name in written}}

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """The dictionary as JSON text (RFC 8259: no NaN, no Infinity), which is also written to `path` if given."""
        return also_written(as_json(self.to_dict()), path)


def also_written(text: str, path: str | os.PathLike[str] | None) -> str:
    """The text, after writing it to a file if one is given, its last line ended."""
    if path is not None:
        write_text_atomic(path, text.removesuffix("\n") + "\n")
    return text


def text_of(source: str | os.PathLike[str]) -> str:
    """The JSON text itself, or that of the file."""
    if isinstance(source, str) and (source.lstrip()[:1] in ("", *'{["') or len(source.splitlines()) > 1):
        return source
    if not isinstance(source, str | os.PathLike):
        raise InputError(f"source: expected JSON written by to_json, or its file, got {type(source).__name__}")
    try:
        return Path(source).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is not text in UTF-8"
        raise InputError(
            f"source: expected JSON written by to_json, or its file, got {str(source)!r:.200}: {why}"
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
        raise InputError(f"text: expected JSON written by to_json, got something else ({error})") from None


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is not allowed in JSON")


def comparison_from(kind: type[T], data: Mapping[str, Any]) -> T:
    """The Comparison that `to_dict` described; another schema number is refused."""
    if not isinstance(data, Mapping) or data.get("schema") != SCHEMA or data.get("type") != "relfit.Comparison":
        raise InputError(f"data: expected a relfit.Comparison of schema {SCHEMA}, got {_described(data)}")
    try:
        names = {item.name for item in fields(kind)}  # type: ignore[arg-type]
        record = {key: value for key, value in data.items() if key in names}
        others = record.pop("also", ())
        _check_fields(kind, record)
        result = kind(**_revived(kind, record))
        _check_arrays(result)
        _check_names(result)
    except (ArithmeticError, AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise InputError(f"data: not a complete relfit.Comparison ({error})") from None
    _check_verdicts(result)
    if "grade" in data and data["grade"] != list(result.grade):  # type: ignore[attr-defined]
        raise InputError("data: contradicts itself: grade is not that of its p-values at its level")
    return _with_others(kind, result, others)


def _with_others(kind: type[T], result: Any, others: Any) -> T:
    """The result with the comparisons of the same models by other discrepancies."""
    if not isinstance(others, list | tuple):
        raise InputError(f"data: also: expected a list of comparisons, got {reprlib.repr(others)}")
    if any(isinstance(other, Mapping) and other.get("also") for other in others):
        raise InputError("data: also: expected comparisons by one discrepancy each, got some with more in them")
    also = tuple(comparison_from(kind, other) for other in others)
    measures = [result.measure, *(other.measure for other in also)]  # type: ignore[attr-defined]
    if any(other.names != result.names for other in also) or len(set(measures)) < len(measures):  # type: ignore[attr-defined]
        raise InputError("data: also: expected the same models, each time by another discrepancy, got others")
    return replace(result, also=also)  # type: ignore[no-any-return]


def _described(data: Any) -> str:
    if not isinstance(data, Mapping):
        return type(data).__name__
    kind = data.get("type")
    named = f"a {kind}" if isinstance(kind, str) and kind.startswith("relfit.") else "something else"
    return f"{named} of schema {data.get('schema')!r:.20}"


def _forms(kind: Any) -> dict[str, Form]:
    """The fields of a result whose declaration says what a file must have there."""
    found = {item.name: item.metadata.get("form") for item in fields(kind)}
    return {name: form for name, form in found.items() if form is not None}


def _check_fields(kind: Any, record: Mapping[str, Any]) -> None:
    """Refuse a field of the wrong type, or a value that it cannot have; arrays are checked later, by their shape."""
    for key, form in _forms(kind).items():
        if key in record and not form.check(record[key]):
            raise ValueError(f"{key}: expected {form.expected}, got {reprlib.repr(record[key])}")


def _revived(kind: Any, record: dict[str, Any]) -> dict[str, Any]:
    """The fields of a checked record as a result holds them."""
    found = dict(record)
    for key, form in _forms(kind).items():
        if found.get(key) is not None:
            found[key] = form.read(found[key])
    return found


def _check_arrays(result: Any) -> None:
    """Refuse wrong shapes, and numbers that no test can give: NaN, negative errors, probabilities outside 0 to 1."""
    count = len(result.names)
    shapes = {"models": (count,), "pairs": (count, count), "limits": (count, 2)}
    impossible = np.array([name in result.impossible for name in result.names])
    optional = {item.name for item in fields(result) if item.default is None}
    for key, form in _forms(result).items():
        array = getattr(result, key)
        if not isinstance(form, Numbers) or (array is None and key in optional):
            continue
        if array is None:
            raise ValueError(f"{key}: expected numbers, got none")
        if array.ndim != 2 if form.shape == "rows" else array.shape != shapes[form.shape]:
            raise ValueError(f"{key} of shape {array.shape} for {count} names")
        finite = np.isfinite(array).all() or (form.infinite is True and not np.isnan(array).any())
        if form.infinite == "impossible":
            finite = bool((np.isfinite(array) != impossible).all() and (array[impossible] > 0.0).all())
        if not finite or (array < form.low).any() or (array > form.high).any():
            raise ValueError(f"{key}: expected numbers from {form.low:g} to {form.high:g}, got others")


def _check_names(result: Any) -> None:
    """Names that other fields refer to are those of models, and an original is not a copy itself."""
    count, beaten_by, originals = len(result.names), result.beaten_by or (), result.originals()
    if len(result.status) != count or result.names.index(result.best) != result.best_index:
        raise ValueError("status or best does not fit the names")
    for counts in (result.sizes, result.groups):
        if counts is not None and len(counts) not in (1, 1 + count):
            raise ValueError(f"sizes or groups: {len(counts)} numbers for {count} names")
    distinct = {name for name, original in originals.items() if name == original}
    mentioned = {*beaten_by, *(result.confidence_set or ()), *result.copies, *result.shared_rows} - {None}
    mentioned |= set(result.impossible)
    if result.best in result.impossible or any(
        a in result.impossible and b == result.best for a, b in originals.items()
    ):
        raise ValueError("impossible: the best model cannot be one of them")
    if not mentioned <= set(result.names) or not set(originals.values()) <= distinct:
        raise ValueError("beaten_by, confidence_set, copies or shared_rows name a model that is not there")
    if result.robust_to_bandwidth is not None and len(result.robust_to_bandwidth) != count:
        raise ValueError(f"robust_to_bandwidth: {len(result.robust_to_bandwidth)} for {count} names")
    if result.beaten_by is not None and len(beaten_by) != count:
        raise ValueError(f"beaten_by: {len(beaten_by)} for {count} names")


def _check_verdicts(result: Any) -> None:
    """The verdicts are those of the p-values at alpha, as in every test; the best and its copies are never worse."""
    tested = np.array([original != result.best for original in result.originals().values()])
    wrong = np.flatnonzero(result.worse != (tested & (result.adjusted_pvalue <= result.alpha)))
    if len(wrong):
        i = int(wrong[0])
        verdict = "worse" if result.worse[i] else "not worse"
        raise InputError(
            f"data: contradicts itself: {result.names[i]!r} is {verdict}, with an adjusted p-value of "
            f"{result.adjusted_pvalue[i]:.4g} at alpha {result.alpha:g}; to change a level, compare again"
        )
    kept = tuple(name for name, worse in zip(result.names, result.worse, strict=True) if not worse)
    if result.confidence_set not in (None, kept):
        raise InputError("data: contradicts itself: confidence_set does not hold the models that are not worse")
