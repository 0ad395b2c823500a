"""Every option of a comparison: its name, default and check, and how the options are resolved against the data."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from contextvars import ContextVar
from dataclasses import MISSING, dataclass, field, fields, replace
from difflib import get_close_matches
from typing import Any, TypedDict, TypeVar, cast

from relfit.compute.backend import BACKENDS, PRECISIONS, LookupBackend, Precision
from relfit.compute.checkpoint import Checkpoint
from relfit.compute.memory import Budget, budget_of, parse_memory
from relfit.compute.reduce import PATCH_ROWS, LocalBackend, Runtime, Workload, chosen_backend, fits_fused
from relfit.compute.schedulers import scheduler_for
from relfit.data.check_score import score_warnings
from relfit.data.load import Data, load
from relfit.data.presets import PRESETS, Preset
from relfit.estimators import KINDS
from relfit.estimators.base import KSD, MMD, Dependence, EstimateSettings, Estimator, Kind, PairDesign, pair_count
from relfit.estimators.cost import automatic_estimator, within_budget
from relfit.estimators.designs import ESTIMATORS, Complete
from relfit.estimators.groups import make_groups
from relfit.estimators.kernel import largest_norm, resolve_candidates, resolve_kernel
from relfit.estimators.locations import AT_LOCATIONS, AtLocations
from relfit.kernels import as_kernel
from relfit.kernels.base import Kernel
from relfit.kernels.choice import Select, table_of
from relfit.stats.decision import CORRECTIONS
from relfit.stats.tests import as_test
from relfit.stats.tests.base import Test
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
        backend: "numpy" and "torch" compute where the data are (tensors on a CUDA device are not copied), "triton" uses
            fused kernels on a CUDA device, in single precision; "auto" decides by where the data are and how much there
            is to compute. The result says which it was.
        precision: of the kernel's values, "double" or "single", which is faster. Sums are always in double precision.
        executor: a `dask.distributed.Client`, or any `concurrent.futures.Executor`, that computes parts of the complete
            estimate; None uses threads. The bits do not depend on it.
        checkpoint: a file that holds finished parts of the complete estimate: after a crash or an interrupt the same
            call resumes from there. It is refused for other inputs or settings, and is safe to delete.
        memory: a budget for the whole process, in bytes or such as "2GB": larger files are read a part at a time. None
            reads everything but .npy files into memory.
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
        if self.executor is not None:
            scheduler_for(self.executor)
        if self.memory is not None:
            parse_memory(self.memory)


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


def _as_discrepancy(value: Any) -> str | MMD | KSD | AtLocations:
    """A discrepancy given as a value or by name; those at locations become values."""
    if isinstance(value, MMD | KSD | AtLocations):
        return value
    name = check_choice("discrepancy", value, ("auto", "mmd", "ksd", *AT_LOCATIONS))
    return AT_LOCATIONS[name]() if name in AT_LOCATIONS else name


class Options(TypedDict, total=False):
    """The options of `compare`, as its callers give them. `Settings` has their defaults and checks."""

    test: str | Test
    discrepancy: str | MMD | KSD | AtLocations
    kernel: Kernel | Select | Sequence[Kernel] | str | None
    estimator: str | Estimator
    alpha: float
    correction: str | None
    margin: float
    dependence: str
    groups: Any
    preset: str | None
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
    preset: str | None = option(None, lambda v: v if v is None else check_choice("preset", v, PRESETS))
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

    @classmethod
    def of(cls, call: str, options: Any, *, without: Sequence[str] = (), also: Sequence[str] = ()) -> Settings:
        """The settings of a call with these keyword options.

        `without` are those that the call does not have, `also` those that it reads itself.
        """
        allowed = [item.name for item in fields(cls) if item.name not in without]
        for name in options:
            if name in MOVED:
                raise InputError(f"{name}: is now {MOVED[name]}")
            if name not in allowed:
                known = [*also, *allowed]
                close = get_close_matches(name, [*known, *MOVED], 1)
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
        """The discrepancy by its name: "auto", "mmd", "ksd", "ume", "nystroem" or "fssd"."""
        return self.discrepancy if isinstance(self.discrepancy, str) else type(self.discrepancy).__name__.lower()

    @property
    def used_correction(self) -> str:
        """The correction that was asked for, or the default of the test."""
        return self.test.default_correction if self.correction is None else self.correction


# Where keywords of version 0.1 went.
MOVED = {
    "select_fraction": "a field of the test: test=relfit.RelMulti(select_fraction=...)",
    "pairs": "a field of the estimator: estimator=relfit.Incomplete(pairs=...)",
    "blocks": "a field of the estimator: estimator=relfit.Block(blocks=...)",
    "variance": "a field of the estimator: estimator=relfit.Complete(variance=...)",
    "shuffle": "a field of the estimator, such as estimator=relfit.Linear(shuffle=False)",
    **{
        name: f"a field of compute: compute=relfit.Compute({name}=...), or with relfit.computing({name}=...)"
        for name in ("backend", "precision", "executor", "checkpoint", "memory")
    },
}


def shows_options(*, without: Sequence[str] = ()) -> Callable[[F], F]:
    """A decorator that gives a function with ``**options`` the signature that its callers see."""

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        named = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        shown = [
            inspect.Parameter(item.name, inspect.Parameter.KEYWORD_ONLY, default=item.default, annotation=hint)
            for item, hint in ((item, Options.__annotations__[item.name]) for item in fields(Settings))
            if item.name not in without and item.default is not MISSING
        ]
        function.__signature__ = signature.replace(parameters=[*named, *shown])  # type: ignore[attr-defined]
        return function

    return decorate


# ── a session: what is open while a call runs ────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Session:
    """The progress bar and the budget of memory of one call."""

    progress: Progress | None
    budget: Budget | None


@contextmanager
def session(settings: Settings, label: str) -> Iterator[Session]:
    """Progress and memory budget, open while the block runs."""
    memory = settings.compute.memory
    with reporting(settings.progress, label) as update:
        if memory is None:
            yield Session(update, None)
            return
        with budget_of(memory) as budget:
            yield Session(update, budget)


# ── loading and resolving ────────────────────────────────────────────────────────────────────────────────────────────


def load_data(reference: Any, models: Any, settings: Settings, opened: Session, *, fewest_models: int = 2) -> Data:
    """The data, loaded and checked as these settings need them."""
    table = None if settings.kernel is None else table_of(settings.kernel)
    if settings.at_locations is not None:
        _check_locations(settings, table is not None)
    if opened.budget is not None:
        _check_budget(settings, table is not None)
    if table is not None:
        reference, models = table.inputs(reference, models)
        name = "auto" if settings.estimator is None else settings.estimator.name
        check_choice(f"{table.describe()}: estimator", name, ("complete", "linear"))
    preset = PRESETS.get(settings.preset or "")
    data = load(
        reference,
        models,
        fewest_models=fewest_models,
        seed=settings.seed,
        all_samples=settings.discrepancy_name in KINDS["samples"].discrepancies or preset is not None,
        progress=opened.progress,
        in_place=_stays_on_device(settings),
        budget=opened.budget,
    )
    if preset is not None:
        data = _with_preset(settings.preset or "", preset, data)
    kind = KINDS[data.kind]
    if settings.discrepancy_name not in ("auto", *kind.discrepancies):
        needs = {"ksd": "a density (relfit.Density) on one side", "fssd": "densities (relfit.Density) as models"}
        raise InputError(
            f"discrepancy={settings.discrepancy_name!r}: expected "
            f"{needs.get(settings.discrepancy_name, 'samples on both sides')}, got {kind.words}; use "
            f"discrepancy={kind.discrepancies[0]!r}"
        )
    return data


def _with_preset(name: str, preset: Preset, data: Data) -> Data:
    if data.kind != "samples":
        raise InputError(f"preset={name!r}: compares features of samples, got {KINDS[data.kind].words}")
    if not preset.unit_length:
        return data
    models = {key: preset.prepare(f"model {key!r}", rows) for key, rows in data.samples.items()}
    return replace(data, reference=preset.prepare("reference", data.reference), models={**models})


def _check_locations(settings: Settings, table: bool) -> None:
    """Refuse what cannot be combined with a discrepancy at locations."""
    name, compute, estimator = settings.discrepancy_name, settings.compute, settings.estimator
    if isinstance(estimator, PairDesign):
        raise InputError(f"estimator: {name} has its own, which is linear in the rows; leave out {estimator.name!r}")
    if isinstance(estimator, Complete) and estimator.variance != "auto":
        raise InputError(f"variance={estimator.variance!r}: {name} has its own covariance; leave it out")
    if compute.backend not in ("auto", "numpy") or compute.precision != "double":
        came = f"backend={compute.backend!r}, precision={compute.precision!r}"
        raise InputError(f"backend: {name} works in numpy and in double precision, got {came}; leave both out")
    if settings.groups is not None:
        raise InputError(f"groups: cannot be combined with {name}; use mmd or ksd, or give one row for each group")
    if table:
        raise InputError(f"kernel: {name} needs its values at the locations, which a precomputed matrix does not hold")
    if compute.checkpoint is not None:
        raise InputError(f"checkpoint: holds parts of the complete estimate; {name} is quick and needs none")


def _check_budget(settings: Settings, table: bool) -> None:
    """Refuse what needs all rows at once, or rows elsewhere than in memory or files."""
    whole = {
        "groups": settings.groups is not None,
        'dependence="chain"': settings.dependence == "chain",
        "a precomputed kernel": table,
        f"preset={settings.preset!r}": settings.preset is not None and PRESETS[settings.preset].unit_length,
        f"backend={settings.compute.backend!r}": settings.compute.backend in ("torch", "triton"),
    }
    for what, is_set in whole.items():
        if is_set:
            raise InputError(
                f"memory: cannot be combined with {what}, which needs all rows at once; leave out one of them"
            )


def _stays_on_device(settings: Settings) -> bool:
    """True if samples on a device can stay there: the complete estimate, and kernels without functions of the rows."""
    kernel, compute = settings.kernel, settings.compute
    return (
        not isinstance(settings.estimator, PairDesign)
        and compute.backend != "numpy"
        and compute.memory is None
        and compute.executor is None
        and settings.groups is None
        and (kernel is None or (isinstance(kernel, Kernel) and kernel.plain))
        and not (settings.preset is not None and PRESETS[settings.preset].unit_length)
        and settings.at_locations is None
    )


@dataclass(frozen=True)
class Plan:
    """How loaded data are estimated: the settings, resolved against the data.

    `select` is set until one of the `candidates` is chosen as the kernel; `notes` are sentences for the reader.
    """

    kind: Kind
    estimate: EstimateSettings
    bandwidth_rule: str
    notes: tuple[str, ...]
    select: Select | None = None
    candidates: tuple[Kernel, ...] = ()
    at_locations: AtLocations | None = None

    @property
    def sets_rows_aside(self) -> bool:
        """True if some rows choose the kernel or the locations, and leave the test."""
        return self.select is not None or self.at_locations is not None


def resolve(data: Data, settings: Settings, opened: Session) -> Plan:
    """Fill in the estimator, the kernel, the backend and the groups."""
    kind, compute, seed = KINDS[data.kind], settings.compute, settings.seed
    grouped, at = settings.groups is not None, settings.at_locations
    estimator, why = settings.estimator, ""
    if estimator is None and at is None:
        on_host = compute.backend == "numpy" or compute.memory is not None or compute.executor is not None
        device = not on_host and has_cuda()
        estimator, why = automatic_estimator(data, kind, settings.dependence, grouped=grouped, device=device)
    estimator = Complete() if estimator is None else estimator
    kind.check(data, estimator, settings.dependence, grouped=grouped)
    kernel = PRESETS[settings.preset].kernel if settings.preset is not None else settings.kernel
    select = kernel if isinstance(kernel, Select) else None
    candidates = () if select is None else resolve_candidates(data, kind, select, seed)
    resolved, rule = (
        (candidates[0], "selected") if candidates else resolve_kernel(data, kind, cast(Kernel | None, kernel), seed)
    )
    scheduler = None if compute.executor is None else scheduler_for(compute.executor)
    runtime = Runtime(
        executor=compute.executor if scheduler is None else None,
        progress=opened.progress,
        scheduler=scheduler,
    )
    if compute.threads is not None:
        runtime = replace(runtime, threads=compute.threads)
    estimate = EstimateSettings(resolved, estimator, settings.dependence, seed, runtime, note=why)
    table = settings.kernel is not None and table_of(settings.kernel) is not None
    notes = (*_score_notes(data), *data.warnings)
    if settings.preset is not None:
        notes = (PRESETS[settings.preset].note, *notes)
    if table:
        estimate = replace(estimate, runtime=replace(runtime, backend=LookupBackend()))
    elif at is None:
        estimate, said = _with_backend(estimate, data, kind, compute)
        notes = (*notes, *said)
    if opened.budget is not None:
        estimate = within_budget(data, kind, estimate, opened.budget)
    if grouped:
        if select is not None or table:
            raise InputError('groups: cannot be combined with kernel="select" or a precomputed kernel; name a kernel')
        estimate = replace(estimate, groups=make_groups(settings.groups, data, settings.dependence, estimator))
    return Plan(kind, estimate, rule, notes, select, candidates, at)


def _score_notes(data: Data) -> tuple[str, ...]:
    """Notes on densities whose score contradicts their own log density."""
    if data.target is not None:
        return score_warnings({"reference": data.target}, next(iter(data.samples.values())))
    densities = data.densities
    return score_warnings({repr(n): d for n, d in densities.items()}, data.reference) if densities else ()


def _with_backend(
    estimate: EstimateSettings, data: Data, kind: Kind, compute: Compute
) -> tuple[EstimateSettings, tuple[str, ...]]:
    """The settings with a backend, and what the reader should know about it."""
    name, runtime = estimate.estimator.name, estimate.runtime
    if isinstance(estimate.estimator, PairDesign):
        ignored = compute.backend in ("torch", "triton") or compute.precision != "double"
        note = f"the {name} estimator always works in numpy and in double precision"
        return estimate, (note,) if ignored else ()
    kernel = estimate.kernel.untilted
    workload = Workload(
        *(data.device, pair_count(len(data.reference), [len(x) for x in data.samples.values()]), kernel),
        largest=lambda: largest_norm(data, kernel),
        dim=data.reference.shape[1],
        sides=kind.smooth,
        executor=compute.executor is not None,
    )
    backend = "numpy" if compute.memory is not None else compute.backend
    if runtime.scheduler is not None and backend == "auto":
        fused = compute.precision == "single" and fits_fused(workload)
        local = LocalBackend(cast(Precision, compute.precision), fused=fused)
        return replace(estimate, runtime=replace(runtime, backend=local)), ()
    chosen, notes = chosen_backend(backend, compute.precision, workload)
    return replace(estimate, runtime=replace(runtime, backend=chosen)), notes


@contextmanager
def checkpointed(data: Data, plan: Plan, settings: Settings) -> Iterator[Plan]:
    """The plan with its checkpoint open, where there is one."""
    path, estimate = settings.compute.checkpoint, plan.estimate
    if path is None:
        yield plan
        return
    if isinstance(estimate.estimator, PairDesign):
        name = estimate.estimator.name
        raise InputError(f"checkpoint: holds parts of the complete estimate; {name} is quick and needs none")
    models = {f"model {name!r}": data.digests.get(name) or "a density" for name in data.names}
    inputs_and_settings = {
        "relfit": __version__,
        "reference": data.digests.get(None) or "a density",
        **models,
        "kernel": estimate.kernel.describe(),
        "dependence": estimate.dependence,
        "seed": str(estimate.seed),
        "backend": estimate.runtime.backend.name,
    }
    with closing(Checkpoint(path, inputs_and_settings)) as checkpoint:
        runtime = replace(estimate.runtime, checkpoint=checkpoint)
        yield replace(plan, estimate=replace(estimate, runtime=runtime))


def recorded(data: Data, plan: Plan, settings: Settings) -> dict[str, Any]:
    """The settings that every result records."""
    estimate, estimator = plan.estimate, plan.estimate.estimator
    return {
        "measure": plan.kind.discrepancies[0] if plan.at_locations is None else settings.discrepancy_name,
        "kernel": estimate.kernel,
        "bandwidth_rule": plan.bandwidth_rule,
        "estimator": estimator.name,
        "dependence": estimate.dependence,
        "pair_count": getattr(estimator, "pairs", None),
        "block_count": getattr(estimator, "blocks", None),
        "variance": "corrected" if estimator.corrected else None,
        "locations": None if estimate.locations is None else estimate.locations.points,
        "inputs": {
            "reference": data.digests.get(None),
            "models": {name: data.digests.get(name) for name in data.names},
        },
        "seed": settings.seed,
        "backend": estimate.runtime.backend.name,
        "preset": settings.preset,
        "plan": {"memory": estimate.runtime.memory, "patch_rows": estimate.runtime.patch_rows or PATCH_ROWS},
    }
