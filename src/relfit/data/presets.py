"""Established ways to compare features of images or text: KID and CMMD."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from relfit.data.arrays import as_rows
from relfit.kernels.base import Kernel
from relfit.kernels.standard import Gaussian, Polynomial
from relfit.stats.joint import JointEstimate
from relfit.util.arrays import Array
from relfit.util.checks import as_choice
from relfit.util.errors import InputError, way


@dataclass(frozen=True)
class Preset:
    """An established way to compare features.

    Attributes:
        kernel: the kernel.
        unit_length: whether every row is scaled to unit length before the kernel is applied.
        note: what results show.
        factor: the published number is this many times the biased estimate; None if it is the
            unbiased one.
    """

    kernel: Kernel
    unit_length: bool
    note: str
    factor: float | None = None

    def published(self, joint: JointEstimate) -> JointEstimate:
        """The numbers that papers print, from the complete estimates.

        The biased estimate exceeds the unbiased one by the mean of ‖e‖² of the errors, as
        the estimates know it.
        """
        if self.factor is None:
            return joint
        # Complete estimates of independent samples have one.
        assert joint.close is not None  # noqa: S101
        values = self.factor * (joint.values + joint.close.trace)
        covariance = self.factor**2 * joint.covariance
        # The yardstick measures what a biased estimate holds already.
        return replace(
            joint,
            values=values,
            covariance=covariance,
            psi=None,
            second_order=None,
            yardstick=None,
            close=None,
        )

    def prepare(self, argument: str, value: Any) -> Array:
        """The rows that the kernel is applied to; errors name them by `argument`."""
        rows = as_rows(argument, value)
        if not self.unit_length:
            return rows
        # Divided by the largest entry first: the square of a huge or tiny number would overflow
        # or underflow.
        largest = np.abs(rows).max(axis=1, keepdims=True)
        zero = largest[:, 0] == 0.0
        if zero.any():
            raise InputError(
                f"{argument}: expected rows that can be scaled to unit length, got only zeros "
                f"in {int(zero.sum())} of "
                f"{len(rows)} rows (first: row {int(zero.argmax())})"
            )
        scaled = rows / largest
        return np.asarray(scaled / np.linalg.norm(scaled, axis=1, keepdims=True))


PRESETS: dict[str, Preset] = {
    "kid": Preset(
        Polynomial(), False, "preset kid: the features as they are, kernel (x·y/d + 1)³"
    ),
    "cmmd": Preset(
        Gaussian(10.0),
        True,
        "preset cmmd: rows scaled to unit length, Gaussian kernel with σ = 10; "
        "the published CMMD is 1000 times the biased estimate of this",
        factor=1000.0,
    ),
}


def as_preset(name: Any) -> str:
    """The preset of this name, in any case."""
    if isinstance(name, str) and "fid" in name.lower():
        kid = way("--preset kid", 'preset="kid"')
        raise InputError(
            "preset: FID is not offered, because its estimate is biased by an amount that "
            "depends on the model and on "
            f"the number of images; use {kid}, on the same features"
        )
    return as_choice("preset", name, PRESETS)
