"""Images, texts or cells behind rows: those a model produces too often, those it misses,
those most like the data.
"""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from relfit.data.encode import Encoding
from relfit.report.recall import MOST_COLUMNS, PanelData
from relfit.report.witness import RowContributions, Side, strongest
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
    originals = {name: data.copies.get(name, name) for name in data.names}
    sizes = {} if data.target is not None else {REFERENCE: recalled.sizes[None]}
    sizes |= {
        name: recalled.sizes[key] for name, key in originals.items() if key in recalled.sizes
    }
    for name in items:
        if name not in sizes:
            raise InputError(
                f"items: expected {REFERENCE!r} or the name of a model with a "
                f"sample, got {name!r}"
            )
    check_counts(items, sizes)
    for item in (
        item for listed in items.values() for item in listed if isinstance(item, os.PathLike)
    ):
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
    typical = differing.typical
    of_model = items.get(differing.name)
    of_reference = items.get(REFERENCE)
    shown = {}
    if differing.kind == "slope":
        side = differing.sides[0]
        of_side = of_reference if model is None else of_model
        if of_side is not None:
            shown["Least typical under the model"] = _highest(
                side, side.heights.values, of_side
            )
            shown["Most typical under the model"] = _highest(
                side, -side.heights.values, of_side
            )
        return shown
    if model is not None and typical is not None and of_model is not None:
        noise = "" if strongest(model, 1.0, 1) else _NOISE
        shown[f"Too frequent in the model{noise}"] = _highest(
            model, model.heights.values, of_model
        )
        shown["Most like the data"] = _highest(model, typical, of_model)
    if reference is not None and of_reference is not None:
        noise = "" if strongest(reference, -1.0, 1) else _NOISE
        rare = _highest(reference, -reference.heights.values, of_reference)
        shown[f"In the data, but too rare in the model{noise}"] = rare
    return shown


def _highest(side: Side, heights: Array, items: Sequence[Any] | Encoding) -> list[Example]:
    rows = np.argsort(-heights, kind="stable")[:SHOWN].tolist()
    if isinstance(items, Encoding):
        cells = (" · ".join(items.in_words(side.rows[k])) for k in rows)
        return [
            Example(f"row {side.numbers[k]}", None, _excerpt(text, ROW))
            for k, text in zip(rows, cells, strict=True)
        ]
    return [example(items[side.numbers[k]], int(side.numbers[k])) for k in rows]


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
        pixels = (
            item
            if item.dtype == np.uint8
            else (255.0 * np.clip(item, 0.0, 1.0)).round().astype(np.uint8)
        )
        return Example(name, _encoded(Image.fromarray(pixels)), None)
    if isinstance(item, os.PathLike):
        path = Path(item)
        return _from_file(path, f"{name}: {visible(path.name)}")
    return Example(name, None, _excerpt(str(item)))


def _from_file(path: Path, name: str) -> Example:
    if path.suffix.lower() == ".txt":
        try:
            return Example(
                name, None, _excerpt(path.read_text(encoding="utf-8", errors="replace"))
            )
        except OSError as error:
            return Example(name, None, f"cannot be read ({error.strerror})")
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

    width, height = image.size
    factor = PICTURE / max(width, height)
    way = Image.Resampling.NEAREST if factor > 1.0 else Image.Resampling.LANCZOS
    out = io.BytesIO()
    image.resize((max(1, round(width * factor)), max(1, round(height * factor))), way).save(
        out, "PNG", optimize=True
    )
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode("ascii")


def _excerpt(text: str, most: int = LETTERS) -> str:
    shown = visible(" ".join(text.split())) if text.strip() else "(empty)"
    return shown if len(shown) <= most else shown[: most - 1].rstrip() + "…"
