"""The command `relfit plan`: how many rows a comparison needs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from relfit.api import estimate, plan
from relfit.cli import options
from relfit.cli.inputs import named_models, named_numbers, read_inputs, read_scores
from relfit.cli.outputs import check_outputs, worded, write_outputs
from relfit.cli.sections import DIRECTION, JSON, SectionedCommand, opt, section
from relfit.data.evals import read_evals
from relfit.data.scored import Scores
from relfit.data.scores import scores
from relfit.kernels import NAMED
from relfit.settings import Settings
from relfit.stats.joint import JointEstimate
from relfit.stats.planning import Assumed
from relfit.stats.tests import TESTS
from relfit.util.errors import InputError
from relfit.util.files import write_bytes_atomic
from relfit.util.text import visible

PICTURES = ("png", "svg", "pdf")
_OF_SCORES = ("higher_is_better", "item", "model", "score", "stratum", "group")


@click.command(
    "plan",
    cls=SectionedCommand,
    epilog="\b\nExamples:\n"
    "  relfit plan data.npy large.npy tuned.npy base.npy --power 0.9 --plot power.png\n"
    "  relfit plan scores.csv --higher-is-better\n"
    "  relfit plan --gap 0.01 --standard-error 0.02 --pilot-rows 500",
)
@click.argument("reference", required=False)
@click.argument("models", nargs=-1, metavar="[MODEL]...")
@section(
    "Question",
    opt("--power P", "The probability of finding a worse model that you want.", default=0.8),
    opt(
        "--n ROWS",
        "Also say what this many rows can show.  [default: the rows of the pilot]",
        type=int,
    ),
    opt(
        "--test",
        "A test to plan for; repeat it for several.  [default: best-set]",
        choices=TESTS,
        multiple=True,
    ),
    opt("--all-tests", "Plan for every test.", is_flag=True),
    options.ALPHA,
    options.CORRECTION,
    *options.TEST_OPTIONS,
)
@section(
    "Assumed gaps instead of files",
    opt(
        "--gap [NAME=]GAP",
        "By how much the discrepancy of a model is larger than the best one's; repeat it for "
        "each model.",
        multiple=True,
    ),
    opt("--standard-error S", "Standard error of the discrepancy of one model.", type=float),
    opt("--pilot-rows ROWS", "Number of rows that have this standard error.", type=int),
    opt(
        "--correlation R",
        "Correlation of the discrepancies of two models.  [default: 0]",
        type=float,
    ),
)
@section(
    "Scores instead of samples",
    DIRECTION,
    opt(
        "--item COLUMN",
        "Column with the key of the item; repeat it for a key in several columns.",
        multiple=True,
    ),
    opt("--model COLUMN", "Column with the model, of a row for each model and item."),
    opt("--score COLUMN", "With --model, the column with the scores."),
    opt("--stratum COLUMN", "Column with the part of the benchmark."),
    opt("--group COLUMN", "Column with the group of dependent items.", multiple=True),
)
@section(
    "Output",
    JSON,
    opt("--plot PATH", "Draw the power curves in a .png, .svg or .pdf file.", dest="plot_path"),
)
@options.input_options
@section(
    "Estimate of the pilot",
    options.of(Settings, "discrepancy"),
    options.of(Settings, "kernel", help="The kernel.", choices=NAMED),
    options.BANDWIDTH,
    options.PRESET,
    options.ESTIMATOR,
)
@section(
    "Simulation",
    opt(
        "--trials N",
        "Number of simulated trials for each number of rows, where there is no closed form.",
        default=1000,
    ),
)
@options.other_options
def plan_command(
    reference: str | None,
    models: Sequence[str],
    json_path: str | None,
    plot_path: str | None,
    **params: Any,
) -> int:
    """Say how many rows it takes to find a worse model, from a pilot.

    REFERENCE and MODELs are the pilot's files, as in relfit compare. A table of scores alone,
    as in relfit losses, or a folder of evaluation logs plans the number of items. Without
    files, --gap, --standard-error and --pilot-rows say what to assume.
    """
    form = "png" if plot_path is None else plot_path.rpartition(".")[2].lower()
    if form not in PICTURES:
        raise InputError(
            f"--plot: expected a file ending in .png, .svg or .pdf, got {plot_path!r}"
        )
    check_outputs({"json_path": json_path, "plot_path": plot_path})
    if params["all_tests"] and params["test"]:
        raise InputError(
            "--all-tests: expected without --test, got both; leave out one of them"
        )
    names = TESTS if params["all_tests"] else params["test"] or ["best-set"]
    chosen = options.values_of("test", [*names], params)
    pilot, notes = (
        (_assumed(params), ()) if params["gap"] else _measured(reference, models, params)
    )
    if params["gap"] and reference is not None:
        raise InputError(
            "--gap: expected files or assumed gaps, got both; leave out one of them"
        )
    question = {name: params[name] for name in ("power", "alpha", "n", "correction", "trials")}
    progress = options.pilot_options(params)["progress"]
    result = plan(pilot, tests=chosen, rng=params["seed"], progress=progress, **question)
    result = replace(result, notes=worded((*notes, *result.notes)))
    shown = []
    if plot_path is not None:
        # It would report a folder for its settings that cannot be written.
        logging.getLogger("matplotlib").setLevel(logging.ERROR)
        from relfit.report.plots import picture

        write_bytes_atomic(plot_path, picture(result, form))
        shown.append(f"Plot: {visible(plot_path)}")
    return write_outputs(result, {"json_path": json_path}, shown=shown)


def _assumed(params: dict[str, Any]) -> Assumed:
    for option in ("standard_error", "pilot_rows"):
        if params[option] is None:
            raise InputError(f"--{option.replace('_', '-')}: expected with --gap, got none")
    named: dict[str, float] = {}
    gaps = named_numbers("--gap", params["gap"], "a number or NAME=NUMBER")
    for k, (given, gap) in enumerate(gaps, 1):
        name = given or f"m{k}"
        if name in named:
            raise InputError(f"--gap: expected different names, got {name!r} more than once")
        named[name] = gap
    return Assumed(
        named, params["standard_error"], params["correlation"] or 0.0, params["pilot_rows"]
    )


def _measured(
    reference: str | None, models: Sequence[str], params: dict[str, Any]
) -> tuple[JointEstimate | Scores, tuple[str, ...]]:
    for option in ("standard_error", "pilot_rows", "correlation"):
        if params[option] is not None:
            raise InputError(
                f"--{option.replace('_', '-')}: belongs to --gap, which was not given"
            )
    told = [name for name in _OF_SCORES if params[name] not in (None, ())]
    if reference is not None and not models and (told or Path(reference).is_dir()):
        pilot = _scored(reference, params)
        return pilot, pilot.notes
    if told:
        raise InputError(
            f"--{told[0].replace('_', '-')}: expected a single table of scores or folder of "
            f"logs, got {1 + len(models)} files"
        )
    if reference is None or len(models) < 2:
        raise InputError(
            f"MODEL: expected a reference and at least two model files, a table of scores with "
            f"--higher-is-better or --lower-is-better, or --gap; got {len(models)} model files"
        )
    inputs = read_inputs(reference, named_models(models, params["name"]), params)
    chosen = {**options.pilot_options(params), "groups": inputs.groups}
    joint = estimate(
        inputs.reference, inputs.models, discrepancy=params["discrepancy"] or "auto", **chosen
    )
    return joint, inputs.notes


def _scored(source: str, params: dict[str, Any]) -> Scores:
    """The scores in a table, or in the logs of a folder."""
    if Path(source).is_dir():
        return scores(read_evals(source), higher_is_better=params["higher_is_better"]).common()
    others = dict.fromkeys(("run", "judge", "label", "missing", "min_coverage"))
    asked = {**params, **others, "weight": (), "transpose": False}
    return read_scores(source, {**asked, "drop": params["drop"] or None}).common()
