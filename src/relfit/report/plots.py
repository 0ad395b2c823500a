"""Pictures for papers and notebooks, drawn by matplotlib without pyplot, so that no figure
leaks.

The forest plot, who beats whom, the verdicts at several bandwidths, where a model and the
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
from relfit.report.figures import Forest, difference_forest, discrepancy_forest, who_beats_whom
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
from relfit.results.table import short_names
from relfit.results.words import measure_of, name_of_test
from relfit.stats.tests import TESTS
from relfit.util.checks import check_choice
from relfit.util.errors import InputError
from relfit.util.text import plain_number

LONGEST_LABEL = 28
# Multiples of the bandwidth.
FACTORS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
INK = "#333333"
FAINT = "#999999"
PALE = "#E4E4E4"
# Okabe and Ito's colours, which the colour-blind can tell apart; the shape says it too.
MARKS = {
    "best": ("#009E73", "D", "best of the sample"),
    "same": ("#009E73", "d", "the same as the best"),
    "equal": ("#009E73", "s", "equivalent"),
    "open": ("#0072B2", "o", "no evidence that it is worse"),
    "alone": ("#B87A00", "v", "worse, taken alone"),
    "worse": ("#D55E00", "v", "clearly worse"),
}
# Drawn as an outline: what was not shown for all models at once.
_HOLLOW = ("open", "alone")
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
# Who beats whom: a number, a tint and a sign for each kind of cell.
_CELLS = {
    "clearly worse": (0, "#F9DFCB", "▼", MARKS["worse"][0]),
    "worse": (1, "#FBF1E2", "▽", MARKS["alone"][0]),
    "no evidence": (2, "#FFFFFF", "·", INK),
    "better": (3, "#EAF6F1", "△", MARKS["best"][0]),
    "clearly better": (4, "#CDEBE0", "▲", MARKS["best"][0]),
    "itself": (5, PALE, "", INK),
    "not tested": (6, "#FFFFFF", "", INK),
}
_TITLES = {"mass": "mass: too little / too much", "slope": "contribution to KSD²"}
_MISSING = "□"


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
    `Comparison.graded_intervals`, cut off where they leave the picture. They lie right of
    the dashed line exactly where a model is worse or clearly worse.

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
    data = (
        discrepancy_forest(comparison) if of == "discrepancy" else difference_forest(comparison)
    )
    ax = new_axes(6.4, 1.25 + 0.26 * max(len(data.bars), 3)) if ax is None else ax
    verdicts = {row["name"]: str(row["verdict"]) for row in comparison.rows()}
    size = label_rows(ax, [bar.name for bar in data.bars])
    ax.axvline(data.line, color=FAINT, linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)
    for kind in MARKS:
        _draw_kind(ax, data, kind, 0.7 * size, verdicts)
    ax.set_xlim(data.scale.low, data.scale.high)
    ax.locator_params(axis="x", nbins=6)
    ax.grid(axis="x", color=FAINT, alpha=0.25, linewidth=0.6)
    bare(ax)
    look: dict[str, Any] = {
        "ncols": 3,
        "frameon": False,
        "labelcolor": INK,
        "fontsize": "small",
    }
    if isinstance(ax, NotebookAxes):
        ax.figure.legend(
            loc="outside upper left",
            borderaxespad=0.2,
            columnspacing=1.2,
            handletextpad=0.2,
            **look,
        )
    else:
        ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), **look)
    measure = measure_of(comparison).name
    better = measure_of(comparison).better
    level = f"{100 * data.level:g}%"
    what = f"{measure} ({better}), {level} interval"
    if of == "difference":
        what = f"{measure}: difference to the best, each end a {level} bound"
    ax.set_xlabel(what, color=INK)
    return ax


def new_axes(width: float, height: float) -> Axes:
    """Axes in a figure of their own, unknown to pyplot."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure.add_subplot(axes_class=NotebookAxes)


