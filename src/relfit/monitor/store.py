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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from relfit.data.metrics import direction_needed
from relfit.data.scored import Scores, as_text
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
from relfit.util.files import Database, Format, write_text_atomic
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
_SETTINGS = ("names", "bounds", "alpha", "outside", "higher_is_better", "bets")
_ARRAYS = ("wealth", "counts", "totals", "sums", "peak", "out")
# Items that are ranked at once.
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
            before = self._state()
            now = min(max(time.time(), 1.0), _LATEST)
            counted = before.evidence.items
            entries = [
                (counted + k, key, row.tobytes(), now)
                for k, (key, row) in enumerate(zip(keys, rows, strict=True), 1)
            ]
            try:
                connection.executemany("INSERT INTO items VALUES (?, ?, ?, ?)", entries)
            except sqlite3.IntegrityError:
                raise self._counted_before(keys, counted) from None
            after = self._advanced(before, used, now)
            self._write(connection, replace(after, clipped=before.clipped + clipped))

    def result(self) -> MonitorResult:
        """The answer after the items so far, of this and of other processes."""
        with _one_line(self.path):
            return self._result(self._state())

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
                out = self._state().evidence.out
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
            state = self._state()
            items = state.evidence.items
            again = replace(self._empty(), clipped=state.clipped)
            found = []
            step = max(1, -(-items // most))
            rows = self._file.connection.execute(
                "SELECT losses FROM items WHERE number <= ? ORDER BY number", (items,)
            )
            while block := rows.fetchmany(step):
                flat = np.frombuffer(b"".join(row[0] for row in block))
                losses = flat.reshape(len(block), len(self.names))
                again = self._advanced(again, self._bounded(losses)[0], state.times)
                found.append(self._result(again))
            same = np.allclose(state.flat(), again.flat(), rtol=_ROUNDING, atol=_ROUNDING)
            if again.evidence.items != items or not same:
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
                column = np.atleast_1d(np.asarray(values, dtype=float))
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
            starts = range(0, len(rows), _BLOCK)
            return np.concatenate([ranks(turned[at : at + _BLOCK]) for at in starts]), 0
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

    def _advanced(self, before: _State, used: Array, times: Array | float) -> _State:
        """The state after more losses; `times` are those of models that are out by them."""
        start = before.evidence
        after = advance(start, used, self.bets, self.alpha)
        newly = (start.out == 0.0) & (after.out > 0.0)
        limits = before.limits
        part = start
        for item in np.unique(after.out[newly]):
            between = used[part.items - start.items : int(item) - start.items]
            part = advance(part, between, self.bets, self.alpha)
            found = regrets(part, self.bets, self.alpha, self._lower_limits(part))
            limits = np.where(after.out == item, found, limits)
        return _State(after, before.clipped, np.where(newly, times, before.times), limits)

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
        return {name: getattr(self, name) for name in _SETTINGS}

    def _claim(self) -> None:
        """Write the settings into a file without items, or refuse the file of another
        monitor.
        """
        given = {name: json.loads(json.dumps(value)) for name, value in self.settings().items()}
        with _one_line(self.path), self._file.transaction() as connection:
            if connection.execute("SELECT 1 FROM items LIMIT 1").fetchone() is None:
                rows = [(name, json.dumps(value)) for name, value in given.items()]
                connection.executemany("INSERT OR REPLACE INTO settings VALUES (?, ?)", rows)
                self._write(connection, self._empty())
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
            self._state()

    def _empty(self) -> _State:
        """The state before the first item."""
        count = len(self.names)
        evidence = no_evidence(count, len(self.bets))
        return _State(evidence, 0, np.zeros(count), np.zeros((3, count)))

    def _write(self, connection: sqlite3.Connection, state: _State) -> None:
        figures = state.evidence.items, state.clipped, state.flat().tobytes()
        row = *figures, self._digest(*figures)
        connection.execute("INSERT OR REPLACE INTO evidence VALUES (1, ?, ?, ?, ?)", row)

    def _state(self) -> _State:
        """What the file holds now."""
        row = self._file.connection.execute(
            "SELECT items, clipped, arrays, digest, (SELECT max(number) FROM items) "
            "FROM evidence"
        ).fetchone()
        sound = (
            row is not None and isinstance(row[2], bytes) and row[3] == self._digest(*row[:3])
        )
        if not sound or row[0] != (row[4] or 0):
            raise ValueError("its figures do not fit its items")
        items, clipped, figures = row[:3]
        flat = np.frombuffer(figures)
        empty = self._empty()
        if len(flat) != len(empty.flat()) or type(clipped) is not int or clipped < 0:
            raise ValueError("its figures do not fit its settings")
        arrays = []
        for array in empty.arrays():
            arrays.append(flat[: array.size].reshape(array.shape))
            flat = flat[array.size :]
        *parts, times, limits = arrays
        kept = dict(zip(_ARRAYS, parts, strict=True))
        state = _State(replace(empty.evidence, items=items, **kept), clipped, times, limits)
        state.check()
        return state

    def _digest(self, items: int, clipped: int, arrays: bytes) -> str:
        head = json.dumps([self.settings(), items, clipped])
        return hashlib.sha256(head.encode() + arrays).hexdigest()

    def _counted_before(self, keys: Sequence[str], items: int) -> InputError:
        """The error that names the first key that is in the file."""
        query = "SELECT number FROM items WHERE item = ? AND number <= ?"
        for key in keys:
            row = self._file.connection.execute(query, (key, items)).fetchone()
            if row is not None:
                return InputError(
                    f"items: {key!r:.80} was counted before, as item {row[0]}; nothing of this "
                    f"call was counted: leave it out"
                )
        raise ValueError("its keys do not fit its items")

    def _result(self, state: _State) -> MonitorResult:
        evidence = state.evidence
        low, high = self.bounds if self.outside != "ranks" else (0.0, 1.0)
        width = high - low
        scored = np.diag(evidence.counts).copy()
        with np.errstate(invalid="ignore"):
            means = evidence.sums / scored
            gaps = evidence.totals / evidence.counts
        lower = self._lower_limits(evidence)
        log_evalue = log_e_models(evidence, self.bets)
        out = evidence.out > 0.0
        limits = state.limits
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
            out_time=tuple(float(at) or None for at in state.times),
            out_limits=width * np.where(out, limits, np.nan).T,
            common=evidence.counts.copy(),
            difference=width * gaps,
            lower=width * lower,
            upper=-width * lower.T,
            log_pair_evalue=log_e_pairs(evidence, self.bets),
            clipped=state.clipped,
        )


@dataclass(frozen=True, eq=False)
class _State:
    """What the items so far amount to, as the file keeps it.

    Attributes:
        evidence: the evidence about all pairs of models.
        clipped: how many losses were clipped.
        times: (l,) when each model was out, in seconds since 1970; 0 while it is not.
        limits: (3, l) the `regrets` of each model when it was out, or 0.
    """

    evidence: Evidence
    clipped: int
    times: Array
    limits: Array

    def arrays(self) -> list[Array]:
        """The arrays in the order of the file."""
        return [*(getattr(self.evidence, name) for name in _ARRAYS), self.times, self.limits]

    def flat(self) -> Array:
        """All numbers of the arrays in a row."""
        return np.concatenate([array.ravel() for array in self.arrays()])

    def check(self) -> None:
        """Refuse figures that no losses from 0 to 1 have: somebody has made them up, with
        their digest.
        """
        evidence = self.evidence
        counts = evidence.counts
        out = evidence.out
        limits = self.limits
        more = 1.0 + _ROUNDING
        with np.errstate(over="ignore", invalid="ignore"):
            possible = (
                (counts >= 0.0) & (counts <= evidence.items),
                np.abs(evidence.wealth) <= -math.log1p(-LARGEST_BET) * counts * more,
                np.abs(evidence.totals) <= counts * more,
                (evidence.sums >= 0.0) & (evidence.sums <= np.diag(counts) * more),
                np.abs(evidence.peak) <= LARGEST_LOG * more,
                (out >= 0.0) & (out <= evidence.items) & (out == np.floor(out)),
                (self.times > 0.0) == (out > 0.0),
                (self.times >= 0.0) & (self.times <= _LATEST),
                (np.abs(limits) <= more) & (limits[1] >= 0.0) & (limits[1] <= limits[2]),
            )
        # NaN compares as False.
        if not all(each.all() for each in possible):
            raise ValueError("its figures are not those of any losses")


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
        rows = file.connection.execute("SELECT * FROM settings")
        held = {name: json.loads(value) for name, value in rows}
        if set(held) != set(_SETTINGS):
            raise ValueError("its settings are not complete")
    return held


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
