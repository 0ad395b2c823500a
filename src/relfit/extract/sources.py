"""What there is to extract from: a folder of images or of texts, a file of one text a line, a JSON Lines file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relfit.errors import InputError
from relfit.extract.base import Kind
from relfit.extract.images import SUFFIXES, decode
from relfit.inputs.files.paths import check_plain

DEFAULT_FIELD = "text"


@dataclass(frozen=True)
class Item:
    """One image or text: a file to be read when its turn comes, or the text itself."""

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
        """The image or text in these bytes, which `payload` returned."""
        return decode(self.name, payload) if kind == "images" else _text(repr(self.name), payload)


def list_items(
    source: str | os.PathLike[str], kind: Kind, *, field: str | None = None, limit: int | None = None
) -> tuple[Item, ...]:
    """The images or texts of a source, in a fixed order; the first `limit` of them.

    Folders are searched with their subfolders, hidden files left out, and sorted by path. A .txt file holds one
    text a line (blank lines are left out), a .jsonl file one object a line with the text in `field`.
    """
    path = Path(source)
    if limit is not None and limit < 1:
        raise InputError(f"limit: expected at least 1, got {limit}")
    if not os.path.exists(path):  # noqa: PTH110  (Path.exists raises for names that are too long)
        raise InputError(f"{path}: no such file or folder")
    if field is not None and path.suffix.lower() != ".jsonl":
        raise InputError(f"field: only .jsonl files have fields, got {str(path)!r}; leave --field out")
    items = _in_folder(path, kind) if path.is_dir() else _in_file(path, kind, field or DEFAULT_FIELD)
    if not items:
        raise InputError(f"{path}: expected at least one text, got none")
    return tuple(items[:limit])


def _in_folder(folder: Path, kind: Kind) -> list[Item]:
    wanted = SUFFIXES if kind == "images" else frozenset({".txt"})
    files = _visible_files(folder)
    found = sorted((path.relative_to(folder).as_posix(), path) for path in files if path.suffix.lower() in wanted)
    if not found:
        raise InputError(f"{folder}: expected {_expected(kind)}, got {_came(files)}")
    return [Item(name, path) for name, path in found]


def _visible_files(folder: Path) -> list[Path]:
    every = (path for path in folder.rglob("*") if path.is_file())
    return [path for path in every if not any(part.startswith(".") for part in path.relative_to(folder).parts)]


def _expected(kind: Kind) -> str:
    return f"image files ({', '.join(sorted(SUFFIXES))})" if kind == "images" else "text files (.txt)"


def _came(files: Sequence[Path]) -> str:
    if any(path.suffix.lower() in SUFFIXES for path in files):
        return "images; choose a model for images (relfit features --list)"
    if any(path.suffix.lower() == ".txt" for path in files):
        return "texts; choose a model for text (relfit features --list)"
    return f"{len(files)} other files" if files else "an empty folder"


def _in_file(path: Path, kind: Kind, field: str) -> list[Item]:
    if kind == "images":
        raise InputError(f"{path}: expected a folder of images, got a file")
    ending = path.suffix.lower()
    if ending not in (".txt", ".jsonl"):
        raise InputError(f"{path}: expected a folder of .txt files, a .txt or a .jsonl file")
    check_plain(path)
    texts = _lines(path) if ending == ".txt" else _objects(path, field)
    return [Item(f"{path.name}:{number}", text) for number, text in texts]


def _numbered(path: Path) -> Iterator[tuple[int, str]]:
    """The lines that are not blank, with their numbers from 1."""
    whole = _text(str(path), path.read_bytes())
    for number, line in enumerate(whole.replace("\r\n", "\n").split("\n"), 1):
        if line.strip():
            yield number, line


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    yield from ((number, line.strip()) for number, line in _numbered(path))


def _objects(path: Path, field: str) -> Iterator[tuple[int, str]]:
    for number, line in _numbered(path):
        where = f"{path}, line {number}"
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{where}: expected one JSON object a line ({str(error)[:80]})") from None
        if not isinstance(value, dict) or field not in value:
            held = ", ".join(list(value)[:8]) if isinstance(value, dict) else f"a {type(value).__name__}"
            raise InputError(f"{where}: expected an object with the field {field!r}, got {held or 'none'}; use --field")
        yield number, _plain_text(where, field, value[field])


def _plain_text(where: str, field: str, value: object) -> str:
    if not isinstance(value, str):
        raise InputError(f"{where}: expected text in the field {field!r}, got {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InputError(f"{where}: the text in {field!r} holds half a character (a lone surrogate)") from None
    return value


def _text(where: str, payload: bytes) -> str:
    try:
        return payload.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: expected UTF-8 text, got other bytes at {error.start}; convert it") from None
