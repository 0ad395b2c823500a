"""The one or two axes a picture of many columns is drawn along."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from relfit.data.load import Data, is_rows, load
from relfit.data.models import Density
from relfit.data.presets import PRESETS
from relfit.estimators.split import row_orders
from relfit.kernels.base import Kernel
from relfit.kernels.choice import Collection
from relfit.kernels.custom import Recorded
from relfit.kernels.precomputed import Precomputed
from relfit.results.comparison import Comparison
from relfit.util.arrays import Array, Rows
from relfit.util.errors import InputError

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


# --------------------
# The data behind a finished comparison: loaded as it loaded them, and checked to be the same.


# Pictures are made from at most so many rows of a sample, and from fewer where rows are long or models many.
MOST_ROWS, FEWEST_ROWS = 1000, 100
_BUDGET = 3.6e9
# A kernel value costs about as much as so many columns.
_KERNEL_COLUMNS = 30
_SAMPLES = ("mmd", "ume", "nystroem")
_NO_FUNCTION = (Collection, Precomputed, Recorded)


@dataclass(frozen=True)
class Recalled:
    """The data of a comparison.

    Attributes:
        data: every distinct model once, with the rows the comparison's kernel is used on.
        kernel: the comparison's kernel.
        rows: for the reference (key None) and every sample, the row numbers that pictures are made from, ascending.
    """

    data: Data
    kernel: Kernel
    rows: dict[str | None, Rows]

    @property
    def reference(self) -> Array:
        """The chosen reference rows."""
        return self.data.reference[self.rows[None]]

    def sample(self, name: str) -> Array:
        """The chosen rows of a model's sample."""
        return self.data.samples[name][self.rows[name]]

    @cached_property
    def pooled(self) -> Array:
        """The chosen rows of the reference and of every sample."""
        reference = [] if self.data.target is not None else [self.reference]
        return np.concatenate([*reference, *map(self.sample, self.data.samples)])

    @cached_property
    def main_axes(self) -> MainAxes:
        """The main axes of the pooled rows, which all pictures share."""
        return main_axes(self.pooled)

    @property
    def complete(self) -> bool:
        """Whether the pictures are made from every row."""
        return all(len(self.rows[key]) == size for key, size in _sizes(self.data).items())

    def part(self) -> tuple[Array | Density, dict[str, Array | Density]]:
        """The chosen rows as arguments of `compare`, every name given among them."""
        chosen: dict[str, Array | Density] = {
            name: model if isinstance(model, Density) else self.sample(name) for name, model in self.data.models.items()
        }
        reference = self.reference if self.data.target is None else self.data.target
        return reference, {name: chosen[self.data.copies.get(name, name)] for name in self.data.names}


def recall(comparison: Comparison, data: Any, *, most: int | None = None) -> Recalled:
    """Load ``data = (reference, models)`` as `compare` did for this result; other names or rows are refused.

    Generators are drawn from again with the result's seed. `most` bounds the rows that pictures are made from.
    """
    if comparison.kernel is None or comparison.measure == "score":
        raise InputError("data: this result was made from scores and has no kernel; leave data out")
    if isinstance(comparison.kernel, _NO_FUNCTION):
        raise InputError(f"data: expected a kernel that is a function of rows, got {comparison.kernel.describe()}")
    reference, models = _pair(data)
    loaded = load(
        reference, models, seed=comparison.seed or 0, all_samples=comparison.measure in _SAMPLES, fewest_models=1
    )
    if loaded.names != comparison.names:
        raise InputError(
            f"data: expected the models of this result ({_few(comparison.names)}), got {_few(loaded.names)}"
        )
    _check_sizes(comparison, loaded)
    _check_rows(comparison, reference, models, loaded)
    prepared = _prepared(comparison, loaded)
    bound = affordable_rows(prepared) if most is None else most
    return Recalled(prepared, comparison.kernel, _chosen(comparison, prepared, bound))


def preset_of(comparison: Comparison) -> str | None:
    """The preset a comparison was made with; its note says so."""
    return comparison.preset


def affordable_rows(data: Data) -> int:
    """How many rows of each sample keep the pictures a matter of seconds."""
    width = data.reference.shape[1] + _KERNEL_COLUMNS
    affordable = math.isqrt(int(_BUDGET / ((2 * len(data.models) + 1) * width)))
    return max(FEWEST_ROWS, min(MOST_ROWS, affordable))


def _pair(data: Any) -> tuple[Any, Any]:
    if not isinstance(data, tuple | list) or len(data) != 2 or not isinstance(data[1], Mapping | Sequence):
        raise InputError(f"data: expected a pair (reference, models) as given to compare, got {type(data).__name__}")
    return data[0], data[1]


def _prepared(comparison: Comparison, data: Data) -> Data:
    name = preset_of(comparison)
    if name is None:
        return data
    preset = PRESETS[name]
    models = {key: preset.prepare(f"model {key!r}", rows) for key, rows in data.samples.items()}
    return replace(data, reference=preset.prepare("reference", data.reference), models={**models})


def _check_sizes(comparison: Comparison, data: Data) -> None:
    """Some tests leave rows out, so more rows than the result speaks of are possible, fewer are not."""
    wanted = comparison.sizes or ()
    named = {"reference": len(data.reference)}
    named |= {f"model {name!r}": len(data.samples[data.copies.get(name, name)]) for name in _sampled(data)}
    for (what, size), least in zip(named.items(), wanted, strict=False):
        if size < least:
            raise InputError(f"data: expected at least {least} rows in {what}, as in this result, got {size}")


def _check_rows(comparison: Comparison, reference: Any, models: Any, data: Data) -> None:
    """Refuse other rows than the result's. What is drawn anew may differ, and a result without digests cannot tell."""
    known = comparison.inputs or {}
    given = models if isinstance(models, Mapping) else dict(zip(data.names, models, strict=True))
    pairs = [("the reference", reference, known.get("reference"), data.digests.get(None))]
    recorded = known.get("models") or {}
    pairs += [(f"model {name!r}", given[name], recorded.get(name), data.digests.get(name)) for name in data.names]
    for what, value, then, now in pairs:
        if then is not None and now is not None and then != now and is_rows(value):
            raise InputError(
                f"data: expected the data this result was made from; the rows of {what} are others now (changed, in "
                "another order, or other rows or columns were chosen)"
            )


def _sampled(data: Data) -> list[str]:
    return [name for name in data.names if data.copies.get(name, name) in data.samples]


def _chosen(comparison: Comparison, data: Data, most: int) -> dict[str | None, Rows]:
    if comparison.dependence == "chain":
        # A chain's draws mean something in their order only.
        return {key: np.arange(min(size, most)) for key, size in _sizes(data).items()}
    orders = row_orders(data, _dependence(comparison), comparison.seed or 0, "pictures")
    return {key: np.sort(order[:most]) for key, order in orders.items()}


def _sizes(data: Data) -> dict[str | None, int]:
    samples: dict[str | None, int] = {name: len(x) for name, x in data.samples.items()}
    return {None: len(data.reference), **samples}


def _dependence(comparison: Comparison) -> Any:
    return comparison.dependence or "independent"


def _few(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:5])) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
