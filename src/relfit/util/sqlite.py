"""SQLite files of our own: created once, checked when opened, safe against kill -9 and power
cuts.

With synchronous=FULL, what is committed survives a power cut. In WAL mode that takes one
flush, and any number of processes may write to one file of a shared format, but not on a
network file system. An exclusive format is locked by the one process that has it open, until
it closes the file or dies.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, Self

from relfit.util.errors import InputError
from relfit.util.files import note_read

# Seconds to wait for another process: to finish its transaction in a shared file, to close an
# exclusive one.
BUSY_SECONDS = 60.0
EXCLUSIVE_SECONDS = 1.0


@dataclass(frozen=True)
class Format:
    """A kind of file: the argument that names it, what it is, its mark in SQLite's header,
    its schema and tables.
    """

    argument: str
    name: str
    application: int
    schema: int
    create: str
    exclusive: bool = False
    wal: bool = True


class Database:
    """An open file of one format, and a context manager; a file of another format, or a
    damaged one, is refused.
    """

    def __init__(self, path: str | os.PathLike[str], form: Format) -> None:
        self.path = os.fspath(path)
        self.form = form
        seconds = EXCLUSIVE_SECONDS if form.exclusive else BUSY_SECONDS
        try:
            self.connection = sqlite3.connect(self.path, timeout=seconds, isolation_level=None)
        except sqlite3.Error as error:
            raise self._refusal(
                f"cannot open {self.path!r} ({error}); give a file in a folder that exists"
            ) from error
        # A damaged text is still a text, and is found by its checksum.
        self.connection.text_factory = lambda data: data.decode("utf-8", "replace")
        try:
            self._prepare()
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            # SQLite's own message can quote a damaged name.
            self.connection.close()
            reason = str(error)
            remedy = f"give {form.name} or a new file name"
            if _is_busy(error):
                reason = "another process is writing it"
                remedy = "wait for that process, or end it"
            raise self._refusal(f"cannot use {self.path!r} ({reason}); {remedy}") from error
        except BaseException:
            self.connection.close()
            raise
        # By its full name: the working directory may change.
        self._place = os.path.abspath(self.path)  # noqa: PTH100
        self._status = None if self.path == ":memory:" else os.stat(self._place)  # noqa: PTH116
        note_read(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        self.connection.close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Write all or nothing: committed to disk at the end, rolled back on any exception,
        an interrupt included.
        """
        try:
            with self._transaction("IMMEDIATE"):
                self._check_place()
                yield self.connection
        except sqlite3.Error as error:
            advice = (
                "what it holds is kept: once this is fixed, the same call resumes from there"
            )
            raise self._refusal(f"cannot write {self.path!r} ({error}); {advice}") from error

    def _check_place(self) -> None:
        """Refuse to write to a file that is no longer where it was opened: nobody would find
        it.
        """
        if self._status is None:
            return
        try:
            there = os.path.samestat(os.stat(self._place), self._status)  # noqa: PTH116
        except OSError:
            there = False
        if not there:
            raise self._refusal(
                f"{self.path!r} was removed or replaced since it was opened; restore it and "
                f"start again"
            )

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Read; a file whose tables are no longer those of its format is refused."""
        try:
            yield self.connection
        except sqlite3.Error as error:
            raise self._refusal(
                f"{self.path!r} is damaged ({error}); delete it, or give a new file name"
            ) from error

    @contextmanager
    def _transaction(self, kind: str) -> Iterator[None]:
        self.connection.execute(f"BEGIN {kind}")
        try:
            yield
            self.connection.execute("COMMIT")
        except BaseException:
            # SQLite may have rolled back already, for example when the disk is full.
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            raise

    def _prepare(self) -> None:
        """Create the tables in a new file, or check that an existing file is sound and of
        this schema.
        """
        if self.form.exclusive:
            # The lock lasts until the connection closes or the process dies.
            self.connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        self.connection.execute("PRAGMA synchronous = FULL")
        with self._transaction("EXCLUSIVE" if self.form.exclusive else "IMMEDIATE"):
            marks = self._pragma("application_id"), self._pragma("user_version")
            if marks == (0, 0) and not self._objects(self.connection):
                for statement in self.form.create.split(";"):
                    self.connection.execute(statement)
                self.connection.execute(f"PRAGMA application_id = {self.form.application}")
                self.connection.execute(f"PRAGMA user_version = {self.form.schema}")
        if self._pragma("application_id") != self.form.application:
            raise self._refusal(
                f"{self.path!r} is an SQLite file of another program; give a new file name"
            )
        schema = self._pragma("user_version")
        if schema != self.form.schema:
            raise self._refusal(
                f"{self.path!r} has schema {schema}, not {self.form.schema}; use the relfit "
                f"that wrote it or a new file"
            )
        if self._objects(self.connection) != self._expected():
            why = "its tables are not those that relfit writes"
            raise self._refusal(
                f"{self.path!r} is damaged ({why}); delete it, or give a new file name"
            )
        # What SQLite says of a fault, such as numbers of pages, helps nobody to mend it.
        if self._pragma("quick_check(1)") != "ok":
            raise self._refusal(
                f"{self.path!r} is damaged; restore a copy or give a new file name"
            )
        if self.form.wal:
            self._use_wal()

    def _expected(self) -> set[Any]:
        """What `_objects` gives for a file that was just created."""
        with closing(sqlite3.connect(":memory:")) as empty:
            empty.executescript(self.form.create)
            return self._objects(empty)

    @staticmethod
    def _objects(connection: sqlite3.Connection) -> set[Any]:
        """Tables, indices, views and triggers with their definitions; a view may run without
        end.
        """
        return set(connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master"))

    def _use_wal(self) -> None:
        """Switch to WAL mode, again and again while the file is busy: SQLite does not wait
        for this by itself.
        """
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                self.connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if not _is_busy(error) or time.monotonic() > deadline:
                    raise
            time.sleep(0.01)

    def _pragma(self, name: str) -> Any:
        return self.connection.execute(f"PRAGMA {name}").fetchone()[0]

    def _refusal(self, message: str) -> InputError:
        return InputError(f"{self.form.argument}: {message}")


def _is_busy(error: Exception) -> bool:
    # The low byte is the primary code; the rest says which kind of busy.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
