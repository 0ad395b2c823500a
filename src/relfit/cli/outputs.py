"""What a command writes: files that are checked before the work begins, and the ending that
all commands share.
"""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.text import Text

from relfit.cli.sections import STARTED, in_options, opt, section
from relfit.data.files import split_key
from relfit.util.errors import InputError, complain, to_nowhere
from relfit.util.files import note_read, was_read, write_text_atomic
from relfit.util.text import listed, visible

if TYPE_CHECKING:
    from relfit.report.gate import Gate
    from relfit.results.comparison import Comparison
    from relfit.results.serial import Record

DONE = 0
# The parameters that name files which are written, and their options.
_FILES = {
    "state": "--state",
    "json_path": "--json",
    "plot_path": "--plot",
    "html_path": "--html",
    "junit_path": "--junit",
    "markdown_path": "--markdown",
    "checkpoint": "--checkpoint",
    "docs": "--docs",
    "output": "--output",
    "output_names": "names of --output",
}
# Options that say what is written or shown, or where the work is done, and that change no
# number. A checkpoint is one of them, because it would answer with the sums of the first run,
# and a file must not say which cluster to call.
_FLAGS = ("--progress", "--no-progress", "--verbose", "--quiet")
_WITH_VALUE = (
    *(
        "--json",
        "--html",
        "--junit",
        "--markdown",
        "--gate",
        "--gate-against",
        "--gate-require",
    ),
    *("--items", "--field", "--show", "--title", "--checkpoint", "--workers", "--cluster"),
)
SHOW = opt(
    "--show",
    "Also print confidence sets for the ranks, tests of all pairs of models, or letters: models "
    "with a common letter are not separated.",
    choices=["ranks", "pairs", "letters"],
    multiple=True,
)
GATE_REQUIRE = opt(
    "--gate-require",
    "With --gate, exit with status 3 unless the model is shown to be non-inferior, which "
    "needs a margin.",
    dest="require",
    choices=["non-inferior"],
)
gate_options = section(
    "Gate for continuous integration",
    opt(
        "--gate NAME",
        "Exit with status 1 if this model is significantly worse than the best one (by more than "
        "--margin).",
    ),
    opt(
        "--gate-against NAME",
        "With --gate, compare with this model instead of the best one.",
        dest="against",
    ),
    GATE_REQUIRE,
    opt("--junit PATH", "Write JUnit XML with a test case for each model.", dest="junit_path"),
    opt(
        "--markdown PATH",
        "Write the answer and the table in Markdown, for a pull request.",
        dest="markdown_path",
    ),
)


def check_outputs(params: Mapping[str, Any]) -> None:
    """Refuse outputs that cannot be written, before the work is done rather than after it.

    --json may be "-", which is standard output. Whatever else was typed may name an input,
    which is not to be written over; files that only show when a folder is read are known to
    `write_bytes_atomic`.
    """
    paths = {option: params.get(name) for name, option in _FILES.items()}
    context = click.get_current_context()
    inputs = [param for param in context.command.params if param.name not in _FILES]
    for text in texts([context.params.get(param.name or "") for param in inputs]):
        # A file, file.npz:array, file.py:object, NAME=file.
        for part in (text, split_key(text)[0], text.rpartition(":")[0], text.partition("=")[2]):
            if os.path.isfile(part):  # noqa: PTH113  (Path.is_file raises for some texts)
                note_read(part)
    taken: dict[str, str] = {}
    for option, path in paths.items():
        if path is None or (option, path) == ("--json", "-"):
            continue
        if path == "-":
            raise InputError(
                f"{option}: expected a file name, got '-'; only --json can go to "
                f"standard output"
            )
        target = os.path.realpath(path)
        problem = (
            "it is an input too"
            if was_read(target)
            else taken.get(target) or _obstacle(Path(target))
        )
        if problem:
            raise InputError(f"{option}: cannot write {path!r}: {problem}")
        taken[target] = f"it is the file for {option} too"
    page = paths["--html"]
    if page is not None and Path(page).suffix.lower() not in (".html", ".htm"):
        better = Path(page).with_suffix(".html").name
        complain(
            f"relfit: warning: --html: {visible(page)} will hold HTML, which its ending does "
            f"not show; "
            f"use {visible(better)}"
        )


def check_gate(params: Mapping[str, Any], names: Collection[str]) -> None:
    """Refuse a gate on models that are not there."""
    gate = params["gate"]
    against = params["against"]
    for option, value in (("--gate-against", against), ("--gate-require", params["require"])):
        if value is not None and gate is None:
            raise InputError(
                f"{option}: expected together with --gate NAME, the model that "
                f"must not be worse"
            )
    if against is not None and against == gate:
        raise InputError(
            f"--gate-against: expected another model than --gate, got {against!r} for both"
        )
    for option, name in (("--gate", gate), ("--gate-against", against)):
        if name is not None and name not in names:
            raise InputError(
                f"{option}: expected the name of a model "
                f"({listed(list(names), 'or')}), got {name!r}"
            )


def texts(value: Any) -> Iterator[str]:
    """Every text in a parameter, which may be repeated, or in several of them."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from texts(part)


def terminal_width() -> int | None:
    """The columns of the terminal; None where the output is a file or a pipe."""
    console = Console(file=sys.stdout)
    return console.width if console.is_terminal else None


def say(message: str | Text) -> None:
    """Print, in colour on terminals that show it. A closed pipe is not an error."""
    console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)
    if isinstance(message, Text) and console.is_terminal:
        with console.capture() as captured:
            console.print(message, soft_wrap=True)
        _write(captured.get())
    else:
        _write(f"{message}\n")


def say_utf8(message: str) -> None:
    """Print text for programs: UTF-8 whatever the terminal's encoding is."""
    _write(f"{message}\n".encode())


