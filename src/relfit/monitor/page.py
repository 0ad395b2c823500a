"""The page of a monitor: the evidence and the confidence sequences over the items."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from relfit.report.figures import Frame, Scale, scale_of, signed
from relfit.report.gate import Gate
from relfit.report.page import LONGEST_LABEL, environment
from relfit.results.monitor import MonitorResult, header, notes, set_words, summary, table
from relfit.results.scale import KINDS
from relfit.results.table import short_names
from relfit.util.errors import InputError

# Curves that one picture can show, and confidence sequences.
MOST_CURVES = 14
MOST_BANDS = 12
# Powers of ten beyond which evidence is not drawn.
_LEAST = -3.0
_MOST = 6.0


def monitor_page(history: Sequence[MonitorResult], gate: Gate | None = None) -> str:
    """The page of a monitor, from its answers over time and what `judge_monitor` answered."""
    if not history:
        raise InputError(
            "path: expected a monitor that has counted items, got one without; add some first"
        )
    result = history[-1]
    cells = table(result)
    rows = result.rows()
    template = environment().get_template("monitor.html.j2")
    return template.render(
        summary=summary(result),
        header=header(result),
        kept=set_words(result),
        gate=gate,
        titles=cells.titles,
        marks={kind: verdict.mark for kind, verdict in KINDS.items()},
        rows=[
            (kind, (row[0], *map(signed, row[1:])))
            for kind, row in zip(cells.kinds, cells.rows, strict=True)
        ],
        notes=notes(result),
        evidence=_evidence(history, [row["name"] for row in rows[:MOST_CURVES]]),
        bands=[_band(history, row["name"], result.best) for row in rows if not row["best"]][
            :MOST_BANDS
        ],
        best=short_names([result.best], LONGEST_LABEL)[0],
        left_out=max(0, len(rows) - MOST_CURVES),
        threshold=f"{1.0 / result.alpha:g}",
        level=f"{100.0 * (1.0 - result.alpha):g}%",
        alpha=f"{100.0 * result.alpha:g}%",
        ranks=result.outside == "ranks",
        bets=", ".join(f"{bet:.3g}" for bet in result.bets),
    )


def _evidence(history: Sequence[MonitorResult], names: Sequence[str]) -> dict[str, Any]:
    """The e-values of all models as curves, on a scale of powers of ten."""
    result = history[-1]
    level = math.log10(1.0 / result.alpha)
    items = [each.items for each in history]
    logs = np.array([each.log_evalue for each in history]) / math.log(10.0)
    shown = np.clip(logs, _LEAST, _MOST)[:, [result.names.index(name) for name in names]]
    up = scale_of([level, 0.0, *shown.ravel().tolist()])
    frame = Frame(600.0, 240.0, Scale(0.0, items[-1]), up)
    powers = [at for at in up.ticks() if at.is_integer()]
    ticks = zip(frame.y(powers).round(1), powers, strict=True)
    curves = [frame.path(items, curve) for curve in shown.T]
    return {
        **frame.axes(),
        "y_ticks": [(y, f"{10.0**at:g}") for y, at in ticks],
        "curves": list(zip(short_names(names, LONGEST_LABEL), curves, strict=True)),
        "line": round(float(frame.y([level])[0]), 1),
    }


def _band(history: Sequence[MonitorResult], name: str, best: str) -> dict[str, Any]:
    """The confidence sequence of one model's difference to the best one."""
    i, j = (history[-1].names.index(each) for each in (name, best))
    low = [float(result.lower[i, j]) for result in history]
    high = [float(result.upper[i, j]) for result in history]
    # The first limits are as wide as the bounds: what came later decides the scale.
    later = len(history) // 10
    items = [result.items for result in history]
    up = scale_of([0.0, *low[later:], *high[later:]])
    frame = Frame(260.0, 160.0, Scale(0.0, items[-1]), up)
    middle = [
        float(result.difference[i, j]) if result.common[i, j] else 0.0 for result in history
    ]
    return {
        **frame.axes(),
        "name": short_names([name], LONGEST_LABEL)[0],
        "area": f"{frame.path([*items, *items[::-1]], [*low, *high[::-1]])}Z",
        "line": frame.path(items, middle),
        "zero": round(float(frame.y([0.0])[0]), 1),
        "words": f"{signed(f'{low[-1]:.3g}')} to {signed(f'{high[-1]:.3g}')}",
    }
