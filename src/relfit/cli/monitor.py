"""The command `relfit monitor`: losses that arrive over time, with an answer that may be
looked at every day.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from relfit.cli.outputs import GATE_REQUIRE, check_gate, check_outputs, say, write_outputs
from relfit.cli.sections import DIRECTION, HTML, JSON, SectionedCommand, opt, section
from relfit.data.scored import Scores
from relfit.data.scores import scores
from relfit.monitor import Monitor
from relfit.monitor.store import OUTSIDE
from relfit.util.checks import check_margin
from relfit.util.errors import InputError

BOUNDS = opt(
    "--bounds",
    "Smallest and largest score there can be.  [default: 0 1]",
    metavar="LOW HIGH",
    nargs=2,
    type=float,
)
STATE = opt("--state PATH", "File that keeps the items.", default="gate.sqlite")
GATE = section(
    "Gate for continuous integration",
    opt(
        "--gate NAME",
        "Exit with status 1 if this model is significantly worse than another one.",
    ),
    opt("--gate-against NAME", "With --gate, compare with this model alone.", dest="against"),
    opt(
        "--margin DELTA",
        "With --gate, how much worse the model may be, in the units of the scores; choose it "
        "before the first item.",
        default=0.0,
    ),
    GATE_REQUIRE,
)


@click.group("monitor")
def monitor_command() -> None:
    """Compare models while their scores arrive: valid at any number of looks and any stopping
    time.
    """


@monitor_command.command(
    "add",
    cls=SectionedCommand,
    epilog="\b\nExamples:\n"
    "  relfit monitor add monday.csv --item id --higher-is-better\n"
    "  relfit monitor add tuesday.csv --item id --gate new --html report.html",
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@section(
    "Input",
    STATE,
    opt(
        "--item COLUMN",
        "Column with the key of the item; a key that was counted before is refused.",
        required=True,
    ),
    opt(
        "--model COLUMN",
        "Column with the model: the tables then have a row for each model and item.",
    ),
    opt("--score COLUMN", "With --model, the column with the scores."),
)
@section(
    "Settings of a new file; an existing file keeps its settings",
    DIRECTION,
    BOUNDS,
    opt(
        "--outside",
        "What is done with scores outside of the bounds; ranks replaces all scores by their "
        "ranks within the item.  "
        f"[default: {OUTSIDE[0]}]",
        choices=OUTSIDE,
    ),
    opt(
        "--alpha LEVEL",
        "Probability that any best model is ever called significantly worse.  [default: 0.05]",
        type=float,
    ),
)
@section("Output", HTML, JSON)
@GATE
def add_command(files: Sequence[str], state: str, **params: Any) -> int:
    """Count the items of tables, once each, and print the confidence set for the best model.

    Each FILE is a .csv, .tsv, .json, .jsonl, Parquet or Arrow file with a row for each item
    and a column for each model. If one of them is refused, nothing is counted.
    """
    check_outputs({"state": state, **params})
    options = {name: params[name] for name in ("item", "model", "score", "higher_is_better")}
    read = [scores(file, **options) for file in files]
    given = {
        name: params[name]
        for name in ("bounds", "outside", "alpha")
        if params[name] is not None
    }
    direction = params["higher_is_better"]
    if direction is None and not Path(state).exists():
        (direction,) = {each.larger_is_better() for each in read}
        if params["json_path"] != "-":
            say(f"Note: {read[0].notes[0]}")
    if direction is not None:
        given["higher_is_better"] = direction
    tables = [each.by_item() for each in read]
    found = list(dict.fromkeys(name for each in read for name in each.names))
    with opened(state, found, given) as monitor:
        _check(params, monitor.names)
        columns = {
            name: np.concatenate(
                [held.get(name, np.full(len(items), np.nan)) for items, held in tables]
            )
            for name in found
        }
        monitor.update(columns, items=[key for items, _ in tables for key in items])
        return conclude_monitor(monitor, params)


@monitor_command.command(
    "status", cls=SectionedCommand, epilog="\b\nExample:\n  relfit monitor status --gate new"
)
@section("Input", STATE)
@section("Output", JSON)
@GATE
def status_command(state: str, **params: Any) -> int:
    """Print the confidence set for the best model after the items so far."""
    check_outputs({"state": state, **params})
    with Monitor.open(state) as monitor:
        return conclude_monitor(monitor, params)


@monitor_command.command(
    "report",
    cls=SectionedCommand,
    epilog="\b\nExample:\n  relfit monitor report --html report.html",
)
@section("Input", STATE)
@section("Output", opt("--html PATH", "The page.", dest="html_path", required=True))
@GATE
def report_command(state: str, **params: Any) -> int:
    """Write a page with the evidence and the confidence sequences over time, after a check
    of all items.
    """
    check_outputs({"state": state, **params})
    with Monitor.open(state) as monitor:
        return conclude_monitor(monitor, {**params, "json_path": None})


def _check(params: Mapping[str, Any], names: Sequence[str]) -> None:
    """Refuse a gate that cannot be answered, before anything is counted."""
    check_gate(params, names)
    if check_margin(params["margin"]) and params["gate"] is None:
        raise InputError(
            "--margin: expected together with --gate NAME, the model that must not be worse"
        )


def opened(state: str, found: Sequence[str], given: Mapping[str, Any]) -> Monitor:
    """The monitor of the file, or a new one of the models that were found."""
    if not Path(state).exists():
        return Monitor(found, path=state, **given)
    with Monitor.open(state) as monitor:
        held = monitor.settings()
    return Monitor(path=state, **{**held, **given})


def run_early_stopping(
    evals: Scores, given: Mapping[str, Any], seed: int
) -> tuple[Monitor, str | None]:
    """The scores of logs in random order, each model until it is out, and a sentence if one
    was left before the end.
    """
    count = len(evals.values)
    monitor = Monitor(
        evals.names, path=":memory:", higher_is_better=evals.larger_is_better(), **given
    )
    for k, names in monitor.rounds(np.random.default_rng(seed).permutation(count).tolist()):
        row = dict(zip(evals.names, evals.values[k].tolist(), strict=True))
        monitor.update({name: row[name] for name in names}, items=k)
    result = monitor.result()
    items = result.items
    used = int(result.scored.sum())
    total = int((~np.isnan(evals.values)).sum())
    if items == count:
        return monitor, None
    needed = (
        f"{used} of {total} scores were needed, and {1.0 - used / total:.0%} would have "
        f"been saved"
    )
    return monitor, f"One model is left after {items} of {count} items: {needed}."


def conclude_monitor(
    monitor: Monitor,
    params: Mapping[str, Any],
    sentence: str | None = None,
    doubts: Sequence[str] = (),
) -> int:
    """Print and write what was asked for, and return the exit status; with `doubts` the gate
    is an error.
    """
    from relfit.report.gate import judge_monitor

    _check(params, monitor.names)
    result = monitor.result()
    gate = None
    if params["gate"] is not None:
        given = {key: params[key] for key in ("against", "margin", "require")}
        gate = judge_monitor(result, params["gate"], doubts=doubts, **given)
    shown = () if sentence is None else (sentence,)
    return write_outputs(
        result, params, gate, shown=shown, page=lambda path: monitor.report(path, gate=gate)
    )
