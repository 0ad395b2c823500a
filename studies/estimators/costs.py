"""Time against power from 10² to 10⁶ rows: which estimator finds a small difference soonest?"""

import time

import numpy as np

from relfit import Density, compare_pair
from relfit.paper.experiment import BLUE, GREEN, ORANGE, REACH, RED, Look, add_legend, dress, new_figure, rate
from studies.study import ALPHA

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


def cells(low, high):
    """Every estimator at the sizes in [low, high)."""
    return [
        {"kind": kind, "design": design, "n": n}
        for kind, locations in KINDS.items()
        for design in ("linear", "incomplete", "complete", locations)
        for n in SIZES
        if low <= n < high and (design != "complete" or n <= MOST_COMPLETE)
    ]


def trial(setting, seed):
    """Is the worse of two models found, and in how many seconds?"""
    reference, a, b = _drawn(setting["kind"], setting["n"], seed)
    design = setting["design"]
    options = {"discrepancy": design} if design in KINDS.values() else {"estimator": design}
    start = time.perf_counter()
    result = compare_pair(reference, a, b, alpha=ALPHA, rng=seed, progress=False, **options)
    return {"worse": bool(result.worse), "seconds": time.perf_counter() - start}


def _drawn(kind, n, seed):
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


def _turned(angle):
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    precision = turn @ np.diag([0.2, 2.0]) @ turn.T
    return Density(score=lambda x: -x @ precision, dim=2)


def rows(results):
    """A row per size and estimator: the fraction of trials in which the worse model was found, and the time."""
    return [
        {
            "models": setting["kind"],
            "estimator": setting["design"].upper() if setting["design"] in KINDS.values() else setting["design"],
            "n": f"{setting['n']:,}",
            "trials": len(trials),
            "power": rate([trial["worse"] for trial in trials]),
            "seconds": f"{seconds(trials):.3g}",
        }
        for setting, trials in results
    ]


def seconds(trials):
    """The time of the fastest trial: the others shared the machine."""
    return float(min(trial["seconds"] for trial in trials))


def figure(results):
    """Power against seconds, a panel for samples and one for densities."""
    drawn, axes = new_figure(2)
    for ax, kind in zip(axes, KINDS, strict=True):
        for design, look in LOOKS.items():
            by_size = [trials for s, trials in results if (s["kind"], s["design"]) == (kind, design)]
            if by_size:
                _draw(ax, _LABELS.get(design, design), look, by_size)
        dress(ax, _TITLES[kind], "Seconds for one comparison", "Share of trials that find the worse model", (0.0, 1.03))
        ax.set_xscale("log")
    add_legend(drawn, axes[0], 4)
    return drawn


def _draw(ax, label, look, by_size):
    x = [seconds(trials) for trials in by_size]
    y, error = np.array([rate([trial["worse"] for trial in trials]) for trials in by_size]).T
    style = {"color": look.colour, "marker": look.marker, "linestyle": look.line, "linewidth": 1.4}
    ax.errorbar(x, y, yerr=REACH * error, elinewidth=0.8, markersize=5, label=label, **style)
