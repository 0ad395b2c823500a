"""The distinct models behind a comparison: copies are tested once and share their original's answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from relfit.stats.joint import JointEstimate

if TYPE_CHECKING:
    from relfit.results.comparison import Comparison


def originals(result: Comparison) -> list[str]:
    """For every model the one it stands for: itself, or the one it is a copy of."""
    return [result.copies.get(name, name) for name in result.names]


def distinct(result: Comparison) -> JointEstimate:
    """The estimate of the distinct models, each once."""
    index = [i for i, original in enumerate(originals(result)) if original == result.names[i]]
    return JointEstimate(
        tuple(result.names[i] for i in index),
        result.discrepancy[index],
        result.covariance[np.ix_(index, index)],
        _of(result.sizes, index),
        near_degeneracy=None if result.near_degeneracy is None else result.near_degeneracy[index],
        second_order=None if result.second_order is None else result.second_order[np.ix_(index, index)],
        groups=_of(result.groups, index),
    )


def unseen(result: Comparison, name: str) -> set[str]:
    """The other models that the kernel cannot tell from this one: neither D varies, both are the same number.

    A kernel that takes one value on all pairs of rows leaves that behind. Copies are the same model, and not meant.
    """
    if result.kernel is None:
        return set()
    stand_for = dict(zip(result.names, originals(result), strict=True))
    value = {other: (result.discrepancy[i], result.standard_error[i]) for i, other in enumerate(result.names)}
    if value[name][1] > 0.0:
        return set()
    return {other for other in result.names if value[other] == value[name] and stand_for[other] != stand_for[name]}


def blind(result: Comparison) -> bool:
    """Whether the kernel can tell no model from any other."""
    others = unseen(result, result.best)
    stand_for = zip(result.names, originals(result), strict=True)
    return bool(others) and all(name in others or original == result.best for name, original in stand_for)


def _of(counts: tuple[int, ...] | None, index: list[int]) -> tuple[int, ...] | None:
    return counts if counts is None or len(counts) == 1 else (counts[0], *(counts[1 + i] for i in index))


def places(result: Comparison) -> NDArray[np.intp]:
    """(l,) where each model stands among the distinct ones: ``values[places]`` gives every copy its value."""
    stand_for = originals(result)
    kept = [name for name, original in zip(result.names, stand_for, strict=True) if name == original]
    return np.array([kept.index(original) for original in stand_for], dtype=np.intp)
