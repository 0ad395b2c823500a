"""The random streams that everything seeded draws from."""

from __future__ import annotations

import hashlib
import reprlib

import numpy as np

from relfit.util.errors import InputError

Seed = int | np.random.Generator | None


def make_seed(rng: Seed) -> int:
    """The whole number that all streams come from: `rng` itself, drawn from a Generator, or
    from fresh entropy.

    Drawn seeds are below 2⁵³, so that every reader of JSON keeps them exactly.
    """
    if rng is None:
        rng = np.random.default_rng()
    if isinstance(rng, np.random.Generator):
        return int(rng.integers(2**53))
    if isinstance(rng, bool) or not isinstance(rng, int | np.integer) or rng < 0:
        raise InputError(
            f"rng: expected a non-negative whole number, a numpy Generator or None, got "
            f"{reprlib.repr(rng)}"
        )
    return int(rng)


def stream(seed: int, purpose: str, name: str = "") -> np.random.Generator:
    """An independent generator for one purpose and one model.

    The stream depends on the name and not on the position, so that the order of the models
    changes nothing.
    """
    digest = hashlib.blake2b(
        f"{purpose}\0{name}".encode("utf-8", "surrogatepass"), digest_size=16
    ).digest()
    words = np.frombuffer(digest, dtype="<u4")
    return np.random.default_rng(
        np.random.SeedSequence(seed, spawn_key=tuple(int(w) for w in words))
    )
