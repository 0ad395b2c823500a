"""What a kernel is: an immutable value with φ, φ' and φ'', and ``+``."""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from relfit.backends.base import Power, Variable, Weight, host
from relfit.errors import InputError

if TYPE_CHECKING:
    from relfit.kernels.sums import Sum

Array = NDArray[np.float64]
Length = float | Literal["median"]


@dataclass(frozen=True)
class Kernel(ABC):
    """A kernel k(x, y) = φ(t), with t = r² = ‖x − y‖² (radial) or t = x·y; an immutable value that adds.

    Radial kernels supply φ' and φ'' by r² too, which KSD needs.
    """

    # Whether r²φ'' exists at r = 0, so that KSD may use the kernel.
    smooth: ClassVar[bool] = True
    # Whether the kernel is φ(t) and nothing else, so that it can be added to others and tilted.
    plain: ClassVar[bool] = True

    @property
    def variable(self) -> Variable:
        """What φ is a function of: "r2" or "dot"."""
        return "r2"

    @property
    def unit_rate(self) -> float | None:
        """The number q with φ(r²) = exp(q r²/length²), or None when φ is not of that form.

        Then φ' = (q/length²)φ, so that every sum KSD needs follows from φ alone.
        """
        return None

    @property
    def power(self) -> Power | None:
        """φ as a power of t, or None when it is none."""
        return None

    @property
    def length(self) -> float:
        """The shortest distance over which the kernel changes noticeably."""
        return math.inf

    def largest_entry(self, dim: int) -> float:
        """Rows (n, dim) of numbers up to this size keep φ, and sums of its powers, within float64."""
        return math.inf

    @property
    def needs_median(self) -> bool:
        """Whether a length is still the word "median"."""
        return False

    def with_median(self, median: float) -> Kernel:
        """The same kernel with "median" replaced by the number."""
        return self

    @property
    def needs_centre(self) -> bool:
        """Whether the centre of a weight is still the word "median"."""
        return False

    def with_centre(self, centre: Array) -> Kernel:
        """The same kernel with that "median" replaced by a point (d,)."""
        return self

    @property
    def tilt(self) -> Tilt | None:
        """The weight w of a kernel w(x) w(y) φ; None for a plain one."""
        return None

    @property
    def untilted(self) -> Kernel:
        """The kernel without its weight, which is what tiles are made of."""
        return self

    def moved(self, by: Array | float) -> Kernel:
        """The kernel for rows from which the point `by` has been subtracted; only a weight notices."""
        return self

    @property
    def writable(self) -> bool:
        """Whether a file can hold the kernel: not if it is made of functions or of a matrix."""
        return True

    def with_dimension(self, dim: int) -> Kernel:
        """The same kernel with whatever depends on the number of columns filled in."""
        return self

    @abstractmethod
    def phi(self, t: Array) -> Array:
        """φ(t)."""

    def dphi(self, t: Array) -> Array:
        """φ'(t)."""
        raise InputError(f"kernel: {self.describe()} has no derivative by r²")

    def ddphi(self, t: Array) -> Array:
        """φ''(t)."""
        raise InputError(f"kernel: {self.describe()} has no second derivative by r²")

    def weights(self, t: Array, which: Sequence[Weight]) -> tuple[Array, ...]:
        """The asked-for functions of t, on one tile."""
        formulas = {"phi": self.phi, "dphi": self.dphi, "r2ddphi": self._r2ddphi}
        return tuple(formulas[name](t) for name in which)

    def diagonal(self, rows: Array) -> Array:
        """k(x, x) for every row."""
        dot = self.variable == "dot"
        return self.phi(host(library(rows).einsum("ij,ij->i", rows, rows)) if dot else np.zeros(len(rows)))

    def pairs(self, x: Array, y: Array) -> Array:
        """k(x_a, y_a) row by row."""
        if self.variable == "dot":
            return self.phi(np.einsum("ij,ij->i", x, y))
        gap = x - y
        return self.phi(np.einsum("ij,ij->i", gap, gap))

    def describe(self) -> str:
        """The kernel in words, for tables and reports."""
        words = ", ".join(f"{item.name} {_show(getattr(self, item.name))}" for item in fields(self))
        return f"{type(self).__name__} kernel, {words}"

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able form; `kernel_from_dict` reads it back, as its words alone where it is not `writable`."""
        if not self.writable:
            return {"type": "Recorded", "words": self.describe()}
        return {"type": type(self).__name__, **{item.name: _plain(getattr(self, item.name)) for item in fields(self)}}

    def __add__(self, other: object) -> Sum:
        """The sum of two kernels, itself a kernel."""
        from relfit.kernels.sums import add

        return add(self, other) if isinstance(other, Kernel) else NotImplemented

    def _r2ddphi(self, t: Array) -> Array:
        return t * self.ddphi(t)


@dataclass(frozen=True)
class ScaledKernel(Kernel):
    """A radial kernel with one length, which may be "median"."""

    length_field: ClassVar[str] = "length"

    def __post_init__(self) -> None:
        check_length(self.length_field, getattr(self, self.length_field))

    @property
    def length(self) -> float:
        """The kernel's length."""
        value = getattr(self, self.length_field)
        if isinstance(value, str):
            raise InputError(f'{self.length_field}: still "median"; call with_median(number) before using the kernel')
        return float(value)

    @property
    def needs_median(self) -> bool:
        """Whether the length is still to be computed from the data."""
        return bool(getattr(self, self.length_field) == "median")

    def with_median(self, median: float) -> Self:
        """The kernel with length `median` if it was "median"."""
        changes: dict[str, Any] = {self.length_field: median}
        return replace(self, **changes) if self.needs_median else self


class Tilt(Protocol):
    """A positive weight of the rows."""

    def weights(self, rows: Array, /) -> Array:
        """w(x) for every row (n,)."""

    def gradient(self, rows: Array, /) -> Array:
        """∇ log w at every row (n, d)."""


def library(t: Any) -> Any:
    """The functions (exp, sqrt, where, …) for the array library t belongs to: φ is written once for all of them."""
    name = type(t).__module__.partition(".")[0]
    if name in ("torch", "cupy"):
        return sys.modules[name]
    return sys.modules["jax.numpy"] if name in ("jax", "jaxlib") else np


def check_length(argument: str, value: object) -> None:
    """Refuse a length that is neither a positive number nor "median"."""
    if isinstance(value, str) and value == "median":
        return
    if isinstance(value, bool) or not isinstance(value, int | float | np.floating | np.integer):
        raise InputError(f'{argument}: expected a positive number or "median", got {value!r}')
    if not 0.0 < float(value) < math.inf:
        raise InputError(f"{argument}: expected a positive finite number, got {float(value):g}")


def check_positive(argument: str, value: object) -> None:
    """Refuse anything but a positive finite number."""
    if isinstance(value, str):
        raise InputError(f"{argument}: expected a positive number, got {value!r}")
    check_length(argument, value)


def _plain(value: Any) -> Any:
    if isinstance(value, Kernel):
        return value.to_dict()
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _show(value: Any) -> str:
    if isinstance(value, tuple):
        return "(" + ", ".join(_show(item) for item in value) + ")"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
