"""Every experiment by name. A new one is a value in this list."""

from __future__ import annotations

import csv
import io
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from matplotlib import style
from matplotlib.figure import Figure

from relfit.paper import celeba, chicago, digits, fig1, many_models, tpr, uniform
from relfit.paper.experiment import (
    NOTHING,
    Cell,
    Check,
    Experiment,
    Given,
    Row,
    Setting,
    markdown_table,
    on_stderr,
    silent,
    tidy,
)
from relfit.paper.runner import Trial, run_trials
from relfit.paper.store import Store
from relfit.util.errors import InputError
from relfit.util.files import write_bytes_atomic, write_text_atomic
from relfit.util.progress import Progress
from relfit.util.version import __version__

ALL = "all"
CATALOGUE: dict[str, Experiment] = {
    experiment.name: experiment
    for family in (fig1, celeba, digits, chicago, uniform, many_models, tpr)
    for experiment in family.EXPERIMENTS
}


def named(name: str) -> list[Experiment]:
    """The experiment of this name, or every one for "all".

    >>> [experiment.name for experiment in named("rbm-l7")]
    ['rbm-l7']
    """
    if name == ALL:
        return list(CATALOGUE.values())
    if name not in CATALOGUE:
        raise InputError(f"NAME: expected {ALL} or one of {', '.join(CATALOGUE)}; got {name!r}")
    return [CATALOGUE[name]]


def listing() -> str:
    """The experiments, one a line."""
    width = max(map(len, CATALOGUE))
    return "\n".join(f"{name:{width}}  {experiment.title}" for name, experiment in CATALOGUE.items())


# --------------------
# Run an experiment into a folder: what is missing is computed, then its table, trials, figure and checks are written.
#
# OUT/store.sqlite holds the finished trials of all experiments of the folder, OUT/NAME/ the outputs of one.
# Everything but run.json, which has the seconds taken, is a function of the settings and seeds: the same after an
# interruption.

# Raise it when a change of the code changes the numbers: stored trials of another version are left alone.
VERSION = "1"
STORE = "store.sqlite"
DPI = 100


@dataclass(frozen=True)
class Report:
    """A finished experiment: its table as Markdown, its checks, its files and the processor time of its trials."""

    name: str
    folder: Path
    table: str
    checks: tuple[Check, ...]
    trials: int
    seconds: float


def reproduce(
    experiment: Experiment,
    out: str | os.PathLike[str],
    *,
    quick: bool = False,
    workers: int | None = None,
    executor: Any = None,
    progress: Progress | bool | None = None,
    given: Given = NOTHING,
) -> Report:
    """Run what is missing of an experiment and write its outputs to OUT/NAME.

    Args:
        experiment: from the catalogue.
        out: folder, made if it is not there; one store for all its experiments.
        quick: fewer settings and trials.
        workers: processes, as in `run_trials`.
        executor: as in `run_trials`.
        progress: as in `run_trials`.
        given: files and leave to download, for experiments on real data.

    Returns:
        Report: the table, the checks and the processor seconds of all trials.
    """
    settings = _settings(experiment, quick, given, progress)
    folder = Path(out) / experiment.name
    folder.mkdir(parents=True, exist_ok=True)
    with Store(Path(out) / STORE, version=VERSION) as store:
        function = partial(timed, experiment.trial)
        options: dict[str, Any] = {"workers": workers, "executor": executor, "progress": progress}
        stored = run_trials(store, experiment.name, settings, experiment.count(quick), function, **options)
    results = [Cell(setting, outcomes) for setting, outcomes in zip(settings, stored, strict=True)]
    report = Report(
        experiment.name,
        folder,
        _tables(experiment, results),
        tuple(experiment.checks(results)),
        sum(len(cell.outcomes) for cell in results),
        sum(outcome["seconds"] for cell in results for outcome in cell.outcomes),
    )
    write_trials(folder, tidy(experiment.name, results))
    write_text_atomic(folder / "table.md", report.table)
    write_figure(folder, experiment, results)
    write_text_atomic(folder / "run.json", _run_json(report, experiment.count(quick), quick))
    return report


def _settings(experiment: Experiment, quick: bool, given: Given, progress: Progress | bool | None) -> list[Setting]:
    """The settings, with the digest of what was prepared where data are needed."""
    if experiment.prepare is None:
        return experiment.settings(quick)
    prepared = experiment.prepare(given, quick, silent if progress is False else on_stderr)
    return [{**setting, **prepared} for setting in experiment.settings(quick)]


def _tables(experiment: Experiment, results: Sequence[Cell]) -> str:
    table = markdown_table(experiment.table(results))
    if experiment.extras is None:
        return table
    return table + "".join(f"\n{line}\n\n{markdown_table(rows)}" for line, rows in experiment.extras(results).items())


