"""The items to extract features from: images or texts of a folder, or of a file with one
text or JSON object per line.

Any of these files may be broken or hostile.
"""

from __future__ import annotations

import io
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relfit.data.files.base import check_plain
from relfit.data.files.text import json_lines
from relfit.features.base import Kind, library
from relfit.util.errors import InputError
from relfit.util.files import IMAGE_FORMATS, MOST_PIXELS, note_read
from relfit.util.libraries import without_warnings
from relfit.util.text import is_text, listed

# A tiny file that claims many pixels keeps a decoder busy for long: an image of more than
# LARGE_PIXELS may have at most PIXELS_PER_BYTE for each byte of its file.
LARGE_PIXELS = 16_000_000
PIXELS_PER_BYTE = 10_000
SUFFIXES = frozenset(
    {".bmp", ".gif", ".jpg", ".jpeg", ".png", ".pgm", ".ppm", ".tif", ".tiff", ".webp"}
)


@dataclass(frozen=True)
class Item:
    """One image or text: a file that is read when it is needed, or the text itself."""

    name: str
    content: Path | str

    def payload(self) -> bytes:
        """The bytes that are hashed and decoded."""
        if isinstance(self.content, str):
            return self.content.encode()
        try:
            return self.content.read_bytes()
        except OSError as error:
            raise InputError(f"{self.name!r}: cannot be read ({error.strerror})") from None

    def decode(self, payload: bytes, kind: Kind) -> Any:
        """The image or text in the bytes that `payload` returned."""
        return (
            decode(self.name, payload) if kind == "images" else _text(repr(self.name), payload)
        )


def list_items(
    source: str | os.PathLike[str],
    kind: Kind,
    *,
    field: str | None = None,
    limit: int | None = None,
    recursive: bool = False,
) -> tuple[Item, ...]:
    """The images or texts of a source, in a fixed order; the first `limit` of them.

    The files of a folder are sorted by path, hidden ones left out. A folder with subfolders
    that hold such files is refused unless it is to be searched with them (`recursive`). A
    .txt file holds one text per line (blank lines are left out), a .jsonl file one object
    per line with the text in `field`.
    """
    path = Path(source)
    if limit is not None and limit < 1:
        raise InputError(f"limit: expected at least 1, got {limit}")
    if not os.path.exists(path):  # noqa: PTH110  (Path.exists raises for names that are too long)
        raise InputError(f"{path}: no such file or folder")
    if field is not None and path.suffix.lower() != ".jsonl":
        raise InputError(
            f"field: only .jsonl files have fields, got {str(path)!r}; leave --field out"
        )
    if recursive and not path.is_dir():
        raise InputError(
            f"recursive: only a folder has subfolders, got {str(path)!r}; leave --recursive out"
        )
    items = (
        _in_folder(path, kind, recursive)
        if path.is_dir()
        else _in_file(path, kind, field or "text")
    )
    if not items:
        raise InputError(f"{path}: expected at least one text, got none")
    for file in {item.content for item in items if isinstance(item.content, Path)} or {path}:
        note_read(file)
    return tuple(items[:limit])


def described(source: str | os.PathLike[str], items: Sequence[Item]) -> str:
    """What was taken from a source, in words.

    >>> described(".", [Item("b.txt", Path("b.txt")), Item("a.txt", Path("a.txt"))])
    '2 files of . (2 .txt)'
    """
    if not Path(source).is_dir():
        return f"{len(items)} lines of {source}"
    endings = sorted(Counter(Path(item.name).suffix.lower() for item in items).items())
    return (
        f"{len(items)} files of {source} "
        f"({', '.join(f'{count} {ending}' for ending, count in endings)})"
    )


