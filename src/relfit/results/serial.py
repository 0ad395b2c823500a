"""Results as JSON, there and back. A file may be damaged, or written by somebody else: every field is checked."""

from __future__ import annotations

import json
import math
import os
import platform
import re
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import scipy

from relfit.data.encode import Encoding
from relfit.kernels import kernel_from_dict
from relfit.kernels.base import Kernel
from relfit.results.table import LONGEST_NAME, Display, as_text
from relfit.stats.decision import FAMILY_WISE, adjust
from relfit.stats.tests import TESTS
from relfit.util import __version__
from relfit.util.attached import attached
from relfit.util.errors import InputError
from relfit.util.files import write_text_atomic
from relfit.util.text import is_text

SCHEMA = 1
# What decides the last digits of a result.
VERSIONS = dict(relfit=__version__, numpy=np.__version__, scipy=scipy.__version__, python=platform.python_version())
_ARRAYS = (
    *("discrepancy", "standard_error", "covariance", "difference", "difference_standard_error"),
    *("pvalue", "log_pvalue", "adjusted_pvalue", "simultaneous_pvalue", "truncation", "near_degeneracy"),
    *("second_order",),
    *("third", "projection"),
)
_OPTIONAL = ("truncation", "near_degeneracy", "second_order", "third", "projection", "equivalent", "locations")
_FLAGS = ("worse", "equivalent")
_TUPLES = (
    *("names", "warnings", "doubts", "leading", "sizes", "groups", "beaten_by", "confidence_set", "command"),
    "robust_to_bandwidth",
)
_LONGEST_WORD = 200

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
        return {**kind, **{item.name: plain(getattr(self, item.name)) for item in fields(self)}}  # type: ignore[arg-type]

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
        _add_missing_facts(record)
        _check_fields(record)
        result = kind(**_revived(record))
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


def _add_missing_facts(record: dict[str, Any]) -> None:
    """Files of version 0.1 have the copies in `status` only, and the preset and the shared rows in `warnings`.

    Neither they nor later ones have p-values for all models at once: there Holm's stand for them.
    """
    if "simultaneous_pvalue" not in record and record.get("test") in TESTS:
        _add_simultaneous(record)
    if "copies" in record:
        return
    prefix, notes = "duplicate of ", record.get("warnings", ())
    words = [(name, word) for name, status in zip(record["names"], record["status"], strict=True) for word in status]
    shared = (re.match(r"([0-9]+) of [0-9]+ rows of '(.*)' also occur in the reference", note) for note in notes)
    presets = (re.match(r"preset (kid|cmmd): ", note) for note in notes)
    record["copies"] = {name: word.removeprefix(prefix) for name, word in words if word.startswith(prefix)}
    record["preset"] = next((match[1] for match in presets if match), None)
    record["shared_rows"] = {match[2]: int(match[1]) for match in shared if match and match[2] in record["names"]}


def _revived(record: dict[str, Any]) -> dict[str, Any]:
    """The fields of a checked record as a Comparison holds them."""
    # NumPy reads "inf" and "-inf" back as numbers.
    types: dict[str, Callable[[Any], Any]] = {
        **dict.fromkeys((*_ARRAYS, "locations"), lambda value: np.array(value, dtype=float)),
        **dict.fromkeys(_FLAGS, lambda value: np.array(value, dtype=bool)),
        **dict.fromkeys(_TUPLES, tuple),
        "status": lambda value: tuple(tuple(words) for words in value),
        "kernel": kernel_from_dict,
        "encoding": Encoding.from_dict,
    }
    return {key: types[key](value) if key in types and value is not None else value for key, value in record.items()}


def _check_arrays(result: Any) -> None:
    """Refuse wrong shapes, and numbers that no test can give: NaN, negative errors, probabilities outside 0 to 1."""
    count, locations = len(result.names), result.locations
    shapes = {
        **dict.fromkeys(("covariance", "second_order", "third", "projection"), (count, count)),
        "truncation": (count, 2),
    }
    if locations is not None and locations.ndim != 2:
        raise ValueError(f"locations of shape {locations.shape}")
    for key in (*_ARRAYS, *_FLAGS, "locations"):
        array = getattr(result, key)
        if array is None and key not in _OPTIONAL:
            raise ValueError(f"{key}: expected numbers, got none")
        if array is None:
            continue
        if key != "locations" and array.shape != shapes.get(key, (count,)):
            raise ValueError(f"{key} of shape {array.shape} for {count} names")
        low, high = _RANGES.get(key, (-math.inf, math.inf))
        finite = np.isfinite(array).all() or (key in _UNBOUNDED and not np.isnan(array).any())
        if key in ("discrepancy", "difference"):
            impossible = np.array([name in result.impossible for name in result.names])
            finite = bool((np.isfinite(array) != impossible).all() and (array[impossible] > 0.0).all())
        if not finite or (array < low).any() or (array > high).any():
            raise ValueError(f"{key}: expected numbers from {low:g} to {high:g}, got others")


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


