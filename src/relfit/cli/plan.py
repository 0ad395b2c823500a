"""The command `relfit plan`: how many rows a comparison needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from relfit.api import estimate
from relfit.cli.inputs import input_options, kernel_of, named_models, read_inputs
from relfit.cli.outputs import check_outputs, say, say_utf8
from relfit.data.presets import PRESETS
from relfit.kernels import NAMED
from relfit.kernels.base import Kernel
from relfit.kernels.choice import Select
from relfit.results.planning import TESTS, Assumed, plan
from relfit.settings import DEPENDENCE, ESTIMATORS
from relfit.stats.decision import CORRECTIONS
from relfit.stats.joint import JointEstimate
from relfit.util.errors import InputError
from relfit.util.files import write_bytes_atomic, write_text_atomic

PICTURES = ("png", "svg", "pdf")


@click.command(
    "plan",
    epilog="\b\nExamples:\n"
    "  relfit plan human.npy gpt.npy claude.npy llama.npy --power 0.9 --plot power.png\n"
    "  relfit plan --gap 0.01 --standard-error 0.02 --pilot-rows 500",
)
@click.argument("reference", required=False)
@click.argument("models", nargs=-1, metavar="[MODEL]...")
@click.option(
    "--power", metavar="P", type=float, default=0.8, show_default=True, help="Chance of finding a worse model."
)
@click.option("--alpha", metavar="LEVEL", type=float, default=0.05, show_default=True, help="Error rate allowed.")
@click.option("--test", "tests", type=click.Choice(TESTS), multiple=True, help="Once for each.  [default: all]")
@click.option("--n", "n", metavar="ROWS", type=int, help="What can so many rows show?  [default: the pilot's]")
@click.option(
    "--gap", "gaps", metavar="[NAME=]GAP", multiple=True, help="Instead of files: an assumed gap to the best."
)
@click.option("--standard-error", metavar="S", type=float, help="With --gap: of one model's discrepancy.")
@click.option("--pilot-rows", metavar="ROWS", type=int, help="With --gap: the rows behind that standard error.")
@click.option(
    "--correlation", metavar="R", type=float, help="With --gap: between two models' discrepancies.  [default: 0]"
)
@click.option("--select-fraction", metavar="SHARE", type=float, default=0.25, show_default=True, help="Of relmulti.")
@click.option("--correction", type=click.Choice(CORRECTIONS), help="Of the p-values.  [default: by for relmulti]")
@click.option(
    "--trials",
    metavar="N",
    type=int,
    default=1000,
    show_default=True,
    help="Simulated, where there are no closed forms.",
)
@click.option("--json", "json_path", metavar="PATH", help="Write the plan as JSON; - prints it instead of the table.")
@click.option("--plot", "plot_path", metavar="PATH", help="Draw the power curves: .png, .svg or .pdf.")
@click.option("--name", "names", metavar="NAME", multiple=True, help="Name of a model, once for each.")
@click.option("--kernel", type=click.Choice(list(NAMED)), default=None, help="[default: gaussian]")
@click.option("--bandwidth", metavar="NUMBER", type=float, help="Length of the kernel.  [default: the median distance]")
@click.option("--preset", type=click.Choice(list(PRESETS)), help="Of features, as in relfit compare.")
@click.option("--estimator", type=click.Choice(ESTIMATORS), default="complete", show_default=True)
@click.option("--dependence", type=click.Choice(DEPENDENCE), default="independent", show_default=True)
@click.option("--seed", metavar="NUMBER", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--progress/--no-progress", default=None, help="Show a bar; by default on terminals only.")
@input_options
def plan_command(
    reference: str | None,
    models: Sequence[str],
    gaps: Sequence[str],
    tests: Sequence[str],
    json_path: str | None,
    plot_path: str | None,
    **settings: Any,
) -> int:
    """Say how many rows each test needs to find a worse model, from a pilot.

    REFERENCE and MODELs are the pilot's files, as in relfit compare. Without files, --gap, --standard-error and
    --pilot-rows say what to assume.
    """
    form = _form(plot_path)
    check_outputs({"--json": None if json_path == "-" else json_path, "--plot": plot_path}, [reference or "", *models])
    asked = {key: settings.pop(key) for key in ("power", "alpha", "n", "select_fraction", "correction", "trials")}
    seed = settings["seed"]
    pilot, notes = (_assumed(gaps, settings), ()) if gaps else _measured(reference, models, settings)
    if gaps and reference is not None:
        raise InputError("--gap: expected files or assumed gaps, got both; leave out one of them")
    made = plan(pilot, tests=tests or TESTS, rng=seed, progress=settings["progress"], **asked)
    made = replace(made, notes=(*notes, *made.notes))
    if plot_path is not None:
        from relfit.report.plots import picture

        write_bytes_atomic(plot_path, picture(made, form))
    if json_path == "-":
        say_utf8(made.to_json())
        return 0
    if json_path is not None:
        write_text_atomic(json_path, made.to_json() + "\n")
    say(str(made))
    return 0


def _form(plot_path: str | None) -> str:
    if plot_path is None:
        return "png"
    form = plot_path.rpartition(".")[2].lower()
    if form not in PICTURES:
        raise InputError(f"--plot: expected a file ending in .png, .svg or .pdf, got {plot_path!r}")
    return form


def _assumed(gaps: Sequence[str], settings: dict[str, Any]) -> Assumed:
    for option in ("standard_error", "pilot_rows"):
        if settings[option] is None:
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
    return Assumed(named, settings["standard_error"], settings["correlation"] or 0.0, settings["pilot_rows"])


def _measured(
    reference: str | None, models: Sequence[str], settings: dict[str, Any]
) -> tuple[JointEstimate, tuple[str, ...]]:
    for option in ("standard_error", "pilot_rows", "correlation"):
        if settings.pop(option) is not None:
            raise InputError(f"--{option.replace('_', '-')}: belongs to --gap, which was not given")
    if reference is None or len(models) < 2:
        raise InputError(
            f"MODEL: expected a reference and at least two model files, or --gap; got {len(models)} model files"
        )
    named = named_models(models, settings.pop("names"))
    kernel = _kernel(settings.pop("kernel"), settings.pop("bandwidth"), settings["preset"])
    inputs = read_inputs(reference, named, settings)
    joint = estimate(inputs.reference, inputs.models, kernel=kernel, rng=settings.pop("seed"), **settings)
    return joint, inputs.notes


def _kernel(name: str | None, length: float | None, preset: str | None) -> Kernel | Select | None:
    if preset is not None:
        if name is not None or length is not None:
            raise InputError(f"--kernel: --preset {preset} has a kernel of its own; leave out one of the two")
        return None
    return kernel_of(name, length)
