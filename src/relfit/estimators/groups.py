"""Rows that come in groups: several completions of a prompt, frames of a video.

Rows of one group depend on each other, groups do not. So pairs within a group are left out of every mean, which keeps D
unbiased, and ψ is summed by group, which makes V right whatever the dependence within.

Let n_g be the size of group g, h(a) the mean of the kernel k(a, ·) over another group's rows and θ the mean of k over
pairs of different groups, of which there are P = n² − Σ n_g². The estimate of θ is Σ_a S_a/P, S_a the sum of k(a, b)
over the rows b of other groups, and to first order it is

    θ + Σ_g U_g,   U_g = (2/P)(n − n_g) Σ_{a∈g} (h(a) − θ),   estimated by   (2/P) Σ_{a∈g} (S_a − (n − n_g) θ̂).

The U_g are independent with mean 0, so its variance is estimated by Σ_g U_g² G/(G − 1): that of the ψ rows ψ_g = G U_g.
With one row per group all this is the usual estimate.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.data.arrays import group_labels
from relfit.data.load import Data
from relfit.estimators.base import Dependence, EstimateSettings, Estimator, Groups, PairDesign
from relfit.estimators.split import split, take
from relfit.util.arrays import Array, Rows
from relfit.util.errors import InputError
from relfit.util.random import stream

REFERENCE = "reference"
# Pairs of rows evaluated at once: bounds the temporaries.
PAIR_CHUNK = 16_384


@dataclass(frozen=True)
class SumsApart:
    """Sums of a kernel over pairs of different groups, seen from one side's rows, and in how many pairs each row is."""

    sums: Array
    others: Array

    @property
    def mean(self) -> Array:
        """The mean over all pairs: (l,), or a number."""
        return np.asarray(self.sums.sum(axis=0) / self.others.sum())

    def parts(self) -> Array:
        """The rows' first-order contributions to the mean, for one side of a pair; they add up to 0."""
        others = self.others if self.sums.ndim == 1 else self.others[:, None]
        return np.asarray((self.sums - others * self.mean) / self.others.sum())


def by_group(values: Array, codes: Rows, count: int) -> Array:
    """ψ_g = G U_g (count, l) for the mean of rows: contributions (n, l), centred over n, summed by group."""
    return summed_by_group((values - values.mean(axis=0)) / len(values), codes, count)


def summed_by_group(parts: Array, codes: Rows, count: int) -> Array:
    """G times the sum of each group's contributions: (count, …)."""
    total = np.zeros((count, *parts.shape[1:]))
    np.add.at(total, codes, parts)
    return count * total


def sums_within(values: Callable[[Rows, Rows], Array], codes: Rows, count: int) -> Array:
    """(n, count) sums over the other rows of each row's own group."""
    near = np.zeros((len(codes), count))
    for a, b in same_group(codes, codes):
        different = a != b
        near[a[different]] += values(a[different], b[different])
    return near


def same_group(x: Rows, y: Rows) -> Iterator[tuple[Rows, Rows]]:
    """Every pair of a row of x and a row of y in the same group, in parts of at most PAIR_CHUNK pairs.

    A row of x occurs once in a part.
    """
    count = 1 + int(max(x.max(), y.max()))
    sizes = np.bincount(y, minlength=count)
    order, start = np.argsort(y, kind="stable"), np.cumsum(sizes) - sizes
    for k in range(int(sizes[x].max())):
        rows = np.flatnonzero(sizes[x] > k)
        for cut in range(0, len(rows), PAIR_CHUNK):
            part = rows[cut : cut + PAIR_CHUNK]
            yield part, order[start[x[part]] + k]


def make_groups(given: Any, data: Data, dependence: Dependence, estimator: Estimator) -> Groups:
    """Group numbers from labels: an array for rows that all belong together, or a mapping of names to labels.

    The reference's labels have the key "reference" (or None, where a model has that name). Samples left out of the
    mapping have independent rows. Labels of different samples have nothing to do with each other, unless the models
    are "shared" (their labels are common) or "paired" (the reference's too).
    """
    if isinstance(estimator, PairDesign):
        raise InputError(f'groups: expected estimator="complete", got {estimator.name!r}')
    if dependence == "chain":
        raise InputError('groups: cannot be combined with dependence="chain", which makes batches of its own')
    if estimator.corrected:
        raise InputError('groups: cannot be combined with variance="corrected"; use variance="projection"')
    labels = _labels(given, data, dependence)
    codes: dict[str | None, Rows] = {}
    for family in _families(data, dependence):
        missing = [key for key in family if key not in labels]
        if len(family) > 1 and missing:
            who = "the reference" if missing[0] is None else f"model {missing[0]!r}"
            raise InputError(f"groups: expected labels for {who} too, since dependence={dependence!r} joins them")
        found = [labels.get(key, np.arange(_size(data, key))) for key in family]
        codes.update(zip(family, _numbered(found), strict=True))
    return Groups(codes, _counts(codes, data, dependence))


