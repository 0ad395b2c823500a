"""What a command writes: standard output, files that are checked before the work begins, and the command itself."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from relfit.data.files import split_key
from relfit.util.errors import InputError
from relfit.util.files import note_read, was_read, write_text_atomic
from relfit.util.streams import complain, to_nowhere
from relfit.util.text import visible


def check_outputs(paths: Mapping[str, str | None]) -> None:
    """Refuse outputs that cannot be written, before the work is done rather than after it.

    `paths` maps an option such as "--json" to its file; --json may be "-", which is standard output. Whatever else was
    typed may name an input, which is not to be written over; files that only show when a folder is read are known to
    `write_bytes_atomic`.
    """
    context = click.get_current_context()
    inputs = [param for param in context.command.params if not paths.keys() & set(param.opts)]
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
            raise InputError(f"{option}: expected a file name, got '-'; only --json can go to standard output")
        target = os.path.realpath(path)
        problem = "it is an input too" if was_read(target) else taken.get(target) or _obstacle(Path(target))
        if problem:
            raise InputError(f"{option}: cannot write {path!r}: {problem}")
        taken[target] = f"it is the file for {option} too"
    page = paths.get("--html")
    if page is not None and Path(page).suffix.lower() not in (".html", ".htm"):
        better = Path(page).with_suffix(".html").name
        complain(
            f"relfit: warning: --html: {visible(page)} will hold HTML, which its ending does not show; "
            f"use {visible(better)}"
        )


def texts(value: Any) -> Iterator[str]:
    """Every text in a parameter, which may be repeated, or in several of them."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from texts(part)


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


def say_written(**files: str | None) -> None:
    """A line for each file that was written: `Report: report.html`."""
    for title, path in files.items():
        if path is not None:
            say(f"{title}: {visible(path)}")


def write_json(text: str, path: str | None) -> None:
    """Write the result for --json: to a file, or to standard output for "-"."""
    if path == "-":
        say_utf8(text)
    elif path is not None:
        write_text_atomic(path, text + "\n")


def typed_command() -> list[str] | None:
    """The arguments as they were typed, for results and reports to show; None where they are not known."""
    context = click.get_current_context(silent=True)
    if context is None or context.obj is None:
        return None
    return [valid_text(argument) for argument in context.obj]


def valid_text(argument: str) -> str:
    """The argument with "�" for bytes that are no text: a file name may have them, a result and a page may not."""
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
