"""What one call asked for, checked, with its data loaded."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

from relfit.compute.backend import LookupBackend, Precision
from relfit.compute.checkpoint import Checkpoint
from relfit.compute.choice import BACKENDS, PRECISIONS, LocalBackend, Workload, chosen_backend, fits_fused
from relfit.compute.memory import Budget, budget_of
from relfit.compute.reduce import PATCH_ROWS, Runtime
from relfit.compute.schedulers import scheduler_for
from relfit.data.load import Data, load
from relfit.data.presets import preset_note, preset_of
from relfit.data.scores import score_warnings
from relfit.estimators.base import KSD, MMD, Dependence, Plan
from relfit.estimators.checks import check_design, check_layout, check_variance, resolved_variance
from relfit.estimators.cost import chosen_estimator, within
from relfit.estimators.groups import with_groups
from relfit.estimators.kernel import largest_norm, pair_count, resolve_candidates, resolve_kernel
from relfit.estimators.locations import AT_LOCATIONS, AtLocations
from relfit.kernels.base import Kernel
from relfit.kernels.choice import Select, as_kernel, table_of
from relfit.util.checks import check_choice
from relfit.util.errors import InputError
from relfit.util.libraries import has_cuda
from relfit.util.progress import Progress, reporting
from relfit.util.random import Seed, make_seed
from relfit.util.version import __version__

ESTIMATORS = ("complete", "linear", "block", "incomplete", "auto")
VARIANCES = ("auto", "projection", "corrected")
DEPENDENCE = ("independent", "shared", "paired", "chain")
_NEEDS = {
    "mmd": "samples on both sides",
    "ksd": "densities (relfit.Density) on one side",
    "ume": "samples on both sides",
    "nystroem": "samples on both sides",
    "fssd": "densities (relfit.Density) as models",
}
_MEASURES = {"samples": ("mmd", "ume", "nystroem"), "densities": ("ksd", "fssd"), "target": ("ksd",)}
_KINDS = {"samples": "samples", "densities": "densities as models", "target": "a density as the reference"}


@dataclass(frozen=True)
class Options:
    """The options that `compare`, `compare_pair` and `estimate` share."""

    discrepancy: str | MMD | KSD | AtLocations
    estimator: str
    kernel: Any
    dependence: str
    rng: Seed
    backend: str
    executor: Any
    shuffle: bool
    preset: str | None
    pairs: int | None = None
    blocks: int | None = None
    variance: str = "auto"
    groups: Any = None
    precision: str = "double"
    checkpoint: str | os.PathLike[str] | None = None
    memory: int | str | None = None


@dataclass(frozen=True)
class Task:
    """Checked data and the plan of their estimate; `notes` are what the reader should be told about them.

    With `select` the plan's kernel is only the first of `candidates`, until one of them is chosen; `wanted` is a
    discrepancy at locations, which are chosen next.
    """

    data: Data
    plan: Plan
    bandwidth_rule: str
    notes: tuple[str, ...]
    select: Select | None = None
    candidates: tuple[Kernel, ...] = ()
    wanted: AtLocations | None = None
    preset: str | None = None

    @property
    def measure(self) -> str:
        """The discrepancy's name in results: "mmd", "ksd", "ume", "nystroem" or "fssd"."""
        return self.data.measure if self.wanted is None else type(self.wanted).__name__.lower()

    def copies(self) -> dict[str, str]:
        """Every name given, in that order, with the distinct model it stands for."""
        return {name: self.data.copies.get(name, name) for name in self.data.names}

    def settings(self) -> dict[str, Any]:
        """The settings that every result records."""
        return {
            "measure": self.measure,
            "kernel": self.plan.kernel,
            "bandwidth_rule": self.bandwidth_rule,
            "estimator": self.plan.estimator,
            "dependence": self.plan.dependence,
            "pair_count": self.plan.pairs,
            "block_count": self.plan.blocks,
            "variance": "corrected" if self.plan.variance == "corrected" else None,
            "locations": None if self.plan.locations is None else self.plan.locations.points,
            "inputs": {
                "reference": self.data.digests.get(None),
                "models": {name: self.data.digests.get(name) for name in self.data.names},
            },
            "seed": self.plan.seed,
            "backend": self.plan.runtime.backend.name,
            "preset": self.preset,
            "plan": {"memory": self.plan.runtime.memory, "patch_rows": self.plan.runtime.patch_rows or PATCH_ROWS},
        }


