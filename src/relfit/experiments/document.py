"""docs/reproduction.md from the outputs of finished runs: our table and picture beside the paper's claim."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from relfit.errors import InputError
from relfit.experiments.catalogue import CATALOGUE
from relfit.experiments.experiment import Experiment
from relfit.files import write_bytes_atomic, write_text_atomic

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
