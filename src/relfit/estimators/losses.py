"""Any loss as a discrepancy: a matrix of losses per item and model becomes a joint estimate."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from relfit.data.arrays import as_rows, group_labels
from relfit.data.files import read_names
from relfit.data.frames import frame_names
from relfit.estimators.groups import summed_by_group
from relfit.stats.joint import JointEstimate, Psi
from relfit.util.errors import InputError

FEWEST_ITEMS = 20


def from_losses(losses: Any, names: Sequence[str] | None = None, *, groups: Any = None) -> JointEstimate:
    """The mean loss of each model (smaller is better) and the covariance of the means.

    Args:
        losses: (n, l) losses of l models on the same n items: negative log-likelihoods of held-out rows, errors on
            benchmark questions, forecast losses; or a mapping of names to n losses; or a data frame or a file with a
            column for each model, and no others.
        names: l names; by default a mapping's keys, a frame's columns or the names in a file, else m1, m2, ….
        groups: n labels of items that belong together (questions about one text, days of one week).

    ``D = mean of the rows``, ``V = cov(losses)/n``: items are taken as independent, models as paired by item. With
    groups only the groups are: V is G/(G−1) times the sum over the G groups of the squares of their totals
    Σ_{a∈g} (loss_a − D)/n.

    >>> joint = from_losses({"old": [0.1, 0.4] * 10, "new": [0.0, 0.3] * 10})
    >>> joint.names, joint.values.round(2).tolist()
    (('old', 'new'), [0.25, 0.15])
    """
    if isinstance(losses, Mapping):
        names = list(losses) if names is None else names
        columns = {key: as_rows(f"losses[{key!r}]", value) for key, value in losses.items()}
        lengths = {key: len(column) for key, column in columns.items()}
        if len(set(lengths.values())) > 1:
            raise InputError(f"losses: expected as many losses for every model, got {lengths}")
        losses = np.hstack(list(columns.values())) if columns else []
    elif names is None:
        columns_of = read_names(losses) if isinstance(losses, str | os.PathLike) else frame_names(losses)
        names = None if columns_of is None else [name.strip() for name in columns_of]
    rows = as_rows("losses", losses)
    n, count = rows.shape
    if n < FEWEST_ITEMS:
        raise InputError(f"losses: expected at least {FEWEST_ITEMS} items (rows), got {n}")
    labels = tuple(f"m{k}" for k in range(1, count + 1)) if names is None else tuple(names)
    if len(labels) != count:
        raise InputError(f"names: expected {count}, one per column of losses, got {len(labels)}")
    # A column that grows by 1 from item to item numbers the items, and is not a model's loss.
    counts = (np.diff(rows, axis=0) == 1.0).all(axis=0)
    if counts.any():
        k = int(counts.argmax())
        raise InputError(
            f"losses: expected a model's losses in every column, got {rows[0, k]:g}, {rows[1, k]:g}, {rows[2, k]:g}, … "
            f"in {labels[k]!r}, which numbers the items; leave that column out (of a frame, frame.drop(columns=...))"
        )
    values = rows.mean(axis=0)
    psi, group_sizes = Psi(rows - values), None
    if groups is not None:
        group_names, codes = np.unique(group_labels("groups", groups, n), return_inverse=True)
        if len(group_names) < FEWEST_ITEMS:
            raise InputError(f"groups: expected at least {FEWEST_ITEMS} groups of items, got {len(group_names)}")
        psi, group_sizes = Psi(summed_by_group((rows - values) / n, codes, len(group_names))), (len(group_names),)
    return JointEstimate(labels, values, psi.covariance(), (n,), psi, groups=group_sizes, measure="loss")
