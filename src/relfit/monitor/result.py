"""What a monitor knows after some items, as a finished result."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from relfit.results.serial import VERSIONS, Record
from relfit.results.table import LONGEST_NAME, Display
from relfit.util.arrays import Array, Mask
from relfit.util.attached import attached


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class MonitorResult(Record):
    """What a monitor knows after some items; every statement holds at all looks together with probability 1 − alpha.

    Attributes:
        names, bounds, alpha, outside, higher_is_better, bets: the settings.
        items: how many items have been counted.
        scored: (l,) the items that each model has.
        mean: (l,) the mean score of each model over its items, after clipping or as ranks.
        log_evalue: (l,) logarithms of the evidence against "this model is among the best", after the last item.
        log_peak: (l,) the largest of them at any look; a model is out once its e-value has reached 1/alpha.
        out_after: per model the number of items after which it was out; None for a model that can be the best.
        out_time: per model when that was, in seconds since 1970; None likewise.
        out_limits: (l, 3) per model that is out by how much it is worse than the best of the
            others, on average over the items so far, and the limits for that, which hold for this
            model at all looks. If its e-value is below 1/alpha again, those after the item at which
            it was out. NaN for a model that can be the best.
        common: (l, l) items that both models of a pair have.
        difference: (l, l) by how much the row's model is worse than the column's on average, in units of the scores.
        lower, upper: (l, l) limits for the average difference, for all pairs at once.
        log_pair_evalue: (l, l) logarithms of the evidence against "the row's model is no worse than the column's".
        clipped: how many losses were outside the bounds and were clipped.
        versions: of relfit and the libraries that decide the last digits.
    """

    names: tuple[str, ...]
    bounds: tuple[float, float]
    alpha: float
    outside: str
    higher_is_better: bool
    bets: tuple[float, ...]
    items: int
    scored: Array
    mean: Array
    log_evalue: Array
    log_peak: Array
    out_after: tuple[int | None, ...]
    out_time: tuple[float | None, ...]
    out_limits: Array
    common: Array
    difference: Array
    lower: Array
    upper: Array
    log_pair_evalue: Array
    clipped: int
    versions: Mapping[str, str] = field(default_factory=lambda: dict(VERSIONS))

    def _display(self, longest_name: int = LONGEST_NAME) -> Display:
        display: Display = attached("MonitorResult._display")(self, longest_name)
        return display

    @property
    def worse(self) -> Mask:
        """(l,) True for the models that are out."""
        return np.array([after is not None for after in self.out_after])

    @property
    def confidence_set(self) -> tuple[str, ...]:
        """The models that can be the best."""
        return tuple(name for name, out in zip(self.names, self.worse, strict=True) if not out)

    @property
    def best(self) -> str:
        """The model of the best mean among those that can be the best."""
        better = -self.mean if self.higher_is_better else self.mean
        return self.names[int(np.nanargmin(np.where(self.worse | np.isnan(better), np.inf, better)))]

    @property
    def saved(self) -> int:
        """How many scores were not needed, because their model was out already."""
        return int(sum(self.items - held for held in self.scored[self.worse]))

    def rows(self) -> list[dict[str, Any]]:
        """The table every output is made from: one row per model, the best first, those that are out last."""
        best = self.names.index(self.best)
        better = -self.mean if self.higher_is_better else self.mean
        pairs = np.stack([self.difference[:, best], self.lower[:, best], self.upper[:, best]], axis=1)
        limits = np.where(self.worse[:, None], self.out_limits, pairs)
        rows = [
            {
                "name": name,
                "items": int(self.scored[i]),
                "mean": float(self.mean[i]),
                "difference": float(limits[i, 0]),
                "lower": float(limits[i, 1]),
                "upper": float(limits[i, 2]),
                "evalue": math.exp(self.log_evalue[i]),
                "pvalue": math.exp(-max(0.0, self.log_peak[i])),
                "best": i == best,
                "worse": bool(self.worse[i]),
                "out_after": self.out_after[i],
                "out_time": self.out_time[i],
            }
            for i, name in enumerate(self.names)
        ]
        order = sorted(range(len(rows)), key=lambda i: (rows[i]["worse"], math.isnan(better[i]), better[i]))
        return [rows[i] for i in order]
