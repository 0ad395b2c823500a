"""Several kernels instead of one: to choose from on rows held out, or to use all at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

from relfit.kernels.base import Kernel, ScaledKernel
from relfit.kernels.composite import MultiScale
from relfit.kernels.custom import Precomputed
from relfit.kernels.standard import IMQ, Gaussian, Matern, RationalQuadratic
from relfit.util.arrays import Array
from relfit.util.errors import InputError

# Bandwidths tried by default, as multiples of the median distance.
FACTORS = (0.125, 0.25, 0.5, 1.0, 2.0)
# The kernels that go by a name, as on the command line.
NAMED: dict[str, ScaledKernel] = {
    "gaussian": Gaussian(),
    "imq": IMQ(),
    "matern12": Matern(0.5),
    "matern32": Matern(1.5),
    "matern52": Matern(2.5),
    "rational-quadratic": RationalQuadratic(),
    "multiscale": MultiScale(),
}


@dataclass(frozen=True)
class Select:
    """Choose the kernel on rows that are held out, and test on the others.

    Args:
        candidates: kernels to choose from; None is Gaussians with 1/8, 1/4, 1/2, 1 and 2 times the median distance as
            bandwidth.
        share: the share of the rows that is held out, between 0 and 1.

    >>> Select((Gaussian(1.0), Gaussian(2.0)), share=0.3).share
    0.3
    """

    candidates: tuple[Kernel, ...] | None = None
    share: float = 0.2

    def __post_init__(self) -> None:
        if self.candidates is not None:
            object.__setattr__(self, "candidates", _kernels("candidates of Select", self.candidates))
        number = isinstance(self.share, int | float) and not isinstance(self.share, bool)
        if not number or not 0.0 < self.share < 1.0:
            raise InputError(f"share of Select: expected a number between 0 and 1, got {self.share!r}")

    @property
    def needs_median(self) -> bool:
        """Whether the median distance is wanted."""
        return self.candidates is None or any(kernel.needs_median for kernel in self.candidates)

    def kernels(self, median: float) -> tuple[Kernel, ...]:
        """The candidates, with the median distance filled in."""
        if self.candidates is None:
            return tuple(Gaussian(factor * median) for factor in FACTORS)
        return tuple(kernel.with_median(median) for kernel in self.candidates)


@dataclass(frozen=True)
class Collection(Kernel):
    """Several kernels at once, in one best-set test: a model is worse if it is worse under some of them.

    The discrepancy that is shown is the mean over the kernels.

    >>> Collection((Gaussian(1.0), Gaussian(2.0))).describe()
    'any of 2 kernels: Gaussian kernel, bandwidth 1; Gaussian kernel, bandwidth 2'
    """

    kernels: tuple[Kernel, ...]
    plain: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "kernels", _kernels("kernels of Collection", self.kernels))

    @property
    def smooth(self) -> bool:  # type: ignore[override]
        """Whether every kernel is."""
        return all(kernel.smooth for kernel in self.kernels)

    @property
    def writable(self) -> bool:
        """Whether every kernel is."""
        return all(kernel.writable for kernel in self.kernels)

    @property
    def needs_median(self) -> bool:
        """Whether any of them needs it."""
        return any(kernel.needs_median for kernel in self.kernels)

    def phi(self, t: Array) -> NoReturn:
        """Refused: several kernels have no φ in common."""
        raise InputError("kernel: expected one kernel here, got a Collection; it is for compare with test='best-set'")

    def describe(self) -> str:
        """All of them."""
        return f"any of {len(self.kernels)} kernels: " + "; ".join(kernel.describe() for kernel in self.kernels)


def as_kernel(value: Any) -> Kernel | Select | None:
    """What `kernel=` may be: a kernel, None, a `Select`, the word for any of these, or several kernels at once.

    >>> as_kernel("imq")
    IMQ(scale=1.0, exponent=-0.5)
    """
    if isinstance(value, str):
        if value in NAMED or value == "select":
            return Select() if value == "select" else NAMED[value]
        raise InputError(f'kernel: expected {", ".join(NAMED)}, "select" or a relfit kernel, got {value!r:.40}')
    if isinstance(value, tuple | list):
        return Collection(tuple(value))
    if value is None or isinstance(value, Kernel | Select):
        return value
    raise InputError(
        f'kernel: expected a relfit kernel such as Gaussian() or IMQ(), or "select", got {type(value).__name__}'
    )


def table_of(kernel: Kernel | Select | None) -> Precomputed | None:
    """The kernel matrix whose row numbers the data are, if the kernel is one or several are to be used."""
    several = kernel.candidates if isinstance(kernel, Select) else getattr(kernel, "kernels", None)
    kernels = several if several is not None else (kernel,)
    tables = [each for each in kernels if isinstance(each, Precomputed)]
    sizes = {len(table.matrix) for table in tables}
    if len(sizes) > 1 or 0 < len(tables) < len(kernels):
        raise InputError("kernel: expected kernel matrices of one size throughout, or none, got some of each")
    return tables[0] if tables else None


def _kernels(argument: str, given: Any) -> tuple[Kernel, ...]:
    kernels = tuple(given) if isinstance(given, Iterable) else (given,)
    wrong = [kernel for kernel in kernels if not isinstance(kernel, Kernel) or isinstance(kernel, Collection)]
    if len(kernels) < 2 or wrong:
        came = f"{type(wrong[0]).__name__}" if wrong else f"{len(kernels)}"
        raise InputError(f"{argument}: expected two kernels or more, got {came}")
    if len(set(kernels)) < len(kernels):
        raise InputError(f"{argument}: expected different kernels, got one twice")
    return kernels
