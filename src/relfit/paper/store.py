"""SQLite store of finished work, so that an interrupted experiment goes on where it stopped.

One row per finished trial, keyed by (experiment, version, setting, seed). The file is in WAL mode with
synchronous=FULL: once `put` returns, the row survives kill -9 and a power cut. Any number of processes may
write to one file on a local disk (WAL does not work over network file systems).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

from relfit.util.errors import InputError
from relfit.util.sqlite import Database, Format

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
# The number is "relf".
STORE = Format("path", "a store of relfit", 0x72656C66, 1, _CREATE)
_INSERT = "INSERT INTO trials VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
_WHERE = "FROM trials WHERE experiment = ? AND version = ? AND setting = ?"


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


class Store(Database):
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
        super().__init__(path, STORE)
        self.version = version

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
        with self.transaction() as connection:
            connection.executemany(_INSERT, rows)

    def results(self, experiment: str, setting: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The stored results, ordered by seed."""
        return list(self.by_seed(experiment, setting).values())

    def by_seed(self, experiment: str, setting: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
        """The stored results by seed, in the order of the seeds."""
        rows = self._select("SELECT seed, result", experiment, setting)
        return {seed: json.loads(text) for seed, text in rows}

    def _select(self, what: str, experiment: str, setting: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        key = (experiment, self.version, canonical_json(setting))
        return self.connection.execute(f"{what} {_WHERE} ORDER BY seed", key).fetchall()
