"""Every option of a comparison: its name, default and check, and how the options are resolved against the data."""

from __future__ import annotations

import hashlib
import inspect
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from contextvars import ContextVar
from dataclasses import MISSING, dataclass, field, fields, replace
from difflib import get_close_matches
from typing import Any, TypedDict, TypeVar, cast

from relfit.compute.backend import BACKENDS, PRECISIONS, LookupBackend, Precision
from relfit.compute.checkpoint import Checkpoint
from relfit.compute.memory import Budget, budget_of, parse_memory
from relfit.compute.reduce import LocalBackend, Runtime, Workload, chosen_backend, fits_compiled, fits_fused
from relfit.compute.schedulers import scheduler_for
from relfit.data.check_score import score_warnings
from relfit.data.encode import Encode, Scale, as_scale
from relfit.data.load import Data, load
from relfit.data.models import SCORE_BATCH
from relfit.data.presets import PRESETS, as_preset
from relfit.estimators import KINDS
from relfit.estimators.base import (
    KSD,
    MMD,
    Dependence,
    EstimateSettings,
    Estimator,
    Kind,
    LogLikelihood,
    PairDesign,
    pair_count,
)
from relfit.estimators.cost import automatic_estimator, landmark_values, reconsidered, within_budget
from relfit.estimators.designs import ESTIMATORS, Complete, Landmarks
from relfit.estimators.groups import make_groups
from relfit.estimators.kernel import largest_norm, resolve_candidates, resolve_kernel
from relfit.estimators.locations import AT_LOCATIONS, AtLocations
from relfit.kernels import NAMED, as_kernel
from relfit.kernels.base import Kernel
from relfit.kernels.choice import Collection, Select, table_of
from relfit.kernels.precomputed import Precomputed
from relfit.kernels.standard import Gaussian
from relfit.stats.decision import CORRECTIONS
from relfit.stats.tests import as_test
from relfit.stats.tests.base import Criteria, Test
from relfit.util import __version__
from relfit.util.checks import check_alpha, check_choice, check_margin, check_whole
from relfit.util.errors import InputError
from relfit.util.libraries import has_cuda
from relfit.util.progress import Progress, reporting
from relfit.util.random import Seed, make_seed

DEPENDENCE = ("independent", "shared", "paired", "chain")
F = TypeVar("F", bound=Callable[..., Any])


def option(default: Any, check: Callable[[Any], Any] | None = None) -> Any:
    """A field with a check, which returns the value to use."""
    return field(default=default, metadata={"check": check})


def _checked(record: Any) -> None:
    """Replace every field of a frozen record by what its check makes of it."""
    for item in fields(record):
        check = item.metadata.get("check")
        if check is not None:
            object.__setattr__(record, item.name, check(getattr(record, item.name)))


# ── how the sums are computed ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Compute:
    """How and where the sums are computed. Nothing in here changes an answer beyond rounding.

    Args:
        backend: "numpy" computes on the CPU, and so does "numba" with compiled loops, which are faster; "torch" where
            the data are (tensors on a CUDA device are not copied); "triton" uses fused kernels on a CUDA device, in
            single precision; "auto" decides by where the data are, how much there is to compute and what is installed.
            The result says which it was.
        precision: of the kernel's values, "double" or "single", which is faster. Sums are always in double precision.
        executor: a `dask.distributed.Client`, or any `concurrent.futures.Executor`, that computes parts of the complete
            estimate; None uses threads. The bits do not depend on it.
        checkpoint: a file that holds finished parts of the complete estimate: after a crash or an interrupt the same
            call resumes from there. It is refused for other inputs or settings, and is safe to delete.
        memory: a limit for the whole process, in bytes or such as "2GB": larger files are read a part at a time, with
            the same answer. What must be held and does not fit, such as the levels of a column with very many, raises
            an error. None reads everything but .npy files into memory.
        threads: the number of threads; None uses every core.
    """

    backend: str = option("auto", lambda v: check_choice("backend", v, BACKENDS))
    precision: str = option("double", lambda v: check_choice("precision", v, PRECISIONS))
    executor: Any = None
    checkpoint: str | os.PathLike[str] | None = None
    memory: int | str | None = None
    threads: int | None = option(None, lambda v: v if v is None else check_whole("threads", v, 1))

    def __post_init__(self) -> None:
        _checked(self)
        scheduler_for(self.executor)
        if self.memory is not None:
            parse_memory(self.memory)

    def runtime(self, progress: Progress | None) -> Runtime:
        """What the sums are computed with, before a backend has been chosen."""
        scheduler = scheduler_for(self.executor)
        runtime = Runtime(executor=self.executor if scheduler is None else None, progress=progress, scheduler=scheduler)
        return runtime if self.threads is None else replace(runtime, threads=self.threads)


