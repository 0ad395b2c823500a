"""Rates of several tests for each model, as grouped bars with error bars and the paper's figures on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from relfit.experiments.drawing import BLUE, GREEN, INK, ORANGE, REACH, SKY, dress

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
