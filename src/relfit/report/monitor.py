"""What a monitor knows, as text and as a page with the evidence and the confidence sequences over the items."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from relfit.report.figures import Scale, scale_of, signed
from relfit.report.gate import (
    INCONCLUSIVE,
    NO_ANSWER,
    NON_INFERIOR,
    WORSE,
    Gate,
    answer_words,
    doubtful,
    is_required,
)
from relfit.report.page import LONGEST_LABEL, environment
from relfit.results.monitor import Monitor, MonitorResult
from relfit.results.table import LONGEST_NAME, Display, Table, number_format, short_names
from relfit.util.errors import InputError
from relfit.util.files import write_text_atomic
from relfit.util.text import listed, quoted

# Curves that one picture can show, and confidence sequences.
MOST_CURVES, MOST_BANDS = 14, 12
# Powers of ten beyond which evidence is not drawn.
_LEAST, _MOST = -3.0, 6.0


def monitor_display(result: MonitorResult, longest_name: int = LONGEST_NAME) -> Display:
    """The settings, a line for each model, one sentence and the notes."""
    lines = (("", summary(result)), *(("note", note) for note in notes(result)))
    return Display(header(result), table(result, longest_name), lines)


def header(result: MonitorResult) -> str:
    """What is compared, in one line."""
    what, better = ("scores", "larger") if result.higher_is_better else ("losses", "smaller")
    shown = f"{what} from {result.bounds[0]:g} to {result.bounds[1]:g} ({better} is better)"
    if result.outside == "ranks":
        shown = f"ranks of {what} ({better} is better)"
    return f"monitor · {_counted(result.items)} · {shown} · α = {result.alpha:g} for all looks together"


def table(result: MonitorResult, longest_name: int = LONGEST_NAME) -> Table:
    """The cells of the table, made from `rows()`."""
    rows, level = result.rows(), f"{100.0 * (1.0 - result.alpha):g}% limits"
    widths = [row["upper"] - row["lower"] for row in rows if not row["best"] and math.isfinite(row["upper"])]
    number = number_format([width / 4.0 for width in widths], [row["mean"] for row in rows])
    cells = []
    for row, name in zip(rows, short_names([row["name"] for row in rows], longest_name), strict=True):
        mean, gap = (number(row[key]) if math.isfinite(row[key]) else "—" for key in ("mean", "difference"))
        beside = ("—", "—") if row["best"] else (gap, f"{number(row['lower'])} to {number(row['upper'])}")
        cells.append((name, str(row["items"]), mean, *beside, show_evalue(row["evalue"]), verdict(row)))
    kinds = tuple("worse" if row["worse"] else "best" if row["best"] else "open" for row in rows)
    mean = "mean rank" if result.outside == "ranks" else "mean"
    return Table(("model", "items", mean, "worse by", level, "e-value", "verdict"), tuple(cells), kinds)


def show_evalue(e: float) -> str:
    """An e-value with two digits."""
    return ">1e12" if e > 1e12 else "<0.001" if e < 0.001 else f"{e:.2g}".replace("e+0", "e").replace("e+", "e")


def _evalue(log_e: float) -> str:
    return show_evalue(math.exp(min(float(log_e), 600.0)))


def verdict(row: dict[str, Any]) -> str:
    """In words, with the item and the day on which a model was out."""
    if row["worse"]:
        return f"worse, shown after {_counted(row['out_after'])} ({_day(row['out_time'])})"
    return "best so far" if row["best"] else "can be the best"


def summary(result: MonitorResult) -> str:
    """One sentence."""
    out = [row["name"] for row in result.rows() if row["worse"]]
    if not out:
        return f"After {_counted(result.items)} no model is shown to be worse than another."
    are = "is" if len(out) == 1 else "are"
    kept = result.confidence_set
    if not kept:
        return f"After {_counted(result.items)} every model has been worse than another one on average at some time."
    best = f"{quoted(kept[0])} is the best" if len(kept) == 1 else f"{listed(kept)} can be the best"
    return f"After {_counted(result.items)} {best}; {listed(out)} {are} worse."


def notes(result: MonitorResult) -> list[str]:
    """What was done to the losses, and what was saved."""
    (low, high), scored, total = result.bounds, int(result.scored.sum()), len(result.names) * result.items
    moved = f"losses outside {low:g} to {high:g} were moved to the nearer bound ({result.clipped} of {scored})"
    ranked = "losses were replaced by their ranks within each item, from 0 for the best model to 1 for the worst"
    said = {"clip": [f"{moved}: means and differences are of the clipped losses"], "ranks": [ranked]}
    saved = (
        f"{result.saved} of {total} scores ({result.saved / max(total, 1):.0%}) were not needed: their model was out"
    )
    return [*said.get(result.outside, []), *([saved] if result.saved else [])]


def judge_monitor(
    result: MonitorResult,
    name: str,
    against: str | None = None,
    *,
    margin: float = 0.0,
    require: str | None = None,
    doubts: Sequence[str] = (),
) -> Gate:
    """The gate of one model, wrong at any look with probability at most alpha.

    Without a margin a model is worse once it is out, and it stays out; it is non-inferior once all
    others are out. Against a model that was named beforehand the e-values of this pair decide,
    after the last item. With a margin δ the limits for all pairs decide: worse where some lower
    limit is above δ, non-inferior where every upper limit is at most δ. `doubts` are reasons why
    the scores are not comparable: the verdict is then "error".
    """
    for argument, value in (("gate", name), ("against", against)):
        if value is not None and value not in result.names:
            raise InputError(f"{argument}: expected the name of a model, got {value!r}")
    own = result.names.index(name)
    required = is_required(require)
    fixed = against is not None
    if doubts:
        return Gate(name, against, NO_ANSWER, doubtful(doubts), None, fixed, margin, required)
    others = [j for j in range(len(result.names)) if j != own]
    others = others if against is None else [result.names.index(against)]
    whom = "any other model" if against is None else quoted(against)
    since = ""
    if margin:
        beater = others[int(np.argmax(result.lower[own, others]))]
        low = float(result.lower[own, beater])
        high = float(result.upper[own, beater])
        worse = low > margin
        shown = bool((result.upper[own, others] <= margin).all())
        evidence = f"{100.0 * (1.0 - result.alpha):g}% limits {low:.3g} to {high:.3g}"
    elif against is None:
        worse = bool(result.worse[own])
        shown = result.confidence_set == (name,)
        evidence = f"e-value {_evalue(result.log_peak[own])}, level {result.alpha:g}"
        since = f" since item {result.out_after[own]}"
    else:
        (other,) = others
        level = math.log(1.0 / result.alpha)
        worse = bool(result.log_pair_evalue[own, other] >= level)
        shown = bool(result.log_pair_evalue[other, own] >= level)
        evidence = f"e-value {_evalue(result.log_pair_evalue[own, other])}, level {result.alpha:g}"
    verdict = WORSE if worse else NON_INFERIOR if shown else INCONCLUSIVE
    whom = "another model" if worse and against is None else whom
    after = f"{',' if margin else ''} after {_counted(result.items)}"
    tail = f"{since} ({evidence})" if worse else after
    words = answer_words(verdict, name, whom, margin, tail, required=required)
    return Gate(name, against, verdict, words, None, fixed, margin, required)


def write_monitor_page(monitor: Monitor, path: str | os.PathLike[str], *, gate: Any = None) -> None:
    """Write the page to a file, as `Monitor.report` says."""
    write_text_atomic(path, monitor_page(monitor.history(), gate))


def monitor_page(history: Sequence[MonitorResult], gate: Gate | None = None) -> str:
    """The page of a monitor, from its answers over time and what `judge_monitor` answered."""
    if not history:
        raise InputError("path: expected a monitor that has counted items, got one without; add some first")
    result = history[-1]
    cells, rows = table(result), result.rows()
    template = environment().get_template("monitor.html.j2")
    return template.render(
        summary=summary(result),
        header=header(result),
        gate=gate,
        titles=cells.titles,
        rows=[(kind, (row[0], *map(signed, row[1:]))) for kind, row in zip(cells.kinds, cells.rows, strict=True)],
        notes=notes(result),
        evidence=_evidence(history, [row["name"] for row in rows[:MOST_CURVES]]),
        bands=[_band(history, row["name"], result.best) for row in rows if not row["best"]][:MOST_BANDS],
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
    level, curves = math.log10(1.0 / history[-1].alpha), []
    for name in names:
        place = history[-1].names.index(name)
        logs = [float(result.log_evalue[place]) / math.log(10.0) for result in history]
        curves.append([min(max(value, _LEAST), _MOST) for value in logs])
    up = scale_of([level, 0.0, *(value for curve in curves for value in curve)])
    items = [result.items for result in history]
    picture = _picture(items, up, 600.0, 240.0)
    picture["y_ticks"] = [(_y(up, at, 240.0), f"{10.0**at:g}") for at in up.ticks() if at.is_integer()]
    drawn = [_path(items, curve, up, 600.0, 240.0) for curve in curves]
    return {
        **picture,
        "curves": list(zip(short_names(names, LONGEST_LABEL), drawn, strict=True)),
        "line": _y(up, level, 240.0),
    }


def _band(history: Sequence[MonitorResult], name: str, best: str) -> dict[str, Any]:
    """The confidence sequence of one model's difference to the best one."""
    i, j = (history[-1].names.index(each) for each in (name, best))
    low, high = ([float(getattr(result, side)[i, j]) for result in history] for side in ("lower", "upper"))
    # The first limits are as wide as the bounds: what came later decides the scale.
    later = len(history) // 10
    up, items, size = scale_of([0.0, *low[later:], *high[later:]]), [result.items for result in history], (260.0, 160.0)
    middle = [float(result.difference[i, j]) if result.common[i, j] else 0.0 for result in history]
    return {
        **_picture(items, up, *size),
        "name": short_names([name], LONGEST_LABEL)[0],
        "area": f"{_path(items, low, up, *size)}L{_path(items[::-1], high[::-1], up, *size, last=items[-1])[1:]}Z",
        "line": _path(items, middle, up, *size),
        "zero": _y(up, 0.0, size[1]),
        "words": f"{signed(f'{low[-1]:.3g}')} to {signed(f'{high[-1]:.3g}')}",
    }


def _picture(items: Sequence[int], up: Scale, width: float, height: float) -> dict[str, Any]:
    """The frame and the axes of a picture."""
    return {
        "width": width,
        "height": height,
        "x_ticks": [(round(at * width / 100.0, 1), label) for at, label in Scale(0.0, items[-1]).labels(4)],
        "y_ticks": [(round(height * (1.0 - at / 100.0), 1), label) for at, label in up.labels(4)],
    }


def _path(xs: Sequence[int], ys: Sequence[float], up: Scale, width: float, height: float, last: int = 0) -> str:
    across = Scale(0.0, last or xs[-1])
    points = (f"{across.at(x) * width / 100.0:.1f} {_y(up, y, height)}" for x, y in zip(xs, ys, strict=True))
    return "M" + "L".join(points)


def _y(up: Scale, value: float, height: float) -> float:
    return round(height * (1.0 - up.at(value) / 100.0), 1)


def _counted(items: int) -> str:
    return f"{items} item{'' if items == 1 else 's'}"


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d")
