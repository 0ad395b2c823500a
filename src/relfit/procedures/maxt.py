"""The law of maxima of studentised differences: what a max-t test compares its statistic with."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtri, stdtr, stdtrit

from relfit.errors import InputError
from relfit.estimate import JointEstimate
from relfit.procedures.bootstrap import Pairs, bootstrap
from relfit.procedures.differences import psi_rows, smallest_sample
from relfit.procedures.streams import Source, Streams, covariance_root, normal_draws, streams

Array = NDArray[np.float64]

GAUSSIAN, STUDENT, BOOTSTRAP = "gaussian", "student", "bootstrap"
METHODS = ("auto", GAUSSIAN, STUDENT, BOOTSTRAP)
# Below this many rows the normal approximation lets too many errors through (KSD: .059–.066 at .05).
SMALL_SAMPLE = 300
# Draws at once: temporaries of a few megabytes, near the processor.
CHUNK = 2048
CHUNK_NUMBERS = 2_000_000
# With fewer draws than this beyond it, a quantile is mostly noise.
FEWEST_BEYOND = 10
# Draws beyond a statistic that settle its p-value, to a thirtieth of itself: at α = .05 that takes all 20,000.
ENOUGH_BEYOND = 1000


@dataclass(frozen=True)
class Law:
    """Draws of Z_ij ≈ (D_i − D_j − E)/s_ij, jointly for all pairs, by one `method`.

    Each call draws anew. Nothing of the size draws × l × l is ever held.
    """

    method: str
    draws: int
    rows: int | None
    error: Array
    chunk: Callable[[int], Pairs]

    def maxima(self, offsets: Array, reverse: Array | None = None) -> Array:
        """(l, draws) values of max_j (Z_ij + offset_ij), or of max_j max(Z_ij + offset_ij, −Z_ij + reverse_ij).

        An offset of −inf, as pairs without variance and the diagonal must have, leaves the pair out.
        """
        everyone = np.arange(len(offsets))
        parts = [_row_maxima(self.chunk(count), offsets, reverse, everyone, count) for count in self._counts()]
        return np.concatenate(parts, axis=1)

    def exceedances(self, offsets: Array, statistic: Array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """(l,) how many draws of max_j (Z_ij + offset_ij) reach T_i, and how many draws were made for model i.

        A model leaves once ENOUGH_BEYOND draws have reached its statistic (Besag and Clifford 1991): its
        p-value is known well enough, and a small one is still settled by all `draws`.
        """
        reached, made = np.zeros((2, len(offsets)), dtype=np.intp)
        left = np.flatnonzero((offsets > -math.inf).any(axis=1))
        for count in self._counts():
            if not len(left):
                break
            top = _row_maxima(self.chunk(count), offsets, None, left, count)
            reached[left] += (top >= statistic[left, None]).sum(axis=1)
            made[left] += count
            left = left[reached[left] < ENOUGH_BEYOND]
        return reached, made

    def log_union(self, offsets: Array, statistic: Array) -> Array:
        """(l,) log Σ_j P(Z_ij + offset_ij ≥ T_i), an upper bound: normal tails, or Student's with few rows."""
        distance = offsets - statistic[:, None]
        if self.rows is None or self.method == GAUSSIAN:
            return np.asarray(np.logaddexp.reduce(log_ndtr(distance), axis=1))
        tail = np.maximum(stdtr(self.rows - 1, distance), np.where(distance > -math.inf, 5e-324, 0.0))
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(tail.sum(axis=1)))

    def critical(self, top: Array, level: float, pairs: int) -> float:
        """The `level` quantile of these draws of a maximum over `pairs` pairs (offsets ≤ 0).

        The ⌈level (draws + 1)⌉-th smallest. Where fewer than ten draws lie beyond it, the union bound instead,
        and for a single pair too, where it is exact unless the draws are resamples.
        """
        tail = 1.0 - level
        if pairs == 0:
            return -math.inf
        if tail * (len(top) + 1) < FEWEST_BEYOND or (pairs == 1 and self.method != BOOTSTRAP):
            return self._union_quantile(tail / pairs)
        place = math.ceil(level * (len(top) + 1)) - 1
        return float(np.partition(top, place)[place])

    def _union_quantile(self, tail: float) -> float:
        if self.rows is None or self.method == GAUSSIAN:
            return -float(ndtri(tail))
        return -float(stdtrit(self.rows - 1, tail))

    def _counts(self) -> Iterator[int]:
        at_once = _table_width(self.rows) if self.method == BOOTSTRAP else CHUNK
        for start in range(0, self.draws, at_once):
            yield min(at_once, self.draws - start)


