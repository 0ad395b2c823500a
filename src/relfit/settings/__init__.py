"""Every option of a comparison: its name, default and check, and how the options are
resolved against the data.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from inspect import Parameter, signature
from typing import Any, TypedDict, TypeVar

from relfit.compute.backend import BACKENDS, PRECISIONS
from relfit.compute.memory import parse_memory
from relfit.compute.reduce import (
    Runtime,
)
from relfit.compute.schedulers import scheduler_for
from relfit.data.encode import Encode, Scale, as_scale
from relfit.data.presets import PRESETS, as_preset
from relfit.estimators import (
    ESTIMATORS,
)
from relfit.estimators.base import (
    KSD,
    MMD,
    Complete,
    Dependence,
    Estimator,
    LogLikelihood,
    PairDesign,
)
from relfit.estimators.designs import DEFAULT_LAGS
from relfit.estimators.discrepancy import Discrepancy, as_discrepancy
from relfit.estimators.locations import AT_LOCATIONS, AtLocations
from relfit.kernels import NAMED, as_kernel
from relfit.kernels.base import Kernel
from relfit.kernels.composite import Collection, Select, kernels_of, table_of
from relfit.kernels.custom import Precomputed
from relfit.stats.decision import CORRECTIONS
from relfit.stats.tests import TESTS, as_test
from relfit.stats.tests.base import Criteria, Test
from relfit.stats.tests.best_set import BestSet
from relfit.stats.tests.relmulti import RelMulti
from relfit.util.checks import (
    Choice,
    Whole,
    arguments,
    check_alpha,
    check_choice,
    check_margin,
    checked,
    described,
    option,
    unless_none,
)
from relfit.util.errors import InputError
from relfit.util.progress import Progress
from relfit.util.random import Seed, make_seed

DEPENDENCE = ("independent", "shared", "paired", "chain")
F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


# ── how the sums are computed ─────────────────────────────────────────────────────────────────


def _as_executor(value: Any) -> Any:
    scheduler_for(value)
    return value


def _as_memory(value: Any) -> Any:
    parse_memory(value)
    return value


@described
@dataclass(frozen=True)
class Compute:
    """How and where the sums are computed. Nothing in here changes an answer beyond
    rounding.
    """

    backend: str = option(
        "auto",
        Choice(BACKENDS),
        "Library that computes the kernel. numba is numpy with compiled loops, which "
        "are faster; "
        "triton uses fused kernels on a CUDA device, in single precision; auto decides by "
        "where the "
        "data are, by their size and by what is installed.",
        flag="--backend",
        python='"torch" works where the data are: tensors on a CUDA device are not copied.',
    )
    precision: str = option(
        "double",
        Choice(PRECISIONS),
        "Precision of the kernel's values; sums are always in double precision.",
        flag="--precision",
    )
    executor: Any = option(
        None,
        unless_none(_as_executor),
        "a `dask.distributed.Client`, or any `concurrent.futures.Executor`, that computes "
        "parts of "
        "the complete estimate. The bits do not depend on it.",
        shown="threads",
    )
    checkpoint: str | os.PathLike[str] | None = option(
        None,
        help="Save finished parts in this file; after a crash or an interrupt the same "
        "command resumes from them.",
        flag="--checkpoint FILE",
        python="It is refused for other inputs or settings, and is safe to delete.",
    )
    memory: int | str | None = option(
        None,
        unless_none(_as_memory),
        "Memory that the process may hold, such as 2GB; rows are mapped from files.",
        flag="--memory SIZE",
        shown="files are read whole",
        python="The answer is the same. The limit is for anonymous memory: pages of mapped "
        "files do not "
        "count. What must be held and does not fit, such as the levels of a column with "
        "very many, "
        "raises an error.",
    )
    threads: int | None = option(None, Whole(1), "the number of threads", shown="every core")

    def __post_init__(self) -> None:
        checked(self)

    @property
    def on_host(self) -> bool:
        """True if the sums are computed in main memory, whatever devices there are."""
        return (
            self.backend in ("numpy", "numba")
            or self.memory is not None
            or self.executor is not None
        )

    def runtime(self, progress: Progress | None) -> Runtime:
        """What the sums are computed with, before a backend has been chosen."""
        scheduler = None if self.executor is None else scheduler_for(self.executor)
        runtime = Runtime(
            executor=self.executor if scheduler is None else None,
            progress=progress,
            scheduler=scheduler,
        )
        return runtime if self.threads is None else replace(runtime, threads=self.threads)


_COMPUTE: ContextVar[Compute | None] = ContextVar("compute", default=None)


@contextmanager
def computing(**options: Any) -> Iterator[Compute]:
    """Use these options of `Compute` for every call inside the block that has no
    ``compute=`` of its own.

    >>> import relfit
    >>> with relfit.computing(backend="numpy", threads=1) as compute:
    ...     compute.threads
    1
    """
    compute = replace(_COMPUTE.get() or Compute(), **options)
    token = _COMPUTE.set(compute)
    try:
        yield compute
    finally:
        _COMPUTE.reset(token)


def _as_compute(value: Any) -> Compute:
    if value is None:
        return _COMPUTE.get() or Compute()
    return _given_as("compute", value, Compute)


def _given_as(argument: str, value: Any, kind: type[T]) -> T:
    if isinstance(value, kind):
        return value
    raise InputError(
        f"{argument}: expected relfit.{kind.__name__}(...) or None, got {type(value).__name__}"
    )


# ── every option ──────────────────────────────────────────────────────────────────────────────


def _as_estimator(value: Any) -> Estimator | None:
    """An estimator given as a value or by name; None stands for "auto"."""
    if isinstance(value, Estimator):
        return value
    name = check_choice("estimator", value, (*ESTIMATORS, "auto"))
    return None if name == "auto" else ESTIMATORS[name]()


DISCREPANCIES = ("auto", "mmd", "ksd", "loglik", *AT_LOCATIONS)


def _as_discrepancy(value: Any) -> str | MMD | KSD | AtLocations | Discrepancy:
    """A discrepancy given as a value or by name; those at locations become values."""
    if isinstance(value, MMD | KSD | AtLocations):
        return value
    if isinstance(value, LogLikelihood):
        return "loglik"
    own = as_discrepancy(value)
    if own is not None:
        return own
    if isinstance(value, list | tuple):
        raise InputError(
            f"discrepancy: expected one, got {len(value)}; only compare takes several"
        )
    name = check_choice("discrepancy", value, DISCREPANCIES)
    return AT_LOCATIONS[name]() if name in AT_LOCATIONS else name


def _as_encode(value: Any) -> Encode:
    return _given_as("encode", value, Encode)


class Options(TypedDict, total=False):
    """The options of `compare`, as its callers give them. `Settings` has their defaults and
    checks.
    """

    test: str | Test
    discrepancy: (
        str
        | MMD
        | KSD
        | LogLikelihood
        | AtLocations
        | Discrepancy
        | Callable[..., Any]
        | Sequence[Any]
    )
    kernel: Kernel | Select | Sequence[Kernel] | Callable[..., Any] | str | None
    estimator: str | Estimator
    alpha: float
    correction: str | None
    margin: float
    dependence: str
    groups: Any
    given: Any
    preset: str | None
    scale: Scale | None
    encode: Encode | None
    rng: Seed
    progress: Any
    compute: Compute | None


# Options of a decision, which an estimate does not have.
NO_TEST = ("test", "alpha", "correction", "margin")


@dataclass(frozen=True)
class Settings:
    """The options of one call, each checked."""

    test: Test = option(
        "auto",
        as_test,
        "How the models are compared. best-set computes a confidence set for the best model; "
        "relpsi selects "
        "the best one and tests on all rows; relmulti splits the rows; carve is relpsi "
        "with noise "
        "added to the selection.",
        flag="--test",
        words=TESTS,
        python='Also a value such as `RelMulti(select_fraction=0.5)`; "auto" is best-set. '
        "docs/choosing.md compares them.",
    )
    discrepancy: str | MMD | KSD | AtLocations | Discrepancy = option(
        "auto",
        _as_discrepancy,
        "How far a model is from the data. auto is mmd for samples and ksd for densities; "
        "loglik is "
        "the mean of -log p, for normalised densities; ume and fssd compare at some "
        "locations only, "
        "in linear time.",
        flag="--discrepancy",
        words=DISCREPANCIES,
        shown="auto",
        python="Also a value such as `KSD(kernel)` or `UME(locations=20)`, or a function of two "
        "samples (`Discrepancy`). Of several, such as "
        '``["ksd", "loglik"]``, each gets a verdict of its own: the result is that of '
        "the first "
        "one, and its `also` holds the others.",
    )
    kernel: Kernel | Select | None = option(
        None,
        unless_none(as_kernel),
        "The kernel. select chooses the bandwidth of a Gaussian kernel on a fifth of the rows "
        "and tests on the rest.",
        flag="--kernel",
        words=(*NAMED, "select"),
        shown="gaussian",
        python='A kernel, the name of one ("imq") or a function of two arrays of rows. '
        "`Select(...)` chooses one on "
        "held-out rows, "
        "several kernels (`Collection`) are used all at once (best-set), `Precomputed(matrix)` "
        "holds its values. The kernel also decides which model counts as best.",
    )
    estimator: Estimator | None = option(
        "complete",
        _as_estimator,
        "Which pairs of rows are used. complete: all of them; linear: n/2; block: those within "
        f"blocks; incomplete: {DEFAULT_LAGS} for each row; landmarks: near-linear in the "
        f"rows, with "
        "nearly the power of complete; auto: complete, or landmarks where that would take "
        "more than "
        "about ten seconds.",
        flag="--estimator",
        words=(*ESTIMATORS, "auto"),
        python="Also a value such as `Landmarks(count=500)`. For samples, all but complete and "
        "landmarks need equal sizes.",
    )
    alpha: float = option(
        0.05,
        check_alpha,
        "Level of the test, which is the error rate that you allow.",
        flag="--alpha LEVEL",
    )
    correction: str | None = option(
        None,
        Choice(CORRECTIONS),
        "Multiplicity adjustment of the p-values: stepdown (best-set), holm and bonferroni "
        "control the familywise error rate, by and bh the false discovery rate.",
        flag="--correction",
        shown=f"{BestSet.default_correction} for best-set, {RelMulti.default_correction} for "
        "relmulti, otherwise none",
    )
    margin: float = option(
        0.0,
        check_margin,
        "Test whether a model is worse by more than DELTA, in the units of the "
        "discrepancy, and say "
        "which models are equivalent within DELTA. The result prints how far apart "
        "sampling noise "
        "puts two halves of the data.",
        flag="--margin DELTA",
    )
    dependence: Dependence = option(
        "independent",
        Choice(DEPENDENCE),
        "How the samples depend on each other. shared: the models used the same prompts "
        "or random "
        "numbers; paired: their rows match those of the reference too; chain: each sample is a "
        "Markov chain.",
        flag="--dependence",
    )
    groups: Any = option(
        None,
        help="Rows with the same label belong together.",
        flag="--groups COLUMN|FILE",
        python="These are completions of a prompt, for example, or frames of a video. A "
        "mapping of "
        'model names and "reference" to labels, one per row; one array of labels for '
        "densities, or "
        "where all are paired.",
    )
    given: Any = option(
        None,
        help="With loglik, covariates of densities of y given x, a row for each row of the "
        "reference.",
        flag="--given FILE",
        python="The densities' log_prob takes y and x.",
    )
    preset: str | None = option(
        None,
        unless_none(as_preset),
        "A kernel for feature vectors. kid is a cubic polynomial; cmmd is a Gaussian kernel of "
        "bandwidth 10 on rows of unit length.",
        flag="--preset",
    )
    scale: Scale | None = option(
        None,
        unless_none(as_scale),
        "How columns are scaled, by the reference. auto: mean and standard deviation; "
        "robust: median and median absolute deviation; whiten: for densities, uncorrelated "
        "too; or scales of some columns (age=10,income=5000), the others as auto.",
        flag="--scale auto|none|robust|whiten|LIST",
        shown="auto where columns have names, whiten for draws against a density, "
        "otherwise none",
        python='In Python the scales are a mapping. "loglik" is in the units of the data '
        "whatever "
        "the scale: others add one number to all models.",
    )
    encode: Encode | None = option(
        None,
        unless_none(_as_encode),
        "What the columns of tables mean: `Encode(categorical=..., drop=..., missing=...)`. "
        "Text and "
        "truth values are categories, dates are numbers, missing cells are values of "
        "their own.",
    )
    rng: int = option(
        None, make_seed, "Seed or Generator for all random choices, recorded in the result."
    )
    progress: Any = option(
        None, help="None (a bar on terminals), True, False or a function of (done, total)."
    )
    compute: Compute = option(
        None,
        _as_compute,
        "How and where the sums are computed: `Compute(backend=..., executor=..., "
        "memory=..., ...)`.",
    )

    def __post_init__(self) -> None:
        checked(self)
        if not isinstance(self.discrepancy, str) and self.discrepancy.kernel is not None:
            if self.kernel is not None:
                raise InputError(
                    "kernel: expected it once, got it both in kernel= and in discrepancy="
                )
            object.__setattr__(self, "kernel", as_kernel(self.discrepancy.kernel))
        _refuse_combinations(self)

    @classmethod
    def of(
        cls, call: str, options: Any, *, without: Sequence[str] = (), also: Sequence[str] = ()
    ) -> Settings:
        """The settings of a call with these keyword options.

        `without` are those that the call does not have, `also` those that it reads itself.
        """
        allowed = [item.name for item in fields(cls) if item.name not in without]
        for name in options:
            if name in ELSEWHERE:
                raise InputError(f"{name}: is {ELSEWHERE[name]}")
            if name not in allowed:
                known = [*also, *allowed]
                close = get_close_matches(name, [*known, *ELSEWHERE], 1)
                hint = f"; did you mean {close[0]}?" if close else ""
                raise InputError(
                    f"{call}: expected options among {', '.join(known)}, got {name!r}{hint}"
                )
        return cls(**options)

    @property
    def seed(self) -> int:
        """The whole number that all random streams come from."""
        return self.rng

    @property
    def at_locations(self) -> AtLocations | None:
        """The discrepancy, if it is one at locations."""
        return self.discrepancy if isinstance(self.discrepancy, AtLocations) else None

    @property
    def discrepancy_name(self) -> str:
        """The discrepancy by its name: "auto", "mmd", "ksd", "loglik", "ume", "fssd", or that
        of the caller's own.
        """
        if isinstance(self.discrepancy, str):
            return self.discrepancy
        if self.own is not None:
            return self.own.measure
        return type(self.discrepancy).__name__.lower()

    @property
    def own(self) -> Discrepancy | None:
        """The discrepancy, if it is the caller's own."""
        return self.discrepancy if isinstance(self.discrepancy, Discrepancy) else None

    @property
    def table(self) -> Precomputed | None:
        """The precomputed kernel, if it is one."""
        return None if self.kernel is None else table_of(self.kernel)

    @property
    def by_blocks(self) -> bool:
        """True if the kernel is a matrix, or a function of two arrays of rows."""
        return any(each.by_blocks for each in kernels_of(self.kernel))

    @property
    def unit_length(self) -> bool:
        """True if the preset scales rows to unit length."""
        return self.preset is not None and PRESETS[self.preset].unit_length

    @property
    def has_kernel_options(self) -> bool:
        """True if an option was given that only sums over a kernel use."""
        facts = _facts(self)
        return any(facts[name] for name in _KERNEL_OPTIONS)

    @property
    def plain(self) -> bool:
        """True if rows are taken as they are, whatever their columns are called."""
        return self.preset is not None or self.table is not None

    @property
    def has_lengths(self) -> bool:
        """True if the kernel has lengths of its own: neither taken from the data, nor those
        of a kernel's name.
        """
        return (
            self.kernel is not None
            and not self.kernel.needs_median
            and self.kernel not in NAMED.values()
        )

    @property
    def criteria(self) -> Criteria:
        """What the test decides by; without a correction of its own, that of the test."""
        correction = (
            self.test.default_correction if self.correction is None else self.correction
        )
        return Criteria(self.alpha, correction, self.margin, self.seed)


