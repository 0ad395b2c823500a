"""Run an experiment into a folder, and write the page of all finished runs.

OUT/store.sqlite holds the finished trials of all experiments of the folder, OUT/NAME/ the
outputs of one: its table, trials, figure and checks. Everything but run.json, which has the
seconds taken, is a function of the settings and seeds, so it is the same after an
interruption. The page is reproduction.md beside this file, a section for each experiment,
filled in with our tables, pictures and checks beside the paper's claims.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from matplotlib import style
from scipy.stats import binomtest

from relfit import __version__
from relfit.paper import chicago, synthetic, table1, tpr
from relfit.paper.experiment import (
    Cell,
    Check,
    DataOptions,
    Experiment,
    Printed,
    Results,
    Row,
    markdown_table,
)
from relfit.paper.runner import Store, Trial, run_trials
from relfit.util.errors import InputError
from relfit.util.files import write_bytes_atomic, write_text_atomic

ALL = "all"
CATALOGUE: dict[str, Experiment] = {
    experiment.name: experiment
    for family in (
        synthetic.FIGURE_1,
        table1.EXPERIMENTS,
        (chicago.EXPERIMENT,),
        synthetic.APPENDIX,
        tpr.EXPERIMENTS,
    )
    for experiment in family
}
# Raise it when a change of the code changes the numbers: stored trials of another version are
# left alone.
VERSION = "2"
STORE = "store.sqlite"
DPI = 100
IMAGES = "images/reproduction"
# The key under which `prepare` returns the largest n.
MOST = "most n"
# The keys of every decision, first in trials.csv.
FIRST = ("test", "model", "worse", "pvalue")


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
    return "\n".join(
        f"{name:{width}}  {experiment.title}" for name, experiment in CATALOGUE.items()
    )


@dataclass(frozen=True)
class Report:
    """A finished experiment: its table as Markdown, its checks, its files and the processor
    time of its trials.
    """

    folder: Path
    table: str
    checks: tuple[Check, ...]
    trials: int
    seconds: float


@dataclass(frozen=True)
class Scope:
    """How much of an experiment is run.

    Attributes:
        quick: a few trials of a few settings.
        trials: trials per setting; None is the experiment's own number.
        sizes: sample sizes in place of the experiment's; None keeps those.
        first_seed: the seed of the first trial, one less than that of the next.
    """

    quick: bool = False
    trials: int | None = None
    sizes: tuple[int, ...] | None = None
    first_seed: int = 0

    def count(self, experiment: Experiment) -> int:
        """Trials per setting."""
        return experiment.count(self.quick) if self.trials is None else self.trials

    def settings(self, experiment: Experiment) -> list[dict[str, Any]]:
        """The settings, with the sizes that were asked for in place of n."""
        settings = experiment.settings(self.quick)
        if self.sizes is None:
            return settings
        sized = [{**setting, "n": n} for n in self.sizes for setting in settings]
        return [setting for k, setting in enumerate(sized) if setting not in sized[:k]]

    @property
    def words(self) -> str:
        """What is not as in the full run; empty for that."""
        changes: dict[str, Any] = {"--trials": self.trials, "--seed": self.first_seed or None}
        if self.sizes is not None:
            changes["--n"] = ",".join(map(str, self.sizes))
        given = [f"{flag} {value}" for flag, value in changes.items() if value is not None]
        return " ".join([*(["--quick"] if self.quick else []), *given])


def reproduce(
    experiment: Experiment,
    out: str | os.PathLike[str],
    *,
    scope: Scope = Scope(),
    data_options: DataOptions | None = None,
    **options: Any,
) -> Report:
    """Run what is missing of an experiment and write its outputs to OUT/NAME.

    `out` is created if it does not exist and has one store for all its experiments.
    `data_options` are for experiments on real data, and the other options are those of
    `run_trials`.
    """

    def log(line: str) -> None:
        if options.get("progress") is not False:
            print(line, file=sys.stderr, flush=True)

    # The digest of what was prepared is a part of every setting.
    prepared = experiment.prepare(data_options or DataOptions(), scope.quick, log)
    most = prepared.pop(MOST, None)
    settings = [{**setting, **prepared} for setting in scope.settings(experiment)]
    if most is not None:
        if any(setting["n"] > most for setting in settings):
            log(f"{experiment.name}: n = {most}, as far as the data reach without reuse")
        capped = [{**setting, "n": min(setting["n"], most)} for setting in settings]
        settings = [each for k, each in enumerate(capped) if each not in capped[:k]]
    folder = Path(out) / experiment.name
    folder.mkdir(parents=True, exist_ok=True)
    with Store(Path(out) / STORE, version=VERSION) as store:
        function = partial(timed, experiment.trial)
        stored = run_trials(
            store,
            experiment.name,
            settings,
            scope.count(experiment),
            function,
            first_seed=scope.first_seed,
            **options,
        )
    results = [
        Cell(setting, outcomes) for setting, outcomes in zip(settings, stored, strict=True)
    ]
    table = markdown_table(experiment.table(results))
    for line, rows in experiment.extras(results).items():
        table += f"\n{line}\n\n{markdown_table(rows)}"
    printed = experiment.printed(results)
    if printed:
        table += f"\n{_agreeing(printed)}\n\n"
        table += markdown_table([number.row() for number in printed])
    table += certain_rates(table, scope.count(experiment))
    seconds = [outcome["seconds"] for cell in results for outcome in cell.outcomes]
    checks = tuple(experiment.checks(results))
    report = Report(folder, table, checks, len(seconds), sum(seconds))
    about = experiment.about(prepared)
    _write_outputs(experiment, results, report, printed, scope, about)
    return report


def _agreeing(printed: Sequence[Printed]) -> str:
    """How many of the paper's numbers come out."""
    within = sum(number.within for number in printed)
    return (
        f"{within} of the {len(printed)} rates that the paper prints lie within 3 standard "
        f"errors of the difference:"
    )


