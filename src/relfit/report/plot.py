"""The forest plot: each model's discrepancy with its 95% bar, the best on top. No pyplot, so nothing leaks."""

from __future__ import annotations

import io
import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font

from relfit.report.table import short_names
from relfit.report.words import measure_name
from relfit.result import Comparison

LONGEST_LABEL = 28
# The report's plot is narrow, so that its text is still readable when a phone shrinks it.
REPORT_WIDTH, REPORT_LABEL = 4.6, 22
REACH = 1.96
INK, FAINT = "#333333", "#999999"
# Okabe and Ito's colours, which the colour-blind can tell apart; the shape says it too.
MARKS = {
    "best": ("#009E73", "D", "best of the sample"),
    "open": ("#0072B2", "o", "no evidence that it is worse"),
    "worse": ("#D55E00", "X", "worse"),
}
_MISSING = "□"
# Left out of the file: the date would make it differ each time, the rest names addresses on the network.
_METADATA = ("Date", "Creator", "Format", "Type")


class ForestAxes(Axes):
    """Axes that a notebook shows as a picture although pyplot does not know them."""

    def _repr_png_(self) -> bytes:
        out = io.BytesIO()
        self.figure.canvas.print_figure(out, format="png")
        return out.getvalue()


def forest(comparison: Comparison, ax: Axes | None = None) -> Axes:
    """Draw the discrepancies with ±1.96 s.e. bars, the best first.

    Without `ax` a figure of its own is made that pyplot does not know: a notebook shows it, a script saves
    it with ``result.plot().figure.savefig("plot.png")``. Give ``ax=plt.gca()`` to draw into pyplot's figure.

    >>> from relfit import JointEstimate, decide
    >>> ax = forest(decide(JointEstimate(("a", "b"), [0.1, 0.9], [[0.01, 0.0], [0.0, 0.01]])))
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['a', 'b']
    """
    ax = _new_figure(len(comparison.names), 6.4)[1] if ax is None else ax
    rows = comparison.rows()
    _draw(ax, comparison, rows, _drawable(short_names([row["name"] for row in rows], LONGEST_LABEL)))
    return ax


def forest_svg(comparison: Comparison) -> str:
    """The plot as an ``<svg>`` element, the same bytes each time; its text takes the page's fonts and colour."""
    rows = comparison.rows()
    settings = {"svg.hashsalt": "relfit", "svg.fonttype": "none", "text.usetex": False}
    out = io.StringIO()
    with style.context(["default", settings]), warnings.catch_warnings():
        # The browser has the glyphs that the measuring font lacks.
        warnings.filterwarnings("ignore", message=".*(Glyph|glyph|font)")
        figure, ax = _new_figure(len(rows), REPORT_WIDTH)
        _draw(ax, comparison, rows, short_names([row["name"] for row in rows], REPORT_LABEL))
        figure.savefig(out, format="svg", transparent=True, metadata=dict.fromkeys(_METADATA))
    svg = out.getvalue()
    return svg[svg.index("<svg") :].replace(INK, "currentColor")


def _new_figure(count: int, width: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, 1.25 + 0.26 * max(count, 3)), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot(axes_class=ForestAxes)


def _draw(ax: Axes, comparison: Comparison, rows: Sequence[dict[str, Any]], labels: Sequence[str]) -> None:
    size = _label_size(ax, len(rows))
    ax.axvline(rows[0]["discrepancy"], color=FAINT, linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)
    kinds = ["best" if row["best"] else "worse" if row["worse"] else "open" for row in rows]
    for kind in MARKS:
        at = [k for k, own in enumerate(kinds) if own == kind]
        if at:
            _draw_kind(ax, [rows[k] for k in at], at, kind, 0.7 * size)
    # Names are text, never TeX: a "$" in one must not be read as mathematics.
    ax.set_yticks(range(len(rows)), labels, parse_math=False, usetex=False, color=INK, fontsize=size)
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.set_xlabel(f"{measure_name(comparison)} ± {REACH} s.e. (smaller is better)", color=INK)
    _decorate(ax)


def _draw_kind(ax: Axes, rows: Sequence[dict[str, Any]], at: Sequence[int], kind: str, size: float) -> None:
    colour, marker, label = MARKS[kind]
    label = str(rows[0]["verdict"]) if kind == "best" else label
    values = np.array([row["discrepancy"] for row in rows])
    reach = REACH * np.array([row["standard_error"] for row in rows])
    ax.errorbar(values, at, xerr=reach, fmt="none", ecolor=colour, elinewidth=0.23 * size)
    ax.plot(values, at, linestyle="none", marker=marker, markersize=size, color=colour, label=label)


def _decorate(ax: Axes) -> None:
    ax.locator_params(axis="x", nbins=6)
    ax.grid(axis="x", color=FAINT, alpha=0.25, linewidth=0.6)
    ax.tick_params(axis="both", colors=INK, length=0, pad=6)
    for side, spine in ax.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(FAINT)
    look: dict[str, Any] = {"ncols": 3, "frameon": False, "labelcolor": INK, "fontsize": "small"}
    if isinstance(ax, ForestAxes):
        ax.figure.legend(loc="outside upper left", borderaxespad=0.2, columnspacing=1.2, handletextpad=0.2, **look)
    else:
        ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), **look)


def _label_size(ax: Axes, count: int) -> float:
    """Points: the usual size, or what fits when many rows share axes that were given."""
    row = ax.bbox.height / ax.figure.dpi * 72.0 / count
    return float(np.clip(0.8 * row, 3.0, FontProperties().get_size_in_points()))


def _drawable(labels: Sequence[str]) -> list[str]:
    """The labels without characters that the font lacks; labels that then look alike get a number."""
    known = set[int]().union(*(_glyphs(family) for family in FontProperties().get_family()))
    shown = ["".join(c if ord(c) in known else _MISSING for c in label) for label in labels]
    twice = {label for label, count in Counter(shown).items() if count > 1}
    return [f"{label} ({k})" if label in twice else label for k, label in enumerate(shown, 1)]


def _glyphs(family: str) -> set[int]:
    return set(get_font(findfont(FontProperties(family=[family]))).get_charmap())
