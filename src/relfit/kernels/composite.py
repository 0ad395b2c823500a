"""Kernels made of others: Gaussians summed over several bandwidths, tilted kernels, squared
kernels; and several kernels instead of one: `Select` chooses among them on held-out rows,
`Collection` uses all at once.

A tilted kernel ``k(x, y) w(x) w(y)`` gives rows that lie far out less weight, so that a few
rows in heavy tails cannot decide a comparison alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NoReturn, Self

import numpy as np

from relfit.kernels.base import (
    Kernel,
    Length,
    ScaledKernel,
    SharedWork,
    Variable,
    Weight,
    check_length,
    check_positive,
    known,
)
from relfit.kernels.custom import Precomputed
from relfit.kernels.standard import Gaussian
from relfit.util.arrays import Array, host, library
from relfit.util.checks import check_number
from relfit.util.errors import InputError

# The ratio of two bandwidths that `MultiScale.reaching` adds.
_STEP = 4.0
# Bandwidths that `Select` tries by default, as multiples of the median distance.
FACTORS = (0.125, 0.25, 0.5, 1.0, 2.0)
RowFunction = Callable[[Array], Any]
Centre = Length | tuple[float, ...]


@dataclass(frozen=True)
class MultiScale(ScaledKernel, SharedWork):
    """``k = Σ_f exp(−r²/(2(fb)²))``: Gaussians whose bandwidths are multiples of b (a number
    or "median").

    It is sensitive to differences at several scales at once; a single median bandwidth sees
    only coarse ones.

    >>> MultiScale((1.0, 2.0), 1.0).phi(np.array([0.0, 8.0])).round(4)
    array([2.    , 0.3862])
    """

    factors: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 4.0)
    bandwidth: Length = "median"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "factors", tuple(self.factors))
        if not self.factors:
            raise InputError("factors of MultiScale: expected at least one, got none")
        for factor in self.factors:
            check_positive("factors of MultiScale", factor)

    @property
    def length(self) -> float:
        return super().length * min(self.factors)

    def reaching(self, distance: float) -> Self:
        """The kernel with smaller bandwidths too, each a quarter of the one before, down to
        this distance.
        """
        factors = list(self.factors)
        while min(factors) * super().length > distance:
            factors.append(min(factors) / _STEP)
        return replace(self, factors=tuple(sorted(factors)))

    def weights(self, t: Array, which: Sequence[Weight]) -> tuple[Array, ...]:
        """Every function follows from one exponential for each bandwidth."""
        arrays = library(t)
        total = {name: arrays.zeros_like(t) for name in which}
        for b in [factor * super(MultiScale, self).length for factor in self.factors]:
            phi = arrays.exp((-0.5 / b**2) * t)
            for name, into in total.items():
                if name == "phi":
                    into += phi
                elif name == "dphi":
                    into += phi * (-0.5 / b**2)
                else:
                    into += phi * t * (0.25 / b**4)
        return tuple(total[name] for name in which)


@dataclass(frozen=True)
class Decay:
    """``w(x) = (1 + ‖x − c‖²/s²)^(−b)``, ``∇ log w = −2b (x − c)/(s² + ‖x − c‖²)``.

    Args:
        exponent: b > 0. With ½, the default, w‖x‖ is bounded: KSD stays finite for models
            with Gaussian tails (scores that grow like ‖x‖) on data of any tails.
        scale: s, a number, or "median" for the median distance between rows.
        centre: c, a number, a number for each column, or "median" for the middle of the pooled
            rows.
    """

    exponent: float = 0.5
    scale: Length = "median"
    centre: Centre = "median"

    def __post_init__(self) -> None:
        check_positive("exponent of Decay", self.exponent)
        check_length("scale of Decay", self.scale)
        if self.centre != "median":
            object.__setattr__(self, "centre", _numbers(self.centre))

    def weights(self, rows: Array) -> Array:
        return np.asarray((1.0 + self._squares(rows)[1]) ** -self.exponent)

    def gradient(self, rows: Array) -> Array:
        gap, squares = self._squares(rows)
        length = float(known("scale of Decay", self.scale))
        slope = -2.0 * self.exponent / length**2
        return np.asarray(slope * gap / (1.0 + squares)[:, None])

    def moved(self, by: Array | float) -> Decay:
        """The weight for rows from which `by` has been subtracted."""
        return replace(self, centre=_numbers(self._centre - by))

    def describe(self) -> str:
        """The formula with its numbers, at most three of them for the centre."""
        scale = self.scale if isinstance(self.scale, str) else f"{self.scale:.3g}"
        if isinstance(self.centre, tuple):
            more = ", …" if len(self.centre) > 3 else ""
            centre = f"({', '.join(f'{value:.3g}' for value in self.centre[:3])}{more})"
        else:
            centre = self.centre if isinstance(self.centre, str) else f"{self.centre:.3g}"
        return f"(1 + r²/s²)^−{self.exponent:g}, s = {scale}, about {centre}"

    @property
    def _centre(self) -> Array:
        return np.asarray(known("centre of Decay", self.centre, "with_centre(point)"))

    def _squares(self, rows: Array) -> tuple[Array, Array]:
        """x − c and ‖x − c‖²/s²."""
        gap = rows - self._centre
        length = float(known("scale of Decay", self.scale))
        return gap, np.square(gap / length).sum(axis=1)


@dataclass(frozen=True)
class Functions:
    """A weight given by functions of rows (n, d): log w (n,), and ∇ log w (n, d), which only
    KSD needs.
    """

    log_weight: RowFunction
    gradient_of_log: RowFunction | None = None
    origin: Array | float = field(default=0.0, compare=False)

    def describe(self) -> str:
        return "a custom weight"

    def weights(self, rows: Array) -> Array:
        return np.exp(_checked("log_weight", self.log_weight, rows + self.origin, (len(rows),)))

    def gradient(self, rows: Array) -> Array:
        if self.gradient_of_log is None:
            raise InputError(
                "weight: KSD needs its gradient too; give weight=(log_weight, gradient)"
            )
        return _checked("gradient", self.gradient_of_log, rows + self.origin, rows.shape)

    def moved(self, by: Array | float) -> Functions:
        return replace(self, origin=np.asarray(self.origin + by))


@dataclass(frozen=True)
class Tilted(Kernel):
    """``k(x, y) w(x) w(y)``: a kernel that gives rows less weight the further out they are.

    The Stein kernel of a tilted kernel is w(x) w(y) times that of k with scores ``s + ∇ log
    w``. So KSD takes the same sums over kernel tiles with rows scaled by w. In MMD the rows
    are weighted by w.

    Args:
        kernel: the kernel to tilt.
        weight: a `Decay`, or functions of rows (n, d): ``log_weight`` alone (MMD), or the pair
            ``(log_weight, gradient)`` of log w (n,) and ∇ log w (n, d) (KSD too).

    >>> kernel = Tilted(Gaussian(1.0), Decay(exponent=1.0, scale=1.0, centre=0.0))
    >>> x = np.array([[0.0], [1.0]])
    >>> kernel.pairs(x, x)
    array([1.  , 0.25])
    """

    kernel: Kernel = field(default_factory=Gaussian)
    weight: Decay | Functions = field(default_factory=Decay)
    plain: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not isinstance(self.kernel, Kernel) or not self.kernel.plain:
            raise InputError(
                f"kernel of Tilted: expected a plain kernel such as Gaussian(), "
                f"got {self.kernel!r:.80}"
            )
        if isinstance(self.weight, Decay | Functions):
            return
        functions = self.weight if isinstance(self.weight, tuple) else (self.weight,)
        if not 1 <= len(functions) <= 2 or not all(map(callable, functions)):
            raise InputError(
                "weight of Tilted: expected Decay(), a function log_weight or a pair "
                "(log_weight, gradient), "
                f"got {self.weight!r:.80}"
            )
        object.__setattr__(self, "weight", Functions(*functions))

    @property
    def tilt(self) -> Decay | Functions:
        return self.weight

    @property
    def untilted(self) -> Kernel:
        return self.kernel

    @property
    def parts(self) -> tuple[Kernel, ...]:
        return (self.kernel,)

    @property
    def smooth(self) -> bool:
        """True if the kernel is smooth and the gradient of log w is known."""
        return self.kernel.smooth and (
            isinstance(self.weight, Decay) or self.weight.gradient_of_log is not None
        )

    @property
    def variable(self) -> Variable:
        return self.kernel.variable

    @property
    def needs_median(self) -> bool:
        return self.kernel.needs_median or (
            isinstance(self.weight, Decay) and self.weight.scale == "median"
        )

    def with_median(self, median: float) -> Self:
        weight = self.weight
        if isinstance(weight, Decay) and weight.scale == "median":
            weight = replace(weight, scale=median)
        return replace(self, kernel=self.kernel.with_median(median), weight=weight)

    @property
    def needs_centre(self) -> bool:
        return isinstance(self.weight, Decay) and self.weight.centre == "median"

    def with_centre(self, centre: Array) -> Self:
        """The kernel with its weight centred at this point (d,) if the centre was "median"."""
        if isinstance(self.weight, Decay) and self.weight.centre == "median":
            return replace(self, weight=replace(self.weight, centre=tuple(centre.tolist())))
        return self

    def with_dimension(self, dim: int) -> Self:
        """The kernel with the number of columns filled in; a centre of another number of
        columns is refused.
        """
        centre = self.weight.centre if isinstance(self.weight, Decay) else 0.0
        if isinstance(centre, tuple) and len(centre) != dim:
            raise InputError(
                f"centre of Decay: expected a number or one for each of {dim} "
                f"columns, got {len(centre)}"
            )
        return replace(self, kernel=self.kernel.with_dimension(dim))

    def moved(self, by: Array | float) -> Self:
        return replace(self, weight=self.weight.moved(by))

    def diagonal(self, rows: Array) -> Array:
        """w(x)² k(x, x)."""
        return np.asarray(self.kernel.diagonal(rows) * self.weight.weights(host(rows)) ** 2)

    def pairs(self, x: Array, y: Array) -> Array:
        """w(x_a) w(y_a) k(x_a, y_a)."""
        return self.kernel.pairs(x, y) * self.weight.weights(x) * self.weight.weights(y)

    def describe(self) -> str:
        return f"{self.kernel.describe()}, tilted by {self.weight.describe()}"

    @property
    def writable(self) -> bool:
        return self.kernel.writable and isinstance(self.weight, Decay)


def _checked(name: str, function: RowFunction, rows: Array, shape: tuple[int, ...]) -> Array:
    # A copy: a function that works in place must not change the data.
    out = np.asarray(function(rows.copy()), dtype=np.float64)
    if out.shape != shape or not np.isfinite(out).all():
        came = f"shape {out.shape}" if out.shape != shape else "NaN or infinity"
        raise InputError(
            f"{name} of Tilted: expected finite numbers of shape {shape} for "
            f"{len(rows)} rows, got {came}"
        )
    return out


def _numbers(centre: Any) -> Centre:
    try:
        point = np.asarray(centre, dtype=np.float64)
    except (TypeError, ValueError):
        point = np.full(1, math.nan)
    if point.ndim > 1 or not point.size or not np.isfinite(point).all():
        raise InputError(
            f'centre of Decay: expected "median", a number or one for each '
            f"column, got {centre!r:.80}"
        )
    return tuple(point.tolist()) if point.ndim else float(point)


@dataclass(frozen=True)
class Squared(Kernel):
    """``k²``, not for users: the variance of MMD with a tilted kernel needs sums over the
    squares of that kernel.
    """

    kernel: Kernel

    def phi(self, t: Array) -> Array:
        return self.kernel.phi(t) ** 2

    @property
    def parts(self) -> tuple[Kernel, ...]:
        return (self.kernel,)

    @property
    def variable(self) -> Variable:
        return self.kernel.variable

    @property
    def unit_rate(self) -> float | None:
        """φ² = exp(2q r²/length²)."""
        return None if self.kernel.unit_rate is None else 2.0 * self.kernel.unit_rate


@dataclass(frozen=True)
class Select:
    """Choose the kernel on held-out rows, and test on the others.

    Args:
        candidates: kernels to choose from; None is Gaussians with 1/8, 1/4, 1/2, 1 and 2
            times the median distance as bandwidth.
        fraction: the fraction of the rows that is held out, between 0 and 1.

    >>> Select((Gaussian(1.0), Gaussian(2.0)), fraction=0.3).fraction
    0.3
    """

    candidates: tuple[Kernel, ...] | None = None
    fraction: float = 0.2

    def __post_init__(self) -> None:
        if self.candidates is not None:
            object.__setattr__(
                self, "candidates", _kernels("candidates of Select", self.candidates)
            )
        check_number("fraction of Select", self.fraction, 0.0, 1.0, "a number between 0 and 1")

    @property
    def needs_median(self) -> bool:
        return self.candidates is None or any(kernel.needs_median for kernel in self.candidates)

    def kernels(self, median: float) -> tuple[Kernel, ...]:
        """The candidates, with the median distance filled in."""
        if self.candidates is None:
            return tuple(Gaussian(factor * median) for factor in FACTORS)
        return tuple(kernel.with_median(median) for kernel in self.candidates)


@dataclass(frozen=True)
class Collection(Kernel):
    """Several kernels at once, in one best-set test: a model is worse if it is worse under
    any of them.

    The discrepancy shown is the mean over the kernels.

    >>> Collection((Gaussian(1.0), Gaussian(2.0))).describe()
    'any of 2 kernels: Gaussian kernel, bandwidth 1; Gaussian kernel, bandwidth 2'
    """

    kernels: tuple[Kernel, ...]
    plain: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "kernels", _kernels("kernels of Collection", self.kernels))

    @property
    def parts(self) -> tuple[Kernel, ...]:
        return self.kernels

    def phi(self, t: Array) -> NoReturn:
        raise InputError(
            "kernel: expected one kernel here, got a Collection; it is for "
            "compare with test='best-set'"
        )

    def describe(self) -> str:
        return f"any of {len(self.kernels)} kernels: " + "; ".join(
            kernel.describe() for kernel in self.kernels
        )


def kernels_of(kernel: Kernel | Select | None) -> tuple[Kernel, ...]:
    """The kernel, or those of several: all are given by blocks, or none is."""
    if kernel is None:
        return ()
    if isinstance(kernel, Select):
        kernels = kernel.candidates or ()
    else:
        kernels = kernel.kernels if isinstance(kernel, Collection) else (kernel,)
    if len({each.by_blocks for each in kernels}) > 1:
        raise InputError(
            "kernel: expected functions or kernel matrices throughout, or none, got some of each"
        )
    return kernels


def table_of(kernel: Kernel | Select | None) -> Precomputed | None:
    """The kernel matrix if `kernel` is one, or the first of several kernel matrices; None
    for kernels of rows.
    """
    kernels = kernels_of(kernel)
    matrices = [each for each in kernels if isinstance(each, Precomputed)]
    if len({len(each.matrix) for each in matrices}) > 1 or 0 < len(matrices) < len(kernels):
        raise InputError(
            "kernel: expected kernel matrices of one size throughout, or none, got some of each"
        )
    return matrices[0] if matrices else None


def _kernels(argument: str, values: Any) -> tuple[Kernel, ...]:
    """The values as a tuple, if they are at least two different kernels."""
    kernels = tuple(values) if isinstance(values, Iterable) else (values,)
    wrong = [
        kernel
        for kernel in kernels
        if not isinstance(kernel, Kernel) or isinstance(kernel, Collection)
    ]
    if len(kernels) < 2 or wrong:
        came = type(wrong[0]).__name__ if wrong else len(kernels)
        raise InputError(f"{argument}: expected two kernels or more, got {came}")
    if len(set(kernels)) < len(kernels):
        raise InputError(f"{argument}: expected different kernels, got one twice")
    return kernels