def label_rows(ax: Axes, names: Sequence[str]) -> float:
    """Write the names at the rows 0, 1, … from the top; returns the size of the letters."""
    # In points: the usual size, or what fits when many rows share axes that were given.
    row = ax.bbox.height / ax.figure.dpi * 72.0 / len(names)
    size = float(np.clip(0.8 * row, 3.0, FontProperties().get_size_in_points()))
    shown = drawable(short_names(names, LONGEST_LABEL))
    # Names are text, never TeX: a "$" in one must not be read as mathematics.
    ax.set_yticks(
        range(len(names)), shown, parse_math=False, usetex=False, color=INK, fontsize=size
    )
    ax.set_ylim(len(names) - 0.4, -0.6)
    return size


def bare(ax: Axes, kept: Sequence[str] = ("bottom",)) -> None:
    """Ticks without marks, and no frame but the sides that are kept."""
    ax.tick_params(axis="both", colors=INK, length=0, pad=6)
    for side, spine in ax.spines.items():
        spine.set_visible(side in kept)
        spine.set_color(FAINT)


def drawable(labels: Sequence[str]) -> list[str]:
    """The labels without characters that the font lacks; labels that then look alike get a
    number.
    """
    fonts = [
        get_font(findfont(FontProperties(family=[family])))
        for family in FontProperties().get_family()
    ]
    known = set[int]().union(*(font.get_charmap() for font in fonts))
    shown = ["".join(c if ord(c) in known else _MISSING for c in label) for label in labels]
    twice = {label for label, count in Counter(shown).items() if count > 1}
    return [f"{label} ({k})" if label in twice else label for k, label in enumerate(shown, 1)]


def _draw_kind(
    ax: Axes, data: Forest, kind: str, size: float, verdicts: dict[str, str]
) -> None:
    at = [k for k, bar in enumerate(data.bars) if bar.kind == kind]
    if not at:
        return
    colour, marker, label = MARKS[kind]
    bars = [data.bars[k] for k in at]
    labels = {verdicts[bar.name] for bar in bars}
    label = labels.pop() if len(labels) == 1 else label
    lows = [max(bar.low, data.scale.low) for bar in bars]
    highs = [min(bar.high, data.scale.high) for bar in bars]
    ax.hlines(at, lows, highs, color=colour, linewidth=0.23 * size)
    values = [bar.value for bar in bars]
    look: dict[str, Any] = (
        {"markerfacecolor": "white", "markeredgewidth": 0.2 * size} if kind in _HOLLOW else {}
    )
    ax.plot(
        values,
        at,
        linestyle="none",
        marker=marker,
        markersize=size,
        color=colour,
        label=label,
        **look,
    )


