"""What every estimator shares: the estimates with their ψ rows, the settings they are made
with, the kinds of data.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np

from relfit.compute.reduce import Runtime
from relfit.data.load import Data, require_rows
from relfit.estimators.pairkernel import ROW_BY_ROW, Layout
from relfit.kernels.base import Kernel
from relfit.stats.joint import Psi, centred
from relfit.util.arrays import Array, Rows, cuts
from relfit.util.checks import Choice, checked, described, option
from relfit.util.errors import InputError
from relfit.util.libraries import usable_cores
from relfit.util.random import stream

# Nanoseconds of one core, to within a factor of two or so on processors of the last ten years:
# for one kernel value and each of its columns in tiles and in bands, and for each right-hand
# side that a value is multiplied with.
TILE_VALUE = 1.6
TILE_COLUMN = 0.05
BAND_VALUE = 8.0
BAND_COLUMN = 0.15
RIGHT_HAND_SIDE = 0.09
# Pairs of rows that estimate the second-order part: enough for a fraction that is compared with
# 0.3, and for a correction (docs/evidence/estimators.md has the simulation). Numbers fetched at
# once: few enough for the processor's cache.
PAIRS_PER_ROW = 20
MOST_PAIRS = 5_000
CHUNK_NUMBERS = 2**16
VARIANCES = ("auto", "projection")
# Rows whose pairs are all evaluated to see how many components the second-order part has.
COMPONENT_ROWS = 96
Dependence = Literal["independent", "shared", "paired", "chain"]


@dataclass(frozen=True)
class SecondOrderMoments:
    """The second-order parts ‖e_i‖² − mean of l estimated squared distances, e_i being the
    errors (`stats.close`).

    Attributes:
        covariance: (l, l) without the small bias of `Estimates.second_order`.
        trace: (l,) the means of ‖e_i‖².
        components: the number of equal components that give ‖e‖² its skewness.
    """

    covariance: Array
    trace: Array
    components: float


@dataclass(frozen=True)
class Estimates:
    """Discrepancies of l models with their ψ rows.

    Attributes:
        values: (l,) the estimates.
        psi: the first-order contribution of every row.
        second_order: the part of the covariance (l, l), or of each variance (l,) where no
            more is known, that remains when a model equals the data (complete estimators
            only). The fraction of the whole variance that it makes up tells how far the
            normal approximation can be trusted.
        notes: sentences for the reader.
        covariance: the covariance of the estimates where it is not that of the ψ rows.
        alignment: (l,) how many standard errors speak for row a of the model going with row
            a of the reference; NaN for samples of unequal size.
        quadratic: more about the second-order part, or None.
        yardstick: how far two halves of the reference are apart (`split_half_discrepancy`), or
            None.
    """

    values: Array
    psi: Psi
    second_order: Array | None = None
    notes: tuple[str, ...] = ()
    covariance: Array | None = None
    alignment: Array | None = None
    quadratic: SecondOrderMoments | None = None
    yardstick: float | None = None

    @property
    def projection(self) -> Array:
        """V, by first-order theory where the design is complete."""
        return self.psi.covariance() if self.covariance is None else self.covariance

    @property
    def second_order_variances(self) -> Array:
        """(l,) the second-order part of each variance; 0 if it is not known."""
        if self.second_order is None:
            return np.zeros(len(self.values))
        return np.diag(self.second_order) if self.second_order.ndim == 2 else self.second_order

    def second_order_fraction(self) -> Array | None:
        """(l,) ρ_i = S2_ii/V_ii; V holds the second-order part twice."""
        if self.second_order is None:
            return None
        return ratio(self.second_order_variances, np.diag(self.projection))


def ratio(numerator: Array, denominator: Array) -> Array:
    """Numerators over denominators, 0 where these are not above 0."""
    none = np.zeros(np.shape(denominator))
    return np.divide(numerator, denominator, out=none, where=denominator > 0.0)


def joint_psi(reference: Array, models: Sequence[Array], dependence: Dependence) -> Psi:
    """ψ rows from contributions of the reference's rows (n, l) and of each model's (m_i,),
    which are centred here. Paired rows make a U-statistic.
    """
    if dependence == "paired":
        return as_jackknife(Psi(centred(reference + np.stack(models, axis=1))))
    own = tuple(centred(rows) for rows in models)
    return Psi(centred(reference), own, shared=dependence == "shared")


def as_jackknife(psi: Psi) -> Psi:
    """ψ·(n−1)/(n−2): then ψᵀψ/(n(n−1)) is the jackknife covariance of a U-statistic, which
    the plain projection falls short of by ((n−2)/(n−1))².
    """
    assert psi.reference is not None  # noqa: S101  (a U-statistic of its rows)
    return replace(psi, reference=psi.reference * jackknife_factor(len(psi.reference)))


def jackknife_factor(rows: int) -> float:
    """(n−1)/(n−2)."""
    return (rows - 1) / (rows - 2)


@dataclass(frozen=True)
class PairSource:
    """Rows for which pairs are evaluated, with all that belongs to them: (reference, models)
    or (rows, scores).

    Attributes:
        rows, models: the numbers n of rows and l of models.
        fetch: from m positions in 0..n−1 to arrays of m rows each: the data's, then each
            model's rows or scores there.
        values: from the arrays of two sides to the values (l, …) of their pairs in a layout.
        width: the number of entries of one row in all those arrays together.
    """

    rows: int
    models: int
    fetch: Callable[[Rows], list[Array]]
    values: Callable[[Sequence[Array], Sequence[Array], Layout], Array]
    width: int = 1

    def values_between(self, a: Rows, b: Rows) -> Array:
        """The values (m, l) of the pairs of rows a and b."""
        return self.values(self.fetch(a), self.fetch(b), ROW_BY_ROW).T


def second_order(
    values: Callable[[Rows, Rows], Array], width: int, seed: int, psi: Array, estimates: Array
) -> tuple[Array, SecondOrderMoments]:
    """The second-order part from random pairs of rows, given the ψ rows (n, l) and D.

    `values` gives h at pairs of rows, (m, l); it reads `width` numbers of each row. The
    result is C/M (l, l), with C the covariance of h over some pairs and M = n(n−1)/2 the
    number of all pairs; and what is known more exactly from centred values ``h_ab − (ψ_a +
    ψ_b)/2 − D``.
    """
    n, models = psi.shape
    size = max(16, CHUNK_NUMBERS // width)

    def at(a: Rows, b: Rows) -> Array:
        return np.concatenate([values(a[part], b[part]) for part in cuts(len(a), size)])

    def centred_values(a: Rows, b: Rows, h: Array) -> Array:
        return np.asarray(h - (psi[a] + psi[b]) / 2.0 - estimates)

    # The same for all models of a size.
    rng = stream(seed, "second order")
    count = min(PAIRS_PER_ROW * n, MOST_PAIRS)
    a = rng.integers(n, size=count)
    b = (a + rng.integers(1, n, size=count)) % n
    some = rng.choice(n, size=min(n, COMPONENT_ROWS), replace=False)
    h = at(a, b)
    plain = np.cov(h.T).reshape(models, models) / (n * (n - 1) / 2)
    pairs = centred_values(a, b, h)
    covariance = pairs.T @ pairs / len(a) * (2.0 / (n * (n - 3)))
    trace = np.maximum(at(some, some).mean(axis=0) - estimates, 0.0) / n
    places = np.triu_indices(len(some), 1)
    first = some[places[0]]
    second = some[places[1]]
    matrices = np.zeros((models, len(some), len(some)))
    matrices[:, *places] = centred_values(first, second, at(first, second)).T
    return plain, SecondOrderMoments(
        covariance, trace, components(matrices + matrices.transpose(0, 2, 1))
    )


def components(matrices: Array) -> float:
    """The number of equal components that give ‖e‖² the skewness it has: (tr C²)³/(tr C³)².

    `matrices` (l, m, m) hold the centred kernel values of m rows, with 0 on the diagonals.
    The traces are means of k_ab² and of k_ab k_bc k_ca over different rows; models are
    averaged.
    """
    rows = matrices.shape[1]
    # In units of the largest value: the cubes of very large ones do not fit into float64.
    largest = np.abs(matrices).max(axis=(1, 2), keepdims=True)
    matrices = matrices / np.where(largest > 0.0, largest, 1.0)
    second = np.einsum("iab,iab->i", matrices, matrices) / (rows * (rows - 1))
    third = np.einsum("iab,iab->i", matrices @ matrices.transpose(0, 2, 1), matrices) / (
        rows * (rows - 1) * (rows - 2)
    )
    skewness = ratio(np.maximum(third, 0.0), second**1.5)
    return float(1.0 / max(skewness.mean(), 1e-3) ** 2)


def split_half_discrepancy(together: float, pairs: float, apart: float, n: int) -> float:
    """``4 (Σ_{a~b} k_ab − pairs·mean)/n²``, the mean squared distance of two halves of n rows.

    The sum, `together`, is over `pairs` of rows that depend on each other: each row with
    itself, and rows of one group. `apart` is the mean of k over all other pairs. The halves
    are of whole groups; docs/evidence/derivations.md has the derivation.

    >>> split_half_discrepancy(
    ...     together=100 * 1.0, pairs=100, apart=0.5, n=100
    ... )  # 100 independent rows, k(x,x) = 1
    0.02
    """
    return max(4.0 * (together - pairs * apart) / n**2, 0.0)


def pair_count(reference: int, models: Sequence[int]) -> int:
    """The kernel values that a complete estimate evaluates, from the numbers of rows."""
    return sum(m * (m - 1) // 2 for m in (reference, *models)) + reference * sum(models)


def complete_seconds(pairs: float, columns: int, right_hand_sides: int = 0) -> float:
    """A rough estimate of the time that this many kernel values take."""
    each = TILE_VALUE + TILE_COLUMN * columns + RIGHT_HAND_SIDE * right_hand_sides
    return 1e-9 * pairs * each / usable_cores()


def samples_of(data: Data) -> dict[str | None, Array]:
    """The rows of the reference (key None), unless it is a density, and of every sample."""
    samples: dict[str | None, Array] = {None: data.reference} if data.target is None else {}
    samples.update(data.samples)
    return samples


def sample_name(key: str | None) -> str:
    """A key of `samples_of` in an error message."""
    return "reference" if key is None else f"model {key!r}"


@dataclass(frozen=True)
class Groups:
    """Group numbers 0, 1, … of every row of the reference (key None) and of every sample.

    Samples that belong together (shared or paired) number their groups in common; `counts`
    holds the numbers of groups.
    """

    codes: dict[str | None, Rows]
    counts: dict[str | None, int]


@dataclass(frozen=True, eq=False)
class Locations:
    """J locations (J, d), and the numbers of the rows that were used to choose them (key
    None: the reference's).

    `note` says how the locations were chosen.
    """

    points: Array
    left_out: Mapping[str | None, Rows] = field(default_factory=dict)
    note: str = ""


class Estimator(ABC):
    """Which pairs of rows are used. Subclasses are frozen dataclasses with the options of
    one design.

    Attributes:
        name: what users call it.
        words: what it is, in a paragraph about methods.
        every_pair: True if all pairs of rows are evaluated, which groups and chains need.
        numbers_kept: held for every model and row of the reference, and for every row of a
            model that contributes by itself.
        memory_parts: the parts that memory is divided into, one of which holds a patch of
            kernel values.
        with_columns: True if kernel values are multiplied with several columns whatever the
            discrepancy.
    """

    name: ClassVar[str]
    words: ClassVar[str]
    variance: str = "auto"
    every_pair: ClassVar[bool] = False
    fewest_rows: ClassVar[int] = 20
    fewest_selection_rows: ClassVar[int] = 5
    numbers_kept: ClassVar[int] = 4
    memory_parts: ClassVar[int] = 1
    with_columns: ClassVar[bool] = False

    @abstractmethod
    def estimate(self, kind: Kind, data: Data, settings: EstimateSettings) -> Estimates:
        """The estimate for data of this kind."""

    def __post_init__(self) -> None:
        checked(self)

    # Most refuse nothing.
    def check_rows(self, rows: int, models: int, *, selection: bool) -> None:  # noqa: B027
        """Refuse options that do not fit samples of this size and a joint covariance of so
        many models.
        """

    def fewest_bytes(self, rows: int, models: int, width: int) -> int:
        """The least memory that the design can work with, for rows of `width` numbers."""
        return 0

    def values(self, rows: int, lengths: Sequence[int], columns: int = 1) -> int:
        """The kernel values that are evaluated, from the numbers of rows."""
        return pair_count(rows, lengths)

    def seconds(
        self, rows: int, lengths: Sequence[int], columns: int, right_hand_sides: int = 0
    ) -> float:
        """A rough estimate of the time that takes."""
        return complete_seconds(self.values(rows, lengths, columns), columns, right_hand_sides)

    def record(self) -> dict[str, Any]:
        """The options as a result keeps them; None for those that are not given."""
        record = {}
        for item, name in _recorded(type(self)):
            value = getattr(self, item.name)
            record[name] = None if value == item.default else value
        return record

    @classmethod
    def of_record(cls, result: Any) -> Self:
        """The estimator with the options that this result keeps."""
        kept = {item.name: getattr(result, name) for item, name in _recorded(cls)}
        # "second-order" is what the default variance has become.
        return cls(
            **{
                name: value
                for name, value in kept.items()
                if value not in (None, "second-order")
            }
        )


def _recorded(estimator: Any) -> list[tuple[Field[Any], str]]:
    """The options that results keep, and the names of their fields there."""
    return [
        (item, item.metadata["recorded"])
        for item in fields(estimator)
        if item.metadata["recorded"]
    ]


@described
@dataclass(frozen=True)
class Complete(Estimator):
    """All pairs of rows."""

    variance: str = option(
        "auto",
        Choice(VARIANCES),
        "how the variance is estimated. auto is the law with first- and second-order "
        "parts for the "
        "best set and RelMulti, and projection for the other tests. projection is "
        "conservative for "
        "models close to the data.",
        flag="--variance",
        recorded="variance",
    )

    name: ClassVar[str] = "complete"
    words: ClassVar[str] = "the unbiased estimate over all pairs of observations"
    every_pair: ClassVar[bool] = True
    numbers_kept: ClassVar[int] = 6

    def estimate(self, kind: Kind, data: Data, settings: EstimateSettings) -> Estimates:
        return kind.complete(data, settings)


class PairDesign(Estimator):
    """A design that uses some of the pairs; it pairs the rows of a model with those of the
    reference.
    """

    shuffle: bool

    def estimate(self, kind: Kind, data: Data, settings: EstimateSettings) -> Estimates:
        sources = kind.sources(data, settings, in_order=not self.shuffle)
        each = [self.from_pairs(source, settings.runtime) for source in sources]
        return kind.joined(each, shared=settings.dependence == "shared")

    @abstractmethod
    def from_pairs(self, source: PairSource, runtime: Runtime) -> Estimates:
        """The estimate from the pairs of the design."""

    def seconds(
        self, rows: int, lengths: Sequence[int], columns: int, right_hand_sides: int = 0
    ) -> float:
        """The same for values in bands; the time for scores is not included."""
        values = self.values(rows, lengths, columns)
        return 1e-9 * values * (BAND_VALUE + BAND_COLUMN * columns) / usable_cores()


@dataclass(frozen=True)
class EstimateSettings:
    """The settings one estimate is made with, resolved against the data.

    `groups` is None if all rows are independent, and `locations` unless the discrepancy is
    UME or FSSD. Scores that do not fit into memory are written to the `folder`. `note` says
    how the estimator was chosen automatically. `kept`, if given, holds what estimates of the
    same rows with other kernels need again, by the model.
    """

    kernel: Kernel
    estimator: Estimator
    dependence: Dependence
    seed: int
    runtime: Runtime
    groups: Groups | None = None
    locations: Locations | None = None
    folder: Path | None = None
    note: str = ""
    kept: dict[str | None, dict[bytes, Any]] | None = None

    def members(self, key: str | None) -> tuple[Rows, int] | None:
        """The groups of the rows of this sample and their number; None if all rows are
        independent.
        """
        return (
            None if self.groups is None else (self.groups.codes[key], self.groups.counts[key])
        )

    def kept_of(self, model: str | None) -> dict[bytes, Any] | None:
        """What is kept of this model, or of all models together (None)."""
        return None if self.kept is None else self.kept.setdefault(model, {})


class Kind(ABC):
    """How the models are given, and what follows from it: samples, densities, or samples for
    a target density.

    Attributes:
        words: the kind as error messages name it.
        discrepancies: the discrepancies that compare models of this kind; the first is the
            default.
        smooth: True if the kernel's derivatives are needed.
        largest: beyond this size, powers of distances leave float64.
    """

    words: ClassVar[str]
    discrepancies: ClassVar[tuple[str, ...]]
    smooth: ClassVar[bool] = False
    largest: ClassVar[float] = 1e152

    @abstractmethod
    def check(
        self, data: Data, estimator: Estimator, dependence: Dependence, *, grouped: bool
    ) -> None:
        """Refuse sizes and dependences that do not fit this kind of data."""

    @staticmethod
    def check_shared(lengths: set[int], dependence: Dependence, *, grouped: bool) -> None:
        """Refuse shared samples of different sizes; rows in groups belong together by their
        labels.
        """
        if dependence == "shared" and len(lengths) > 1 and not grouped:
            raise InputError(
                f'dependence="shared": expected models of equal size, got {sorted(lengths)}'
            )

    @abstractmethod
    def sources(
        self, data: Data, settings: EstimateSettings, *, in_order: bool = False
    ) -> list[PairSource]:
        """The rows that pair designs take, in random order unless `in_order`; one source for
        models taken together.
        """

    @abstractmethod
    def complete(self, data: Data, settings: EstimateSettings) -> Estimates:
        """The estimate over all pairs of rows; of rows in groups, over those in different
        groups, and its ψ rows are groups.
        """

    def joined(self, each: Sequence[Estimates], *, shared: bool) -> Estimates:
        """The estimates of all models, from those of each source."""
        (estimates,) = each
        return estimates

    def of_samples(
        self, data: Data, settings: EstimateSettings, each: Sequence[Estimates]
    ) -> Estimates:
        """The complete estimate, or that by landmarks, of all models, from those of each
        sample.
        """
        return self.joined(each, shared=settings.dependence == "shared")

    def check_rows(
        self, data: Data, settings: EstimateSettings, *, selection: bool = False, part: str = ""
    ) -> None:
        """Refuse samples too small for the normal approximation, and designs that do not fit
        their sizes.

        `part` says which part of the rows these are.
        """
        estimator = settings.estimator
        fewest = estimator.fewest_selection_rows if selection else estimator.fewest_rows
        why = f"{part}{estimator.name} estimator"
        sizes = {key: len(rows) for key, rows in samples_of(data).items()}
        for key, rows in sizes.items():
            require_rows(sample_name(key), rows, fewest, why)
        groups = {} if settings.groups is None else settings.groups.codes
        for key, codes in groups.items():
            count = len(np.unique(codes))
            sample = sample_name(key)
            if count < fewest:
                raise InputError(
                    f"groups: expected at least {fewest} groups in {sample} "
                    f"({why}), got {count}"
                )
        for rows in sorted(set(sizes.values())):
            estimator.check_rows(
                rows, self.models_together(data, settings.dependence), selection=selection
            )

    def models_together(self, data: Data, dependence: Dependence) -> int:
        """The number of models that one design estimates together."""
        return len(data.models)

    def width(self, data: Data, dependence: Dependence) -> int:
        """The number of entries in a row of a pair design, with the models' rows or scores
        that belong to it.
        """
        return int(data.reference.shape[1]) * (1 + len(data.models))

    @abstractmethod
    def right_hand_sides(self, data: Data) -> int:
        """The columns that every kernel value is multiplied with."""


@dataclass(frozen=True)
class MMD:
    """Squared maximum mean discrepancy with this kernel (None: Gaussian, median bandwidth)."""

    kernel: Kernel | None = None


@dataclass(frozen=True)
class LogLikelihood:
    """The mean of −log p over the reference rows, in nats per row, for models with a
    normalised density.
    """


@dataclass(frozen=True)
class KSD:
    """Squared kernel Stein discrepancy with this kernel (None: Gaussian, median bandwidth)."""

    kernel: Kernel | None = None