def typed_command() -> list[str]:
    """The arguments as they were typed, for results and reports to show."""
    return [valid_text(argument) for argument in click.get_current_context().obj]


def recorded_command() -> tuple[str, ...]:
    """The command as a result records it."""
    return tuple(without_outputs(typed_command()))


def without_outputs(arguments: Sequence[str]) -> list[str]:
    """The command as typed, without what it writes and where the work is done."""
    kept: list[str] = []
    skip = False
    for position, argument in enumerate(arguments):
        if argument == "--":
            return [*kept, *arguments[position:]]
        name, equals, _ = argument.partition("=")
        if skip:
            skip = False
        elif name in _WITH_VALUE:
            skip = not equals
        elif name not in _FLAGS:
            kept.append(argument)
    return kept


def valid_text(argument: str) -> str:
    """The argument with "�" for bytes that are no text: a file name may have them, a result
    and a page may not.
    """
    return argument.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def shell_command(arguments: Sequence[str] | None) -> str | None:
    """The command as one line for a shell."""
    return None if arguments is None else shlex.join(["relfit", *arguments])


def _write(data: str | bytes) -> None:
    try:
        click.echo(data, nl=False, color=True)
        sys.stdout.flush()
    except OSError as error:
        to_nowhere(sys.stdout)
        if not isinstance(error, BrokenPipeError):
            raise InputError(f"standard output: cannot be written: {error.strerror}") from None


def _obstacle(target: Path) -> str | None:
    """Why this file cannot be written, or None."""
    try:
        if target.is_dir():
            return "it is a folder"
        if not target.parent.is_dir():
            return f"the folder {os.fspath(target.parent)!r} does not exist"
        # Replacing a device such as /dev/null with a file would harm more than this run.
        if target.exists() and not (target.is_file() and os.access(target, os.W_OK)):
            return "it is not an ordinary file that can be written"
        with tempfile.TemporaryFile(dir=target.parent):
            return None
    except OSError as error:
        return error.strerror or str(error)


# ── the end of a command ──────────────────────────────────────────────────────────────────────


def conclude(
    result: Comparison, params: Mapping[str, Any], *, data: Any = None, items: Any = None
) -> int:
    """The end of a command with a comparison; the page shows `data` and `items`."""
    from relfit.report.gate import ask, gate_markdown, junit_xml

    if params["html_path"] is not None:
        from relfit.report.checks import with_other_bandwidths

        # The page says which verdicts depend on the bandwidth: so do the terminal and the gate.
        result, data = with_other_bandwidths(result, data)
    result = result.changed(
        warnings=worded(result.warnings),
        doubts=worded(result.doubts),
        leading=worded(result.leading),
    )
    gate = None
    if params["gate"] is not None:
        gate = ask(result, params["gate"], params["against"], require=params["require"])

    def junit() -> str:
        seconds = time.monotonic() - click.get_current_context().meta[STARTED]
        return f'<?xml version="1.0" encoding="UTF-8"?>\n{junit_xml(result, gate, seconds)}\n'

    def page(path: str) -> None:
        command = shell_command(typed_command())
        result.report(
            path, data, items=items, command=command, gate=gate, title=params["title"]
        )

    return write_outputs(
        result,
        params,
        gate,
        shown=[f"\n{getattr(result, table)()}" for table in params["show"]],
        files={"JUnit": junit, "Markdown": lambda: gate_markdown(result, gate)},
        page=page,
    )


def write_outputs(
    result: Record,
    params: Mapping[str, Any],
    gate: Gate | None = None,
    *,
    shown: Iterable[str] = (),
    files: Mapping[str, Callable[[], str]] | None = None,
    page: Callable[[str], None] | None = None,
) -> int:
    """The end of every command with a result: table, files, gate, page, exit status.

    `shown` is printed below the table. `files` are the texts of more files, and `page`
    writes the page to a path.
    """
    from relfit.results.serial import as_json
    from relfit.results.text import styled

    json_path = params["json_path"]
    quiet = json_path == "-"
    record = {} if gate is None else {"gate": gate.record()}
    text = as_json({**result.to_dict(), **record})

    def told(message: str | Text) -> None:
        if not quiet:
            say(message)

    if quiet:
        say_utf8(text)
    elif json_path is not None:
        write_text_atomic(json_path, f"{text}\n")
    told(styled(result, terminal_width()))
    for each in shown:
        told(each)
    if json_path is not None:
        told(f"Result: {visible(json_path)}")
    for title, text_of in (files or {}).items():
        path = params[f"{title.lower()}_path"]
        if path is not None:
            write_text_atomic(path, text_of())
            told(f"{title}: {visible(path)}")
    # A gate without an answer is an error, raised once everything has been written.
    if gate is not None and gate.verdict != "error":
        if gate.failed:
            answer = gate.sentence.removeprefix("Gate failed: ").removeprefix("Gate ")
            complain(f"relfit: gate: {answer.removesuffix('.')}")
        else:
            told(gate.sentence)
    # The page comes last: if it fails, the verdict has been printed.
    html_path = params.get("html_path")
    if page is not None and html_path is not None:
        page(html_path)
        told(f"Report: {visible(html_path)}")
    if gate is None:
        return DONE
    if gate.verdict == "error":
        raise InputError(gate.words)
    return gate.status


def worded(notes: Iterable[str]) -> tuple[str, ...]:
    """Notes of the library in the words of the running command."""
    command = click.get_current_context().command
    return tuple(in_options(note, command) for note in notes)
