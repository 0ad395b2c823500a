"""Means over two crossed factors, such as items and training runs: covariances and degrees of
freedom.

A score ``y = D + item + run + rest`` has the mean D over n items and R runs, with the variance
``var(item)/n + var(run)/R + var(rest)/(nR)``. Three covariances are estimated: V_items from the
items' means over the runs, F from the runs' means over the items, and C, what the rest adds to
F. ``V = V_items + F − C`` (Cameron, Gelbach and Miller 2011, with C from residuals of both
factors, which has no bias where there are few runs). V is made at least as large as V_items
and as F, as symmetric matrices, so that it is positive semi-definite.

With two ways of grouping the items, F and C are the covariances by the second grouping and by
the cells of both.

Cameron, A. C., Gelbach, J. B., and Miller, D. L. (2011). Robust inference with multiway
clustering. Journal of Business and Economic Statistics 29, 238–249.

Cameron, A. C., and Miller, D. L. (2015). A practitioner's guide to cluster-robust inference.
Journal of Human Resources 50, 317–372.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtri

from relfit.stats.dependence import pair_variances
from relfit.stats.joint import Psi
from relfit.util.arrays import Array
from relfit.util.text import listed, quoted

# The variance of two runs, or of judges, is in no direction taken for smaller than this part of
# its mean over the differences of models: the standard deviation of two runs may be small by
# chance, and few judges differ in few directions.
LEAST_PART = 1.0 / 3.0

# So many more runs or judges are what a note says the effect of.
MORE_LEVELS = 3
# The power and the level at which a note says how many separate two models, and the largest
# number that it names.
PLANNED_POWER = 0.8
PLANNED_ALPHA = 0.05
MOST_PLANNED = 1e6
# How the note on what separates two models begins.
SEPARATION = "to separate "

# From rows (n, k) to their means (k,), ψ rows, and degrees of freedom (k, k).
Means = Callable[[Array], tuple[Array, Psi, Array | None]]


@dataclass(frozen=True)
class Factor:
    """What a factor that is crossed with the items adds to the covariance of the means.

    Attributes:
        name: what its levels are called: "runs", "judges" or "groups".
        levels: the number of levels, the smallest one of all models.
        covariance: F (l, l).
        rest: C (l, l), the part of F that V_items has already.
        freedom: (l, l) degrees of freedom of the variances of the differences in F, and on
            the diagonal of the values.
        rest_freedom: those of C, (l, l) or one number.
    """

    name: str
    levels: int
    covariance: Array
    rest: Array
    freedom: Array
    rest_freedom: Array | float

    @property
    def words(self) -> str:
        """What the factor is called in the design of a comparison."""
        if self.name == "groups":
            return f"also clustered by {self.levels} other groups"
        each = " of each model" if self.name == "runs" else ""
        return f"{self.levels} random {self.name}{each}"

    @cached_property
    def bounded(self) -> Array:
        """(l, l) F; of two runs of each model, and of judges, as `least` has it."""
        few = self.name == "judges" or (self.name == "runs" and self.levels == 2)
        return least(self.covariance) if few else self.covariance

    @property
    def added(self) -> Array:
        """(l, l) what is added to V_items: (F − C)₊."""
        return _positive(self.bounded - self.rest)


def runs(table: Array, means: Means) -> Factor:
    """The factor of training runs (n, l, k), which belong to one model each; NaN for the runs
    that a model does not have.

    ``F_ii = s_i²/R_i`` with the variance s_i² of the R_i runs' means: R_i − 1 degrees of
    freedom for each model, and Satterthwaite's for differences.
    """
    count = table.shape[1]
    variances, rest, uncertain = np.zeros((3, count))
    levels = []
    for j in range(count):
        own = table[:, j, ~np.isnan(table[:, j]).all(axis=0)]
        levels.append(own.shape[1])
        variances[j] = means(own)[0].var(ddof=1) / levels[j]
        residuals = own - own.mean(axis=1, keepdims=True)
        inside = np.diag(means(residuals)[1].covariance()).sum()
        rest[j] = inside / (levels[j] * (levels[j] - 1.0))
        uncertain[j] = variances[j] ** 2 / (levels[j] - 1.0)
    total = pair_variances(np.diag(variances))
    squares = pair_variances(np.diag(uncertain))
    fewest = min(levels)
    freedom = np.full(total.shape, fewest - 1.0)
    np.divide(np.square(total), squares, out=freedom, where=squares > 0.0)
    inner = (len(table) - 1.0) * (fewest - 1.0)
    return Factor("runs", fewest, np.diag(variances), np.diag(rest), freedom, inner)


def judges(table: Array, means: Means) -> Factor:
    """The factor of judges (n, l, J), who score every model: J − 1 degrees of freedom."""
    n, count, levels = table.shape
    each = np.stack([means(table[:, :, j])[0] for j in range(levels)])
    centred = each - each.mean(axis=0)
    overall = table.mean(axis=2)
    rest = np.zeros((count, count))
    for j in range(levels):
        rest += means(table[:, :, j] - overall)[1].covariance()
    return Factor(
        "judges",
        levels,
        centred.T @ centred / (levels * (levels - 1.0)),
        rest / (levels * (levels - 1.0)),
        np.full((count, count), levels - 1.0),
        (n - 1.0) * (levels - 1.0),
    )


def least(covariance: Array) -> Array:
    """F with no contrast of the models below `LEAST_PART` of their mean.

    With P the projection to contrasts and p = tr(PFP)/(l − 1), it is F + (pP/3 − PFP)₊.
    """
    count = len(covariance)
    if count < 3:
        return covariance
    project = np.eye(count) - 1.0 / count
    inside = project @ covariance @ project
    floor = LEAST_PART * float(np.trace(inside)) / (count - 1.0)
    return covariance + _positive(floor * project - inside)


def crossed(items: Array, freedom: Array, factors: Sequence[Factor]) -> tuple[Array, Array]:
    """V and the degrees of freedom (l, l) of the differences, from V_items with those of its
    own, and the factors.

    ``ν = v²/(v_items²/ν_items + Σ f²/ν_f + c²/ν_c)`` (Satterthwaite 1946), at least 1, and of
    two groupings at most that of either (Cameron and Miller 2015).
    """
    total = items + sum(factor.added for factor in factors)
    for factor in factors:
        total = total + _positive(factor.bounded - total)
    uncertain = np.square(pair_variances(items)) / freedom
    for factor in factors:
        uncertain += np.square(pair_variances(factor.bounded)) / factor.freedom
        uncertain += np.square(pair_variances(factor.rest)) / factor.rest_freedom
    degrees = np.array(freedom)
    variances = np.square(pair_variances(total))
    np.divide(variances, uncertain, out=degrees, where=uncertain > 0.0)
    for factor in factors:
        if factor.name == "groups":
            degrees = np.minimum(degrees, np.minimum(freedom, factor.freedom))
    return total, np.maximum(degrees, 1.0)


@dataclass(frozen=True)
class Parts:
    """The variance of a difference, or the mean over several, by what it is due to.

    Attributes:
        items: the part of V_items, for n items.
        n: the number of items.
        names, levels: of the runs and judges.
        added: what each of them adds, the part of F − C.
        rest: the part of C, which is in `items` and shrinks with the levels, too.

    With n' items and R' levels it is ``(items − rest) n/n' + added R/R' + rest nR/(n'R')``.
    """

    items: float
    n: int
    names: tuple[str, ...]
    levels: tuple[int, ...]
    added: tuple[float, ...]
    rest: tuple[float, ...]

    @property
    def total(self) -> float:
        return self.items + sum(self.added)

    def shares(self) -> dict[str, float]:
        """The parts of the total by name."""
        added = zip(self.names, self.added, strict=True)
        return {"items": self.items / self.total} | {k: v / self.total for k, v in added}

    def with_levels(self, k: int, more: float) -> float:
        """The variance with so many more runs or judges."""
        part = more / (self.levels[k] + more)
        return self.total - (self.added[k] + self.rest[k]) * part

    def more_levels(self, k: int, variance: float) -> float:
        """How many more runs or judges have this variance; without limit if none has."""
        shrinking = self.added[k] + self.rest[k]
        left = variance - (self.total - shrinking)
        return self.levels[k] * (shrinking / left - 1.0) if left > 0.0 else math.inf

    def more_items(self, variance: float) -> float:
        """How many more items have this variance; without limit if none has."""
        left = variance - sum(self.added)
        return self.n * (self.items / left - 1.0) if left > 0.0 else math.inf


def parts_of(
    items: Array, factors: Sequence[Factor], n: int, best: int, others: Sequence[int]
) -> Parts:
    """The mean parts in the variances of the differences between the best and other models."""

    def mean(covariance: Array) -> float:
        return float(pair_variances(covariance)[best, list(others)].mean())

    named = [factor for factor in factors if factor.name != "groups"]
    grouped = [factor for factor in factors if factor.name == "groups"]
    whole = mean(items) + sum(mean(factor.added) for factor in grouped)
    return Parts(
        whole,
        n,
        tuple(factor.name for factor in named),
        tuple(factor.levels for factor in named),
        tuple(mean(factor.added) for factor in named),
        tuple(min(mean(factor.rest), whole) for factor in named),
    )


def factor_notes(
    items: Array, factors: Sequence[Factor], values: Array, names: Sequence[str], n: int
) -> tuple[list[str], dict[str, float] | None]:
    """What part of the variance of the differences to the best model is due to runs or judges,
    what more of each would bring, and how many would separate the two best models; and the
    parts as numbers.
    """
    best, *others = np.argsort(values, kind="stable").tolist()
    parts = parts_of(items, factors, n, best, others) if others else None
    if parts is None or not parts.names or parts.total <= 0.0:
        return [], None
    shares = [f"{part:.0%} {name}" for name, part in parts.shares().items()]
    gains = []
    for k, name in enumerate(parts.names):
        shorter = 1.0 - math.sqrt(parts.with_levels(k, MORE_LEVELS) / parts.total)
        gains.append(f"{MORE_LEVELS} more {name} would shorten the intervals by {shorter:.0%}")
    shorter = 1.0 - math.sqrt((parts.items / 2.0 + sum(parts.added)) / parts.total)
    gains.append(f"twice the items by {shorter:.0%}")
    note = (
        f"variance of the differences to the best model: {listed(shares, quote=str)}; "
        f"{', '.join(gains)}"
    )
    second = others[0]
    gap = float(values[second] - values[best])
    needed = (gap / (ndtri(1.0 - PLANNED_ALPHA) + ndtri(PLANNED_POWER))) ** 2
    two = parts_of(items, factors, n, best, [second])
    if gap <= 0.0 or two.total <= needed:
        return [note], parts.shares()
    ways = [(name, two.more_levels(k, needed)) for k, name in enumerate(two.names)]
    ways.append(("items", two.more_items(needed)))
    found = [f"about {more:,.0f} more {name}" for name, more in ways if more < MOST_PLANNED]
    which = (
        listed(found, "or", quote=str) if found else "neither more items nor more runs alone"
    )
    needed_note = (
        f"{SEPARATION}{quoted(names[second])} from {quoted(names[best])} with probability "
        f"{PLANNED_POWER:.0%}, if they are {gap:.2g} apart (α = {PLANNED_ALPHA:g}): {which}"
    )
    return [note, needed_note], parts.shares()


def _positive(matrix: Array) -> Array:
    """The symmetric matrix without its negative eigenvalues; of a diagonal one the diagonal."""
    if not np.any(matrix - np.diag(np.diag(matrix))):
        return np.diag(np.maximum(np.diag(matrix), 0.0))
    sizes, axes = np.linalg.eigh((matrix + matrix.T) / 2.0)
    return np.asarray((axes * np.maximum(sizes, 0.0)) @ axes.T)
