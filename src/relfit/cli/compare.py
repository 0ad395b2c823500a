"""The commands `relfit compare` and `relfit pair`."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import click
import numpy as np

from relfit.api import compare, compare_pair
from relfit.cli import options
from relfit.cli.inputs import check_inputs, named_models, read_inputs
from relfit.cli.outputs import check_outputs, say, say_written, shell_command, typed_command, write_json
from relfit.cli.report import ITEMS, REFERENCE, read_items, without_outputs
from relfit.cli.sections import HTML, JSON, SectionedCommand, opt, section
from relfit.cli.workers import running
from relfit.data.files import SUFFIXES
from relfit.results.comparison import Comparison
from relfit.results.serial import as_json
from relfit.util.errors import InputError
from relfit.util.files import write_text_atomic
from relfit.util.text import listed

DONE, GATE_FAILED = 0, 1
SHOW = opt(
    "--show",
    "Also print the ranks that each model could have, or all pairs of models.",
    choices=["ranks", "pairs"],
    multiple=True,
)
GATE = section(
    "Gate for continuous integration",
    opt(
        "--gate NAME",
        "Exit with status 1 if this model is significantly worse than the best one (by more than --margin).",
    ),
    opt("--gate-against NAME", "With --gate, compare with this model instead of the best one.", dest="against"),
    opt("--junit PATH", "Write JUnit XML with a test case for each model.", dest="junit_path"),
)


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
    SHOW,
    *ITEMS,
)
@section("Test", options.TEST, options.ALPHA, options.MARGIN, options.CORRECTION, options.SELECT_FRACTION)
@GATE
@options.data_options
def compare_command(
    reference: str, models: Sequence[str], json_path: str | None, html_path: str | None, **params: Any
) -> int:
    """Decide which MODELs are significantly worse than the best one.

    REFERENCE holds the data, each MODEL a sample of that model, one row per item: SUFFIXES; file.npz:name is one of
    several arrays.

    Densities, samplers and other Python objects are given as module:object or file.py:object. THIS RUNS THAT CODE:
    name only files you trust. A density as REFERENCE is a target that samples are compared with.
    """
    from relfit.report.examples import check_counts

    if len(models) < 2:
        raise InputError(f"MODEL: expected at least two files, got {len(models)}")
    named = named_models(models, params["name"])
    check_inputs(reference, models)
    check_gate(params["gate"], params["against"], named)
    written = {"--json": json_path, "--html": html_path, "--junit": params["junit_path"]}
    outputs = {**written, "--checkpoint": params["checkpoint"]}
    check_outputs(outputs, [reference, *models])
    _check_items(html_path, params)
    items = read_items(params["items"], params["field"], {REFERENCE: reference, **named})
    test = options.select_test(params["test"], params["select_fraction"])
    inputs = read_inputs(reference, named, params)
    if items is not None:
        samples = {REFERENCE: inputs.reference, **inputs.models}
        check_counts(items, {name: len(rows) for name, rows in samples.items() if isinstance(rows, np.ndarray)})
    with running(params) as executor:
        settings = {"test": test, "correction": params["correction"], **options.comparing_options(params, executor)}
        result = compare(inputs.reference, inputs.models, groups=inputs.groups, **settings)
    result = replace(result, warnings=(*inputs.notes, *result.warnings))
    # The panels that show rows would read the files whole.
    rows = (inputs.reference, inputs.models) if params["memory"] is None else None
    return finish(result, params, json_path, html_path, rows, items)


compare_command.help = str(compare_command.help).replace("SUFFIXES", listed(SUFFIXES, "or", most=99, quote=str))


def finish(
    result: Comparison,
    params: Mapping[str, Any],
    json_path: str | None,
    html_path: str | None,
    rows: tuple[Any, Mapping[str, Any]] | None = None,
    items: Mapping[str, Any] | None = None,
) -> int:
    """Write and print a result, judge the gated model, and return the exit status.

    `rows` and `items` are what the page shows of the data; `params` has the options of `GATE` and --show.
    """
    from relfit.report.gate import gate_record, gate_sentence, gate_words, judge, junit_xml
    from relfit.report.text import styled

    gate, against, junit_path = params["gate"], params["against"], params["junit_path"]
    command = typed_command()
    recorded = None if command is None else tuple(without_outputs(command))
    result = replace(result, command=recorded)
    verdict, undecided = None, None
    try:
        verdict = None if gate is None else judge(result, gate, against)
    except InputError as error:
        # The data give no answer: it is raised after the result has been written.
        undecided = error
    record = {} if verdict is None else {"gate": gate_record(result, verdict)}
    write_json(as_json({**result.to_dict(), **record}), json_path)
    quiet = json_path == "-"
    if not quiet:
        say(styled(result))
        for table in params["show"]:
            say(f"\n{result.ranks() if table == 'ranks' else result.pairs()}")
        say_written(Result=json_path)
    if undecided is not None:
        raise undecided
    if junit_path is not None:
        write_text_atomic(junit_path, f'<?xml version="1.0" encoding="UTF-8"?>\n{junit_xml(result, verdict)}\n')
    if not quiet:
        say_written(JUnit=junit_path)
    if verdict is not None and verdict.failed:
        print(f"relfit: gate: {gate_words(result, verdict)}", file=sys.stderr)
    elif verdict is not None and not quiet:
        say(gate_sentence(result, verdict))
    # The page comes last: if it fails, the verdict has been printed.
    if html_path is not None:
        result.report(html_path, rows, items=items, command=shell_command(command), gate=verdict)
        if not quiet:
            say_written(Report=html_path)
    return GATE_FAILED if verdict is not None and verdict.failed else DONE


@click.command("pair", cls=SectionedCommand, epilog="\b\nExample:\n  relfit pair human.npy new.npy old.npy")
@click.argument("reference")
@click.argument("a")
@click.argument("b")
@section("Output", JSON)
@section(
    "Test",
    opt(
        "--test",
        "z is the plain test of the pair; relpsi also conditions on which of the two looks better.",
        choices=["z", "relpsi"],
        default="z",
    ),
    options.ALPHA,
    options.MARGIN,
)
@options.data_options
def pair_command(reference: str, a: str, b: str, json_path: str | None, **params: Any) -> int:
    """Test whether model A is significantly worse than model B.

    The hypothesis is fixed before the data are seen: "A is no worse than B".
    """
    from relfit.report.text import pair_styled

    named = named_models([a, b], params["name"])
    check_inputs(reference, [a, b])
    check_outputs({"--json": json_path, "--checkpoint": params["checkpoint"]}, [reference, a, b])
    inputs = read_inputs(reference, named, params)
    with running(params) as executor:
        settings = {"test": params["test"], "groups": inputs.groups, **options.comparing_options(params, executor)}
        result = compare_pair(inputs.reference, *inputs.models.values(), names=tuple(named), **settings)
    result = replace(result, warnings=(*inputs.notes, *result.warnings))
    write_json(result.to_json(), json_path)
    if json_path != "-":
        say(pair_styled(result))
        say_written(Result=json_path)
    return DONE


def check_gate(gate: str | None, against: str | None, names: Collection[str]) -> None:
    """Refuse a gate for a model that is not compared."""
    if against is not None and gate is None:
        raise InputError("--gate-against: expected together with --gate NAME, the model that must not be worse")
    if against is not None and against == gate:
        raise InputError(f"--gate-against: expected another model than --gate, got {against!r} for both")
    for option, name in (("--gate", gate), ("--gate-against", against)):
        if name is not None and name not in names:
            raise InputError(f"{option}: expected the name of a model ({listed(list(names), 'or')}), got {name!r}")


def _check_items(html_path: str | None, params: dict[str, Any]) -> None:
    """Refuse --items where the rows behind them are not shown, or not known."""
    if params["items"] and (html_path is None or params["rows"] is not None):
        raise InputError("--items: expected with --html and without --rows, which would mix up rows and items")
    if params["items"] and params["memory"] is not None:
        raise InputError("--items: expected without --memory, which keeps the rows out of the report")