def group_counts(data: Data, groups: Groups) -> tuple[int, ...]:
    """The numbers of groups, in the order of `JointEstimate.sizes`."""
    counts = {key: len(np.unique(codes)) for key, codes in groups.codes.items()}
    return (counts.get(None, 0), *(counts[name] for name in data.samples))


def split_rows(
    data: Data, settings: EstimateSettings, fraction: float
) -> tuple[tuple[Data, EstimateSettings], tuple[Data, EstimateSettings]]:
    """Disjoint random parts of every sample, whole groups where there are groups: to select with, and to test with."""
    if settings.groups is None:
        selection, testing = split(data, fraction, settings.dependence, settings.seed)
        return (selection, settings), (testing, settings)
    chosen = _chosen_groups(data, settings, settings.groups, fraction)
    first, second = (
        {key: np.flatnonzero(np.isin(codes, chosen[key]) == wanted) for key, codes in settings.groups.codes.items()}
        for wanted in (True, False)
    )
    return _part(data, settings, settings.groups, first), _part(data, settings, settings.groups, second)


def _labels(given: Any, data: Data, dependence: Dependence) -> dict[str | None, Any]:
    if isinstance(given, Mapping):
        return _named_labels(given, data)
    together = data.kind == "densities" or dependence == "paired" or (data.kind == "target" and dependence == "shared")
    if not together:
        raise InputError(
            f"groups: expected each sample's own labels, since not all share their groups (dependence {dependence}), "
            f"got one list for all ({type(given).__name__}); name a column of every file, or in Python give a mapping "
            '{"reference": labels, "model": labels}'
        )
    keys: list[str | None] = [*([] if data.kind == "target" else [None]), *data.samples]
    return {key: group_labels("groups", given, _size(data, key)) for key in keys}


def _named_labels(given: Mapping[Any, Any], data: Data) -> dict[str | None, Any]:
    out: dict[str | None, Any] = {}
    for name, labels in given.items():
        key = None if name == REFERENCE and REFERENCE not in data.names else name
        sampled = (key is None and data.target is None) or key in data.samples or key in data.copies
        if not sampled:
            raise InputError(f"groups: expected names of samples among the keys, got {reprlib.repr(name)}")
        if key not in data.copies:
            out[key] = group_labels(f"groups of {name!r}", labels, _size(data, key))
    return out


def _families(data: Data, dependence: Dependence) -> list[list[str | None]]:
    """Which samples number their groups in common."""
    reference: list[str | None] = [] if data.target is not None else [None]
    models: list[str | None] = list(data.samples)
    if dependence == "paired":
        return [[*reference, *models]]
    if dependence == "shared":
        return [part for part in (reference, models) if part]
    return [[key] for key in (*reference, *models)]


def _counts(codes: Mapping[str | None, Rows], data: Data, dependence: Dependence) -> dict[str | None, int]:
    out: dict[str | None, int] = {}
    for family in _families(data, dependence):
        count = 1 + max(int(codes[key].max()) for key in family)
        out.update(dict.fromkeys(family, count))
    return out


def _numbered(labels: Sequence[NDArray[Any]]) -> list[Rows]:
    """Labels of several samples as whole numbers from 0, the same number for the same label."""
    numbers = np.unique(np.concatenate(labels), return_inverse=True)[1]
    return np.split(numbers, np.cumsum([len(part) for part in labels])[:-1])


def _size(data: Data, key: str | None) -> int:
    return len(data.reference) if key is None else len(data.samples[key])


def _chosen_groups(data: Data, settings: EstimateSettings, groups: Groups, fraction: float) -> dict[str | None, Rows]:
    """Groups of the selection share: drawn once for samples that belong together, as rows are in `row_orders`."""
    chosen: dict[str | None, Rows] = {}
    for family in _families(data, settings.dependence):
        for key in family:
            count = groups.counts[key]
            own = "reference" if key is None and settings.dependence != "paired" else "models"
            order = stream(settings.seed, "split", own).permutation(count)
            chosen[key] = order[: max(1, round(fraction * count))]
    return chosen


def _part(
    data: Data, settings: EstimateSettings, groups: Groups, rows: Mapping[str | None, Rows]
) -> tuple[Data, EstimateSettings]:
    codes: dict[str | None, Rows] = {}
    for family in _families(data, settings.dependence):
        kept = [groups.codes[key][rows[key]] for key in family]
        codes.update(zip(family, _numbered(kept), strict=True))
    part = take(data, {None: np.arange(0), **rows})
    return part, replace(settings, groups=Groups(codes, _counts(codes, data, settings.dependence)))
