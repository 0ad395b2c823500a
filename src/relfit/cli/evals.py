"""The command `relfit evals`: from the logs of an evaluation harness to verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import click
import numpy as np

from relfit.api import compare_losses
from relfit.cli import options
from relfit.cli.inputs import read_runs
from relfit.cli.losses import LARGEST_MISSING
from relfit.cli.monitor import BOUNDS, conclude_monitor, run_early_stopping
from relfit.cli.outputs import (
    SHOW,
    check_files,
    check_gate,
    conclude,
    gate_options,
    recorded_command,
    say,
    valid_text,
    worded,
)
from relfit.cli.sections import (
    DIRECTION,
    HTML,
    JSON,
    SEED,
    TITLE,
    SectionedCommand,
    opt,
    section,
)
from relfit.data.evals import RUNS
from relfit.data.evals.base import SETTINGS
from relfit.data.scores import Scores, missing_doubt
from relfit.stats.decision import CORRECTIONS
from relfit.util.errors import InputError

# All best models are to be kept at once, which is what readers of a leaderboard assume.
CORRECTION = "stepdown"


@click.command(
    "evals",
    cls=SectionedCommand,
    epilog="\b\nExamples:\n"
    "  relfit evals results/ --html report.html\n"
    "  relfit evals logs/ --task gsm8k --metric exact_match --filter strict-match\n"
    "  relfit evals runs/main runs/pull-request --name main --name new --gate new "
    "--gate-against main\n"
    "  relfit evals results/ --sequential",
)
@click.argument("paths", nargs=-1, required=True, metavar="RUNS...")
@section(
    "Input",
    opt(
        "--task TASK",
        "Task that is used, by name or pattern such as 'mmlu_*'; repeat it for several.",
        multiple=True,
    ),
    opt("--metric METRIC", "Score that is compared.  [default: the first one in the logs]"),
    opt(
        "--filter FILTER",
        "Filter of the answers (lm-evaluation-harness), split or perturbation (HELM).  "
        "[default: the first one in the "
        "logs; the test split as it is]",
    ),
    DIRECTION,
    opt(
        "--runs",
        "Which of several runs of a model on a task in one folder are used; all averages "
        "over them.",
        choices=RUNS,
        default=RUNS[0],
    ),
    opt(
        "--allow-different SETTING",
        f"Setting that may differ between runs: {', '.join(SETTINGS)}. Repeat it for several. "
        f"With --gate, other "
        "differences that the logs record exit with status 2.",
        type=click.Choice(list(SETTINGS), case_sensitive=False),
        multiple=True,
    ),
    LARGEST_MISSING,
    opt(
        "--name NAME",
        "Name of the model under each of RUNS; repeat it for each.  [default: as logged]",
        multiple=True,
    ),
)
@section("Output", HTML, TITLE, JSON, SHOW)
@section(
    "Test",
    options.ALPHA,
    options.MARGIN,
    opt(
        "--correction",
        "How the p-values are corrected for multiple testing.",
        choices=CORRECTIONS,
        default=CORRECTION,
    ),
    SEED,
)
@section(
    "Early stopping",
    opt(
        "--sequential",
        "Go through the items in random order, stop each model once it is shown to be worse, "
        "and say how many scores "
        "that takes. Each item counts the same.",
        is_flag=True,
    ),
    BOUNDS,
)
@gate_options
def evals_command(paths: Sequence[str], **params: Any) -> int:
    """Decide from evaluation logs which models are worse than the best one.

    RUNS are log files, or folders that hold them, of lm-evaluation-harness (--log_samples),
    Inspect, HELM or every-eval-ever. Models are compared on the items that all of them have.
    """
    names = params["name"]
    if names and len(names) != len(paths):
        raise InputError(
            f"--name: expected one for each of the {len(paths)} RUNS, got {len(names)}"
        )
    if len(set(names)) < len(names):
        raise InputError("--name: expected different names, got one of them twice")
    check_files(params)
    named: Any = dict(zip(map(valid_text, names), paths, strict=True)) if names else paths
    evals = read_runs(named, params)
    if len(evals.names) < 2:
        why = "".join(f"; {doubt}" for doubt in evals.doubts[:1])
        raise InputError(
            f"RUNS: expected runs of at least two models, got one ({evals.names[0]!r}){why}"
        )
    check_gate(params, evals.names)
    if params["sequential"]:
        return _sequential(evals, params)
    if params["bounds"] is not None:
        raise InputError("--bounds: belongs to --sequential; leave it out")
    criteria = {
        key: params[key]
        for key in ("higher_is_better", "max_missing", "alpha", "margin", "correction")
    }
    result = compare_losses(evals, rng=params["seed"], **criteria)
    return conclude(result.changed(command=recorded_command()), params, data=evals)


def _sequential(evals: Scores, params: Mapping[str, Any]) -> int:
    """The scores in random order, each model until it is out."""
    refused = {
        "junit_path": "--junit",
        "markdown_path": "--markdown",
        "show": "--show",
        "margin": "--margin",
    }
    for name, option in refused.items():
        if params[name]:
            raise InputError(
                f"{option}: cannot be combined with --sequential; leave out one of them"
            )
    if params["higher_is_better"] is not None:
        evals = replace(evals, higher_is_better=params["higher_is_better"])
    lacking = missing_doubt(evals.names, np.isnan(evals.values), params["max_missing"])
    doubts = (*evals.doubts, *(() if lacking is None else (lacking,)))
    for note in worded((*evals.notes, *(() if lacking is None else (lacking,)))):
        if params["json_path"] != "-":
            say(f"Note: {note}")
    given = {} if params["bounds"] is None else {"bounds": params["bounds"]}
    monitor, sentence = run_early_stopping(
        evals, {**given, "alpha": params["alpha"]}, params["seed"]
    )
    with monitor:
        return conclude_monitor(monitor, params, sentence, doubts)
