"""What the fields of a stored comparison must hold: a file may be damaged, or written by somebody else."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from relfit.inputs.names import is_text

Check = Callable[[Any], bool]

_LONGEST_WORD = 200


def check_fields(data: Mapping[str, Any]) -> None:
    """Refuse a field of another kind, or a number that it cannot hold; arrays are checked later, by their shape."""
    for key, (check, expected) in _FIELDS.items():
        if key in data and not check(data[key]):
            raise ValueError(f"{key}: expected {expected}, got {reprlib.repr(data[key])}")


def check_numbers(arrays: Mapping[str, Any]) -> None:
    """Refuse numbers that no test can give: NaN, negative standard errors, chances outside 0 to 1."""
    for key, array in arrays.items():
        if array is None:
            continue
        low, high = _RANGES.get(key, (-math.inf, math.inf))
        finite = np.isfinite(array).all() or (key in _UNBOUNDED and not np.isnan(array).any())
        if not finite or (array < low).any() or (array > high).any():
            raise ValueError(f"{key}: expected numbers from {low:g} to {high:g}, got others")


def _is_word(value: Any) -> bool:
    """A setting, which is shown as it is: no control characters, which a terminal would obey."""
    return is_text(value) and value.isprintable() and len(value) <= _LONGEST_WORD


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_number(low: float, high: float) -> Check:
    return lambda value: isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high


def _maybe(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _each(check: Check) -> Check:
    return lambda value: isinstance(value, list | tuple) and all(map(check, value))


def _table(check: Check) -> Check:
    return lambda value: isinstance(value, Mapping) and all(is_text(k) and check(v) for k, v in value.items())


def _names(value: Any) -> bool:
    return _each(is_text)(value) and 0 < len(value) == len(set(value))


def _inputs(value: Any) -> bool:
    known = isinstance(value, Mapping) and set(value) <= {"reference", "models"}
    return known and _maybe(_is_word)(value.get("reference")) and _table(_maybe(_is_word))(value.get("models", {}))


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool | np.bool_)


_WORD, _MAYBE_WORD = (_is_word, "a word"), (_maybe(_is_word), "a word or null")
_TEXTS, _MAYBE_TEXTS = (_each(is_text), "texts"), (_maybe(_each(is_text)), "texts or null")
_COUNT, _COUNTS = (_maybe(_is_count), "a whole number or null"), (_maybe(_each(_is_count)), "whole numbers or null")
_SHARE = _is_number(0.0, 1.0)
_FIELDS: dict[str, tuple[Check, str]] = {
    "names": (_names, "different names"),
    "status": (_each(_each(is_text)), "lists of words"),
    "best_index": (_is_count, "a whole number"),
    "alpha": (_SHARE, "a number from 0 to 1"),
    "select_fraction": (_maybe(_SHARE), "a number from 0 to 1, or null"),
    "margin": (_is_number(0.0, 1e300), "a number of at least 0"),
    "randomised": (_is_flag, "true or false"),
    "versions": (_table(_is_word), "versions by name"),
    "inputs": (_maybe(_inputs), "digests"),
    "plan": (_maybe(_table(_is_count)), "whole numbers by name, or null"),
    "beaten_by": (_maybe(_each(_maybe(is_text))), "names or null"),
    "worse": (lambda value: isinstance(value, np.ndarray) or _each(_is_flag)(value), "true or false for each"),
    "equivalent": (_maybe(_each(_is_flag)), "true or false for each, or null"),
    "best": (is_text, "a name"),
    **dict.fromkeys(("test", "correction", "measure"), _WORD),
    **dict.fromkeys(("bandwidth_rule", "estimator", "dependence", "backend", "variance"), _MAYBE_WORD),
    **dict.fromkeys(("seed", "pair_count", "block_count"), _COUNT),
    **dict.fromkeys(("sizes", "groups"), _COUNTS),
    **dict.fromkeys(("command", "confidence_set"), _MAYBE_TEXTS),
    "warnings": _TEXTS,
}
_UNBOUNDED = ("log_pvalue", "truncation")
_RANGES = {
    **dict.fromkeys(("pvalue", "adjusted_pvalue"), (0.0, 1.0)),
    **dict.fromkeys(("standard_error", "difference_standard_error"), (0.0, math.inf)),
    "log_pvalue": (-math.inf, 0.0),
}
