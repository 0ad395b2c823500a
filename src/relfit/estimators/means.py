"""Means of models over items with their covariance: strata, groups in one way or two, series,
training runs and judges, labels by people, items that some models lack.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.data.scored import FEWEST_ITEMS, Scores, as_text
from relfit.estimators.holes import additive_means
from relfit.stats.crossed import Factor, crossed, factor_notes, judges, runs
from relfit.stats.dependence import (
    cluster_freedom,
    pair_variances,
    satterthwaite_freedom,
    series_law,
    welch_freedom,
)
from relfit.stats.joint import Psi
from relfit.util.arrays import Array, Rows
from relfit.util.checks import check_number
from relfit.util.errors import InputError
from relfit.util.text import listed

# The fewest groups, and degrees of freedom below which a note tells of them.
FEWEST_GROUPS = 6
FEW_DEGREES = 10.0
# The means of the models over items, ψ rows, and degrees of freedom or None.
Means = tuple[Array, Psi, Array | None]


@dataclass(frozen=True)
class ItemMeans:
    """The means of the models over the items, and how far they may be from the truth.

    Attributes:
        values, psi: the means, and the contributions of items or groups.
        covariance: V where it is not that of the ψ rows, else None.
        freedom: (l, l) degrees of freedom, or None where they follow from the number of rows.
        strata: (n,) the stratum of each item, or None.
        groups, components, design, binary: as in `JointEstimate`.
        notes: sentences about the design.
    """

    values: Array
    psi: Psi
    covariance: Array | None = None
    freedom: Array | None = None
    strata: Rows | None = None
    groups: tuple[int, ...] | None = None
    components: dict[str, float] | None = None
    design: str | None = None
    binary: bool = False
    notes: tuple[str, ...] = ()


def item_means(table: Scores, rows: Array, dependence: str, lags: int | None) -> ItemMeans:
    """The means of losses `rows` (n, l), smaller is better, of a table with this design."""
    if table.labels is not None:
        return _with_labels(table, rows)
    codes = np.zeros(len(rows), dtype=np.intp)
    parts = np.ones(1)
    design = []
    if table.strata is not None:
        codes, parts, count = _strata(table.strata, table.weights)
        design = [f"macro average over {count} strata"] if count > 1 else []
    members = None
    groups = None
    if table.groups is not None:
        members, groups = _members(table.groups)
    holes = bool(np.isnan(rows).any())

    def means(rows: Array, members: Rows | None = members) -> Means:
        if holes:
            return _additive(rows, codes, parts, members)
        return row_means(rows, codes, parts, members)

    values, psi, freedom = means(rows)
    found = ItemMeans(values, psi, None, freedom, codes, groups)
    if dependence == "series":
        found, words = _series(table, found, lags)
        design.append(words)
    elif members is not None and groups is not None and freedom is not None:
        alone = means(rows, None)[1].covariance()
        effect = design_effect(psi.covariance(), alone, members)
        found = replace(found, notes=(*effect, *_few_groups(*groups, freedom)))
    factors = _factors(table, means, rows)
    if factors:
        design += [factor.words for factor in factors]
        found = _with_factors(found, factors, table.names, len(rows))
    if holes:
        design.append("adjusted for missing scores")
    plain = not holes and not factors and len(parts) == 1 and members is None
    binary = plain and dependence != "series" and _has_two_values(table.values)
    return replace(found, design=", ".join(design) or None, binary=binary)


def _additive(rows: Array, codes: Rows, weights: Array, members: Rows | None) -> Means:
    """`additive_means` within each stratum; the strata are put together as in `row_means`."""
    if len(weights) == 1:
        return additive_means(rows, members)
    units = len(rows) if members is None else int(members.max()) + 1
    values = np.zeros(rows.shape[1])
    psi = np.zeros((units, rows.shape[1]))
    parts = []
    for t, weight in enumerate(weights.tolist()):
        there = np.flatnonzero(codes == t)
        names, own = there, None
        if members is not None:
            names, own = np.unique(members[there], return_inverse=True)
            if t and np.any(psi[names]):
                raise InputError(
                    "groups: expected each group in one stratum, got one in several, which "
                    "missing scores cannot be adjusted for yet"
                )
        means, rows_psi, freedom = additive_means(rows[there], own)
        values += weight * means
        count = len(names)
        psi[names] = weight * np.asarray(rows_psi.reference) / math.sqrt(count * (count - 1.0))
        parts.append((weight**2 * pair_variances(rows_psi.covariance()), freedom))
    return values, Psi(math.sqrt(units * (units - 1.0)) * psi), welch_freedom(parts)


def _with_labels(table: Scores, judge: Array) -> ItemMeans:
    """A judge's scores, corrected by people's scores of some items."""
    sign = -1.0 if table.higher_is_better else 1.0
    rows, codes, count = _corrected_by_people(judge, sign * np.asarray(table.labels))
    values, psi, freedom = row_means(rows, codes, np.ones(2), None)
    design = f"a judge corrected by people on {count} of {len(rows)} items"
    return ItemMeans(values, psi, None, freedom, codes, design=design)


def _members(labels: NDArray[Any]) -> tuple[Rows, tuple[int]]:
    """The group of each item, and the number of groups."""
    names, members = np.unique(labels, return_inverse=True)
    if len(names) < FEWEST_GROUPS:
        raise InputError(
            f"groups: expected at least {FEWEST_GROUPS} groups of items, got {len(names)}"
        )
    return members.ravel(), (len(names),)


# ── series ────────────────────────────────────────────────────────────────────────────────────


def _series(table: Scores, means: ItemMeans, lags: int | None) -> tuple[ItemMeans, str]:
    """The means of items, or of groups in the order of their labels, that follow each other
    in time; and what the design is called.
    """
    rows = np.asarray(means.psi.reference)
    name = "a series"
    if table.groups is not None:
        labels = np.unique(table.groups).tolist()
        if len(labels) < FEWEST_ITEMS:
            raise InputError(
                f"groups: expected at least {FEWEST_ITEMS} groups in a series, got "
                f"{len(labels)}; leave out dependence to take the groups as independent"
            )
        first, last = as_text(labels[0]), as_text(labels[-1])
        name = f"a series of {len(labels)} groups from {first} to {last}"
    if lags is not None:
        words = f"{name} with {lags} {'lag' if lags == 1 else 'lags'}"
        return replace(means, psi=Psi(rows, lags=lags), freedom=None), words
    law = series_law(rows)
    words = f"{name} with autocorrelation {law.autocorrelation:.2f}"
    psi = Psi(rows, lags=law.lags)
    return replace(means, psi=psi, covariance=law.covariance, freedom=law.freedom), words


# ── runs, judges, and a second grouping ───────────────────────────────────────────────────────


def _factors(table: Scores, means: Callable[..., Means], rows: Array) -> list[Factor]:
    """What is crossed with the items: another grouping of them, training runs, judges."""
    sign = -1.0 if table.higher_is_better else 1.0
    found = []
    if table.crossed is not None:
        found.append(_other_groups(table, means, rows))
    if table.runs is not None:
        found.append(runs(sign * table.runs, means))
    if table.judges is not None:
        found.append(judges(sign * table.judges, means))
    return found


def _other_groups(table: Scores, means: Callable[..., Means], rows: Array) -> Factor:
    """The second of two groupings of the items."""
    first, _ = _members(np.asarray(table.groups))
    second, (count,) = _members(np.asarray(table.crossed))
    cells = np.unique(first * count + second, return_inverse=True)[1].ravel()
    _, psi, freedom = means(rows, second)
    _, psi_cells, freedom_cells = means(rows, cells)
    of_groups = np.asarray(freedom)
    of_cells = np.full(of_groups.shape, len(rows) - 1.0)
    of_cells = of_cells if freedom_cells is None else freedom_cells
    return Factor(
        "groups", count, psi.covariance(), psi_cells.covariance(), of_groups, of_cells
    )


def _with_factors(
    means: ItemMeans, factors: list[Factor], names: Sequence[str], n: int
) -> ItemMeans:
    """The means with what the factors add to their covariance."""
    items = means.psi.covariance() if means.covariance is None else means.covariance
    own = np.full(items.shape, n - 1.0) if means.freedom is None else means.freedom
    covariance, freedom = crossed(items, own, factors)
    notes, parts = factor_notes(items, factors, means.values, names, n)
    return replace(
        means,
        covariance=covariance,
        freedom=freedom,
        notes=(*means.notes, *notes),
        components=parts,
    )


def design_effect(grouped: Array, alone: Array, members: Rows) -> list[str]:
    """A note on the intraclass correlation ρ and the design effect of groups of several items.

    The design effect d is the mean variance of the differences of all pairs of models, over
    the same for independent items. ``d = 1 + (m − 1) ρ`` with m = Σ_g n_g²/n (Kish 1965).
    """
    whole = float(pair_variances(grouped).sum())
    items = float(pair_variances(alone).sum())
    if len(grouped) > 1:
        whole -= float(np.trace(grouped))
        items -= float(np.trace(alone))
    effect = whole / items if items > 0.0 else 1.0
    n = len(members)
    size = float(np.square(np.bincount(members)).sum()) / n
    if size <= 1.0:
        return []
    correlation = (effect - 1.0) / (size - 1.0)
    return [
        f"items of one group: intraclass correlation {correlation:.2f} of the differences, "
        f"design effect {effect:.2g}, so {n} items count as about {n / max(effect, 1.0):.0f} "
        f"independent ones"
    ]


# ── plain means, strata and groups ────────────────────────────────────────────────────────────


def _few_groups(groups: int, freedom: Array) -> list[str]:
    """A note on groups that are few, or of which few decide."""
    fewest = float(freedom.min())
    if groups >= FEWEST_ITEMS and fewest >= FEW_DEGREES:
        return []
    return [
        f"{groups} groups of items leave about {fewest:.0f} degrees of freedom (t "
        f"distribution), so only large differences can be shown: collect more groups"
    ]


def _has_two_values(scores: Array) -> bool:
    """True if every score is 0 or one other number, such as 1, or 100 for a percentage."""
    # The first rows tell of nearly all other scores.
    for rows in (scores[:20], scores):
        high = float(rows.max()) or float(rows.min())
        if not ((rows == 0.0) | (rows == high)).all():
            return False
    return True


def row_means(
    rows: Array, codes: Rows, weights: Array, members: Rows | None
) -> tuple[Array, Psi, Array | None]:
    """D = Σ_t w_t mean_t over the strata t, its ψ rows, one for each item or each group, and
    degrees of freedom.

    U_a = w_t (x_a − mean_t)/n_t are the items' contributions to D. Those of a group in a
    stratum are added up and divided by √(1 − h), h the part of the stratum's items that are
    in the group (CR2, `stats.dependence`), and U_g is what the group has in all strata. Of G
    groups ψ_g = √(G(G − 1)) U_g, so that ψᵀψ/(G(G − 1)) = Σ_g U_g U_gᵀ, which is
    Σ_t w_t² cov_t/n_t for groups of one item.

    The degrees of freedom of the differences (l, l) are Welch's and Satterthwaite's over the
    strata, with those of clusters in each; None for the items of a single stratum.
    """
    sizes = np.bincount(codes)
    if len(sizes) == 1:
        values = rows.mean(axis=0)
        if members is None:
            return values, Psi(rows - values), None
        means = values[None]
    else:
        means = np.stack([rows[codes == t].mean(axis=0) for t in range(len(sizes))])
        values = np.asarray(weights @ means)
    centred = rows - means[codes]
    if members is None:
        return values, *_item_psi(centred, codes, weights / sizes)
    cells, cell = np.unique(members * len(sizes) + codes, return_inverse=True)
    groups, strata = np.divmod(cells, len(sizes))
    share = np.bincount(cell) / sizes[strata]
    _refuse_single(share)
    units = int(groups.max()) + 1
    scale = math.sqrt(units * (units - 1.0)) * weights[strata] / sizes[strata]
    scale /= np.sqrt(1.0 - share)
    psi = np.zeros((units, rows.shape[1]))
    np.add.at(psi, members, centred * scale[cell][:, None])
    if len(cells) > units:
        # Groups in several strata: clusters of their parts of D, and nothing within them.
        part = np.zeros(units)
        np.add.at(part, groups, weights[strata] * np.bincount(cell) / sizes[strata])
        none = np.zeros((rows.shape[1],) * 2)
        freedom = satterthwaite_freedom(part, (part, np.square(part)), (none, none + 1.0))
        return values, Psi(psi), freedom
    parts = []
    for t in range(len(sizes)):
        there = codes == t
        own = np.unique(members[there], return_inverse=True)[1]
        total = psi[groups[strata == t]]
        parts.append((pair_variances(total.T @ total), cluster_freedom(centred[there], own)))
    return values, Psi(psi), welch_freedom(parts)


def _item_psi(centred: Array, codes: Rows, weights: Array) -> tuple[Psi, Array]:
    """The ψ rows and degrees of freedom of `row_means` for items that are no groups, from the
    weight of an item in each stratum.
    """
    n, count = centred.shape
    sizes = np.bincount(codes)
    _refuse_single(1.0 / sizes)
    scale = math.sqrt(n * (n - 1.0)) * weights / np.sqrt(1.0 - 1.0 / sizes)
    psi = centred * scale[codes][:, None]
    parts = []
    for t, size in enumerate(sizes.tolist()):
        own = psi[codes == t]
        parts.append((pair_variances(own.T @ own), np.full((count, count), size - 1.0)))
    return Psi(psi), welch_freedom(parts)


def _refuse_single(share: Array) -> None:
    """Refuse a stratum all of whose items are one item, or in one group."""
    if (share == 1.0).any():
        raise InputError(
            "strata: expected at least 2 items (or groups) in every stratum, got one with fewer"
        )


def _strata(
    labels: NDArray[Any], weights: Mapping[Any, float] | None
) -> tuple[Rows, Array, int]:
    """The stratum of each item, the weights of the strata, which add up to 1, and their
    number.
    """
    names, codes = np.unique(labels, return_inverse=True)
    keys = [as_text(name) for name in names.tolist()]
    if weights is None:
        return codes.ravel(), np.full(len(keys), 1.0 / len(keys)), len(keys)
    given = (
        {as_text(key): weight for key, weight in weights.items()}
        if isinstance(weights, Mapping)
        else {}
    )
    if set(given) != set(keys):
        shown = listed(keys, quote=repr)
        raise InputError(
            f"weights: expected a mapping with a weight for each stratum "
            f"({shown}), got {weights!r:.80}"
        )
    parts = [
        check_number(f"weight of {key!r}", given[key], 0.0, math.inf, "a number above 0")
        for key in keys
    ]
    return codes.ravel(), np.array(parts) / sum(parts), len(keys)


# ── labels by people ──────────────────────────────────────────────────────────────────────────


def _corrected_by_people(judge: Array, people: Array) -> tuple[Array, Rows, int]:
    """The rows whose means over the two parts, items with labels (0) and without (1), add up
    to D.
    """
    labelled = np.asarray(~np.isnan(people).any(axis=1))
    count = int(labelled.sum())
    rest = int((~labelled).sum())
    if min(count, rest) < FEWEST_ITEMS:
        raise InputError(
            f"labels: expected at least {FEWEST_ITEMS} items with labels for every model and "
            f"as many without, got "
            f"{count} and {rest}"
        )
    human = people[labelled]
    of_judge = judge[labelled]
    products = (human - human.mean(0)) * (of_judge - of_judge.mean(0))
    total = products.sum(0)
    # The slope for an item is estimated without it: otherwise it would follow the item's own
    # error.
    others = (total - count / (count - 1.0) * products) / (count - 2.0)
    parts = _slope(total / (count - 1.0), judge, count / rest) * judge
    parts[labelled] = human - _slope(others, judge, count / rest) * of_judge
    return parts, np.asarray(~labelled, dtype=np.intp), count


def _slope(covariance: Array, judge: Array, ratio: float) -> Array:
    """λ = cov/((1 + n/N) var(judge)), between 0 and 1; 0 for a judge that gives one score."""
    variance = np.broadcast_to((1.0 + ratio) * judge.var(axis=0, ddof=1), covariance.shape)
    slope = np.divide(covariance, variance, out=np.zeros_like(covariance), where=variance > 0.0)
    return np.asarray(np.clip(slope, 0.0, 1.0))
