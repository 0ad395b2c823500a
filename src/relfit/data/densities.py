"""Densities at the rows of the data: what their scores and log densities show, which are
copies, and where they end.

KSD of the true model is 0 by integration by parts, whose boundary term is p times the kernel
at the edges of the support. It is not 0 where a density stops without vanishing and data lie
at the edge, as with an exponential or a uniform distribution. There KSD is refused in one
line, or replaced by the log-likelihood. A density that vanishes at its edge, or whose edge no
data come near, has no such term.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.data.models import (
    LARGEST_SCORE,
    Density,
    count_rows,
    naming,
    score_parts,
    scores_of,
)
from relfit.util.arrays import Array, Rows, parts
from relfit.util.errors import InputError
from relfit.util.text import listed

LogProbs = Callable[[Array], NDArray[Any]]

# Scores are first compared at this many rows; only pairs that agree there are compared at all
# rows.
_COMPARED_ROWS = 256
# Rows at which log densities and scores of two models are compared, and the most models that
# are.
_ROWS = 500
_MODELS = 20
# The part of the rows left out at either end: rare rows between two modes have slopes that KSD
# does not notice.
_TAIL = 0.02
# Log densities differ if by this many nats, and slopes do not if they explain only this part of
# that. Of smooth densities on one cluster of rows they explain at least a tenth, heavy tails
# included.
_NATS = 0.1
_PART = 0.05
_MOST_PAIRS = 3
# The draws of each model at which a target is examined, and the most densities that a message
# names.
_DRAWS = 1000
_MOST_NAMED = 3
_HARM = "there KSD and FSSD find even the true model worse"
# How a note ends on a comparison by log densities where KSD was the default.
INSTEAD = 'discrepancy="loglik" was used instead'
_BISECTIONS = 60
# Data are near an edge if so many rows lie within so much of it, in units of the column's
# spread divided by the root of the number of rows: fewer change KSD² by far less than its
# standard error. At most half the spread.
_NEAR = 10.0
_NEAR_ROWS = 3
_NEAREST = 0.5
# A density that goes down like this power of the distance, or faster, vanishes at the edge for
# KSD. Of true gamma densities x^a exp(-x) none was found worse more often than alpha from a =
# 0.2 on; at a = 0.05 half of them were.
_POWER = 0.25
# The distances from the edge at which the power is measured, in units of the column's spread.
_EDGE_STEPS = (1e-4, 1e-6)
# The columns up to which each is searched by itself, without looking at the corners of the data
# first.
_COLUMNS = 20
# The rows of files that are read, and those of which one is the centre.
_SPREAD_ROWS = 4000
_CENTRAL_ROWS = 200


def _copies(names: Iterable[str], same: Callable[[str, str], bool]) -> dict[str, str]:
    """Copy → original, the first name that is the same."""
    originals: list[str] = []
    copies: dict[str, str] = {}
    for name in names:
        original = next((other for other in originals if same(name, other)), None)
        if original is None:
            originals.append(name)
        else:
            copies[name] = original
    return copies


# ── scores ────────────────────────────────────────────────────────────────────────────────────


def score_copies(reference: Array, models: Mapping[str, Density]) -> dict[str, str]:
    """Copy → original, the first density that has the same scores at every row of the
    reference.
    """
    some = {name: _some_scores(name, model, reference) for name, model in models.items()}

    def same(a: str, b: str) -> bool:
        blocks = (reference[part] for part in parts(reference.shape))
        every = ((scores_of(a, models[a], x), scores_of(b, models[b], x)) for x in blocks)
        return _same_scores([(some[a], some[b])]) and _same_scores(every)

    return _copies(models, same)


def _some_scores(name: str, model: Density, reference: Array) -> Array:
    step = max(1, len(reference) // _COMPARED_ROWS)
    try:
        return model.scores(reference[::step])
    except InputError:
        # Evaluated again at every row, so that the error counts the rows of the whole
        # reference.
        with naming(f"model {name!r}"):
            for _ in score_parts(model, reference):
                pass
        raise


def _same_scores(blocks: Iterable[tuple[Array, Array]]) -> bool:
    """True if the scores of two densities differ by rounding only, relative to the score or
    to the typical score.
    """
    total = 0.0
    count = 0
    largest = 0.0
    for a, b in blocks:
        size = np.maximum(np.abs(a), np.abs(b))
        difference = np.abs(a - b)
        total += float(size.sum())
        count += size.size
        largest = max(largest, float(difference[difference > 1e-12 * size].max(initial=0.0)))
    return largest <= 1e-12 * total / count


def score_notes(reference: Array, densities: Mapping[str, Density]) -> list[str]:
    """What a reader should know about the densities' scores at the data, each note with the
    models it is about.
    """
    models_with: dict[str, list[str]] = {}
    for name, density in densities.items():
        with naming(f"model {name!r}"):
            for note in density.notes(reference):
                models_with.setdefault(note, []).append(repr(name))
    return [f"{', '.join(names)}: {note}" for note, names in models_with.items()]


# ── log densities ─────────────────────────────────────────────────────────────────────────────


def log_densities(rows: Array, densities: Mapping[str, Density]) -> Array:
    """(n, l) log p of every model at every row, −inf where a density is 0; NaN and infinite
    densities are refused.
    """
    columns = []
    for name, density in densities.items():
        with naming(f"model {name!r}"):
            _check_normalised(density)
            column = density.log_probs(rows).astype(np.float64, copy=False)
            bad = ~(np.abs(column) < LARGEST_SCORE) & ~np.isneginf(column)
            if bad.any():
                raise InputError(
                    f"log_prob: expected numbers below {LARGEST_SCORE:g} in size, or -inf "
                    f"where the density is 0, got "
                    f"{column[bad][0]:g} at {count_rows(bad, rows)}"
                )
            columns.append(column)
    return np.stack(columns, axis=1)


def check_same_unit(densities: Mapping[str, Density]) -> None:
    """Refuse probability mass functions together with densities: the one has no unit, the
    other that of the data.
    """
    masses = [name for name, each in densities.items() if each.support == "discrete"]
    others = [name for name in densities if name not in masses]
    if masses and others:
        raise InputError(
            f"models: expected all densities or all probability mass functions, got "
            f"{masses[0]!r}, which is discrete, "
            f"and {others[0]!r}, which is not; their log-likelihoods cannot be compared"
        )


def _check_normalised(density: Density) -> None:
    if density.log_prob is None:
        raise InputError(
            'discrepancy="loglik": expected a density with log_prob, got one '
            'with a score only; use "ksd"'
        )
    if density.normalised is None:
        raise InputError(
            'discrepancy="loglik": expected a normalised density, and of this one it is not '
            "known; if it is, say "
            'Density(log_prob=..., normalised=True), otherwise use "ksd", which needs '
            "no constant"
        )
    if not density.normalised:
        raise InputError(
            'discrepancy="loglik": expected a normalised density, got one known up to a '
            'constant; use "ksd", which '
            "needs none"
        )


def likelihood_copies(log_probs: Array, names: list[str]) -> dict[str, str]:
    """Copy → original, the first model with the same log density at every row, to rounding."""
    columns = dict(zip(names, log_probs.T, strict=True))
    return _copies(names, lambda a, b: _same_log_probs(columns[a], columns[b]))


def _same_log_probs(a: Array, b: Array) -> bool:
    finite = np.isfinite(a)
    if not np.array_equal(finite, np.isfinite(b)):
        return False
    size = np.maximum(np.abs(a[finite]), np.abs(b[finite]))
    difference = np.abs(a[finite] - b[finite])
    return bool((difference <= 1e-12 * np.maximum(size, 1.0)).all())


def impossible_models(log_probs: Array, names: list[str], rows: Array) -> dict[str, int]:
    """The models that give density 0 to some rows, and to how many; refused if there are no
    others.
    """
    bad = np.isneginf(log_probs)
    counts = {
        name: int(count) for name, count in zip(names, bad.sum(axis=0), strict=True) if count
    }
    if len(counts) == len(names):
        raise InputError(
            f"models: expected one with a positive density at every row, but all have density "
            f"0 at some, model "
            f"{names[0]!r} at {count_rows(np.asarray(bad[:, 0]), rows)}; leave out such rows, "
            f"or make the models allow "
            "for them"
        )
    return counts


def likelihood_notes(
    log_probs: Array, names: list[str], densities: Mapping[str, Density], rows: Array
) -> list[str]:
    """What a reader should know: density 0 at some rows, and log densities in less than
    double precision.
    """
    notes = []
    for name, bad in zip(names, np.isneginf(log_probs).T, strict=True):
        if bad.any():
            notes.append(
                f"{name!r} has density 0 (log density -inf) at {count_rows(bad, rows)}: "
                "under this model "
                "they are impossible, so that it is worse than every model that allows for them"
            )
    short: dict[str, list[str]] = {}
    for name in names:
        # Of two rows: some functions give a bare number for one.
        dtype = densities[name].log_probs(rows[:2]).dtype
        if dtype.itemsize < 8:
            digits = np.finfo(dtype).precision
            text = f"log densities computed in {dtype}, to about {digits} digits"
            short.setdefault(text, []).append(repr(name))
    return notes + [f"{', '.join(whose)}: {text}" for text, whose in short.items()]


def unseen_heights(densities: Mapping[str, Density], reference: Array) -> tuple[str, ...]:
    """A note on models whose log densities differ where the data are, while their scores,
    all that KSD sees, do not.

    f = log p_i − log p_j varies by about ‖∇f‖ times the width of the data where the rows
    hang together. Where they do not, as in separated modes to which the models give other
    weights, it can vary without any slope at the rows.

    >>> from relfit.data.adapters.scipy_sklearn import gaussian_mixture
    >>> means, roots = np.array([[-4.0], [4.0]]), np.ones((2, 1, 1))
    >>> models = {
    ...     f"{w}": gaussian_mixture(np.array([w, 1.0 - w]), means, roots) for w in (0.5, 0.65)
    ... }
    >>> x = np.random.default_rng(0).normal(size=(400, 1)) + np.repeat(
    ...     [[-4.0], [4.0]], 200, axis=0
    ... )
    >>> unseen_heights(models, x)[0][:75]
    "KSD does not see how '0.5' and '0.65' differ: where the data are, their log"
    """
    rows = np.asarray(reference[:: max(1, -(-len(reference) // _ROWS))])
    named = [name for name, density in densities.items() if density.log_prob is not None]
    names = named[:_MODELS]
    if len(names) < 2:
        return ()
    log_probs = {name: densities[name].log_probs(rows).astype(np.float64) for name in names}
    try:
        scores = {name: densities[name].scores(rows) for name in names}
    except InputError:
        # Said again, of all rows and with the name of the model, when the scores are used.
        return ()
    width = float(np.linalg.norm(_spread(rows)))
    pairs = []
    for a, b in combinations(names, 2):
        apart = float(_spread(log_probs[a] - log_probs[b]))
        slopes = np.linalg.norm(scores[a] - scores[b], axis=1)
        slope = float(
            np.sqrt(np.square(slopes[slopes <= np.quantile(slopes, 1.0 - _TAIL)]).mean())
        )
        if apart >= _NATS and slope * width <= _PART * apart:
            pairs.append((a, b, apart))
    if not pairs:
        return ()
    shown = "; ".join(f"{listed([a, b], quote=repr)}" for a, b, _ in pairs[:_MOST_PAIRS])
    more = f" (and {len(pairs) - _MOST_PAIRS} more pairs)" if len(pairs) > _MOST_PAIRS else ""
    return (
        f"KSD does not see how {shown}{more} differ: where the data are, their log densities "
        f"differ by about "
        f"{max(apart for *_, apart in pairs):.2g} nats and their slopes do not, as with other "
        f"weights of separated "
        'modes; compare them by discrepancy="loglik" too, if they are normalised',
    )


def _spread(values: Array) -> Array:
    """Half the distance between the outer quantiles of each column."""
    low, high = np.quantile(values, [_TAIL, 1.0 - _TAIL], axis=0)
    return np.asarray((high - low) / 2.0)


# ── where densities end ───────────────────────────────────────────────────────────────────────


def ends(densities: Mapping[str, Density], x: Array) -> list[str]:
    """The densities that end without vanishing where the rows are, each with the place, in
    words.
    """
    extent = Extent(x)
    edges = {name: harmful_edge(density, extent) for name, density in densities.items()}
    return [
        f"{name!r} at {edge.place(x.shape[1])}"
        for name, edge in edges.items()
        if edge is not None
    ]


def refusal(densities: Mapping[str, Density], places: list[str]) -> InputError:
    """The error for densities that KSD and FSSD cannot compare on these data."""
    advice = 'use discrepancy="loglik"'
    if not all(density.normalised for density in densities.values()):
        advice = (
            'use discrepancy="loglik" if the densities are normalised, discrepancy="mmd" if '
            "they can "
            "be sampled, or transform the data to the whole line"
        )
    return InputError(
        "models: expected densities that vanish where their support ends, got an edge among "
        "the data "
        f"({_listed(places)}); {_HARM}: {advice}"
    )


def instead(places: list[str]) -> str:
    """The note on a comparison by log densities where KSD was the default.

    Without places, some models have density 0 at some rows.
    """
    if not places:
        return (
            f"some models have density 0 at some rows, where KSD needs positive densities: "
            f"{INSTEAD}"
        )
    return (
        f"densities end among the data without vanishing ({_listed(places)}), and {_HARM}: "
        f"{INSTEAD}"
    )


def _listed(places: list[str]) -> str:
    return listed(places, most=_MOST_NAMED, quote=str)


def check_target(target: Density, samples: Iterable[Array]) -> None:
    """Refuse a target that ends without vanishing where the draws are."""
    draws = np.concatenate([np.asarray(x[:: max(1, -(-len(x) // _DRAWS))]) for x in samples])
    edge = harmful_edge(target, Extent(draws))
    if edge is not None:
        raise InputError(
            f"reference: expected a density that vanishes where it ends, got an edge at "
            f"{edge.place(draws.shape[1])}, "
            "where there are draws; there KSD finds even exact draws worse: transform the "
            "draws and "
            "the density to the whole line, or give draws of the target as the reference"
        )


@dataclass(frozen=True)
class Edge:
    """The end of a support along a column.

    Attributes:
        column, position: where it is.
        vanishes: the density goes to 0 there, fast enough for KSD.
        near: there are data near it.
    """

    column: int
    position: float
    vanishes: bool
    near: bool

    @property
    def harmful(self) -> bool:
        """True if even the true model would be found worse there by KSD."""
        return self.near and not self.vanishes

    def place(self, columns: int) -> str:
        """The position, and the column if there are several."""
        return f"{self.position:.6g}" + (f" in column {self.column}" if columns > 1 else "")


class Extent:
    """Where the rows (n, d) lie, as far as edges are concerned; computed when it is first
    needed.
    """

    def __init__(self, x: Array) -> None:
        self.x = x

    @cached_property
    def ends(self) -> Array:
        """(2, d) the smallest and the largest number of each column."""
        return np.stack([self.x.min(axis=0), self.x.max(axis=0)])

    @cached_property
    def spreads(self) -> Array:
        """(d,) the standard deviation of a normal distribution with these quartiles; 0 for a
        constant column.
        """
        some = self.x[:: max(1, len(self.x) // _SPREAD_ROWS)]
        low, high = np.quantile(some, [0.25, 0.75], axis=0)
        spreads = (high - low) / 1.349
        for column in np.flatnonzero(~(high > low)):
            spreads[column] = self.x[:, column].std()
        return np.asarray(spreads)

    @property
    def reach(self) -> Array:
        """(d,) the distance within which rows are near an edge."""
        return np.asarray(min(_NEAREST, _NEAR / np.sqrt(len(self.x))) * self.spreads)

    @cached_property
    def centre(self) -> Array:
        """The row closest to the medians of the columns, of some."""
        some = self.x[:: max(1, len(self.x) // _CENTRAL_ROWS)]
        units = np.where(self.spreads > 0.0, self.spreads, 1.0)
        gaps = np.abs(some - np.median(some, axis=0)) / units
        return np.asarray(some[gaps.sum(axis=1).argmin()])


def harmful_edge(density: Density, extent: Extent) -> Edge | None:
    """An edge of the density at which KSD cannot be used with these rows; None if there is
    none, or it cannot be told.

    log_prob is evaluated at two points for each column just beyond the data, or only beyond
    two corners of many columns.

    >>> half_line = Density(log_prob=lambda x: np.where(x[:, 0] > 0.0, -x[:, 0], -np.inf))
    >>> x = np.random.default_rng(0).exponential(size=(200, 1))
    >>> harmful_edge(half_line, Extent(x))
    Edge(column=0, position=0.0, vanishes=False, near=True)
    >>> harmful_edge(half_line, Extent(x + 5.0)) is None
    True
    """
    if density.log_prob is None or density.support is not None:
        return None
    try:
        with np.errstate(all="ignore"):
            corners = extent.ends + np.array([[-1.0], [1.0]]) * extent.reach
            many = len(extent.centre) > _COLUMNS
            if many and np.isfinite(density.log_probs(corners)).all():
                return None
            found = edges(density.log_probs, extent.centre, extent, [extent.reach])
    # A function that accepts only the rows it was made for can raise anything.
    except Exception:  # noqa: BLE001
        return None
    return next((edge for edge in found if edge.harmful), None)


def edges(log_prob: LogProbs, top: Array, extent: Extent, reaches: Sequence[Any]) -> list[Edge]:
    """Where the support ends along the axes.

    From the row `top`, which is inside, each axis is searched in both directions, by
    bisection, up to the given distances beyond the rows: each is one number, or one for each
    column.

    >>> half_line = lambda x: np.where(x[:, 0] > 2.0, -x[:, 0], -np.inf)
    >>> (edge,) = edges(half_line, np.array([3.0]), Extent(np.array([[3.0], [6.0]])), [9.0])
    >>> edge.place(columns=1), edge.harmful
    ('2', False)
    """
    d = len(top)
    columns = np.repeat(np.arange(d), 2)
    outwards = np.tile([-1.0, 1.0], d)
    outside = np.full(2 * d, np.nan)
    for reach in reaches:
        positions = extent.ends.T.ravel() + outwards * np.broadcast_to(reach, d)[columns]
        beyond = ~np.isfinite(_along(log_prob, top, columns, positions))
        outside = np.where(np.isnan(outside) & beyond, positions, outside)
    ended = ~np.isnan(outside)
    if not ended.any() or not np.isfinite(log_prob(top[None])).all():
        return []
    columns = columns[ended]
    outwards = outwards[ended]
    outside = outside[ended]
    inside = top[columns]
    for _ in range(_BISECTIONS):
        middle = 0.5 * (inside + outside)
        in_support = np.isfinite(_along(log_prob, top, columns, middle))
        inside = np.where(in_support, middle, inside)
        outside = np.where(in_support, outside, middle)
    found = []
    for column, position, outward in zip(
        columns.tolist(), inside.tolist(), outwards.tolist(), strict=True
    ):
        unit = 1e-9 * (float(extent.spreads[column]) or 1.0)
        gaps = np.abs(extent.x[:, column] - position)
        found.append(
            Edge(
                column,
                round(position / unit) * unit + 0.0,
                _vanishes(log_prob, column, position, outward, top, extent),
                near=int((gaps <= extent.reach[column]).sum()) >= _NEAR_ROWS,
            )
        )
    return found


def _vanishes(
    log_prob: LogProbs, column: int, position: float, outward: float, top: Array, extent: Extent
) -> bool:
    """True if p goes down like a power of the distance to the edge, or is tiny there
    compared with the highest row.
    """
    # Far from 0 smaller steps than these could not be told from none.
    smallest = 1e4 * np.finfo(np.float64).eps * abs(position)
    spread = float(extent.spreads[column]) or abs(position) or 1.0
    steps = np.maximum(np.array(_EDGE_STEPS) * spread, smallest * np.array([100.0, 1.0]))
    positions = np.append(position - outward * steps, top[column])
    far, near, highest = _along(log_prob, top, np.full(3, column), positions)
    if not np.isfinite(near):
        return bool(np.isneginf(near))
    power = (far - near) / np.log(steps[0] / steps[1])
    return bool(power >= _POWER or highest - near >= 0.5 * np.log(len(extent.x)) + 1.0)


def _along(log_prob: LogProbs, top: Array, columns: Rows, positions: Array) -> Array:
    """log p at copies of the top row, each with one column moved to its position."""
    rows = np.repeat(top[None], len(columns), axis=0)
    rows[np.arange(len(columns)), columns] = positions
    return np.asarray(log_prob(rows), dtype=np.float64)
