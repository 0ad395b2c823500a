"""MMD² and KSD² of rows that come in groups: several completions of a prompt, frames of a video.

Rows of one group depend on each other, groups do not. So pairs within a group are left out of every mean, which
keeps D unbiased, and ψ is summed by group, which makes V right whatever the dependence within.

Let n_g be the size of group g, h(a) the mean of the kernel k(a, ·) over another group's rows and θ the mean of k over
pairs of different groups, of which there are P = n² − Σ n_g². The estimate of θ is Σ_a S_a/P, S_a the sum of
k(a, b) over the rows b of other groups, and to first order it is

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

from relfit.compute.reduce import Runtime, Sums
from relfit.data.labels import group_labels
from relfit.data.load import Data
from relfit.data.scores import scores_of
from relfit.estimators import ksd, mmd
from relfit.estimators.base import Codes, Dependence, Estimates, Groups, Plan
from relfit.estimators.kernel import centre_of
from relfit.estimators.split import split, take
from relfit.kernels.base import Kernel
from relfit.stats.joint import Psi
from relfit.util.arrays import Array
from relfit.util.errors import InputError
from relfit.util.random import stream

PairValues = Callable[[Codes, Codes], Array]

# Pairs of rows evaluated at once: bounds the temporaries.
PAIR_CHUNK = 16_384


@dataclass(frozen=True)
class _Sums:
    """Sums of a kernel over pairs of different groups, seen from one side's rows, and how many each row is in."""

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


def grouped_ksd(
    x: Array, scores: Sequence[Array], codes: Codes, count: int, kernel: Kernel, runtime: Runtime
) -> Estimates:
    """KSD² of each model, scores (n, d) at rows (n, d) in `count` groups, with ψ (count, l).

    ψ has the jackknife factor (G−1)/(G−2) of `ksd.complete`, with groups in place of rows.
    """

    def values(a: Codes, b: Codes) -> Array:
        return ksd.pair_values(kernel, (x[a], [s[a] for s in scores]), (x[b], [s[b] for s in scores]))

    sums = ksd.row_sums(x, scores, kernel, runtime) - _within(values, codes, len(scores))
    apart = _Sums(sums, len(x) - np.bincount(codes)[codes].astype(float))
    return Estimates(apart.mean, Psi(_by_group(2.0 * apart.parts(), codes, count) * ((count - 1) / (count - 2))))


def grouped_mmd(
    reference: Array,
    samples: Sequence[Array],
    groups: Sequence[tuple[Codes, int]],
    kernel: Kernel,
    dependence: Dependence,
    runtime: Runtime,
) -> Estimates:
    """MMD² of each sample to the reference; `groups` holds codes and counts of the reference, then of each sample.

    Under "paired" groups of one number are one group, and pairs of a model row and a reference row in it are left
    out too; under "shared" the models' are, and under "independent" no two samples have anything in common.
    """
    rows = (reference, *samples)
    products = mmd.kernel_sums(kernel, reference, samples, runtime)
    own = [
        _apart_within(kernel, x, codes, product.rows)
        for x, (codes, _), product in zip(rows, groups, products[: len(rows)], strict=True)
    ]
    cross = [
        _apart_across(kernel, (x, codes), (reference, groups[0][0]), product, dependence == "paired")
        for x, (codes, _), product in zip(samples, groups[1:], products[len(rows) :], strict=True)
    ]
    values = np.array([x.mean + own[0].mean - 2.0 * side.mean for x, (side, _) in zip(own[1:], cross, strict=True)])
    g = 2.0 * own[0].parts()[:, None] - 2.0 * np.stack([side.parts() for _, side in cross], axis=1)
    f = [2.0 * x.parts() - 2.0 * side.parts() for x, (side, _) in zip(own[1:], cross, strict=True)]
    from_reference = _by_group(g, *groups[0])
    from_models = [_by_group(part, *group) for part, group in zip(f, groups[1:], strict=True)]
    if dependence == "paired":
        return Estimates(values, Psi(from_reference + np.stack(from_models, axis=1)))
    return Estimates(values, Psi(from_reference, tuple(from_models), shared=dependence == "shared"))


