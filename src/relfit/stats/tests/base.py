"""What a test of models is: a value with its options, which decides, bounds the differences and forecasts its power."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from relfit.stats.decision import Covariances, Decision
from relfit.stats.joint import JointEstimate
from relfit.stats.maxt import Maxima
from relfit.util.arrays import Array, Rows


@dataclass(frozen=True)
class Noise:
    """Noise added to the estimates of several trials before a model is selected.

    `realised` (trials, l) selects. A fresh draw has the same law: ``scale · scaled + constant`` with `scale` (trials,
    l), and `scaled` and `constant` (packs, draws, l); trial t uses the draws of pack t mod packs. Without a scale it is
    `constant`.
    """

    realised: Array
    constant: Array
    scaled: Array | None = None
    scale: Array | None = None

    def fresh(self, trials: Rows, pack: int) -> Array:
        """(trials, l, draws), or (1, l, draws) where all trials have the same draws."""
        constant: Array = self.constant[pack].T[None]
        if self.scale is None or self.scaled is None:
            return constant
        return np.asarray(self.scale[trials, :, None] * self.scaled[pack].T + constant)


@dataclass(frozen=True)
class Trials:
    """Simulated estimates that a test decides all at once.

    `values` (trials, l) with their covariances; `rows` is the number of rows behind them. What only some tests need is
    made when it is asked for: a second estimate to select with, the noise of the selection, the law of maxima.
    """

    values: Array
    covariances: Covariances
    rows: float
    selection: Callable[[], Array]
    noise: Callable[[], Noise]
    maxima: Callable[[], Maxima]


class Test(ABC):
    """A test of "model i is no worse than the best", for every model i. Subclasses are frozen dataclasses.

    Attributes:
        name: what the test is called in options, results and files.
        split: the fraction of the rows that selects the best model; None if the same rows select and test.
        default_correction: the correction of the p-values unless another is asked for.
        tests_best: True if the best model of the sample is tested too.
        selects: True if a random choice, and not the smallest estimate, decides which model counts as best.
        randomised: True if another seed may select another model.
        draws: True if the decision uses random numbers.
    """

    __test__ = False  # pytest collects classes with this name

    name: ClassVar[str]
    default_correction: ClassVar[str] = "none"
    tests_best: ClassVar[bool] = False
    selects: ClassVar[bool] = False
    randomised: ClassVar[bool] = False
    draws: ClassVar[bool] = False
    # A test that splits the rows has a property here.
    split: float | None = None

    @abstractmethod
    def decide(
        self,
        joint: JointEstimate,
        *,
        alpha: float,
        correction: str,
        margin: float = 0.0,
        seed: int = 0,
        selection: JointEstimate | None = None,
    ) -> Decision:
        """The verdicts. `selection` is the estimate from the rows that select, for tests that split the rows."""

    @abstractmethod
    def bounds(
        self, joint: JointEstimate, level: float, *, best: int, truncation: Array | None, seed: int
    ) -> tuple[Array, Array]:
        """(l,) lower and (l,) upper confidence bounds for the differences to the best, each one-sided at this level."""

    @abstractmethod
    def log_pvalues(self, trials: Trials, models: Sequence[int], alpha: float, *, exact: bool) -> tuple[Rows, Array]:
        """The best model (trials,) and log p (trials, models) of simulated estimates.

        Unless `exact`, it is enough that each p-value is on the right side of α.
        """

    @abstractmethod
    def two_model_power(self, signal: float, alpha: float, correction: str) -> float:
        """The probability that the worse one of two models is declared worse; `signal` is their gap over its s.e."""

    def resolved_correction(self, correction: str, covariance: Array, best: int) -> str:
        """The correction that is really applied: "auto" is BY, which needs no condition."""
        if len(covariance) <= 2:
            return "none"
        return "by" if correction == "auto" else correction
