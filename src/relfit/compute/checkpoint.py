"""Finished patches in one SQLite file, so that a killed comparison goes on where it stopped.

The file belongs to one run: the inputs and settings it was started with are noted in it, and every patch that is done,
each in a transaction of its own. It is safe to delete: nothing else needs it.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from relfit.compute.patches import Sums, Work
from relfit.compute.rows import parts
from relfit.compute.tiles import Runtime
from relfit.util.arrays import Array
from relfit.util.errors import InputError
from relfit.util.sqlite import Database, Format, transaction

_CREATE = """
CREATE TABLE run (item TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE works (work INTEGER PRIMARY KEY, digest TEXT NOT NULL, patches INTEGER NOT NULL);
CREATE TABLE patches (
    work INTEGER NOT NULL,
    patch INTEGER NOT NULL,
    width INTEGER NOT NULL,
    rows BLOB NOT NULL,
    columns BLOB,
    squares REAL NOT NULL,
    PRIMARY KEY (work, patch)
)
"""
# The number is "relc".
CHECKPOINT = Format("checkpoint", "a checkpoint of relfit", 0x72656C63, 1, _CREATE)


class Checkpoint(Database):
    """A checkpoint file, open; use it as a context manager.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for seed in (1, 2):
    ...         with Checkpoint(f"{folder}/run.sqlite") as checkpoint:
    ...             checkpoint.claim({"seed": str(seed)})
    Traceback (most recent call last):
    relfit.util.errors.InputError: checkpoint: ... belongs to another run (seed was 1, is 2); give ... or delete it
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path, CHECKPOINT)
        self._works = 0

    def claim(self, run: Mapping[str, str]) -> None:
        """Note the inputs and settings of this run; refuse the file where it belongs to others."""
        noted = dict(self._connection.execute("SELECT item, value FROM run").fetchall())
        if not noted:
            with _told(self.path), transaction(self._connection):
                self._connection.executemany("INSERT INTO run VALUES (?, ?)", list(run.items()))
        elif noted != dict(run):
            raise self._refusal("; ".join(_differences(noted, run)))

    def resume(self, work: Work, runtime: Runtime) -> Noted:
        """What is there of this work; the works of a run come in a fixed order."""
        number, digest = self._works, _digest(work, runtime)
        self._works += 1
        found = self._connection.execute("SELECT digest FROM works WHERE work = ?", (number,)).fetchone()
        if found is None:
            with _told(self.path), transaction(self._connection):
                self._connection.execute("INSERT INTO works VALUES (?, ?, ?)", (number, digest, len(work.patches)))
        elif found[0] != digest:
            raise self._refusal("the rows, the scores at them or the way they are cut have changed")
        return Noted(self.path, self._connection, number)

    def counts(self) -> tuple[int, int]:
        """How many parts are done, and of how many that are known of."""
        done = self._connection.execute("SELECT count(*) FROM patches").fetchone()[0]
        known = self._connection.execute("SELECT total(patches) FROM works").fetchone()[0]
        return int(done), int(known)

    def _refusal(self, why: str) -> InputError:
        return InputError(f"checkpoint: {self.path!r} belongs to another run ({why}); give a new file, or delete it")


@dataclass
class Notebook:
    """The checkpoint of a run, which is opened when the work begins: input that is refused leaves no file behind."""

    path: str | os.PathLike[str]
    run: Mapping[str, str]
    _file: Checkpoint | None = None

    def resume(self, work: Work, runtime: Runtime) -> Noted:
        """See `Checkpoint.resume`; the first call makes or claims the file."""
        if self._file is None:
            self._file = Checkpoint(self.path)
            self._file.claim(self.run)
        return self._file.resume(work, runtime)

    def close(self) -> None:
        """Close the file, if it was opened."""
        if self._file is not None:
            self._file.close()


@dataclass(frozen=True)
class Noted:
    """The finished patches of one work."""

    path: str
    connection: sqlite3.Connection
    work: int
    done: frozenset[int] = field(init=False)

    def __post_init__(self) -> None:
        found = self.connection.execute("SELECT patch FROM patches WHERE work = ?", (self.work,)).fetchall()
        object.__setattr__(self, "done", frozenset(number for (number,) in found))

    def get(self, number: int) -> Sums:
        """What a finished patch came to."""
        width, rows, columns, squares = self.connection.execute(
            "SELECT width, rows, columns, squares FROM patches WHERE work = ? AND patch = ?", (self.work, number)
        ).fetchone()
        return Sums(_array(rows, width), None if columns is None else _array(columns, width), squares)

    def put(self, number: int, sums: Sums) -> None:
        """Note a patch, on disk when this returns."""
        width = 0 if sums.rows.ndim == 1 else sums.rows.shape[1]
        columns = None if sums.columns is None else _blob(sums.columns)
        row = (self.work, number, width, _blob(sums.rows), columns, float(sums.squares))
        with _told(self.path), transaction(self.connection):
            self.connection.execute("INSERT INTO patches VALUES (?, ?, ?, ?, ?, ?)", row)


class _told:  # noqa: N801  (used like a function)
    """What goes wrong when the file is written, as one clear line; what was in it stays."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, sqlite3.Error):
            raise InputError(
                f"checkpoint: cannot write {self.path!r} ({error}); what it holds is kept: make room, and the same "
                "call goes on from there"
            ) from error


def _differences(noted: Mapping[str, str], run: Mapping[str, str]) -> Iterable[str]:
    for item in dict.fromkeys((*noted, *run)):
        before, now = noted.get(item), run.get(item)
        if before == now:
            continue
        if before is None or now is None:
            yield f"{item} is {'new' if before is None else 'gone'}"
        else:
            yield f"{item} has changed" if len(before) > 40 or len(now) > 40 else f"{item} was {before}, is {now}"


def _blob(array: Array) -> bytes:
    return np.ascontiguousarray(array, dtype="<f8").tobytes()


def _array(blob: bytes, width: int) -> Array:
    flat = np.frombuffer(blob, dtype="<f8").astype(np.float64)
    return flat.reshape(-1, width) if width else flat


def _digest(work: Work, runtime: Runtime) -> str:
    """A name for all that decides the work's sums, to the last bit."""
    whole = hashlib.sha256()
    for part in (work.measure.key(), runtime.backend.name, runtime.memory, work.patches, np.__version__):
        whole.update(f"{part!r}\n".encode())
    for source in work.sources:
        whole.update(f"{source.shape}\n".encode())
        for rows in parts(source.shape):
            whole.update(np.ascontiguousarray(source[rows], dtype="<f8").data)
    return whole.hexdigest()