def _facts(settings: Settings) -> dict[str, bool]:
    """What FORBIDDEN asks about settings: true for what was asked for."""
    test = settings.test
    compute = settings.compute
    estimator = settings.estimator
    at = settings.at_locations
    several = isinstance(settings.kernel, Collection)
    select = isinstance(settings.kernel, Select)
    precomputed = settings.table is not None
    backend = compute.backend not in ("auto", "numpy")
    precision = compute.precision != "double"
    encode = settings.encode
    # A test that splits the rows chooses the locations first; the others choose the kernel
    # first.
    later = several or (select and test.split is not None)
    return {
        "stepdown": settings.correction == "stepdown" and not test.steps_down,
        "splits": test.split is not None,
        "chain": settings.dependence == "chain",
        "ordered": settings.groups is not None or settings.dependence != "independent",
        "groups": settings.groups is not None,
        "given": settings.given is not None,
        "preset": settings.preset is not None,
        "preset of unit length": settings.unit_length,
        "columns": settings.scale not in (None, "none") or encode is not None,
        "drops rows": encode is not None and encode.missing == "drop",
        "plain rows": settings.plain,
        "kernel": settings.kernel is not None,
        "by blocks": settings.by_blocks,
        "several": several,
        "select": select,
        "select or precomputed": select or precomputed,
        "margin": settings.margin > 0.0,
        "one kernel only": not test.implements("decide_under_all"),
        "optimised locations of several kernels": at is not None
        and at.choose == "optimise"
        and later,
        "locations": at is not None,
        "design": estimator is not None and not estimator.every_pair,
        "pair design": isinstance(estimator, PairDesign),
        "estimator": estimator not in (None, Complete()),
        "variance": isinstance(estimator, Complete) and estimator.variance != "auto",
        "likelihood": settings.discrepancy == "loglik",
        "no likelihood": settings.discrepancy != "loglik",
        "own": settings.own is not None,
        "backend": backend,
        "precision": precision,
        "not numpy in double": backend or precision,
        "checkpoint": compute.checkpoint is not None,
        "on a device": compute.backend in ("torch", "triton"),
        "memory": compute.memory is not None,
    }


