"""Sums of kernels, and one kernel summed over a grid of bandwidths."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, NoReturn, Self

import numpy as np

from relfit.kernels.base import Kernel, Length, ScaledKernel, Tilt, Variable, Weight, check_length, check_positive
from relfit.kernels.standard import Gaussian
from relfit.util.arrays import Array, host, library
from relfit.util.errors import InputError


@dataclass(frozen=True)
class Squared(Kernel):
    """``k²``: the sums of squares that weighed kernels need are sums over this kernel. Not for users."""

    kernel: Kernel

    @property
    def variable(self) -> Variable:
        """That of the kernel."""
        return self.kernel.variable

    @property
    def unit_rate(self) -> float | None:
        """Twice the kernel's."""
        return None if self.kernel.unit_rate is None else 2.0 * self.kernel.unit_rate

    @property
    def length(self) -> float:
        """That of the kernel."""
        return self.kernel.length

    def phi(self, t: Array) -> Array:
        """φ²."""
        return self.kernel.phi(t) ** 2


@dataclass(frozen=True)
class MultiScale(ScaledKernel):
    """``k = Σ_f exp(−r²/(2(fb)²))``: Gaussians whose bandwidths are multiples of b (a number or "median").

    It sees differences at several scales at once, where a single median bandwidth sees the coarse ones only.

    >>> import numpy as np
    >>> MultiScale((1.0, 2.0), 1.0).phi(np.array([0.0, 8.0])).round(4)
    array([2.    , 0.3862])
    """

    factors: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 4.0)
    bandwidth: Length = "median"
    length_field: ClassVar[str] = "bandwidth"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "factors", tuple(self.factors))
        if not self.factors:
            raise InputError("factors of MultiScale: expected at least one, got none")
        for factor in self.factors:
            check_positive("factors of MultiScale", factor)

    @property
    def length(self) -> float:
        """The shortest bandwidth."""
        return super().length * min(self.factors)

    def phi(self, t: Array) -> Array:
        """Σφ."""
        return self.weights(t, ("phi",))[0]

    def dphi(self, t: Array) -> Array:
        """Σφ'."""
        return self.weights(t, ("dphi",))[0]

    def ddphi(self, t: Array) -> Array:
        """Σφ''."""
        total: Array = library(t).zeros_like(t)
        for b in self._bandwidths():
            total = total + 0.25 / b**4 * library(t).exp((-0.5 / b**2) * t)
        return total

    def weights(self, t: Array, which: Sequence[Weight]) -> tuple[Array, ...]:
        """One exponential a bandwidth gives every weight."""
        arrays = library(t)
        total = {name: arrays.zeros_like(t) for name in which}
        for b in self._bandwidths():
            phi = arrays.exp((-0.5 / b**2) * t)
            for name, into in total.items():
                into += phi if name == "phi" else phi * (-0.5 / b**2) if name == "dphi" else phi * t * (0.25 / b**4)
        return tuple(total[name] for name in which)

    def _bandwidths(self) -> list[float]:
        return [factor * super(MultiScale, self).length for factor in self.factors]


# --------------------
# Kernels tilted by a weight of the rows, so that rows far out in heavy tails cannot decide alone.

RowFunction = Callable[[Array], Any]
Centre = float | tuple[float, ...] | Literal["median"]

# Of a centre with many columns only the first few are shown.
_MOST_SHOWN = 3


