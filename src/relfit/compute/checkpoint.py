"""Checkpoints: finished patches in one SQLite file, so that a killed comparison resumes
where it stopped.

The file belongs to one run: it records the inputs and settings that the run was started
with, and every finished patch, each in a transaction of its own and with a checksum. One
process has it open at a time. It is safe to delete: nothing else needs it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from relfit.util.arrays import Array
from relfit.util.errors import InputError
from relfit.util.files import Database, Format

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
    checksum TEXT NOT NULL,
    PRIMARY KEY (work, patch)
)
"""
# The number is "relc".
CHECKPOINT = Format(
    "checkpoint", "a checkpoint of relfit", 0x72656C63, 2, _CREATE, exclusive=True
)


class Checkpoint:
    """The checkpoint of a run with these inputs and settings.

    The file is opened when work begins, so that input that is refused leaves no file behind.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for seed in (1, 2):
    ...         checkpoint = Checkpoint(f"{folder}/run.sqlite", {"seed": str(seed)})
    ...         _ = checkpoint.resume("digest of the work", patches=3)
    ...         checkpoint.close()
    Traceback (most recent call last):
    relfit.util.errors.InputError: checkpoint: ... belongs to another run (seed was 1, is 2); give ... or delete it
    """  # noqa: E501

    def __init__(self, path: str | os.PathLike[str], run: Mapping[str, str]) -> None:
        self.path = os.fspath(path)
        self.run = dict(run)
        self._file: Database | None = None
        self._works = 0
        # Patches that were not as they had been written, and are computed again.
        self.damaged = 0

    def resume(self, digest: str, patches: int) -> FinishedPatches:
        """The finished patches of the next work of this run; `digest` identifies everything
        that decides its sums.

        The works of a run come in a fixed order. A file of another run is refused.
        """
        if self._file is None:
            self._file = Database(self.path, CHECKPOINT)
            with self._file.reading() as connection:
                recorded_run = dict(
                    connection.execute("SELECT item, value FROM run").fetchall()
                )
            if not recorded_run:
                with self._file.transaction() as connection:
                    connection.executemany(
                        "INSERT INTO run VALUES (?, ?)", list(self.run.items())
                    )
            elif recorded_run != self.run:
                raise self._refusal("; ".join(_differences(recorded_run, self.run)))
        work, self._works = self._works, self._works + 1
        with self._file.reading() as connection:
            recorded = connection.execute(
                "SELECT digest FROM works WHERE work = ?", (work,)
            ).fetchone()
        if recorded is None:
            with self._file.transaction() as connection:
                connection.execute(
                    "INSERT INTO works VALUES (?, ?, ?)", (work, digest, patches)
                )
        elif recorded[0] != digest:
            raise self._refusal(
                "the rows, the scores at them or the way they are cut have changed"
            )
        finished = FinishedPatches(self._file, work)
        self.damaged += finished.damaged
        return finished

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _refusal(self, why: str) -> InputError:
        return InputError(
            f"checkpoint: {self.path!r} belongs to another run ({why}); give a "
            f"new file, or delete it"
        )


class FinishedPatches:
    """The finished patches of one work, by their numbers: the sums of rows, of columns (or
    None), and Σk².
    """

    def __init__(self, file: Database, work: int) -> None:
        self._file = file
        self._work = work
        with file.reading() as connection:
            found = connection.execute("SELECT * FROM patches WHERE work = ?", (work,))
            sound = {patch[1]: checksum == _checksum(*patch) for *patch, checksum in found}
        self.numbers = frozenset(number for number, is_sound in sound.items() if is_sound)
        self.damaged = len(sound) - len(self.numbers)

    def get(self, number: int) -> tuple[Array, Array | None, float]:
        query = "SELECT width, rows, columns, squares FROM patches WHERE work = ? AND patch = ?"
        with self._file.reading() as connection:
            width, rows, columns, squares = connection.execute(
                query, (self._work, number)
            ).fetchone()
        return _array(rows, width), None if columns is None else _array(columns, width), squares

    def put(self, number: int, rows: Array, columns: Array | None, squares: float) -> None:
        """Record a patch; it is on disk when this returns."""
        width = 0 if rows.ndim == 1 else rows.shape[1]
        blobs = (
            None if a is None else np.ascontiguousarray(a, dtype="<f8").tobytes()
            for a in (rows, columns)
        )
        values = (self._work, number, width, *blobs, float(squares))
        with self._file.transaction() as connection:
            # A damaged one is replaced.
            connection.execute(
                "REPLACE INTO patches VALUES (?, ?, ?, ?, ?, ?, ?)",
                (*values, _checksum(*values)),
            )


def finished_patches(path: str | os.PathLike[str]) -> tuple[int, int]:
    """The number of finished patches in a checkpoint, and the number of patches of all works
    begun so far.
    """
    with Database(path, CHECKPOINT) as file, file.reading() as connection:
        counts = "SELECT (SELECT count(*) FROM patches), (SELECT total(patches) FROM works)"
        done, known = connection.execute(counts).fetchone()
        return int(done), int(known)


def _differences(recorded: Mapping[str, str], run: Mapping[str, str]) -> Iterable[str]:
    for item in dict.fromkeys((*recorded, *run)):
        before = recorded.get(item)
        now = run.get(item)
        if before == now:
            continue
        if before is None or now is None:
            yield f"{item} is {'new' if before is None else 'gone'}"
        else:
            yield (
                f"{item} has changed"
                if len(before) > 40 or len(now) > 40
                else f"{item} was {before}, is {now}"
            )


def _checksum(*columns: Any) -> str:
    """A hash of a patch as it is stored, whatever is in the file by now."""
    digest = hashlib.sha256()
    for part in columns:
        data = part if isinstance(part, bytes) else repr(part).encode("utf-8", "replace")
        digest.update(f"{type(part).__name__} {len(data)} ".encode() + data)
    return digest.hexdigest()


def _array(blob: bytes, width: int) -> Array:
    flat = np.frombuffer(blob, dtype="<f8").astype(np.float64)
    return flat.reshape(-1, width) if width else flat
