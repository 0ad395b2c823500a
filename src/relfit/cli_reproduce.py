"""The command `relfit reproduce`: the paper's experiments, one command each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from relfit.errors import InputError
from relfit.outputs import check_outputs, say

if TYPE_CHECKING:
    from relfit.experiments.reproduce import Report

DONE, CHECK_FAILED = 0, 1


def _show_list(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from relfit.experiments.catalogue import listing

        say(listing())
        ctx.exit()


@click.command(
    "reproduce",
    epilog="\b\nExamples:\n"
    "  relfit reproduce fig1-meanshift --quick\n"
    "  relfit reproduce all --out results --docs docs/reproduction.md",
)
@click.argument("name")
@click.option("--quick", is_flag=True, help="A few trials of a few settings: seconds instead of minutes.")
@click.option("--out", metavar="DIR", help="Where outputs go.  [default: reproduction, or reproduction-quick]")
@click.option("--workers", metavar="N", type=click.IntRange(min=1), help="Processes.  [default: one per core]")
@click.option("--docs", metavar="FILE.md", help="Then write a page of every full run in DIR, with its pictures.")
@click.option("--progress/--no-progress", default=None, help="Say how far it is, on stderr.  [default: yes]")
@click.option(
    "--list", is_flag=True, is_eager=True, expose_value=False, callback=_show_list, help="List the experiments."
)
def reproduce_command(
    name: str, quick: bool, out: str | None, workers: int | None, docs: str | None, progress: bool | None
) -> int:
    """Run the experiment NAME of the paper, or all of them.

    Writes trials.csv, table.md, figure.png, figure.svg and run.json to DIR/NAME. A run that was killed goes on where it
    stopped with the same command. The exit status is 1 if a check fails.
    """
    from relfit.experiments.catalogue import named
    from relfit.experiments.document import write_document
    from relfit.experiments.reproduce import reproduce

    if quick and docs is not None:
        raise InputError("--docs: the page is made of full runs; leave out --quick")
    check_outputs({"--docs": docs}, [])
    folder = out or ("reproduction-quick" if quick else "reproduction")
    failed = 0
    for experiment in named(name):
        shown = False if progress is False else None
        report = reproduce(experiment, folder, quick=quick, workers=workers, progress=shown)
        say(f"{experiment.name} · {experiment.title}\n{told(report)}")
        failed += sum(not check.ok for check in report.checks)
    if docs is not None:
        write_document(folder, docs)
        say(f"Page: {docs}")
    return CHECK_FAILED if failed else DONE


def told(report: Report) -> str:
    """The table, the checks and where the files are."""
    checks = "\n".join(map(str, report.checks))
    files = f"{report.trials} trials, {report.seconds:.0f} s of processor time. Files: {report.folder}"
    return f"\n{report.table}\n{checks}\n{files}\n"
