"""The command `relfit rerun`: a finished comparison done again from its own record, and compared with it."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from relfit.cli.inputs import names_object
from relfit.cli.outputs import say
from relfit.cli.report import read_result
from relfit.results.comparison import Comparison
from relfit.util.errors import InputError

AGREES, DIFFERS = 0, 1
# What another machine's rounding may move: a discrepancy by this part of the largest, a p-value by as much.
ROUNDING = 1e-8
# What the verdicts mean; a file in which one was changed by hand is no record of its command.
_SETTINGS = ("best", "alpha", "margin", "test", "correction", "measure")
# Options that say what is written or shown, or who computes, not what is computed; True where a value follows.
_OUTPUTS = {
    **{"--json": True, "--html": True, "--junit": True, "--gate": True, "--gate-against": True},
    # A checkpoint would answer for the run that it notes.
    "--checkpoint": True,
    **{"--items": True, "--field": True, "--show": True},
    **{"--progress": False, "--no-progress": False, "--verbose": False, "--quiet": False},
    # Who computes changes no bit, and a file must not say whom to call.
    **{"--workers": True, "--cluster": True},
}
# What a command that is taken from a file may not ask for, as click names it.
_FORBIDDEN = ("json_path", "html_path", "junit_path", "checkpoint", "items", "workers", "cluster")


def recorded(result: Any) -> Any:
    """The result with the command that made it, as typed but for what it writes and who computes."""
    context = click.get_current_context(silent=True)
    args = None if context is None else context.obj
    if args is None:
        return result
    text = [arg.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for arg in args]
    return replace(result, command=tuple(_without_outputs(text)))


@click.command("rerun", epilog="\b\nExample:\n  relfit rerun result.json")
@click.argument("result", metavar="RESULT.json")
@click.option(
    "--run-code",
    is_flag=True,
    help="Allow inputs given as module:object or file.py:object, whose code is run. Only for files you trust.",
)
@click.pass_context
def rerun_command(context: click.Context, result: str, run_code: bool) -> int:
    """Repeat the comparison that RESULT.json records and say whether the answer is the same.

    Run it where the first run was: files are found under the names typed then. Exit status 1 if the answer differs, 2
    if the files do.
    """
    before = read_result(result)
    args = _command(result, before, run_code)
    _check_harmless(context, result, args)
    after = _run(context, args)
    if before.names != after.names:
        raise InputError(f"{result}: its command compares other models than it names; nothing to repeat")
    changed = _changed_inputs(before, after)
    if changed:
        raise InputError(f"{result}: {_listed(changed)} no longer what was compared then; nothing to repeat")
    lines, same = agreement(before, after)
    say("\n".join(lines))
    return AGREES if same else DIFFERS


def agreement(before: Comparison, after: Comparison) -> tuple[list[str], bool]:
    """What to say of two results of one command, and whether they agree: settings, verdicts, numbers to rounding."""
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
    chance = float(np.abs(after.pvalue - before.pvalue).max())
    numbers = f"discrepancies differ by at most {moved:.2g} of the largest, p-values by at most {chance:.2g}"
    versions = [
        f"{name} was {before.versions.get(name)} and is {version}"
        for name, version in after.versions.items()
        if before.versions.get(name) != version
    ]
    same = not settings and not verdicts and moved <= ROUNDING and chance <= ROUNDING
    head = "Agrees to rounding" if same else "Differs"
    return [f"{head}: {'; '.join([*settings, *verdicts, numbers, *versions])}."], same


def _verdict(worse: bool) -> str:
    return "worse" if worse else "not worse"


def _without_outputs(args: Sequence[str]) -> list[str]:
    kept: list[str] = []
    skip = False
    for position, arg in enumerate(args):
        if arg == "--":
            return [*kept, *args[position:]]
        name, equals, _ = arg.partition("=")
        if skip:
            skip = False
        elif name in _OUTPUTS:
            skip = _OUTPUTS[name] and not equals
        else:
            kept.append(arg)
    return kept


def _command(path: str, result: Comparison, run_code: bool) -> list[str]:
    if not result.command:
        raise InputError(f"{path}: holds no command to repeat: it was made in Python, or by an older version of relfit")
    if result.command[0] != "compare":
        raise InputError(f"{path}: expected a result of relfit compare, got one of relfit {result.command[0]!r:.40}")
    args = _without_outputs(result.command)
    objects = [arg for arg in args[1:] if names_object(arg)]
    if objects and not run_code:
        raise InputError(f"{path}: would run the code of {objects[0]!r}; if you trust the file, add --run-code")
    return args


def _check_harmless(context: click.Context, path: str, args: Sequence[str]) -> None:
    """Refuse a command that would write files or call others: a file may be made so that only click sees the option."""
    group = context.find_root().command
    compare = group.get_command(context, "compare") if isinstance(group, click.Group) else None
    if compare is None:
        raise InputError("rerun: there is no command called compare")
    found = compare.make_context("compare", list(args[1:]), resilient_parsing=True).params
    asked = [name for name in _FORBIDDEN if found.get(name)]
    if asked:
        option = f"--{asked[0].removesuffix('_path')}"
        raise InputError(f"{path}: its command asks for {option}, which no recorded command does; nothing was run")


def _run(context: click.Context, args: Sequence[str]) -> Comparison:
    """The result of the command, through its own --json."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "result.json"
        # Before the arguments, where a "--" among them cannot make file names of it.
        typed = [args[0], "--json", str(out), *args[1:]]
        with redirect_stdout(io.StringIO()):
            context.find_root().command.main(typed, prog_name="relfit", standalone_mode=False, obj=typed)
        return read_result(str(out))


def _changed_inputs(before: Comparison, after: Comparison) -> list[str]:
    then, now = _digests(before), _digests(after)
    return [name for name, digest in then.items() if digest is not None and now.get(name) != digest]


def _digests(result: Comparison) -> Mapping[str, Any]:
    found = result.inputs or {}
    return {
        "the reference": found.get("reference"),
        **{f"model {name!r}": value for name, value in found.get("models", {}).items()},
    }


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'}"
