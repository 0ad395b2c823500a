"""Which rows belong together: random orders and parts of the rows, and rows in groups.

Rows come in groups when they are, for example, several completions of a prompt or frames of
a video.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.compute.memory import some_rows
from relfit.data.arrays import group_labels
from relfit.data.load import Data
from relfit.data.models import Density
from relfit.estimators.base import (
    Dependence,
    EstimateSettings,
    Estimator,
    Groups,
    sample_name,
    samples_of,
)
from relfit.util.arrays import Array, Rows
from relfit.util.errors import InputError, way
from relfit.util.random import stream


def split(
    data: Data,
    fraction: float,
    dependence: Dependence,
    seed: int,
    purpose: str = "split",
    most: int | None = None,
) -> tuple[Data, Data]:
    """Disjoint random parts of every sample: a fraction of the rows, at most `most`, and the
    rest.
    """
    orders = row_orders(data, dependence, seed, purpose)
    cut = {
        key: min(max(1, round(fraction * len(order))), most or len(order))
        for key, order in orders.items()
    }
    first = take(data, {key: order[: cut[key]] for key, order in orders.items()})
    return first, take(data, {key: order[cut[key] :] for key, order in orders.items()})


def row_orders(
    data: Data, dependence: Dependence, seed: int, purpose: str, *, in_order: bool = False
) -> dict[str | None, Rows]:
    """A random order of the rows of the reference (key None) and of every sample, or the
    given order if `in_order`.

    All models draw theirs from one stream, so that neither the order of the models, nor
    their names, nor another copy changes a number, and rows made from common random numbers
    stay together; independent samples may be shuffled alike. The reference uses that stream
    too if its rows are paired with those of the models.
    """
    lengths = {name: len(rows) for name, rows in data.samples.items()}
    if in_order:
        return {
            None: np.arange(len(data.reference)),
            **{name: np.arange(n) for name, n in lengths.items()},
        }
    drawn = {n: stream(seed, purpose, "models").permutation(n) for n in set(lengths.values())}
    rng = stream(seed, purpose, "models" if dependence == "paired" else "reference")
    return {
        None: rng.permutation(len(data.reference)),
        **{name: drawn[n] for name, n in lengths.items()},
    }


def take(data: Data, rows: Mapping[str | None, Rows]) -> Data:
    """The data with these rows only, of the reference (key None) and of every sample."""
    models: dict[str, Array | Density] = {
        name: model if isinstance(model, Density) else some_rows(model, rows[name], data.folder)
        for name, model in data.models.items()
    }
    return replace(
        data, reference=some_rows(data.reference, rows[None], data.folder), models=models
    )


def make_groups(
    labels: Any, data: Data, dependence: Dependence, estimator: Estimator
) -> Groups:
    """Group numbers from labels: an array for rows that all belong together, or a mapping of
    names to labels.

    The reference's labels have the key "reference" (or None, where a model has that name).
    Samples left out of the mapping have independent rows. Labels of different samples have
    nothing to do with each other, unless the models are "shared" (their labels are common)
    or "paired" (the reference's too).
    """
    if not estimator.every_pair:
        raise InputError(f'groups: expected estimator="complete", got {estimator.name!r}')
    if dependence == "chain":
        raise InputError(
            'groups: cannot be combined with dependence="chain", which has its '
            "own batches; leave one out"
        )
    labels_of = _labels(labels, data, dependence)
    for family in _families(data, dependence):
        missing = [key for key in family if key not in labels_of]
        if len(family) > 1 and missing:
            who = "the reference" if missing[0] is None else sample_name(missing[0])
            raise InputError(
                f"groups: expected labels for {who} too, since "
                f"dependence={dependence!r} joins them"
            )
    independent = {key: np.arange(len(rows)) for key, rows in samples_of(data).items()}
    return _numbered({**independent, **labels_of}, data, dependence)


def split_rows(
    data: Data, settings: EstimateSettings, fraction: float
) -> tuple[tuple[Data, EstimateSettings], tuple[Data, EstimateSettings]]:
    """Disjoint random parts of every sample, to select with and to test with; groups are
    never divided.
    """
    if settings.groups is None:
        selection, testing = split(data, fraction, settings.dependence, settings.seed)
        return (selection, settings), (testing, settings)
    groups = settings.groups
    dependence = settings.dependence
    selected: dict[str | None, NDArray[np.bool_]] = {}
    for key, codes in groups.codes.items():
        # Samples that belong together draw the same groups, as they draw the same rows in
        # `row_orders`.
        common = "reference" if key is None and dependence != "paired" else "models"
        order = stream(settings.seed, "split", common).permutation(groups.counts[key])
        selected[key] = np.isin(codes, order[: max(1, round(fraction * len(order)))])

    def part(selecting: bool) -> tuple[Data, EstimateSettings]:
        rows = {key: np.flatnonzero(mask == selecting) for key, mask in selected.items()}
        numbered = _numbered(
            {key: codes[rows[key]] for key, codes in groups.codes.items()}, data, dependence
        )
        return take(data, {None: np.arange(0), **rows}), replace(settings, groups=numbered)

    return part(selecting=True), part(selecting=False)


def _labels(labels: Any, data: Data, dependence: Dependence) -> dict[str | None, NDArray[Any]]:
    sizes = {key: len(rows) for key, rows in samples_of(data).items()}
    if not isinstance(labels, Mapping):
        together = data.kind in ("densities", "likelihoods") or dependence == "paired"
        if not together and not (data.kind == "target" and dependence == "shared"):
            raise InputError(
                "groups: expected labels for each sample, since not all samples have their "
                "groups in common "
                f"(dependence {dependence}), got one list for all ({type(labels).__name__}); "
                + way(
                    "name a column of every file",
                    'give a mapping {"reference": labels, "model": labels}',
                )
            )
        return {key: group_labels("groups", labels, size) for key, size in sizes.items()}
    labels_of = {}
    for name, values in labels.items():
        key = None if name == "reference" and "reference" not in data.names else name
        if key not in sizes and key not in data.copies:
            raise InputError(
                f"groups: expected names of samples among the keys, got {reprlib.repr(name)}"
            )
        if key not in data.copies:
            labels_of[key] = group_labels(f"groups of {name!r}", values, sizes[key])
    return labels_of


def _families(data: Data, dependence: Dependence) -> list[list[str | None]]:
    """The samples that number their groups in common."""
    keys = list(samples_of(data))
    if dependence == "paired":
        return [keys]
    if dependence == "shared":
        return [[None], keys[1:]] if data.target is None and keys[1:] else [keys]
    return [[key] for key in keys]


def _numbered(
    labels: Mapping[str | None, NDArray[Any]], data: Data, dependence: Dependence
) -> Groups:
    """Labels as whole numbers from 0; within a family the same label has the same number."""
    groups = Groups({}, {})
    for family in _families(data, dependence):
        numbers = np.unique(
            np.concatenate([labels[key] for key in family]), return_inverse=True
        )[1]
        ends = np.cumsum([len(labels[key]) for key in family])[:-1]
        groups.codes.update(zip(family, np.split(numbers, ends), strict=True))
        groups.counts.update(dict.fromkeys(family, 1 + int(numbers.max())))
    return groups
