"""The distinct models behind a comparison: copies are tested once and share their original's answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from relfit.estimate import JointEstimate

if TYPE_CHECKING:
    from relfit.result.comparison import Comparison

_PREFIX = "duplicate of "


def originals(result: Comparison) -> list[str]:
    """For every model the one it stands for: itself, or the one it is a copy of."""
    return [
        next((word.removeprefix(_PREFIX) for word in words if word.startswith(_PREFIX)), name)
        for name, words in zip(result.names, result.status, strict=True)
    ]


def distinct(result: Comparison) -> JointEstimate:
    """The estimate of the distinct models, each once."""
    index = [i for i, original in enumerate(originals(result)) if original == result.names[i]]
    return JointEstimate(
        tuple(result.names[i] for i in index),
        result.discrepancy[index],
        result.covariance[np.ix_(index, index)],
        _of(result.sizes, index),
        groups=_of(result.groups, index),
    )


def _of(counts: tuple[int, ...] | None, index: list[int]) -> tuple[int, ...] | None:
    return counts if counts is None or len(counts) == 1 else (counts[0], *(counts[1 + i] for i in index))


def places(result: Comparison) -> NDArray[np.intp]:
    """(l,) where each model stands among the distinct ones: ``values[places]`` gives every copy its value."""
    stand_for = originals(result)
    kept = [name for name, original in zip(result.names, stand_for, strict=True) if name == original]
    return np.array([kept.index(original) for original in stand_for], dtype=np.intp)
