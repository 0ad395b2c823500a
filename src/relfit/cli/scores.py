"""The commands about scores of models on the same items: `relfit losses` reads a table,
`relfit evals` the logs of an evaluation harness.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from relfit.api import compare_losses
from relfit.cli import options
from relfit.cli.inputs import read_runs, read_scores
from relfit.cli.monitor import BOUNDS, conclude_monitor, run_early_stopping
from relfit.cli.outputs import (
    SHOW,
    check_gate,
    check_outputs,
    conclude,
    gate_options,
    recorded_command,
    say,
    valid_text,
    worded,
)
from relfit.cli.sections import (
    AT_LEAST_0,
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
from relfit.data.scored import MAX_MISSING, MIN_COVERAGE, MISSING, Scores, missing_doubt
from relfit.data.scores import scores
from relfit.estimators.losses import DEPENDENCE
from relfit.stats.decision import CORRECTIONS
from relfit.stats.tests import TESTS
from relfit.util.errors import InputError

LARGEST_MISSING = opt(
    "--max-missing FRACTION",
    "With --gate, exit with status 2 if a model lacks a larger fraction of the items.",
    default=MAX_MISSING,
    type=float,
)
MISSING_ITEMS = opt(
    "--missing",
    "Items that some model has no score for. common: left out. adjust: all scores are used, "
    "with an effect of each item. refuse: an error.",
    choices=MISSING,
    default=MISSING[0],
)
COVERAGE = opt(
    "--min-coverage FRACTION",
    "With --missing adjust, models that have scores of a smaller fraction of the items are "
    f"left out.  [default: {MIN_COVERAGE:g}]",
    type=float,
)
_TESTS = [name for name in TESTS if name not in options.SPLITTING]


@click.command(
    "losses",
    cls=SectionedCommand,
    epilog="\b\nExamples:\n"
    "  relfit losses losses.csv --lower-is-better --html report.html\n"
    "  relfit losses scores.csv --higher-is-better --item doc_id --stratum task --drop "
    "n_tokens\n"
    "  relfit losses log.jsonl --item doc_id --model model --score acc --gate new",
)
@click.argument("table")
@section("Output", HTML, TITLE, JSON, SHOW)
@section(
    "Scores",
    DIRECTION,
    opt(
        "--item COLUMN",
        "Column with the key of the item; repeat it for a key in several columns. Rows are "
        "matched by it, and several of one item averaged.",
        multiple=True,
    ),
    opt(
        "--model COLUMN",
        "Column with the model: the table then has a row for each model and item.",
    ),
    opt("--score COLUMN", "With --model, the column with the scores."),
    opt(
        "--stratum COLUMN",
        "Column with the part of the benchmark; the mean of the parts' means is compared.",
    ),
    opt(
        "--weight STRATUM=NUMBER",
        "With --stratum, the weight of a part; repeat it for each.",
        multiple=True,
    ),
    opt(
        "--group COLUMN",
        "Column with the group; items of one group depend on each other. Repeat it for items "
        "that depend on each other in two ways, such as prompt and annotator.",
        multiple=True,
    ),
    opt(
        "--run COLUMN",
        "Column with the training run: runs are then a random sample of those of each method.",
    ),
    opt("--judge COLUMN", "Column with the judge: judges are then a random sample, too."),
    MISSING_ITEMS,
    COVERAGE,
    opt(
        "--columns LIST",
        "Columns with the models' scores, by name; others are left out.  "
        "[default: all numbers]",
    ),
    opt("--drop LIST", "Columns to leave out, by name."),
    opt(
        "--transpose",
        "The table has a row for each model and a column for each item; --model names the "
        "column of the models.",
        is_flag=True,
    ),
    LARGEST_MISSING,
    opt(
        "--label COLUMN",
        "With --model, the column with scores by people, which correct those of a judge.",
    ),
    opt(
        "--dependence",
        "How items depend on each other. series: each on its neighbours, in the order of time.",
        choices=DEPENDENCE,
        default=DEPENDENCE[0],
    ),
    opt(
        "--lags NUMBER",
        "With series, how far dependence reaches.  [default: prewhitened by one autocorrelation]",
        type=AT_LEAST_0,
    ),
)
@section(
    "Test",
    opt(
        "--test",
        "How the models are compared, as in relfit compare.",
        choices=_TESTS,
        default=_TESTS[0],
    ),
    options.ALPHA,
    options.MARGIN,
    opt(
        "--correction",
        "How the p-values are corrected for multiple testing. stepdown: with probability 1 − "
        "alpha no model is called "
        "worse that is among the best.  [default: stepdown for best-set, otherwise none]",
        choices=CORRECTIONS,
    ),
)
@gate_options
@section("Other options", SEED)
def losses_command(table: str, **params: Any) -> int:
    """Decide which models are worse than the best one, from their scores on the same items.

    TABLE is a .csv, .tsv, .json, .jsonl, Parquet or Arrow file with a column for each model
    and a row for each item, or with --model and --score a row for each model and item. Items
    that some model has no score for are left out. Without --higher-is-better or
    --lower-is-better the name of the --score column must tell the direction.
    """
    check_outputs(params)
    if params["label"] is not None and params["model"] is None:
        raise InputError(
            "--label: expected with --model and --score, in a table with a row "
            "for each model and item"
        )
    scores = read_scores(table, params)
    check_gate(params, scores.names)
    kept = ("max_missing", "dependence", "lags", "test", "correction", "alpha", "margin")
    return _decided(scores, params, kept, reference=valid_text(Path(table).name))


def _decided(
    scores: Scores, params: Mapping[str, Any], names: Sequence[str], **recorded: Any
) -> int:
    """The comparison with the options of these names, and the end of the command."""
    settings = {name: params[name] for name in names}
    result = compare_losses(scores, rng=params["seed"], **settings)
    return conclude(result.changed(command=recorded_command(), **recorded), params, data=scores)


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
        "over them, random takes them for a random sample of its training runs.",
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
    MISSING_ITEMS,
    COVERAGE,
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
    check_outputs(params)
    named: Any = dict(zip(map(valid_text, names), paths, strict=True)) if names else paths
    asked = {name: params[name] for name in ("missing", "min_coverage")}
    evals = scores(read_runs(named, params), **asked)
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
    return _decided(
        evals, params, ("higher_is_better", "max_missing", "alpha", "margin", "correction")
    )


def _sequential(evals: Scores, params: Mapping[str, Any]) -> int:
    """The scores in random order, each model until it is out."""
    for name in ("junit_path", "markdown_path", "show", "margin"):
        if params[name]:
            raise InputError(
                f"--{name.removesuffix('_path')}: cannot be combined with --sequential; leave "
                f"out one of them"
            )
    if params["higher_is_better"] is not None:
        evals = replace(evals, higher_is_better=params["higher_is_better"])
    missing = missing_doubt(evals.names, np.isnan(evals.values), params["max_missing"])
    lacking = [] if missing is None else [missing]
    if params["json_path"] != "-":
        for note in worded((*evals.notes, *lacking)):
            say(f"Note: {note}")
    given = {name: params[name] for name in ("bounds", "alpha") if params[name] is not None}
    monitor, sentence = run_early_stopping(evals, given, params["seed"])
    with monitor:
        return conclude_monitor(monitor, params, sentence, (*evals.doubts, *lacking))
