"""The commands `relfit compare` and `relfit pair`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import click
import numpy as np

from relfit.api import compare_pair, compare_with_data
from relfit.cli import options
from relfit.cli.inputs import (
    ITEMS,
    REFERENCE,
    check_inputs,
    named_models,
    read_inputs,
    read_items,
)
from relfit.cli.outputs import (
    GATE_REQUIRE,
    SHOW,
    check_gate,
    check_outputs,
    conclude,
    gate_options,
    recorded_command,
    valid_text,
    worded,
    write_outputs,
)
from relfit.cli.sections import HTML, JSON, TITLE, SectionedCommand, opt, section
from relfit.cli.workers import running
from relfit.data.files import SUFFIXES
from relfit.data.tables import Table
from relfit.settings import computing
from relfit.util.errors import InputError
from relfit.util.text import listed


@click.command(
    "compare",
    cls=SectionedCommand,
    epilog="\b\nExamples:\n"
    "  relfit compare data.npy large.npy tuned.npy base.npy --html report.html\n"
    "  relfit compare test.csv a/out.csv b/out.csv --name old --name new --gate new",
)
@click.argument("reference")
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@section(
    "Output",
    HTML,
    TITLE,
    JSON,
    SHOW,
    *ITEMS,
)
@section(
    "Test",
    options.TEST,
    options.ALPHA,
    options.MARGIN,
    options.CORRECTION,
    *options.TEST_OPTIONS,
)
@gate_options
@options.data_options
def compare_command(reference: str, models: Sequence[str], **params: Any) -> int:
    """Decide which MODELs are worse than the best one.

    REFERENCE holds the data, each MODEL a sample of that model, one row per item: SUFFIXES;
    file.npz:name is one of several arrays. A folder of Parquet files is one table.

    Densities, samplers and other Python objects are given as module:object or
    file.py:object. THIS RUNS THAT CODE: name only files you trust. A density as REFERENCE is
    a target that samples are compared with.
    """
    from relfit.report.items import check_counts

    if len(models) < 2:
        raise InputError(f"MODEL: expected at least two files, got {len(models)}")
    named = named_models(models, params["name"])
    check_inputs(reference, models)
    check_gate(params, named)
    check_outputs(params)
    _check_items(params)
    items = read_items(params["items"], params["field"], {REFERENCE: reference, **named})
    test = options.values_of("test", [params["test"]], params)[0]
    inputs = read_inputs(reference, named, params)
    if items is not None:
        samples = {REFERENCE: inputs.reference, **inputs.models}
        check_counts(
            items,
            {
                name: len(rows)
                for name, rows in samples.items()
                if isinstance(rows, np.ndarray | Table)
            },
        )
    with _executor(params) as executor:
        settings = {**options.comparing_options(params, executor), "test": test}
        result, loaded = compare_with_data(
            inputs.reference, inputs.models, groups=inputs.groups, **settings
        )
    warnings = (*inputs.notes, *result.warnings)
    named_as = valid_text(Path(reference).name)
    result = result.changed(warnings=warnings, command=recorded_command(), reference=named_as)
    if params["memory"] is None:
        return conclude(result, params, data=loaded, items=items)
    # Rows that were read in parts are read again.
    with computing(memory=params["memory"]):
        return conclude(result, params, data=(inputs.reference, inputs.models), items=items)


compare_command.help = str(compare_command.help).replace(
    "SUFFIXES", listed(SUFFIXES, "or", most=99, quote=str)
)


def _executor(params: dict[str, Any]) -> AbstractContextManager[Any]:
    """Where the sums are computed: in this process, unless an option says otherwise."""
    elsewhere = {params["workers"], params["cluster"], params["checkpoint"]} - {None}
    return running(params) if elsewhere else nullcontext()


@click.command(
    "pair", cls=SectionedCommand, epilog="\b\nExample:\n  relfit pair human.npy new.npy old.npy"
)
@click.argument("reference")
@click.argument("a")
@click.argument("b")
@section("Output", JSON)
@section(
    "Test",
    opt(
        "--test",
        "z is the plain test of the pair; relpsi also conditions on which of the two "
        "looks better.",
        choices=["z", "relpsi"],
        default="z",
    ),
    options.ALPHA,
    options.MARGIN,
)
@section(
    "Gate for continuous integration",
    opt(
        "--gate",
        "Exit with status 1 if A is worse than B (by more than --margin).",
        is_flag=True,
    ),
    GATE_REQUIRE,
)
@options.data_options
def pair_command(reference: str, a: str, b: str, **params: Any) -> int:
    """Test whether model A is worse than model B.

    The hypothesis is fixed before the data are seen: "A is no worse than B".
    """
    from relfit.report.gate import judge_pair

    if params["require"] is not None and not params["gate"]:
        raise InputError("--gate-require: expected together with --gate")
    named = named_models([a, b], params["name"])
    check_inputs(reference, [a, b])
    check_outputs(params)
    inputs = read_inputs(reference, named, params)
    with _executor(params) as executor:
        settings = {"groups": inputs.groups, **options.comparing_options(params, executor)}
        result = compare_pair(
            inputs.reference, *inputs.models.values(), names=tuple(named), **settings
        )
    warnings = worded((*inputs.notes, *result.warnings))
    result = result.changed(warnings=warnings, doubts=worded(result.doubts))
    gate = judge_pair(result, require=params["require"]) if params["gate"] else None
    return write_outputs(result, params, gate)


def _check_items(params: dict[str, Any]) -> None:
    """Refuse --items where the rows behind them are not shown, or not known."""
    if params["items"] and (params["html_path"] is None or params["rows"] is not None):
        raise InputError(
            "--items: expected with --html and without --rows, which would mix "
            "up rows and items"
        )
