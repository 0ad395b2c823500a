"""What every command that compares models does at the end: table, files, gate, page, exit status."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from relfit.cli.outputs import check_outputs, say, say_written, shell_command, typed_command, write_json
from relfit.cli.sections import STARTED, in_options, opt, section
from relfit.results.comparison import Comparison
from relfit.results.serial import Record, as_json
from relfit.util.errors import InputError
from relfit.util.files import write_text_atomic
from relfit.util.streams import complain
from relfit.util.text import listed

if TYPE_CHECKING:
    from relfit.report.gate import Gate

DONE = 0

SHOW = opt(
    "--show",
    "Also print the ranks that each model could have, or all pairs of models.",
    choices=["ranks", "pairs"],
    multiple=True,
)
GATE_REQUIRE = opt(
    "--gate-require",
    "With --gate, exit with status 3 unless the model is shown to be non-inferior, which needs a margin.",
    dest="require",
    choices=["non-inferior"],
)
gate_options = section(
    "Gate for continuous integration",
    opt(
        "--gate NAME",
        "Exit with status 1 if this model is worse than the best one (by more than --margin).",
    ),
    opt("--gate-against NAME", "With --gate, compare with this model instead of the best one.", dest="against"),
    GATE_REQUIRE,
    opt("--junit PATH", "Write JUnit XML with a test case for each model.", dest="junit_path"),
    opt("--markdown PATH", "Write the answer and the table in Markdown, for a pull request.", dest="markdown_path"),
)


def check_files(params: Mapping[str, Any], json_path: str | None, html_path: str | None, **more: str | None) -> None:
    """Refuse files that `conclude` could not write; `more` are those of one command, such as checkpoint."""
    files = {"json": json_path, "html": html_path, "junit": params["junit_path"], "markdown": params["markdown_path"]}
    check_outputs({f"--{option}": path for option, path in {**files, **more}.items()})


def check_gate(params: Mapping[str, Any], names: Collection[str]) -> None:
    """Refuse a gate on models that are not there."""
    gate = params["gate"]
    against = params["against"]
    for option, value in (("--gate-against", against), ("--gate-require", params["require"])):
        if value is not None and gate is None:
            raise InputError(f"{option}: expected together with --gate NAME, the model that must not be worse")
    if against is not None and against == gate:
        raise InputError(f"--gate-against: expected another model than --gate, got {against!r} for both")
    for option, name in (("--gate", gate), ("--gate-against", against)):
        if name is not None and name not in names:
            raise InputError(f"{option}: expected the name of a model ({listed(list(names), 'or')}), got {name!r}")


def conclude(
    result: Comparison,
    params: Mapping[str, Any],
    json_path: str | None,
    html_path: str | None,
    *,
    data: Any = None,
    items: Any = None,
) -> int:
    """Print and write what was asked for, and return the exit status; `data` and `items` are for the page."""
    from relfit.report.gate import ask, gate_markdown, junit_xml
    from relfit.results.text import styled

    running = click.get_current_context().command
    warnings = worded(result.warnings, running)
    doubts = worded(result.doubts, running)
    leading = worded(result.leading, running)
    result = replace(result, warnings=warnings, doubts=doubts, leading=leading)
    gate = None
    if params["gate"] is not None:
        gate = ask(result, params["gate"], params["against"], require=params["require"])
    junit_path, markdown_path = params["junit_path"], params["markdown_path"]
    quiet = write_result(result, gate, json_path)
    if not quiet:
        say(styled(result))
        for table in params["show"]:
            say(f"\n{result.ranks() if table == 'ranks' else result.pairs()}")
        say_written(Result=json_path)
    if junit_path is not None:
        seconds = time.monotonic() - click.get_current_context().meta[STARTED]
        xml = f'<?xml version="1.0" encoding="UTF-8"?>\n{junit_xml(result, gate, seconds)}\n'
        write_text_atomic(junit_path, xml)
    if markdown_path is not None:
        write_text_atomic(markdown_path, gate_markdown(result, gate))
    if not quiet:
        say_written(JUnit=junit_path, Markdown=markdown_path)
    say_gate(gate, quiet)
    # The page comes last: if it fails, the verdict has been printed.
    if html_path is not None:
        command, title = shell_command(typed_command()), params["title"]
        result.report(html_path, data, items=items, command=command, gate=gate, title=title)
        if not quiet:
            say_written(Report=html_path)
    return gate_status(gate)


def worded(notes: Iterable[str], command: click.Command | None = None) -> tuple[str, ...]:
    """Notes of the library in the words of the command line: those of this command, or of the one that runs."""
    command = click.get_current_context().command if command is None else command
    return tuple(in_options(note, command) for note in notes)


def write_result(result: Record, gate: Gate | None, json_path: str | None) -> bool:
    """Write the result with the gate's answer for --json; True if that went to standard output."""
    record = {} if gate is None else {"gate": gate.record()}
    write_json(as_json({**result.to_dict(), **record}), json_path)
    return json_path == "-"


def say_gate(gate: Gate | None, quiet: bool) -> None:
    """Print the gate's sentence, one that fails to standard error."""
    if gate is None or gate.verdict == "error":  # an error is raised once everything has been written
        return
    if gate.failed:
        answer = gate.sentence.removeprefix("Gate failed: ").removeprefix("Gate ").removesuffix(".")
        complain(f"relfit: gate: {answer}")
    elif not quiet:
        say(gate.sentence)


def gate_status(gate: Gate | None) -> int:
    """The exit status; where the gate has no answer an error, which is raised last."""
    if gate is not None and gate.verdict == "error":
        raise InputError(gate.words)
    return DONE if gate is None else gate.status
