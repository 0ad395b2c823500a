"""The command `relfit report`: a finished result as a table, a page or a paragraph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from relfit.cli.inputs import named_models, read_inputs
from relfit.cli.outputs import check_outputs, say, say_utf8, say_written, shell_command
from relfit.cli.sections import HTML, SectionedCommand, opt, section
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
        "--items NAME=SOURCE",
        "Show in the report the images or texts that the rows of NAME, a model or reference, were made from; repeat it "
        "for each.",
        multiple=True,
    ),
    opt("--field FIELD", "With --items, the field of .jsonl files that holds the text."),
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
@section(
    "Output",
    opt(
        "--format",
        "What is printed: the table as text, latex, markdown or csv, a paragraph about the methods, or its references "
        "as bibtex.",
        dest="form",
        choices=FORMATS,
        default="text",
    ),
    HTML,
    *ITEMS,
)
@section("Input", opt("--columns LIST", "Columns of every data file that are used, as in relfit compare."))
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

    With the data files too, in the order in which they were compared, the page shows where models and data differ.
    """
    check_outputs({"--html": html_path}, [result, *data])
    comparison = read_result(result)
    rows = _read_rows(comparison, data, columns)
    if html_path is None and (data or items):
        raise InputError("REFERENCE: data files and --items are for the page; give --html PATH too")
    if html_path is not None:
        contents = read_items(items, field, dict(zip((REFERENCE, *comparison.names), data, strict=False)))
        comparison.report(html_path, rows, items=contents, command=shell_command(comparison.command))
    if form != "text":
        say_utf8(_PRINTED[form](comparison))
    elif html_path is not None:
        say_written(Report=html_path)
    else:
        from relfit.report.text import styled

        say(styled(comparison))
    return 0


_PRINTED: dict[str, Callable[[Comparison], str]] = {
    "latex": Comparison.to_latex,
    "markdown": Comparison.to_markdown,
    "csv": lambda comparison: comparison.to_csv().rstrip("\n"),
    "methods": Comparison.methods_text,
    "bibtex": lambda comparison: comparison.methods_text(cite="bibtex"),
}


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
    contents = {}
    for pair in pairs:
        name, separator, source = pair.partition("=")
        if not separator or name not in files:
            raise InputError(f"--items: expected NAME=SOURCE with the name of a model or {REFERENCE!r}, got {pair!r}")
        contents[name] = _contents(source, field, split_key(files[name])[0])
    return contents


def check_item_counts(items: Mapping[str, Sequence[Any]], reference: Any, models: Mapping[str, Any]) -> None:
    """Refuse another number of items than a sample has rows, before the work is done."""
    from relfit.report.examples import check_counts

    samples = {REFERENCE: reference, **models}
    check_counts(items, {name: len(rows) for name, rows in samples.items() if isinstance(rows, np.ndarray)})


def _contents(source: str, field: str | None, rows: Path) -> list[Any]:
    """The items of a source, in the order of the rows that were made from them."""
    images = Path(source).is_dir() and not any(Path(source).rglob("*.txt"))
    items = {item.name: item.content for item in list_items(source, "images" if images else "text", field=field)}
    names = rows.with_name(f"{rows.stem}.names.txt")
    if names.is_file():
        kept = names.read_text(encoding="utf-8").splitlines()
        if set(kept) <= set(items):
            return [items[name] for name in kept]
    return list(items.values())


def _read_rows(comparison: Comparison, files: Sequence[str], columns: str | None) -> tuple[Any, Any] | None:
    if not files:
        return None
    reference, *models = files
    if len(models) != len(comparison.names):
        raise InputError(f"MODEL: expected {len(comparison.names)} files, one for each model, got {len(models)}")
    named = named_models(models, comparison.names)
    inputs = read_inputs(reference, named, {"columns": columns, "verbose": False})
    return inputs.reference, inputs.models
