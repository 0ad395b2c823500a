"""The command `relfit report`: a finished result once more, as text, page, table or paragraph."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from relfit.cli.inputs import named_models, read_inputs
from relfit.cli.options import HTML, SectionedCommand, opt, section
from relfit.cli.outputs import check_outputs, say, say_utf8, say_written
from relfit.compute.memory import require_room
from relfit.data.files import split_key
from relfit.data.files.base import check_plain
from relfit.features.sources import list_items
from relfit.results.comparison import Comparison
from relfit.util.errors import InputError

REFERENCE = "reference"
FORMATS = ("text", "latex", "markdown", "csv", "methods", "bibtex")
ITEMS = (
    opt(
        "--items",
        metavar="NAME=SOURCE",
        multiple=True,
        help="Show images or texts in the report: those behind the rows of a model, or of reference; once for each.",
    ),
    opt("--field", metavar="FIELD", help="With --items, the field of .jsonl files that holds the text."),
)


@click.command(
    "report",
    cls=SectionedCommand,
    epilog="\b\nExamples:\n"
    "  relfit report result.json --html report.html\n"
    "  relfit report result.json human.npy gpt.npy claude.npy --html report.html\n"
    "  relfit report result.json --format latex > table.tex",
)
@click.argument("result", metavar="RESULT.json")
@click.argument("data", nargs=-1, metavar="[REFERENCE MODEL...]")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="text",
    show_default=True,
    help="What to print: the table, or a methods paragraph with its references.",
)
@click.option("--columns", metavar="LIST", help="Columns of every data file, as in relfit compare.")
@section("Output", HTML, *ITEMS)
def report_command(
    result: str,
    data: Sequence[str],
    html_path: str | None,
    form: str,
    columns: str | None,
    items: Sequence[str],
    field: str | None,
) -> int:
    """Show a result that relfit compare --json wrote.

    With the data files too, in the order they were compared in, the page shows where models and data differ.
    """
    check_outputs({"--html": html_path}, [result, *data])
    comparison = read_result(result)
    given = _data(comparison, data, columns)
    if html_path is None and (data or items):
        raise InputError("REFERENCE: data files and --items are for the page; give --html PATH too")
    if html_path is not None:
        found = read_items(items, field, dict(zip((REFERENCE, *comparison.names), data, strict=False)))
        comparison.report(html_path, given, items=found, command=_own_command(comparison))
    _print(comparison, form, said=html_path is None or form != "text")
    if form == "text":
        say_written(Report=html_path)
    return 0


def read_result(path: str) -> Comparison:
    """The comparison in a file."""
    check_plain(Path(path))
    try:
        # Parsed, a text takes about ten times its length.
        require_room(path, 10 * Path(path).stat().st_size)
        return Comparison.from_json(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or 'cannot be read'}") from None
    except (InputError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: expected a result written by relfit compare --json ({error})") from None


def read_items(pairs: Sequence[str], field: str | None, files: Mapping[str, str]) -> dict[str, list[Any]] | None:
    """NAME=SOURCE pairs as one image file or text per row; `files` says where each sample's rows came from.

    Where `relfit features` left items out, the list of names beside the rows says which are there.
    """
    if not pairs:
        return None
    found = {}
    for pair in pairs:
        name, separator, source = pair.partition("=")
        if not separator or name not in files:
            raise InputError(f"--items: expected NAME=SOURCE with the name of a model or {REFERENCE!r}, got {pair!r}")
        found[name] = _listed(source, field, split_key(files[name])[0])
    return found


def check_item_counts(items: Mapping[str, Sequence[Any]], reference: Any, models: Mapping[str, Any]) -> None:
    """Refuse another number of items than a sample has rows, before the work is done."""
    from relfit.report.examples import check_counts

    given = {REFERENCE: reference, **models}
    check_counts(items, {name: len(rows) for name, rows in given.items() if isinstance(rows, np.ndarray)})


def command_line() -> str | None:
    """The command as it was typed, for the report to show; None where it is not known."""
    context = click.get_current_context(silent=True)
    return None if context is None or context.obj is None else _joined(context.obj)


def _own_command(comparison: Comparison) -> str | None:
    """The command that made a result, which is not the one that shows it."""
    return None if comparison.command is None else _joined(comparison.command)


def _joined(args: Sequence[str]) -> str:
    # A file name need not be valid text; a page must be.
    return shlex.join(["relfit", *args]).encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _listed(source: str, field: str | None, rows: Path) -> list[Any]:
    folder = Path(source).is_dir()
    images = folder and not any(Path(source).rglob("*.txt"))
    items = {item.name: item.content for item in list_items(source, "images" if images else "text", field=field)}
    names = rows.with_name(f"{rows.stem}.names.txt")
    if names.is_file():
        kept = names.read_text(encoding="utf-8").splitlines()
        if set(kept) <= set(items):
            return [items[name] for name in kept]
    return list(items.values())


def _data(comparison: Comparison, files: Sequence[str], columns: str | None) -> tuple[Any, Any] | None:
    if not files:
        return None
    reference, *models = files
    if len(models) != len(comparison.names):
        raise InputError(f"MODEL: expected {len(comparison.names)} files, one for each model, got {len(models)}")
    params = {"columns": columns, "rows": None, "verbose": False, "progress": False, "estimator": "complete"}
    inputs = read_inputs(reference, named_models(models, comparison.names), params)
    return inputs.reference, inputs.models


def _print(comparison: Comparison, form: str, *, said: bool) -> None:
    if form == "text":
        from relfit.report.text import styled

        if said:
            say(styled(comparison))
        return
    made: dict[str, Callable[[], str]] = {
        "latex": comparison.to_latex,
        "markdown": comparison.to_markdown,
        "csv": lambda: comparison.to_csv().rstrip("\n"),
        "methods": comparison.methods_text,
        "bibtex": lambda: comparison.methods_text(cite="bibtex"),
    }
    say_utf8(made[form]())
