"""Where one model and the data differ, as a picture."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, ListedColormap

from relfit.evidence import Landscape, differing_rows, landscape, recall
from relfit.evidence.landscape import CLEAR
from relfit.report.plot import FAINT, INK, bare, drawable, new_axes
from relfit.report.svg import colour_steps, largest_difference
from relfit.report.table import short_names
from relfit.result import Comparison

MUCH, LITTLE = "#E0752A", "#3D8FC4"
# Blue for too little, orange for too much, pale to strong: the colour-blind can tell them apart.
COLOURS = (
    *("#00649C", "#3D8FC4", "#7DB5DB", "#B3D4EA", "#DCEBF5"),
    *("#FBE6D6", "#F8C9A4", "#F0A267", "#E0752A", "#B94E00"),
)
_TITLES = {"mass": "mass: too little / too much", "slope": "share in KSD²: takes away / adds"}


def witness_plot(comparison: Comparison, data: Any, name: str | None = None, ax: Axes | None = None) -> Axes:
    """The witness function of one model (MMD) or its rows' contributions (KSD), over one or two axes.

    Args:
        comparison: the result.
        data: the pair (reference, models) it was made from.
        name: the model; the one with the largest discrepancy where not given.
        ax: the Axes to draw into.

    >>> import relfit
    >>> rng = np.random.default_rng(0)
    >>> x, models = rng.normal(size=(60, 2)), {"a": rng.normal(size=(60, 2)), "b": rng.normal(1, 1, (60, 2))}
    >>> witness_plot(relfit.compare(x, models, rng=0), (x, models)).get_title()
    'b'
    """
    chosen = comparison.names[int(np.argmax(comparison.discrepancy))] if name is None else name
    recalled = recall(comparison, data)
    drawn = landscape(recalled, differing_rows(comparison, recalled, chosen))
    flat = len(drawn.grid) == 1
    ax = new_axes(*((6.0, 3.0) if flat else (5.4, 4.2))) if ax is None else ax
    (_curve if flat else _plane)(ax, drawn)
    ax.set_xlabel(drawn.labels[0], color=INK)
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
    bands = ax.contourf(*drawn.grid, shown, levels=levels, cmap=ListedColormap(COLOURS), norm=norm)
    noise = np.abs(drawn.values) / np.maximum(drawn.errors, 1e-300)
    ax.contourf(*drawn.grid, noise, levels=[-1.0, CLEAR], colors=["white"])
    ax.plot(*drawn.points.T, linestyle="none", marker=".", markersize=2.5, color=INK, alpha=0.45)
    ax.set_xlim(drawn.grid[0][0], drawn.grid[0][-1])
    ax.set_ylim(drawn.grid[1][0], drawn.grid[1][-1])
    ax.set_ylabel(drawn.labels[1], color=INK)
    if largest > 0.0:
        bar = ax.figure.colorbar(bands, ax=ax, ticks=[-largest, 0.0, largest], format="%.2g")
        bar.set_label(_TITLES[drawn.kind], color=INK)
        bar.ax.tick_params(colors=INK, length=0)
        bar.outline.set_visible(False)


def _curve(ax: Axes, drawn: Landscape) -> None:
    (grid,), values = drawn.grid, drawn.values
    ax.fill_between(grid, -CLEAR * drawn.errors, CLEAR * drawn.errors, color="#E4E4E4", label=f"±{CLEAR:g} s.e.")
    much, little = ("too much", "too little") if drawn.kind == "mass" else ("adds", "takes away")
    shown = np.where(drawn.clear, values, 0.0)
    ax.fill_between(grid, 0.0, np.maximum(shown, 0.0), color=MUCH, label=much)
    ax.fill_between(grid, 0.0, np.minimum(shown, 0.0), color=LITTLE, label=little)
    ax.plot(grid, values, color=INK, linewidth=1.0)
    ax.axhline(0.0, color=FAINT, linewidth=0.8)
    ax.set_xlim(grid[0], grid[-1])
    ax.set_ylabel("model less data" if drawn.kind == "mass" else "share in KSD²", color=INK)
    ax.legend(frameon=False, fontsize="small", labelcolor=INK)
