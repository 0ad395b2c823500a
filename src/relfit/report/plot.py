"""The forest plot: each model's value with its bar, the best on top. No pyplot, so nothing leaks."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.path import Path

from relfit.inputs import check_choice
from relfit.report.forest import Bar, Forest, difference_forest, discrepancy_forest
from relfit.report.table import short_names
from relfit.report.words import measure_name
from relfit.result import Comparison

LONGEST_LABEL = 28
INK, FAINT = "#333333", "#999999"
# Okabe and Ito's colours, which the colour-blind can tell apart; the shape says it too.
MARKS = {
    "best": ("#009E73", "D", "best of the sample"),
    "open": ("#0072B2", "o", "no evidence that it is worse"),
    "worse": ("#D55E00", "X", "worse"),
}
BRACKET = Path([(0.4, -1.0), (0.0, -1.0), (0.0, 1.0), (0.4, 1.0)])
_MISSING = "□"


class ForestAxes(Axes):
    """Axes that a notebook shows as a picture although pyplot does not know them."""

    def _repr_png_(self) -> bytes:
        out = io.BytesIO()
        self.figure.canvas.print_figure(out, format="png")
        return out.getvalue()


def forest(comparison: Comparison, ax: Axes | None = None, *, of: str = "discrepancy") -> Axes:
    """Draw the discrepancies, or with ``of="difference"`` the differences to the best, with their intervals.

    The bars of discrepancies are D ± z s; those of differences are `Comparison.confidence_interval`, cut off where
    they leave the picture, with the one-sided bound that decides as a bracket.

    Without `ax` a figure of its own is made that pyplot does not know: a notebook shows it, a script saves
    it with ``result.plot().figure.savefig("plot.png")``. Give ``ax=plt.gca()`` to draw into pyplot's figure.

    >>> from relfit import JointEstimate, decide
    >>> ax = forest(decide(JointEstimate(("a", "b"), [0.1, 0.9], [[0.01, 0.0], [0.0, 0.01]]), test="relpsi"))
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['a', 'b']
    """
    check_choice("of", of, ("discrepancy", "difference"))
    data = discrepancy_forest(comparison) if of == "discrepancy" else difference_forest(comparison)
    ax = new_axes(6.4, 1.25 + 0.26 * max(len(data.bars), 3)) if ax is None else ax
    verdicts = {row["name"]: str(row["verdict"]) for row in comparison.rows()}
    _draw(ax, data, verdicts)
    measure = measure_name(comparison)
    what = f"{measure} (smaller is better)" if of == "discrepancy" else f"{measure}: difference to the best"
    ax.set_xlabel(f"{what}, {100 * data.level:g}% interval", color=INK)
    return ax


def new_axes(width: float, height: float) -> Axes:
    """Axes in a figure of their own, unknown to pyplot."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure.add_subplot(axes_class=ForestAxes)


def label_rows(ax: Axes, names: Sequence[str]) -> float:
    """Write the names at the rows 0, 1, … from the top; returns the size of the letters."""
    size = _label_size(ax, len(names))
    shown = drawable(short_names(names, LONGEST_LABEL))
    # Names are text, never TeX: a "$" in one must not be read as mathematics.
    ax.set_yticks(range(len(names)), shown, parse_math=False, usetex=False, color=INK, fontsize=size)
    ax.set_ylim(len(names) - 0.4, -0.6)
    return size


def bare(ax: Axes, kept: Sequence[str] = ("bottom",)) -> None:
    """Ticks without marks, and no frame but the sides that are kept."""
    ax.tick_params(axis="both", colors=INK, length=0, pad=6)
    for side, spine in ax.spines.items():
        spine.set_visible(side in kept)
        spine.set_color(FAINT)


def drawable(labels: Sequence[str]) -> list[str]:
    """The labels without characters that the font lacks; labels that then look alike get a number."""
    known = set[int]().union(*(_glyphs(family) for family in FontProperties().get_family()))
    shown = ["".join(c if ord(c) in known else _MISSING for c in label) for label in labels]
    twice = {label for label, count in Counter(shown).items() if count > 1}
    return [f"{label} ({k})" if label in twice else label for k, label in enumerate(shown, 1)]


def _draw(ax: Axes, data: Forest, verdicts: dict[str, str]) -> None:
    size = label_rows(ax, [bar.name for bar in data.bars])
    ax.axvline(data.line, color=FAINT, linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)
    for kind in MARKS:
        at = [k for k, bar in enumerate(data.bars) if bar.kind == kind]
        if at:
            _draw_kind(ax, data, at, kind, 0.7 * size, verdicts)
    ax.set_xlim(data.scale.low, data.scale.high)
    ax.locator_params(axis="x", nbins=6)
    ax.grid(axis="x", color=FAINT, alpha=0.25, linewidth=0.6)
    bare(ax)
    look: dict[str, Any] = {"ncols": 3, "frameon": False, "labelcolor": INK, "fontsize": "small"}
    if isinstance(ax, ForestAxes):
        ax.figure.legend(loc="outside upper left", borderaxespad=0.2, columnspacing=1.2, handletextpad=0.2, **look)
    else:
        ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), **look)


def _draw_kind(ax: Axes, data: Forest, at: Sequence[int], kind: str, size: float, verdicts: dict[str, str]) -> None:
    colour, marker, label = MARKS[kind]
    bars = [data.bars[k] for k in at]
    said = {verdicts[bar.name] for bar in bars}
    label = said.pop() if len(said) == 1 else label
    ends = [_seen(data, bar) for bar in bars]
    ax.hlines(at, [low for low, _ in ends], [high for _, high in ends], color=colour, linewidth=0.23 * size)
    bounds = [(bar.bound, k) for bar, k in zip(bars, at, strict=True) if bar.bound is not None]
    seen = [(bound, k) for bound, k in bounds if bound >= data.scale.low]
    if seen:
        look: dict[str, Any] = {"markersize": 1.5 * size, "markeredgewidth": 0.23 * size, "markerfacecolor": "none"}
        ax.plot(*zip(*seen, strict=True), linestyle="none", marker=BRACKET, color=colour, **look)
    values = [bar.value for bar in bars]
    ax.plot(values, at, linestyle="none", marker=marker, markersize=size, color=colour, label=label)


def _seen(data: Forest, bar: Bar) -> tuple[float, float]:
    return max(bar.low, data.scale.low), min(bar.high, data.scale.high)


def _label_size(ax: Axes, count: int) -> float:
    """Points: the usual size, or what fits when many rows share axes that were given."""
    row = ax.bbox.height / ax.figure.dpi * 72.0 / count
    return float(np.clip(0.8 * row, 3.0, FontProperties().get_size_in_points()))


def _glyphs(family: str) -> set[int]:
    return set(get_font(findfont(FontProperties(family=[family]))).get_charmap())
