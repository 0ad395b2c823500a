"""Units of densities: a change of variables x' = L⁻¹x for rows and densities, and the L that
whitens rows.

KSD measures distances between rows with one bandwidth for all columns. If columns have
unlike units, or go together closely, it sees one direction only. The change of variables is
the cure: with x = Lx' the score of x' is Lᵀ s(x), and the log density the same up to a
constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from relfit.data.encode import Column, Encoding, Scale, fit_rows, robust
from relfit.data.models import Density, Floats
from relfit.util.arrays import Array

# The spread is taken from at most so many rows of a sample, evenly spaced, or from so many for
# each column.
_MOST_ROWS = 4_000
ROWS_PER_COLUMN = 10
# Beyond so many columns the record of a result would be mostly this matrix.
MOST_COLUMNS = 256
# Rows further out than this many times the median squared distance count less, so that no
# outlier decides.
_FAR = 20.0
_ROUNDS = 50
_SETTLED = 1e-9
# Columns with a smaller eigenvalue of their correlations count as combinations of each other.
_SINGULAR = 1e-12


def density_encoding(
    samples: Sequence[Any], scale: Scale, names: Sequence[str] | None
) -> tuple[Encoding, str]:
    """The encoding of the rows of these samples together, and a note where they cannot be
    whitened.

    Nothing is subtracted: a shift changes no distance, and a row close to the edge of a
    support must stay inside. For densities "auto" is "whiten".
    """
    d = samples[0].shape[1]
    most = max(_MOST_ROWS, ROWS_PER_COLUMN * d)
    pooled = np.concatenate([rows[:: max(1, -(-len(rows) // most))] for rows in samples])
    if scale not in ("auto", "whiten"):
        fitted = fit_rows(pooled, scale, names)
        return replace(
            fitted, columns=tuple(replace(column, centre=0.0) for column in fitted.columns)
        ), ""
    names = [f"column {k}" for k in range(d)] if names is None else names
    scales = robust(pooled)[1]
    root = None
    why = ""
    if d > MOST_COLUMNS:
        why = f"{d} columns are too many to be whitened"
    elif len(pooled) < ROWS_PER_COLUMN * d:
        why = f"{len(pooled)} rows are too few to whiten {d} columns"
    else:
        scales, correlation = spread(pooled)
        if np.linalg.eigvalsh(correlation)[0] < _SINGULAR:
            why = "some columns are combinations of others, so that they cannot be whitened"
        else:
            root = tuple(map(tuple, np.linalg.cholesky(correlation).tolist()))
    columns = tuple(Column(name, scale=float(s)) for name, s in zip(names, scales, strict=True))
    note = f"{why}; each column was divided by its own spread instead" if why else ""
    return Encoding("whiten", columns, root=root), note


def spread(rows: Array) -> tuple[Array, Array]:
    """(d,) the standard deviations of the columns, 1 for a constant one, and their
    correlations (d, d).

    Rows far out count less: w = min(1, 20 median(r²)/r²) with r² = (x − m)ᵀC⁻¹(x − m), in m
    and in C. For normal rows all w are 1, and C is the covariance; one outlier, or a law
    without variances, changes little.

    >>> scales, correlation = spread(np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 4.0], [2.0, 4.0]]))
    >>> scales.tolist(), correlation.round(9).tolist()
    ([1.0, 2.0], [[1.0, 0.0], [0.0, 1.0]])
    """
    centre, unit = robust(rows)
    z = (rows - centre) / unit
    weights = np.ones(len(rows))
    for _ in range(_ROUNDS):
        gaps = z - weights @ z / weights.sum()
        covariance = (gaps.T * weights) @ gaps / len(z)
        deviations = np.sqrt(np.diag(covariance))
        deviations[deviations == 0.0] = 1.0
        correlation = covariance / np.outer(deviations, deviations)
        np.fill_diagonal(correlation, 1.0)
        values, vectors = np.linalg.eigh(correlation)
        squares = np.square(gaps / deviations @ vectors) @ (1.0 / np.maximum(values, _SINGULAR))
        limit = _FAR * float(np.median(squares))
        if not limit > 0.0:
            break
        last = weights
        weights = limit / np.maximum(squares, limit)
        if np.abs(weights / last - 1.0).max() < _SETTLED:
            break
    return unit * deviations, correlation


def encoded_density(density: Density, encoding: Encoding) -> Density:
    """The density of encoded rows, up to a constant: its score is Lᵀ s(Lx').

    A log density without a score stays without: finite differences are better where all
    columns have one size.

    >>> wide = Density(score=lambda x: -x / 100.0)
    >>> encoded_density(wide, Encoding("given", (Column("x", scale=10.0),))).scores(
    ...     np.array([[2.0]])
    ... )
    array([[-2.]])
    """
    forward = np.diag(encoding.scales)
    if encoding.root is not None:
        forward = encoding.scales[:, None] * np.array(encoding.root)
    centres = encoding.centres

    def score(x: Array) -> Floats:
        scores = density.raw_scores(x @ forward.T + centres)
        # In the precision that they were computed in, which says how far they can be trusted.
        return np.asarray(scores @ forward, dtype=scores.dtype)

    return Density(
        None if density.by_finite_differences else score,
        None
        if density.log_prob is None
        else lambda x: density.log_probs(x @ forward.T + centres),
        density.dim,
    )
