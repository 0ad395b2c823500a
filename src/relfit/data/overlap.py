"""Rows that samples have in common: copies, reordered copies, rows of the reference. Linear memory, one sort each."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from relfit.compute.rows import LazyRows, parts
from relfit.data.arrays import row_keys
from relfit.util.arrays import Array

Keys = NDArray[np.uint64]

# Numbers hashed at once: the temporaries stay near the processor.
_NUMBERS = 2**16


@dataclass(frozen=True)
class Fingerprint:
    """A 64-bit key per row (equal for equal rows, 0.0 and −0.0 are equal), in the rows' order and sorted."""

    keys: Keys
    ordered: Keys

    @cached_property
    def digest(self) -> str:
        """A short name for these rows in this order: other rows have another, but for accidents."""
        return _digest(self.keys)

    @cached_property
    def contents(self) -> str:
        """A short name for these rows in any order."""
        return _digest(self.ordered)

    @property
    def atoms(self) -> bool:
        """Whether rows repeat so often that samples meet by chance, and rows in common say nothing."""
        distinct = 1 + int(np.count_nonzero(self.ordered[1:] != self.ordered[:-1]))
        return distinct <= 0.9 * len(self.ordered)


def fingerprint(rows: Array) -> Fingerprint:
    """The keys of every row."""
    odd = _odd(rows.shape[1])
    if not isinstance(rows, np.ndarray | LazyRows):
        return Fingerprint(*row_keys(rows, odd))
    keys = np.empty(len(rows), np.uint64)
    for part in parts(rows.shape, _NUMBERS):
        keys[part] = _keys(rows[part], odd)
    return Fingerprint(keys, np.sort(keys))


def sample_copies(samples: Mapping[str, Array], prints: Mapping[str, Fingerprint]) -> dict[str, str]:
    """Copy → original, the first of its kind in the order given."""
    first: dict[str, str] = {}
    copies: dict[str, str] = {}
    for name, rows in samples.items():
        twin = first.setdefault(prints[name].digest, name)
        # Keys may collide; the rows themselves decide.
        if twin != name and _equal(rows, samples[twin]):
            copies[name] = twin
    return copies


def rows_in_common(
    reference: Array, samples: Mapping[str, Array], print_: Fingerprint, prints: Mapping[str, Fingerprint]
) -> dict[str, int]:
    """How many of its rows also occur in the reference, for every sample that has such rows."""
    atoms = print_.atoms
    common = {name: _count_common(prints[name].ordered, print_.ordered) for name in samples}
    return {name: count for name, count in common.items() if count and (not atoms or _equal(samples[name], reference))}


def shared_notes(shared: Mapping[str, int], samples: Mapping[str, Array]) -> list[str]:
    """A note for every sample that holds rows of the reference."""
    return [
        f"{count} of {len(samples[name])} rows of {name!r} also occur in the reference: if the model has seen "
        "these data its discrepancy is too small; compare on data that no model was fitted to"
        for name, count in shared.items()
    ]


def reordered_copies(samples: Mapping[str, Array], prints: Mapping[str, Fingerprint]) -> list[str]:
    """A note for every sample that holds another's rows in another order."""
    notes = []
    contents: dict[str, str] = {}
    for name in samples:
        twin = contents.setdefault(prints[name].contents, name)
        if twin != name and not prints[name].atoms:
            notes.append(
                f"{name!r} holds the rows of {twin!r} in another order: the two are not independent, and one of "
                "them hides the difference to the others; leave one out"
            )
    return notes


def _count_common(wanted: Keys, ordered: Keys) -> int:
    # Both sorted: the searches walk through memory in order.
    places = np.searchsorted(ordered, wanted)
    return int(np.count_nonzero(ordered[np.minimum(places, len(ordered) - 1)] == wanted))


def _equal(a: Array, b: Array) -> bool:
    return a.shape == b.shape and all(bool((a[part] == b[part]).all()) for part in parts(a.shape))


def _digest(keys: Keys) -> str:
    return hashlib.sha256(np.ascontiguousarray(keys).data).hexdigest()


def _odd(columns: int) -> Keys:
    """An odd factor for every column."""
    drawn = np.random.default_rng(0).integers(2**62, size=columns).astype(np.uint64)
    return np.asarray(drawn * np.uint64(2) + np.uint64(1))


def _keys(rows: Array, odd: Keys) -> Keys:
    bits = (rows + 0.0).view(np.uint64)
    mixed = (bits ^ (bits >> np.uint64(32))) * odd
    mixed ^= mixed >> np.uint64(29)
    return np.asarray(mixed.sum(axis=1, dtype=np.uint64))