@dataclass(frozen=True)
class Decay:
    """``w(x) = (1 + ‖x − c‖²/s²)^(−b)``, ``∇ log w = −2b (x − c)/(s² + ‖x − c‖²)``.

    Args:
        exponent: b > 0. With ½, the default, w‖x‖ is bounded: KSD stays finite for models with Gaussian tails
            (scores that grow like ‖x‖) on data of any tails.
        scale: s, a number, or "median" for the median distance between rows.
        centre: c, a number, a number for each column, or "median" for the middle of the pooled rows.
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
        """w(x) for every row (n,)."""
        return np.asarray((1.0 + self._squares(rows)[1]) ** -self.exponent)

    def gradient(self, rows: Array) -> Array:
        """∇ log w at every row (n, d)."""
        gap, squares = self._squares(rows)
        return np.asarray((-2.0 * self.exponent / self._length**2) * gap / (1.0 + squares)[:, None])

    def moved(self, by: Array | float) -> Decay:
        """The weight for rows from which `by` was subtracted."""
        return replace(self, centre=_numbers(self._centre - by))

    @property
    def _length(self) -> float:
        if isinstance(self.scale, str):
            raise InputError('scale of Decay: still "median"; call with_median(number) before using the kernel')
        return float(self.scale)

    @property
    def _centre(self) -> Array:
        if isinstance(self.centre, str):
            raise InputError('centre of Decay: still "median"; call with_centre(point) before using the kernel')
        return np.asarray(self.centre)

    def _squares(self, rows: Array) -> tuple[Array, Array]:
        """x − c and ‖x − c‖²/s²."""
        gap = rows - self._centre
        return gap, np.square(gap / self._length).sum(axis=1)


@dataclass(frozen=True)
class Functions:
    """A weight given by functions of rows (n, d): log w (n,), and ∇ log w (n, d) where KSD is wanted."""

    log_weight: RowFunction
    gradient_of_log: RowFunction | None = None
    origin: Array | float = field(default=0.0, compare=False)

    def weights(self, rows: Array) -> Array:
        """w(x) for every row (n,)."""
        return np.exp(_checked("log_weight", self.log_weight, rows + self.origin, (len(rows),)))

    def gradient(self, rows: Array) -> Array:
        """∇ log w at every row (n, d)."""
        if self.gradient_of_log is None:
            raise InputError("weight: KSD needs its gradient too; give weight=(log_weight, gradient)")
        return _checked("gradient", self.gradient_of_log, rows + self.origin, rows.shape)

    def moved(self, by: Array | float) -> Functions:
        """The weight for rows from which `by` was subtracted."""
        return replace(self, origin=np.asarray(self.origin + by))


@dataclass(frozen=True)
class Tilted(Kernel):
    """``k(x, y) w(x) w(y)``: a kernel that trusts rows the less the further out they are.

    The Stein kernel of a tilted kernel is w(x) w(y) times that of k with scores ``s + ∇ log w``, so the sums over
    kernel tiles stay what they are, with rows scaled by w. In MMD the rows are weighed by w.

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
            raise InputError(f"kernel of Tilted: expected a plain kernel such as Gaussian(), got {self.kernel!r:.80}")
        object.__setattr__(self, "weight", _weight(self.weight))

    @property
    def tilt(self) -> Tilt:
        """The weight."""
        return self.weight

    @property
    def untilted(self) -> Kernel:
        """The kernel without its weight."""
        return self.kernel

    @property
    def smooth(self) -> bool:  # type: ignore[override]
        """Whether KSD may use it."""
        given = isinstance(self.weight, Decay) or self.weight.gradient_of_log is not None
        return self.kernel.smooth and given

    @property
    def variable(self) -> Variable:
        """That of the kernel."""
        return self.kernel.variable

    @property
    def length(self) -> float:
        """That of the kernel."""
        return self.kernel.length

    def largest_entry(self, dim: int) -> float:
        """That of the kernel, which is evaluated before it is weighed."""
        return self.kernel.largest_entry(dim)

    @property
    def needs_median(self) -> bool:
        """Whether the kernel or the weight needs it."""
        return self.kernel.needs_median or (isinstance(self.weight, Decay) and self.weight.scale == "median")

    def with_median(self, median: float) -> Self:
        """Both with "median" replaced by the number."""
        weight = self.weight
        if isinstance(weight, Decay) and weight.scale == "median":
            weight = replace(weight, scale=median)
        return replace(self, kernel=self.kernel.with_median(median), weight=weight)

    @property
    def needs_centre(self) -> bool:
        """Whether the weight's centre is still "median"."""
        return isinstance(self.weight, Decay) and self.weight.centre == "median"

    @property
    def writable(self) -> bool:
        """Not with functions, be they the kernel's or the weight's."""
        return self.kernel.writable and isinstance(self.weight, Decay)

    def with_centre(self, centre: Array) -> Self:
        """The weight about this point if its centre was "median"."""
        if isinstance(self.weight, Decay) and self.weight.centre == "median":
            return replace(self, weight=replace(self.weight, centre=tuple(centre.tolist())))
        return self

    def with_dimension(self, dim: int) -> Self:
        """The kernel with the dimension filled in, and the weight's checked."""
        centre = self.weight.centre if isinstance(self.weight, Decay) else 0.0
        if isinstance(centre, tuple) and len(centre) != dim:
            raise InputError(
                f"centre of Decay: expected one number or one for each of {dim} columns, got {len(centre)}"
            )
        return replace(self, kernel=self.kernel.with_dimension(dim))

    def moved(self, by: Array | float) -> Self:
        """The kernel for rows from which `by` was subtracted."""
        return replace(self, weight=self.weight.moved(by))

    def phi(self, t: Array) -> NoReturn:
        """Refused: whoever works with φ must know of the weight, and use `untilted` and `tilt`."""
        raise InputError(f"kernel: expected a plain kernel here, got {self.describe()}")

    def diagonal(self, rows: Array) -> Array:
        """w(x)² k(x, x)."""
        return np.asarray(self.kernel.diagonal(rows) * self.weight.weights(host(rows)) ** 2)

    def pairs(self, x: Array, y: Array) -> Array:
        """w(x_a) w(y_a) k(x_a, y_a)."""
        return self.kernel.pairs(x, y) * self.weight.weights(x) * self.weight.weights(y)

    def describe(self) -> str:
        """The kernel and its weight."""
        return f"{self.kernel.describe()}, tilted by {_words(self.weight)}"

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able form; of functions only the words."""
        if not self.writable or isinstance(self.weight, Functions):
            return super().to_dict()
        weight = {"exponent": self.weight.exponent, "scale": self.weight.scale, "centre": self.weight.centre}
        return {"type": "Tilted", "kernel": self.kernel.to_dict(), "weight": weight}


def _weight(weight: Any) -> Decay | Functions:
    if isinstance(weight, Decay | Functions):
        return weight
    functions = weight if isinstance(weight, tuple) else (weight,)
    if 1 <= len(functions) <= 2 and all(callable(function) for function in functions):
        return Functions(*functions)
    raise InputError(
        "weight of Tilted: expected Decay(), a function log_weight or a pair (log_weight, gradient), "
        f"got {weight!r:.80}"
    )


def _checked(name: str, function: RowFunction, rows: Array, shape: tuple[int, ...]) -> Array:
    # A copy: a function that works in place must not change the data.
    out = np.asarray(function(rows.copy()), dtype=np.float64)
    if out.shape != shape or not np.isfinite(out).all():
        came = f"shape {out.shape}" if out.shape != shape else "NaN or infinity"
        raise InputError(f"{name} of Tilted: expected finite numbers of shape {shape} for {len(rows)} rows, got {came}")
    return out


def _numbers(centre: Any) -> Centre:
    try:
        found = np.asarray(centre, dtype=np.float64)
    except (TypeError, ValueError):
        found = np.full(1, math.nan)
    if found.ndim > 1 or not found.size or not np.isfinite(found).all():
        raise InputError(f'centre of Decay: expected "median", a number or one for each column, got {centre!r:.80}')
    return tuple(found.tolist()) if found.ndim else float(found)


def _words(weight: Decay | Functions) -> str:
    if isinstance(weight, Functions):
        return "a weight of its own"
    scale, centre = weight.scale, weight.centre
    shown = centre if isinstance(centre, str | float) else _first(centre)
    size = scale if isinstance(scale, str) else f"{scale:.3g}"
    return f"(1 + r²/s²)^−{weight.exponent:g}, s = {size}, about {shown if isinstance(shown, str) else f'{shown:.3g}'}"


def _first(centre: Sequence[float]) -> str:
    more = ", …" if len(centre) > _MOST_SHOWN else ""
    return "(" + ", ".join(f"{value:.3g}" for value in centre[:_MOST_SHOWN]) + more + ")"