def pairs_plot(comparison: Comparison, ax: Axes | None = None) -> Axes:
    """A grid, one row and one column a model: ▲ where the row is clearly better than the
    column, ▼ clearly worse.

    △ and ▽ are for verdicts on a model taken alone, as in its grade
    (`Comparison.graded_pairs`).

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
    count = len(comparison.names)
    side = max(0.24, min(0.42, 9.0 / count))
    ax = new_axes(2.2 + side * count, 0.9 + side * count) if ax is None else ax
    codes = np.array([[_CELLS[cell][0] for cell in row] for row in cells])
    tints = ListedColormap([tint for _, tint, _, _ in _CELLS.values()])
    ax.imshow(
        codes,
        cmap=tints,
        norm=BoundaryNorm(np.arange(len(_CELLS) + 1) - 0.5, len(_CELLS)),
        aspect="equal",
    )
    size = label_rows(
        ax,
        [
            f"{name}  {k}"
            for k, name in enumerate((row["name"] for row in comparison.rows()), 1)
        ],
    )
    ax.set_ylim(count - 0.5, -0.5)
    ax.xaxis.tick_top()
    ax.set_xticks(range(count), [str(k) for k in range(1, count + 1)], color=INK, fontsize=size)
    for i, j in itertools.permutations(range(count), 2):
        *_, sign, colour = _CELLS[cells[i][j]]
        ax.text(j, i, sign, ha="center", va="center", color=colour, fontsize=size)
    ax.set_xticks(np.arange(count + 1) - 0.5, minor=True)
    ax.set_yticks(np.arange(count + 1) - 0.5, minor=True)
    ax.grid(which="minor", color="#CCCCCC", linewidth=0.6)
    ax.tick_params(which="minor", length=0)
    bare(ax, kept=())
    said = (
        f"▲ row clearly better than column, ▼ clearly worse\n△ ▽ the same, taken alone "
        f"(level {comparison.alpha:g})"
    )
    ax.set_xlabel(said, color=INK, fontsize="small")
    return ax


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
    ax = new_axes(6.8, 3.8) if ax is None else ax
    names = [row["name"] for row in comparison.rows()]
    lines = []
    places = model_places(names)
    for name, label in zip(names, drawable(short_names(names, 24)), strict=True):
        k = places[name]
        colour = MODEL_COLOURS[k % len(MODEL_COLOURS)]
        line = LINES[k // len(MODEL_COLOURS) % len(LINES)]
        lengths = sensitivity.lengths
        heights = sensitivity.ratios(name)
        lines += ax.plot(
            lengths, heights, linewidth=1.3, label=label, color=colour, linestyle=line
        )
        for length, height, kind in zip(lengths, heights, sensitivity.kinds(name), strict=True):
            look: dict[str, Any] = {"markerfacecolor": "white"} if kind in _HOLLOW else {}
            ax.plot(
                length,
                height,
                marker=MARKS[kind][1],
                markersize=6.5,
                color=colour,
                linestyle="none",
                **look,
            )
    ax.axvline(
        recalled.kernel.length, color=FAINT, linewidth=0.8, linestyle=(0, (4, 3)), zorder=0
    )
    ax.set_xscale("log", base=2)
    ax.set_xticks(sensitivity.lengths, list(map(plain_number, sensitivity.lengths)))
    ax.set_yscale("symlog", linthresh=3.0)
    ax.yaxis.set_major_formatter(lambda value, _position: f"{value:g}")
    ax.set_yticks([0, 1, 2, 3, 10, 30, 100], minor=False)
    ax.set_ylim(bottom=min(-0.3, ax.get_ylim()[0]))
    ax.set_xlabel("bandwidth", color=INK)
    ax.set_ylabel("difference to the best, in s.e.", color=INK)
    ax.grid(color=FAINT, alpha=0.25, linewidth=0.6)
    bare(ax, kept=("bottom", "left"))
    used = {kind for name in names for kind in sensitivity.kinds(name)}
    handles = [
        ax.plot(
            [],
            [],
            ls="none",
            marker=mark,
            color=INK,
            mfc="white" if kind in _HOLLOW else INK,
            label=label,
        )[0]
        for kind, (_, mark, label) in MARKS.items()
        if kind in used
    ]
    _legend_beside(ax, handles=[*lines, *handles])
    return ax


def model_places(names: Sequence[str]) -> dict[str, int]:
    """The place of each model among the names, in the order of the alphabet: its colour in
    every figure.
    """
    return {name: k for k, name in enumerate(sorted(names))}


def _legend_beside(ax: Axes, **options: Any) -> None:
    """A legend right of the axes, its names as text, never TeX."""
    legend = ax.legend(
        fontsize="x-small",
        frameon=False,
        loc="center left",
        bbox_to_anchor=(1.0, 0.5),
        **options,
    )
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
    flat = len(drawn.grid) == 1
    ax = new_axes(*((6.0, 3.0) if flat else (5.4, 4.2))) if ax is None else ax
    (_curve if flat else _plane)(ax, drawn)
    ax.set_xlabel(drawn.view.labels[0], color=INK)
    ax.set_title(drawable(short_names([chosen]))[0], color=INK, parse_math=False, usetex=False)
    bare(ax, kept=("bottom", "left", "top", "right"))
    return ax


def _plane(ax: Axes, drawn: Landscape) -> None:
    largest = largest_difference([drawn])
    steps = colour_steps(largest or 1.0)
    levels = [*(-step for step in steps[:0:-1]), *steps]
    # What leaves the scale by rounding gets the outermost colour.
    levels[0], levels[-1] = 1.001 * levels[0], 1.001 * levels[-1]
    norm = BoundaryNorm(levels, len(COLOURS))
    shown = np.clip(drawn.values, levels[0], levels[-1])
    bands = ax.contourf(
        *drawn.grid, shown, levels=levels, cmap=ListedColormap(COLOURS), norm=norm
    )
    noise = np.abs(drawn.values) / np.maximum(drawn.errors, 1e-300)
    ax.contourf(*drawn.grid, noise, levels=[-1.0, CLEAR], colors=["white"])
    ax.plot(
        *drawn.points.T, linestyle="none", marker=".", markersize=2.5, color=INK, alpha=0.45
    )
    ax.set(xlim=drawn.grid[0][[0, -1]], ylim=drawn.grid[1][[0, -1]])
    ax.set_ylabel(drawn.view.labels[1], color=INK)
    if largest > 0.0:
        bar = ax.figure.colorbar(bands, ax=ax, ticks=[-largest, 0.0, largest], format="%.2g")
        bar.set_label(_TITLES[drawn.kind], color=INK)
        bar.ax.tick_params(colors=INK, length=0)
        bar.outline.set_visible(False)


def _curve(ax: Axes, drawn: Landscape) -> None:
    (grid,) = drawn.grid
    values = drawn.values
    ax.fill_between(
        grid, -CLEAR * drawn.errors, CLEAR * drawn.errors, color=PALE, label=f"±{CLEAR:g} s.e."
    )
    much, little = (
        ("too much", "too little") if drawn.kind == "mass" else ("raises KSD²", "lowers KSD²")
    )
    shown = np.where(drawn.clear, values, 0.0)
    ax.fill_between(grid, 0.0, np.maximum(shown, 0.0), color=MUCH, label=much)
    ax.fill_between(grid, 0.0, np.minimum(shown, 0.0), color=LITTLE, label=little)
    ax.plot(grid, values, color=INK, linewidth=1.0)
    ax.axhline(0.0, color=FAINT, linewidth=0.8)
    ax.set_xlim(grid[0], grid[-1])
    ax.set_ylabel("model minus data" if drawn.kind == "mass" else _TITLES["slope"], color=INK)
    ax.legend(frameon=False, fontsize="small", labelcolor=INK)


def power_curves(plan: Plan, ax: Axes | None = None) -> Axes:
    """Draw power against rows (log scale), a colour per model and a line style per test.

    Without `ax` a new figure is made that pyplot does not know, as `Comparison.plot` does.
    """
    ax = new_axes(7.2, 4.0) if ax is None else ax
    shown = drawable(short_names([name for name in plan.names if name != plan.best], 24))
    dashed: dict[str, Any] = {
        "color": FAINT,
        "linewidth": 0.8,
        "linestyle": (0, (4, 3)),
        "zorder": 0,
    }
    ax.axhline(plan.target_power, **dashed)
    if plan.sizes[0] <= plan.n <= plan.sizes[-1]:
        ax.axvline(plan.n, **dashed)
    several = len(plan.tests) > 1
    places = model_places(plan.names)
    others = [name for name in plan.names if name != plan.best]
    for b, (name, label) in enumerate(zip(others, shown, strict=True)):
        k = places[name]
        colour = MODEL_COLOURS[k % len(MODEL_COLOURS)]
        marker = "." if k >= len(MODEL_COLOURS) else None
        for a, test in enumerate(plan.tests):
            look: dict[str, Any] = {
                "linestyle": TESTS[test].words.line if several else "-",
                "linewidth": 1.3,
            }
            described = f"{label}, {name_of_test(test)}" if several else label
            ax.plot(
                plan.sizes,
                plan.curves[a, b],
                marker=marker,
                color=colour,
                label=described,
                **look,
            )
    ax.set(xscale="log", ylim=(0.0, 1.02))
    ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(lambda value, _position: f"{value:,.0f}")
    ax.grid(color=FAINT, alpha=0.25, linewidth=0.6)
    ax.set_xlabel("rows", color=INK)
    ax.set_ylabel("probability of being declared worse", color=INK)
    bare(ax, kept=("bottom", "left"))
    _legend_beside(
        ax, title=None if several else name_of_test(plan.tests[0]), title_fontsize="x-small"
    )
    return ax


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
