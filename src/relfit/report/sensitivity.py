"""Would another bandwidth give another answer? The same test at several multiples of it."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from relfit.api import compare
from relfit.data.models import Density
from relfit.kernels.base import Kernel, ScaledKernel, Sum, check_positive
from relfit.kernels.composite import Tilted
from relfit.report.recall import Recalled
from relfit.results.comparison import Comparison
from relfit.util.arrays import Array

FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
# Within these multiples a verdict should stay what it is.
NEAR = (0.5, 2.0)
# The settings that are kept. Not the estimator: those for very many rows would find too few here.
_KEPT = ("test", "alpha", "select_fraction", "correction", "dependence", "margin", "variance")


@dataclass(frozen=True)
class Sensitivity:
    """The comparison repeated with the kernel's length multiplied by each factor.

    Attributes:
        factors, lengths: the multiples, and the lengths they give.
        results: one comparison for each.
        rows: how many rows of the reference (or of the largest sample) were used, and whether these are all.
    """

    factors: tuple[float, ...]
    lengths: tuple[float, ...]
    results: tuple[Comparison, ...]
    rows: int
    complete: bool

    def kinds(self, name: str) -> tuple[str, ...]:
        """For every factor "best", "worse" or "open" for this model."""
        found = []
        for result in self.results:
            i = result.names.index(name)
            found.append("best" if i == result.best_index else "worse" if result.worse[i] else "open")
        return tuple(found)

    def ratios(self) -> Array:
        """(l, factors) the difference to the best over its standard error; 0 where it has none."""
        columns = []
        for result in self.results:
            error = result.difference_standard_error
            columns.append(np.divide(result.difference, error, out=np.zeros_like(error), where=error > 0.0))
        return np.stack(columns, axis=1)

    @property
    def stable(self) -> bool:
        """Whether best and verdicts are the same from half the length to twice it."""
        near = [k for k, factor in enumerate(self.factors) if NEAR[0] <= factor <= NEAR[1]]
        return all(len({self.kinds(name)[k] for k in near}) == 1 for name in self.results[0].names)


def bandwidth_sensitivity(
    comparison: Comparison, recalled: Recalled, factors: Sequence[float] = FACTORS
) -> Sensitivity | None:
    """The same test on the recalled rows for several multiples of the kernel's length.

    None for a kernel that has no length, for discrepancies at locations, which were chosen with it, and for rows in
    groups, whose labels a result does not hold.

    It tells how far the answer hangs on the bandwidth. It is no way to choose one: a bandwidth chosen because of what
    these data say about the models makes the p-values wrong.
    """
    kernels = [scaled(recalled.kernel, factor) for factor in factors]
    if any(kernel is None for kernel in kernels) or comparison.measure not in ("mmd", "ksd"):
        return None
    if comparison.groups is not None:
        return None
    reference, models = recalled.part()
    remembered = {name: _remembering(model) for name, model in models.items()}
    data = _remembering(reference)
    options = {**_options(comparison), "rng": comparison.seed or 0, "progress": False}
    results = tuple(compare(data, remembered, kernel=kernel, **options) for kernel in kernels)
    used = [len(rows) for key, rows in recalled.rows.items() if key is not None or recalled.data.target is None]
    lengths = tuple(kernel.length for kernel in kernels if kernel is not None)
    return Sensitivity(tuple(factors), lengths, results, max(used), recalled.complete)


def scaled(kernel: Kernel, factor: float) -> Kernel | None:
    """The kernel with every length multiplied by the factor; None where it has no length.

    >>> from relfit.kernels.standard import Gaussian, IMQ, Polynomial
    >>> scaled(Gaussian(2.0), 0.5), scaled(Gaussian(1.0) + IMQ(), 3.0), scaled(Polynomial(), 2.0)
    (Gaussian(bandwidth=1.0), Sum(terms=(Gaussian(bandwidth=3.0), IMQ(scale=3.0, exponent=-0.5))), None)
    """
    check_positive("factors", factor)
    if isinstance(kernel, Sum):
        terms = [scaled(term, factor) for term in kernel.terms]
        return Sum(tuple(term for term in terms if term is not None)) if None not in terms else None
    if isinstance(kernel, Tilted):
        inner = scaled(kernel.kernel, factor)
        return None if inner is None else replace(kernel, kernel=inner)
    if not isinstance(kernel, ScaledKernel):
        return None
    changes: dict[str, Any] = {kernel.length_field: factor * float(getattr(kernel, kernel.length_field))}
    return replace(kernel, **changes)


def _options(comparison: Comparison) -> dict[str, Any]:
    """The settings that the result has recorded and `compare` takes."""
    known = [name for name in _KEPT if name in inspect.signature(compare).parameters]
    recorded = {name: getattr(comparison, name, None) for name in known}
    return {name: value for name, value in recorded.items() if value is not None}


def _remembering(model: Array | Density) -> Array | Density:
    """A density that is asked only once for its scores at the same rows."""
    if not isinstance(model, Density):
        return model
    known: dict[bytes, Array] = {}

    def score(x: Array) -> Array:
        key = x.tobytes()
        if key not in known:
            known[key] = model.scores(x)
        return known[key]

    return Density(score=score, dim=model.dim)
