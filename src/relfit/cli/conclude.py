"""What every command that compares models does at the end: table, files, gate, page, exit status."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any

import click

from relfit.cli.outputs import check_outputs, say, say_written, shell_command, typed_command, write_json
from relfit.cli.sections import STARTED, opt, section
from relfit.results.comparison import Comparison
from relfit.results.serial import as_json
from relfit.util.errors import InputError
from relfit.util.files import write_text_atomic
from relfit.util.streams import complain
from relfit.util.text import listed

DONE, GATE_FAILED = 0, 1

SHOW = opt(
    "--show",
    "Also print the ranks that each model could have, or all pairs of models.",
    choices=["ranks", "pairs"],
    multiple=True,
)
gate_options = section(
    "Gate for continuous integration",
    opt(
        "--gate NAME",
        "Exit with status 1 if this model is worse than the best one (by more than --margin).",
    ),
    opt("--gate-against NAME", "With --gate, compare with this model instead of the best one.", dest="against"),
    opt("--junit PATH", "Write JUnit XML with a test case for each model.", dest="junit_path"),
    opt("--markdown PATH", "Write the answer and the table in Markdown, for a pull request.", dest="markdown_path"),
)


def check_files(params: Mapping[str, Any], json_path: str | None, html_path: str | None, **more: str | None) -> None:
    """Refuse files that `conclude` could not write; `more` are those of one command, such as checkpoint."""
    files = {"json": json_path, "html": html_path, "junit": params["junit_path"], "markdown": params["markdown_path"]}
    check_outputs({f"--{option}": path for option, path in {**files, **more}.items()})


def check_gate(gate: str | None, against: str | None, names: Collection[str]) -> None:
    """Refuse a gate on models that are not there."""
    if against is not None and gate is None:
        raise InputError("--gate-against: expected together with --gate NAME, the model that must not be worse")
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
    from relfit.report.display import styled
    from relfit.report.gate import gate_markdown, gate_record, gate_sentence, gate_words, judge, junit_xml

    gate, against = params["gate"], params["against"]
    junit_path, markdown_path = params["junit_path"], params["markdown_path"]
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
        seconds = time.monotonic() - click.get_current_context().meta[STARTED]
        write_text_atomic(
            junit_path, f'<?xml version="1.0" encoding="UTF-8"?>\n{junit_xml(result, verdict, seconds)}\n'
        )
    if markdown_path is not None:
        write_text_atomic(markdown_path, gate_markdown(result, verdict))
    if not quiet:
        say_written(JUnit=junit_path, Markdown=markdown_path)
    if verdict is not None and verdict.failed:
        complain(f"relfit: gate: {gate_words(result, verdict)}")
    elif verdict is not None and not quiet:
        say(gate_sentence(result, verdict))
    # The page comes last: if it fails, the verdict has been printed.
    if html_path is not None:
        command, title = shell_command(typed_command()), params["title"]
        result.report(html_path, data, items=items, command=command, gate=verdict, title=title)
        if not quiet:
            say_written(Report=html_path)
    return GATE_FAILED if verdict is not None and verdict.failed else DONE
