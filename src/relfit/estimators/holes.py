"""Means of models over items of which some lack scores: additive effects of items and models,
by least squares on the scores that there are.
"""

from __future__ import annotations

import math

import numpy as np

from relfit.stats.joint import Psi
from relfit.util.arrays import Array, Rows
from relfit.util.errors import InputError


def additive_means(rows: Array, members: Rows | None) -> tuple[Array, Psi, Array]:
    """D, ψ rows for each item or group, and the degrees of freedom (l, l) of the differences,
    from rows (n, l) with NaN where there is no score.

    ``y_ai = α_a + μ_i + e_ai`` by least squares. With k_a scores of item a and the mask M,
    the normal equations of the models are ``L μ = Σ_a M_ai (y_ai − ȳ_a)``, L = diag(Σ_a
    M_ai) − Σ_a M_a M_aᵀ/k_a. ``D_i = μ_i + mean_a α_a`` is the mean that model i would have
    over all items; of a complete table it is the plain mean.

    An item contributes ``U_a = L⁺ s_a + 1 ((α_a − ᾱ)/n − wᵀ L⁺ s_a)`` to D, with its
    residuals s_a, and w_i the mean of M_ai/k_a. The contributions of a group are added up,
    and a model's residuals are divided by √(1 − h), h the part of its scores that are in the
    group, so that V of a complete table is that of `row_means`. Degrees of freedom are ``(Σ_g
    τ_g)²/Σ_g τ_g² − 1``, τ_g the variance that a group contributes to a difference if errors
    of one group are alike.

    >>> rows = np.array([[0.0, 1.0], [4.0, 5.0], [2.0, np.nan]])
    >>> additive_means(rows, None)[0].tolist()
    [2.0, 3.0]
    """
    n, count = rows.shape
    there = ~np.isnan(rows)
    mask = there.astype(float)
    known = np.where(there, rows, 0.0)
    scores = mask.sum(axis=1)
    apart = np.where(there, known - (known.sum(axis=1) / scores)[:, None], 0.0)
    laplacian = np.diag(mask.sum(axis=0)) - mask.T @ (mask / scores[:, None])
    inverse = np.linalg.inv(laplacian + 1.0 / count) - 1.0 / count
    model = inverse @ apart.sum(axis=0)
    item = (known.sum(axis=1) - mask @ model) / scores
    values = model + item.mean()

    groups = np.arange(n) if members is None else members
    units = int(groups.max()) + 1
    inside = np.zeros((units, count))
    np.add.at(inside, groups, mask)
    part = inside / mask.sum(axis=0)
    if (part >= 1.0).any():
        raise InputError(
            "groups: expected scores of every model in at least 2 groups, got one with fewer"
        )
    residuals = np.where(there, known - item[:, None] - model, 0.0)
    residuals /= np.sqrt(1.0 - part)[groups]
    of_models = residuals @ inverse
    weights = (mask / scores[:, None]).mean(axis=0)
    own = np.bincount(groups) / n
    level = (item - item.mean()) / n / np.sqrt(1.0 - own)[groups] - of_models @ weights
    psi = np.zeros((units, count))
    np.add.at(psi, groups, of_models + level[:, None])
    psi *= math.sqrt(units * (units - 1.0))
    return values, Psi(psi), _freedom(mask, scores, inverse, groups, inside)


def _freedom(mask: Array, scores: Array, inverse: Array, groups: Rows, inside: Array) -> Array:
    """(l, l) degrees of freedom: of differences, and of a model's own mean on the diagonal."""
    count = mask.shape[1]
    units = len(inside)
    freedom = np.zeros((count, count))
    for i in range(count):
        # Column j: the weights of the errors in the difference of i and j.
        contrast = inverse[:, [i]] - inverse[:, i:]
        variances = mask @ np.square(contrast) - np.square(mask @ contrast) / scores[:, None]
        sides = np.sqrt(np.maximum(variances, 0.0))
        if units < len(mask):
            sums = np.zeros((units, sides.shape[1]))
            np.add.at(sums, groups, sides)
            sides = sums
        sides[:, 0] = inside[:, i]
        tau = np.square(sides)
        freedom[i, i:] = np.square(tau.sum(axis=0)) / np.square(tau).sum(axis=0) - 1.0
        freedom[i:, i] = freedom[i, i:]
    return np.maximum(freedom, 1.0)
