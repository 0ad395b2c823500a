"""What one call asked for, checked, with its data loaded."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any, cast

from relfit.backends import NumpyBackend
from relfit.discrepancies import KSD, MMD, Dependence
from relfit.errors import BackendUnavailable, InputError
from relfit.inputs import Data, Seed, check_choice, load, make_seed
from relfit.kernels import Kernel
from relfit.measure import Plan, check_design, resolve_kernel
from relfit.presets import preset_note, preset_of
from relfit.progress import Progress
from relfit.tiles import Runtime

ESTIMATORS = ("complete", "linear")
DEPENDENCE = ("independent", "shared", "paired", "chain")
_KINDS = {"samples": "samples", "densities": "densities as models", "target": "a density as the reference"}


@dataclass(frozen=True)
class Options:
    """The options that `compare`, `compare_pair` and `estimate` share."""

    discrepancy: str | MMD | KSD
    estimator: str
    kernel: Kernel | None
    dependence: str
    rng: Seed
    backend: str
    executor: Executor | None
    shuffle: bool
    preset: str | None


@dataclass(frozen=True)
class Task:
    """Checked data and the plan of their estimate; `notes` are what the reader should be told about them."""

    data: Data
    plan: Plan
    bandwidth_rule: str
    notes: tuple[str, ...]

    def copies(self) -> dict[str, str]:
        """Every name given, in that order, with the distinct model it stands for."""
        return {name: self.data.copies.get(name, name) for name in self.data.names}

    def settings(self) -> dict[str, Any]:
        """The settings that every result records."""
        return {
            "measure": self.data.measure,
            "kernel": self.plan.kernel,
            "bandwidth_rule": self.bandwidth_rule,
            "estimator": self.plan.estimator,
            "dependence": self.plan.dependence,
            "seed": self.plan.seed,
            "backend": self.plan.runtime.backend.name,
        }


def prepare(
    reference: Any, models: Any, options: Options, progress: Progress | None, *, fewest_models: int = 2
) -> Task:
    """Check every option, load the data and fill in the kernel."""
    estimator = check_choice("estimator", options.estimator, ESTIMATORS)
    dependence = cast(Dependence, check_choice("dependence", options.dependence, DEPENDENCE))
    executor = options.executor
    if executor is not None and not callable(getattr(executor, "submit", None)):
        raise InputError(f"executor: expected a concurrent.futures.Executor or None, got {type(executor).__name__}")
    runtime = Runtime(_backend(options.backend), executor, progress=progress)
    discrepancy, kernel = _discrepancy(options)
    seed = make_seed(options.rng)
    data = load(
        reference,
        models,
        fewest_models=fewest_models,
        seed=seed,
        all_samples=discrepancy == "mmd" or options.preset is not None,
        progress=progress,
    )
    notes = data.warnings
    if options.preset is not None:
        data, kernel = _with_preset(options.preset, data, kernel)
        notes = (preset_note(options.preset), *notes)
    if discrepancy not in ("auto", data.measure):
        need = "samples on both sides" if discrepancy == "mmd" else "densities (relfit.Density) on one side"
        raise InputError(f"discrepancy={discrepancy!r}: expected {need}, got {_KINDS[data.kind]}")
    check_design(data, estimator, dependence)
    resolved, rule = resolve_kernel(data, kernel, seed)
    plan = Plan(resolved, estimator, dependence, seed, runtime, options.shuffle)
    return Task(data, plan, rule, notes)


def _with_preset(name: str, data: Data, kernel: Kernel | None) -> tuple[Data, Kernel]:
    if kernel is not None:
        raise InputError("kernel: expected it once, got it both in kernel= and in preset=")
    if data.kind != "samples":
        raise InputError(f"preset={name!r}: compares features of samples, got {_KINDS[data.kind]}")
    preset = preset_of(name)
    models = {key: preset.prepare(f"model {key!r}", rows) for key, rows in data.samples.items()}
    prepared = replace(data, reference=preset.prepare("reference", data.reference), models={**models})
    return prepared, preset.kernel


def _discrepancy(options: Options) -> tuple[str, Kernel | None]:
    wanted, kernel = options.discrepancy, options.kernel
    if isinstance(wanted, MMD | KSD):
        if kernel is not None and wanted.kernel is not None:
            raise InputError("kernel: expected it once, got it both in kernel= and in discrepancy=")
        return type(wanted).__name__.lower(), wanted.kernel if kernel is None else kernel
    return check_choice("discrepancy", wanted, ("auto", "mmd", "ksd")), kernel


def _backend(name: str) -> NumpyBackend:
    if isinstance(name, str) and name in ("torch", "triton"):
        raise BackendUnavailable(f'backend: {name!r} is not part of this version; use "auto" or "numpy"')
    check_choice("backend", name, ("auto", "numpy"))
    return NumpyBackend()
