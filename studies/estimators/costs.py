"""Time against power from 10² to 10⁶ rows: which estimator finds a small difference soonest?"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from relfit.api import compare_pair
from relfit.data.models import Density
from relfit.paper.drawing import BLUE, GREEN, ORANGE, REACH, RED, Look, add_legend, dress, new_figure
from relfit.paper.experiment import rate

Array = NDArray[np.float64]

ALPHA = 0.05
SIZES = (100, 316, 1000, 3162, 10_000, 31_623, 100_000, 316_228, 1_000_000)
# Beyond this many rows all pairs take long.
MOST_COMPLETE = 10_000
KINDS = {"samples": "ume", "densities": "fssd"}
LOOKS = {
    "linear": Look(ORANGE, "v", "--"),
    "incomplete": Look(BLUE, "o"),
    "complete": Look(GREEN, "s", ":"),
    "ume": Look(RED, "D", "-."),
    "fssd": Look(RED, "D", "-."),
}
_TITLES = {"samples": "Samples, d = 10: MMD and UME", "densities": "Densities, d = 2: KSD and FSSD"}
_LABELS = {"ume": "UME / FSSD, 10 locations", "fssd": "UME / FSSD, 10 locations", "incomplete": "incomplete, R = 25"}


def cells(low: int, high: int) -> list[dict[str, Any]]:
    """Every estimator at the sizes in [low, high)."""
    return [
        {"kind": kind, "design": design, "n": n}
        for kind, locations in KINDS.items()
        for design in ("linear", "incomplete", "complete", locations)
        for n in SIZES
        if low <= n < high and (design != "complete" or n <= MOST_COMPLETE)
    ]


def trial(setting: dict[str, Any], seed: int) -> dict[str, Any]:
    """Is the worse of two models found, and in how many seconds?"""
    reference, a, b = _drawn(setting["kind"], setting["n"], seed)
    design = setting["design"]
    options = {"discrepancy": design} if design in KINDS.values() else {"estimator": design}
    start = time.perf_counter()
    result = compare_pair(reference, a, b, alpha=ALPHA, rng=seed, progress=False, **options)
    return {"worse": bool(result.worse), "seconds": time.perf_counter() - start}


def _drawn(kind: str, n: int, seed: int) -> tuple[Array, Any, Any]:
    """Samples: N(.54e₁, I) against N(.5e₂, I) for data N(0, I), d = 10.

    Densities: N(0, C) turned by .515 against one turned by −.5 for data N(0, C), C = diag(5, .5).
    """
    rng = np.random.default_rng([20190413, seed])
    if kind == "samples":
        e = np.eye(10)
        x, a, b = (rng.standard_normal((n, 10)) for _ in range(3))
        return x, a + 0.54 * e[0], b + 0.5 * e[1]
    rows = rng.standard_normal((n, 2)) * np.sqrt([5.0, 0.5])
    return rows, _turned(0.515), _turned(-0.5)


def _turned(angle: float) -> Density:
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    precision = turn @ np.diag([0.2, 2.0]) @ turn.T
    return Density(score=lambda x: -x @ precision, dim=2)


Results = Sequence[tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]]


def rows(found: Results) -> list[dict[str, Any]]:
    """A row per size and estimator: the share of trials in which the worse model was found, and the time."""
    return [
        {
            "models": setting["kind"],
            "estimator": setting["design"].upper() if setting["design"] in KINDS.values() else setting["design"],
            "n": f"{setting['n']:,}",
            "trials": len(results),
            "power": rate([result["worse"] for result in results]),
            "seconds": f"{seconds(results):.3g}",
        }
        for setting, results in found
    ]


def seconds(results: Sequence[Mapping[str, Any]]) -> float:
    """The fastest of the trials: the others shared the machine."""
    return float(min(result["seconds"] for result in results))


def figure(found: Results) -> Figure:
    """Power against seconds, a panel for samples and one for densities."""
    drawn, axes = new_figure(2)
    for ax, kind in zip(axes, KINDS, strict=True):
        for design, look in LOOKS.items():
            own = [results for s, results in found if (s["kind"], s["design"]) == (kind, design)]
            if own:
                _draw(ax, _LABELS.get(design, design), look, own)
        dress(ax, _TITLES[kind], "Seconds for one comparison", "Share of trials that find the worse model", (0.0, 1.03))
        ax.set_xscale("log")
    add_legend(drawn, axes[0], 4)
    return drawn


def _draw(ax: Axes, label: str, look: Look, own: Sequence[Sequence[Mapping[str, Any]]]) -> None:
    x = [seconds(results) for results in own]
    y, error = np.array([rate([result["worse"] for result in results]) for results in own]).T
    style: dict[str, Any] = {"color": look.colour, "marker": look.marker, "linestyle": look.line, "linewidth": 1.4}
    ax.errorbar(x, y, yerr=REACH * error, elinewidth=0.8, markersize=5, label=label, **style)
