"""The verdicts at several bandwidths, as a picture."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from relfit.errors import InputError
from relfit.evidence import bandwidth_sensitivity, recall
from relfit.report.planning import COLOURS
from relfit.report.plot import FAINT, INK, MARKS, bare, drawable, new_axes
from relfit.report.table import short_names
from relfit.result import Comparison

FACTORS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
_STYLES = ("-", "--", ":", "-.")


def bandwidths_plot(comparison: Comparison, data: Any, ax: Axes | None = None) -> Axes:
    """Every model's difference to the best in standard errors, against the bandwidth; marks say the verdicts.

    The best of a bandwidth lies at 0. The vertical line is the bandwidth that was used.

    >>> import numpy as np, relfit
    >>> rng = np.random.default_rng(0)
    >>> x, models = rng.normal(size=(60, 2)), {"a": rng.normal(size=(60, 2)), "b": rng.normal(1, 1, (60, 2))}
    >>> ax = bandwidths_plot(relfit.compare(x, models, rng=0), (x, models))
    >>> ax.get_xlabel()
    'bandwidth'
    """
    recalled = recall(comparison, data)
    found = bandwidth_sensitivity(comparison, recalled, FACTORS)
    if found is None and comparison.groups is not None:
        raise InputError("groups: a result does not hold which rows belong together; compare at other bandwidths")
    if found is None:
        raise InputError(f"kernel: {recalled.kernel.describe()} has no bandwidth that could be changed")
    ax = new_axes(6.8, 3.8) if ax is None else ax
    names = [row["name"] for row in comparison.rows()]
    ratios, lines = found.ratios(), []
    for k, (name, label) in enumerate(zip(names, drawable(short_names(names, 24)), strict=True)):
        colour, line = COLOURS[k % len(COLOURS)], _STYLES[k // len(COLOURS) % len(_STYLES)]
        heights = ratios[comparison.names.index(name)]
        lines += ax.plot(found.lengths, heights, linewidth=1.3, label=label, color=colour, linestyle=line)
        for length, height, kind in zip(found.lengths, heights, found.kinds(name), strict=True):
            ax.plot(length, height, marker=MARKS[kind][1], markersize=6.5, color=colour, linestyle="none")
    ax.axvline(recalled.kernel.length, color=FAINT, linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)
    _finish(ax, lines)
    return ax


def _finish(ax: Axes, lines: list[Line2D]) -> None:
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter(lambda value, _position: f"{value:.2g}")
    ax.set_yscale("symlog", linthresh=3.0)
    ax.yaxis.set_major_formatter(lambda value, _position: f"{value:g}")
    ax.set_yticks([0, 1, 2, 3, 10, 30, 100], minor=False)
    ax.set_ylim(bottom=min(-0.3, ax.get_ylim()[0]))
    ax.set_xlabel("bandwidth", color=INK)
    ax.set_ylabel("difference to the best, in s.e.", color=INK)
    ax.grid(color=FAINT, alpha=0.25, linewidth=0.6)
    bare(ax, kept=("bottom", "left"))
    handles = [ax.plot([], [], ls="none", marker=mark, color=INK, label=label)[0] for _, mark, label in MARKS.values()]
    legend = ax.legend(
        handles=[*lines, *handles], fontsize="x-small", frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5)
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
        text.set_color(INK)
