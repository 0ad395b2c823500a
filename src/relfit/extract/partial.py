"""The file that holds finished batches until all are done, so that a killed run goes on where it stopped.

It is an SQLite file: a batch is in it wholly or not at all, whenever the process dies, and one process at a time
can hold it.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from relfit.errors import InputError

APPLICATION_ID = 0x72666561  # "rfea": marks the file as ours in SQLite's header
_CREATE = (
    "CREATE TABLE identity (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE batches (start INTEGER PRIMARY KEY, digests TEXT NOT NULL, broken TEXT NOT NULL, rows BLOB NOT NULL)",
)


@dataclass(frozen=True)
class Batch:
    """Consecutive items from `start`: a digest of each, why some are broken (by position), the others' features."""

    start: int
    digests: tuple[str, ...]
    broken: Mapping[int, str]
    rows: bytes


class Partial:
    """The open file; made by `opened`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def add(self, batch: Batch) -> None:
        """Keep a batch: on disk when this returns."""
        values = (batch.start, json.dumps(batch.digests), json.dumps(batch.broken), batch.rows)
        with self._connection:
            self._connection.execute("INSERT INTO batches VALUES (?, ?, ?, ?)", values)

    def batches(self) -> Iterator[Batch]:
        """The kept batches, in order, one at a time."""
        for start, digests, broken, rows in self._connection.execute("SELECT * FROM batches ORDER BY start"):
            reasons = {int(position): reason for position, reason in json.loads(broken).items()}
            yield Batch(start, tuple(json.loads(digests)), reasons, rows)


@contextmanager
def opened(path: Path, identity: Mapping[str, str]) -> Iterator[Partial]:
    """The partial file at `path`, new or of an earlier run of the same `identity`; another's is refused.

    Closing a file without a finished batch removes it.
    """
    try:
        connection = sqlite3.connect(path, timeout=1.0)
        try:
            _prepare(connection, path, identity)
            try:
                yield Partial(connection)
            finally:
                if not _count(connection):
                    path.unlink()
        finally:
            connection.close()
    except sqlite3.OperationalError as error:
        busy = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
        reason = "another relfit is writing it" if busy else str(error)
        raise InputError(f"{os.fspath(path)}: cannot be used ({reason})") from None
    except sqlite3.DatabaseError as error:
        raise InputError(
            f"{os.fspath(path)}: is damaged or no partial file of relfit ({error}); delete it to begin again"
        ) from None


def _prepare(connection: sqlite3.Connection, path: Path, identity: Mapping[str, str]) -> None:
    # The lock lasts until the connection closes or the process dies.
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("BEGIN EXCLUSIVE")
    if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        for statement in _CREATE:
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    elif connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise InputError(f"{os.fspath(path)}: is a file of another program; move it away")
    if not _count(connection):
        connection.execute("DELETE FROM identity")
        connection.executemany("INSERT INTO identity VALUES (?, ?)", identity.items())
    connection.commit()
    _refuse_others(path, dict(connection.execute("SELECT name, value FROM identity")), identity)


def _count(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT count(*) FROM batches").fetchone()[0])


def _refuse_others(path: Path, kept: Mapping[str, str], wanted: Mapping[str, str]) -> None:
    for name, value in wanted.items():
        if kept.get(name) != value:
            raise InputError(
                f"{os.fspath(path)}: was begun with another {name} ({kept.get(name)}; now {value}) and cannot be mixed "
                "with it; repeat that command, or delete the file to begin again"
            )