def certain_rates(table: str, trials: int) -> str:
    """A sentence on rates that are the same in all trials, whose standard error is 0;
    nothing for other tables.

    >>> print(certain_rates("| 0.000 ± 0.000 |", 20))
    <BLANKLINE>
    A rate of 0 or 1 in all 20 trials has no standard error: its 95% Wilson limits are 0 to 0.161, or 0.839 to 1.
    <BLANKLINE>
    """  # noqa: E501
    if re.search(r"\b[01]\.0+ ± 0\.0+\b", table) is None:
        return ""
    most = float(binomtest(0, trials).proportion_ci(method="wilson").high)
    limits = f"0 to {most:.3f}, or {1.0 - most:.3f} to 1"
    return (
        f"\nA rate of 0 or 1 in all {trials} trials has no standard error: its 95% Wilson "
        f"limits are {limits}.\n"
    )


def _write_outputs(
    experiment: Experiment,
    results: Results,
    report: Report,
    printed: Sequence[Printed],
    scope: Scope,
    about: str,
) -> None:
    """trials.csv, table.md, figure.png, figure.svg and run.json."""
    folder = report.folder
    rows = tidy(experiment.name, results, scope.first_seed)
    text = io.StringIO()
    # Trials that an older relfit stored may have other columns.
    columns = dict.fromkeys(name for row in rows for name in row)
    writer = csv.DictWriter(text, fieldnames=columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text_atomic(folder / "trials.csv", text.getvalue())
    write_text_atomic(folder / "table.md", report.table)
    with style.context(["default", {"svg.hashsalt": "relfit", "text.usetex": False}]):
        figure = experiment.figure(results)
        # Without dates and versions, so that the same numbers give the same bytes.
        for form, metadata in {
            "png": {"Software": None},
            "svg": {"Date": None, "Creator": None},
        }.items():
            stream = io.BytesIO()
            figure.savefig(stream, format=form, dpi=DPI, metadata=metadata)
            write_bytes_atomic(folder / f"figure.{form}", stream.getvalue())
    run = {
        "experiment": experiment.name,
        "asked": scope.words,
        "trials_per_setting": scope.count(experiment),
        "trials": report.trials,
        "seconds": round(report.seconds, 1),
        "relfit": __version__,
        "checks": [check._asdict() for check in report.checks],
        "printed": len(printed),
        "within": sum(number.within for number in printed),
        "about": about,
    }
    write_text_atomic(folder / "run.json", json.dumps(run, indent=1, ensure_ascii=False) + "\n")


def tidy(name: str, results: Results, first_seed: int = 0) -> list[Row]:
    """One row per trial and decision: the experiment, its setting, the seed, then the
    decision.
    """
    return [
        {
            "experiment": name,
            **_plain(cell.setting),
            "seed": seed,
            **dict.fromkeys(FIRST),
            **_plain(decision),
        }
        for cell in results
        for seed, outcome in enumerate(cell.outcomes, first_seed)
        for decision in outcome["decisions"]
    ]


def _plain(values: Mapping[str, Any]) -> Row:
    return {
        key: " ".join(map(str, value)) if isinstance(value, list) else value
        for key, value in values.items()
    }


def timed(trial: Trial, setting: dict[str, Any], seed: int) -> dict[str, Any]:
    """The outcome of a trial with the processor time it took, which other work on the
    machine does not lengthen.
    """
    start = time.process_time()
    return {**trial(setting, seed), "seconds": round(time.process_time() - start, 6)}


def write_document(out: str | os.PathLike[str], path: str | os.PathLike[str]) -> list[str]:
    """Write a page of the experiments with outputs in `out`, pictures beside it; return the
    experiments in it.
    """
    finished = [
        experiment
        for experiment in CATALOGUE.values()
        if (Path(out) / experiment.name / "run.json").exists()
    ]
    if not finished:
        raise InputError(
            f"out: expected outputs of experiments in {os.fspath(out)!r}, found "
            f"none; run them first"
        )
    images = Path(path).parent / IMAGES
    images.mkdir(parents=True, exist_ok=True)
    head, sections = template()
    parts = [head]
    for experiment in finished:
        name = experiment.name
        folder = Path(out) / name
        write_bytes_atomic(images / f"{name}.png", (folder / "figure.png").read_bytes())
        parts.append(Template(sections[name]).substitute(_filled(experiment, folder)))
    write_text_atomic(path, "\n".join(parts))
    return [experiment.name for experiment in finished]


def template() -> tuple[str, dict[str, str]]:
    """The head of the page, and the section of each experiment, with placeholders $title,
    $results and $agreement.
    """
    text = files("relfit").joinpath("paper/reproduction.md").read_text(encoding="utf-8")
    head, *sections = re.split(r"(?m)\n(?=## )", text)
    return head, {
        section.partition("\n")[0].removeprefix("## "): section for section in sections
    }


def _run(folder: Path) -> dict[str, Any]:
    run: dict[str, Any] = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    return run


def _filled(experiment: Experiment, folder: Path) -> dict[str, str]:
    run = _run(folder)
    table = (folder / "table.md").read_text(encoding="utf-8")
    asked = run["asked"]
    part = f"**Not the full run ({asked}):** " if asked else ""
    trials = f"{run['trials']} trials in all ({run['trials_per_setting']} a row)"
    picture = f"![{experiment.title}]({IMAGES}/{experiment.name}.png)"
    checks = [
        f"- {'PASS' if each['ok'] else '**FAIL**'} {each['claim']}: {each['figure']}"
        for each in run["checks"]
    ]
    failed = sum(not check["ok"] for check in run["checks"])
    agreement = f"all {len(checks)} checks pass."
    if failed:
        agreement = f"{failed} of {len(checks)} checks fail, marked below."
    if run["printed"]:
        rates = f"{run['within']} of the {run['printed']} rates that the paper prints come out"
        agreement = f"{rates} (within 3 standard errors); {agreement}"
    seconds = run["seconds"]
    duration = f"{seconds:.0f} s" if seconds < 120.0 else f"{seconds / 60.0:.0f} min"
    return {
        "title": experiment.title,
        "results": f"{table}\n{part}{trials}, {duration} of processor time.\n\n{picture}",
        "about": run["about"],
        "agreement": "\n".join([f"**Agreement:** {agreement}", "", *checks]),
    }
