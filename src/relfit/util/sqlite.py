"""SQLite files of our own: made once, checked when opened, safe against kill -9 and against several writers.

WAL mode with synchronous=FULL: what is committed survives a power cut. Not for network file systems.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

from relfit.util.errors import InputError

BUSY_SECONDS = 60.0

T = TypeVar("T")


@dataclass(frozen=True)
class Format:
    """A kind of file: the argument that names it, what it is, its mark in SQLite's header, its schema and tables."""

    argument: str
    name: str
    application: int
    schema: int
    create: str


class Database:
    """A file of this format, open; use it as a context manager."""

    def __init__(self, path: str | os.PathLike[str], form: Format) -> None:
        self.path = os.fspath(path)
        self._connection = open_database(self.path, form)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        self._connection.close()


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """BEGIN IMMEDIATE, then COMMIT, or ROLLBACK on any exception, an interrupt included."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # SQLite may have rolled back already, after a full disk for one.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def open_database(path: str, form: Format) -> sqlite3.Connection:
    """A checked connection to a new file or one of this format; every way in which it is not one is one InputError."""
    try:
        connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
    except sqlite3.Error as error:
        raise InputError(
            f"{form.argument}: cannot open {path!r} ({error}); give a file in a folder that exists"
        ) from error
    try:
        _prepare(connection, path, form)
    except sqlite3.DatabaseError as error:
        connection.close()
        remedy = "end the process that holds it" if _is_busy(error) else f"give {form.name} or a new name"
        raise InputError(f"{form.argument}: cannot use {path!r} ({error}); {remedy}") from error
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, path: str, form: Format) -> None:
    """Make the table in a new file, or check that an old one is a sound one of this schema."""
    connection.execute("PRAGMA synchronous = FULL")
    with transaction(connection):
        if _is_empty(connection):
            for statement in form.create.split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {form.application}")
            connection.execute(f"PRAGMA user_version = {form.schema}")
    _check(connection, path, form)
    _patiently(lambda: connection.execute("PRAGMA journal_mode = WAL"))


def _is_empty(connection: sqlite3.Connection) -> bool:
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    return not tables and not _pragma(connection, "application_id") and not _pragma(connection, "user_version")


def _check(connection: sqlite3.Connection, path: str, form: Format) -> None:
    if _pragma(connection, "application_id") != form.application:
        raise InputError(f"{form.argument}: {path!r} is an SQLite file of another program; give a new file name")
    found = _pragma(connection, "user_version")
    if found != form.schema:
        raise InputError(
            f"{form.argument}: {path!r} has schema {found}, not {form.schema}; "
            "use the relfit that wrote it or a new file"
        )
    fault = _pragma(connection, "quick_check(1)")
    if fault != "ok":
        first_line = str(fault).strip().replace("\n", " ")
        raise InputError(f"{form.argument}: {path!r} is damaged ({first_line}); restore a copy or give a new file name")


def _pragma(connection: sqlite3.Connection, name: str) -> Any:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]


def _patiently(action: Callable[[], T]) -> T:
    """Repeat `action` while the file is busy: SQLite does not wait when it changes the journal mode."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return action()
        except sqlite3.OperationalError as error:
            if not _is_busy(error) or time.monotonic() > deadline:
                raise
        time.sleep(0.01)


def _is_busy(error: sqlite3.Error) -> bool:
    # The low byte is the primary code; the rest says which kind of busy.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