_COMPUTE: ContextVar[Compute | None] = ContextVar("compute", default=None)


@contextmanager
def computing(**options: Any) -> Iterator[Compute]:
    """Use these options of `Compute` for every call inside the block that has no ``compute=`` of its own.

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
    if isinstance(value, Compute):
        return value
    raise InputError(f"compute: expected relfit.Compute(...) or None, got {type(value).__name__}")


# ── every option ─────────────────────────────────────────────────────────────────────────────────────────────────────


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
        raise InputError(f"discrepancy: expected one, got {len(value)}; only compare takes several")
    name = check_choice("discrepancy", value, DISCREPANCIES)
    return AT_LOCATIONS[name]() if name in AT_LOCATIONS else name


def _as_encode(value: Any) -> Encode | None:
    if value is None or isinstance(value, Encode):
        return value
    raise InputError(f"encode: expected relfit.Encode(...) or None, got {type(value).__name__}")


class Options(TypedDict, total=False):
    """The options of `compare`, as its callers give them. `Settings` has their defaults and checks."""

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


@dataclass(frozen=True)
class Settings:
    """The options of one call, each checked."""

    test: Test = option("auto", as_test)
    discrepancy: str | MMD | KSD | AtLocations = option("auto", _as_discrepancy)
    kernel: Kernel | Select | None = option(None, lambda v: v if v is None else as_kernel(v))
    estimator: Estimator | None = option("complete", _as_estimator)
    alpha: float = option(0.05, check_alpha)
    correction: str | None = option(None, lambda v: v if v is None else check_choice("correction", v, CORRECTIONS))
    margin: float = option(0.0, check_margin)
    dependence: Dependence = option("independent", lambda v: check_choice("dependence", v, DEPENDENCE))
    groups: Any = option(None)
    given: Any = option(None)
    preset: str | None = option(None, lambda v: v if v is None else as_preset(v))
    scale: Scale | None = option(None, as_scale)
    encode: Encode | None = option(None, _as_encode)
    rng: int = option(None, make_seed)
    progress: Any = option(None)
    compute: Compute = option(None, _as_compute)

    def __post_init__(self) -> None:
        _checked(self)
        if isinstance(self.discrepancy, MMD | KSD | AtLocations) and self.discrepancy.kernel is not None:
            if self.kernel is not None:
                raise InputError("kernel: expected it once, got it both in kernel= and in discrepancy=")
            object.__setattr__(self, "kernel", as_kernel(self.discrepancy.kernel))
        if self.preset is not None and self.kernel is not None:
            raise InputError("kernel: expected it once, got it both in kernel= and in preset=")
        if (self.scale not in (None, "none") or self.encode is not None) and self.plain:
            raise InputError(
                "scale and encode: a preset or a precomputed kernel takes rows as they are; leave them out"
            )
        ordered = self.groups is not None or self.dependence != "independent"
        if ordered and self.encode is not None and self.encode.missing == "drop":
            raise InputError('missing="drop": would take rows out of their order or group; use "flag" or "refuse"')
        _check_test_and_kernel(self)
        if self.at_locations is not None:
            _check_locations(self)
        if self.discrepancy == "loglik":
            _check_likelihood(self)
        elif self.given is not None:
            raise InputError('given: covariates belong to discrepancy="loglik"; say so, or leave them out')
        if self.compute.memory is not None:
            _check_memory(self)

    @classmethod
    def of(cls, call: str, options: Any, *, without: Sequence[str] = (), also: Sequence[str] = ()) -> Settings:
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
                raise InputError(f"{call}: expected options among {', '.join(known)}, got {name!r}{hint}")
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
        return self.discrepancy if isinstance(self.discrepancy, str) else type(self.discrepancy).__name__.lower()

    @property
    def table(self) -> Precomputed | None:
        """The precomputed kernel, if it is one."""
        return None if self.kernel is None else table_of(self.kernel)

    @property
    def plain(self) -> bool:
        """True if rows are taken as they are, whatever their columns are called."""
        return self.preset is not None or self.table is not None

    @property
    def has_lengths(self) -> bool:
        """True if the kernel has lengths of its own: neither taken from the data, nor those of a kernel's name."""
        return self.kernel is not None and not self.kernel.needs_median and self.kernel not in NAMED.values()

    @property
    def criteria(self) -> Criteria:
        """What the test decides by; without a correction of its own, that of the test."""
        correction = self.test.default_correction if self.correction is None else self.correction
        return Criteria(self.alpha, correction, self.margin, self.seed)


