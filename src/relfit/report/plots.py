"""Pictures for papers and notebooks, drawn by matplotlib without pyplot, so that no figure
leaks.

The forest plot, all pairs of models, the verdicts at several bandwidths, where a model and the
data differ, power curves.
"""

from __future__ import annotations

import io
import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.ticker import LogLocator, NullLocator

from relfit.report.checks import bandwidth_sensitivity, own_plan, why_not
from relfit.report.figures import difference_forest, discrepancy_forest, signs, who_beats_whom
from relfit.report.recall import recall
from relfit.report.witness import (
    CLEAR,
    Landscape,
    colour_steps,
    differing_rows,
    landscape,
    largest_difference,
)
from relfit.results.comparison import Comparison
from relfit.results.plan import Plan
from relfit.results.scale import KINDS
from relfit.results.table import short_names
from relfit.results.words import measure_of, name_of_test, verdict_names
from relfit.stats.tests import TESTS
from relfit.util.checks import check_choice
from relfit.util.errors import InputError
from relfit.util.text import plain_number

# Arguments of matplotlib.
Look = dict[str, Any]
LONGEST_LABEL = 28
# Letters of a name in a legend.
_LONGEST_ENTRY = 24
# Multiples of the bandwidth.
FACTORS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
INK = "#333333"
FAINT = "#999999"
PALE = "#E4E4E4"
# The same colours for models; beyond seven models they begin again with another line or mark.
MODEL_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
LINES = ("-", "--", ":", "-.")
# Blue for too little, orange for too much, pale to strong.
COLOURS = (
    *("#00649C", "#3D8FC4", "#7DB5DB", "#B3D4EA", "#DCEBF5"),
    *("#FBE6D6", "#F8C9A4", "#F0A267", "#E0752A", "#B94E00"),
)
MUCH = COLOURS[8]
LITTLE = COLOURS[1]
# All pairs of models: the tint of a cell, and the colour of its sign.
_CELLS = {
    "worse": ("#F9DFCB", KINDS["worse"].colour),
    "inconclusive": ("#FFFFFF", INK),
    "better": ("#CDEBE0", KINDS["best"].colour),
    "itself": (PALE, INK),
    "not tested": ("#FFFFFF", INK),
}
_TITLES = {"mass": "mass: too little / too much", "slope": "contribution to KSD²"}
_MISSING = "□"
# How a line of reference and the grid are drawn, and names that are text, never TeX: a "$" in
# one must not be read as mathematics.
_DASHED: Look = {
    "color": FAINT,
    "linewidth": 0.8,
    "linestyle": (0, (4, 3)),
    "zorder": 0,
}
_GRID: Look = {"color": FAINT, "alpha": 0.25, "linewidth": 0.6}
_TEXT: Look = {"parse_math": False, "usetex": False, "color": INK}


class NotebookAxes(Axes):
    """Axes that a notebook shows as a picture although pyplot does not know them."""

    def _repr_png_(self) -> bytes:
        out = io.BytesIO()
        self.figure.canvas.print_figure(out, format="png")
        return out.getvalue()


