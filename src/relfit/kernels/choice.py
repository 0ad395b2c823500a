"""Several kernels instead of one: `Select` chooses among them on held-out rows, `Collection`
uses all at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

from relfit.kernels.base import Kernel
from relfit.kernels.precomputed import Precomputed
from relfit.kernels.standard import Gaussian
from relfit.util.arrays import Array
from relfit.util.checks import check_number
from relfit.util.errors import InputError

# Bandwidths that `Select` tries by default, as multiples of the median distance.
FACTORS = (0.125, 0.25, 0.5, 1.0, 2.0)


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


def table_of(kernel: Kernel | Select | None) -> Precomputed | None:
    """The kernel matrix if `kernel` is one, or the first of several kernel matrices; None
    for kernels of rows.
    """
    several = (
        kernel.candidates if isinstance(kernel, Select) else getattr(kernel, "kernels", None)
    )
    kernels = several if several is not None else (kernel,)
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
