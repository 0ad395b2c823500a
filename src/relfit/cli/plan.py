"""`relfit plan`: how many rows a comparison needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from relfit.api import estimate, plan
from relfit.cli.inputs import input_options, named_models, read_inputs
from relfit.cli.options import (
    ALPHA,
    CORRECTION,
    DEPENDENCE_OPTION,
    ESTIMATOR,
    JSON,
    NAMES,
    PRESET,
    PROGRESS,
    SEED,
    SELECT_FRACTION,
    SectionedCommand,
    kernel_of,
    opt,
    section,
    test_of,
)
from relfit.cli.outputs import check_outputs, say, say_utf8
from relfit.kernels import NAMED
from relfit.kernels.base import Kernel
from relfit.kernels.choice import Select
from relfit.stats.joint import JointEstimate
from relfit.stats.planning import Assumed
from relfit.stats.tests import TESTS
from relfit.stats.tests.relmulti import RelMulti
from relfit.util.errors import InputError
from relfit.util.files import write_bytes_atomic, write_text_atomic

PICTURES = ("png", "svg", "pdf")


@click.command(
    "plan",
    cls=SectionedCommand,
    epilog="\b\nExamples:\n"
    "  relfit plan human.npy gpt.npy claude.npy llama.npy --power 0.9 --plot power.png\n"
    "  relfit plan --gap 0.01 --standard-error 0.02 --pilot-rows 500",
)
@click.argument("reference", required=False)
@click.argument("models", nargs=-1, metavar="[MODEL]...")
@section(
    "Question",
    opt(
        "--power",
        metavar="P",
        type=float,
        default=0.8,
        show_default=True,
        help="Probability of finding a worse model that is to be reached.",
    ),
    opt("--n", "n", metavar="ROWS", type=int, help="Also say what this many rows can show.  [default: the pilot's]"),
    opt(
        "--test", "tests", type=click.Choice(list(TESTS)), multiple=True, help="A test, once for each.  [default: all]"
    ),
    ALPHA,
    CORRECTION,
    SELECT_FRACTION,
)
@section(
    "Assumed gaps, instead of files",
    opt(
        "--gap", "gaps", metavar="[NAME=]GAP", multiple=True, help="Assumed gap of a model to the best, once for each."
    ),
    opt("--standard-error", metavar="S", type=float, help="Standard error of one model's discrepancy."),
    opt("--pilot-rows", metavar="ROWS", type=int, help="The rows behind that standard error."),
    opt("--correlation", metavar="R", type=float, help="Correlation of two models' discrepancies.  [default: 0]"),
)
@section(
    "Output",
    JSON,
    opt("--plot", "plot_path", metavar="PATH", help="Draw the power curves: .png, .svg or .pdf."),
)
@input_options(NAMES)
@section(
    "Estimate of the pilot",
    opt("--kernel", type=click.Choice(list(NAMED)), default=None, help="The kernel.  [default: gaussian]"),
    opt("--bandwidth", metavar="NUMBER", type=float, help="Bandwidth of the kernel.  [default: the median distance]"),
    PRESET,
    ESTIMATOR,
    DEPENDENCE_OPTION,
)
@section(
    "Simulation",
    opt(
        "--trials",
        metavar="N",
        type=int,
        default=1000,
        show_default=True,
        help="Simulated trials for each number of rows, where there is no closed form.",
    ),
    SEED,
    PROGRESS,
)
def plan_command(
    reference: str | None,
    models: Sequence[str],
    gaps: Sequence[str],
    tests: Sequence[str],
    select_fraction: float | None,
    json_path: str | None,
    plot_path: str | None,
    **params: Any,
) -> int:
    """Say how many rows each test needs to find a worse model, from a pilot.

    REFERENCE and MODELs are the pilot's files, as in relfit compare. Without files, --gap, --standard-error and
    --pilot-rows say what to assume.
    """
    form = _form(plot_path)
    check_outputs({"--json": None if json_path == "-" else json_path, "--plot": plot_path}, [reference or "", *models])
    question = {key: params.pop(key) for key in ("power", "alpha", "n", "correction", "trials")}
    seed, progress = params["seed"], params["progress"]
    chosen = [test_of(name, select_fraction if name == RelMulti.name else None) for name in tests or TESTS]
    pilot, notes = (_assumed(gaps, params), ()) if gaps else _measured(reference, models, params)
    if gaps and reference is not None:
        raise InputError("--gap: expected files or assumed gaps, got both; leave out one of them")
    result = plan(pilot, tests=chosen, rng=seed, progress=progress, **question)
    result = replace(result, notes=(*notes, *result.notes))
    if plot_path is not None:
        from relfit.report.plots import picture

        write_bytes_atomic(plot_path, picture(result, form))
    if json_path == "-":
        say_utf8(result.to_json())
        return 0
    if json_path is not None:
        write_text_atomic(json_path, result.to_json() + "\n")
    say(str(result))
    return 0


def _form(plot_path: str | None) -> str:
    if plot_path is None:
        return "png"
    form = plot_path.rpartition(".")[2].lower()
    if form not in PICTURES:
        raise InputError(f"--plot: expected a file ending in .png, .svg or .pdf, got {plot_path!r}")
    return form


def _assumed(gaps: Sequence[str], params: dict[str, Any]) -> Assumed:
    for option in ("standard_error", "pilot_rows"):
        if params[option] is None:
            raise InputError(f"--{option.replace('_', '-')}: expected with --gap, got none")
    named: dict[str, float] = {}
    for k, text in enumerate(gaps, 1):
        name, _, number = text.rpartition("=")
        try:
            gap = float(number)
        except ValueError:
            raise InputError(f"--gap: expected a number or NAME=NUMBER, got {text!r}") from None
        if (name or f"m{k}") in named:
            raise InputError(f"--gap: expected different names, got {name!r} more than once")
        named[name or f"m{k}"] = gap
    return Assumed(named, params["standard_error"], params["correlation"] or 0.0, params["pilot_rows"])


def _measured(
    reference: str | None, models: Sequence[str], params: dict[str, Any]
) -> tuple[JointEstimate, tuple[str, ...]]:
    for option in ("standard_error", "pilot_rows", "correlation"):
        if params.pop(option) is not None:
            raise InputError(f"--{option.replace('_', '-')}: belongs to --gap, which was not given")
    if reference is None or len(models) < 2:
        raise InputError(
            f"MODEL: expected a reference and at least two model files, or --gap; got {len(models)} model files"
        )
    named = named_models(models, params.pop("names"))
    kernel = _kernel(params.pop("kernel"), params.pop("bandwidth"), params["preset"])
    inputs = read_inputs(reference, named, params)
    options = {name: params[name] for name in ("preset", "estimator", "dependence", "progress")}
    groups = params.get("groups")
    joint = estimate(inputs.reference, inputs.models, kernel=kernel, groups=groups, rng=params["seed"], **options)
    return joint, inputs.notes


def _kernel(name: str | None, length: float | None, preset: str | None) -> Kernel | Select | None:
    if preset is not None:
        if name is not None or length is not None:
            raise InputError(f"--kernel: --preset {preset} has its own kernel; leave out one of the two")
        return None
    return kernel_of(name, length)
