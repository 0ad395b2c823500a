"""Who beats whom, as a picture."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, ListedColormap

from relfit.report.pairs import Pairs, who_beats_whom
from relfit.report.plot import INK, MARKS, bare, label_rows, new_axes
from relfit.result import Comparison

# Tints of the colours of "worse", nothing and "best"; the triangles say it too.
_COLOURS = ("#F9DFCB", "#FFFFFF", "#CDEBE0", "#E4E4E4")
_CODES = {"worse": 0, "open": 1, "better": 2, "same": 3}
_SIGNS = {"worse": ("▼", MARKS["worse"][0]), "better": ("▲", MARKS["best"][0]), "open": ("·", INK)}


def pairs_plot(comparison: Comparison, ax: Axes | None = None) -> Axes:
    """A grid, one row and one column a model: ▲ where the row is significantly better than the column, ▼ worse.

    All pairs are tested together, adjusted by Holm at the comparison's level.

    >>> from relfit import JointEstimate, decide
    >>> ax = pairs_plot(decide(JointEstimate(("a", "b"), [0.1, 0.9], [[0.01, 0.0], [0.0, 0.01]]), test="relpsi"))
    >>> [text.get_text() for text in ax.texts]
    ['▲', '▼']
    """
    pairs = who_beats_whom(comparison)
    count = len(pairs.names)
    side = max(0.24, min(0.42, 9.0 / count))
    ax = new_axes(2.2 + side * count, 0.9 + side * count) if ax is None else ax
    codes = np.array([[_CODES[pairs.cell(i, j)] for j in range(count)] for i in range(count)])
    ax.imshow(codes, cmap=ListedColormap(_COLOURS), norm=BoundaryNorm(np.arange(5) - 0.5, 4), aspect="equal")
    size = label_rows(ax, [f"{name}  {k}" for k, name in enumerate(pairs.names, 1)])
    ax.set_ylim(count - 0.5, -0.5)
    ax.xaxis.tick_top()
    ax.set_xticks(range(count), [str(k) for k in range(1, count + 1)], color=INK, fontsize=size)
    _write_signs(ax, pairs, size)
    ax.set_xticks(np.arange(count + 1) - 0.5, minor=True)
    ax.set_yticks(np.arange(count + 1) - 0.5, minor=True)
    ax.grid(which="minor", color="#CCCCCC", linewidth=0.6)
    ax.tick_params(which="minor", length=0)
    bare(ax, kept=())
    ax.set_xlabel(f"▲ row better than column, ▼ worse (Holm, level {comparison.alpha:g})", color=INK, fontsize="small")
    return ax


def _write_signs(ax: Axes, pairs: Pairs, size: float) -> None:
    count = len(pairs.names)
    for i in range(count):
        for j in range(count):
            if i != j:
                sign, colour = _SIGNS[pairs.cell(i, j)]
                ax.text(j, i, sign, ha="center", va="center", color=colour, fontsize=size)
