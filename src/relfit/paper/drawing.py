"""Curves with error bands, in panels that share one legend below the data. No pyplot, so nothing leaks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from relfit.paper.experiment import ALPHA, Point

REACH = 1.96
INK, FAINT = "#333333", "#999999"
# Okabe and Ito's colours, which the colour-blind can tell apart; line and marker say it too.
ORANGE, SKY, GREEN, BLUE, RED, PINK = "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7"


class Look(NamedTuple):
    """How a test is drawn in every figure."""

    colour: str
    marker: str
    line: str = "-"


def new_figure(panels: int, height: float = 4.2) -> tuple[Figure, list[Axes]]:
    """A figure with its panels side by side, 7 inches wide for one and wider for more."""
    figure = Figure(figsize=(3.2 + 3.8 * panels, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, panels, squeeze=False)
    return figure, list(axes[0])


def draw_curve(ax: Axes, label: str, look: Look, points: Sequence[Point]) -> None:
    """A curve through the points with a band of ±1.96 standard errors, inside [0, 1]."""
    x, y, error = (np.array(column, dtype=float) for column in zip(*points, strict=True))
    ax.plot(x, y, look.line, color=look.colour, marker=look.marker, markersize=5, linewidth=1.4, label=label)
    low, high = np.clip(y - REACH * error, 0.0, 1.0), np.clip(y + REACH * error, 0.0, 1.0)
    ax.fill_between(x, low, high, color=look.colour, alpha=0.15, linewidth=0)


def draw_points(ax: Axes, label: str, look: Look, points: Sequence[Point]) -> None:
    """The points with bars of ±1.96 standard errors, for a curve that comes from elsewhere."""
    x, y, error = (np.array(column, dtype=float) for column in zip(*points, strict=True))
    shape: dict[str, Any] = {
        "marker": look.marker,
        "markersize": 5,
        "linestyle": "none",
        "color": look.colour,
        "label": label,
    }
    ax.errorbar(x, y, yerr=REACH * error, elinewidth=1.0, capsize=2, **shape)


def draw_level(ax: Axes) -> None:
    """A line at α."""
    ax.axhline(ALPHA, color=INK, linewidth=0.8, linestyle=(0, (4, 3)), zorder=0, label=f"α = {ALPHA:g}")


def dress(ax: Axes, title: str, xlabel: str, ylabel: str, ylim: tuple[float, float] | None = None) -> None:
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
    handles, labels = ax.get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=columns, frameon=False, labelcolor=INK, fontsize="small"
    )


# --------------------
# Rates of several tests for each model, as grouped bars with error bars and the paper's figures on them.

Rates = Mapping[str, Sequence[tuple[float, float]]]
COLOURS = {
    "RelPSI": ORANGE,
    "RelMulti": BLUE,
    "best set": GREEN,
    "carving": SKY,
    "FID": "#BBBBBB",
}
WIDTH = 0.2


def draw_bars(
    ax: Axes,
    title: str,
    models: Sequence[str],
    rates: Rates,
    papers: Mapping[str, Sequence[float]],
    label: str = "Declared worse (share of trials)",
    source: str = "the paper",
) -> None:
    """A group of bars per model, ±1.96 standard errors; a diamond where the paper prints a figure."""
    places = np.arange(len(models), dtype=float)
    for k, (test, pairs) in enumerate(rates.items()):
        at = places + (k - (len(rates) - 1) / 2.0) * WIDTH
        height, error = np.array(pairs, dtype=float).T
        reach = np.where(np.isfinite(error), REACH * error, 0.0)
        bars = np.stack([np.minimum(reach, height), np.minimum(reach, 1.0 - height)])
        ax.bar(at, height, WIDTH * 0.9, color=COLOURS[test], label=test, zorder=2)
        ax.errorbar(at, height, yerr=bars, fmt="none", ecolor=INK, elinewidth=0.8, capsize=2, zorder=3)
        if test in papers:
            word = source if test == next(iter(papers)) else None
            ax.scatter(at, papers[test], marker="D", s=26, color="white", edgecolors=INK, zorder=4, label=word)
    dress(ax, title, "", label, (0.0, 1.03))
    ax.set_xticks(places, models)
