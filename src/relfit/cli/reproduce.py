"""The command `relfit reproduce`: runs the experiments of the paper."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import click

from relfit.cli.outputs import check_outputs, say
from relfit.cli.sections import AT_LEAST_0, AT_LEAST_1, SectionedCommand, flag, opt, section
from relfit.cli.workers import cluster_client
from relfit.util.errors import InputError

# Options that say where data are.
_PATHS = ("data", "features", "images", "attributes", "generated", "weights")
DONE = 0
CHECK_FAILED = 1


@click.command(
    "reproduce",
    cls=SectionedCommand,
    epilog="\b\nExamples:\n"
    "  relfit reproduce fig1-meanshift --quick\n"
    "  relfit reproduce table2-chicago --download\n"
    "  relfit reproduce all --out results --docs docs/evidence/reproduction.md",
)
@click.argument("name")
@section(
    "Options",
    opt(
        "--quick",
        "Run a few trials of a few settings, which takes seconds instead of minutes.",
        is_flag=True,
    ),
    opt(
        "--trials N",
        "Run N trials of each setting.  [default: 100 to 3000, by the experiment]",
        type=AT_LEAST_1,
    ),
    opt(
        "--n LIST",
        "Use these sample sizes, such as 200,1000, in place of the experiment's.",
    ),
    opt("--seed N", "Seed of the first trial.  [default: 0]", type=AT_LEAST_0),
    opt(
        "--out DIR",
        "Write the outputs to this folder.  [default: reproduction, or reproduction-quick]",
    ),
    opt("--docs FILE.md", "Also write a page about every full run in DIR, with its pictures."),
    opt("--workers N", "Number of processes.  [default: one per core]", type=AT_LEAST_1),
    opt(
        "--cluster ADDRESS",
        "Run the trials on the Dask cluster with this scheduler, such as tcp://HOST:8786.",
    ),
    opt("--data FILE", "For table2-chicago, read this CSV of lon,lat instead of the download."),
    opt(
        "--download",
        "For table2-chicago, download the data from the City of Chicago, once.",
        is_flag=True,
    ),
    opt(
        "--images DIR",
        "For table1-celeba, the folder of CelebA's aligned images, or a part of them.",
    ),
    opt(
        "--attributes FILE",
        "For table1-celeba, CelebA's list_attr_celeba.txt or .csv, which says who smiles.",
    ),
    opt(
        "--generated DIR",
        "For table1-celeba, generated faces, in one folder or in the subfolders smiling and "
        "other.",
    ),
    opt(
        "--model NAME",
        "For table1-celeba, the network of the features; see relfit features --list.  "
        "[default: efficientnet-lite0]",
    ),
    opt("--weights PATH", "The network's weights, if they are not in the usual place."),
    opt(
        "--features DIR",
        "For table1-celeba, a folder of feature files in place of images: ref_smile.npy, "
        "ref_nonsmile.npy and, if there are any, gen_smile.npy and gen_nonsmile.npy.",
    ),
    opt(
        "--progress/--no-progress",
        "Print on standard error how far the run is.  [default: yes]",
    ),
    flag(
        "--list",
        lambda: say(import_module("relfit.paper.reproduce").listing()),
        "List the experiments.",
    ),
)
def reproduce_command(
    name: str, quick: bool, out: str | None, docs: str | None, **params: Any
) -> int:
    """Run the experiment NAME of the paper, or all of them.

    Writes trials.csv, table.md, figure.png, figure.svg and run.json to DIR/NAME. After a
    crash or an interrupt the same command resumes where it stopped. The exit status is 1 if
    a check fails. With NAME "all", experiments whose data are not on this machine are
    skipped.
    """
    from relfit.paper.experiment import DataAbsent, DataOptions
    from relfit.paper.reproduce import ALL, Scope, named, reproduce, write_document

    scope = Scope(quick, params["trials"], _sizes(params["n"]), params["seed"] or 0)
    if scope.words and docs is not None:
        raise InputError(f"--docs: the page is made of full runs; leave out {scope.words}")
    check_outputs({"docs": docs})
    data_options = DataOptions(
        **{option: Path(params[option]) if params[option] else None for option in _PATHS},
        download=params["download"],
        model=params["model"],
    )
    experiments = named(name)
    for option in (*_PATHS, "download", "model"):
        if params[option] and not any(
            f"--{option}" in experiment.data_options for experiment in experiments
        ):
            raise InputError(f"--{option}: {experiments[0].name} does not use it; leave it out")
    folder = out or ("reproduction-quick" if quick else "reproduction")
    failed = 0
    with cluster_client(params["cluster"]) as client:
        shown = False if params["progress"] is False else None
        options: dict[str, Any] = {
            "workers": params["workers"],
            "executor": client,
            "progress": shown,
        }
        for experiment in experiments:
            try:
                report = reproduce(
                    experiment, folder, scope=scope, data_options=data_options, **options
                )
            except DataAbsent as absent:
                if name != ALL:
                    raise
                say(f"Skipped {absent}\n")
                continue
            checks = "\n".join(map(str, report.checks))
            files = (
                f"{report.trials} trials, {report.seconds:.0f} s of processor time. "
                f"Files: {report.folder}"
            )
            say(
                f"{experiment.name} · {experiment.title}\n\n{report.table}\n{checks}\n{files}\n"
            )
            failed += sum(not check.ok for check in report.checks)
    if docs is not None:
        write_document(folder, docs)
        say(f"Page: {docs}")
    return CHECK_FAILED if failed else DONE


def _sizes(text: str | None) -> tuple[int, ...] | None:
    """The sample sizes of --n."""
    if text is None:
        return None
    sizes = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in sizes):
        raise InputError(f"--n: expected whole numbers such as 200,1000; got {text!r}")
    return tuple(dict.fromkeys(map(int, sizes)))