_KERNEL_OPTIONS = ("kernel", "preset", "estimator", "backend", "precision", "checkpoint")
_AT_ONCE = {
    "groups": "groups",
    "given": "given",
    "chain": 'dependence="chain"',
    "by blocks": "a precomputed kernel or a function",
    "own": "a discrepancy of your own",
    "preset of unit length": "preset={preset!r}",
    "on a device": "backend={compute.backend!r}",
}
# Combinations of options that are refused: facts that hold together, and what is then said.
FORBIDDEN = {
    "preset + kernel": "kernel: expected it once, got it both in kernel= and in preset=",
    "columns + plain rows": (
        "scale and encode: a preset or a precomputed kernel takes rows as they are; "
        "leave them out"
    ),
    "ordered + drops rows": 'missing="drop": would take rows out of their order or group; use '
    '"flag" or "refuse"',
    "stepdown": 'correction="stepdown": belongs to test="best-set", got test="{test.name}"; '
    'use "holm"',
    "chain + splits": 'test="{test.name}": splits rows at random, which a chain does not allow; '
    "use another test",
    "chain + several": (
        'kernel: several kernels in one test cannot be combined with dependence="chain", '
        "whose batches depend on the kernel; name one"
    ),
    "several + one kernel only": (
        'kernel: several kernels in one test need test="best-set" without a margin, got '
        'test="{test.name}"; kernel="select" chooses one of them for any test'
    ),
    "several + margin": (
        'kernel: several kernels in one test need test="best-set" without a margin, got '
        'margin={margin:g}; kernel="select" chooses one of them for any test'
    ),
    "chain + select": 'kernel="select": holds out rows at random, which a chain does not '
    "allow; name a kernel",
    "optimised locations of several kernels": (
        'choose="optimise": needs one kernel, got several to choose from or to '
        "combine; name one"
    ),
    "groups + select or precomputed": (
        'groups: cannot be combined with kernel="select" or a precomputed kernel; name a kernel'
    ),
    "locations + design": "estimator: {measure} has its own, which is linear in the rows; "
    "leave out {estimator.name!r}",
    "locations + variance": "variance={estimator.variance!r}: {measure} has its own covariance; "
    "leave it out",
    "locations + groups": "groups: cannot be combined with {measure}; use mmd or ksd, or give "
    "one row for each group",
    "locations + by blocks": (
        "kernel: {measure} needs a kernel of relfit or a Radial one; use mmd or ksd with this one"
    ),
    "locations + not numpy in double": (
        "backend: {measure} works in numpy and in double precision, got "
        "backend={compute.backend!r}, precision={compute.precision!r}; leave both out"
    ),
    "locations + checkpoint": (
        "checkpoint: keeps the complete estimate and the one by landmarks; "
        "{measure} is quick, so leave it out"
    ),
    "pair design + checkpoint": (
        "checkpoint: keeps the complete estimate and the one by landmarks; "
        "{estimator.name} is quick, so leave it out"
    ),
    **{
        f"likelihood + {name}": f"{name}: loglik is a mean over rows and has no use for it; "
        f"leave it out"
        for name in _KERNEL_OPTIONS
    },
    **{
        f"own + {name}": f"{name}: a discrepancy of your own has no use for it; leave it out"
        for name in _KERNEL_OPTIONS
    },
    "own + groups": "groups: cannot be combined with a discrepancy of your own; give one row "
    "for each group",
    "no likelihood + given": 'given: covariates belong to discrepancy="loglik"; say so, or '
    "leave them out",
    **{
        f"memory + {fact}": f"memory: cannot be combined with {words}, which needs all rows "
        f"at once; "
        "leave out one of them"
        for fact, words in _AT_ONCE.items()
    },
}


