"""What a monitor knows, in words: one line, a table, one sentence and notes."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

from relfit.monitor.result import MonitorResult
from relfit.results.table import LONGEST_NAME, Display, Table, number_format, short_names
from relfit.util.text import listed, quoted


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
    return f"monitor · {counted_items(result.items)} · {shown} · α = {result.alpha:g} for all looks together"


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


def show_log_evalue(log_e: float) -> str:
    """The e-value with this logarithm."""
    return show_evalue(math.exp(min(float(log_e), 600.0)))


def verdict(row: dict[str, Any]) -> str:
    """In words, with the item and the day on which a model was out."""
    if row["worse"]:
        return f"worse, shown after {counted_items(row['out_after'])} ({_day(row['out_time'])})"
    return "best so far" if row["best"] else "can be the best"


def summary(result: MonitorResult) -> str:
    """One sentence."""
    out = [row["name"] for row in result.rows() if row["worse"]]
    after = f"After {counted_items(result.items)}"
    if not out:
        return f"{after} no model is shown to be worse than another."
    are = "is" if len(out) == 1 else "are"
    kept = result.confidence_set
    if not kept:
        return f"{after} every model has been worse than another one on average at some time."
    best = f"{quoted(kept[0])} is the best" if len(kept) == 1 else f"{listed(kept)} can be the best"
    return f"{after} {best}; {listed(out)} {are} worse."


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


def counted_items(items: int) -> str:
    """The number of items, in words."""
    return f"{items} item{'' if items == 1 else 's'}"


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d")
