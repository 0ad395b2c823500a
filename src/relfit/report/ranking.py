"""Ranks and the matrix of who beats whom, as text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.cells import cell_len

from relfit.report.table import short_names, show_pvalue
from relfit.report.words import CORRECTION_NAMES
from relfit.result import PairMatrix, Ranks

GAP = "  "


def ranks_text(ranks: Ranks) -> str:
    """One line per model, the best ranks first, and what holds with which probability."""
    order = np.lexsort((ranks.upper, ranks.lower)).tolist()
    names = short_names(ranks.names)
    shown = [
        f"{low}" if low == high else f"{low} to {high}" for low, high in zip(ranks.lower, ranks.upper, strict=True)
    ]
    lines = _aligned([("model", "rank"), *((names[i], shown[i]) for i in order)])
    sure = f"{100.0 * ranks.level:g}%"
    last = f"All ranks are in these sets together with probability {sure}."
    if not ranks.simultaneous:
        last = f"Each rank is in its set with probability {sure}."
    return "\n".join([*lines, last])


def pairs_text(pairs: PairMatrix) -> str:
    """A matrix: the adjusted p-value of "the row's model is no worse than the column's", * where it is worse."""
    names = short_names(pairs.names)
    rows = [("", *names)]
    for i, name in enumerate(names):
        cells = [
            "—" if i == j else show_pvalue(float(p), pairs.alpha) + "*" * int(pairs.worse[i, j])
            for j, p in enumerate(pairs.adjusted_pvalue[i])
        ]
        rows.append((name, *cells))
    correction = CORRECTION_NAMES.get(pairs.correction, "no correction")
    last = f"p-values of “no worse than” by row and column; * worse at α = {pairs.alpha:g} ({correction})."
    return "\n".join([*_aligned(rows), last])


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    padded = [[cell + " " * (width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)] for row in rows]
    return [GAP.join(row).rstrip() for row in padded]
