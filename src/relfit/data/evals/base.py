"""What all formats of evaluation logs share: the `EvalFormat` record, and what is read of a
log.
"""

from __future__ import annotations

import hashlib
import json
import math
import reprlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from relfit.data.files.text import kind_of
from relfit.util.errors import InputError
from relfit.util.text import is_text, listed, visible

LONGEST_PROMPT = 4000  # letters that are kept
UNSCORED = math.nan
# Letters of a value, and keys of a setting that has several, that a message shows.
LONGEST_VALUE = 40
MOST_KEYS = 4
# An object of JSON.
Record = dict[str, Any]
# What runs can differ in, by the name that allows it, and in words.
SETTINGS = {
    "shots": "the number of shots",
    "version": "the task version",
    "arguments": "the task arguments",
    "solver": "the solvers and their prompts",
    "chat-template": "the chat template",
    "system": "the system instruction",
    "generation": "the generation settings",
    "prompts": "the prompts",
}


@dataclass(frozen=True)
class Wanted:
    """What is read of the logs: tasks by name or pattern (None: all), a metric and a filter
    (None: the first).

    `held` keeps what several logs have in common, such as the results file of a run, so that
    it is read once.
    """

    tasks: tuple[str, ...] | None = None
    metric: str | None = None
    filter: str | None = None
    held: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    def takes(self, task: str) -> bool:
        """True if the task is wanted; ``mmlu_*`` is a pattern."""
        return self.tasks is None or any(
            task == each or fnmatchcase(task, each) for each in self.tasks
        )


@dataclass(frozen=True)
class Scored:
    """One score: NaN if the item was not scored. Equal `check` means that two runs had the
    same question.

    Equal `asked` means that it was put to the model in the same words; "" is not known.
    `output` is what the model answered, None if the log does not have it.
    """

    item: str
    score: float
    epoch: int = 1
    check: str = ""
    prompt: str | None = None
    asked: str = ""
    output: str | None = None


@dataclass(frozen=True)
class Log:
    """The scores of one model on one task, from one file.

    `metrics` are all that the log has; `higher_is_better` is None where the log does not say
    it. `settings` has what the log records of how the run was made (see
    `SETTINGS`), None for none. Later runs have a larger `date`, "" is not known.
    `unfinished` says why the run is not complete, "" if it is. `board` is the mean score that
    the summary of the run has.
    """

    path: Path
    model: str
    task: str
    metric: str
    scores: Sequence[Scored]
    higher_is_better: bool | None = None
    metrics: Sequence[str] = ()
    notes: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    date: str = ""
    unfinished: str = ""
    board: float | None = None


@dataclass(frozen=True)
class EvalFormat:
    """A format of logs: its name, how its files are recognised by name and by their first
    bytes, and its reader.
    """

    name: str
    is_log: Callable[[Path, bytes], bool]
    read: Callable[[Path, Wanted], Iterable[Log]]


def dict_at(record: Any, key: str) -> Record:
    """The object under a key; an empty one if there is none."""
    value = record.get(key) if isinstance(record, dict) else None
    return value if isinstance(value, dict) else {}


def list_at(record: Any, key: str) -> list[Any]:
    """The list under a key; an empty one if there is none."""
    value = record.get(key) if isinstance(record, dict) else None
    return value if isinstance(value, list) else []


def text_at(record: Any, key: str) -> str:
    """The text under a key; "" if there is none."""
    value = record.get(key) if isinstance(record, dict) else None
    return value if is_text(value) else ""


def text_of(where: str, record: Any, key: str) -> str:
    """The text under a key, which must be there; a whole number counts as text, because some
    logs number their items.
    """
    value = record.get(key) if isinstance(record, dict) else None
    whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**18
    text = str(value) if whole else text_at(record, key)
    if not text:
        came = "nothing" if value is None else reprlib.repr(value)
        raise InputError(f"{where}: expected text in {key!r}, got {came}")
    return text


def score_of(where: str, metric: str, value: Any) -> float:
    """A score as a number: true is 1, null and NaN are unscored, and a list of true and
    false is its mean.
    """
    if value is None:
        return UNSCORED
    if isinstance(value, list) and value and all(isinstance(part, bool) for part in value):
        return sum(value) / len(value)
    if not isinstance(value, int | float):
        why = (
            ": it is computed from the whole task, and single items have no score"
            if isinstance(value, list)
            else ""
        )
        raise InputError(
            f"{where}: expected a number for {metric!r}, got "
            f"{kind_of(value)}{why}; choose another metric"
        )
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if math.isinf(number):
        raise InputError(
            f"{where}: expected a finite number for {metric!r}, got {number}; "
            f"choose another metric"
        )
    return number