def forest(comparison: Comparison, ax: Axes | None = None, *, of: str = "discrepancy") -> Axes:
    """Draw the discrepancies, or with ``of="difference"`` the differences to the best, with
    their intervals.

    The bars of discrepancies are D ± z s; those of differences are
    `Comparison.verdict_intervals`, cut off where they leave the picture. They lie right of
    the dashed line exactly where a model is worse.

    Without `ax` a new figure is made that pyplot does not know: a notebook shows it, a
    script saves it with ``result.plot().figure.savefig("plot.png")``. Give ``ax=plt.gca()``
    to draw into pyplot's figure.

    >>> from relfit import JointEstimate, decide
    >>> ax = forest(
    ...     decide(
    ...         JointEstimate(("a", "b"), [0.1, 0.9], [[0.01, 0.0], [0.0, 0.01]]), test="relpsi"
    ...     )
    ... )
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['a', 'b']
    """
    check_choice("of", of, ("discrepancy", "difference"))
    differences = of == "difference"
    data = difference_forest(comparison) if differences else discrepancy_forest(comparison)
    ax = ax or _new_axes(6.4, 1.25 + 0.26 * max(len(data.bars), 3))
    verdicts = {row["name"]: str(row["verdict"]) for row in comparison.rows()}
    size = 0.7 * _label_rows(ax, [bar.name for bar in data.bars])
    ax.axvline(data.line, **_DASHED)
    for kind, verdict in KINDS.items():
        rows = [k for k, bar in enumerate(data.bars) if bar.kind == kind]
        if not rows:
            continue
        bars = [data.bars[k] for k in rows]
        colour = verdict.colour
        lows = [max(bar.low, data.scale.low) for bar in bars]
        highs = [min(bar.high, data.scale.high) for bar in bars]
        ax.hlines(rows, lows, highs, color=colour, linewidth=0.23 * size)
        edge: Look = {"markeredgewidth": 0.2 * size} if verdict.hollow else {}
        label = verdicts[bars[0].name]
        values = [bar.value for bar in bars]
        ax.plot(values, rows, **_mark(kind, colour, size), label=label, **edge)
    ax.set_xlim(data.scale.low, data.scale.high)
    ax.locator_params(axis="x", nbins=6)
    ax.grid(axis="x", **_GRID)
    look: Look = {
        "ncols": 3,
        "frameon": False,
        "labelcolor": INK,
        "fontsize": "small",
    }
    if isinstance(ax, NotebookAxes):
        look |= {"borderaxespad": 0.2, "columnspacing": 1.2, "handletextpad": 0.2}
        ax.figure.legend(loc="outside upper left", **look)
    else:
        ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), **look)
    measure = measure_of(comparison)
    level = f"{100 * data.level:g}%"
    what = f"{measure.name} ({measure.better}), {level} interval"
    if differences:
        what = f"{measure.name}: difference to the best, each end a {level} bound"
    return _finished(ax, what)


