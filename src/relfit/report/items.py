"""The items behind a verdict: scores within each stratum, the items on which a worse model
loses, and images, texts or cells behind rows.

A result holds no scores, so they are given again, and `recall_scores` checks that they are
those of the result. Of rows, those are shown that a model produces too often, those that it
misses, and those most like the data.
"""

from __future__ import annotations

import base64
import io
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from relfit.api import decide
from relfit.data.encode import Encoding
from relfit.data.scored import FEWEST_ITEMS, Scores, as_text
from relfit.data.scores import scores
from relfit.estimators.holes import additive_means
from relfit.estimators.losses import from_losses
from relfit.report.figures import signed
from relfit.report.recall import MOST_COLUMNS, PanelData
from relfit.report.witness import RowContributions, Side, strongest
from relfit.results.comparison import Comparison
from relfit.results.scale import is_worse
from relfit.results.table import number_format, short_names
from relfit.results.words import used_test
from relfit.util.arrays import Array
from relfit.util.errors import InputError
from relfit.util.files import IMAGE_FORMATS, MOST_PIXELS, note_read
from relfit.util.text import visible

REFERENCE = "reference"
SHOWN = 4
# Pixels along the longer side of a picture in the page, letters of a text, and letters of a row
# of a table.
PICTURE = 96
LETTERS = 240
ROW = 800
# What is added to a title where not even the strongest row is clear of its error.
_NOISE = " (within the noise)"


# What is shown: models and strata of the heat map, worse models, and items of each of them.
MOST_MODELS = 20
MOST_STRATA = 60
MOST_WORSE = 3
MOST_ITEMS = 10


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
        kinds: "best" for the best mean, otherwise the kind of the verdict on this stratum.
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
    kinds: tuple[str, ...] | None = tuple(comparison.kinds[i] for i in chosen)
    rows = [_row(comparison, None, len(codes), comparison.discrepancy[chosen], kinds)]
    for code, label in enumerate(labels.tolist()[:MOST_STRATA]):
        part = table.at(codes.ravel() == code).of(chosen)
        values = part.values
        alone = replace(part, strata=None, weights=None, notes=())
        kinds = _kinds(comparison, alone)
        holes = np.isnan(values).any()
        means = additive_means(values, None)[0] if holes else values.mean(axis=0)
        rows.append(_row(comparison, as_text(label), len(values), means, kinds))
    return rows


def _row(
    comparison: Comparison,
    name: str | None,
    items: int,
    means: Array,
    kinds: tuple[str, ...] | None,
) -> StratumRow:
    best = means == (means.max() if comparison.higher_is_better else means.min())
    found = kinds or ("open",) * len(means)
    # A model that is level with the best one is best observed, too.
    shown = [
        "best" if first else "open" if kind == "best" else kind
        for first, kind in zip(best, found, strict=True)
    ]
    return StratumRow(name, items, kinds is not None, means, tuple(shown))


