"""The scores behind mean losses: what each stratum says by itself, and the items on which a
worse model loses.

A result holds no scores, so they are given again, and `recall_scores` checks that they are
those of the result.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from relfit.api import decide
from relfit.data.scores import FEWEST_ITEMS, Scores, as_text, scores
from relfit.estimators.losses import from_losses
from relfit.report.examples import LETTERS
from relfit.report.figures import signed
from relfit.results.comparison import Comparison
from relfit.results.grade import BEST, GRADES, OPEN, SAME
from relfit.results.table import number_format, short_names
from relfit.results.words import is_worse, used_test
from relfit.util.arrays import Array
from relfit.util.errors import InputError
from relfit.util.text import visible

# What is shown: models and strata of the heat map, worse models, and items of each of them.
MOST_MODELS = 20
MOST_STRATA = 60
MOST_WORSE = 3
MOST_ITEMS = 10
_FIRST = (BEST.kind, SAME.kind)


def recall_scores(comparison: Comparison, data: Any) -> Scores:
    """The scores of this result, given as `Comparison.report` says; others are refused."""
    read = scores(data).common()
    digest = (comparison.inputs or {}).get("reference")
    same = read.names == comparison.names and comparison.sizes in (None, (len(read.values),))
    if not same or digest not in (None, read.digest()):
        raise InputError(
            "data: expected the scores this result was made from, got other models, items or "
            "values; give what "
            "compare_losses was given, read by relfit.scores with the same options"
        )
    return read


@dataclass(frozen=True)
class StratumRow:
    """What one stratum says by itself.

    Attributes:
        name: its label; None for all strata together, whose verdicts are those of the result.
        items: how many there are.
        tested: False if there are fewer than 20 items or groups, or their scores cannot be
            tested.
        means: each model's mean score, in the order of the result's table.
        kinds: "best" for the best mean, otherwise the kind of the grade in this stratum alone.
    """

    name: str | None
    items: int
    tested: bool
    means: Array
    kinds: tuple[str, ...]


def stratum_rows(comparison: Comparison, table: Scores) -> list[StratumRow]:
    """All strata together, then each one, decided on its own items by the result's test at
    its level.

    Of many models the first of the result's table are compared. There are no rows without
    strata.
    """
    if table.strata is None:
        return []
    labels, codes = np.unique(table.strata, return_inverse=True)
    chosen = [comparison.names.index(row["name"]) for row in comparison.rows()[:MOST_MODELS]]
    grades: tuple[str, ...] | None = tuple(comparison.grade[i] for i in chosen)
    rows = [_row(comparison, None, len(codes), comparison.discrepancy[chosen], grades)]
    for code, label in enumerate(labels.tolist()[:MOST_STRATA]):
        part = table.at(codes.ravel() == code)
        names = tuple(comparison.names[i] for i in chosen)
        part = replace(
            part,
            names=names,
            values=part.values[:, chosen],
            strata=None,
            weights=None,
            notes=(),
        )
        means = part.values.mean(axis=0)
        grades = _grades(comparison, part)
        rows.append(_row(comparison, as_text(label), len(part.values), means, grades))
    return rows


def _row(
    comparison: Comparison,
    name: str | None,
    items: int,
    means: Array,
    grades: tuple[str, ...] | None,
) -> StratumRow:
    best = means == (means.max() if comparison.higher_is_better else means.min())
    found = (
        [OPEN.kind] * len(means) if grades is None else [GRADES[grade].kind for grade in grades]
    )
    # A model that is level with the best one is the best as well.
    kinds = [
        BEST.kind if first else OPEN.kind if kind in _FIRST else kind
        for first, kind in zip(best, found, strict=True)
    ]
    return StratumRow(name, items, grades is not None, means, tuple(kinds))


def _grades(comparison: Comparison, part: Scores) -> tuple[str, ...] | None:
    """The grades on these items alone; None if that cannot be tested."""
    if len(part.values if part.groups is None else np.unique(part.groups)) < FEWEST_ITEMS:
        return None
    same: dict[str, Any] = {name: getattr(comparison, name) for name in ("alpha", "correction")}
    same["margin"] = comparison.margin * comparison.unit
    try:
        joint = from_losses(replace(part, higher_is_better=comparison.higher_is_better))
        return decide(joint, test=used_test(comparison), rng=comparison.seed or 0, **same).grade
    except InputError:
        return None


def heat_map(comparison: Comparison, table: Scores) -> dict[str, Any] | None:
    """The models by strata, the better the deeper in colour, as the page draws them; None
    without strata.
    """
    rows = stratum_rows(comparison, table)
    if not rows:
        return None
    means = np.stack([row.means for row in rows])
    width = float(np.ptp(means))
    number = number_format([width / 2.0], means.ravel().tolist())
    dark = 100.0 * ((means - means.min()) / width if width else np.ones_like(means))
    dark = dark if comparison.higher_is_better or not width else 100.0 - dark
    written = [[signed(number(mean)) for mean in row.means.tolist()] for row in rows]
    labels = [f"all {table.part[1]}", *short_names([row.name or "" for row in rows[1:]])]
    return {
        "models": [row["name"] for row in comparison.rows()[:MOST_MODELS]],
        "rows": [
            (label, row, list(zip(numbers, row.kinds, darkness, strict=True)))
            for label, row, numbers, darkness in zip(
                labels, rows, written, dark.round().tolist(), strict=True
            )
        ],
        "tests": sum(row.tested for row in rows[1:]),
        "more_models": max(0, len(comparison.names) - MOST_MODELS),
        "more_strata": max(0, len(np.unique(table.strata)) - MOST_STRATA),  # type: ignore[arg-type]
    }


@dataclass(frozen=True)
class Contrast:
    """A model that was declared worse, one that beats it, and the items on which it does.

    Attributes:
        ahead, behind: on how many items `better` does better, and on how many `worse` does.
        binary: True if the scores are 0 or 1: the model then passes or fails.
        items: some of the items: stratum, item, both scores, and the prompt if it is known.
    """

    worse: str
    better: str
    ahead: int
    behind: int
    binary: bool
    items: tuple[dict[str, Any], ...]


def contrasts(
    comparison: Comparison, table: Scores, first: str | None = None
) -> list[Contrast]:
    """At most three models that were declared worse: `first` if it is one, and those nearest
    to the best.

    There are none for a judge whom people corrected, since the scores alone do not decide then.
    """
    if table.labels is not None:
        return []
    found = [row["name"] for row in comparison.rows() if is_worse(row)]
    worse = sorted(found, key=lambda name: bool(name != first))
    beaters = dict(zip(comparison.names, comparison.beaten_by or (), strict=False))
    return [
        _contrast(comparison, table, name, beaters.get(name) or comparison.best)
        for name in worse[:MOST_WORSE]
    ]


def _contrast(comparison: Comparison, table: Scores, worse: str, better: str) -> Contrast:
    """The clearest items first; of those that are as clear, one of each stratum in turn."""
    lost, won = (table.values[:, table.names.index(name)] for name in (worse, better))
    gaps = won - lost if comparison.higher_is_better else lost - won
    ahead = sorted(np.flatnonzero(gaps > 0.0).tolist(), key=lambda k: -gaps[k])
    strata = {k: None if table.strata is None else as_text(table.strata[k]) for k in ahead}
    seen = Counter[str | None]()
    turns = {}
    for k in ahead:
        turns[k] = seen[strata[k]]
        seen[strata[k]] += 1
    items = []
    for k in sorted(ahead, key=lambda k: (-gaps[k], turns[k]))[:MOST_ITEMS]:
        item = f"row {k}" if table.items is None else as_text(table.items[k])
        texts = {
            "stratum": strata[k],
            "item": item,
            "prompt": None if table.prompts is None else table.prompts[k],
        }
        shown = {name: None if text is None else ending(text) for name, text in texts.items()}
        items.append({**shown, "worse": float(lost[k]), "better": float(won[k])})
    binary = bool(np.isin([lost, won], (0.0, 1.0)).all())
    return Contrast(worse, better, len(ahead), int((gaps < 0.0).sum()), binary, tuple(items))


def ending(text: str) -> str:
    """The text on one line; of a long one the end, since solved examples often stand before
    a question.

    >>> ending("2 + 2   = ?"), ending("x" * 999)[:3], len(ending("x" * 999)) == LETTERS
    ('2 + 2 = ?', '…xx', True)
    """
    shown = visible(" ".join(text.split()))
    return shown if len(shown) <= LETTERS else "…" + shown[1 - LETTERS :].lstrip()
