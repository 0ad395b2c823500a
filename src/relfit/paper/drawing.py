"""The figures: curves with error bands, points with error bars, grouped bars. No pyplot, so
nothing leaks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from relfit.paper.experiment import ALPHA, Point, Rate
from relfit.util.arrays import Array

REACH = 1.96
INK = "#333333"
FAINT = "#999999"
# Okabe and Ito's colours, which the colour-blind can tell apart; line and marker differ too.
ORANGE = "#E69F00"
SKY = "#56B4E9"
GREEN = "#009E73"
BLUE = "#0072B2"
RED = "#D55E00"
PINK = "#CC79A7"
BAR_COLOURS = {
    "RelPSI": ORANGE,
    "RelMulti": BLUE,
    "best set": GREEN,
    "carving": SKY,
    "FID": "#BBBBBB",
}
BAR_WIDTH = 0.2


class Look(NamedTuple):
    """How a curve is drawn."""

    colour: str
    marker: str
    line: str = "-"


LOOKS = {
    "RelPSI-MMD": Look(ORANGE, "o"),
    "RelPSI-MMD linear": Look(ORANGE, "v", "--"),
    "RelPSI-MMD multi-scale": Look(GREEN, "D"),
    "RelPSI-MMD published bandwidth": Look(PINK, "P", ":"),
    "RelMMD": Look(RED, "s", "-."),
    "RelMulti 50%-MMD": Look(RED, "s", "--"),
    "RelMulti 25%-MMD": Look(RED, "^", ":"),
    "RelPSI-KSD": Look(BLUE, "o"),
    "RelPSI-KSD linear": Look(BLUE, "v", "--"),
    "RelKSD": Look(SKY, "s", "-."),
    "RelMulti 50%-KSD": Look(SKY, "s", "--"),
    "RelMulti 25%-KSD": Look(SKY, "^", ":"),
}


def new_figure(panels: int, height: float = 4.2) -> tuple[Figure, list[Axes]]:
    """A figure with its panels side by side, 7 inches wide for one and wider for more."""
    figure = Figure(figsize=(3.2 + 3.8 * panels, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, list(figure.subplots(1, panels, squeeze=False)[0])


def draw_curve(ax: Axes, label: str, look: Look, points: Sequence[Point]) -> None:
    """A curve through the points with a band of ±1.96 standard errors, inside [0, 1]."""
    x, y, error = _columns(points)
    ax.plot(
        x,
        y,
        look.line,
        color=look.colour,
        marker=look.marker,
        markersize=5,
        linewidth=1.4,
        label=label,
    )
    low = np.clip(y - REACH * error, 0.0, 1.0)
    high = np.clip(y + REACH * error, 0.0, 1.0)
    ax.fill_between(x, low, high, color=look.colour, alpha=0.15, linewidth=0)


def draw_points(ax: Axes, label: str, look: Look, points: Sequence[Point]) -> None:
    """The points with bars of ±1.96 standard errors, beside a curve from theory."""
    x, y, error = _columns(points)
    ax.errorbar(
        x,
        y,
        REACH * error,
        fmt=look.marker,
        markersize=5,
        color=look.colour,
        elinewidth=1.0,
        capsize=2,
        label=label,
    )


def _columns(points: Sequence[Point]) -> tuple[Array, ...]:
    return tuple(np.array(column, dtype=float) for column in zip(*points, strict=True))


def draw_level(ax: Axes) -> None:
    """A line at α."""
    ax.axhline(
        ALPHA, color=INK, linewidth=0.8, linestyle=(0, (4, 3)), zorder=0, label=f"α = {ALPHA:g}"
    )


def draw_bars(
    ax: Axes,
    title: str,
    models: Sequence[str],
    rates: Mapping[str, Sequence[Rate]],
    paper_rates: Mapping[str, Sequence[float]],
    label: str = "Declared worse (share of trials)",
    source: str = "the paper",
) -> None:
    """A group of bars per model, ±1.96 standard errors; a diamond where the paper prints a
    figure.
    """
    places = np.arange(len(models), dtype=float)
    for k, (test, pairs) in enumerate(rates.items()):
        at = places + (k - (len(rates) - 1) / 2.0) * BAR_WIDTH
        height, error = np.array(pairs, dtype=float).T
        reach = np.where(np.isfinite(error), REACH * error, 0.0)
        bars = np.stack([np.minimum(reach, height), np.minimum(reach, 1.0 - height)])
        ax.bar(at, height, BAR_WIDTH * 0.9, color=BAR_COLOURS[test], label=test, zorder=2)
        ax.errorbar(
            at, height, yerr=bars, fmt="none", ecolor=INK, elinewidth=0.8, capsize=2, zorder=3
        )
        if test in paper_rates:
            word = source if test == next(iter(paper_rates)) else None
            ax.scatter(
                at,
                paper_rates[test],
                marker="D",
                s=26,
                color="white",
                edgecolors=INK,
                zorder=4,
                label=word,
            )
    dress(ax, title, "", label, (0.0, 1.03))
    ax.set_xticks(places, models)


def dress(
    ax: Axes, title: str, xlabel: str, ylabel: str, ylim: tuple[float, float] | None = None
) -> None:
    """Titles, labels and a light grid."""
    ax.set_title(title, color=INK, fontsize="medium")
    ax.set_xlabel(xlabel, color=INK)
    ax.set_ylabel(ylabel, color=INK)
    if ylim is not None:
        ax.set_ylim(*ylim)
    ax.locator_params(axis="x", nbins=6)
    ax.grid(color=FAINT, alpha=0.25, linewidth=0.6)
    ax.tick_params(colors=INK)
    for side, spine in ax.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(FAINT)


def add_legend(figure: Figure, ax: Axes, columns: int) -> None:
    """The legend of one panel, below all of them."""
    entries = ax.get_legend_handles_labels()
    figure.legend(
        *entries,
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        labelcolor=INK,
        fontsize="small",
    )
