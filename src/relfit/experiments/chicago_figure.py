"""The figure of table 2: the data and the fitted densities above, the rejection rates below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure

from relfit.experiments.bars import Rates, draw_bars
from relfit.experiments.chicago_study import Study
from relfit.experiments.drawing import FAINT, INK


def draw(
    known: Study,
    shown: Sequence[str],
    models: Sequence[str],
    panels: Mapping[str, Rates],
    papers: Mapping[str, Sequence[float]],
) -> Figure:
    """Pictures of the test points and the `shown` densities on one scale; a panel of bars per setting."""
    figure = Figure(figsize=(14.0, 6.6), layout="constrained")
    FigureCanvasAgg(figure)
    above, below = figure.subfigures(2, 1, height_ratios=(0.62, 1.0), squeeze=False)[:, 0]
    pictures = list(above.subplots(1, 1 + len(shown), squeeze=False)[0])
    _points(pictures[0], known)
    # One scale for all, cut where a few pixels of a spike would darken every other picture.
    norm = PowerNorm(0.5, 0.0, float(np.quantile(known.pictures, 0.998)), clip=True)
    for ax, name in zip(pictures[1:], shown, strict=True):
        image = known.pictures[known.names.index(name)]
        ax.imshow(image, origin="lower", extent=known.extent, norm=norm, cmap="magma_r", aspect="equal")
        _frame(ax, f"{name}\nNLL {known.nll(name):.2f}".replace(", ", ",\n"))
    axes = list(below.subplots(1, len(panels), squeeze=False)[0])
    for ax, (title, rates) in zip(axes, panels.items(), strict=True):
        draw_bars(ax, title, models, rates, papers)
    handles, labels = axes[0].get_legend_handles_labels()
    below.legend(handles, labels, loc="outside lower center", ncols=6, frameon=False, labelcolor=INK)
    return figure


def _points(ax: Axes, known: Study) -> None:
    left, right, bottom, top = known.extent
    ax.scatter(known.points[:, 0], known.points[:, 1], s=1.0, color=INK, alpha=0.25, linewidths=0, rasterized=True)
    ax.set(xlim=(left, right), ylim=(bottom, top), aspect="equal")
    _frame(ax, f"data\n{len(known.points)} test points")


def _frame(ax: Axes, title: str) -> None:
    ax.set_title(title, color=INK, fontsize="small")
    ax.set(xticks=[], yticks=[])
    for spine in ax.spines.values():
        spine.set_color(FAINT)
