"""Runs of characters in texts, counted and hashed: features without a network, weights or training."""

from __future__ import annotations

from relfit.features import base
from relfit.util.errors import InputError

# The shortest and the longest run of characters.
RUNS = (1, 4)


def load_ngrams(name: str, weights: str | None, device: str) -> base.Network:
    """Each text's counts of its runs of characters, at hashed positions with hashed signs, scaled to unit length.

    The signs keep the inner product of two texts unbiased where different runs meet at one position. The whole text is
    read; several spaces count as one.
    """
    if weights is not None or device == "cuda":
        raise InputError(f"model {name!r}: has no weights and runs on the CPU; leave out --weights and --device")
    entry = base.entry_of(name)
    text = base.library("sklearn.feature_extraction.text", entry.install)
    hashing = text.HashingVectorizer(analyzer="char", ngram_range=RUNS, n_features=entry.dim, lowercase=False)
    fingerprint = f"{name} {RUNS[0]} to {RUNS[1]} characters, {entry.dim} positions"
    return base.Network(name, "text", entry.dim, fingerprint, lambda batch: hashing.transform(batch).toarray())
