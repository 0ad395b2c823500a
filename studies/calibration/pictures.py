"""Levels and power as pictures: one dot per simulated rate, with its error and its bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from relfit.paper.drawing import BLUE, FAINT, GREEN, INK, ORANGE, PINK, REACH, RED, SKY, add_legend, dress
from studies.calibration.verdicts import ALPHA, CLAIMS

ROW_HEIGHT = 0.19
LARGEST = 0.14
SHORT = {"relpsi": "RelPSI", "relmulti": "RelMulti", "best-set": "best set", "carve": "carving"}
LOOKS = {
    "relpsi": (ORANGE, "o"),
    "carve": (SKY, "D"),
    "best-set": (GREEN, "s"),
    "relmulti": (BLUE, "^"),
    "best-set BY": (PINK, "v"),
}


def name_of(test: str) -> str:
    """A procedure as tables and pictures call it: "best-set BY" is "best set + BY"."""
    first, *rest = test.split(" ", 1)
    known = SHORT.get(first, first)
    joint = " + " if rest and rest[0] in ("BY", "Holm") else " "
    return known + (joint + rest[0] if rest else "")


def cell_name(row: Mapping[str, Any]) -> str:
    """A setting in one line."""
    estimator = "" if row["estimator"] == "complete" else f", {row['estimator']}"
    return f"{row['problem']}, n = {row['n']}{estimator}"


def draw_levels(rows: Sequence[Mapping[str, Any]], title: str) -> Figure:
    """A panel per procedure, a line per setting: the claimed error rate, ±1.96 s.e., and its bound α + 3 s.e."""
    cells = list(dict.fromkeys(cell_name(row) for row in rows))
    figure = Figure(figsize=(13.0, 1.6 + ROW_HEIGHT * len(cells)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, len(CLAIMS), sharey=True)
    for ax, (test, claim) in zip(axes, CLAIMS.items(), strict=True):
        own = {cell_name(row): row for row in rows if row["test"] == test}
        _level_panel(ax, [own[cell] for cell in cells])
        dress(ax, name_of(test), claim, "")
        ax.set_xlim(-0.004, LARGEST)
        ax.set_xticks([0.0, 0.05, 0.1])
    axes[0].set_yticks(np.arange(len(cells)), cells, fontsize="small")
    axes[0].set_ylim(len(cells) - 0.4, -0.6)
    figure.suptitle(title, color=INK, fontsize="medium")
    add_legend(figure, axes[0], 4)
    return figure


def _level_panel(ax: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    place = np.arange(len(rows))
    value, error = np.array([row["error"] for row in rows], dtype=float).T
    kept = np.array([row["kept"] for row in rows])
    shown = np.minimum(value, LARGEST)
    ax.axvline(ALPHA, color=INK, linewidth=0.8, linestyle=(0, (4, 3)), zorder=0, label=f"α = {ALPHA:g}")
    ax.scatter(ALPHA + 3.0 * error, place, marker="|", s=30, color=FAINT, linewidths=1.0, label="α + 3 s.e.")
    ax.errorbar(shown, place, xerr=REACH * error, fmt="none", ecolor=FAINT, elinewidth=0.9)
    ax.scatter(shown[kept], place[kept], s=16, marker="o", color=BLUE, zorder=3, label="kept, ±1.96 s.e.")
    ax.scatter(shown[~kept], place[~kept], s=34, marker="X", color=RED, zorder=4, label="exceeded")


def draw_power(columns: Mapping[str, Sequence[Mapping[str, Any]]], title: str) -> Figure:
    """A line per problem, a marker per procedure: the share of worse models found, ±1.96 s.e."""
    figure = Figure(figsize=(8.5, 1.7 + 0.62 * len(columns)), layout="constrained")
    FigureCanvasAgg(figure)
    ax = figure.subplots()
    for k, (test, (colour, marker)) in enumerate(LOOKS.items()):
        pairs = [next(row["TPR"] for row in rows if row["test"] == test) for rows in columns.values()]
        value, error = np.array(pairs, dtype=float).T
        place = np.arange(len(columns)) + 0.13 * (k - (len(LOOKS) - 1) / 2.0)
        ax.errorbar(value, place, xerr=REACH * error, fmt=marker, markersize=6, color=colour, label=name_of(test))
    dress(ax, title, "TPR: share of the worse models found", "")
    ax.set_yticks(np.arange(len(columns)), list(columns))
    ax.set_ylim(len(columns) - 0.5, -0.5)
    ax.set_xlim(-0.02, 1.02)
    add_legend(figure, ax, len(LOOKS))
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write a picture without the drawing library's version in it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})
