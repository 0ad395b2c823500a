"""The command `relfit reproduce`: the paper's experiments, one command each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from relfit.cli.outputs import check_outputs, say
from relfit.cli.workers import cluster_client
from relfit.util.errors import InputError

if TYPE_CHECKING:
    from relfit.paper.data import DataOptions
    from relfit.paper.experiment import Experiment
    from relfit.paper.reproduce import Report


DONE, CHECK_FAILED = 0, 1


def _show_list(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        from relfit.paper.reproduce import listing

        say(listing())
        ctx.exit()


@click.command(
    "reproduce",
    epilog="\b\nExamples:\n"
    "  relfit reproduce fig1-meanshift --quick\n"
    "  relfit reproduce table2-chicago --download\n"
    "  relfit reproduce all --out results --docs docs/reproduction.md",
)
@click.argument("name")
@click.option("--quick", is_flag=True, help="A few trials of a few settings: seconds instead of minutes.")
@click.option("--out", metavar="DIR", help="Where outputs go.  [default: reproduction, or reproduction-quick]")
@click.option("--workers", metavar="N", type=click.IntRange(min=1), help="Processes.  [default: one per core]")
@click.option("--cluster", metavar="ADDRESS", help="Run the trials on a Dask cluster; its scheduler's tcp://HOST:8786.")
@click.option("--docs", metavar="FILE.md", help="Then write a page of every full run in DIR, with its pictures.")
@click.option("--data", metavar="FILE", help="table2-chicago: a CSV of lon,lat instead of the download.")
@click.option("--download", is_flag=True, help="table2-chicago: fetch its data from the City of Chicago, once.")
@click.option("--features", metavar="DIR", help="table1-celeba: the folder of the authors' four feature files.")
@click.option("--progress/--no-progress", default=None, help="Say how far it is, on stderr.  [default: yes]")
@click.option(
    "--list", is_flag=True, is_eager=True, expose_value=False, callback=_show_list, help="List the experiments."
)
def reproduce_command(
    name: str,
    quick: bool,
    out: str | None,
    workers: int | None,
    cluster: str | None,
    docs: str | None,
    data: str | None,
    download: bool,
    features: str | None,
    progress: bool | None,
) -> int:
    """Run the experiment NAME of the paper, or all of them.

    Writes trials.csv, table.md, figure.png, figure.svg and run.json to DIR/NAME. A run that was killed goes on where it
    stopped with the same command. The exit status is 1 if a check fails. Of all experiments, those whose data are not
    on this machine are skipped.
    """
    from relfit.paper.data import DataAbsent, DataOptions
    from relfit.paper.reproduce import ALL, named, reproduce, write_document

    if quick and docs is not None:
        raise InputError("--docs: the page is made of full runs; leave out --quick")
    check_outputs({"--docs": docs}, [])
    data_options = DataOptions(Path(data) if data else None, Path(features) if features else None, download)
    experiments = named(name)
    _check_used(data_options, experiments)
    folder = out or ("reproduction-quick" if quick else "reproduction")
    shown = False if progress is False else None
    failed = 0
    with cluster_client(cluster) as client:
        for experiment in experiments:
            options: dict[str, Any] = {"workers": workers, "executor": client, "progress": shown}
            try:
                report = reproduce(experiment, folder, quick=quick, data_options=data_options, **options)
            except DataAbsent as absent:
                if name != ALL:
                    raise
                say(f"Skipped {absent}\n")
                continue
            say(f"{experiment.name} · {experiment.title}\n{told(report)}")
            failed += sum(not check.ok for check in report.checks)
    if docs is not None:
        write_document(folder, docs)
        say(f"Page: {docs}")
    return CHECK_FAILED if failed else DONE


def _check_used(data_options: DataOptions, experiments: list[Experiment]) -> None:
    """Refuse an option that no experiment of the run uses."""
    for option in data_options.names():
        if not any(option in experiment.data_options for experiment in experiments):
            raise InputError(f"{option}: {experiments[0].name} does not use it; leave it out")


def told(report: Report) -> str:
    """The table, the checks and where the files are."""
    checks = "\n".join(map(str, report.checks))
    files = f"{report.trials} trials, {report.seconds:.0f} s of processor time. Files: {report.folder}"
    return f"\n{report.table}\n{checks}\n{files}\n"
