"""How every result shows itself: as text in a terminal, and as a table in a notebook."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rich.text import Text

from relfit.report import text
from relfit.results.comparison import Comparison
from relfit.results.monitor import MonitorResult
from relfit.results.pair import PairComparison, PairMatrix, Ranks
from relfit.results.plan import Plan
from relfit.stats.joint import JointEstimate

# A notebook wraps, so that longer names have room.
_LONGEST_NAME = 80
# The background behind a verdict. It lets the page shine through, and the letters keep the page's colour: both can be
# read on light and on dark pages.
_TINTS = {
    "best": "rgba(46, 160, 67, 0.25);font-weight:bold",
    **dict.fromkeys(("same", "equal"), "rgba(46, 160, 67, 0.12)"),
    "alone": "rgba(218, 54, 51, 0.12)",
    "worse": "rgba(218, 54, 51, 0.25);font-weight:bold",
}
_DISPLAYS: dict[type, Callable[..., text.Display]] = {
    Comparison: text.comparison_display,
    PairComparison: text.pair_display,
    JointEstimate: text.joint_display,
    Ranks: text.ranks_display,
    PairMatrix: text.pairs_display,
    Plan: text.plan_display,
}


def display(result: Any, longest_name: int = text.LONGEST_NAME) -> text.Display:
    """What a result shows; names longer than `longest_name` are cut."""
    if isinstance(result, MonitorResult):
        from relfit.report.monitor import monitor_display

        return monitor_display(result, longest_name)
    return _DISPLAYS[type(result)](result, longest_name)


def styled(result: Any) -> Text:
    """The whole result as text, with the verdicts coloured; `plain` is what `str` and `repr` give."""
    return text.as_text(display(result))


def notebook_table(result: Any) -> str:
    """The whole result as HTML for ``_repr_html_``: styles are inline, and all text is escaped."""
    from relfit.report.page import environment

    shown = display(result, _LONGEST_NAME)
    return environment().get_template("notebook.html.j2").render(blocks=[_block(each) for each in (shown, *shown.also)])


def _block(shown: text.Display) -> dict[str, Any]:
    """One table with the cells' styles: numbers to the right, a tint behind verdicts."""
    from relfit.report.figures import signed

    cells, columns = shown.table, len(shown.table.titles)
    verdicts = range(columns - cells.verdicts, columns)
    sides = ["left;white-space:nowrap" if j in cells.words else "right;white-space:nowrap" for j in range(columns)]
    sides[verdicts.start :] = ["left"] * cells.verdicts
    rows = []
    for i, (kind, row) in enumerate(zip(cells.kinds, cells.rows, strict=True)):
        kinds = {(i, verdicts.start): kind, **cells.marked}
        tints = [_TINTS.get(kinds.get((i, j), "")) for j in range(columns)]
        shown_cells = [cell if j in cells.words else signed(cell) for j, cell in enumerate(row)]
        rows.append(list(zip(shown_cells, sides, tints, strict=True)))
    heads = list(zip(cells.titles, sides, strict=True))
    return {"header": shown.header, "heads": heads, "rows": rows, "lines": [line for line in shown.lines if line[1]]}