def timed(trial: Trial, setting: dict[str, Any], seed: int) -> dict[str, Any]:
    """The outcome of a trial with the processor time it took, which other work on the machine does not lengthen."""
    start = time.process_time()
    outcome = trial(setting, seed)
    return {**outcome, "seconds": round(time.process_time() - start, 6)}


def write_trials(folder: Path, rows: Sequence[Row]) -> None:
    """trials.csv, and trials.parquet where pyarrow is installed."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text_atomic(folder / "trials.csv", stream.getvalue())
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        return
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), sink)
    write_bytes_atomic(folder / "trials.parquet", sink.getvalue().to_pybytes())


def write_figure(folder: Path, experiment: Experiment, results: Sequence[Cell]) -> None:
    """figure.png and figure.svg, the same bytes for the same numbers."""
    with style.context(["default", {"svg.hashsalt": "relfit", "text.usetex": False}]):
        drawn = experiment.figure(results)
        write_bytes_atomic(folder / "figure.png", _rendered(drawn, "png", {"Software": None}))
        write_bytes_atomic(folder / "figure.svg", _rendered(drawn, "svg", {"Date": None, "Creator": None}))


def _rendered(figure: Figure, form: str, metadata: Mapping[str, None]) -> bytes:
    out = io.BytesIO()
    figure.savefig(out, format=form, dpi=DPI, metadata=dict(metadata))
    return out.getvalue()


def _run_json(report: Report, trials: int, quick: bool) -> str:
    known = {"experiment": report.name, "quick": quick, "trials_per_setting": trials, "trials": report.trials}
    checks = [check._asdict() for check in report.checks]
    run = {**known, "seconds": round(report.seconds, 1), "relfit": __version__, "checks": checks}
    return json.dumps(run, indent=1, ensure_ascii=False) + "\n"


# --------------------
# docs/reproduction.md from the outputs of finished runs: our table and picture beside the paper's claim.

IMAGES = "images/reproduction"
HEAD = """# Reproduction

Experiments of Lim, Yamada, Schölkopf and Jitkrittum, *Kernel Stein Tests for Multiple Model Comparison*
(NeurIPS 2019), each that has been run in full; `relfit reproduce --list` names them all. This page is written by
`make reproduce` (`relfit reproduce all --docs docs/reproduction.md`) from the outputs of the runs; one experiment alone
is `relfit reproduce NAME`. Rates are over independent trials, ± one Monte-Carlo standard error; bands in the pictures
are ± 1.96. Every model and the reference have a random stream of their own. Seconds are processor time, of all trials
together.
"""
SECTION = """
## {name}

{title}.

{setting}

{table}
{quick}{trials} trials in all ({per_setting} a row), {seconds} of processor time.

![{title}]({image})

**The paper:** {paper}

**Agreement:** {agreement}

{checks}

{note}
"""


def write_document(out: str | os.PathLike[str], path: str | os.PathLike[str]) -> list[str]:
    """Write the page at `path`, its pictures to images/reproduction beside it; return the experiments in it.

    An experiment without outputs in `out` is left out.
    """
    finished = [experiment for experiment in CATALOGUE.values() if (Path(out) / experiment.name / "run.json").exists()]
    if not finished:
        raise InputError(f"out: expected outputs of experiments in {os.fspath(out)!r}, found none; run them first")
    images = Path(path).parent / IMAGES
    images.mkdir(parents=True, exist_ok=True)
    for experiment in finished:
        picture = (Path(out) / experiment.name / "figure.png").read_bytes()
        write_bytes_atomic(images / f"{experiment.name}.png", picture)
    write_text_atomic(path, HEAD + "".join(_section(experiment, Path(out)) for experiment in finished))
    return [experiment.name for experiment in finished]


def _section(experiment: Experiment, out: Path) -> str:
    folder = out / experiment.name
    run = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    return SECTION.format(
        name=experiment.name,
        title=experiment.title,
        setting=experiment.setting,
        table=(folder / "table.md").read_text(encoding="utf-8"),
        quick="**Quick version, not the full run:** " if run["quick"] else "",
        trials=run["trials"],
        per_setting=run["trials_per_setting"],
        seconds=_duration(run["seconds"]),
        image=f"{IMAGES}/{experiment.name}.png",
        paper=experiment.paper,
        agreement=_agreement(run["checks"]),
        checks="\n".join(f"- {'PASS' if check['ok'] else '**FAIL**'} {_line(check)}" for check in run["checks"]),
        note=experiment.note,
    )


def _line(check: dict[str, Any]) -> str:
    return f"{check['claim']}: {check['figure']}"


def _agreement(checks: list[dict[str, Any]]) -> str:
    failed = sum(not check["ok"] for check in checks)
    if not failed:
        return f"yes, all {len(checks)} checks pass."
    return f"not in full: {failed} of {len(checks)} checks fail, marked below."


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120.0 else f"{seconds / 60.0:.0f} min"
