"""Comparison and PairComparison: finished results. They know nothing of how they are shown."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from relfit.errors import InputError
from relfit.estimate import JointEstimate
from relfit.inputs import check_level
from relfit.kernels import Kernel, kernel_from_dict
from relfit.procedures import carve_bounds, regret_bounds, seeded
from relfit.procedures.streams import Source
from relfit.truncnorm import selective_interval, selective_lower_bound, selective_threshold

if TYPE_CHECKING:
    import os

    import pandas

Array = NDArray[np.float64]

SCHEMA = 1
_ARRAYS = (
    *("discrepancy", "standard_error", "covariance", "difference", "difference_standard_error"),
    *("pvalue", "log_pvalue", "adjusted_pvalue", "truncation", "near_degeneracy"),
)


@dataclass(frozen=True, eq=False, kw_only=True)
class Comparison:
    """Which of l models are worse than the best. Arrays are in the order the models were given.

    Attributes:
        names: model names.
        best, best_index: the model the others are tested against.
        discrepancy, standard_error, covariance: the estimates; for relmulti those of the testing share.
        difference, difference_standard_error: D_i − D_best and its standard error.
        pvalue, log_pvalue, adjusted_pvalue: of "no worse than the best"; 1 for the best.
        worse: the verdicts, ``adjusted_pvalue ≤ alpha``.
        status: words per model, such as "tie" or "duplicate of NAME".
        truncation: (l, 2) limits of the selective test; None where it does not apply.
        warnings: sentences the reader should see.
        sizes: the reference's number of rows, then each model's where models have samples.
    """

    names: tuple[str, ...]
    best: str
    best_index: int
    discrepancy: Array
    standard_error: Array
    covariance: Array
    difference: Array
    difference_standard_error: Array
    pvalue: Array
    log_pvalue: Array
    adjusted_pvalue: Array
    worse: NDArray[np.bool_]
    status: tuple[tuple[str, ...], ...]
    alpha: float
    test: str
    correction: str
    measure: str
    truncation: Array | None = None
    beaten_by: tuple[str | None, ...] | None = None
    confidence_set: tuple[str, ...] | None = None
    randomised: bool = False
    near_degeneracy: Array | None = None
    warnings: tuple[str, ...] = ()
    kernel: Kernel | None = None
    bandwidth_rule: str | None = None
    estimator: str | None = None
    dependence: str | None = None
    select_fraction: float | None = None
    sizes: tuple[int, ...] | None = None
    seed: int | None = None
    backend: str | None = None
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def threshold(self) -> Array:
        """(l,) the difference to the best above which a model would be declared worse, before correction.

        Consistent with the p-values: D_i − D_best ≥ threshold exactly where the p-value is at most alpha.
        """
        s = np.where(self.difference_standard_error > 0.0, self.difference_standard_error, 1.0)
        if self.truncation is None:
            cut = -s * ndtri(self.alpha)
        else:
            cut = selective_threshold(self.alpha, s, self.truncation[:, 0], self.truncation[:, 1])
        tested = self.difference_standard_error > 0.0
        return np.where(tested, cut, np.where(self.log_pvalue < 0.0, -math.inf, math.inf))

    def confidence_interval(self, level: float = 0.95) -> Array:
        """(l, 2) two-sided intervals for D_i − D_best; given the selection for relpsi and carve, where they can be
        infinite; simultaneous ones for D_i − min_j D_j, whoever is best, for best-set.
        """
        check_level(level)
        if self.test == "carve":
            return self._spread(carve_bounds(self._distinct(), level, rng=self._source()).interval)
        if self.test == "best-set":
            bounds = regret_bounds(self._distinct(), (1.0 + level) / 2.0, rng=self._source())
            return self._spread(np.stack([bounds.lower, bounds.upper], axis=1))
        ends = [self._interval(i, level) for i in range(len(self.names))]
        return np.array(ends, dtype=float)

    def lower_bound(self, level: float = 0.95) -> Array:
        """(l,) one-sided lower bounds for D_i − D_best: above 0 exactly where p < 1 − level.

        For best-set, bounds for D_i − min_j D_j that hold together.
        """
        check_level(level)
        if self.test == "carve":
            return self._spread(carve_bounds(self._distinct(), level, rng=self._source()).lower)
        if self.test == "best-set":
            return self._spread(regret_bounds(self._distinct(), level, rng=self._source()).lower)
        return np.array([self._lower(i, level) for i in range(len(self.names))], dtype=float)

    def rows(self) -> list[dict[str, Any]]:
        """The one table every output is made from: the best model first, then by discrepancy."""
        order = sorted(range(len(self.names)), key=lambda i: (i != self.best_index, self.discrepancy[i], i))
        return [self._row(i) for i in order]

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able form; ±infinity is written as text "inf" or "-inf". `from_dict` reads it back."""
        out: dict[str, Any] = {"schema": SCHEMA, "type": "relfit.Comparison"}
        for item in fields(self):
            out[item.name] = _plain(getattr(self, item.name))
        return out

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Comparison:
        """The comparison that `to_dict` described; another schema number is refused."""
        if not isinstance(data, Mapping) or data.get("schema") != SCHEMA or data.get("type") != "relfit.Comparison":
            came = f"schema {data.get('schema')!r}" if isinstance(data, Mapping) else type(data).__name__
            raise InputError(f"data: expected a relfit.Comparison of schema {SCHEMA}, got {came}")
        try:
            revived = cls(**_revived(data))
            _check_shapes(revived)
            return revived
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"data: not a complete relfit.Comparison ({error})") from None

    def to_json(self) -> str:
        """The dictionary as JSON text (RFC 8259: no NaN, no Infinity)."""
        return json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> Comparison:
        """The comparison that `to_json` wrote."""
        try:
            data = json.loads(text)
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(f"text: expected JSON written by to_json, got something else ({error})") from None
        return cls.from_dict(data)

    def to_frame(self) -> pandas.DataFrame:
        """The rows as a pandas DataFrame, indexed by model name (needs pandas)."""
        try:
            import pandas
        except ImportError:
            raise InputError("to_frame: needs pandas; install it with  pip install pandas") from None
        return pandas.DataFrame(self.rows()).set_index("name")

    def plot(self, ax: Any = None) -> Any:
        """A forest plot of the discrepancies; returns the matplotlib Axes."""
        from relfit.report.plot import forest

        return forest(self, ax)

    def report(self, path: str | os.PathLike[str], data: Any = None) -> None:
        """Write a self-contained HTML report. `data=(reference, models)` adds panels that need the raw data."""
        from relfit.report.html import write_report

        write_report(self, path)

    def __str__(self) -> str:
        from relfit.report.table import text

        return text(self)

    def _repr_html_(self) -> str:
        from relfit.report.html import notebook_table

        return notebook_table(self)

    def _originals(self) -> list[str]:
        """For every model the one it stands for: itself, or the one it is a copy of."""
        prefix = "duplicate of "
        return [
            next((word.removeprefix(prefix) for word in words if word.startswith(prefix)), name)
            for name, words in zip(self.names, self.status, strict=True)
        ]

    def _distinct(self) -> JointEstimate:
        """The estimate of the distinct models, each once."""
        index = [
            i for i, (name, original) in enumerate(zip(self.names, self._originals(), strict=True)) if name == original
        ]
        sizes = self.sizes
        if sizes is not None and len(sizes) > 1:
            sizes = (sizes[0], *(sizes[1 + i] for i in index))
        names = tuple(self.names[i] for i in index)
        return JointEstimate(names, self.discrepancy[index], self.covariance[np.ix_(index, index)], sizes)

    def _spread(self, values: Array) -> Array:
        """Values of the distinct models, in the order of all models."""
        distinct = list(dict.fromkeys(self._originals()))
        kept = [name for name in self.names if name in distinct]
        return np.asarray(values[[kept.index(original) for original in self._originals()]])

    def _source(self) -> Source:
        return seeded(self.seed or 0, self.test)

    def _interval(self, i: int, level: float) -> tuple[float, float]:
        t, s = float(self.difference[i]), float(self.difference_standard_error[i])
        if s == 0.0:
            return (t, t) if self._certain(i) else (min(t, 0.0), max(t, 0.0))
        if self.truncation is not None:
            return selective_interval(t, s, float(self.truncation[i, 0]), float(self.truncation[i, 1]), level)
        reach = s * float(ndtri(0.5 + level / 2.0))
        return t - reach, t + reach

    def _lower(self, i: int, level: float) -> float:
        t, s = float(self.difference[i]), float(self.difference_standard_error[i])
        if s == 0.0:
            return t if self._certain(i) else min(t, 0.0)
        if self.truncation is not None:
            return selective_lower_bound(t, s, float(self.truncation[i, 0]), float(self.truncation[i, 1]), level)
        return t - s * float(ndtri(level))

    def _certain(self, i: int) -> bool:
        """Whether a difference without variance is a real one; otherwise it is rounding and 0 is as good."""
        return "deterministic" in self.status[i]

    def _row(self, i: int) -> dict[str, Any]:
        return {
            "name": self.names[i],
            "discrepancy": float(self.discrepancy[i]),
            "standard_error": float(self.standard_error[i]),
            "difference": float(self.difference[i]),
            "pvalue": float(self.pvalue[i]),
            "log_pvalue": float(self.log_pvalue[i]),
            "adjusted_pvalue": float(self.adjusted_pvalue[i]),
            "worse": bool(self.worse[i]),
            "best": i == self.best_index,
            "verdict": self._verdict(i),
            "status": self.status[i],
        }

    def _verdict(self, i: int) -> str:
        if i == self.best_index:
            return "selected as best" if self.test in ("relmulti", "carve") else "best of the sample"
        if self.worse[i]:
            return "worse"
        same = {"indistinguishable", f"duplicate of {self.best}"} & set(self.status[i])
        return "the same as the best" if same else "no evidence that it is worse"


