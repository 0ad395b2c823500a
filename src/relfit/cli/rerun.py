"""The command `relfit rerun`: a finished comparison is repeated from its own record, and the answers are compared."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import click
import numpy as np

from relfit.cli.inputs import names_object
from relfit.cli.outputs import say
from relfit.cli.report import read_result
from relfit.cli.sections import SectionedCommand, opt, section
from relfit.results.comparison import Comparison
from relfit.util.errors import InputError

AGREES, DIFFERS = 0, 1
# Rounding on another machine may change a discrepancy by this fraction of the largest one, and a p-value by as much.
ROUNDING = 1e-8
# What the verdicts mean. A file in which one of these was changed by hand does not belong to its command.
_SETTINGS = ("best", "alpha", "margin", "test", "correction", "measure")
# Options that say what is written or shown, or where the work is done, and that change no number. A checkpoint is one
# of them, because it would answer with the sums of the first run, and a file must not say which cluster to call.
_FLAGS = ("--progress", "--no-progress", "--verbose", "--quiet")
_WITH_VALUE = (
    *("--json", "--html", "--junit", "--gate", "--gate-against", "--items", "--field", "--show"),
    *("--checkpoint", "--workers", "--cluster"),
)
# What a command that is read from a file may not ask for, as click names it.
_FORBIDDEN = ("json_path", "html_path", "junit_path", "checkpoint", "items", "workers", "cluster")


@click.command("rerun", cls=SectionedCommand, epilog="\b\nExample:\n  relfit rerun result.json")
@click.argument("result", metavar="RESULT.json")
@section(
    "Options",
    opt(
        "--run-code",
        "Allow inputs given as module:object or file.py:object, whose code is run. Use it only for files you trust.",
        is_flag=True,
    ),
)
@click.pass_context
def rerun_command(context: click.Context, result: str, run_code: bool) -> int:
    """Repeat the comparison that RESULT.json records and say whether the answer is the same.

    Run it in the folder of the first run, because files are found under the names that were typed then. Exit status 1
    if the answer differs, 2 if the files do.
    """
    before = read_result(result)
    arguments = _command(result, before, run_code)
    _check_harmless(context, result, arguments)
    after = _run(context, arguments)
    if before.names != after.names:
        raise InputError(f"{result}: its command compares other models than it names; it cannot be repeated")
    changed = _changed_inputs(before, after)
    if changed:
        are = f"{', '.join(changed)} {'is' if len(changed) == 1 else 'are'}"
        raise InputError(f"{result}: {are} no longer what was compared then; it cannot be repeated")
    lines, same = agreement(before, after)
    say("\n".join(lines))
    return AGREES if same else DIFFERS


def agreement(before: Comparison, after: Comparison) -> tuple[list[str], bool]:
    """How two results of one command differ, in words, and True if settings, verdicts and rounded numbers agree."""
    if before.to_json() == after.to_json():
        return ["Agrees: every number is the same."], True
    settings = [
        f"{name} was {getattr(before, name)!r} and is {getattr(after, name)!r}"
        for name in _SETTINGS
        if getattr(before, name) != getattr(after, name)
    ]
    verdicts = [
        f"{name!r} was {_verdict(a)} and is {_verdict(b)}"
        for name, a, b in zip(before.names, before.worse, after.worse, strict=True)
        if a != b
    ]
    scale = max(float(np.abs(before.discrepancy).max()), float(before.standard_error.max()))
    moved = float(np.abs(after.discrepancy - before.discrepancy).max()) / (scale or 1.0)
    pvalue = float(np.abs(after.pvalue - before.pvalue).max())
    numbers = f"discrepancies differ by at most {moved:.2g} of the largest, p-values by at most {pvalue:.2g}"
    versions = [
        f"{name} was {before.versions.get(name)} and is {version}"
        for name, version in after.versions.items()
        if before.versions.get(name) != version
    ]
    same = not settings and not verdicts and moved <= ROUNDING and pvalue <= ROUNDING
    head = "Agrees to rounding" if same else "Differs"
    return [f"{head}: {'; '.join([*settings, *verdicts, numbers, *versions])}."], same


def _verdict(worse: bool) -> str:
    return "worse" if worse else "not worse"


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


def _command(path: str, result: Comparison, run_code: bool) -> list[str]:
    if not result.command:
        raise InputError(f"{path}: holds no command to repeat: it was made in Python, or by an older version of relfit")
    if result.command[0] != "compare":
        raise InputError(f"{path}: expected a result of relfit compare, got one of relfit {result.command[0]!r:.40}")
    arguments = without_outputs(result.command)
    objects = [argument for argument in arguments[1:] if names_object(argument)]
    if objects and not run_code:
        raise InputError(f"{path}: would run the code of {objects[0]!r}; if you trust the file, add --run-code")
    return arguments


def _check_harmless(context: click.Context, path: str, arguments: Sequence[str]) -> None:
    """Refuse a command that would write files or call a cluster, with options that only click can tell from values."""
    group = context.find_root().command
    compare = group.get_command(context, "compare") if isinstance(group, click.Group) else None
    if compare is None:
        raise InputError("rerun: there is no command called compare")
    params = compare.make_context("compare", list(arguments[1:]), resilient_parsing=True).params
    forbidden = [name for name in _FORBIDDEN if params.get(name)]
    if forbidden:
        option = f"--{forbidden[0].removesuffix('_path')}"
        raise InputError(f"{path}: its command asks for {option}, which no recorded command does; nothing was run")


def _run(context: click.Context, arguments: Sequence[str]) -> Comparison:
    """The result of the command, through its own --json."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "result.json"
        # Before the other arguments: after a "--" among them it would be taken for file names.
        typed = [arguments[0], "--json", str(out), *arguments[1:]]
        with redirect_stdout(io.StringIO()):
            context.find_root().command.main(typed, prog_name="relfit", standalone_mode=False, obj=typed)
        return read_result(str(out))


def _changed_inputs(before: Comparison, after: Comparison) -> list[str]:
    then, now = _digests(before), _digests(after)
    return [name for name, digest in then.items() if digest is not None and now.get(name) != digest]


def _digests(result: Comparison) -> Mapping[str, Any]:
    digests = result.inputs or {}
    return {
        "the reference": digests.get("reference"),
        **{f"model {name!r}": value for name, value in digests.get("models", {}).items()},
    }
