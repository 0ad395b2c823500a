"""`relfit compare` and `relfit pair`."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import click

from relfit.api import compare, compare_pair
from relfit.cli.inputs import check_inputs, input_options, named_models, read_inputs
from relfit.cli.options import (
    ALPHA,
    CORRECTION,
    HTML,
    JSON,
    MARGIN,
    NAMES,
    PROGRESS,
    SEED,
    SELECT_FRACTION,
    TEST,
    SectionedCommand,
    comparing_options,
    compute_options,
    estimator_options,
    measure_options,
    opt,
    section,
    test_of,
)
from relfit.cli.outputs import check_outputs, say, say_utf8, say_written
from relfit.cli.report import ITEMS, REFERENCE, check_item_counts, command_line, read_items
from relfit.cli.rerun import recorded
from relfit.cli.workers import running
from relfit.report.gate import Gate, gate_record, gate_sentence, gate_words, judge, junit_xml
from relfit.results.comparison import Comparison
from relfit.results.serial import as_json
from relfit.util.errors import InputError
from relfit.util.files import write_text_atomic
from relfit.util.text import listed

DONE, GATE_FAILED = 0, 1


@click.command(
    "compare",
    cls=SectionedCommand,
    epilog="\b\nExamples:\n"
    "  relfit compare human.npy gpt.npy claude.npy llama.npy --html report.html\n"
    "  relfit compare test.csv a/out.csv b/out.csv --name old --name new --gate new",
)
@click.argument("reference")
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@section(
    "Output",
    HTML,
    JSON,
    opt("--show", type=click.Choice(["ranks", "pairs"]), multiple=True, help="Print ranks too, or who beats whom."),
    opt("--junit", "junit_path", metavar="PATH", help="Write JUnit XML, with a test case for each model."),
    *ITEMS,
)
@section(
    "Test",
    TEST,
    ALPHA,
    MARGIN,
    CORRECTION,
    SELECT_FRACTION,
    opt(
        "--gate",
        metavar="NAME",
        help="Exit with status 1 if this model is significantly worse than the best (by more than --margin).",
    ),
    opt("--gate-against", "against", metavar="NAME", help="With --gate, compare with this model instead of the best."),
    SEED,
)
@input_options(NAMES)
@measure_options
@estimator_options
@compute_options
@section("Progress", PROGRESS)
def compare_command(
    reference: str,
    models: Sequence[str],
    names: Sequence[str],
    test: str,
    select_fraction: float | None,
    correction: str | None,
    json_path: str | None,
    html_path: str | None,
    junit_path: str | None,
    gate: str | None,
    against: str | None,
    items: Sequence[str],
    field: str | None,
    show: Sequence[str],
    **params: Any,
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
    _check_gate(gate, against, named)
    outputs = {"--json": None if json_path == "-" else json_path, "--html": html_path, "--junit": junit_path}
    check_outputs({**outputs, "--checkpoint": params["checkpoint"]}, [reference, *models])
    if items and (html_path is None or params["rows"] is not None):
        raise InputError("--items: expected with --html and without --rows, which would mix up rows and items")
    if items and params["memory"] is not None:
        raise InputError("--items: expected without --memory, which keeps the rows out of the report")
    shown_items = read_items(items, field, {REFERENCE: reference, **named})
    chosen = test_of(test, select_fraction)
    inputs = read_inputs(reference, named, params)
    if shown_items is not None:
        check_item_counts(shown_items, inputs.reference, inputs.models)
    with running(params) as executor:
        options = comparing_options(params, executor)
        compared = compare(inputs.reference, inputs.models, test=chosen, correction=correction, **options)
    result: Comparison = recorded(_noted(compared, inputs.notes))
    answer = _judged(result, gate, against)
    record = {} if answer is None else {"gate": gate_record(result, answer)}
    _write_json(as_json({**result.to_dict(), **record}), json_path)
    quiet = json_path == "-"
    if not quiet:
        from relfit.report.text import styled

        say(styled(result))
        for table in show:
            say(f"\n{result.ranks() if table == 'ranks' else result.pairs()}")
        say_written(Result=json_path)
    status = _gate_status(result, gate, against, junit_path, quiet=quiet)
    # The page comes last: if it fails, the verdict has been printed.
    if html_path is not None:
        # The panels that show rows would read the files whole.
        rows = (inputs.reference, inputs.models) if params["memory"] is None else None
        result.report(html_path, rows, items=shown_items, command=command_line(), gate=answer)
        if not quiet:
            say_written(Report=html_path)
    return status


@click.command("pair", cls=SectionedCommand, epilog="\b\nExample:\n  relfit pair human.npy new.npy old.npy")
@click.argument("reference")
@click.argument("a")
@click.argument("b")
@section("Output", JSON)
@section(
    "Test",
    opt(
        "--test",
        type=click.Choice(["z", "relpsi"]),
        default="z",
        show_default=True,
        help="z is the plain test of the pair; relpsi also conditions on which of the two looks better.",
    ),
    ALPHA,
    MARGIN,
    SEED,
)
@input_options(NAMES)
@measure_options
@estimator_options
@compute_options
@section("Progress", PROGRESS)
def pair_command(
    reference: str, a: str, b: str, names: Sequence[str], test: str, json_path: str | None, **params: Any
) -> int:
    """Test whether model A is significantly worse than model B.

    The hypothesis is fixed before the data are seen: "A is no worse than B".
    """
    named = named_models([a, b], names)
    check_inputs(reference, [a, b])
    json_file = None if json_path == "-" else json_path
    check_outputs({"--json": json_file, "--checkpoint": params["checkpoint"]}, [reference, a, b])
    inputs = read_inputs(reference, named, params)
    with running(params) as executor:
        options = comparing_options(params, executor)
        compared = compare_pair(inputs.reference, *inputs.models.values(), names=tuple(named), test=test, **options)
    result = _noted(compared, inputs.notes)
    _write_json(result.to_json(), json_path)
    if json_path != "-":
        from relfit.report.text import pair_styled

        say(pair_styled(result))
        say_written(Result=json_path)
    return DONE


def _check_gate(gate: str | None, against: str | None, names: Collection[str]) -> None:
    """Refuse names that are not those of models, before the work is done."""
    if against is not None and gate is None:
        raise InputError("--gate-against: expected together with --gate NAME, the model that must not be worse")
    if against is not None and against == gate:
        raise InputError(f"--gate-against: expected another model than --gate, got {against!r} for both")
    for option, name in (("--gate", gate), ("--gate-against", against)):
        if name is not None and name not in names:
            raise InputError(f"{option}: expected the name of a model ({listed(list(names), 'or')}), got {name!r}")


def _judged(result: Comparison, gate: str | None, against: str | None) -> Gate | None:
    """The gate's answer for the page and the result file; None without a gate.

    Also None where the data give no answer, which `_gate_status` says: the result file is written all the same.
    """
    try:
        return None if gate is None else judge(result, gate, against)
    except InputError:
        return None


def _gate_status(result: Comparison, gate: str | None, against: str | None, junit: str | None, *, quiet: bool) -> int:
    """Write the JUnit file, print the gate's answer, and return the exit status."""
    answer = None if gate is None else judge(result, gate, against)
    if junit is not None:
        write_text_atomic(junit, f'<?xml version="1.0" encoding="UTF-8"?>\n{junit_xml(result, answer)}\n')
        if not quiet:
            say_written(JUnit=junit)
    if answer is None:
        return DONE
    if answer.failed:
        print(f"relfit: gate: {gate_words(result, answer)}", file=sys.stderr)
        return GATE_FAILED
    if not quiet:
        say(gate_sentence(result, answer))
    return DONE


def _noted(result: Any, notes: Sequence[str]) -> Any:
    """The result with what the command line did to the data said first."""
    return replace(result, warnings=(*notes, *result.warnings)) if notes else result


def _write_json(text: str, json_path: str | None) -> None:
    if json_path == "-":
        say_utf8(text)
    elif json_path is not None:
        write_text_atomic(json_path, text + "\n")
