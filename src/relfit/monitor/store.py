"""Monitor: models compared while their losses arrive, with an answer that is valid at every
look, kept in one file.

The file holds every item once, with its losses, and what they amount to: opening it replays
nothing. An item is one row with the losses of all models, since a row for each of them would
take twenty times as long.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import sqlite3
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from relfit.data.metrics import direction_needed
from relfit.data.scores import Scores, as_text
from relfit.monitor.evidence import (
    BETS,
    LARGEST_BET,
    LARGEST_LOG,
    Evidence,
    advance,
    log_e_models,
    log_e_pairs,
    lower_limits,
    no_evidence,
    ranks,
    regrets,
)
from relfit.results.monitor import MonitorResult
from relfit.util.arrays import Array
from relfit.util.checks import check_alpha, check_choice, check_number
from relfit.util.errors import InputError
from relfit.util.files import write_text_atomic
from relfit.util.sqlite import Database, Format
from relfit.util.text import as_name, is_text, listed

OUTSIDE = ("refuse", "clip", "ranks")
_CREATE = """
CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE items (number INTEGER PRIMARY KEY, item TEXT NOT NULL UNIQUE, losses BLOB NOT NULL,
                    added REAL NOT NULL);
CREATE TABLE evidence (number INTEGER PRIMARY KEY, items INTEGER NOT NULL, clipped INTEGER NOT NULL,
    arrays BLOB NOT NULL, digest TEXT NOT NULL)