def chosen(
    path: Path, what: str, names: Collection[str], wanted: str | None, default: str
) -> str:
    """The metric or the filter that is wanted, which must be there, or else the default."""
    if wanted is not None and wanted not in names:
        raise InputError(
            f"{what}: expected {listed(list(names), 'or', most=8, quote=repr)} "
            f"in {path}, got {wanted!r}"
        )
    return default if wanted is None else wanted


def digest(text: str | None) -> str:
    """A short stand-in for a text, by which questions are compared; "" for none."""
    return (
        ""
        if text is None
        else hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    )


def shortened(prompt: Any) -> str | None:
    """The end of a prompt, where the question is after solved examples; None if it is no
    text.
    """
    if not isinstance(prompt, str) or not prompt.strip():
        return None
    text = prompt if len(prompt) <= LONGEST_PROMPT else f"…{prompt[-LONGEST_PROMPT:]}"
    return text.encode("utf-8", "replace").decode("utf-8")


# ── how runs were made ────────────────────────────────────────────────────────────────────────


def differences(logs: Sequence[Log], allowed: Collection[str]) -> tuple[list[str], list[str]]:
    """A note on each setting in which the runs on a task differ, and which of the notes are
    doubts.
    """
    by_task: dict[str, list[Log]] = {}
    for log in logs:
        by_task.setdefault(log.task, []).append(log)
    notes: list[str] = []
    doubts: list[str] = []
    for setting, words in SETTINGS.items():
        found = {task: _values(held, setting) for task, held in by_task.items()}
        differing = {task: values for task, values in found.items() if values}
        if not differing:
            continue
        task, values = next(iter(differing.items()))
        where = f" on {task}" if len(by_task) > 1 else ""
        more = len(differing) - 1
        if more:
            where += f" and {more} more {'task' if more == 1 else 'tasks'}"
        note = f"the runs differ in {words}{where}: {visible(values)}"
        if setting not in allowed:
            note += (
                "; differences between models may come from this setting: run all models "
                f"alike, or pass allow_different={setting!r}"
            )
            doubts.append(note)
        notes.append(note)
    return notes, doubts


def _values(logs: Sequence[Log], setting: str) -> str:
    """The values of a setting with the models that have them, "" if they are all the same or
    not recorded.
    """
    recorded = [(log.model, log.settings[setting]) for log in logs if setting in log.settings]
    whole = _by_value(recorded)
    if not whole and setting == "prompts":
        return _other_prompts(logs)
    if not whole or not all(value is None or isinstance(value, dict) for _, value in recorded):
        return whole
    shown = []
    for key in dict.fromkeys(key for _, value in recorded for key in value or ()):
        part = _by_value([(model, (value or {}).get(key)) for model, value in recorded])
        if part:
            shown.append(f"{key} {part}")
    return "; ".join([*shown[:MOST_KEYS], *(["…"] if len(shown) > MOST_KEYS else [])])


def _by_value(recorded: Sequence[tuple[str, Any]]) -> str:
    """Such as "0 (small and medium), 5 (large)"; "" for a single value."""
    models: dict[str, list[str]] = {}
    for model, value in recorded:
        models.setdefault(_as_text(value), []).append(model)
    if len(models) < 2:
        return ""
    return ", ".join(
        f"{_cut_value(text)} ({listed(held, most=3, quote=str)})"
        for text, held in models.items()
    )


def _as_text(value: Any) -> str:
    if value is None or is_text(value):
        return value or "none"
    try:
        return json.dumps(value, sort_keys=True, default=str)
    except RecursionError:
        return "deeply nested"


def _cut_value(text: str) -> str:
    """The beginning of a long text; eight digits of a hash."""
    if len(text) == 64 and set(text) <= set("0123456789abcdef"):
        return text[:8]
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"


def _other_prompts(logs: Sequence[Log]) -> str:
    """How many items of a task were put in other words than in its first run, for the first
    run of which that is so.

    A run that differs in another setting of the prompt is not counted: that setting has a
    note of its own.
    """
    first, *others = logs
    asked = {each.item: each.asked for each in first.scores if each.asked}
    for log in others:
        explained = any(
            _values([first, log], setting)
            for setting in ("shots", "version", "chat-template", "system")
        )
        both = [each for each in log.scores if each.asked and each.item in asked]
        count = sum(each.asked != asked[each.item] for each in both)
        if count and not explained:
            return (
                f"{count} of {len(both)} items have another prompt in {log.model} than in "
                f"{first.model}"
            )
    return ""
