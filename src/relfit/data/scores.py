"""Scores of densities at the data: asked for, compared, and stored where they do not fit into memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from relfit.compute.rows import LazyRows, StoredRows, parts, written_rows
from relfit.data.check_score import direction_finding
from relfit.data.models import Density, not_finite
from relfit.util.arrays import Array
from relfit.util.errors import InputError

# Scores are first compared at this many rows; only pairs that agree there are compared at all rows.
_PROBE = 256


def scores_of(name: str, density: Density, rows: Array) -> Array:
    """The density's scores at these rows, any complaint naming the model."""
    with _complaints_of(name):
        return density.scores(rows)


def stored_scores(name: str, density: Density, rows: LazyRows, folder: Path) -> StoredRows:
    """The density's scores at all rows, evaluated once and a part at a time, in a file of their own."""
    with _complaints_of(name):
        return written_rows(_score_parts(density, rows), folder)


def _score_parts(density: Density, rows: LazyRows) -> Iterator[Array]:
    """The scores, a part of the rows at a time; refused in the end if some are not finite."""
    bad = np.zeros(len(rows), dtype=bool)
    for part in parts(rows.shape):
        scores = density.raw_scores(rows[part]).astype(np.float64, copy=False)
        bad[part] = not_finite(scores)
        yield scores
    density.refuse_rows(bad, rows)


def score_copies(reference: Array, models: Mapping[str, Density]) -> dict[str, str]:
    """Copy → original, the first of its kind, among densities that have the same scores at every row."""
    probed = {name: _probe(name, model, reference) for name, model in models.items()}
    copies: dict[str, str] = {}
    for name, model in models.items():
        for other in models:
            if other == name:
                break
            if other in copies or not _same_scores(probed[name], probed[other]):
                continue
            if _same_everywhere({name: model, other: models[other]}, reference):
                copies[name] = other
                break
    return copies


def score_notes(reference: Array, densities: Mapping[str, Density]) -> list[str]:
    """What a reader should know of the densities' scores at the data, and of which models it holds."""
    said: dict[str, list[str]] = {}
    for name, density in densities.items():
        with _complaints_of(name):
            notes = density.notes(reference)
        for note in notes:
            said.setdefault(note, []).append(repr(name))
    return [f"{', '.join(names)}: {note}" for note, names in said.items()]


def target_notes(target: Density, rows: Array) -> tuple[str, ...]:
    """What a reader should know of the target's scores at a sample."""
    try:
        return target.notes(rows)
    except InputError as error:
        raise InputError(f"reference: {error}") from None


def _probe(name: str, model: Density, reference: Array) -> Array:
    step = max(1, len(reference) // _PROBE)
    try:
        return model.scores(reference[::step])
    except InputError:
        # Asked again at every row, so that the complaint counts rows of the reference.
        if not isinstance(reference, LazyRows):
            return scores_of(name, model, reference)[::step]
        with _complaints_of(name):
            deque(_score_parts(model, reference), maxlen=0)
        raise


def _same_everywhere(models: Mapping[str, Density], rows: Array) -> bool:
    if not isinstance(rows, LazyRows):
        first, second = (scores_of(name, model, rows) for name, model in models.items())
        return _same_scores(first, second)
    lazy: LazyRows = rows

    def both() -> Iterator[tuple[Array, ...]]:
        blocks = (lazy[part] for part in parts(lazy.shape))
        return (tuple(scores_of(name, model, rows) for name, model in models.items()) for rows in blocks)

    # Twice, since the first pass only finds out how large a typical score is.
    total = sum(float(np.maximum(np.abs(a), np.abs(b)).sum()) for a, b in both())
    return all(_same_scores(a, b, total / (lazy.shape[0] * lazy.shape[1])) for a, b in both())


def _same_scores(a: Array, b: Array, typical: float | None = None) -> bool:
    # Relative to the typical score: its size depends on the unit the data are measured in.
    size = np.maximum(np.abs(a), np.abs(b))
    least = float(size.mean()) if typical is None else typical
    return bool(np.all(np.abs(a - b) <= 1e-12 * np.maximum(size, least)))


@contextmanager
def _complaints_of(name: str) -> Iterator[None]:
    try:
        yield
    except InputError as error:
        raise InputError(f"model {name!r}: {error}") from None


# --------------------
# Densities that contradict themselves, noticed in passing before a comparison relies on their scores.

# At most so many rows are looked at.
_ROWS = 20


def score_warnings(densities: Mapping[str, Density], x: Array | LazyRows) -> tuple[str, ...]:
    """Which densities, by name, have both a score and a log density, and the score is not the latter's gradient.

    Looked at are evenly spaced rows of x (n, d), 20 at most, by some ten to thirty log densities each. A density that
    cannot be judged by these (it raises, leaves its support, is too rough for differences) is passed over in silence.

    >>> log_prob = lambda x: -0.5 * (x**2).sum(axis=1)
    >>> models = {"right": Density(lambda x: -x, log_prob), "wrong": Density(lambda x: x, log_prob)}
    >>> score_warnings(models, np.random.default_rng(0).normal(size=(100, 2)))[0].partition(";")[0]
    'wrong: the score is -1 times the gradient of log_prob'
    """
    both = {name: each for name, each in densities.items() if each.score is not None and each.log_prob is not None}
    if not both:
        return ()
    rows = x[:: max(1, -(-len(x) // _ROWS))]
    said: dict[str, list[str]] = {}
    for name, density in both.items():
        message = _contradiction(density, rows)
        if message is not None:
            said.setdefault(message, []).append(name)
    mend = "verdicts rest on the score, so mend one of the two (relfit.check_score says more)"
    return tuple(f"{', '.join(names)}: {message}; {mend}" for message, names in said.items())


def _contradiction(density: Density, x: Array) -> str | None:
    try:
        with np.errstate(all="ignore"):
            found = direction_finding(density, x)
    except Exception:  # noqa: BLE001  (a function that knows only the rows it was made for can raise anything)
        return None
    return found.message if found is not None and found.wrong else None
