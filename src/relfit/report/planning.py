"""A plan as text and as a picture of power curves."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from rich.cells import cell_len

from relfit.planning.result import Plan
from relfit.report.plot import FAINT, INK, new_axes
from relfit.report.table import short_names
from relfit.report.words import CORRECTION_NAMES, TEST_NAMES, visible

GAP = "  "
SIZE = 7.2, 4.0
# Okabe and Ito's colours, which the colour-blind can tell apart; beyond seven models they begin again, dotted.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
LINES = {"best-set": "-", "carve": "--", "relmulti": "-.", "relpsi": ":"}


def plan_text(plan: Plan) -> str:
    """The settings, a table with a line per model and test, and the notes.

    >>> from relfit.planning import Assumed, plan
    >>> print(plan_text(plan(Assumed(0.01, standard_error=0.01, n=500), tests=["best-set"])))
    rows for power 0.8 · α = 0.05 · assumed gaps, standard errors of 500 rows · closed forms
    model  test      gap   rows  power at 500  detectable gap at 500
    m1     best set  0.01  6183  0.17          0.0352
    """
    rows = plan.rows()
    names = dict(zip(plan.names, short_names(plan.names), strict=True))
    ranged = any(row["n_range"] is not None for row in rows)
    titles = ["model", "test", "gap", "rows", *(["16–84%"] if ranged else []), f"power at {plan.n}"]
    cells = [_cells(plan, row, names[row["name"]], ranged) for row in rows]
    lines = [_header(plan), *_aligned([[*titles, f"detectable gap at {plan.n}"], *cells])]
    return "\n".join([*lines, *(f"Note: {visible(note)}" for note in plan.notes)])


def power_curves(plan: Plan, ax: Axes | None = None) -> Axes:
    """Draw power against rows (log scale), a colour per model and a line style per test.

    Without `ax` a figure of its own is made that pyplot does not know, as `Comparison.plot` does.
    """
    ax = new_axes(*SIZE) if ax is None else ax
    others = [name for name in plan.names if name != plan.best]
    shown = short_names(others, 24)
    ax.axhline(plan.target_power, color=FAINT, linewidth=0.8)
    if plan.sizes[0] <= plan.n <= plan.sizes[-1]:
        ax.axvline(plan.n, color=FAINT, linewidth=0.8)
    for b, label in enumerate(shown):
        for a, test in enumerate(plan.tests):
            line, said = (LINES[test], f"{label}, {TEST_NAMES[test]}") if len(plan.tests) > 1 else ("-", label)
            style: dict[str, Any] = {"color": COLOURS[b % len(COLOURS)], "linestyle": line, "linewidth": 1.6}
            marker = "." if b >= len(COLOURS) else None
            ax.plot(plan.sizes, plan.curves[a, b], marker=marker, label=said, **style)
    ax.set_xscale("log")
    ax.set_ylim(0.0, 1.02)
    ax.set_xlabel("rows", color=INK)
    ax.set_ylabel("probability of being declared worse", color=INK)
    ax.tick_params(axis="both", colors=INK)
    title = TEST_NAMES[plan.tests[0]] if len(plan.tests) == 1 else None
    legend = ax.legend(fontsize="x-small", frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5), title=title)
    for text in legend.get_texts():
        # Names are text, never TeX.
        text.set_parse_math(False)
    return ax


def picture(plan: Plan, form: str) -> bytes:
    """The power curves as a file's contents, "png", "svg" or "pdf"."""
    out = io.BytesIO()
    ax = new_axes(*SIZE)
    power_curves(plan, ax)
    # The date would make the file differ each time.
    ax.figure.canvas.print_figure(
        out, format=form, metadata=None if form == "png" else {"CreationDate" if form == "pdf" else "Date": None}
    )
    return out.getvalue()


def _header(plan: Plan) -> str:
    source = (
        f"pilot of {plan.pilot_n} rows" if plan.measured else f"assumed gaps, standard errors of {plan.pilot_n} rows"
    )
    method = f"simulation, {plan.trials} trials" if plan.method == "simulation" else plan.method
    corrected = [
        f"{TEST_NAMES[test]}: {CORRECTION_NAMES.get(own, own)}"
        for test, own in zip(plan.tests, plan.corrections, strict=True)
        if own != "none" and (len(plan.names) > 2 or test == "best-set")
    ]
    parts = [f"rows for power {plan.target_power:g}", f"α = {plan.alpha:g}", source, method, *corrected]
    return " · ".join(parts)


def _cells(plan: Plan, row: dict[str, Any], name: str, ranged: bool) -> list[str]:
    error = row["n_error"]
    rows = _rows(plan, row["n_needed"])
    if math.isfinite(error) and error >= 0.5:
        rows += f" ± {math.ceil(error)}"
    elif row["n_needed"] == plan.fewest[plan.tests.index(row["test"])]:
        rows += " (the fewest)"
    power = f"{row['power']:.2f}"
    gap = f"{row['gap']:.3g}" + (f" ± {row['gap_standard_error']:.2g}" if row["gap_standard_error"] > 0.0 else "")
    return [name, TEST_NAMES[row["test"]], gap, rows, *([_range(plan, row)] if ranged else []), power, _gap(row)]


def _gap(row: dict[str, Any]) -> str:
    if row["detectable_gap"] == 0.0:
        # The difference to the best does not vary: the pilot says nothing about what other data would show.
        return "—"
    return f"{row['detectable_gap']:.3g}" if math.isfinite(row["detectable_gap"]) else "none"


def _range(plan: Plan, row: dict[str, Any]) -> str:
    if row["n_range"] is None:
        return "—"
    low, high = row["n_range"]
    return _rows(plan, low) if low == high else f"{_rows(plan, low)} to {_rows(plan, high)}"


def _rows(plan: Plan, rows: float) -> str:
    return f"{rows:.0f}" if math.isfinite(rows) else f"more than {plan.most}"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    padded = [[cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)] for row in rows]
    return [GAP.join(row).rstrip() for row in padded]