def _in_folder(folder: Path, kind: Kind, recursive: bool) -> list[Item]:
    suffixes = SUFFIXES if kind == "images" else frozenset({".txt"})
    named = ((path.relative_to(folder), path) for path in folder.rglob("*") if path.is_file())
    visible = {
        name.as_posix(): path
        for name, path in named
        if not any(part.startswith(".") for part in name.parts)
    }
    items = [
        Item(name, path)
        for name, path in sorted(visible.items())
        if path.suffix.lower() in suffixes
    ]
    below = [item.name for item in items if "/" in item.name]
    if below and not recursive:
        folders = sorted({name.rpartition("/")[0] for name in below})
        raise InputError(
            f"{folder}: {len(below)} of its {len(items)} "
            f"{kind if kind == 'images' else 'texts'} are in subfolders "
            f"({listed(folders, most=3, quote=repr)}); give --recursive to take them all, or "
            f"one of the subfolders"
        )
    if items:
        return items
    expected = (
        f"image files ({', '.join(sorted(SUFFIXES))})"
        if kind == "images"
        else "text files (.txt)"
    )
    endings = {path.suffix.lower() for path in visible.values()}
    if endings & SUFFIXES:
        content = "images; choose a model for images (relfit features --list)"
    elif ".txt" in endings:
        content = "texts; choose a model for text (relfit features --list)"
    else:
        content = f"{len(visible)} other files" if visible else "an empty folder"
    raise InputError(f"{folder}: expected {expected}, got {content}")


def _in_file(path: Path, kind: Kind, field: str) -> list[Item]:
    if kind == "images":
        raise InputError(f"{path}: expected a folder of images, got a file")
    ending = path.suffix.lower()
    if ending not in (".txt", ".jsonl"):
        raise InputError(f"{path}: expected a folder of .txt files, a .txt or a .jsonl file")
    if ending == ".jsonl":
        rows = json_lines(path)
        return [
            Item(f"{path.name}:{number}", _field(f"{path}, line {number}", row, field))
            for number, row in rows
        ]
    check_plain(path)
    lines = enumerate(_text(str(path), path.read_bytes()).replace("\r\n", "\n").split("\n"), 1)
    return [
        Item(f"{path.name}:{number}", line.strip()) for number, line in lines if line.strip()
    ]


def _field(where: str, row: dict[str, Any], field: str) -> str:
    if field not in row:
        came = ", ".join(list(row)[:8])
        raise InputError(
            f"{where}: expected an object with the field {field!r}, got "
            f"{came or 'none'}; use --field"
        )
    text = row[field]
    if not isinstance(text, str):
        raise InputError(
            f"{where}: expected text in the field {field!r}, got {type(text).__name__}"
        )
    if not is_text(text):
        raise InputError(
            f"{where}: the text in {field!r} holds half a character (a lone surrogate)"
        )
    return text


def _text(where: str, payload: bytes) -> str:
    try:
        return payload.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{where}: expected UTF-8 text, got other bytes at {error.start}; convert it"
        ) from None


def decode(name: str, payload: bytes) -> Any:
    """The image in these bytes as RGB, its first frame if it has several; transparency is
    dropped.

    Raises:
        InputError: naming the image, where it is broken, too large or of more than 8 bits per
            channel.
    """
    image_module = library("PIL.Image", "pip install pillow")
    try:
        # Pillow's own bomb warning comes at its own limit; ours is below, on the size in the
        # header.
        with (
            without_warnings,
            image_module.open(io.BytesIO(payload), formats=IMAGE_FORMATS) as image,
        ):
            _refuse_unusable(name, image, len(payload))
            return image.convert("RGB")
    except (InputError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001  (a damaged file makes its decoder raise anything)
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise InputError(
            f"image {name!r}: cannot be decoded ({reason}); repair it or leave it out"
        ) from None


def _refuse_unusable(name: str, image: Any, size: int) -> None:
    width, height = image.size
    if width * height > max(LARGE_PIXELS, PIXELS_PER_BYTE * size):
        raise InputError(
            f"image {name!r}: expected no more pixels than {size:,} bytes can hold, got "
            f"{width} × {height}; repair it "
            "or leave it out"
        )
    if width * height > MOST_PIXELS:
        raise InputError(
            f"image {name!r}: expected at most {MOST_PIXELS // 10**6} million pixels, got "
            f"{width} × {height}; shrink it"
        )
    if image.mode[0] in "IF":
        raise InputError(
            f"image {name!r}: expected 8 bits per channel, got mode "
            f"{image.mode!r}; convert it to 8 bits"
        )
