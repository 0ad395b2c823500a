"""The command `relfit losses`: scores of models on the same items, from a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from relfit.api import compare_losses
from relfit.cli import options
from relfit.cli.inputs import read_scores
from relfit.cli.outputs import (
    SHOW,
    check_files,
    check_gate,
    conclude,
    gate_options,
    recorded_command,
    valid_text,
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
from relfit.data.scores import MAX_MISSING
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
        "Column with the key of the item. Rows are matched by it, and "
        "several of one item averaged.",
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
    opt("--group COLUMN", "Column with the group; items of one group depend on each other."),
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
    check_files(params)
    if params["label"] is not None and params["model"] is None:
        raise InputError(
            "--label: expected with --model and --score, in a table with a row "
            "for each model and item"
        )
    scores = read_scores(table, params)
    check_gate(params, scores.names)
    kept = ("max_missing", "dependence", "lags", "test", "correction", "alpha", "margin")
    settings = {name: params[name] for name in kept}
    result = compare_losses(scores, rng=params["seed"], **settings)
    result = result.changed(command=recorded_command(), reference=valid_text(Path(table).name))
    return conclude(result, params, data=scores)