@contextmanager
def prepared(
    reference: Any, models: Any, options: Options, label: str, progress: Any, *, fewest_models: int = 2
) -> Iterator[Task]:
    """The task, with its progress shown and its checkpoint open meanwhile."""
    with reporting(progress, label) as update, budget_of(options.memory) as budget:
        task = prepare(reference, models, options, update, fewest_models=fewest_models, budget=budget)
        if options.checkpoint is None:
            yield task
            return
        _check_checkpoint(task)
        with closing(Checkpoint(options.checkpoint, _run_of(task))) as checkpoint:
            runtime = replace(task.plan.runtime, checkpoint=checkpoint)
            yield replace(task, plan=replace(task.plan, runtime=runtime))


def _check_checkpoint(task: Task) -> None:
    """Refuse a checkpoint for work that is not cut into patches."""
    if task.plan.estimator != "complete" or task.wanted is not None:
        what = task.plan.estimator if task.wanted is None else task.measure
        raise InputError(f"checkpoint: notes parts of the complete estimate; {what} is quick, and starts again instead")


def _run_of(task: Task) -> dict[str, str]:
    """What a checkpoint must have been started with to be of use: inputs and settings by name."""
    data, plan = task.data, task.plan
    models = {f"model {name!r}": data.digests.get(name) or "a density" for name in data.names}
    return {
        "relfit": __version__,
        "reference": data.digests.get(None) or "a density",
        **models,
        "kernel": plan.kernel.describe(),
        "dependence": plan.dependence,
        "seed": str(plan.seed),
        "backend": plan.runtime.backend.name,
    }


def prepare(
    reference: Any,
    models: Any,
    options: Options,
    progress: Progress | None,
    *,
    fewest_models: int = 2,
    budget: Budget | None = None,
) -> Task:
    """Check every option, load the data and fill in the kernel."""
    estimator = check_choice("estimator", options.estimator, ESTIMATORS)
    dependence = cast(Dependence, check_choice("dependence", options.dependence, DEPENDENCE))
    variance = check_choice("variance", options.variance, VARIANCES)
    check_layout(estimator, options.pairs, options.blocks)
    scheduler = scheduler_for(options.executor)
    check_choice("backend", options.backend, BACKENDS)
    check_choice("precision", options.precision, PRECISIONS)
    executor = options.executor if scheduler is None else None
    runtime = Runtime(executor=executor, progress=progress, scheduler=scheduler)
    discrepancy, kernel, wanted = _discrepancy(options)
    table = table_of(kernel)
    if wanted is not None:
        _check_locations(options, discrepancy, table is not None)
    if budget is not None:
        _check_memory(options, table is not None)
    if table is not None:
        reference, models = table.inputs(reference, models)
        check_choice(f"{table.describe()}: estimator", estimator, ("complete", "linear"))
        runtime = replace(runtime, backend=LookupBackend())
    seed = make_seed(options.rng)
    data = load(
        reference,
        models,
        fewest_models=fewest_models,
        seed=seed,
        all_samples=discrepancy in _MEASURES["samples"] or options.preset is not None,
        progress=progress,
        in_place=_in_place(options, kernel),
        budget=budget,
    )
    notes = (*_score_warnings(data), *data.warnings)
    if options.preset is not None:
        data, kernel = _with_preset(options.preset, data, kernel)
        notes = (preset_note(options.preset), *notes)
    if discrepancy not in ("auto", *_MEASURES[data.kind]):
        raise InputError(f"discrepancy={discrepancy!r}: expected {_NEEDS[discrepancy]}, got {_KINDS[data.kind]}")
    pairs, why = options.pairs, ""
    if estimator == "auto" and wanted is not None:
        estimator = "complete"
    if estimator == "auto":
        device = options.backend != "numpy" and options.memory is None and options.executor is None and has_cuda()
        estimator, pairs, why = chosen_estimator(data, dependence, grouped=options.groups is not None, device=device)
    check_design(data, estimator, dependence, grouped=options.groups is not None)
    check_variance(data, "" if wanted is not None else estimator, dependence, variance)
    select = kernel if isinstance(kernel, Select) else None
    candidates = () if select is None else resolve_candidates(data, select, seed)
    resolved, rule = (candidates[0], "selected") if candidates else resolve_kernel(data, cast(Kernel, kernel), seed)
    plan = Plan(
        *(resolved, estimator, dependence, seed, runtime, options.shuffle),
        pairs=pairs,
        blocks=options.blocks,
        variance=resolved_variance(variance),
        why=why,
    )
    if table is None and wanted is None:
        plan, said = _with_backend(plan, data, options)
        notes = (*notes, *said)
    if budget is not None:
        plan = within(data, plan, budget)
    if options.groups is not None:
        if select is not None or table is not None:
            raise InputError("groups: not known for this kernel; give one by name, such as Gaussian()")
        plan = with_groups(data, plan, options.groups)
    return Task(data, plan, rule, notes, select, candidates, wanted, options.preset)


