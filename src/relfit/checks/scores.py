"""What could make a table of scores, or the logs that it is from, say something else than how
good the models are.
"""

from __future__ import annotations

from collections import Counter
from hashlib import sha256

import numpy as np

from relfit.checks.base import Findings, ScoredItems
from relfit.data.scored import FEWEST_ITEMS
from relfit.util.arrays import Array
from relfit.util.text import listed, quoted

# A model that gives one output to this part of the items, or more, may not have read them.
SAME_OUTPUT = 0.9
# Empty outputs scored 0, and items whose prompt another item has, from this part on have a note.
FEW = 0.01
# Of fewer items than this that some model solves and another does not there is a note, as a
# part of all items, for so many models or more.
TELLING = 0.5
FEWEST_MODELS = 3
# Two models that agree on all items agree by chance if nearly all their scores are the same.
FEWEST_OTHERS = 10
# The number of a board and the mean of its items may differ by rounding.
BOARD_ROUNDING = 0.005


def saturated(audited: ScoredItems) -> Findings:
    """A note if most items have one score of all models."""
    values = audited.scores.values
    if values.shape[1] < FEWEST_MODELS:
        return Findings()
    with_scores = (~np.isnan(values)).sum(axis=1) > 1
    spread = np.nanmax(values[with_scores], axis=1) - np.nanmin(values[with_scores], axis=1)
    n = len(spread)
    telling = int((spread > 0.0).sum())
    if telling >= TELLING * n:
        return Findings()
    return _note(
        f"only {telling} of {n} items tell models apart; all models have the same score on "
        f"the others, which may be too easy, too hard, or wrongly scored"
    )


def constant_scores(audited: ScoredItems) -> Findings:
    """A note on models with one score on all items."""
    scores = audited.scores
    found = []
    for name, column in zip(scores.names, scores.values.T, strict=True):
        known = column[~np.isnan(column)]
        if len(known) and known.min() == known.max():
            found.append(f"{quoted(name)} ({known[0] * scores.unit:g})")
    if not found:
        return Findings()
    return _note(
        f"one score on every item: {listed(found, quote=str)}; check that the answers were "
        f"scored, and that errors were not scored as wrong answers"
    )


def equal_scores(audited: ScoredItems) -> Findings:
    """A note on models with the same score on every item, unless nearly all are alike."""
    scores = audited.scores
    places: dict[bytes, list[int]] = {}
    for j, column in enumerate(scores.values.T):
        digest = sha256(np.ascontiguousarray(column).tobytes()).digest()
        places.setdefault(digest, []).append(j)
    found = [
        listed([scores.names[j] for j in same])
        for same in places.values()
        if len(same) > 1 and _others(scores.values[:, same[0]]) >= FEWEST_OTHERS
    ]
    if not found:
        return Findings()
    return _note(
        f"the same score on every item: {listed(found, 'as well as', quote=str)}; check that "
        f"they are different models and not one log under two names"
    )


def _others(column: Array) -> int:
    """How many scores differ from the most frequent one."""
    known = column[~np.isnan(column)]
    if not len(known):
        return 0
    counts = np.unique(known, return_counts=True)[1]
    return int(len(known) - counts.max())


def repeated_outputs(audited: ScoredItems) -> Findings:
    """A note on models that give one output to nearly all items, and on empty outputs that
    count as wrong answers.
    """
    outputs = audited.scores.outputs
    if outputs is None:
        return Findings()
    scores = audited.scores
    notes = []
    for name, column, values in zip(scores.names, outputs.T, scores.values.T, strict=True):
        known = [text for text in column if text is not None]
        if len(known) < FEWEST_ITEMS:
            continue
        text, times = Counter(known).most_common(1)[0]
        if times >= SAME_OUTPUT * len(known):
            shown = repr(text if len(text) <= 40 else f"{text[:40]}…")
            notes.append(
                f"{quoted(name)} has one output, {shown}, for {times} of {len(known)} items: "
                f"its scores may say more about how they are made than about the model"
            )
            continue
        empty = [value for text, value in zip(column, values, strict=True) if text == ""]
        zero = sum(value == 0.0 for value in empty)
        if zero >= FEW * len(known):
            notes.append(
                f"{zero} of {len(known)} outputs of {quoted(name)} are empty and have the score "
                f"0: if they are errors of the run, run it again or remove those scores"
            )
    return Findings(tuple(notes), tuple(notes))


def repeated_items(audited: ScoredItems) -> Findings:
    """A note on items whose prompt another item of their stratum has."""
    scores = audited.scores
    if scores.prompts is None:
        return Findings()
    strata = [None] * len(scores.prompts) if scores.strata is None else scores.strata.tolist()
    asked = [
        (stratum, text)
        for stratum, text in zip(strata, scores.prompts.tolist(), strict=True)
        if text
    ]
    copies = len(asked) - len(set(asked))
    if copies < max(1.0, FEW * len(scores.prompts)):
        return Findings()
    return _note(
        f"{copies} of {len(scores.prompts)} items have the same prompt as another item, and "
        f"are counted as independent: remove copies, or pass the prompts as groups="
    )


def board_numbers(audited: ScoredItems) -> Findings:
    """A doubt where the number that a log's own summary has is not the mean of its items."""
    notes = [
        f"{task}: the results file has {board:.4g} for {quoted(name)} and the mean of the "
        f"{count} items in the log is {mean:.4g}: the log and the results are not of one run"
        for task, name, board, mean, count in audited.scores.boards
        if abs(board - mean) > BOARD_ROUNDING * max(1.0, abs(mean))
    ]
    return Findings(tuple(notes), tuple(notes))


def _note(text: str) -> Findings:
    return Findings((text,))
