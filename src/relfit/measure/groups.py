"""Rows in groups: labels into group numbers, estimates from them, and shares of whole groups."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.discrepancies import Dependence, Estimates, Psi
from relfit.discrepancies.groups import Codes, Groups, grouped_ksd, grouped_mmd
from relfit.errors import InputError
from relfit.inputs import Data, group_labels, scores_of, stream
from relfit.measure.bandwidth import centre_of
from relfit.measure.plan import Plan
from relfit.measure.shares import split, take

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