def by_group(values: Array, codes: Codes, count: int) -> Array:
    """ψ_g = G U_g for the mean of rows: rows' contributions (n, l), centred over n, summed by group. (count, l)"""
    return _by_group((values - values.mean(axis=0)) / len(values), codes, count)


def _by_group(parts: Array, codes: Codes, count: int) -> Array:
    total = np.zeros((count, *parts.shape[1:]))
    np.add.at(total, codes, parts)
    return count * total


def _apart_within(kernel: Kernel, x: Array, codes: Codes, sums: Array) -> _Sums:
    near = _within(lambda a, b: kernel.pairs(x[a], x[b])[:, None], codes, 1)[:, 0]
    return _Sums(sums - near, len(x) - np.bincount(codes)[codes].astype(float))


def _apart_across(
    kernel: Kernel, model: tuple[Array, Codes], reference: tuple[Array, Codes], product: Sums, paired: bool
) -> tuple[_Sums, _Sums]:
    """The cross sums seen from the model's rows and from the reference's."""
    (x, own), (r, theirs) = model, reference
    rows, columns = product.rows.copy(), mmd.columns_of(product).copy()
    if not paired:
        return _Sums(rows, np.full(len(x), float(len(r)))), _Sums(columns, np.full(len(r), float(len(x))))
    for a, b in same_group(own, theirs):
        k = kernel.pairs(x[a], r[b])
        rows[a] -= k
        np.subtract.at(columns, b, k)
    count = 1 + int(max(own.max(), theirs.max()))
    ours, their_sizes = np.bincount(own, minlength=count), np.bincount(theirs, minlength=count)
    return _Sums(rows, len(r) - their_sizes[own].astype(float)), _Sums(columns, len(x) - ours[theirs].astype(float))


def _within(values: PairValues, codes: Codes, count: int) -> Array:
    """(n, count) sums over the other rows of each row's own group."""
    near = np.zeros((len(codes), count))
    for a, b in same_group(codes, codes):
        different = a != b
        near[a[different]] += values(a[different], b[different])
    return near


def same_group(x: Codes, y: Codes) -> Iterator[tuple[Codes, Codes]]:
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


# --------------------
# Rows in groups: labels into group numbers, estimates from them, and shares of whole groups.

REFERENCE = "reference"


def make_groups(given: Any, data: Data, dependence: Dependence) -> Groups:
    """Group numbers from labels: an array for rows that all belong together, or a mapping of names to labels.

    The reference's labels have the key "reference" (or None, where a model has that name). Samples left out of the
    mapping have independent rows. Labels of different samples have nothing to do with each other, unless the models
    are "shared" (their labels are common) or "paired" (the reference's too).
    """
    labels = _labels(given, data, dependence)
    codes: dict[str | None, Codes] = {}
    for family in _families(data, dependence):
        missing = [key for key in family if key not in labels]
        if len(family) > 1 and missing:
            who = "the reference" if missing[0] is None else f"model {missing[0]!r}"
            raise InputError(f"groups: expected labels for {who} too, since dependence={dependence!r} joins them")
        found = [labels.get(key, np.arange(_size(data, key))) for key in family]
        codes.update(zip(family, _numbered(found), strict=True))
    return Groups(codes, _counts(codes, data, dependence))


def with_groups(data: Data, plan: Plan, given: Any) -> Plan:
    """The plan with group numbers; what rows in groups do not go together with is refused."""
    if plan.estimator != "complete":
        raise InputError(f'groups: expected estimator="complete", got {plan.estimator!r}')
    if plan.dependence == "chain":
        raise InputError('groups: a chain has batches of its own; leave out groups or dependence="chain"')
    if plan.variance == "corrected":
        raise InputError('groups: the second-order correction is not known for groups; use variance="projection"')
    return replace(plan, groups=make_groups(given, data, plan.dependence))


def grouped_estimates(data: Data, plan: Plan) -> Estimates:
    """Estimates whose ψ rows are groups."""
    groups = plan.groups
    assert groups is not None  # noqa: S101  (asked for only where there are groups)
    if data.kind == "samples":
        return _of_samples(data, plan, groups)
    if data.kind == "densities":
        scores = [scores_of(name, density, data.reference) for name, density in data.densities.items()]
        centre = centre_of(data.reference)
        rows, kernel = data.reference - centre, plan.kernel.moved(centre)
        return grouped_ksd(rows, scores, groups.codes[None], groups.counts[None], kernel, plan.runtime)
    return _of_target(data, plan, groups)