def _add_simultaneous(record: dict[str, Any]) -> None:
    adjusted = np.array(record["adjusted_pvalue"], dtype=float)
    if record["correction"] not in FAMILY_WISE:
        own, copies = np.array(record["pvalue"], dtype=float), record.get("copies") or {}
        if own.shape != (len(record["names"]),):
            raise ValueError(f"pvalue of shape {own.shape} for {len(record['names'])} names")
        tested = [
            i
            for i, name in enumerate(record["names"])
            if name not in copies and (TESTS[record["test"]].tests_best or i != record["best_index"])
        ]
        at_once = dict(zip((record["names"][i] for i in tested), adjust(own[tested], "holm").tolist(), strict=True))
        holm = [at_once.get(copies.get(name, name), 1.0) for name in record["names"]]
        adjusted = np.maximum(adjusted, holm)
    record["simultaneous_pvalue"] = adjusted.tolist()


Check = Callable[[Any], bool]


def _check_fields(record: Mapping[str, Any]) -> None:
    """Refuse a field of the wrong type, or a value that it cannot have; arrays are checked later, by their shape."""
    for key, (check, expected) in _FIELDS.items():
        if key in record and not check(record[key]):
            raise ValueError(f"{key}: expected {expected}, got {reprlib.repr(record[key])}")


def _is_word(value: Any) -> bool:
    """A setting, which is shown as it is: no control characters, which a terminal would obey."""
    return is_text(value) and value.isprintable() and len(value) <= _LONGEST_WORD


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_number(low: float, high: float) -> Check:
    return lambda value: isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool | np.bool_)


def _maybe(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _each(check: Check) -> Check:
    return lambda value: isinstance(value, list | tuple) and all(map(check, value))


def _table(check: Check) -> Check:
    return lambda value: isinstance(value, Mapping) and all(is_text(k) and check(v) for k, v in value.items())


def _are_digests(value: Any) -> bool:
    parts = isinstance(value, Mapping) and set(value) <= {"reference", "models"}
    return parts and _maybe(_is_word)(value.get("reference")) and _table(_maybe(_is_word))(value.get("models", {}))


_FRACTION = _is_number(0.0, 1.0)
_FIELDS: dict[str, tuple[Check, str]] = {
    "names": (lambda value: _each(is_text)(value) and 0 < len(value) == len(set(value)), "different names"),
    "status": (_each(_each(is_text)), "lists of words"),
    "best": (is_text, "a name"),
    "best_index": (_is_count, "a whole number"),
    "test": (lambda value: isinstance(value, str) and value in TESTS, f"one of {', '.join(TESTS)}"),
    "alpha": (_FRACTION, "a number from 0 to 1"),
    "select_fraction": (_maybe(_FRACTION), "a number from 0 to 1, or null"),
    "margin": (_is_number(0.0, 1e300), "a number of at least 0"),
    "unit": (_is_number(math.ulp(0.0), math.inf), "a number above 0"),
    "yardstick": (_maybe(_is_number(0.0, 1e300)), "a number of at least 0, or null"),
    **dict.fromkeys(("randomised", "higher_is_better"), (_is_flag, "true or false")),
    "versions": (_table(_is_word), "versions by name"),
    "inputs": (_maybe(_are_digests), "digests"),
    "copies": (_table(is_text), "names by name"),
    **dict.fromkeys(("shared_rows", "impossible"), (_table(_is_count), "whole numbers by name")),
    "plan": (_maybe(_table(_is_count)), "whole numbers by name, or null"),
    "beaten_by": (_maybe(_each(_maybe(is_text))), "names or null"),
    "worse": (lambda value: isinstance(value, np.ndarray) or _each(_is_flag)(value), "true or false for each"),
    **dict.fromkeys(
        ("equivalent", "robust_to_bandwidth"),
        (_maybe(_each(_is_flag)), "true or false for each, or null"),
    ),
    **dict.fromkeys(("warnings", "doubts", "leading"), (_each(is_text), "texts")),
    **dict.fromkeys(("correction", "measure"), (_is_word, "a word")),
    **dict.fromkeys(
        ("bandwidth_rule", "estimator", "dependence", "backend", "variance", "preset", "design"),
        (_maybe(_is_word), "a word or null"),
    ),
    "reference": (_maybe(is_text), "a text or null"),
    **dict.fromkeys(
        ("seed", "pair_count", "block_count", "landmark_count", "lags", "unscaled"),
        (_maybe(_is_count), "a whole number or null"),
    ),
    **dict.fromkeys(("sizes", "groups"), (_maybe(_each(_is_count)), "whole numbers or null")),
    **dict.fromkeys(("command", "confidence_set"), (_maybe(_each(is_text)), "texts or null")),
}
_UNBOUNDED = ("log_pvalue", "truncation")
_RANGES = {
    **dict.fromkeys(("pvalue", "adjusted_pvalue", "simultaneous_pvalue"), (0.0, 1.0)),
    **dict.fromkeys(("standard_error", "difference_standard_error"), (0.0, math.inf)),
    "log_pvalue": (-math.inf, 0.0),
}
