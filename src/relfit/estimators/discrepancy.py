"""A discrepancy of one's own: a function of two samples, and what its rows contribute."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from relfit.data.load import Data
from relfit.estimators.base import (
    Dependence,
    Estimates,
    EstimateSettings,
    Estimator,
    Kind,
    PairSource,
)
from relfit.estimators.mmd import Samples
from relfit.stats.joint import Psi
from relfit.util.arrays import Array, Rows, host
from relfit.util.checks import Choice, Whole, checked, described, option
from relfit.util.errors import InputError
from relfit.util.progress import Progress
from relfit.util.random import stream

RESAMPLING = ("jackknife", "bootstrap")
# Squares and cubes of contributions of this size are ordinary numbers.
_SMALLEST = 1e-100
_LARGEST = 1e100
# The reference and the model as a function gets them, and its value.
Evaluate = Callable[[Array, Array], float]


@described
@dataclass(frozen=True)
class Discrepancy:
    """A discrepancy of your own: `compare(..., discrepancy=Discrepancy(function))`, or the
    function itself.

    Its estimate must be asymptotically normal. `function(reference, model)` gets the rows
    (n, d) and (m, d) of the data and of one model. It returns a number, the smaller the
    better, or the number with the contributions (n,) of the reference's rows and (m,) of the
    model's: the estimated influence of every row, whose mean is taken out. Where it returns
    the number alone, resampling estimates the covariance:

    - "jackknife" leaves out one row after the other, or one of 200 random blocks of rows of
      larger samples. The function must be smooth, such as an energy or Wasserstein distance.
    - "bootstrap" draws rows with replacement. Use it for functions that are not smooth, such
      as medians.

    >>> def difference_of_means(reference, model):
    ...     return float(np.square(reference.mean(axis=0) - model.mean(axis=0)).sum())
    >>> rng = np.random.default_rng(0)
    >>> data = rng.normal(size=(300, 2))
    >>> models = {"near": rng.normal(0.5, 1, (300, 2)), "far": rng.normal(1, 1, (300, 2))}
    >>> import relfit
    >>> relfit.compare(data, models, discrepancy=difference_of_means, rng=0).worse.tolist()
    [False, True]
    """

    function: Callable[[Array, Array], Any]
    name: str | None = option(
        None, help="what results call it", shown="the name of the function"
    )
    resampling: str = option("jackknife", Choice(RESAMPLING), "how the covariance is estimated")
    replicates: int = option(
        200, Whole(50), "the most blocks of the jackknife, or the bootstrap's draws"
    )
    kernel: ClassVar[None] = None

    def __post_init__(self) -> None:
        checked(self)
        if not callable(self.function):
            raise InputError(
                f"function: expected a function of two samples, got "
                f"{type(self.function).__name__}"
            )

    @property
    def measure(self) -> str:
        """What results call it."""
        unnamed = type(self.function).__name__
        name = str(self.name or getattr(self.function, "__name__", unnamed))
        return name.replace("_", " ") if name.isidentifier() else name


class Functions(Samples):
    """Samples compared with a reference sample by a function of two samples."""

    words = "samples"
    discrepancies: ClassVar[tuple[str, ...]] = ()

    def check(
        self, data: Data, estimator: Estimator, dependence: Dependence, *, grouped: bool
    ) -> None:
        super().check(data, estimator, dependence, grouped=grouped)
        # Rows that go together are left out together.
        self.check_shared({len(x) for x in data.samples.values()}, dependence, grouped=grouped)

    def sources(
        self, data: Data, settings: EstimateSettings, *, in_order: bool = False
    ) -> list[PairSource]:
        return []

    def complete(self, data: Data, settings: EstimateSettings) -> Estimates:
        own: Discrepancy = data.own
        reference = np.asarray(host(data.reference), dtype=np.float64)
        samples = {
            name: np.asarray(host(rows), dtype=np.float64)
            for name, rows in data.samples.items()
        }
        answers = [_answer(own, name, reference, rows) for name, rows in samples.items()]
        values = np.array([value for value, _ in answers])
        known = [given for _, given in answers if given is not None]
        if known:
            if len(known) < len(answers):
                raise InputError(
                    f"{own.measure}: returned contributions for some models only; return them "
                    f"for all, or for none"
                )
            return Estimates(values, _in_range(own, _psi(known, settings.dependence)))
        progress = _Progress(settings.runtime.progress)
        evaluate = [progress.counting(_evaluating(own, name)) for name in samples]
        if own.resampling == "bootstrap":
            progress.total = own.replicates * len(samples)
            # Random numbers belong to ranks: another order of the models changes nothing.
            ranks = values.argsort(kind="stable").argsort().tolist()
            rows = list(samples.values())
            draws = _bootstrap(own, reference, rows, evaluate, ranks, settings)
            # Draws in place of rows, whose covariance is that of the estimates.
            deviations = draws - draws.mean(axis=0)
            psi = Psi(np.sqrt(len(draws)) * deviations)
            return Estimates(values, _in_range(own, psi))
        sizes = [len(reference), *map(len, samples.values())]
        left_out = [min(size, own.replicates) for size in sizes]
        progress.total = len(samples) * left_out[0] + sum(left_out[1:])
        psi = _jackknife(own, reference, list(samples.values()), evaluate, settings)
        return Estimates(values, _in_range(own, psi))


class _Progress:
    """Counts evaluations, and reports them."""

    def __init__(self, report: Progress | None) -> None:
        self.report = report
        self.total = 0
        self.done = 0

    def counting(self, evaluate: Evaluate) -> Evaluate:
        def counted(reference: Array, model: Array) -> float:
            value = evaluate(reference, model)
            self.done += 1
            if self.report is not None:
                self.report(self.done, self.total)
            return value

        return counted


def _answer(
    own: Discrepancy, name: str, reference: Array, rows: Array
) -> tuple[float, tuple[Array, Array] | None]:
    """The value for one model, and the contributions of the rows where they are returned."""
    answer = own.function(reference, rows)
    where = f"{own.measure} of model {name!r}"
    if not isinstance(answer, tuple):
        return _number(where, answer), None
    if len(answer) != 3:
        raise InputError(
            f"{where}: expected a number, or a number with the contributions of the "
            f"reference's rows and of the model's, got a tuple of {len(answer)}"
        )
    value, of_reference, of_model = answer
    given = (
        _contributions(f"{where}, rows of the reference", of_reference, len(reference)),
        _contributions(f"{where}, rows of the model", of_model, len(rows)),
    )
    return _number(where, value), given


def _number(where: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise InputError(
            f"{where}: expected a number, got {type(value).__name__}; return a float"
        ) from None
    if not np.isfinite(number):
        raise InputError(f"{where}: expected a finite number, got {number}")
    return number


def _contributions(where: str, value: Any, count: int) -> Array:
    rows = np.asarray(host(value), dtype=np.float64)
    if rows.shape != (count,):
        raise InputError(
            f"{where}: expected {count} contributions, one for each row, got shape {rows.shape}"
        )
    if not np.isfinite(rows).all():
        raise InputError(f"{where}: expected finite contributions, got NaN or infinity")
    return np.asarray(rows - rows.mean())


def _evaluating(own: Discrepancy, name: str) -> Evaluate:
    """The function of resampled rows, checked."""
    where = f"{own.measure} of model {name!r}, resampled"

    def evaluate(reference: Array, model: Array) -> float:
        return _number(where, own.function(reference, model))

    return evaluate


def _psi(contributions: list[tuple[Array, Array]], dependence: Dependence) -> Psi:
    """ψ rows from those of the reference and of the model, for every model."""
    of_reference = np.stack([each for each, _ in contributions], axis=1)
    of_models = tuple(each for _, each in contributions)
    if dependence == "paired":
        return Psi(of_reference + np.stack(of_models, axis=1))
    return Psi(of_reference, of_models, shared=dependence == "shared")


def _in_range(own: Discrepancy, psi: Psi) -> Psi:
    """ψ, unless squares of it leave float64: a variance of 0 would be a certain verdict."""
    rows = [*psi.models] if psi.reference is None else [psi.reference, *psi.models]
    largest = max(float(np.abs(each).max()) for each in rows)
    if largest > 0.0 and not _SMALLEST < largest < _LARGEST:
        raise InputError(
            f"{own.measure}: expected contributions between {_SMALLEST:g} and {_LARGEST:g} in "
            f"size, got {largest:.3g}; multiply the function's values by a constant"
        )
    return psi


def _jackknife(
    own: Discrepancy,
    reference: Array,
    samples: list[Array],
    evaluate: list[Evaluate],
    settings: EstimateSettings,
) -> Psi:
    """ψ_b = (k − 1)(mean − D without block b) of k blocks of rows, for both samples."""

    def contributions(rows: Array, value: Callable[[Array], float]) -> Array:
        blocks = _blocks(len(rows), own.replicates, settings.seed)
        without = np.array([value(np.delete(rows, block, axis=0)) for block in blocks])
        return np.asarray((len(without) - 1.0) * (without.mean() - without))

    found = []
    for x, of in zip(samples, evaluate, strict=True):
        of_reference = contributions(reference, partial(_of_reference, of, x))
        of_model = contributions(x, partial(of, reference))
        found.append((of_reference, of_model))
    return _psi(found, settings.dependence)


def _of_reference(evaluate: Evaluate, model: Array, reference: Array) -> float:
    return evaluate(reference, model)


def _blocks(rows: int, most: int, seed: int) -> Iterator[Rows]:
    """The rows one by one, or in random blocks of nearly one size; the same for all samples
    of a size.
    """
    order = np.arange(rows)
    if rows > most:
        order = stream(seed, "blocks").permutation(rows)
    return iter(np.array_split(order, min(rows, most)))


def _bootstrap(
    own: Discrepancy,
    reference: Array,
    samples: list[Array],
    evaluate: list[Evaluate],
    ranks: list[int],
    settings: EstimateSettings,
) -> Array:
    """(draws, l) the values of resampled rows.

    All models get the same resample of the reference. Shared rows are drawn together, and
    paired ones with those of the reference.
    """
    common = stream(settings.seed, "bootstrap", "reference")
    alone = [stream(settings.seed, "bootstrap", str(rank)) for rank in ranks]
    draws = np.empty((own.replicates, len(samples)))
    for draw in draws:
        chosen = common.integers(len(reference), size=len(reference))
        drawn = None
        if settings.dependence == "paired":
            drawn = chosen
        elif settings.dependence == "shared":
            drawn = common.integers(len(samples[0]), size=len(samples[0]))
        for i, (x, of, rng) in enumerate(zip(samples, evaluate, alone, strict=True)):
            rows = rng.integers(len(x), size=len(x)) if drawn is None else drawn
            draw[i] = of(reference[chosen], x[rows])
    return draws


def as_discrepancy(value: Any) -> Discrepancy | None:
    """The value as a discrepancy, if it is one or a function."""
    if isinstance(value, Discrepancy):
        return value
    if isinstance(value, Kind | type) or not callable(value):
        return None
    return Discrepancy(value)