def _kinds(comparison: Comparison, part: Scores) -> tuple[str, ...] | None:
    """The kinds of the verdicts on these items; None if they cannot be tested."""
    if len(part.values if part.groups is None else np.unique(part.groups)) < FEWEST_ITEMS:
        return None
    scored = replace(part, higher_is_better=comparison.higher_is_better)
    try:
        return decide(
            from_losses(scored),
            test=used_test(comparison),
            alpha=comparison.alpha,
            correction=comparison.correction,
            margin=comparison.margin * comparison.unit,
            rng=comparison.seed or 0,
        ).kinds
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
    dark = (means - means.min()) / width if width else np.ones_like(means)
    if width and not comparison.higher_is_better:
        dark = 1.0 - dark
    darkness = (100.0 * dark).round().tolist()
    labels = [f"all {table.part[1]}", *short_names([row.name or "" for row in rows[1:]])]
    drawn = []
    for label, row, shades in zip(labels, rows, darkness, strict=True):
        numbers = [signed(number(mean)) for mean in row.means.tolist()]
        drawn.append((label, row, list(zip(numbers, row.kinds, shades, strict=True))))
    return {
        "models": [row["name"] for row in comparison.rows()[:MOST_MODELS]],
        "rows": drawn,
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
    found = [row["name"] for row in comparison.rows() if is_worse(row["verdict"])]
    found.sort(key=lambda name: bool(name != first))
    beaters = dict(zip(comparison.names, comparison.beaten_by or (), strict=False))
    return [
        _contrast(comparison, table, name, beaters.get(name) or comparison.best)
        for name in found[:MOST_WORSE]
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
        texts = {
            "stratum": strata[k],
            "item": f"row {k}" if table.items is None else as_text(table.items[k]),
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


# ── images, texts and cells behind rows ───────────────────────────────────────────────────────


@dataclass(frozen=True)
class Example:
    """One item: a picture (as a data address) or a text, and what it is called."""

    name: str
    picture: str | None
    text: str | None


Items = Mapping[str, Sequence[Any]]


def check_items(items: Any, recalled: PanelData) -> Items:
    """The items of the reference and of models: one per row of the sample, each a file, an
    image or a text.
    """
    if not isinstance(items, Mapping):
        raise InputError(
            f"items: expected a mapping of names to lists of files or texts, got "
            f"{type(items).__name__}"
        )
    data = recalled.data
    sizes = {} if data.target is not None else {REFERENCE: recalled.sizes[None]}
    for name in data.names:
        original = recalled.original(name)
        if original in recalled.sizes:
            sizes[name] = recalled.sizes[original]
    for name in items:
        if name not in sizes:
            raise InputError(
                f"items: expected {REFERENCE!r} or the name of a model with a "
                f"sample, got {name!r}"
            )
    check_counts(items, sizes)
    for listed in items.values():
        for item in listed:
            if isinstance(item, os.PathLike):
                note_read(item)
    return items


def check_counts(items: Items, sizes: Mapping[str, int]) -> None:
    """Refuse another number of items than of rows, where that is known."""
    for name, listed in items.items():
        if name in sizes and len(listed) != sizes[name]:
            raise InputError(
                f"items of {name!r}: expected one for each of its {sizes[name]} "
                f"rows, got {len(listed)}"
            )


def table_items(recalled: PanelData) -> dict[str, Encoding]:
    """For rows of a table, what tells their cells from their numbers; none where columns
    have no names or are many.
    """
    data = recalled.data
    if data.encoding is None or len(data.encoding.columns) > MOST_COLUMNS:
        return {}
    columns = data.encoding.columns
    if data.kind != "samples":  # rows that go with densities are as they were given
        columns = tuple(replace(column, centre=0.0, scale=1.0) for column in columns)
    return dict.fromkeys((REFERENCE, *data.names), replace(data.encoding, columns=columns))


def example_rows(
    differing: RowContributions, items: Mapping[str, Any]
) -> dict[str, list[Example]]:
    """What can be shown of one model with the items given: some of them under each heading."""
    model = differing.model
    reference = differing.reference
    of_model = items.get(differing.name)
    of_reference = items.get(REFERENCE)
    shown = {}
    if differing.typical is None:
        side = differing.sides[0]
        of_side = of_reference if model is None else of_model
        if of_side is not None:
            heights = side.heights.values
            shown["Least typical under the model"] = _highest(side, heights, of_side)
            shown["Most typical under the model"] = _highest(side, -heights, of_side)
        return shown
    if model is not None and of_model is not None:
        noise = "" if strongest(model, 1.0, 1) else _NOISE
        many = _highest(model, model.heights.values, of_model)
        shown[f"Too frequent in the model{noise}"] = many
        shown["Most like the data"] = _highest(model, differing.typical, of_model)
    if reference is not None and of_reference is not None:
        noise = "" if strongest(reference, -1.0, 1) else _NOISE
        rare = _highest(reference, -reference.heights.values, of_reference)
        shown[f"In the data, but too rare in the model{noise}"] = rare
    return shown


def _highest(side: Side, heights: Array, items: Sequence[Any] | Encoding) -> list[Example]:
    shown = []
    for k in np.argsort(-heights, kind="stable")[:SHOWN].tolist():
        number = int(side.numbers[k])
        if isinstance(items, Encoding):
            cells = " · ".join(items.in_words(side.rows[k]))
            shown.append(Example(f"row {number}", None, _excerpt(cells, ROW)))
        else:
            shown.append(example(items[number], number))
    return shown


def example(item: Any, number: int) -> Example:
    """An array (grey h×w or h×w×3, of 0..1 or bytes), a file, or a text.

    >>> example("a short text", 7)
    Example(name='row 7', picture=None, text='a short text')
    """
    name = f"row {number}"
    if isinstance(item, np.ndarray):
        from PIL import Image

        if item.ndim not in (2, 3) or (item.ndim == 3 and item.shape[2] != 3):
            raise InputError(
                f"items: expected images of shape (h, w) or (h, w, 3), got {item.shape}"
            )
        if item.dtype != np.uint8:
            item = (255.0 * np.clip(item, 0.0, 1.0)).round().astype(np.uint8)
        return Example(name, _encoded(Image.fromarray(item)), None)
    if isinstance(item, os.PathLike):
        path = Path(item)
        return _from_file(path, f"{name}: {visible(path.name)}")
    return Example(name, None, _excerpt(str(item)))


def _from_file(path: Path, name: str) -> Example:
    if path.suffix.lower() == ".txt":
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            return Example(name, None, f"cannot be read ({error.strerror})")
        return Example(name, None, _excerpt(text))
    try:
        from PIL import Image

        with Image.open(path, formats=IMAGE_FORMATS) as image:
            if image.size[0] * image.size[1] > MOST_PIXELS:
                return Example(name, None, "too large to show")
            return Example(name, _encoded(image.convert("RGB")), None)
    except Exception as error:  # noqa: BLE001  (a damaged file makes its decoder raise anything)
        return Example(name, None, f"cannot be shown ({type(error).__name__})")


def _encoded(image: Any) -> str:
    """The picture as a PNG in the address itself; tiny ones are enlarged without blurring."""
    from PIL import Image

    factor = PICTURE / max(image.size)
    way = Image.Resampling.NEAREST if factor > 1.0 else Image.Resampling.LANCZOS
    size = [max(1, round(side * factor)) for side in image.size]
    out = io.BytesIO()
    image.resize(size, way).save(out, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode("ascii")


def _excerpt(text: str, most: int = LETTERS) -> str:
    shown = visible(" ".join(text.split())) if text.strip() else "(empty)"
    return shown if len(shown) <= most else shown[: most - 1].rstrip() + "…"