def _check_test_and_kernel(settings: Settings) -> None:
    """Refuse tests and kernels that cannot be combined with each other, or with the dependence or the groups."""
    test, kernel, at, chain = settings.test, settings.kernel, settings.at_locations, settings.dependence == "chain"
    several, select = isinstance(kernel, Collection), isinstance(kernel, Select)
    if settings.correction == "stepdown" and not test.steps_down:
        raise InputError(f'correction="stepdown": belongs to test="best-set", got test="{test.name}"; use "holm"')
    if chain and test.split is not None:
        raise InputError(f'test="{test.name}": splits rows at random, which a chain does not allow; use another test')
    if chain and several:
        raise InputError(
            'kernel: several kernels in one test cannot be combined with dependence="chain", whose batches depend '
            "on the kernel; name one"
        )
    if several and (settings.margin or not test.implements("decide_under_all")):
        came = f"margin={settings.margin:g}" if test.implements("decide_under_all") else f'test="{test.name}"'
        raise InputError(
            f'kernel: several kernels in one test need test="best-set" without a margin, got {came}; '
            'kernel="select" chooses one of them for any test'
        )
    if chain and select:
        raise InputError('kernel="select": holds out rows at random, which a chain does not allow; name a kernel')
    # A test that splits the rows chooses the locations first; the others choose the kernel first.
    unknown = several or (select and test.split is not None)
    if at is not None and at.choose == "optimise" and unknown:
        raise InputError('choose="optimise": needs one kernel, got several to choose from or to combine; name one')
    if settings.groups is not None and (select or settings.table is not None):
        raise InputError('groups: cannot be combined with kernel="select" or a precomputed kernel; name a kernel')


def _check_locations(settings: Settings) -> None:
    name, compute, estimator = settings.discrepancy_name, settings.compute, settings.estimator
    if isinstance(estimator, PairDesign | Landmarks):
        raise InputError(f"estimator: {name} has its own, which is linear in the rows; leave out {estimator.name!r}")
    if isinstance(estimator, Complete) and estimator.variance != "auto":
        raise InputError(f"variance={estimator.variance!r}: {name} has its own covariance; leave it out")
    if settings.groups is not None:
        raise InputError(f"groups: cannot be combined with {name}; use mmd or ksd, or give one row for each group")
    if settings.table is not None:
        raise InputError(f"kernel: {name} needs its values at the locations, which a precomputed matrix does not hold")
    if compute.backend not in ("auto", "numpy") or compute.precision != "double":
        came = f"backend={compute.backend!r}, precision={compute.precision!r}"
        raise InputError(f"backend: {name} works in numpy and in double precision, got {came}; leave both out")
    if compute.checkpoint is not None:
        raise _no_checkpoint(name)


def _no_checkpoint(name: str) -> InputError:
    reason = "keeps the complete estimate and the one by landmarks"
    return InputError(f"checkpoint: {reason}; {name} is quick, so leave it out")


