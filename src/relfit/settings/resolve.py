"""How options are resolved against the data: what is loaded, and how it is estimated."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, cast

from relfit.compute.backend import LookupBackend, Precision
from relfit.compute.checkpoint import Checkpoint
from relfit.compute.memory import Budget, budget_of
from relfit.compute.reduce import (
    LocalBackend,
    Workload,
    chosen_backend,
    fits_compiled,
    fits_fused,
)
from relfit.data.check_score import score_warnings
from relfit.data.load import Data, load
from relfit.data.models import SCORE_BATCH
from relfit.data.presets import PRESETS
from relfit.estimators import (
    KINDS,
    automatic_estimator,
    reconsidered,
    within_budget,
)
from relfit.estimators.base import (
    Complete,
    EstimateSettings,
    Kind,
    PairDesign,
)
from relfit.estimators.groups import make_groups
from relfit.estimators.kernel import largest_norm, resolve_candidates, resolve_kernel
from relfit.estimators.locations import AtLocations
from relfit.kernels.base import Kernel
from relfit.kernels.composite import Select, kernels_of
from relfit.kernels.standard import Gaussian
from relfit.settings import Settings
from relfit.util import __version__
from relfit.util.checks import (
    check_choice,
)
from relfit.util.errors import InputError
from relfit.util.libraries import has_cuda
from relfit.util.progress import Progress, reporting


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
    if settings.by_blocks:
        name = "auto" if settings.estimator is None else settings.estimator.name
        described = kernels_of(settings.kernel)[0].describe()
        check_choice(f"{described}: estimator", name, ("complete", "linear"))
    preset = PRESETS.get(settings.preset or "")
    data = load(
        reference,
        models,
        fewest_models=fewest_models,
        seed=settings.seed,
        all_samples=settings.discrepancy_name in KINDS["samples"].discrepancies
        or settings.own is not None
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
        or_likelihood=settings.discrepancy == "auto" and not settings.has_kernel_options,
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
    if settings.own is not None:
        if data.kind != "samples":
            raise InputError(
                f"discrepancy: {settings.own.measure} compares samples, got {kind.words}; draw "
                f"from them first (relfit.draw)"
            )
        return replace(data, own=settings.own)
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
    automatic = estimator is None and at is None and not data.without_kernel
    device = automatic and not settings.compute.on_host and has_cuda()
    if automatic:
        estimator, why = automatic_estimator(
            data, kind, settings.dependence, grouped=grouped, device=device
        )
    estimator = Complete() if estimator is None or data.without_kernel else estimator
    kind.check(data, estimator, settings.dependence, grouped=grouped)
    runtime = settings.compute.runtime(progress)
    # Without a kernel no part looks at this one.
    estimate = EstimateSettings(
        Gaussian(1.0), estimator, settings.dependence, settings.seed, runtime, note=why
    )
    measure = "loglik" if data.likelihood else settings.discrepancy_name
    plan = Plan(data, kind, estimate, measure, "", data.warnings, at_locations=at)
    if not data.without_kernel:
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
    if settings.by_blocks:
        plan = plan.estimated_with(runtime=replace(runtime, backend=LookupBackend()))
        if compute.backend not in ("torch", "triton") and compute.precision == "double":
            return plan
        note = f"the {estimate.kernel.describe()} always works in numpy and in double precision"
        return replace(plan, notes=(*plan.notes, note))
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