def _refuse_combinations(settings: Settings) -> None:
    """Refuse the first combination of the table that these settings are."""
    facts = _facts(settings)
    for together, message in FORBIDDEN.items():
        if all(facts[name] for name in together.split(" + ")):
            said = message.format(**vars(settings), measure=settings.discrepancy_name)
            raise InputError(said)


def _places(where: str, values: Iterable[type]) -> dict[str, str]:
    """For every field of these values that is no option of a call, where it is given."""
    return {
        item.name: f"{where}=relfit.{value.__name__}({item.name}=...)"
        for value in values
        for item in fields(value)
        if item.name not in Settings.__dataclass_fields__
    }


# Keywords that are no option of a call, and what to write in their place.
ELSEWHERE = {
    **_places("a field of the test: test", TESTS.values()),
    **_places("a field of the estimator: estimator", ESTIMATORS.values()),
    **_places("a field of compute: compute", [Compute]),
    "bandwidth": "a field of the kernel: kernel=relfit.Gaussian(bandwidth=...)",
    "seed": "called rng: rng=0 makes the result repeatable",
    "random_state": "called rng: rng=0 makes the result repeatable",
    "method": 'called test: test="relpsi", for example',
    **dict.fromkeys(
        ("confidence", "confidence_level", "level"),
        "not an option; pass the error rate: alpha=0.05 for a confidence level of 0.95",
    ),
}


def shows_options(*, without: Sequence[str] = ()) -> Callable[[F], F]:
    """A decorator that gives a function with ``**options`` the signature that its callers see.

    OPTIONS in its docstring becomes the description of every option.
    """

    def decorate(function: F) -> F:
        if function.__doc__ is not None:
            function.__doc__ = function.__doc__.replace(
                "        OPTIONS", arguments(fields(Settings))
            )
        own = signature(function)
        shown_kinds = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
        named = [each for each in own.parameters.values() if each.kind in shown_kinds]
        shown = [
            Parameter(
                item.name,
                Parameter.KEYWORD_ONLY,
                default=item.default,
                annotation=Options.__annotations__[item.name],
            )
            for item in fields(Settings)
            if item.name not in without
        ]
        whole = own.replace(parameters=[*named, *shown])
        function.__signature__ = whole  # type: ignore[attr-defined]
        return function

    return decorate