@dataclass(frozen=True, kw_only=True)
class PairComparison:
    """Is model a worse than model b? A one-sided test of the fixed hypothesis "a is no worse than b".

    `difference` is D_a − D_b, `statistic` that over its standard error, `worse` is ``pvalue ≤ alpha``.
    """

    names: tuple[str, str]
    statistic: float
    pvalue: float
    log_pvalue: float
    worse: bool
    difference: float
    standard_error: float
    threshold: float
    discrepancy: tuple[float, float]
    alpha: float
    test: str
    measure: str
    status: tuple[str, ...] = ()
    truncation: tuple[float, float] | None = None
    warnings: tuple[str, ...] = ()
    kernel: Kernel | None = None
    bandwidth_rule: str | None = None
    estimator: str | None = None
    dependence: str | None = None
    sizes: tuple[int, ...] | None = None
    seed: int | None = None
    backend: str | None = None
    versions: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able form."""
        out: dict[str, Any] = {"schema": SCHEMA, "type": "relfit.PairComparison"}
        for item in fields(self):
            out[item.name] = _plain(getattr(self, item.name))
        return out

    def to_json(self) -> str:
        """The dictionary as JSON text."""
        return json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False)

    def __str__(self) -> str:
        from relfit.report.table import pair_text

        return pair_text(self)


def _plain(value: Any) -> Any:
    if isinstance(value, Kernel):
        return _plain(value.to_dict())
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _revived(data: Mapping[str, Any]) -> dict[str, Any]:
    known = {item.name for item in fields(Comparison)}
    out = {key: value for key, value in data.items() if key in known}
    for key in _ARRAYS:
        if out.get(key) is not None:
            # NumPy reads "inf" and "-inf" back as numbers.
            out[key] = np.array(out[key], dtype=float)
    out["worse"] = np.array(out["worse"], dtype=bool)
    out["names"] = tuple(out["names"])
    out["status"] = tuple(tuple(words) for words in out["status"])
    for key in ("warnings", "sizes", "beaten_by", "confidence_set"):
        if out.get(key) is not None:
            out[key] = tuple(out[key])
    if out.get("kernel") is not None:
        out["kernel"] = kernel_from_dict(out["kernel"])
    return out


def _check_shapes(result: Comparison) -> None:
    count = len(result.names)
    wide = {"covariance": (count, count), "truncation": (count, 2)}
    for key in (*_ARRAYS, "worse"):
        array = getattr(result, key)
        if array is not None and array.shape != wide.get(key, (count,)):
            raise ValueError(f"{key} of shape {array.shape} for {count} names")
    if len(result.status) != count or result.names.index(result.best) != result.best_index:
        raise ValueError("status or best does not fit the names")
