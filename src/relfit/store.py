"""SQLite store of finished work, so that an interrupted experiment goes on where it stopped.

One row per finished trial, keyed by (experiment, version, setting, seed). The file is in WAL mode with
synchronous=FULL: once `put` returns, the row survives kill -9 and a power cut. Any number of processes may
write to one file on a local disk (WAL does not work over network file systems).
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, TypeVar

from relfit.errors import InputError

APPLICATION_ID = 0x72656C66  # "relf": marks the file as ours in SQLite's header
SCHEMA = 1
BUSY_SECONDS = 60.0

_CREATE = """
CREATE TABLE trials (
    experiment TEXT NOT NULL,
    version TEXT NOT NULL,
    setting TEXT NOT NULL,
    seed INTEGER NOT NULL,
    result TEXT NOT NULL,
    PRIMARY KEY (experiment, version, setting, seed)
) WITHOUT ROWID
"""
_INSERT = "INSERT INTO trials VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
_WHERE = "FROM trials WHERE experiment = ? AND version = ? AND setting = ?"

T = TypeVar("T")


def canonical_json(value: Mapping[str, Any]) -> str:
    """`value` as JSON text, the same for equal mappings: keys sorted, no spaces, NumPy values made plain.

    >>> canonical_json({"n": 500, "angle": 0.5})
    '{"angle":0.5,"n":500}'
    """
    if not isinstance(value, Mapping):
        raise InputError(f"expected a mapping that JSON can hold; got {value!r}; return or pass a dict")
    try:
        return json.dumps(dict(value), sort_keys=True, separators=(",", ":"), allow_nan=False, default=_plain)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"expected finite numbers, text, lists and mappings that JSON can hold; got {value!r} ({error}); "
            "write None where a number does not exist"
        ) from error


def _plain(value: object) -> object:
    """NumPy scalars and arrays, without importing numpy: both have `tolist`."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not JSON")


class Store:
    """A store file, open; use it as a context manager.

    `version` names the version of the computation. Rows of another version stay in the file but are neither
    counted as done nor returned, so results of two versions are never mixed: raise it when a change of the
    code changes the numbers.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, Store(f"{folder}/store.sqlite") as store:
    ...     store.put("demo", {"n": 50}, 0, {"worse": 1})
    ...     store.done("demo", {"n": 50}), store.results("demo", {"n": 50})
    ({0}, [{'worse': 1}])
    """

    def __init__(self, path: str | os.PathLike[str], *, version: str = "1") -> None:
        self.path = os.fspath(path)
        self.version = version
        self._connection = _open(self.path)

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        self._connection.close()

    def done(self, experiment: str, setting: Mapping[str, Any]) -> set[int]:
        """The seeds whose trials are stored."""
        return {seed for (seed,) in self._select("SELECT seed", experiment, setting)}

    def put(self, experiment: str, setting: Mapping[str, Any], seed: int, result: Mapping[str, Any]) -> None:
        """Store one trial, on disk when this returns; a trial that is there already is left as it is."""
        self.put_many(experiment, setting, [(seed, result)])

    def put_many(
        self, experiment: str, setting: Mapping[str, Any], trials: Iterable[tuple[int, Mapping[str, Any]]]
    ) -> None:
        """Store (seed, result) pairs of one setting in one transaction: all or none."""
        key = (experiment, self.version, canonical_json(setting))
        rows = [(*key, int(seed), canonical_json(result)) for seed, result in trials]
        with _transaction(self._connection):
            self._connection.executemany(_INSERT, rows)

    def results(self, experiment: str, setting: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The stored results, ordered by seed."""
        return list(self.by_seed(experiment, setting).values())

    def by_seed(self, experiment: str, setting: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
        """The stored results by seed, in the order of the seeds."""
        rows = self._select("SELECT seed, result", experiment, setting)
        return {seed: json.loads(text) for seed, text in rows}

    def _select(self, what: str, experiment: str, setting: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        key = (experiment, self.version, canonical_json(setting))
        return self._connection.execute(f"{what} {_WHERE} ORDER BY seed", key).fetchall()


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
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


def _open(path: str) -> sqlite3.Connection:
    """A checked connection; every way in which the file is not a store is one InputError."""
    try:
        connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
    except sqlite3.Error as error:
        raise InputError(f"path: cannot open {path!r} ({error}); give a file in a folder that exists") from error
    try:
        _prepare(connection, path)
    except sqlite3.DatabaseError as error:
        connection.close()
        remedy = "end the process that holds it" if _is_busy(error) else "give a store of relfit or a new name"
        raise InputError(f"path: cannot use {path!r} ({error}); {remedy}") from error
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, path: str) -> None:
    """Make the table in a new file, or check that an old one is a sound store of this schema."""
    connection.execute("PRAGMA synchronous = FULL")
    with _transaction(connection):
        if _is_empty(connection):
            connection.execute(_CREATE)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {SCHEMA}")
    _check(connection, path)
    _patiently(lambda: connection.execute("PRAGMA journal_mode = WAL"))


def _is_empty(connection: sqlite3.Connection) -> bool:
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    return not tables and not _pragma(connection, "application_id") and not _pragma(connection, "user_version")


def _check(connection: sqlite3.Connection, path: str) -> None:
    if _pragma(connection, "application_id") != APPLICATION_ID:
        raise InputError(f"path: {path!r} is an SQLite file of another program; give a new file name")
    found = _pragma(connection, "user_version")
    if found != SCHEMA:
        raise InputError(f"path: {path!r} has schema {found}, not {SCHEMA}; use the relfit that wrote it or a new file")
    fault = _pragma(connection, "quick_check(1)")
    if fault != "ok":
        first_line = str(fault).strip().replace("\n", " ")
        raise InputError(f"path: {path!r} is damaged ({first_line}); restore a copy or give a new file name")


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
