"""The one or two axes a picture of many columns is drawn along."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Main axes that are looked at.
CANDIDATES = 12
# Up to so many rows or columns by a singular value decomposition, beyond by so many rounds of iteration.
_EXACT, _ITERATIONS = 200, 12


@dataclass(frozen=True)
class View:
    """Axes of a picture: z = (x − centre) @ directionsᵀ, and what they are called."""

    centre: Array
    directions: Array
    labels: tuple[str, ...]
    projected: bool

    def of(self, rows: Array) -> Array:
        """The rows in the picture, (n, 1) or (n, 2)."""
        return np.asarray((rows - self.centre) @ self.directions.T)


@dataclass(frozen=True)
class MainAxes:
    """The first principal directions (k, d) of some rows about their centre, and the share of the variance of each."""

    centre: Array
    directions: Array
    share: Array

    def view(self, chosen: Sequence[int] = (0, 1)) -> View:
        """A picture along two of them."""
        shares = [
            f"{100 * self.share[k]:.2g}" if self.share[k] < 0.095 else f"{100 * self.share[k]:.0f}" for k in chosen
        ]
        labels = tuple(f"main axis {k + 1} ({part}% of the variance)" for k, part in zip(chosen, shares, strict=True))
        return View(self.centre, self.directions[list(chosen)], labels, projected=True)


def plain_view(d: int) -> View:
    """The one or two columns themselves."""
    return View(np.zeros(d), np.eye(d), tuple(f"column {k}" for k in range(d)), projected=False)


def chosen_view(axes: MainAxes, own: Array, reference: Array) -> View:
    """Of the main axes the two along which these two samples differ most.

    The difference along an axis is the largest one between the two distribution functions (Kolmogorov–Smirnov). Rows
    that chose the axes must not be drawn: along the best of many axes even equal samples look different.
    """
    projected = [(rows - axes.centre) @ axes.directions.T for rows in (own, reference)]
    apart = [distance_of_distributions(a, b) for a, b in zip(projected[0].T, projected[1].T, strict=True)]
    return axes.view(sorted(np.argsort(apart, kind="stable")[::-1][:2].tolist()))


def distance_of_distributions(a: Array, b: Array) -> float:
    """sup_t |F_a(t) − F_b(t)| of two samples of numbers.

    >>> distance_of_distributions(np.array([0.0, 1.0]), np.array([0.5, 2.0, 3.0]))
    0.6666666666666667
    """
    both = np.concatenate([a, b])
    below = (np.searchsorted(np.sort(x), both, side="right") / len(x) for x in (a, b))
    return float(np.abs(np.subtract(*below)).max())


def main_axes(rows: Array) -> MainAxes:
    """The first twelve principal axes; of long and many rows by subspace iteration, exact enough for a picture."""
    centre = rows.mean(axis=0)
    moved = rows - centre
    directions = _exact(moved) if min(moved.shape) <= _EXACT else _iterated(moved)
    # The sign of a direction is arbitrary: its largest entry is made positive.
    signs = np.sign(directions[np.arange(len(directions)), np.abs(directions).argmax(axis=1)])
    spread = np.square(moved @ directions.T).sum(axis=0) / (float(np.square(moved).sum()) or 1.0)
    return MainAxes(centre, signs[:, None] * directions, spread)


def _exact(moved: Array) -> Array:
    return np.asarray(np.linalg.svd(moved, full_matrices=False)[2][:CANDIDATES])


def _iterated(moved: Array) -> Array:
    start = np.random.default_rng(0).normal(size=(moved.shape[1], 2 * CANDIDATES))
    for _ in range(_ITERATIONS):
        start, _ = np.linalg.qr(moved.T @ (moved @ start))
    _, _, turned = np.linalg.svd(moved @ start, full_matrices=False)
    return np.asarray((start @ turned.T).T[:CANDIDATES])
