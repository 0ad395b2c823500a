"""Discrepancies at locations as values: a kernel, and where to look."""

from __future__ import annotations

import math
import reprlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.errors import InputError
from relfit.inputs import as_rows, check_choice
from relfit.kernels import Kernel

Array = NDArray[np.float64]

CHOICES = ("data", "optimise")
# Landmarks of the Nyström approximation that none asked for: 2√n, within these.
FEWEST_LANDMARKS, MOST_LANDMARKS = 20, 500


@dataclass(frozen=True, eq=False)
class AtLocations:
    """A discrepancy at J locations.

    Args:
        kernel: None is Gaussian with the median bandwidth.
        locations: their number J, or the locations themselves, an array (J, d) that these data had no part in.
        choose: "data" draws them from the rows, "optimise" picks those at which the models are best told apart on
            rows held out. Either way the rows used leave the sample.
        share: of the rows, at most 2,000 of each sample, that "optimise" holds out.
    """

    kernel: Kernel | None = None
    locations: Any = 10
    choose: str = "data"
    share: float = 0.2

    def __post_init__(self) -> None:
        check_choice("choose", self.choose, CHOICES)
        _check_share(self.share)
        if isinstance(self.locations, int | np.integer) and not isinstance(self.locations, bool):
            if self.locations < 1:
                raise InputError(f"locations: expected at least 1, got {self.locations}")
            return
        if self.locations is None or isinstance(self.locations, bool | float | str):
            raise InputError(f"locations: expected a number or an array (J, d), got {reprlib.repr(self.locations)}")
        if self.choose != "data":
            raise InputError("choose: the locations are given already; leave it out, or give their number only")
        object.__setattr__(self, "locations", as_rows("locations", self.locations))

    @property
    def given(self) -> Array | None:
        """The locations (J, d), if they were given."""
        return self.locations if isinstance(self.locations, np.ndarray) else None

    def count(self, rows: int) -> int:
        """J, for so many rows of the reference."""
        return int(self.locations) if self.given is None else len(self.given)


def _check_share(share: Any) -> None:
    if not isinstance(share, float) or not 0.0 < share < 1.0:
        raise InputError(f"share: expected a number between 0 and 1, got {reprlib.repr(share)}")


class UME(AtLocations):
    """Squared difference of the mean embeddings of a sample and the data at J locations; linear in the rows.

    ``UME² = mean_j (E k(x,v_j) − E k(r,v_j))²``. It compares the models at these locations only.

    >>> UME(locations=[[0.0, 0.0], [1.0, 1.0]]).given.shape
    (2, 2)
    """


class FSSD(AtLocations):
    """Squared finite-set Stein discrepancy of a density at J locations; linear in the rows.

    ``FSSD² = mean_j ‖E[s(r) k(r,v_j) + ∇_r k(r,v_j)]‖²/d`` over the data r, with s the density's score.

    >>> FSSD(locations=5, choose="optimise").share
    0.2
    """


@dataclass(frozen=True, eq=False)
class Nystroem(AtLocations):
    """Squared MMD under the kernel that J locations span: an approximation of MMD that is linear in the rows.

    ``k(x,y) ≈ k(x,v) K⁻¹ k(v,y)`` with K = k(v,v'). With J well above √n it is the MMD itself, for all its tests can
    tell; with few locations models that are tied in MMD may not be tied in it. Without `locations` J is 2√n, at
    least 20 and at most 500. They are given or drawn, never optimised.

    >>> Nystroem().count(10_000)
    200
    """

    locations: Any = None

    def __post_init__(self) -> None:
        if self.choose != "data":
            raise InputError(f'choose: expected "data" for Nystroem, got {reprlib.repr(self.choose)}')
        _check_share(self.share)
        if self.locations is not None:
            super().__post_init__()

    def count(self, rows: int) -> int:
        """J, for so many rows of the reference."""
        if self.locations is not None:
            return super().count(rows)
        return min(max(FEWEST_LANDMARKS, math.ceil(2.0 * math.sqrt(rows))), MOST_LANDMARKS)


AT_LOCATIONS: dict[str, type[AtLocations]] = {"ume": UME, "nystroem": Nystroem, "fssd": FSSD}
