"""Radial kernels of the user's own: φ with its derivatives given, or taken by automatic differentiation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from relfit.errors import InputError
from relfit.kernels.autodiff import derivative
from relfit.kernels.base import Array, Length, ScaledKernel, library

Profile = Callable[[Any], Any]

# Where a profile is tried out: away from round numbers, where compact profiles like to end.
_TRIED = np.array([1.3e-3, 0.017, 0.13, 0.37, 0.93, 2.7, 7.1])
_STEP = 1e-4
_DERIVATIVES = ("derivative", "second_derivative")
# A central difference with that step is right to 1e-7 or so; a wrong formula is hardly ever right to 1e-4.
_TOLERANCE = 1e-4


@dataclass(frozen=True)
class Radial(ScaledKernel):
    """``k = φ(r²/s²)`` with a φ of your own, a function of arrays of squared distances.

    KSD needs φ' and φ'' too: give them, or let a library differentiate φ. They are compared with differences of φ
    once, when the kernel is made. That φ gives a positive definite kernel in your dimension is for you to know.

    Args:
        profile: φ.
        derivative: φ', by φ's own argument.
        second_derivative: φ''.
        scale: s, a number or "median".
        autodiff: "torch" or "jax": φ takes arrays of that library, which then gives φ' and φ''.
        name: what tables call the kernel.

    >>> kernel = Radial(lambda u: 1 / (1 + u), lambda u: -((1 + u) ** -2), lambda u: 2 * (1 + u) ** -3, scale=2.0)
    >>> kernel.phi(np.array([0.0, 4.0]))
    array([1. , 0.5])
    """

    profile: Profile
    derivative: Profile | None = None
    second_derivative: Profile | None = None
    scale: Length = 1.0
    autodiff: str | None = None
    name: str = "radial"
    length_field: ClassVar[str] = "scale"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("profile", *_DERIVATIVES):
            given = getattr(self, name)
            if not callable(given) and (given is not None or name == "profile"):
                raise InputError(f"{name} of Radial: expected a function of r², got {type(given).__name__}")
        phi, *derivatives = self._functions
        _check_profile(phi)
        for name, below, function in zip(_DERIVATIVES, self._functions, derivatives, strict=False):
            if below is not None and function is not None:
                _check_derivative(name, below, function)

    @property
    def smooth(self) -> bool:  # type: ignore[override]
        """Whether both derivatives are there, so that KSD may use it."""
        return None not in self._functions

    def phi(self, t: Array) -> Array:
        """φ(r²/s²)."""
        return self._of(0, t)

    def dphi(self, t: Array) -> Array:
        """φ'(r²/s²)/s²."""
        return self._of(1, t)

    def ddphi(self, t: Array) -> Array:
        """φ''(r²/s²)/s⁴."""
        return self._of(2, t)

    def describe(self) -> str:
        """Its name and scale."""
        size = self.scale if isinstance(self.scale, str) else f"{self.scale:.3g}"
        return f"{self.name} kernel, scale {size}"

    @property
    def writable(self) -> bool:
        """Functions cannot be written down."""
        return False

    def _r2ddphi(self, t: Array) -> Array:
        # φ'' may be infinite at 0, where its product with r² is 0.
        arrays = library(t)
        inside = arrays.where(t > 0.0, t, arrays.ones_like(t))
        out: Array = arrays.where(t > 0.0, inside * self.ddphi(inside), arrays.zeros_like(t))
        return out

    def _of(self, order: int, t: Array) -> Array:
        function = self._functions[order]
        if function is None:
            raise InputError(f"kernel: {self.describe()} has no derivatives; give them, or autodiff=, for KSD")
        out: Array = function(t / self.length**2) / self.length ** (2 * order)
        return out

    @cached_property
    def _functions(self) -> tuple[Profile, Profile | None, Profile | None]:
        """φ, φ' and φ'' on NumPy arrays."""
        if self.autodiff is None:
            return self.profile, self.derivative, self.second_derivative
        own = [derivative(self.profile, self.autodiff, order) for order in range(3)]
        return own[0], self.derivative or own[1], self.second_derivative or own[2]


def _check_profile(phi: Profile) -> None:
    """Refuse a φ that no kernel has."""
    u = np.concatenate([[0.0], _TRIED])
    values = _numbers("profile", phi, u)
    k = int(np.abs(values).argmax())
    if not values[0] > 0.0 or abs(values[k]) > values[0] * (1.0 + 1e-9):
        raise InputError(
            f"profile of Radial: expected φ(0) > 0 and |φ| ≤ φ(0) everywhere, as every kernel has, got φ(0) = "
            f"{values[0]:g} and φ({u[k]:g}) = {values[k]:g}"
        )


def _check_derivative(name: str, below: Profile, function: Profile) -> None:
    if name == "derivative":
        _numbers(name, function, np.zeros(1))
    step = _STEP * _TRIED
    slope = (_numbers(name, below, _TRIED + step) - _numbers(name, below, _TRIED - step)) / (2.0 * step)
    given = _numbers(name, function, _TRIED)
    # Beside the slope itself, what a change of φ over its whole argument would give: rounding is no error.
    size = np.abs(slope) + 1e-4 * np.abs(_numbers(name, below, _TRIED)) / _TRIED
    wrong = np.abs(given - slope) > _TOLERANCE * size
    if wrong.any():
        k = int(wrong.argmax())
        raise InputError(
            f"{name} of Radial: expected the derivative of the function before it, about {slope[k]:.6g} at "
            f"{_TRIED[k]:g}, got {given[k]:.6g}"
        )


def _numbers(name: str, function: Profile, u: Array) -> Array:
    try:
        with np.errstate(all="ignore"):
            out = np.asarray(function(u.copy()), dtype=np.float64)
    except (TypeError, ValueError, AttributeError, RuntimeError) as error:
        first = str(error).partition("\n")[0]
        raise InputError(f"{name} of Radial: expected a function of an array of r², it failed: {first}") from None
    bad = ~np.isfinite(out)
    if out.shape != u.shape or bad.any():
        came = f"shape {out.shape}" if out.shape != u.shape else f"{out[bad][0]} at {u[bad][0]:g}"
        raise InputError(f"{name} of Radial: expected finite numbers of shape {u.shape}, got {came}")
    return out