def _check_likelihood(settings: Settings) -> None:
    """Refuse what belongs to kernels and pairs of rows."""
    name = _not_of_likelihood(settings)
    if name is not None:
        raise InputError(f"{name}: loglik is a mean over rows and has no use for it; leave it out")


def _not_of_likelihood(settings: Settings) -> str | None:
    """An option that was given and belongs to kernels and pairs of rows."""
    compute, estimator = settings.compute, settings.estimator
    plain = estimator is None or estimator == Complete()
    others = {
        "kernel": settings.kernel is not None,
        "preset": settings.preset is not None,
        "estimator": not plain,
        "backend": compute.backend not in ("auto", "numpy"),
        "precision": compute.precision != "double",
        "checkpoint": compute.checkpoint is not None,
    }
    return next((name for name, is_set in others.items() if is_set), None)


def _check_memory(settings: Settings) -> None:
    """Refuse what needs all rows at once, or rows elsewhere than in memory or files."""
    whole = {
        "groups": settings.groups is not None,
        "given": settings.given is not None,
        'dependence="chain"': settings.dependence == "chain",
        "a precomputed kernel": settings.table is not None,
        f"preset={settings.preset!r}": settings.preset is not None and PRESETS[settings.preset].unit_length,
        f"backend={settings.compute.backend!r}": settings.compute.backend in ("torch", "triton"),
    }
    what = next((words for words, is_set in whole.items() if is_set), None)
    if what is not None:
        raise InputError(f"memory: cannot be combined with {what}, which needs all rows at once; leave out one of them")


