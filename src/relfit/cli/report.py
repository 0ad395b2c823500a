"""Commands about a finished result: `relfit report` shows it, `relfit rerun` repeats it and
compares the answers.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, cast

import click

from relfit.cli.inputs import (
    ITEMS,
    REFERENCE,
    named_models,
    names_object,
    read_inputs,
    read_items,
    read_runs,
    read_scores,
)
from relfit.cli.outputs import (
    check_outputs,
    say,
    say_utf8,
    shell_command,
    terminal_width,
    texts,
    without_outputs,
)
from relfit.cli.sections import HTML, TITLE, SectionedCommand, opt, section
from relfit.compute.memory import require_room
from relfit.data.files.base import check_plain
from relfit.results.comparison import Comparison
from relfit.util.errors import InputError
from relfit.util.files import temporary_folder
from relfit.util.text import visible

# What --format prints; "text" is the table as compare prints it.
FORMATS: dict[str, Callable[[Comparison], str]] = {
    "text": str,
    "latex": Comparison.to_latex,
    "markdown": Comparison.to_markdown,
    "csv": lambda comparison: "\n".join(
        map(visible, comparison.to_csv().rstrip("\n").split("\n"))
    ),
    "methods": Comparison.methods_text,
    "bibtex": lambda comparison: comparison.methods_text(cite="bibtex"),
}
AGREES = 0
DIFFERS = 1
_REPEATABLE = ("compare", "losses")
# Rounding on another machine may change numbers by this fraction of the largest one of their
# field.
ROUNDING = 1e-8
# What a command that is read from a file may not ask for, as click names it.
_FORBIDDEN = (
    "json_path",
    "html_path",
    "junit_path",
    "markdown_path",
    "checkpoint",
    "items",
    "workers",
    "cluster",
)


@click.command(
    "report",
    cls=SectionedCommand,
    epilog="\b\nExamples:\n"
    "  relfit report result.json --html report.html\n"
    "  relfit report result.json data.npy large.npy tuned.npy --html report.html\n"
    "  relfit report result.json scores.csv --html report.html\n"
    "  relfit report result.json --format latex > table.tex",
)
@click.argument("result", metavar="RESULT.json")
@click.argument("data", nargs=-1, metavar="[DATA...]")
@section(
    "Output",
    opt(
        "--format",
        "What is printed: the table as text, latex, markdown or csv, a paragraph about the "
        "methods, or its references "
        "as bibtex.",
        choices=FORMATS,
        default="text",
    ),
    HTML,
    TITLE,
    *ITEMS,
)
@section(
    "Input",
    opt("--columns LIST", "Columns of every data file that are used, as in relfit compare."),
)
@click.pass_context
def report_command(
    context: click.Context,
    /,
    result: str,
    data: Sequence[str],
    html_path: str | None,
    format: str,
    **params: Any,
) -> int:
    """Show a result that relfit compare, losses or evals wrote with --json.

    With what was compared too, the page shows where models and data differ: the reference
    and the models in their order, the table of scores, or the logs.
    """
    check_outputs({"html_path": html_path})
    comparison = read_result(result)
    rows: Any = None
    if data and comparison.measure == "loss":
        rows = _scores(context, comparison, data)
    elif data:
        if len(data) - 1 != len(comparison.names):
            raise InputError(
                f"MODEL: expected {len(comparison.names)} files, one for each "
                f"model, got {len(data) - 1}"
            )
        named = named_models(data[1:], comparison.names)
        inputs = read_inputs(data[0], named, {"columns": params["columns"], "verbose": False})
        rows = inputs.reference, inputs.models
    if html_path is None and (data or params["items"]):
        raise InputError("DATA: data files and --items are for the page; give --html PATH too")
    if html_path is not None:
        files = dict(zip((REFERENCE, *comparison.names), data, strict=False))
        items = read_items(params["items"], params["field"], files)
        command = shell_command(comparison.command)
        title = params["title"]
        comparison.report(html_path, rows, items=items, command=command, title=title)
    if format != "text":
        say_utf8(FORMATS[format](comparison))
    elif html_path is not None:
        say(f"Report: {visible(html_path)}")
    else:
        from relfit.results.text import styled

        say(styled(comparison, terminal_width()))
    return 0


def _scores(context: click.Context, comparison: Comparison, data: Sequence[str]) -> Any:
    """The scores of a result of `relfit losses` or `relfit evals`, read again with the
    options of its command.
    """
    name, *typed = comparison.command or ("losses", *data)
    params = _parsed(context, name, typed).params
    if name == "evals":
        paths: Any = dict(zip(params["name"], data, strict=False)) if params["name"] else data
        return read_runs(paths, params)
    if len(data) != 1:
        raise InputError(
            f"DATA: expected one table, because {name} compared scores, got {len(data)} files"
        )
    return read_scores(data[0], params)


def _parsed(context: click.Context, name: str, typed: Sequence[str]) -> click.Context:
    """A command with what was typed after its name; nothing is run."""
    command = cast(click.Group, context.find_root().command).get_command(context, name)
    if command is None:
        raise InputError(f"{name!r:.40}: there is no command of this name")
    return command.make_context(name, list(typed), resilient_parsing=True)


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
        raise InputError(
            f"{path}: expected a result written by relfit compare --json ({error})"
        ) from None


@click.command("rerun", cls=SectionedCommand, epilog="\b\nExample:\n  relfit rerun result.json")
@click.argument("result", metavar="RESULT.json")
@section(
    "Options",
    opt(
        "--run-code",
        "Allow inputs given as module:object or file.py:object, whose code is run. Use it "
        "only for files you trust.",
        is_flag=True,
    ),
)
@click.pass_context
def rerun_command(context: click.Context, result: str, run_code: bool) -> int:
    """Repeat the comparison that RESULT.json records and say whether the answer is the same.

    Run it in the folder of the first run, because files are found under the names that were
    typed then. Exit status 1 if the answer differs, 2 if the files do.
    """
    before = read_result(result)
    arguments = _command(result, before)
    _check_harmless(context, result, arguments, run_code)
    with temporary_folder() as folder:
        out = str(folder / "result.json")
        # Before the other arguments: after a "--" among them it would be taken for file names.
        typed = [arguments[0], "--json", out, *arguments[1:]]
        with redirect_stdout(io.StringIO()):
            context.find_root().command.main(
                typed, prog_name="relfit", standalone_mode=False, obj=typed
            )
        after = read_result(out)
    if before.names != after.names:
        raise InputError(
            f"{result}: its command compares other models than it names; it cannot be repeated"
        )
    now = _digests(after)
    changed = [
        name
        for name, digest in _digests(before).items()
        if digest is not None and now.get(name) != digest
    ]
    if changed:
        are = f"{', '.join(changed)} {'is' if len(changed) == 1 else 'are'}"
        raise InputError(
            f"{result}: {are} no longer what was compared then; it cannot be repeated"
        )
    sentence, same = agreement(before, after)
    say(sentence)
    return AGREES if same else DIFFERS


def agreement(before: Comparison, after: Comparison) -> tuple[str, bool]:
    """How the records of two results differ, in words, and True if they agree to rounding."""
    then = before.to_dict()
    now = after.to_dict()
    if then == now:
        return "Agrees: every number is the same.", True
    moved = {name: _moved(then[name], now[name]) for name in then if name != "versions"}
    changed = [
        f"{name} was {then[name]!r:.60} and is {now[name]!r:.60}"
        for name, far in moved.items()
        if far > ROUNDING
    ]
    most = max(far for far in moved.values() if far < math.inf)
    versions = [
        f"{name} was {version} and is {after.versions[name]}"
        for name, version in before.versions.items()
        if after.versions.get(name) not in (None, version)
    ]
    numbers = f"other numbers differ by at most {most:.2g} of the largest"
    head = "Differs" if changed else "Agrees to rounding"
    return f"{head}: {'; '.join([*changed, numbers, *versions])}.", not changed


def _moved(before: Any, after: Any) -> float:
    """How far two values are apart, in units of the largest number; infinite if they differ
    in anything else.
    """
    then = dict(_leaves(before))
    now = dict(_leaves(after))
    if then.keys() != now.keys():
        return math.inf
    far = 0.0
    largest = 1e-300
    for place, value in then.items():
        if isinstance(value, float):
            largest = max(largest, abs(value))
        if value != now[place]:
            both = isinstance(value, float) and isinstance(now[place], float)
            far = max(far, abs(value - now[place]) if both else math.inf)
    return far / largest


def _leaves(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """What lists and dictionaries hold, with the place of each."""
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _leaves(part, (*place, key))
    else:
        yield place, value


def _command(path: str, result: Comparison) -> list[str]:
    if not result.command:
        raise InputError(f"{path}: holds no command to repeat: it was made in Python")
    if result.command[0] not in _REPEATABLE:
        raise InputError(
            f"{path}: expected a result of relfit compare, got one of relfit "
            f"{result.command[0]!r:.40}"
        )
    return without_outputs(result.command)


def _check_harmless(
    context: click.Context, path: str, arguments: Sequence[str], run_code: bool
) -> None:
    """Refuse a command that would write files, call a cluster or run code: only click tells
    options from values.
    """
    parsed = _parsed(context, arguments[0], arguments[1:])
    forbidden = [name for name in _FORBIDDEN if parsed.params.get(name)]
    if forbidden:
        option = f"--{forbidden[0].removesuffix('_path')}"
        raise InputError(
            f"{path}: its command asks for {option}, which no recorded command "
            f"does; nothing was run"
        )
    # Only inputs are loaded, never what an option says: a model may be called a:v2.
    inputs = [
        parsed.params[str(param.name)]
        for param in parsed.command.params
        if isinstance(param, click.Argument)
    ]
    objects = [text for text in texts(inputs) if names_object(text)]
    if objects and not run_code:
        raise InputError(
            f"{path}: would run the code of {objects[0]!r}; if you trust the "
            f"file, add --run-code"
        )


def _digests(result: Comparison) -> Mapping[str, Any]:
    digests = result.inputs or {}
    models = {f"model {name!r}": value for name, value in digests.get("models", {}).items()}
    return {"the reference": digests.get("reference"), **models}
