"""Estimates with their ψ rows, and the joint covariance those rows give."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from relfit.compute.reduce import Runtime
from relfit.compute.rows import LazyRows, parts
from relfit.kernels.base import Kernel
from relfit.stats.joint import Psi, mixed, positive_part
from relfit.util.arrays import Array, Rows

Dependence = Literal["independent", "shared", "paired", "chain"]


@dataclass(frozen=True)
class Estimates:
    """Discrepancies of l models with their ψ rows.

    `second_order` is the part of the covariance (l, l), or of each variance (l,) where that is all there is, that
    remains when a model equals the data (complete estimators only); its share of the whole variance tells how far the
    normal approximation can be trusted. `notes` are sentences for the reader. `covariance` is that of the estimates
    where it is not the one of the ψ rows.
    """

    values: Array
    psi: Psi
    second_order: Array | None = None
    notes: tuple[str, ...] = ()
    covariance: Array | None = None

    @property
    def projection(self) -> Array:
        """V, by first-order theory where the design is complete."""
        return self.psi.covariance() if self.covariance is None else self.covariance

    @property
    def corrected(self) -> Array:
        """``PSD₊(V − 2·S2) + S2``: the ψ rows of a complete design count the second-order part S2 twice."""
        if self.second_order is None or self.second_order.ndim != 2:
            return self.projection
        whole = self.projection
        return self.second_order + positive_part(whole - 2.0 * self.second_order, mixed(self.second_order, whole))


# --------------------
# The second-order part of a complete estimate's covariance, from some of its pairs.

PairValues = Callable[[Rows, Rows], Array]

# Enough for a share that is compared with 0.3, and for a correction: docs/estimators.md has the simulation.
PAIRS_PER_ROW, MOST_PAIRS = 20, 5_000
# Numbers fetched for one chunk of them: near the processor.
CHUNK_NUMBERS = 2**16


def drawn_pairs(rows: int, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Pairs a ≠ b of n rows drawn at random, with replacement."""
    count = min(PAIRS_PER_ROW * rows, MOST_PAIRS)
    a = rng.integers(rows, size=count)
    return a, (a + rng.integers(1, rows, size=count)) % rows


def second_order(rows: int, width: int, values: PairValues, rng: np.random.Generator) -> Array:
    """C/M (l, l), with C the covariance of the values (pairs, l) of drawn pairs, M = n(n−1)/2 the number of all.

    `width` is how many numbers a row has, with all that belongs to it: few rows are taken at once where they are long.
    """
    a, b = drawn_pairs(rows, rng)
    size = max(16, CHUNK_NUMBERS // width)
    starts = range(0, len(a), size)
    return second_order_of(np.concatenate([values(a[k : k + size], b[k : k + size]) for k in starts]), rows)


def second_order_of(h: Array, rows: int) -> Array:
    """C/M (l, l) from the values h (pairs, l)."""
    spread = np.cov(h.T).reshape(h.shape[1], h.shape[1])
    return np.asarray(spread / (rows * (rows - 1) / 2))


# --------------------
# Rows in memory, on a device or in a file, shifted to the centre a part at a time.


def shifted(x: Any, centre: Array | float) -> Any:
    """x − c in float64, where x is."""
    if isinstance(x, np.ndarray):
        return x - centre
    there = x.double()
    return there if isinstance(centre, float) else there - there.new_tensor(centre)


def in_parts(x: Any, centre: Array | float) -> Iterator[Any]:
    """All rows, shifted; in one piece where they are in memory anyway."""
    cut = parts(x.shape) if isinstance(x, LazyRows) else [slice(None)]
    return (shifted(x[part], centre) for part in cut)


# --------------------
# MMD² and KSD² of rows that come in groups: several completions of a prompt, frames of a video.
#
# Rows of one group depend on each other, groups do not. So pairs within a group are left out of every mean, which
# keeps D unbiased, and ψ is summed by group, which makes V right whatever the dependence within.
#
# Let n_g be the size of group g, h(a) the mean of the kernel k(a, ·) over another group's rows and θ the mean of k
# over pairs of different groups, of which there are P = n² − Σ n_g². The estimate of θ is Σ_a S_a/P, S_a the sum of
# k(a, b) over the rows b of other groups, and to first order it is
#
#     θ + Σ_g U_g,   U_g = (2/P)(n − n_g) Σ_{a∈g} (h(a) − θ),   estimated by   (2/P) Σ_{a∈g} (S_a − (n − n_g) θ̂).
#
# The U_g are independent with mean 0, so its variance is estimated by Σ_g U_g² G/(G − 1): that of the ψ rows ψ_g = G
# U_g. With one row per group all this is the usual estimate.

Codes = NDArray[np.intp]


@dataclass(frozen=True)
class Groups:
    """Group numbers 0, 1, … of every row of the reference (key None) and of every sample.

    Samples that belong together (shared or paired) number their groups in common; `counts` says how many there are.
    """

    codes: dict[str | None, Codes]
    counts: dict[str | None, int]


# --------------------
# Discrepancies at J locations v_j: UME² of samples, FSSD² of densities. Linear in the rows, in time and in memory.
#
# Both are U-statistics of features τ(x): ``mean_{a≠b} τ_a·τ_b`` needs the sum of the features only, so one pass over
# the rows gives the sums, and a second one the contribution of every row.


@dataclass(frozen=True, eq=False)
class Locations:
    """J locations (J, d), and the numbers of the rows that were used up for them (key None: the reference's).

    `whitened` says that they are those of the Nyström approximation, `note` in words how they were chosen.
    """

    points: Array
    left_out: Mapping[str | None, Rows] = field(default_factory=dict)
    note: str = ""
    whitened: bool = False


# --------------------
# The settings one estimate is made with.


@dataclass(frozen=True)
class Plan:
    """The settings one estimate is made with.

    `pairs` and `blocks` belong to the incomplete and the block design (None: chosen from the sizes); `variance` is
    "projection" or "corrected"; `why` says how the estimator was chosen, where it was; `groups` says which rows belong
    together, None where none do; `locations` are those of UME and FSSD; scores that do not fit into memory are
    written into `folder`.
    """

    kernel: Kernel
    estimator: str
    dependence: Dependence
    seed: int
    runtime: Runtime
    shuffle: bool = True
    pairs: int | None = None
    blocks: int | None = None
    variance: str = "projection"
    why: str = ""
    groups: Groups | None = None
    locations: Locations | None = None
    folder: Path | None = None


# --------------------
# How far a model is from the data: squared MMD or UME for samples, squared KSD or FSSD for densities.


@dataclass(frozen=True)
class MMD:
    """Squared maximum mean discrepancy with this kernel (None: Gaussian, median bandwidth)."""

    kernel: Kernel | None = None


@dataclass(frozen=True)
class KSD:
    """Squared kernel Stein discrepancy with this kernel (None: Gaussian, median bandwidth)."""

    kernel: Kernel | None = None
