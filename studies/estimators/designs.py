"""The estimators under study, named by words."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.compute.reduce import Runtime
from relfit.data.load import Data
from relfit.estimators.base import Estimates, Plan
from relfit.estimators.ksd import of_densities, of_target
from relfit.estimators.mmd import of_samples
from relfit.kernels.base import Kernel

Array = NDArray[np.float64]

_MAKERS = {"samples": of_samples, "densities": of_densities, "target": of_target}


def options_of(design: str, n: int) -> dict[str, Any]:
    """The options of `compare` for a design in words: "complete", "linear", "block", "block 5", "incomplete 25".

    The number is the rows of a block, or the pairs that every row is the first of.

    >>> options_of("incomplete 25", 1000), options_of("block 5", 1000)
    ({'estimator': 'incomplete', 'pairs': 25000}, {'estimator': 'block', 'blocks': 200})
    """
    estimator, _, number = design.partition(" ")
    if not number:
        return {"estimator": estimator}
    size = {"pairs": n * int(number)} if estimator == "incomplete" else {"blocks": n // int(number)}
    return {"estimator": estimator, **size}


def estimates_of(data: Data, design: str, kernel: Kernel, seed: int) -> Estimates:
    """The estimates by a design, with the covariance in both of its forms."""
    sizes = [len(data.reference), *(len(x) for x in data.samples.values())]
    options = options_of(design, max(sizes))
    plan = Plan(kernel, options.pop("estimator"), "independent", seed, Runtime(), **options)
    return _MAKERS[data.kind](data, plan)
