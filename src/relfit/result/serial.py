"""Results as JSON-able dictionaries, and back."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from relfit.errors import InputError
from relfit.kernels import Kernel, kernel_from_dict

if TYPE_CHECKING:
    from relfit.result.comparison import Comparison

SCHEMA = 1
_ARRAYS = (
    *("discrepancy", "standard_error", "covariance", "difference", "difference_standard_error"),
    *("pvalue", "log_pvalue", "adjusted_pvalue", "truncation", "near_degeneracy"),
)
_FLAGS = ("worse", "equivalent")
_TUPLES = ("names", "warnings", "sizes", "groups", "beaten_by", "confidence_set", "command")


def as_dict(result: Any) -> dict[str, Any]:
    """Every field of a result in a JSON-able form; ±infinity is written as text "inf" or "-inf"."""
    kind = {"schema": SCHEMA, "type": f"relfit.{type(result).__name__}"}
    return {**kind, **{item.name: plain(getattr(result, item.name)) for item in fields(result)}}


def as_json(data: Mapping[str, Any]) -> str:
    """The dictionary as JSON text (RFC 8259: no NaN, no Infinity)."""
    return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False)


def parsed(text: str) -> Any:
    """What JSON text holds."""
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"text: expected JSON written by to_json, got something else ({error})") from None


def comparison_from(kind: type[Comparison], data: Mapping[str, Any]) -> Comparison:
    """The comparison that `as_dict` described; another schema number is refused."""
    if not isinstance(data, Mapping) or data.get("schema") != SCHEMA or data.get("type") != "relfit.Comparison":
        came = f"schema {data.get('schema')!r}" if isinstance(data, Mapping) else type(data).__name__
        raise InputError(f"data: expected a relfit.Comparison of schema {SCHEMA}, got {came}")
    try:
        known = {item.name for item in fields(kind)}
        revived = kind(**_revived({key: value for key, value in data.items() if key in known}))
        _check_shapes(revived)
        return revived
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"data: not a complete relfit.Comparison ({error})") from None


def plain(value: Any) -> Any:
    """The value as JSON knows it."""
    if isinstance(value, Kernel):
        return plain(value.to_dict())
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _revived(out: dict[str, Any]) -> dict[str, Any]:
    for key in (*_ARRAYS, "locations"):
        if out.get(key) is not None:
            # NumPy reads "inf" and "-inf" back as numbers.
            out[key] = np.array(out[key], dtype=float)
    out["worse"], out["names"] = out["worse"], out["names"]
    for key in _FLAGS:
        if out.get(key) is not None:
            out[key] = np.array(out[key], dtype=bool)
    for key in _TUPLES:
        if out.get(key) is not None:
            out[key] = tuple(out[key])
    out["status"] = tuple(tuple(words) for words in out["status"])
    if out.get("kernel") is not None:
        out["kernel"] = kernel_from_dict(out["kernel"])
    return out


def _check_shapes(result: Comparison) -> None:
    count = len(result.names)
    wide = {"covariance": (count, count), "truncation": (count, 2)}
    if result.worse is None:
        raise ValueError("no verdicts")
    for key in (*_ARRAYS, *_FLAGS):
        array = getattr(result, key)
        if array is not None and array.shape != wide.get(key, (count,)):
            raise ValueError(f"{key} of shape {array.shape} for {count} names")
    if len(result.status) != count or result.names.index(result.best) != result.best_index:
        raise ValueError("status or best does not fit the names")
