"""JointEstimate: the discrepancies of several models with their joint covariance, and the ψ
rows it comes from.

Everything from here on is float64 in the main memory.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from relfit.stats.close import CloseLaw
from relfit.util import attached
from relfit.util.arrays import Array
from relfit.util.checks import check_number
from relfit.util.errors import InputError
from relfit.util.text import as_name, is_text

# Directions that vary less than this, relative to the most varying one, are rounding.
NO_DIRECTION = 1e-13
# Below this many rows the normal approximation lets too many errors through (KSD: .059–.066 at
# .05).
SMALL_SAMPLE = 300
TRACE = 1e-6
# A model with a larger second-order part of its variance is called near-degenerate.
NEAR_DEGENERATE = 0.3
# Of a difference that never varies so much is left, relative to what both models' contributions
# vary.
ROUNDING = 1e-12
# Numbers of ψ rows that are looked at together, and the fewest rows.
_BLOCK_NUMBERS = 2**15
_FEWEST_IN_BLOCK = 256


@dataclass(frozen=True)
class Psi:
    """The first-order contribution of every row to every estimate.

    Args:
        reference: (n, l), the contributions of the reference rows; of pairs of rows in
            linear designs, and of the rows joined with the models' rows when everything is
            paired. None if the reference is a density.
        models: one (m_i,) vector for each model, empty if the models have no samples of their
            own.
        shared: True if the models' rows were generated from common random numbers.
        lags: how far the dependence of reference rows reaches, which are then in the order
            of time; None if they are independent.
    """

    reference: Array | None
    models: tuple[Array, ...] = ()
    shared: bool = False
    lags: int | None = None

    def covariance(self) -> Array:
        """``V = ψRᵀψR/(n(n−1)) + diag_i(ψX_iᵀψX_i/(m_i(m_i−1)))``, with the full Gram when
        shared.

        A sum of Gram matrices: symmetric and positive semi-definite by construction. With
        lags L the first one is ``(Γ_0 + Σ_{k≤L} (1 − k/(L+1))(Γ_k + Γ_kᵀ))/(n−1−L)``, Γ_k =
        Σ_a ψ_a ψ_{a+k}ᵀ/n: the Gram matrix of the sums of L + 1 successive rows, divided by
        L + 1. (Of independent rows it would be too small by the part (L+1)/n, since ψ are
        centred at the mean: hence n−1−L.)
        """
        return (
            self._cumulants[0]
            if self.reference is None or not self.lags
            else gram(self.reference, self.lags)
        )

    def third(self) -> Array:
        """(l, l) third cumulants κ(D_i, D_i, D_j): Σ_a ψ_ai² ψ_aj/n³ of the reference, and
        those of the models.
        """
        return self._cumulants[1]

    @property
    def together(self) -> list[Sequence[Array]]:
        """The ψ of all models on common rows, l vectors each: of the reference, and of the
        models where these share.
        """
        reference: list[Sequence[Array]] = (
            [] if self.reference is None else [list(self.reference.T)]
        )
        return [*reference, self.models] if self.models and self.shared else reference

    @cached_property
    def _cumulants(self) -> tuple[Array, Array]:
        """The covariance without lags and the third cumulants, in one pass over the rows."""
        together = self.together
        alone = () if self.shared else self.models
        count = len(together[0] if together else alone)
        second, third = np.zeros((2, count, count))
        with np.errstate(over="ignore", invalid="ignore"):
            for columns in together:
                n = len(columns[0])
                squares = np.zeros_like(second)
                cubes = np.zeros_like(third)
                for part in in_blocks(columns):
                    squares += part @ part.T
                    cubes += np.square(part) @ part.T
                second += squares / (n * (n - 1))
                third += cubes / float(n) ** 3
            for i, psi in enumerate(alone):
                n = len(psi)
                second[i, i] += float(psi @ psi) / (n * (n - 1))
                third[i, i] += float(np.einsum("i,i,i->", psi, psi, psi)) / float(n) ** 3
        second.setflags(write=False)
        # Cubes of very large values do not fit into float64: then nothing is known about the
        # skewness.
        return second, np.where(np.isfinite(third), third, 0.0)


def in_blocks(columns: Sequence[Array]) -> Iterator[Array]:
    """(l, k) parts of l vectors of one length, of as many rows as stay near the processor."""
    rows = len(columns[0])
    size = max(_FEWEST_IN_BLOCK, _BLOCK_NUMBERS // len(columns))
    return (
        np.stack([each[start : start + size] for each in columns])
        for start in range(0, rows, size)
    )


def centred(g: Any) -> Any:
    """``ψ = 2(g − ḡ)`` for row means g."""
    psi: Array = g - g.mean(axis=0)
    psi *= 2.0
    return psi


def mixed(unit: Array, whole: Array) -> Array:
    """`unit` with a trace of `whole`, so that no direction in which `whole` varies is
    without a unit.
    """
    return np.asarray(unit + TRACE * whole)


def positive_part(matrix: Array, unit: Array) -> Array:
    """A symmetric matrix without negative eigenvalues relative to `unit`, and with less of
    what may be noise.

    `unit` is a covariance of the same estimates. With unit = L Lᵀ it is L A₊ Lᵀ; A₊ has the
    eigenvalues of A = L⁻¹ matrix L⁻ᵀ, each lowered by as much as it falls short of −λ, λ ≤ 0
    the lowest one, and not below 0. Where the matrix is an unbiased estimate of a
    covariance, λ tells how far noise reaches; to keep all of it above 0 and none below would
    make the sum too large. A change of basis of the estimates changes nothing, and no
    difference of two gains more than a multiple of its own variance in `unit`. Ordinary
    eigenvalues would let the large common noise of similar models spill into their
    differences.

    >>> positive_part(np.diag([4.0, 0.75, 0.25, -1.0]), np.eye(4)).diagonal().round(9).tolist()
    [4.0, 0.5, 0.0, 0.0]
    """
    scale = np.sqrt(np.diag(unit))
    scale = np.where(scale > 0.0, scale, 1.0)
    outer = np.outer(scale, scale)
    sizes, axes = np.linalg.eigh(unit / outer)
    kept = sizes > NO_DIRECTION * sizes[-1]
    sides = np.sqrt(sizes[kept])
    inverse = axes[:, kept] / sides
    root = axes[:, kept] * sides
    values, vectors = np.linalg.eigh(inverse.T @ (matrix / outer) @ inverse)
    short = np.maximum(-values.min(initial=0.0) - values, 0.0)
    half = scale[:, None] * (root @ (vectors * np.sqrt(np.maximum(values - short, 0.0))))
    return np.asarray(half @ half.T)


def gram(psi: Array, lags: int = 0) -> Array:
    """``ψᵀψ/(n(n−1))`` of ψ rows (n, l): the covariance of their mean. With lags, Bartlett's
    weights (`Psi`).
    """
    n = len(psi)
    if lags:
        # Sums of L + 1 successive rows, those at the ends included.
        total = np.cumsum(np.pad(psi, ((lags + 1, lags), (0, 0))), axis=0)
        psi = (total[lags + 1 :] - total[: -lags - 1]) / np.sqrt(lags + 1.0)
    total = psi.T @ psi / (n * (n - 1 - lags))
    return np.asarray((total + total.T) / 2.0)


@dataclass(frozen=True, eq=False, repr=False)
class JointEstimate:
    """Scores of l models (smaller is better) and the covariance of their estimates.

    Args:
        names: l model names.
        values: (l,) estimates.
        covariance: (l, l) covariance of the estimates (not of single observations: it shrinks
            like 1/n).
        sizes: the reference's number of rows (0 if it is a density), then each model's where
            it has a sample; None if unknown.
        psi: the ψ rows that the covariance came from, or None.
        near_degeneracy: (l,) fraction of each variance that is of second order, or None.
        notes: sentences about how the estimate was made.
        groups: numbers of groups of rows, in the order of `sizes`; None for independent rows.
        second_order: (l, l) part of the estimates' covariance that shrinks like 1/n², which
            `covariance` includes twice; None if it is unknown, or not included twice.
        measure: what the values are called in results: "score", "loss" for mean losses,
            "elpd", the discrepancy that was estimated, such as "mmd", "ksd" or "loglik", or
            any other name.
        third: (l, l) third cumulants κ(D_i, D_i, D_j) of the estimates, or None: those of the ψ
            rows, if there are any.
        follows: (l, l) third cumulants of the same kind that stand for the variances of squared
            distances, which follow their estimates; None for other measures.
        close: the law of squared distances with both its parts, or None for the normal law.
        yardstick: how far two halves of the data are apart through sampling alone, in the
            units of the values; None if it is unknown.
        higher_is_better: True if the values are minus the scores that were given, whose larger
            values are better.
        design: how the means were taken, in words, such as "macro average over 30 strata"; None
            for plain means.
        lags: how far the rows of a series depend on each other, in the order of time; None for
            independent rows.
        binary: True if the values are means of independent rows that are 0 or c, one number
            for all models (`binary_step`).
        unit: 1, or the power of 2 in which very large or very small scores are measured:
            values, covariance and ψ rows are those of the scores divided by it.
        doubts: those of the `notes` that make the verdicts unreliable, so that a gate does not
            answer.
        leading: those of the `notes` that come before the verdicts, as they say what the values
            are made of.
        freedom: (l, l) degrees of freedom of the variances of the differences D_i − D_j, and
            on the diagonal of the values; None where they follow from the numbers of rows.
        components: the parts of the mean variance of the differences to the best model by what
            they are due to, "items", "runs" and "judges"; None where only items matter.

    Any score can be brought in:

    >>> joint = JointEstimate(("a", "b"), [0.10, 0.30], [[0.01, 0.0], [0.0, 0.01]])
    >>> joint.standard_error
    array([0.1, 0.1])
    """

    names: tuple[str, ...]
    values: Array
    covariance: Array
    sizes: tuple[int, ...] | None = None
    psi: Psi | None = None
    near_degeneracy: Array | None = None
    notes: tuple[str, ...] = ()
    groups: tuple[int, ...] | None = None
    second_order: Array | None = None
    measure: str = "score"
    close: CloseLaw | None = None
    third: Array | None = None
    yardstick: float | None = None
    higher_is_better: bool = False
    design: str | None = None
    lags: int | None = None
    binary: bool = False
    unit: float = 1.0
    doubts: tuple[str, ...] = ()
    leading: tuple[str, ...] = ()
    freedom: Array | None = None
    follows: Array | None = None
    components: dict[str, float] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", _names(self.names))
        count = len(self.names)
        object.__setattr__(self, "values", _finite("values", self.values, (count,)))
        object.__setattr__(self, "covariance", _covariance(self.covariance, count))
        if self.sizes is not None:
            object.__setattr__(self, "sizes", _sizes(self.sizes, count))
        if self.near_degeneracy is not None:
            object.__setattr__(
                self,
                "near_degeneracy",
                _finite("near_degeneracy", self.near_degeneracy, (count,)),
            )
        if self.psi is not None and not isinstance(self.psi, Psi):
            raise InputError(
                f"psi: expected ψ rows made by relfit, or None, got {type(self.psi).__name__}"
            )
        if self.groups is not None:
            object.__setattr__(self, "groups", _sizes(self.groups, count, "groups"))
        if not is_text(self.measure) or not self.measure:
            raise InputError(f"measure: expected a name, got {self.measure!r}")
        for key in ("second_order", "third", "freedom", "follows"):
            if getattr(self, key) is not None:
                object.__setattr__(self, key, _finite(key, getattr(self, key), (count, count)))
        if self.yardstick is not None:
            expected = "a number of at least 0, or None"
            yardstick = check_number(
                "yardstick", self.yardstick, 0.0, math.inf, expected, low_ok=True
            )
            object.__setattr__(self, "yardstick", yardstick)

    @property
    def of_items(self) -> bool:
        """True if the values are means over items: models that agree on all of them may
        differ on others.
        """
        return self.measure in ("loss", "elpd", "loglik") and smallest_sample(self) is not None

    @property
    def standard_error(self) -> Array:
        """(l,) square roots of the variances."""
        return np.asarray(np.sqrt(np.diag(self.covariance)))

    def __repr__(self) -> str:
        return str(attached("JointEstimate.__repr__")(self))

    def _repr_html_(self) -> str:
        return str(attached("JointEstimate._repr_html_")(self))

    def at(self, index: Sequence[int], names: tuple[str, ...]) -> JointEstimate:
        """The estimate of the models at these places, under these names and without ψ rows;
        itself if it is of all.
        """
        if list(index) == list(range(len(self.names))):
            return self
        both = np.ix_(index, index)
        sizes, groups = (
            counts
            if counts is None or len(counts) == 1
            else (counts[0], *(counts[1 + k] for k in index))
            for counts in (self.sizes, self.groups)
        )
        return replace(
            self,
            names=names,
            values=self.values[index],
            covariance=self.covariance[both],
            sizes=sizes,
            psi=None,
            near_degeneracy=None
            if self.near_degeneracy is None
            else self.near_degeneracy[index],
            groups=groups,
            second_order=None if self.second_order is None else self.second_order[both],
            close=None if self.close is None else self.close.at(index),
            third=None if (third := third_cumulants(self)) is None else third[both],
            freedom=None if self.freedom is None else self.freedom[both],
            follows=None if self.follows is None else self.follows[both],
        )


def _names(names: Sequence[str]) -> tuple[str, ...]:
    if isinstance(names, str) or not np.iterable(names):
        raise InputError(f"names: expected a sequence of text, got {reprlib.repr(names)}")
    names = tuple(map(as_name, names))
    if not names:
        raise InputError("names: expected at least one, got none")
    if not all(map(is_text, names)):
        raise InputError(f"names: expected a sequence of text, got {reprlib.repr(names)}")
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"names: expected different names, got {twice!r} more than once")
    return names


def _sizes(sizes: Any, count: int, argument: str = "sizes") -> tuple[int, ...]:
    whole = np.iterable(sizes) and all(
        isinstance(n, int | np.integer) and n >= 0 for n in sizes
    )
    if not whole or len(sizes) not in (1, 1 + count) or 0 in sizes[1:] or tuple(sizes) == (0,):
        what = "rows" if argument == "sizes" else argument
        raise InputError(
            f"{argument}: expected the reference's number of {what}, alone or followed by "
            f"those of {count} models, "
            f"got {reprlib.repr(sizes)}"
        )
    return tuple(int(n) for n in sizes)


def _finite(argument: str, value: Any, shape: tuple[int, ...]) -> Array:
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "biuf":
            raise TypeError
        array = np.array(array, dtype=float)
    except (TypeError, ValueError):
        raise InputError(
            f"{argument}: expected numbers of shape {shape}, got {reprlib.repr(value)}"
        ) from None
    if array.shape != shape:
        raise InputError(f"{argument}: expected shape {shape}, got {array.shape}")
    if not np.isfinite(array).all():
        raise InputError(f"{argument}: expected finite numbers, got NaN or infinity")
    array.setflags(write=False)
    return array


def _covariance(value: Any, count: int) -> Array:
    matrix = _finite("covariance", value, (count, count))
    size = float(np.abs(matrix).max())
    if np.abs(matrix - matrix.T).max() > 1e-8 * size:
        raise InputError("covariance: expected a symmetric matrix")
    lowest = float(np.linalg.eigvalsh(matrix)[0])
    if lowest < -1e-8 * max(size, np.finfo(float).tiny) * count:
        raise InputError(
            f"covariance: expected a positive semi-definite matrix, got an eigenvalue of "
            f"{lowest:.3g} "
            f"(largest entry {size:.3g})"
        )
    # Rounding must not become the square root of a negative variance later on.
    matrix = (matrix + matrix.T) / 2.0
    np.fill_diagonal(matrix, np.maximum(np.diag(matrix), 0.0))
    matrix.setflags(write=False)
    return matrix


def binary_step(joint: JointEstimate) -> float:
    """The number c of `binary` rows, which are 0 or c: (n−1)V_ii + D_i² = c |D_i|, the mean
    of the squares.

    >>> binary_step(
    ...     JointEstimate(("a", "b"), [1.0, 0.0], [[0.25, 0.0], [0.0, 0.0]], (13,), binary=True)
    ... )
    4.0
    """
    n = float((joint.sizes or (0,))[0])
    i = int(np.abs(joint.values).argmax())
    size = abs(float(joint.values[i]))
    return ((n - 1.0) * float(joint.covariance[i, i]) + size * size) / size if size else 1.0


def smallest_sample(joint: JointEstimate) -> int | None:
    """The independent rows (or groups) in the smallest sample of an estimate; None if they
    are not known.
    """
    counts = joint.sizes if joint.groups is None else joint.groups
    if counts is None:
        return psi_rows(joint)
    return min((rows for rows in counts if rows > 0), default=None)


def third_cumulants(joint: JointEstimate) -> Array | None:
    """(l, l) κ(D_i, D_i, D_j); None if they are not known, as for the dependent rows of a
    series.
    """
    if joint.lags is not None:
        return None
    return joint.third if joint.third is not None or joint.psi is None else joint.psi.third()


def freedom(joint: JointEstimate) -> Array:
    """(l,) degrees of freedom of each model's variance: one less than the rows or groups of
    its smaller sample.

    Without limit where the number of rows is not known.
    """
    counts = joint.sizes if joint.groups is None else joint.groups
    if counts is None:
        rows = psi_rows(joint)
        return np.full(len(joint.names), math.inf if rows is None else rows - 1.0)
    reference, *models = (count or math.inf for count in counts)
    return np.maximum(
        np.minimum(reference, models or [reference] * len(joint.names)) - 1.0, 1.0
    )


def psi_rows(joint: JointEstimate) -> int | None:
    """The smallest number of ψ rows (pairs of rows in linear designs, batches of a chain);
    None without ψ rows.
    """
    if joint.psi is None:
        return None
    reference = () if joint.psi.reference is None else (joint.psi.reference,)
    return min(len(rows) for rows in (*reference, *joint.psi.models))


def has_psi_covariance(joint: JointEstimate) -> bool:
    """True if the covariance is that of the ψ rows as they are; another has another law than
    resamples.
    """
    if joint.psi is None:
        return False
    covariance = joint.psi.covariance()
    scale = joint.standard_error
    if covariance.shape != joint.covariance.shape:
        return False
    return bool((np.abs(covariance - joint.covariance) <= 1e-6 * np.outer(scale, scale)).all())
