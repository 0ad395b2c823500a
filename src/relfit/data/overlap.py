"""Rows that samples have in common: copies, reordered copies, and rows of the reference.

Every row gets a 64-bit key, the same for equal rows. Comparing keys takes memory linear in
the number of rows, and one sort per sample. The keys of rows on a CUDA device stay there,
but for one copy that the digest is made of.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.util.arrays import Array, cuts, host, library, parts

Keys = NDArray[np.int64]

# The number of values hashed at once, so that temporary arrays stay in the processor's cache, and
# of rows on a device.
_VALUES_AT_ONCE = 2**16
_DEVICE_ROWS = 2**20


@dataclass(frozen=True)
class Fingerprint:
    """The keys of a sample's rows, where the rows are. Those of 0.0 and −0.0 are equal."""

    keys: Keys

    @cached_property
    def ordered(self) -> Keys:
        """The keys, sorted."""
        if isinstance(self.keys, np.ndarray):
            return np.sort(self.keys)
        return self.keys.sort().values

    @cached_property
    def digest(self) -> str:
        """A digest of the rows in this order."""
        return hashlib.sha256(host(self.keys).data).hexdigest()

    @cached_property
    def atoms(self) -> bool:
        """True if so many rows repeat that samples have rows in common by chance, which then
        means nothing.
        """
        distinct = 1 + int((self.ordered[1:] != self.ordered[:-1]).sum())
        return distinct <= 0.9 * len(self.ordered)


# The keys of every sample, and of the reference under None.
Prints = Mapping[str | None, Fingerprint]


def fingerprint(rows: Any) -> Fingerprint:
    """The keys of all rows of an array or of a tensor."""
    # An odd factor for every column.
    factors: Any = np.random.default_rng(0).integers(2**62, size=rows.shape[1]) * 2 + 1
    if isinstance(rows, np.ndarray):
        keys = np.empty(len(rows), np.int64)
        for part in parts(rows.shape, _VALUES_AT_ONCE):
            keys[part] = _keys((rows[part] + 0.0).view(np.int64), factors)
        return Fingerprint(keys)
    torch = library(rows)
    factors = torch.as_tensor(factors, device=rows.device)
    blocks = (rows[part].double() + 0.0 for part in cuts(len(rows), _DEVICE_ROWS))
    return Fingerprint(
        torch.cat([_keys(block.contiguous().view(torch.int64), factors) for block in blocks])
    )


def fingerprints(samples: Mapping[str | None, Array]) -> Prints:
    """The keys of every sample."""
    return {name: fingerprint(rows) for name, rows in samples.items()}


def sample_copies(samples: Mapping[str, Array], prints: Prints) -> dict[str, str]:
    """Copy → original, the first sample with the same rows in the same order."""
    first: dict[str, str] = {}
    copies: dict[str, str] = {}
    for name, rows in samples.items():
        twin = first.setdefault(prints[name].digest, name)
        # Keys may collide, so the rows themselves decide.
        if twin != name and _equal(rows, samples[twin]):
            copies[name] = twin
    return copies


def rows_in_common(
    reference: Array, samples: Mapping[str, Array], prints: Prints
) -> dict[str, int]:
    """The number of a sample's rows that also occur in the reference, for every sample that
    has such rows.
    """
    ordered = prints[None].ordered
    atoms = prints[None].atoms
    counts = {}
    for name, rows in samples.items():
        # Both are sorted, so that the searches walk through memory in order.
        keys = prints[name].ordered
        nearest = ordered[library(keys).searchsorted(ordered, keys).clip(max=len(ordered) - 1)]
        count = int((nearest == keys).sum())
        if count and (not atoms or _equal(rows, reference)):
            counts[name] = count
    return counts


def reordered_copies(samples: Mapping[str, Array], prints: Prints) -> list[str]:
    """A note for every sample that holds the rows of another in a different order."""
    notes = []
    first: dict[tuple[int, int], str] = {}
    for name in samples:
        keys = prints[name].ordered
        twin = first.setdefault((len(keys), int(keys.sum())), name)
        if (
            twin != name
            and bool((keys == prints[twin].ordered).all())
            and not prints[name].atoms
        ):
            notes.append(
                f"{name!r} holds the rows of {twin!r} in another order: the two are not "
                f"independent, and one of them "
                "hides the difference between the other and the rest; leave one out"
            )
    return notes


def _equal(a: Array, b: Array) -> bool:
    return a.shape == b.shape and all(
        bool((a[part] == b[part]).all()) for part in parts(a.shape)
    )


def _keys(bits: Any, factors: Any) -> Any:
    """The keys of rows given by the bits of their numbers: NumPy's or torch's signed
    integers, whose products wrap.
    """
    # A right shift of a negative number fills in ones, which the masks remove.
    mixed = (bits ^ ((bits >> 32) & (2**32 - 1))) * factors
    mixed ^= (mixed >> 29) & (2**35 - 1)
    return mixed.sum(axis=1)