def _new_axes(width: float, height: float) -> Axes:
    """Axes in a figure of their own, unknown to pyplot."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure.add_subplot(axes_class=NotebookAxes)


def _label_rows(ax: Axes, names: Sequence[str]) -> float:
    """Write the names at the rows 0, 1, … from the top; returns the size of the letters."""
    # In points: the usual size, or what fits when many rows share axes that were given.
    row = ax.bbox.height / ax.figure.dpi * 72.0 / len(names)
    size = float(np.clip(0.8 * row, 3.0, FontProperties().get_size_in_points()))
    ax.set_yticks(range(len(names)), _labels(names, LONGEST_LABEL), fontsize=size, **_TEXT)
    ax.set_ylim(len(names) - 0.4, -0.6)
    return size


def _finished(ax: Axes, across: str, up: str = "", sides: Sequence[str] = ("bottom",)) -> Axes:
    """The axes with their labels, without marks at the ticks, and with these sides of the
    frame only.
    """
    ax.set_xlabel(across, color=INK)
    ax.set_ylabel(up, color=INK)
    ax.tick_params(axis="both", colors=INK, length=0, pad=6)
    for side, spine in ax.spines.items():
        spine.set_visible(side in sides)
        spine.set_color(FAINT)
    return ax


def _labels(names: Sequence[str], longest: int = _LONGEST_ENTRY) -> list[str]:
    """Short names without characters that the font lacks; those that then look alike get a
    number.
    """
    fonts = [
        get_font(findfont(FontProperties(family=[family])))
        for family in FontProperties().get_family()
    ]
    known = set[int]().union(*(font.get_charmap() for font in fonts))
    labels = short_names(names, longest)
    shown = ["".join(c if ord(c) in known else _MISSING for c in label) for label in labels]
    count = Counter(shown)
    return [f"{label} ({k})" if count[label] > 1 else label for k, label in enumerate(shown, 1)]


def _mark(kind: str, colour: str, size: float) -> Look:
    """How the mark of a verdict is drawn."""
    return {
        "linestyle": "none",
        "marker": KINDS[kind].shape,
        "markersize": size,
        "color": colour,
        "markerfacecolor": "white" if KINDS[kind].hollow else colour,
    }


def pairs_plot(comparison: Comparison, ax: Axes | None = None) -> Axes:
    """A grid, one row and one column a model: ▲ where the row is better than the column, ▼
    worse (`Comparison.verdict_pairs`).

    >>> from relfit import JointEstimate, decide
    >>> ax = pairs_plot(
    ...     decide(
    ...         JointEstimate(("a", "b"), [0.1, 0.9], [[0.01, 0.0], [0.0, 0.01]]), test="relpsi"
    ...     )
    ... )
    >>> [text.get_text() for text in ax.texts]
    ['▲', '▼']
    """
    cells = who_beats_whom(comparison)
    marks = signs(comparison)
    count = len(comparison.names)
    side = max(0.24, min(0.42, 9.0 / count))
    ax = ax or _new_axes(2.2 + side * count, 0.9 + side * count)
    places = list(_CELLS)
    ax.imshow(
        [[places.index(cell) for cell in row] for row in cells],
        cmap=ListedColormap([tint for tint, _ in _CELLS.values()]),
        norm=BoundaryNorm(np.arange(len(_CELLS) + 1) - 0.5, len(_CELLS)),
        aspect="equal",
    )
    size = _label_rows(
        ax, [f"{row['name']}  {k}" for k, row in enumerate(comparison.rows(), 1)]
    )
    ax.set_ylim(count - 0.5, -0.5)
    ax.xaxis.tick_top()
    ax.set_xticks(range(count), [str(k) for k in range(1, count + 1)], color=INK, fontsize=size)
    for i, j in itertools.permutations(range(count), 2):
        cell = cells[i][j]
        look: Look = {"color": _CELLS[cell][1], "fontsize": size}
        ax.text(j, i, marks.get(cell, ""), ha="center", va="center", **look)
    ax.set_xticks(np.arange(count + 1) - 0.5, minor=True)
    ax.set_yticks(np.arange(count + 1) - 0.5, minor=True)
    ax.grid(which="minor", color="#CCCCCC", linewidth=0.6)
    ax.tick_params(which="minor", length=0)
    worse = comparison.wording.worse.shown.format(**comparison.facts())
    said = (
        f"{marks['worse']} row {worse} than column\n{marks['better']} the reverse"
        f"    {marks['inconclusive']} inconclusive"
    )
    ax.xaxis.label.set_fontsize("small")
    return _finished(ax, said, sides=())


def bandwidths_plot(comparison: Comparison, data: Any, ax: Axes | None = None) -> Axes:
    """Every model's difference to the best in standard errors, against the bandwidth; marks
    say the verdicts.

    The best of a bandwidth lies at 0. The vertical line is the bandwidth that was used.

    >>> import numpy as np, relfit
    >>> rng = np.random.default_rng(0)
    >>> x, models = (
    ...     rng.normal(size=(60, 2)),
    ...     {"a": rng.normal(size=(60, 2)), "b": rng.normal(1, 1, (60, 2))},
    ... )
    >>> ax = bandwidths_plot(relfit.compare(x, models, rng=0), (x, models))
    >>> ax.get_xlabel()
    'bandwidth'
    """
    recalled = recall(comparison, data)
    sensitivity = bandwidth_sensitivity(comparison, recalled, FACTORS)
    if sensitivity is None:
        raise InputError(
            f"bandwidths: cannot be varied for this result: {why_not(comparison, recalled)}"
        )
    ax = ax or _new_axes(6.8, 3.8)
    names = [row["name"] for row in comparison.rows()]
    places = _model_places(names)
    lengths = sensitivity.lengths
    entries = []
    used = set[str]()
    for name, label in zip(names, _labels(names), strict=True):
        again, k = divmod(places[name], len(MODEL_COLOURS))
        colour = MODEL_COLOURS[k]
        heights = sensitivity.ratios(name)
        line: Look = {"linestyle": LINES[again % len(LINES)], "linewidth": 1.3, "label": label}
        entries += ax.plot(lengths, heights, color=colour, **line)
        kinds = sensitivity.kinds(name)
        used |= set(kinds)
        for length, height, kind in zip(lengths, heights, kinds, strict=True):
            ax.plot(length, height, **_mark(kind, colour, 6.5))
    ax.axvline(recalled.kernel.length, **_DASHED)
    ax.set_xscale("log", base=2)
    ax.set_xticks(lengths, list(map(plain_number, lengths)))
    ax.set_yscale("symlog", linthresh=3.0)
    ax.yaxis.set_major_formatter(lambda value, _position: f"{value:g}")
    ax.set_yticks([0, 1, 2, 3, 10, 30, 100], minor=False)
    ax.set_ylim(bottom=min(-0.3, ax.get_ylim()[0]))
    ax.grid(**_GRID)
    for kind, label in verdict_names(comparison).items():
        if kind in used:
            entries += ax.plot([], [], **_mark(kind, INK, 6.0), label=label)
    _legend_beside(ax, handles=entries)
    return _finished(ax, "bandwidth", "difference to the best, in s.e.", ("bottom", "left"))


def _model_places(names: Sequence[str]) -> dict[str, int]:
    """The place of each model among the names, in the order of the alphabet: its colour in
    every figure.
    """
    return {name: k for k, name in enumerate(sorted(names))}


def _legend_beside(ax: Axes, **options: Any) -> None:
    """A legend right of the axes, its names as text, never TeX."""
    beside: Look = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
    legend = ax.legend(fontsize="x-small", frameon=False, **beside, **options)
    for text in legend.get_texts():
        text.set_parse_math(False)
        text.set_color(INK)


def witness_plot(
    comparison: Comparison, data: Any, name: str | None = None, ax: Axes | None = None
) -> Axes:
    """The witness function of one model (MMD) or its rows' contributions (KSD), over one or
    two axes.

    `data` is the pair (reference, models) of the result. The model is by default the one
    with the largest discrepancy.

    >>> import relfit
    >>> rng = np.random.default_rng(0)
    >>> x, models = (
    ...     rng.normal(size=(60, 2)),
    ...     {"a": rng.normal(size=(60, 2)), "b": rng.normal(1, 1, (60, 2))},
    ... )
    >>> witness_plot(relfit.compare(x, models, rng=0), (x, models)).get_title()
    'b'
    """
    chosen = comparison.names[int(np.argmax(comparison.discrepancy))] if name is None else name
    recalled = recall(comparison, data)
    drawn = landscape(recalled, differing_rows(comparison, recalled, chosen))
    if len(drawn.grid) == 1:
        ax = ax or _new_axes(6.0, 3.0)
        up = _curve(ax, drawn)
    else:
        ax = ax or _new_axes(5.4, 4.2)
        up = _plane(ax, drawn)
    ax.set_title(_labels([chosen], LONGEST_LABEL)[0], **_TEXT)
    return _finished(ax, drawn.view.labels[0], up, ("bottom", "left", "top", "right"))


def _plane(ax: Axes, drawn: Landscape) -> str:
    """Draw the difference over two axes; returns the label of the second."""
    largest = largest_difference([drawn])
    steps = colour_steps(largest or 1.0)
    levels = [*(-step for step in steps[:0:-1]), *steps]
    # What leaves the scale by rounding gets the outermost colour.
    levels[0] *= 1.001
    levels[-1] *= 1.001
    shown = np.clip(drawn.values, levels[0], levels[-1])
    colours: Look = {
        "cmap": ListedColormap(COLOURS),
        "norm": BoundaryNorm(levels, len(COLOURS)),
    }
    bands = ax.contourf(*drawn.grid, shown, levels=levels, **colours)
    noise = np.abs(drawn.values) / np.maximum(drawn.errors, 1e-300)
    ax.contourf(*drawn.grid, noise, levels=[-1.0, CLEAR], colors=["white"])
    dots: Look = {"linestyle": "none", "marker": ".", "markersize": 2.5}
    ax.plot(*drawn.points.T, color=INK, alpha=0.45, **dots)
    ax.set(xlim=drawn.grid[0][[0, -1]], ylim=drawn.grid[1][[0, -1]])
    if largest > 0.0:
        bar = ax.figure.colorbar(bands, ax=ax, ticks=[-largest, 0.0, largest], format="%.2g")
        bar.set_label(_TITLES[drawn.kind], color=INK)
        bar.ax.tick_params(colors=INK, length=0)
        bar.outline.set_visible(False)
    return drawn.view.labels[1]


def _curve(ax: Axes, drawn: Landscape) -> str:
    """Draw the difference over one axis; returns what the heights are."""
    (grid,) = drawn.grid
    noise = CLEAR * drawn.errors
    mass = drawn.kind == "mass"
    much, little = ("too much", "too little") if mass else ("raises KSD²", "lowers KSD²")
    shown = np.where(drawn.clear, drawn.values, 0.0)
    ax.fill_between(grid, -noise, noise, color=PALE, label=f"±{CLEAR:g} s.e.")
    ax.fill_between(grid, 0.0, np.maximum(shown, 0.0), color=MUCH, label=much)
    ax.fill_between(grid, 0.0, np.minimum(shown, 0.0), color=LITTLE, label=little)
    ax.plot(grid, drawn.values, color=INK, linewidth=1.0)
    ax.axhline(0.0, color=FAINT, linewidth=0.8)
    ax.set_xlim(grid[0], grid[-1])
    ax.legend(frameon=False, fontsize="small", labelcolor=INK)
    return "model minus data" if mass else _TITLES["slope"]


def power_curves(plan: Plan, ax: Axes | None = None) -> Axes:
    """Draw power against rows (log scale), a colour per model and a line style per test.

    Without `ax` a new figure is made that pyplot does not know, as `Comparison.plot` does.
    """
    ax = ax or _new_axes(7.2, 4.0)
    ax.axhline(plan.target_power, **_DASHED)
    if plan.sizes[0] <= plan.n <= plan.sizes[-1]:
        ax.axvline(plan.n, **_DASHED)
    several = len(plan.tests) > 1
    places = _model_places(plan.names)
    others = [name for name in plan.names if name != plan.best]
    for b, (name, label) in enumerate(zip(others, _labels(others), strict=True)):
        again, k = divmod(places[name], len(MODEL_COLOURS))
        for a, test in enumerate(plan.tests):
            ax.plot(
                plan.sizes,
                plan.curves[a, b],
                marker="." if again else None,
                color=MODEL_COLOURS[k],
                label=f"{label}, {name_of_test(test)}" if several else label,
                linestyle=TESTS[test].words.line if several else "-",
                linewidth=1.3,
            )
    ax.set(xscale="log", ylim=(0.0, 1.02))
    ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(lambda value, _position: f"{value:,.0f}")
    ax.grid(**_GRID)
    title = None if several else name_of_test(plan.tests[0])
    _legend_beside(ax, title=title, title_fontsize="x-small")
    return _finished(ax, "rows", "probability of being declared worse", ("bottom", "left"))


def power_plot(
    comparison: Comparison, ax: Axes | None = None, *, power: float = 0.8, trials: int = 200
) -> Axes:
    """The power curves of this comparison's own test, as `Comparison.plot_power` says."""
    return power_curves(own_plan(comparison, comparison.names, power=power, trials=trials), ax)


def picture(plan: Plan, form: str) -> bytes:
    """The power curves as a file's contents, "png", "svg" or "pdf"."""
    out = io.BytesIO()
    # The date would make the file differ each time.
    metadata = None if form == "png" else {"CreationDate" if form == "pdf" else "Date": None}
    power_curves(plan).figure.canvas.print_figure(out, format=form, metadata=metadata)
    return out.getvalue()
