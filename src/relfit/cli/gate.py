"""The release gate on the command line: --gate, --gate-against, --junit."""

from __future__ import annotations

import sys
from collections.abc import Collection
from typing import Any

import click

from relfit.cli.outputs import say
from relfit.cli.report import say_written
from relfit.report.gate import Gate, judge
from relfit.results.comparison import Comparison
from relfit.results.serial import as_json
from relfit.util.errors import InputError
from relfit.util.files import write_text_atomic

PASSED, FAILED = 0, 1


def gate_options(command: Any) -> Any:
    """The three options."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def check_gate(gate: str | None, against: str | None, names: Collection[str]) -> None:
    """Refuse names that are no models, before the work is done."""
    if against is not None and gate is None:
        raise InputError("--gate-against: expected together with --gate NAME, the model that must not be worse")
    if against is not None and against == gate:
        raise InputError(f"--gate-against: expected another model than --gate, got {against!r} for both")
    for option, name in (("--gate", gate), ("--gate-against", against)):
        if name is not None and name not in names:
            from relfit.util.text import listed

            raise InputError(f"{option}: expected the name of a model ({listed(list(names), 'or')}), got {name!r}")


def judged(result: Comparison, gate: str | None, against: str | None) -> Gate | None:
    """The gate's answer for the page and the result file; None without a gate.

    None too where the data give no answer, which `gate_status` says: the result file is written all the same.
    """
    try:
        return None if gate is None else judge(result, gate, against)
    except InputError:
        return None


def gated_json(result: Comparison, gate: Gate | None) -> str:
    """The result file, with the gate's answer in it where there is one."""
    from relfit.report.gate import gate_record

    return result.to_json() if gate is None else as_json({**result.to_dict(), "gate": gate_record(result, gate)})


def gate_status(result: Comparison, gate: str | None, against: str | None, junit: str | None, *, quiet: bool) -> int:
    """Write the JUnit file, say the gate's answer, and return the exit status."""
    from relfit.report.gate import gate_sentence, gate_words, junit_xml

    found = None if gate is None else judge(result, gate, against)
    if junit is not None:
        write_text_atomic(junit, f'<?xml version="1.0" encoding="UTF-8"?>\n{junit_xml(result, found)}\n')
        if not quiet:
            say_written(JUnit=junit)
    if found is None:
        return PASSED
    if found.failed:
        print(f"relfit: gate: {gate_words(result, found)}", file=sys.stderr)
        return FAILED
    if not quiet:
        say(gate_sentence(result, found))
    return PASSED


_OPTIONS = (
    click.option(
        "--gate",
        metavar="NAME",
        help="Exit with status 1 if this model is significantly worse than the best (by more than --margin).",
    ),
    click.option(
        "--gate-against", "against", metavar="NAME", help="With --gate: worse than this model instead of the best."
    ),
    click.option(
        "--junit", "junit_path", metavar="PATH", help="Write JUnit XML, a test case for each model; --gate can fail."
    ),
)