def group_counts(data: Data, plan: Plan) -> tuple[int, ...] | None:
    """The numbers of groups, in the order of `JointEstimate.sizes`; None for independent rows."""
    groups = plan.groups
    if groups is None:
        return None
    of = {key: len(np.unique(codes)) for key, codes in groups.codes.items()}
    return (of.get(None, 0), *(of[name] for name in data.samples))


def share_rows(data: Data, plan: Plan, fraction: float) -> tuple[tuple[Data, Plan], tuple[Data, Plan]]:
    """Disjoint random shares of every sample, whole groups where there are some: to select with, to test with."""
    if plan.groups is None:
        selection, testing = split(data, fraction, plan.dependence, plan.seed)
        return (selection, plan), (testing, plan)
    chosen = _chosen_groups(data, plan, plan.groups, fraction)
    first, second = (
        {key: np.flatnonzero(np.isin(codes, chosen[key]) == wanted) for key, codes in plan.groups.codes.items()}
        for wanted in (True, False)
    )
    return _part(data, plan, plan.groups, first), _part(data, plan, plan.groups, second)


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


def _counts(codes: Mapping[str | None, Codes], data: Data, dependence: Dependence) -> dict[str | None, int]:
    out: dict[str | None, int] = {}
    for family in _families(data, dependence):
        count = 1 + max(int(codes[key].max()) for key in family)
        out.update(dict.fromkeys(family, count))
    return out


def _numbered(labels: Sequence[NDArray[Any]]) -> list[Codes]:
    """Labels of several samples as whole numbers from 0, the same number for the same label."""
    numbers = np.unique(np.concatenate(labels), return_inverse=True)[1]
    return np.split(numbers, np.cumsum([len(part) for part in labels])[:-1])


def _size(data: Data, key: str | None) -> int:
    return len(data.reference) if key is None else len(data.samples[key])


def _of_samples(data: Data, plan: Plan, groups: Groups) -> Estimates:
    centre = centre_of(data.reference) if plan.kernel.variable == "r2" else 0.0
    keys = (None, *data.samples)
    return grouped_mmd(
        data.reference - centre,
        [x - centre for x in data.samples.values()],
        [(groups.codes[key], groups.counts[key]) for key in keys],
        plan.kernel.moved(centre),
        plan.dependence,
        plan.runtime,
    )


def _of_target(data: Data, plan: Plan, groups: Groups) -> Estimates:
    each = []
    for name, x in data.samples.items():
        assert data.target is not None  # noqa: S101  (the kind of data was checked)
        scores, centre = scores_of(f"target at model {name!r}", data.target, x), centre_of(x)
        kernel = plan.kernel.moved(centre)
        found = grouped_ksd(x - centre, [scores], groups.codes[name], groups.counts[name], kernel, plan.runtime)
        each.append(found)
    rows = tuple(e.psi.reference[:, 0] for e in each if e.psi.reference is not None)
    return Estimates(np.concatenate([e.values for e in each]), Psi(None, rows, shared=plan.dependence == "shared"))


def _chosen_groups(data: Data, plan: Plan, groups: Groups, fraction: float) -> dict[str | None, Codes]:
    """Groups of the selection share: drawn once for samples that belong together, as rows are in `row_orders`."""
    chosen: dict[str | None, Codes] = {}
    for family in _families(data, plan.dependence):
        for key in family:
            count = groups.counts[key]
            own = "reference" if key is None and plan.dependence != "paired" else "models"
            order = stream(plan.seed, "split", own).permutation(count)
            chosen[key] = order[: max(1, round(fraction * count))]
    return chosen


def _part(data: Data, plan: Plan, groups: Groups, rows: Mapping[str | None, Codes]) -> tuple[Data, Plan]:
    codes: dict[str | None, Codes] = {}
    for family in _families(data, plan.dependence):
        kept = [groups.codes[key][rows[key]] for key in family]
        codes.update(zip(family, _numbered(kept), strict=True))
    part = take(data, {None: np.arange(0), **rows})
    return part, replace(plan, groups=Groups(codes, _counts(codes, data, plan.dependence)))
