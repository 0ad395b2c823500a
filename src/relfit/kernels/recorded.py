"""What is left of a kernel made of functions or of a matrix once a result has been written to a file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NoReturn

from relfit.errors import InputError
from relfit.kernels.base import Array, Kernel


@dataclass(frozen=True)
class Recorded(Kernel):
    """A kernel known by its description only: it can be shown and written again, not evaluated."""

    words: str
    plain: ClassVar[bool] = False
    smooth: ClassVar[bool] = False

    def phi(self, t: Array) -> NoReturn:
        """Refused."""
        raise InputError(f"kernel: {self.words!r} was read from a file, which holds no functions; give it anew")

    def describe(self) -> str:
        """The description."""
        return self.words
