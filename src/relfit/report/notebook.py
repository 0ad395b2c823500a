"""How every result shows itself as a table in a notebook."""

from __future__ import annotations

from typing import Any

from relfit.report.figures import signed
from relfit.results.table import Display
from relfit.results.text import display

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


def notebook_table(result: Any) -> str:
    """The whole result as HTML for ``_repr_html_``: styles are inline, and all text is escaped."""
    from relfit.report.page import environment

    shown = display(result, _LONGEST_NAME)
    return environment().get_template("notebook.html.j2").render(blocks=[_block(each) for each in (shown, *shown.also)])


def _block(shown: Display) -> dict[str, Any]:
    """One table with the cells' styles: numbers to the right, a tint behind verdicts."""
    cells = shown.table
    columns = len(shown.table.titles)
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