# Keywords that are no option of a call, and what to write in their place.
ELSEWHERE = {
    "select_fraction": "a field of the test: test=relfit.RelMulti(select_fraction=...)",
    "pairs": "a field of the estimator: estimator=relfit.Incomplete(pairs=...)",
    "blocks": "a field of the estimator: estimator=relfit.Block(blocks=...)",
    "variance": "a field of the estimator: estimator=relfit.Complete(variance=...)",
    "shuffle": "a field of the estimator, such as estimator=relfit.Linear(shuffle=False)",
    **{item.name: f"a field of compute: compute=relfit.Compute({item.name}=...)" for item in fields(Compute)},
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
    """A decorator that gives a function with ``**options`` the signature that its callers see."""

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        shown_kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        named = [each for each in signature.parameters.values() if each.kind in shown_kinds]
        shown = [
            inspect.Parameter(item.name, inspect.Parameter.KEYWORD_ONLY, default=item.default, annotation=hint)
            for item, hint in ((item, Options.__annotations__[item.name]) for item in fields(Settings))
            if item.name not in without and item.default is not MISSING
        ]
        function.__signature__ = signature.replace(parameters=[*named, *shown])  # type: ignore[attr-defined]
        return function

    return decorate


# ── loading and resolving ────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def resolved(reference: Any, models: Any, settings: Settings, label: str, *, fewest_models: int = 2) -> Iterator[Plan]:
    """The data, loaded, and how they are estimated. The progress bar and files stay open while the block runs."""
    memory, checkpoint = settings.compute.memory, settings.compute.checkpoint
    with ExitStack() as stack:
        progress = stack.enter_context(reporting(settings.progress, label))
        budget = None if memory is None else stack.enter_context(budget_of(memory))
        data = _loaded(reference, models, settings, progress, budget, fewest_models)
        plan = _resolved(data, settings, progress, budget)
        if checkpoint is not None:
            finished = stack.enter_context(closing(_checkpoint(checkpoint, plan)))
            plan = plan.estimated_with(runtime=replace(plan.estimate.runtime, checkpoint=finished))
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
    data = load(
        reference,
        models,
        fewest_models=fewest_models,
        seed=settings.seed,
        all_samples=settings.discrepancy_name in KINDS["samples"].discrepancies or preset is not None,
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
        or_likelihood=settings.discrepancy == "auto" and _not_of_likelihood(settings) is None,
    )
    kind = KINDS[data.kind]
    if preset is not None and data.kind != "samples":
        raise InputError(f"preset={settings.preset!r}: compares features of samples, got {kind.words}")
    if preset is not None and preset.unit_length:
        models = {name: preset.prepare(f"model {name!r}", rows) for name, rows in data.samples.items()}
        data = replace(data, reference=preset.prepare("reference", data.reference), models={**models})
    if settings.discrepancy_name not in ("auto", *kind.discrepancies):
        densities = "densities (relfit.Density) as models"
        needs = {"ksd": "a density (relfit.Density) on one side", "fssd": densities, "loglik": densities}
        raise InputError(
            f"discrepancy={settings.discrepancy_name!r}: expected "
            f"{needs.get(settings.discrepancy_name, 'samples on both sides')}, got {kind.words}; use "
            f"discrepancy={kind.discrepancies[0]!r}"
        )
    return data


def _stays_on_device(settings: Settings) -> bool:
    """True if samples on a device can stay there: the complete estimate, and kernels without functions of the rows."""
    kernel, compute = settings.kernel, settings.compute
    return (
        not isinstance(settings.estimator, PairDesign)
        and compute.backend not in ("numpy", "numba")
        and compute.memory is None
        and compute.executor is None
        and settings.groups is None
        and (kernel is None or (isinstance(kernel, Kernel) and kernel.plain))
        and not (settings.preset is not None and PRESETS[settings.preset].unit_length)
        and settings.at_locations is None
    )


@dataclass(frozen=True)
class Plan:
    """Loaded data and how they are estimated: the settings, resolved against the data.

    `select` is set until one of the `candidates` is chosen as the kernel, and `at_locations` until the locations are;
    `notes` are sentences for the reader.
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

    @property
    def originals(self) -> dict[str, str]:
        """Every name given, in that order, with the distinct model that it stands for; without impossible models."""
        named = {name: self.data.copies.get(name, name) for name in self.data.names}
        return {name: original for name, original in named.items() if original not in self.data.impossible}

    def estimated_with(self, **changes: Any) -> Plan:
        return replace(self, estimate=replace(self.estimate, **changes))


def _resolved(data: Data, settings: Settings, progress: Progress | None, budget: Budget | None) -> Plan:
    """Fill in the estimator, the kernel, the backend and the groups."""
    kind, compute, seed = KINDS[data.kind], settings.compute, settings.seed
    if data.likelihood:
        return _resolved_likelihood(data, kind, settings, progress, budget)
    grouped, at = settings.groups is not None, settings.at_locations
    estimator, why = settings.estimator, ""
    automatic = estimator is None and at is None
    device = False
    if automatic:
        on_host = compute.backend in ("numpy", "numba") or compute.memory is not None or compute.executor is not None
        device = not on_host and has_cuda()
        estimator, why = automatic_estimator(data, kind, settings.dependence, grouped=grouped, device=device)
    estimator = Complete() if estimator is None else estimator
    kind.check(data, estimator, settings.dependence, grouped=grouped)
    score_notes = _score_notes(data)
    data = data.encoded()
    kernel = PRESETS[settings.preset].kernel if settings.preset is not None else settings.kernel
    select = kernel if isinstance(kernel, Select) else None
    candidates = () if select is None else resolve_candidates(data, kind, select, seed)
    resolved, rule = (
        (candidates[0], "selected") if candidates else resolve_kernel(data, kind, cast(Kernel | None, kernel), seed)
    )
    runtime = compute.runtime(progress)
    estimate = EstimateSettings(resolved, estimator, settings.dependence, seed, runtime, note=why)
    if automatic and isinstance(estimator, Landmarks):
        estimate = reconsidered(data, kind, estimate, device=device)
    preset_notes = () if settings.preset is None else (PRESETS[settings.preset].note,)
    notes = (*preset_notes, *score_notes, *data.warnings)
    if settings.table is not None:
        estimate = replace(estimate, runtime=replace(runtime, backend=LookupBackend()))
    elif at is None:
        estimate, backend_notes = _with_backend(estimate, data, kind, compute)
        notes = (*notes, *backend_notes)
    if budget is not None:
        estimate = within_budget(data, kind, estimate, budget)
    if grouped:
        estimate = replace(estimate, groups=make_groups(settings.groups, data, settings.dependence, estimator))
    measure = kind.discrepancies[0] if at is None else settings.discrepancy_name
    return Plan(data, kind, estimate, measure, rule, notes, select, candidates, at)


def _resolved_likelihood(
    data: Data, kind: Kind, settings: Settings, progress: Progress | None, budget: Budget | None
) -> Plan:
    """The plan of a mean over rows, which has neither a kernel nor pairs."""
    estimator = Complete()
    kind.check(data, estimator, settings.dependence, grouped=settings.groups is not None)
    if budget is not None:
        budget.working(32 * len(data.reference) * len(data.models), 8 * SCORE_BATCH * int(data.reference.shape[1]))
    # No part of it looks at the kernel.
    runtime = settings.compute.runtime(progress)
    estimate = EstimateSettings(Gaussian(1.0), estimator, settings.dependence, settings.seed, runtime)
    if settings.groups is not None:
        groups = make_groups(settings.groups, data, settings.dependence, estimator)
        estimate = replace(estimate, groups=groups)
    return Plan(data, kind, estimate, "loglik", "", data.warnings)


def _score_notes(data: Data) -> tuple[str, ...]:
    """Notes on densities whose score contradicts their own log density."""
    if data.target is not None:
        return score_warnings({"reference": data.target}, next(iter(data.samples.values())))
    densities = {repr(name): density for name, density in data.densities.items()}
    return score_warnings(densities, data.reference) if densities else ()


def _with_backend(
    estimate: EstimateSettings, data: Data, kind: Kind, compute: Compute
) -> tuple[EstimateSettings, tuple[str, ...]]:
    """The settings with a backend, and what the reader should know about it."""
    name, runtime = estimate.estimator.name, estimate.runtime
    if isinstance(estimate.estimator, PairDesign):
        ignored = compute.backend in ("torch", "triton") or compute.precision != "double"
        return estimate, (f"the {name} estimator always works in numpy and in double precision",) if ignored else ()
    kernel = estimate.kernel.untilted
    near = isinstance(estimate.estimator, Landmarks)
    count = landmark_values if near else pair_count
    workload = Workload(
        *(data.device, count(len(data.reference), [len(x) for x in data.samples.values()]), kernel),
        largest=lambda: largest_norm(data, kernel),
        dim=data.reference.shape[1],
        sides=kind.smooth or near,
        executor=compute.executor is not None,
    )
    # A budget of memory does not count what Numba's compiler takes, unless it was asked for.
    backend = "numpy" if compute.memory is not None and compute.backend == "auto" else compute.backend
    if runtime.scheduler is not None and backend == "auto":
        fused = compute.precision == "single" and fits_fused(workload)
        local = LocalBackend(cast(Precision, compute.precision), fused=fused, compiled=fits_compiled(workload))
        return replace(estimate, runtime=replace(runtime, backend=local)), ()
    chosen, notes = chosen_backend(backend, compute.precision, workload)
    return replace(estimate, runtime=replace(runtime, backend=chosen)), notes


def _checkpoint(path: str | os.PathLike[str], plan: Plan) -> Checkpoint:
    data, estimate = plan.data, plan.estimate
    if isinstance(estimate.estimator, PairDesign):
        name = estimate.estimator.name
        raise _no_checkpoint(name)
    inputs_and_settings = {
        "relfit": __version__,
        "reference": data.digests.get(None) or "a density",
        **{f"model {name!r}": data.digests.get(name) or "a density" for name in data.names},
        "kernel": estimate.kernel.describe(),
        # Rows of densities are digested as they were given.
        "scale": "none" if data.encoding is None else hashlib.sha256(repr(data.encoding).encode()).hexdigest()[:16],
        "dependence": estimate.dependence,
        "seed": str(estimate.seed),
        "backend": estimate.runtime.backend.name,
    }
    return Checkpoint(path, inputs_and_settings)