def law(joint: JointEstimate, error: Array, method: str, source: Source, draws: int) -> Law:
    """The law of the studentised differences of these estimates (`error` = s_ij).

    "gaussian": Z_ij = (G_i − G_j)/s_ij, G ~ N(0, V). "student": that over √(χ²_{n−1}/(n−1)), one χ² for all pairs, n
    the rows (or groups) of the smallest sample: V, too, was estimated from them. "bootstrap": percentile-t bootstrap
    of the ψ rows. "auto": with fewer than 300 rows the bootstrap where V is that of the ψ rows, Student's law where
    it is not; otherwise gaussian, and also where the number of rows is not known.
    """
    own = streams(source, joint.names)
    rows, used, psi = rows_behind(joint), resolve_method(joint, method), joint.psi
    if used == BOOTSTRAP and psi is not None:
        return Law(BOOTSTRAP, draws, rows, error, bootstrap(psi, error, own, min(draws, _table_width(rows))))
    root = covariance_root(joint.covariance)
    freedom = None if used == GAUSSIAN or rows is None else rows - 1
    return Law(used, draws, rows, error, lambda count: _normal_chunk(root, error, own, count, freedom))


def rows_behind(joint: JointEstimate) -> int | None:
    """The number of rows that V was estimated from: of ψ, otherwise of the smallest sample; None if not known."""
    rows = psi_rows(joint)
    return smallest_sample(joint) if rows is None else rows


def resolve_method(joint: JointEstimate, method: str) -> str:
    """The method really used: "gaussian", "student" or "bootstrap"."""
    if method == "bootstrap" and joint.psi is None:
        raise InputError('method="bootstrap": expected an estimate with ψ rows, got none; use method="student"')
    if method not in METHODS:
        raise InputError(f"method: expected one of {', '.join(METHODS)}, got {method!r}")
    rows = rows_behind(joint)
    if method == STUDENT and (rows is None or rows < 2):
        return GAUSSIAN
    if method != "auto":
        return method
    if rows is None or not 1 < rows < SMALL_SAMPLE:
        return GAUSSIAN
    return BOOTSTRAP if _covariance_of_psi(joint) else STUDENT


def _covariance_of_psi(joint: JointEstimate) -> bool:
    """Whether V came from the ψ rows as they are; a corrected V has another law than their resamples."""
    own = None if joint.psi is None else joint.psi.covariance()
    if own is None or own.shape != joint.covariance.shape:
        return False
    scale = np.sqrt(np.diag(joint.covariance))
    return bool((np.abs(own - joint.covariance) <= 1e-6 * np.outer(scale, scale)).all())


def _table_width(rows: int | None) -> int:
    return max(64, min(CHUNK, CHUNK_NUMBERS // (rows or 1)))


def _normal_chunk(root: Array, error: Array, own: Streams, draws: int, freedom: int | None) -> Pairs:
    g = normal_draws(root, own.models, draws)
    if freedom is not None:
        g /= np.sqrt(own.reference.chisquare(freedom, draws) / freedom)
    scale = np.divide(1.0, error, out=np.zeros_like(error), where=error > 0.0)
    return lambda i, others: (g[i] - g[others]) * scale[i, others, None]


def _row_maxima(chunk: Pairs, offsets: Array, reverse: Array | None, wanted: NDArray[np.intp], draws: int) -> Array:
    """(k, draws) maxima of the k `wanted` rows. A pair of two of them is computed once: Z_ji = −Z_ij."""
    unwanted = np.setdiff1d(np.arange(len(offsets)), wanted)
    order = np.concatenate([wanted, unwanted])
    top = np.full((len(wanted), draws), -math.inf)
    for place, i in enumerate(wanted):
        others, later = order[place + 1 :], wanted[place + 1 :]
        if not len(others):
            break
        z = chunk(int(i), others)
        np.maximum(top[place], (z + offsets[i, others, None]).max(axis=0), out=top[place])
        np.maximum(top[place + 1 :], offsets[later, i, None] - z[: len(later)], out=top[place + 1 :])
        if reverse is not None:
            np.maximum(top[place], (reverse[i, others, None] - z).max(axis=0), out=top[place])
            np.maximum(top[place + 1 :], z[: len(later)] + reverse[later, i, None], out=top[place + 1 :])
    return top