def _score_warnings(data: Data) -> tuple[str, ...]:
    """Once, before any work is shared out: whether a density's score contradicts its own log density."""
    if data.target is None:
        return score_warnings({repr(name): density for name, density in data.densities.items()}, data.reference)
    return score_warnings({"reference": data.target}, next(iter(data.samples.values())))


def _with_preset(name: str, data: Data, kernel: Kernel | Select | None) -> tuple[Data, Kernel]:
    if kernel is not None:
        raise InputError("kernel: expected it once, got it both in kernel= and in preset=")
    if data.kind != "samples":
        raise InputError(f"preset={name!r}: compares features of samples, got {_KINDS[data.kind]}")
    preset = preset_of(name)
    if not preset.unit_length:
        return data, preset.kernel
    models = {key: preset.prepare(f"model {key!r}", rows) for key, rows in data.samples.items()}
    prepared = replace(data, reference=preset.prepare("reference", data.reference), models={**models})
    return prepared, preset.kernel


def _discrepancy(options: Options) -> tuple[str, Kernel | Select | None, AtLocations | None]:
    given, kernel = options.discrepancy, as_kernel(options.kernel)
    if isinstance(given, str) and given in AT_LOCATIONS:
        given = AT_LOCATIONS[given]()
    if isinstance(given, MMD | KSD | AtLocations):
        if kernel is not None and given.kernel is not None:
            raise InputError("kernel: expected it once, got it both in kernel= and in discrepancy=")
        chosen = as_kernel(given.kernel) if kernel is None else kernel
        return type(given).__name__.lower(), chosen, given if isinstance(given, AtLocations) else None
    return check_choice("discrepancy", given, ("auto", *_NEEDS)), kernel, None


def _check_locations(options: Options, name: str, table: bool) -> None:
    """Refuse what a discrepancy at locations does not go together with."""
    if options.estimator not in ("complete", "auto"):
        raise InputError(f"estimator: {name} has one of its own, linear in the rows; leave out {options.estimator!r}")
    if options.backend not in ("auto", "numpy") or options.precision != "double":
        came = f"backend={options.backend!r}, precision={options.precision!r}"
        raise InputError(f"backend: {name} works in numpy and in double precision, got {came}; leave both out")
    if options.groups is not None:
        raise InputError(f"groups: not known for {name}; use mmd or ksd, or give one row for each group")
    if table:
        raise InputError(f"kernel: {name} needs its values at the locations, which a precomputed matrix does not hold")


def _check_memory(options: Options, table: bool) -> None:
    """Refuse what needs all rows at once, or keeps them elsewhere than in memory or files."""
    whole = {
        "groups": options.groups is not None,
        'dependence="chain"': options.dependence == "chain",
        "a precomputed kernel": table,
        f"preset={options.preset!r}": options.preset is not None and preset_of(options.preset).unit_length,
        f"backend={options.backend!r}": options.backend in ("torch", "triton"),
    }
    for what, given in whole.items():
        if given:
            raise InputError(f"memory: not known with {what}, which needs all rows at once; leave out one of the two")


def _in_place(options: Options, kernel: Any) -> bool:
    """Whether samples on a device can stay there: the complete estimate, and kernels without functions of the rows."""
    plain = kernel is None or (isinstance(kernel, Kernel) and kernel.plain)
    scaled = options.preset is not None and preset_of(options.preset).unit_length
    at_locations = isinstance(options.discrepancy, AtLocations) or options.discrepancy in AT_LOCATIONS
    return (
        options.estimator in ("complete", "auto")
        and options.backend != "numpy"
        and options.memory is None
        and options.executor is None
        and options.groups is None
        and plain
        and not scaled
        and not at_locations
    )


def _with_backend(plan: Plan, data: Data, options: Options) -> tuple[Plan, tuple[str, ...]]:
    """The plan with its backend chosen, and what the reader should be told about it."""
    if plan.estimator != "complete":
        asked = options.backend in ("torch", "triton") or options.precision != "double"
        note = f"the {plan.estimator} estimator works in numpy and in double precision, whatever was asked for"
        return plan, (note,) if asked else ()
    kernel = plan.kernel.untilted
    workload = Workload(
        *(data.device, pair_count(data), kernel, lambda: largest_norm(data, kernel)),
        dim=data.reference.shape[1],
        sides=data.measure == "ksd",
        executor=options.executor is not None,
    )
    name = "numpy" if options.memory is not None else options.backend
    if plan.runtime.scheduler is not None and name == "auto":
        fused = options.precision == "single" and fits_fused(workload)
        local = LocalBackend(cast(Precision, options.precision), fused=fused)
        return replace(plan, runtime=replace(plan.runtime, backend=local)), ()
    backend, notes = chosen_backend(name, options.precision, workload)
    return replace(plan, runtime=replace(plan.runtime, backend=backend)), notes
