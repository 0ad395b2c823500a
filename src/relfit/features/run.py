"""Features of many items into one .npy file: in batches, resumable, written whole or not at
all.

The items are images or texts of a folder, or of a file with one text or JSON object per line.
Any of these files may be broken or hostile.

Finished batches are kept in an SQLite file until all are done, so that a run that was killed
resumes where it stopped. A batch is in that file wholly or not at all, whenever the process
dies, and only one process at a time can hold it.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from relfit.data.files.base import check_plain
from relfit.data.files.text import json_lines
from relfit.features.base import Kind, Network, entry_of, library, load
from relfit.util.errors import InputError
from relfit.util.files import (
    IMAGE_FORMATS,
    MOST_PIXELS,
    Database,
    Format,
    note_read,
    open_atomic,
    write_text_atomic,
)
from relfit.util.libraries import without_warnings
from relfit.util.progress import Progress, reporting
from relfit.util.text import is_text, listed, visible

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


_CREATE = """
CREATE TABLE identity (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE batches (start INTEGER PRIMARY KEY, digests TEXT NOT NULL, broken TEXT NOT NULL,
                      rows BLOB NOT NULL)
"""
# The number is "rfea".
PARTIAL = Format(
    "output", "a partial file of relfit", 0x72666561, 0, _CREATE, exclusive=True, wal=False
)


@dataclass(frozen=True)
class Batch:
    """Consecutive items from `start`: a digest of each, why some are broken (by position),
    the others' features.
    """

    start: int
    digests: tuple[str, ...]
    broken: Mapping[int, str]
    rows: bytes


class Partial(Database):
    """The partial file of a run: a new one, or that of an earlier run of the same
    `identity`; others are refused.

    Only one process at a time can have it open. A file without a finished batch is removed
    when it is closed.
    """

    def __init__(self, path: Path, identity: Mapping[str, str]) -> None:
        super().__init__(path, PARTIAL)
        try:
            if self._is_without_batches():
                with self.transaction() as connection:
                    connection.execute("DELETE FROM identity")
                    connection.executemany(
                        "INSERT INTO identity VALUES (?, ?)", identity.items()
                    )
            recorded = dict(self.connection.execute("SELECT name, value FROM identity"))
            for name, value in identity.items():
                if recorded.get(name) != value:
                    raise InputError(
                        f"{self.path}: was started with another {name} ({recorded.get(name)}; "
                        f"now {value}) and cannot "
                        "be mixed with it; repeat that command, or delete the file to "
                        "begin again"
                    )
        except BaseException:
            self.close()
            raise

    def add(self, batch: Batch) -> None:
        """Keep a batch; it is on disk when this returns."""
        values = (batch.start, json.dumps(batch.digests), json.dumps(batch.broken), batch.rows)
        with self.transaction() as connection:
            connection.execute("INSERT INTO batches VALUES (?, ?, ?, ?)", values)

    def batches(self) -> Iterator[Batch]:
        """The kept batches, in order, one at a time."""
        for start, digests, broken, rows in self.connection.execute(
            "SELECT * FROM batches ORDER BY start"
        ):
            reasons = {int(position): reason for position, reason in json.loads(broken).items()}
            yield Batch(start, tuple(json.loads(digests)), reasons, rows)

    def close(self) -> None:
        """Close the file, and remove it if no batch is finished."""
        if self._is_without_batches():
            Path(self.path).unlink()
        super().close()

    def _is_without_batches(self) -> bool:
        return not self.connection.execute("SELECT count(*) FROM batches").fetchone()[0]


@dataclass(frozen=True)
class Extraction:
    """What was written: files, rows, the number of items that an earlier run had done, and
    the broken ones by name.

    `taken` says in words which items the source had.
    """

    path: Path
    names_path: Path
    rows: int
    dim: int
    resumed: int
    broken: dict[str, str]
    taken: str


def extract_features(
    source: str | os.PathLike[str],
    model: str | Network,
    output: str | os.PathLike[str],
    *,
    batch: int = 32,
    limit: int | None = None,
    field: str | None = None,
    recursive: bool = False,
    skip_broken: bool = False,
    weights: str | None = None,
    device: str = "auto",
    progress: Any = None,
) -> Extraction:
    """Write the features of the images or texts in `source` to `output`, one row per item,
    in float32.

    Finished batches are kept in ``OUTPUT.partial`` until the end: a run that was killed
    resumes where it stopped when it is started again, and is refused if the model, the list
    of items or a finished item has changed. The items' names are written beside the
    features, to ``OUTPUT`` with the ending .names.txt.

    Args:
        source: a folder of images or of .txt files, a .txt file (one text per line) or a .jsonl
            file.
        model: the name of an extractor, or any object with the members of `Network`.
        output: the .npy file.
        batch: number of items that are computed at once.
        limit: the largest number of items; the first ones are used.
        field: the field of a .jsonl file that holds the text; None is "text".
        recursive: take the files in the subfolders of a folder too; otherwise a folder that has
            such files is refused.
        skip_broken: leave out items that cannot be decoded; otherwise the first one ends the
            run.
        weights: a file or folder of weights, for a model given by name.
        device: "auto", "cpu" or "cuda", for a model given by name.
        progress: None, True, False or a function of (done, total).
    """
    target = Path(output)
    if target.suffix.lower() != ".npy":
        raise InputError(f"output: expected a file name that ends in .npy, got {str(target)!r}")
    if Path(os.path.realpath(source)) in Path(os.path.realpath(target)).parents:
        # The next run would take the list of names for one of the folder's texts.
        raise InputError(
            f"output: expected a file outside the source folder, got {str(target)!r}"
        )
    if batch < 1:
        raise InputError(f"batch: expected at least 1, got {batch}")
    kind = entry_of(model).kind if isinstance(model, str) else model.kind
    # The source is read first: it is quick, and loading a network is not.
    items = list_items(source, kind, field=field, limit=limit, recursive=recursive)
    extractor = load(model, weights=weights, device=device) if isinstance(model, str) else model
    partial_path = target.with_name(f"{target.name}.partial")
    names = hashlib.sha256(
        "\0".join(item.name for item in items).encode("utf-8", "surrogateescape")
    ).hexdigest()
    identity = {
        "model": extractor.fingerprint,
        "list of inputs": f"{len(items)} items, names {names[:12]}",
    }
    with reporting(progress, "extracting") as bar, Partial(partial_path, identity) as partial:
        update = bar or (lambda *_: None)
        resumed = _verify(partial, items, extractor, skip_broken, update)
        for start in range(resumed, len(items), batch):
            partial.add(_compute(items[start : start + batch], start, extractor, skip_broken))
            update(min(start + batch, len(items)), len(items))
        result = _write(
            partial, items, extractor.dim, target, resumed, described(source, items)
        )
    partial_path.unlink()
    return result


def _verify(
    partial: Partial,
    items: Sequence[Item],
    extractor: Network,
    skip_broken: bool,
    update: Progress,
) -> int:
    """The number of finished items; each of them must be unchanged."""
    done = 0
    for batch in partial.batches():
        if batch.start != done or len(batch.rows) != 4 * extractor.dim * (
            len(batch.digests) - len(batch.broken)
        ):
            raise InputError(
                "the partial file is damaged: its batches do not match; delete "
                "it to begin again"
            )
        for k, digest in enumerate(batch.digests):
            if k in batch.broken and not skip_broken:
                raise InputError(f"{batch.broken[k]} (--skip-broken leaves such items out)")
            item = items[done + k]
            try:
                unchanged = _digest(item.payload()) == digest
            except InputError:
                unchanged = digest == ""
            if not unchanged:
                raise InputError(
                    f"{item.name!r}: has changed since an earlier, unfinished run computed "
                    f"its features; put it back, "
                    "or delete the .partial file to begin again"
                )
        done += len(batch.digests)
        update(done, len(items))
    return done


def _compute(items: Sequence[Item], start: int, extractor: Network, skip_broken: bool) -> Batch:
    """The features of one batch; a file that cannot even be read has the digest ""."""
    digests = []
    broken = {}
    decoded = []
    names = []
    for k, item in enumerate(items):
        payload = None
        try:
            payload = item.payload()
            decoded.append(item.decode(payload, extractor.kind))
            names.append(item.name)
        except InputError as error:
            if not skip_broken:
                raise InputError(f"{error} (--skip-broken leaves such items out)") from None
            broken[k] = str(error)
        digests.append("" if payload is None else _digest(payload))
    shape = (len(decoded), extractor.dim)
    rows = (
        np.asarray(extractor.features(decoded), dtype="<f4")
        if decoded
        else np.empty(shape, "<f4")
    )
    if rows.shape != shape:
        raise InputError(
            f"model {extractor.name!r}: expected features of shape {shape}, got {rows.shape}"
        )
    bad = ~np.isfinite(rows).all(axis=1)
    if bad.any():
        raise InputError(
            f"model {extractor.name!r}: its features of "
            f"{names[int(bad.argmax())]!r} are not finite"
        )
    return Batch(start, tuple(digests), broken, rows.tobytes())


def _digest(payload: bytes) -> str:
    return hashlib.blake2b(payload, digest_size=16).hexdigest()


def _write(
    partial: Partial, items: Sequence[Item], dim: int, target: Path, resumed: int, taken: str
) -> Extraction:
    """Write the names, then the rows as little-endian float32, batch by batch."""
    broken = {
        items[batch.start + k].name: reason
        for batch in partial.batches()
        for k, reason in batch.broken.items()
    }
    names = [item.name for item in items if item.name not in broken]
    if not names:
        raise InputError(
            f"expected at least one item that can be decoded, all {len(items)} are broken"
        )
    names_path = target.with_name(f"{target.stem}.names.txt")
    write_text_atomic(names_path, "".join(f"{visible(name)}\n" for name in names))
    with open_atomic(target, "output", keep_inputs=False) as stream:
        header = {"descr": "<f4", "fortran_order": False, "shape": (len(names), dim)}
        np.lib.format.write_array_header_1_0(stream, header)
        for batch in partial.batches():
            stream.write(batch.rows)
    return Extraction(target, names_path, len(names), dim, resumed, broken, taken)
