"""How runs were made: shots, task version, prompts, chat template, generation settings. Differences are doubts."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

from relfit.data.evals.base import Log
from relfit.util.text import is_text, listed, visible

# Letters of a value, and keys of a setting that has several, that a message shows.
LONGEST_VALUE, MOST_KEYS = 40, 4
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


def differences(logs: Sequence[Log], allowed: Collection[str]) -> tuple[list[str], list[str]]:
    """A note on each setting in which the runs on a task differ, and which of the notes are doubts."""
    by_task: dict[str, list[Log]] = {}
    for log in logs:
        by_task.setdefault(log.task, []).append(log)
    notes: list[str] = []
    doubts: list[str] = []
    for setting, words in SETTINGS.items():
        found = {task: _values(held, setting) for task, held in by_task.items()}
        if setting == "prompts":
            found = {task: found[task] or _other_prompts(held) for task, held in by_task.items()}
        differing = {task: values for task, values in found.items() if values}
        if not differing:
            continue
        task, values = next(iter(differing.items()))
        where = f" on {task}" if len(by_task) > 1 else ""
        more = len(differing) - 1
        where += f" and {more} more {'task' if more == 1 else 'tasks'}" if more else ""
        note = f"the runs differ in {words}{where}: {visible(values)}"
        if setting not in allowed:
            note += (
                "; differences between models may come from this setting: run all models alike, or pass "
                f"allow_different={setting!r}"
            )
            doubts.append(note)
        notes.append(note)
    return notes, doubts


def _values(logs: Sequence[Log], setting: str) -> str:
    """The values of a setting with the models that have them, "" if they are all the same or not recorded."""
    recorded = [(log.model, log.settings[setting]) for log in logs if setting in log.settings]
    if len({_as_text(value) for _, value in recorded}) < 2:
        return ""
    if not all(value is None or isinstance(value, dict) for _, value in recorded):
        return _by_value(recorded)
    keys = dict.fromkeys(key for _, value in recorded for key in value or ())
    parts = {key: [(model, (value or {}).get(key)) for model, value in recorded] for key in keys}
    shown = [f"{key} {_by_value(part)}" for key, part in parts.items() if len({_as_text(v) for _, v in part}) > 1]
    return "; ".join([*shown[:MOST_KEYS], *(["…"] if len(shown) > MOST_KEYS else [])])


def _by_value(recorded: Sequence[tuple[str, Any]]) -> str:
    """Such as "0 (small and medium), 5 (large)"."""
    models: dict[str, list[str]] = {}
    for model, value in recorded:
        models.setdefault(_as_text(value), []).append(model)
    return ", ".join(f"{_short(text)} ({listed(held, most=3, quote=str)})" for text, held in models.items())


def _as_text(value: Any) -> str:
    if value is None or is_text(value):
        return value or "none"
    try:
        return json.dumps(value, sort_keys=True, default=str)
    except RecursionError:
        return "deeply nested"


def _short(text: str) -> str:
    """The beginning of a long text; eight digits of a hash."""
    if len(text) == 64 and set(text) <= set("0123456789abcdef"):
        return text[:8]
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"


def _other_prompts(logs: Sequence[Log]) -> str:
    """How many items of a task were put in other words than in its first run, for the first run of which that is so.

    A run that differs in another setting of the prompt is not counted: that setting has a note of its own.
    """
    first, *others = logs
    asked = {each.item: each.asked for each in first.scores if each.asked}
    for log in others:
        explained = any(
            _as_text(log.settings[setting]) != _as_text(first.settings[setting])
            for setting in ("shots", "version", "chat-template", "system")
            if setting in log.settings and setting in first.settings
        )
        both = [each for each in log.scores if each.asked and each.item in asked]
        count = sum(each.asked != asked[each.item] for each in both)
        if count and not explained:
            return f"{count} of {len(both)} items have another prompt in {log.model} than in {first.model}"
    return ""