"""
# The number is "relm".
MONITOR = Format("path", "the file of a monitor", 0x72656C6D, 2, _CREATE)
_ARRAYS = ("wealth", "counts", "totals", "sums", "peak", "out")
# Items that are turned into bets, or read back, at once.
_BLOCK = 4096
# A replay adds in another order than the updates did.
_ROUNDING = 1e-6
# The last second that has a date, in seconds since 1970; a clock may be beyond it, or not be
# set.
_LATEST = 253_402_300_799.0


class Monitor:
    """Models whose losses arrive item by item, and a file that keeps them; a context manager.

    The answer may be looked at after every item, for ever: with probability 1 − alpha no
    model is ever called worse that is among the best at every look, on average over the
    items so far.

    Args:
        names: the models.
        bounds: the smallest and the largest loss there can be.
        alpha: the probability of ever calling a best model worse.
        path: the file. It is created, or the file of an earlier run with the same settings
            goes on. Several processes may write to one file; ":memory:" keeps nothing.
        outside: what is done with losses outside of the bounds. "clip" moves them to the
            nearer bound; "ranks" replaces all losses by their ranks within the item, from 0
            for its best model to 1, and needs no bounds.
        higher_is_better: True for scores such as accuracies, False for losses; it has no
            default.
        bets: the parts of its wealth that the monitor bets, each against each; any numbers
            between 0 and 1. Large ones find large differences sooner, and small ones small
            differences.

    >>> monitor = Monitor(["old", "new"], path=":memory:", higher_is_better=False)
    >>> monitor.update({"old": [0.0] * 40, "new": [0.4] * 40}, items=range(40))
    >>> result = monitor.result()
    >>> result.confidence_set, result.out_after
    (('old',), (None, 20))
    """

    def __init__(
        self,
        names: Sequence[str],
        bounds: tuple[float, float] = (0.0, 1.0),
        alpha: float = 0.05,
        path: str | os.PathLike[str] = "gate.sqlite",
        *,
        outside: str = "refuse",
        higher_is_better: bool | None = None,
        bets: Sequence[float] = BETS,
    ) -> None:
        given: Any = names if isinstance(names, Sequence) and not isinstance(names, str) else ()
        given = tuple(map(as_name, given))
        if len(given) < 2 or not all(map(is_text, given)) or len(set(given)) < len(given):
            raise InputError(f"names: expected at least two different texts, got {names!r:.80}")
        pair: Any = (
            bounds
            if isinstance(bounds, Sequence) and len(bounds) == 2
            else (math.nan, math.nan)
        )
        low, high = (
            check_number("bounds", end, -1e300, 1e300, "two finite numbers") for end in pair
        )
        if not low < high:
            raise InputError(
                f"bounds: expected the smaller number first, got {low:g} and {high:g}"
            )
        if higher_is_better is None:
            raise direction_needed("a monitor gets scores without the name of the metric")
        if not isinstance(higher_is_better, bool | np.bool_):
            raise InputError(
                f"higher_is_better: expected True or False, got {higher_is_better!r:.40}"
            )
        if not isinstance(bets, Sequence) or isinstance(bets, str) or not 0 < len(bets) <= 100:
            raise InputError(
                f"bets: expected 1 to 100 numbers between 0 and {LARGEST_BET}, got {bets!r:.40}"
            )
        expected = f"numbers between 0 and {LARGEST_BET}"
        self.names: tuple[str, ...] = given
        self.bounds = low, high
        self.alpha = check_alpha(alpha)
        self.outside = check_choice("outside", outside, OUTSIDE)
        self.higher_is_better = bool(higher_is_better)
        self.bets = tuple(
            check_number("bets", bet, 0.0, math.nextafter(LARGEST_BET, 1.0), expected)
            for bet in bets
        )
        self.path = os.fspath(path)
        self._file = Database(path, MONITOR)
        try:
            self._claim()
        except BaseException:
            self._file.close()
            raise

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """The monitor of a file that is there, with its settings."""
        if not Path(path).is_file():
            raise InputError(
                f"path: expected the file of a monitor, got {os.fspath(path)!r}, "
                f"which does not exist"
            )
        with Database(path, MONITOR) as file:
            settings = _settings(file)
        return cls(path=path, **settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        self._file.close()

    def update(self, losses: Mapping[str, Any] | Scores, *, items: Any = None) -> None:
        """Count one item or many: a loss, or one for each item, of some models or all.

        Args:
            losses: model → its losses; or what `relfit.scores` returned, which has the keys
                of the items. A model that is left out, or has NaN, was not asked; which ones
                are asked must not depend on the losses of these items. A model that failed
                has the largest loss, not a missing one.
            items: the key of the item, or of each item: text or a whole number. A key that
                was counted before is refused, and then nothing of this call is counted.
        """
        if isinstance(losses, Scores):
            if items is not None:
                raise InputError("items: the scores have them already; leave them out")
            items, losses = losses.by_item()
        keys = _keys(items)
        rows = self._matrix(losses, len(keys))
        used, clipped = self._bounded(rows)
        with _one_line(self.path), self._file.transaction() as connection:
            before, clipped_before, times, limits = self._evidence()
            now = min(max(time.time(), 1.0), _LATEST)
            numbers = range(before.items + 1, before.items + len(keys) + 1)
            entries = zip(
                numbers, keys, (row.tobytes() for row in rows), [now] * len(keys), strict=True
            )
            try:
                connection.executemany("INSERT INTO items VALUES (?, ?, ?, ?)", entries)
            except sqlite3.IntegrityError:
                raise self._counted_before(connection, keys, before.items) from None
            after, limits = self._advanced(before, used, limits)
            times = np.where((before.out == 0.0) & (after.out > 0.0), now, times)
            self._write(connection, after, clipped_before + clipped, times, limits)

    def result(self) -> MonitorResult:
        """The answer after the items so far, of this and of other processes."""
        with _one_line(self.path):
            return self._result(*self._evidence())

    def rounds(self, items: Iterable[Any]) -> Iterator[tuple[Any, tuple[str, ...]]]:
        """Each item that is not counted yet, with the models that it is needed for; ends
        when one model is left.

        Score the item by these models alone and give the losses to `update` before the next
        one; `result().saved` says how many scores were not needed.

        >>> monitor = Monitor(["a", "b", "c"], path=":memory:", higher_is_better=False)
        >>> losses = {"a": 0.1, "b": 0.2, "c": 0.9}
        >>> for item, names in monitor.rounds(range(1000)):
        ...     monitor.update({name: losses[name] for name in names}, items=item)
        >>> monitor.result().items, monitor.result().scored.tolist()
        (79, [79.0, 79.0, 13.0])
        """
        for item in items:
            key = _keys([item])
            known = "SELECT 1 FROM items WHERE item = ?"
            with _one_line(self.path):
                counted = self._file.connection.execute(known, key).fetchone() is not None
                out = self._evidence()[0].out
            needed = tuple(
                name for name, after in zip(self.names, out, strict=True) if not after
            )
            if len(needed) < 2:
                return
            if not counted:
                yield item, needed

    def history(self, most: int = 200) -> list[MonitorResult]:
        """At most so many answers from the first item to now, from a replay of the items in
        the file.

        The replay must end where the file's own figures are; a file whose losses were
        changed is refused.
        """
        with _one_line(self.path):
            evidence, clipped, times, limits = self._evidence()
            again = no_evidence(len(self.names), len(self.bets))
            found = []
            limits_again = np.zeros_like(limits)
            step = max(1, -(-evidence.items // most))
            rows = self._file.connection.execute(
                "SELECT losses FROM items WHERE number <= ? ORDER BY number", (evidence.items,)
            )
            while block := rows.fetchmany(step if step > _BLOCK else step * (_BLOCK // step)):
                losses = np.frombuffer(b"".join(row[0] for row in block)).reshape(
                    len(block), len(self.names)
                )
                used = self._bounded(losses)[0]
                for start in range(0, len(block), step):
                    again, limits_again = self._advanced(
                        again, used[start : start + step], limits_again
                    )
                    found.append(
                        self._result(
                            again, clipped, np.where(again.out > 0.0, times, 0.0), limits_again
                        )
                    )
            pairs = [(getattr(evidence, name), getattr(again, name)) for name in _ARRAYS]
            same = all(
                np.allclose(a, b, rtol=_ROUNDING, atol=_ROUNDING)
                for a, b in [*pairs, (limits, limits_again)]
            )
            if again.items != evidence.items or not same:
                raise ValueError("its losses do not give its figures")
        return found

    def report(self, path: str | os.PathLike[str], *, gate: Any = None) -> None:
        """Write a page with the e-values and the confidence sequences over time.

        `gate` is what `relfit.report.gate.judge_monitor` answered: its sentence stands
        above everything else.
        """
        from relfit.monitor.page import monitor_page

        write_text_atomic(path, monitor_page(self.history(), gate))

    # ── losses ────────────────────────────────────────────────────────────────────────────────

    def _matrix(self, losses: Mapping[str, Any], count: int) -> Array:
        """(count, l) losses as given, NaN where a model has none."""
        if not isinstance(losses, Mapping) or not losses:
            raise InputError(
                f"losses: expected a mapping of models to losses, got {type(losses).__name__}"
            )
        rows = np.full((count, len(self.names)), np.nan)
        for key, values in losses.items():
            name = as_name(key)
            if name not in self.names:
                known = listed(self.names, "or", quote=repr)
                raise InputError(
                    f"losses: expected models of this monitor ({known}), got {name!r:.60}"
                )
            try:
                column = np.asarray(values, dtype=float)
                column = column[None] if column.ndim == 0 else column
            except (TypeError, ValueError):
                column = np.full(1, np.inf)
            if column.shape != (count,) or np.isinf(column).any():
                shape = f"shape {column.shape}" if column.shape != (count,) else "others"
                raise InputError(
                    f"losses[{name!r}]: expected {count} finite numbers, one for "
                    f"each item, got {shape}"
                )
            rows[:, self.names.index(name)] = column
        return rows

    def _bounded(self, rows: Array) -> tuple[Array, int]:
        """The losses from 0 to 1, smaller is better, and how many were clipped."""
        if self.outside == "ranks":
            turned = -rows if self.higher_is_better else rows
            blocks = [
                ranks(turned[start : start + _BLOCK]) for start in range(0, len(rows), _BLOCK)
            ]
            return np.concatenate(blocks) if blocks else rows, 0
        low, high = self.bounds
        beyond = (rows < low) | (rows > high)
        clipped = int(beyond.sum())
        if clipped and self.outside == "refuse":
            value = rows[beyond][0]
            name = self.names[int(np.argwhere(beyond)[0, 1])]
            raise InputError(
                f"losses[{name!r}]: expected numbers from {low:g} to {high:g}, got {value:g}; "
                f"give wider bounds, or "
                'say outside="clip" or outside="ranks"'
            )
        used = (np.clip(rows, low, high) - low) / (high - low)
        return (1.0 - used if self.higher_is_better else used), clipped

    def _advanced(self, before: Evidence, used: Array, limits: Array) -> tuple[Evidence, Array]:
        """The evidence after more losses, and the `regrets` (3, l) of models when they were
        out.
        """
        after = advance(before, used, self.bets, self.alpha)
        part = before
        for item in np.unique(after.out[(before.out == 0.0) & (after.out > 0.0)]):
            part = advance(
                part,
                used[part.items - before.items : int(item) - before.items],
                self.bets,
                self.alpha,
            )
            found = regrets(part, self.bets, self.alpha, self._lower_limits(part))
            limits = np.where(after.out == item, found, limits)
        return after, limits

    def _lower_limits(self, evidence: Evidence) -> Array:
        """(l, l) lower limits for the differences of losses from 0 to 1, for all pairs at
        once.
        """
        count = len(self.names)
        lower = lower_limits(evidence, self.bets, self.alpha / (count * (count - 1)))
        np.fill_diagonal(lower, 0.0)
        return lower

    # ── the file ──────────────────────────────────────────────────────────────────────────────

    def settings(self) -> dict[str, Any]:
        """The settings, as `Monitor` takes them; the path is not one of them."""
        kept = ("names", "bounds", "alpha", "outside", "higher_is_better", "bets")
        return {name: getattr(self, name) for name in kept}

    def _claim(self) -> None:
        """Write the settings into a file without items, or refuse the file of another
        monitor.
        """
        given = {name: json.loads(json.dumps(value)) for name, value in self.settings().items()}
        with _one_line(self.path), self._file.transaction() as connection:
            if connection.execute("SELECT 1 FROM items LIMIT 1").fetchone() is None:
                rows = [(name, json.dumps(value)) for name, value in given.items()]
                connection.executemany("INSERT OR REPLACE INTO settings VALUES (?, ?)", rows)
                empty = no_evidence(len(self.names), len(self.bets))
                self._write(
                    connection,
                    empty,
                    0,
                    np.zeros(len(self.names)),
                    np.zeros((3, len(self.names))),
                )
        held = _settings(self._file)
        other = [
            f"{name} was {held[name]!r:.200}, is {given[name]!r:.200}"
            for name in given
            if held[name] != given[name]
        ]
        if other:
            raise InputError(
                f"path: {self.path!r} belongs to another monitor ({'; '.join(other)}); give "
                f"the same settings, or a "
                "new file name"
            )
        with _one_line(self.path):
            self._evidence()

    def _write(
        self,
        connection: sqlite3.Connection,
        evidence: Evidence,
        clipped: int,
        times: Array,
        limits: Array,
    ) -> None:
        arrays = b"".join(
            array.tobytes()
            for array in [*(getattr(evidence, name) for name in _ARRAYS), times, limits]
        )
        digest = self._digest(evidence.items, clipped, arrays)
        row = evidence.items, clipped, arrays, digest
        connection.execute("INSERT OR REPLACE INTO evidence VALUES (1, ?, ?, ?, ?)", row)

    def _evidence(self) -> tuple[Evidence, int, Array, Array]:
        """What the file holds now: the evidence, how many losses were clipped, and of models
        that are out the times and the limits.
        """
        connection = self._file.connection
        row = connection.execute(
            "SELECT items, clipped, arrays, digest, (SELECT max(number) FROM items) "
            "FROM evidence"
        ).fetchone()
        sound = (
            row is not None and isinstance(row[2], bytes) and row[3] == self._digest(*row[:3])
        )
        if not sound or row[0] != (row[4] or 0):
            raise ValueError("its figures do not fit its items")
        clipped = row[1]
        count = len(self.names)
        empty = no_evidence(count, len(self.bets))
        shapes = [*(getattr(empty, name).shape for name in _ARRAYS), (count,), (3, count)]
        flat = np.frombuffer(row[2])
        ends = np.cumsum([math.prod(shape) for shape in shapes])
        if len(flat) != ends[-1] or type(clipped) is not int or clipped < 0:
            raise ValueError("its figures do not fit its settings")
        *parts, times, limits = (
            part.reshape(shape)
            for part, shape in zip(np.split(flat, ends[:-1]), shapes, strict=True)
        )
        evidence = replace(empty, items=row[0], **dict(zip(_ARRAYS, parts, strict=True)))
        _check_figures(evidence, times, limits)
        return evidence, clipped, times, limits

    def _digest(self, items: int, clipped: int, arrays: bytes) -> str:
        head = json.dumps([self.settings(), items, clipped])
        return hashlib.sha256(head.encode() + arrays).hexdigest()

    def _counted_before(
        self, connection: sqlite3.Connection, keys: Sequence[str], items: int
    ) -> InputError:
        """The error that names the first key that is in the file."""
        query = "SELECT number FROM items WHERE item = ? AND number <= ?"
        found = ((key, connection.execute(query, (key, items)).fetchone()) for key in keys)
        key, row = next(((key, row) for key, row in found if row is not None), ("", None))
        if row is None:
            raise ValueError("its keys do not fit its items")
        return InputError(
            f"items: {key!r:.80} was counted before, as item {row[0]}; nothing of this call "
            f"was counted: leave it out"
        )

    def _result(
        self, evidence: Evidence, clipped: int, times: Array, limits: Array
    ) -> MonitorResult:
        count = len(self.names)
        (low, high) = self.bounds if self.outside != "ranks" else (0.0, 1.0)
        width = high - low
        scored = np.diag(evidence.counts).copy()
        means = np.divide(evidence.sums, scored, out=np.full(count, np.nan), where=scored > 0.0)
        gaps = np.divide(
            evidence.totals,
            evidence.counts,
            out=np.full((count, count), np.nan),
            where=evidence.counts > 0.0,
        )
        lower = self._lower_limits(evidence)
        log_evalue = log_e_models(evidence, self.bets)
        out = evidence.out > 0.0
        if out.any():
            still = log_evalue >= math.log(1.0 / self.alpha)
            limits = np.where(still, regrets(evidence, self.bets, self.alpha, lower), limits)
        turned = self.higher_is_better and self.outside != "ranks"
        return MonitorResult(
            **self.settings(),
            items=evidence.items,
            scored=scored,
            mean=high - width * means if turned else low + width * means,
            log_evalue=log_evalue,
            log_peak=evidence.peak.copy(),
            out_after=tuple(int(after) or None for after in evidence.out),
            out_time=tuple(float(at) or None for at in times),
            out_limits=width * np.where(out, limits, np.nan).T,
            common=evidence.counts.copy(),
            difference=width * gaps,
            lower=width * lower,
            upper=-width * lower.T,
            log_pair_evalue=log_e_pairs(evidence, self.bets),
            clipped=clipped,
        )


def _keys(items: Any) -> list[str]:
    """The keys of the items as text, each once."""
    one = isinstance(items, str | int | np.integer)
    cells = [items] if one else items.tolist() if hasattr(items, "tolist") else items
    if not isinstance(cells, Iterable):
        raise InputError(f"items: expected the key of each item, got {type(items).__name__}")
    keys = []
    for cell in cells:
        whole = isinstance(cell, int | np.integer) and not isinstance(cell, bool)
        if not is_text(cell) and not whole:
            raise InputError(f"items: expected text or whole numbers, got {cell!r:.60}")
        keys.append(as_text(cell))
    if not keys:
        raise InputError("items: expected at least one, got none")
    twice, times = Counter(keys).most_common(1)[0]
    if times > 1:
        raise InputError(
            f"items: expected each item once, got {twice!r:.80} twice; nothing "
            f"of this call was counted"
        )
    return keys


def _settings(file: Database) -> dict[str, Any]:
    """The settings in a file, as `Monitor` takes them."""
    with _one_line(file.path):
        held = {
            name: json.loads(value)
            for name, value in file.connection.execute("SELECT * FROM settings")
        }
        if set(held) != {"names", "bounds", "alpha", "outside", "higher_is_better", "bets"}:
            raise ValueError("its settings are not complete")
    return held


def _check_figures(evidence: Evidence, times: Array, limits: Array) -> None:
    """Refuse figures that no losses from 0 to 1 have: somebody has made them up, with their
    digest.
    """
    counts = evidence.counts
    out = evidence.out
    more = 1.0 + _ROUNDING
    with np.errstate(over="ignore", invalid="ignore"):
        possible = (
            (counts >= 0.0) & (counts <= evidence.items),
            np.abs(evidence.wealth) <= -math.log1p(-LARGEST_BET) * counts * more,
            np.abs(evidence.totals) <= counts * more,
            (evidence.sums >= 0.0) & (evidence.sums <= np.diag(counts) * more),
            np.abs(evidence.peak) <= LARGEST_LOG * more,
            (out >= 0.0) & (out <= evidence.items) & (out == np.floor(out)),
            np.where(out > 0.0, (times > 0.0) & (times <= _LATEST), times == 0.0),
            (np.abs(limits) <= more) & (limits[1] >= 0.0) & (limits[1] <= limits[2]),
        )
    # NaN compares as False.
    if not all(each.all() for each in possible):
        raise ValueError("its figures are not those of any losses")


@contextmanager
def _one_line(path: str) -> Iterator[None]:
    """Whatever a damaged file leads to, as an error of one line."""
    try:
        yield
    except InputError:
        raise
    except (sqlite3.DatabaseError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise InputError(
            f"path: {path!r} is damaged ({error}); restore a copy or give a new file name"
        ) from error
