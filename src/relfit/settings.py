"""Every option of a comparison: its name, default and check, and how the options are
resolved against the data.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from inspect import Parameter, signature
from typing import Any, TypedDict, TypeVar, cast

from relfit.compute.backend import BACKENDS, PRECISIONS, LookupBackend, Precision
from relfit.compute.checkpoint import Checkpoint
from relfit.compute.memory import Budget, budget_of, parse_memory
from relfit.compute.reduce import (
    LocalBackend,
    Runtime,
    Workload,
    chosen_backend,
    fits_compiled,
    fits_fused,
)
from relfit.compute.schedulers import scheduler_for
from relfit.data.check_score import score_warnings
from relfit.data.encode import Encode, Scale, as_scale
from relfit.data.load import Data, load
from relfit.data.models import SCORE_BATCH
from relfit.data.presets import PRESETS, as_preset
from relfit.estimators import (
    ESTIMATORS,
    KINDS,
    automatic_estimator,
    reconsidered,
    within_budget,
)
from relfit.estimators.base import (
    KSD,
    MMD,
    Complete,
    Dependence,
    EstimateSettings,
    Estimator,
    Kind,
    LogLikelihood,
    PairDesign,
)
from relfit.estimators.designs import DEFAULT_LAGS
from relfit.estimators.groups import make_groups
from relfit.estimators.kernel import largest_norm, resolve_candidates, resolve_kernel
from relfit.estimators.locations import AT_LOCATIONS, AtLocations
from relfit.kernels import NAMED, as_kernel
from relfit.kernels.base import Kernel
from relfit.kernels.composite import Collection, Select, table_of
from relfit.kernels.custom import Precomputed
from relfit.kernels.standard import Gaussian
from relfit.stats.decision import CORRECTIONS
from relfit.stats.tests import TESTS, as_test
from relfit.stats.tests.base import Criteria, Test
from relfit.stats.tests.relmulti import RelMulti
from relfit.util import __version__
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
from relfit.util.libraries import has_cuda
from relfit.util.progress import Progress, reporting
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


def _as_discrepancy(value: Any) -> str | MMD | KSD | AtLocations:
    """A discrepancy given as a value or by name; those at locations become values."""
    if isinstance(value, MMD | KSD | AtLocations):
        return value
    if isinstance(value, LogLikelihood):
        return "loglik"
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
    discrepancy: str | MMD | KSD | LogLikelihood | AtLocations | Sequence[Any]
    kernel: Kernel | Select | Sequence[Kernel] | str | None
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
        "How the models are compared. best-set finds those that could be the best; "
        "relpsi selects "
        "the best one and tests on all rows; relmulti splits the rows; carve is relpsi "
        "with noise "
        "added to the selection.",
        flag="--test",
        words=TESTS,
        python='Also a value such as `RelMulti(select_fraction=0.5)`; "auto" is best-set. '
        "docs/choosing.md compares them.",
    )
    discrepancy: str | MMD | KSD | AtLocations = option(
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
        python="Also a value such as `KSD(kernel)` or `UME(locations=20)`. Of several, such as "
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
        python='A kernel, or the name of one ("imq"). `Select(...)` chooses one on '
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
        "How the p-values are corrected for multiple testing; stepdown (best-set) finds more "
        "than holm.",
        flag="--correction",
        shown=f"{RelMulti.default_correction} for relmulti, otherwise none",
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
        if (
            isinstance(self.discrepancy, MMD | KSD | AtLocations)
            and self.discrepancy.kernel is not None
        ):
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
        """The discrepancy by its name: "auto", "mmd", "ksd", "loglik", "ume" or "fssd"."""
        return (
            self.discrepancy
            if isinstance(self.discrepancy, str)
            else type(self.discrepancy).__name__.lower()
        )

    @property
    def table(self) -> Precomputed | None:
        """The precomputed kernel, if it is one."""
        return None if self.kernel is None else table_of(self.kernel)

    @property
    def unit_length(self) -> bool:
        """True if the preset scales rows to unit length."""
        return self.preset is not None and PRESETS[self.preset].unit_length

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
        "precomputed": precomputed,
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
    "precomputed": "a precomputed kernel",
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
    "locations + precomputed": (
        "kernel: {measure} needs its values at the locations, which a precomputed matrix "
        "does not hold"
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


# ── loading and resolving ─────────────────────────────────────────────────────────────────────


def progress_of(progress: Any, label: str) -> AbstractContextManager[Progress | None]:
    """What `progress` asks for; without a terminal nothing, unless it was asked for."""
    quiet = progress is None and not sys.stderr.isatty()
    return nullcontext() if quiet else reporting(progress, label)


@contextmanager
def resolved(
    reference: Any, models: Any, settings: Settings, label: str, *, fewest_models: int = 2
) -> Iterator[Plan]:
    """The data, loaded, and how they are estimated. The progress bar and files stay open
    while the block runs.
    """
    memory = settings.compute.memory
    checkpoint = settings.compute.checkpoint
    with ExitStack() as stack:
        progress = stack.enter_context(progress_of(settings.progress, label))
        budget = None if memory is None else stack.enter_context(budget_of(memory))
        data = _loaded(reference, models, settings, progress, budget, fewest_models)
        plan = replace(_resolved(data, settings, progress, budget), loaded=data)
        if checkpoint is not None:
            finished = stack.enter_context(closing(_checkpoint(checkpoint, plan)))
            plan = plan.estimated_with(
                runtime=replace(plan.estimate.runtime, checkpoint=finished)
            )
        yield plan


def _loaded(
    reference: Any,
    models: Any,
    settings: Settings,
    progress: Progress | None,
    budget: Budget | None,
    fewest_models: int,
) -> Data:
    if settings.table is not None:
        reference, models = settings.table.inputs(reference, models)
        name = "auto" if settings.estimator is None else settings.estimator.name
        check_choice(f"{settings.table.describe()}: estimator", name, ("complete", "linear"))
    preset = PRESETS.get(settings.preset or "")
    facts = _facts(settings)
    data = load(
        reference,
        models,
        fewest_models=fewest_models,
        seed=settings.seed,
        all_samples=settings.discrepancy_name in KINDS["samples"].discrepancies
        or preset is not None,
        progress=progress,
        in_place=_stays_on_device(settings),
        budget=budget,
        likelihood=settings.discrepancy_name == "loglik",
        given=settings.given,
        scale=settings.scale,
        encode=settings.encode,
        plain=settings.plain,
        # A length that was given is in the units of the data.
        target_scale="none" if settings.has_lengths else "whiten",
        needs_densities=settings.discrepancy_name in ("ksd", "fssd", "loglik"),
        or_likelihood=settings.discrepancy == "auto"
        and not any(facts[name] for name in _KERNEL_OPTIONS),
    )
    kind = KINDS[data.kind]
    if preset is not None and data.kind != "samples":
        raise InputError(
            f"preset={settings.preset!r}: compares features of samples, got {kind.words}"
        )
    if preset is not None and preset.unit_length:
        models = {
            name: preset.prepare(f"model {name!r}", rows) for name, rows in data.samples.items()
        }
        data = replace(
            data, reference=preset.prepare("reference", data.reference), models={**models}
        )
    if settings.discrepancy_name not in ("auto", *kind.discrepancies):
        densities = "densities (relfit.Density) as models"
        needs = {
            "ksd": "a density (relfit.Density) on one side",
            "fssd": densities,
            "loglik": densities,
        }
        raise InputError(
            f"discrepancy={settings.discrepancy_name!r}: expected "
            f"{needs.get(settings.discrepancy_name, 'samples on both sides')}, got "
            f"{kind.words}; use "
            f"discrepancy={kind.discrepancies[0]!r}"
        )
    return data


def _stays_on_device(settings: Settings) -> bool:
    """True if samples on a device can stay there: the complete estimate, and kernels without
    functions of the rows.
    """
    kernel = settings.kernel
    return (
        not isinstance(settings.estimator, PairDesign)
        and not settings.compute.on_host
        and settings.groups is None
        and (kernel is None or (isinstance(kernel, Kernel) and kernel.plain))
        and not settings.unit_length
        and settings.at_locations is None
    )


@dataclass(frozen=True)
class Plan:
    """Loaded data and how they are estimated: the settings, resolved against the data.

    `select` is set until one of the `candidates` is chosen as the kernel, and `at_locations`
    until the locations are; `notes` are sentences for the reader. `loaded` are all of the
    data, densities and their rows as they were given.
    """

    data: Data
    kind: Kind
    estimate: EstimateSettings
    measure: str
    bandwidth_rule: str
    notes: tuple[str, ...]
    select: Select | None = None
    candidates: tuple[Kernel, ...] = ()
    at_locations: AtLocations | None = None
    loaded: Data | None = None

    @property
    def originals(self) -> dict[str, str]:
        """Every name given, in that order, with the distinct model that it stands for;
        without impossible models.
        """
        named = {name: self.data.copies.get(name, name) for name in self.data.names}
        return {
            name: original
            for name, original in named.items()
            if original not in self.data.impossible
        }

    def estimated_with(self, **changes: Any) -> Plan:
        return replace(self, estimate=replace(self.estimate, **changes))


def _resolved(
    data: Data, settings: Settings, progress: Progress | None, budget: Budget | None
) -> Plan:
    """Fill in the estimator, the kernel, the backend and the groups."""
    kind = KINDS[data.kind]
    at = settings.at_locations
    grouped = settings.groups is not None
    estimator = settings.estimator
    why = ""
    automatic = estimator is None and at is None and not data.likelihood
    device = automatic and not settings.compute.on_host and has_cuda()
    if automatic:
        estimator, why = automatic_estimator(
            data, kind, settings.dependence, grouped=grouped, device=device
        )
    estimator = Complete() if estimator is None or data.likelihood else estimator
    kind.check(data, estimator, settings.dependence, grouped=grouped)
    runtime = settings.compute.runtime(progress)
    # No part of a likelihood looks at the kernel.
    estimate = EstimateSettings(
        Gaussian(1.0), estimator, settings.dependence, settings.seed, runtime, note=why
    )
    plan = Plan(data, kind, estimate, "loglik", "", data.warnings, at_locations=at)
    if not data.likelihood:
        plan = _with_kernel(plan, settings)
        if automatic:
            near = reconsidered(plan.data, kind, plan.estimate, device=device)
            plan = replace(plan, estimate=near)
        plan = _with_backend(plan, settings)
        if budget is not None:
            plan = replace(plan, estimate=within_budget(plan.data, kind, plan.estimate, budget))
    elif budget is not None:
        budget.working(
            32 * len(data.reference) * len(data.models),
            8 * SCORE_BATCH * int(data.reference.shape[1]),
        )
    if grouped:
        groups = make_groups(settings.groups, plan.data, settings.dependence, estimator)
        plan = plan.estimated_with(groups=groups)
    return plan


def _with_kernel(plan: Plan, settings: Settings) -> Plan:
    """The plan with a kernel, or with the candidates for it."""
    kind = plan.kind
    notes = _score_notes(plan.data)
    data = plan.data.encoded()
    kernel = settings.kernel
    if settings.preset is not None:
        kernel = PRESETS[settings.preset].kernel
        notes = (PRESETS[settings.preset].note, *notes)
    select = kernel if isinstance(kernel, Select) else None
    if select is None:
        candidates: tuple[Kernel, ...] = ()
        chosen, rule = resolve_kernel(data, kind, cast(Kernel | None, kernel), settings.seed)
    else:
        candidates = resolve_candidates(data, kind, select, settings.seed)
        chosen = candidates[0]
        rule = "selected"
    located = settings.at_locations is not None
    return replace(
        plan.estimated_with(kernel=chosen),
        data=data,
        measure=settings.discrepancy_name if located else kind.discrepancies[0],
        bandwidth_rule=rule,
        notes=(*notes, *data.warnings),
        select=select,
        candidates=candidates,
    )


def _score_notes(data: Data) -> tuple[str, ...]:
    """Notes on densities whose score contradicts their own log density."""
    densities = {repr(name): density for name, density in data.densities.items()}
    if data.target is not None:
        densities = {"reference": data.target}
    with_both = {
        name: density
        for name, density in densities.items()
        if density.score is not None and density.log_prob is not None
    }
    return score_warnings(with_both, data.rows) if with_both else ()


def _with_backend(plan: Plan, settings: Settings) -> Plan:
    """The plan with a backend, and with what the reader should know about it."""
    data = plan.data
    estimate = plan.estimate
    compute = settings.compute
    runtime = estimate.runtime
    if settings.table is not None:
        return plan.estimated_with(runtime=replace(runtime, backend=LookupBackend()))
    if settings.at_locations is not None:
        return plan
    if isinstance(estimate.estimator, PairDesign):
        if compute.backend not in ("torch", "triton") and compute.precision == "double":
            return plan
        name = estimate.estimator.name
        note = f"the {name} estimator always works in numpy and in double precision"
        return replace(plan, notes=(*plan.notes, note))
    kernel = estimate.kernel.untilted
    lengths = [len(x) for x in data.samples.values()]
    workload = Workload(
        data.device,
        estimate.estimator.values(len(data.reference), lengths),
        kernel,
        largest=lambda: largest_norm(data, kernel),
        dim=data.reference.shape[1],
        sides=plan.kind.smooth or estimate.estimator.with_columns,
        executor=compute.executor is not None,
    )
    # A budget of memory does not count what Numba's compiler takes, unless it was asked for.
    automatic = compute.backend == "auto"
    name = "numpy" if automatic and compute.memory is not None else compute.backend
    notes: tuple[str, ...] = ()
    if runtime.scheduler is not None and name == "auto":
        backend: Any = LocalBackend(
            cast(Precision, compute.precision),
            fused=compute.precision == "single" and fits_fused(workload),
            compiled=fits_compiled(workload),
        )
    else:
        backend, notes = chosen_backend(name, compute.precision, workload)
    plan = plan.estimated_with(runtime=replace(runtime, backend=backend))
    return replace(plan, notes=(*plan.notes, *notes))


def _checkpoint(path: str | os.PathLike[str], plan: Plan) -> Checkpoint:
    data = plan.data
    estimate = plan.estimate
    inputs_and_settings = {
        "relfit": __version__,
        "reference": data.digests.get(None) or "a density",
        **{f"model {name!r}": data.digests.get(name) or "a density" for name in data.names},
        "kernel": estimate.kernel.describe(),
        # Rows of densities are digested as they were given.
        "scale": "none"
        if data.encoding is None
        else hashlib.sha256(repr(data.encoding).encode()).hexdigest()[:16],
        "dependence": estimate.dependence,
        "seed": str(estimate.seed),
        "backend": estimate.runtime.backend.name,
    }
    return Checkpoint(path, inputs_and_settings)
