"""`relfit compare` and `relfit pair`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from relfit.api import compare, compare_pair
from relfit.cli.gate import check_gate, gate_options, gate_status, gated_json, judged
from relfit.cli.inputs import check_inputs, input_options, named_models, read_inputs
from relfit.cli.options import json_option, measured_settings, measuring_options, name_option
from relfit.cli.outputs import check_outputs, say, say_utf8
from relfit.cli.report import REFERENCE, check_item_counts, command_line, items_options, read_items, say_written
from relfit.cli.rerun import recorded
from relfit.cli.workers import computing, worker_options
from relfit.stats.decision import CORRECTIONS
from relfit.util.errors import InputError
from relfit.util.files import write_text_atomic


@click.command(
    "compare",
    epilog="\b\nExamples:\n"
    "  relfit compare human.npy gpt.npy claude.npy llama.npy --html report.html\n"
    "  relfit compare test.csv a/out.csv b/out.csv --name old --name new --gate new",
)
@click.argument("reference")
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@name_option
@click.option("--html", "html_path", metavar="PATH", help="Write a report that opens in any browser.")
@json_option
@gate_options
@items_options
@click.option(
    "--show", type=click.Choice(["ranks", "pairs"]), multiple=True, help="Print ranks too, or who beats whom."
)
@click.option(
    "--test",
    type=click.Choice(["best-set", "relpsi", "relmulti", "carve"]),
    default="best-set",
    show_default=True,
    help="best-set: which could be best; relpsi: select and test on all rows; relmulti: split the rows; "
    "carve: relpsi with noise in the selection.",
)
@click.option(
    "--select-fraction",
    metavar="SHARE",
    type=float,
    help="relmulti: share of the rows that selects the best.  [default: 0.25]",
)
@click.option(
    "--correction", type=click.Choice(CORRECTIONS), help="Of the p-values.  [default: by for relmulti, otherwise none]"
)
@input_options
@measuring_options
@worker_options
def compare_command(
    reference: str,
    models: Sequence[str],
    names: Sequence[str],
    test: str,
    select_fraction: float | None,
    json_path: str | None,
    html_path: str | None,
    junit_path: str | None,
    gate: str | None,
    against: str | None,
    items: Sequence[str],
    field: str | None,
    show: Sequence[str],
    **settings: Any,
) -> int:
    """Decide which MODELs are significantly worse than the best one.

    REFERENCE holds the data, each MODEL a sample of that model, one row per item: .npy, .npz, .csv, .tsv (or .csv.gz,
    .tsv.gz), .parquet, .feather, .arrow, .pt, .safetensors or .zarr; file.npz:name is one of several arrays.

    Densities, samplers and other Python objects are given as module:object or file.py:object. THIS RUNS THAT CODE:
    name only files you trust. A density as REFERENCE is a target that samples are compared with.
    """
    if len(models) < 2:
        raise InputError(f"MODEL: expected at least two files, got {len(models)}")
    named = named_models(models, names)
    check_inputs(reference, models)
    check_gate(gate, against, named)
    outputs = {"--json": _file(json_path), "--html": html_path, "--junit": junit_path}
    check_outputs({**outputs, "--checkpoint": settings["checkpoint"]}, [reference, *models])
    if items and (html_path is None or settings["rows"] is not None):
        raise InputError("--items: expected with --html and without --rows, which would mix up rows and items")
    if items and settings["memory"] is not None:
        raise InputError("--items: expected without --memory, which keeps the rows out of the report")
    found = read_items(items, field, {REFERENCE: reference, **named})
    if select_fraction is not None and test != "relmulti":
        raise InputError("--select-fraction: only --test relmulti selects with a share of the rows")
    fraction = {} if select_fraction is None else {"select_fraction": select_fraction}
    inputs = read_inputs(reference, named, settings)
    if found is not None:
        check_item_counts(found, inputs.reference, inputs.models)
    with computing({**settings, **fraction}) as wanted:
        compared = compare(inputs.reference, inputs.models, test=test, **measured_settings(wanted))
    result = recorded(_noted(compared, inputs.notes))
    answer = judged(result, gate, against)
    _write_json(gated_json(result, answer), json_path)
    if json_path != "-":
        from relfit.report.text import styled

        say(styled(result))
        for table in show:
            say(f"\n{result.ranks() if table == 'ranks' else result.pairs()}")
        say_written(Result=json_path)
    status = gate_status(result, gate, against, junit_path, quiet=json_path == "-")
    # The page comes last: should it fail, the verdict has been told.
    if html_path is not None:
        # The panels that show rows would read the files whole.
        rows = (inputs.reference, inputs.models) if settings["memory"] is None else None
        result.report(html_path, rows, items=found, command=command_line(), gate=answer)
        if json_path != "-":
            say_written(Report=html_path)
    return status


@click.command("pair", epilog="\b\nExample:\n  relfit pair human.npy new.npy old.npy")
@click.argument("reference")
@click.argument("a")
@click.argument("b")
@name_option
@json_option
@click.option(
    "--test",
    type=click.Choice(["z", "relpsi"]),
    default="z",
    show_default=True,
    help="relpsi: given which of the two looks better; less power.",
)
@input_options
@measuring_options
@worker_options
def pair_command(reference: str, a: str, b: str, names: Sequence[str], json_path: str | None, **settings: Any) -> int:
    """Test whether model A is significantly worse than model B.

    The hypothesis is fixed before the data are seen: "A is no worse than B".
    """
    named = named_models([a, b], names)
    check_inputs(reference, [a, b])
    check_outputs({"--json": _file(json_path), "--checkpoint": settings["checkpoint"]}, [reference, a, b])
    inputs = read_inputs(reference, named, settings)
    with computing(settings) as wanted:
        compared = compare_pair(
            inputs.reference, *inputs.models.values(), names=tuple(named), **measured_settings(wanted)
        )
    result = _noted(compared, inputs.notes)
    _write_json(result.to_json(), json_path)
    if json_path != "-":
        from relfit.report.text import pair_styled

        say(pair_styled(result))
        say_written(Result=json_path)
    return 0


def _noted(result: Any, notes: Sequence[str]) -> Any:
    """The result with what the command line did to the data said first."""
    return replace(result, warnings=(*notes, *result.warnings)) if notes else result


def _file(json_path: str | None) -> str | None:
    return None if json_path == "-" else json_path


def _write_json(text: str, json_path: str | None) -> None:
    if json_path == "-":
        say_utf8(text)
    elif json_path is not None:
        write_text_atomic(json_path, text + "\n")
