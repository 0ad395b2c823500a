"""Hashed runs of characters, against counting them by hand."""

import numpy as np
import pytest
from refusals import refused

from relfit.features.base import load

utils = pytest.importorskip("sklearn.utils", reason="scikit-learn is not installed")


def by_hand(text, positions=1024):
    """Every run of 1 to 4 characters adds its sign at its position; both come from the 32-bit hash of the run."""
    row = np.zeros(positions)
    for length in range(1, 5):
        for start in range(len(text) - length + 1):
            number = utils.murmurhash3_32(text[start : start + length], seed=0)
            row[abs(number) % positions] += 1.0 if number >= 0 else -1.0
    return row / np.linalg.norm(row)


def test_the_features_are_counts_at_hashed_positions():
    texts = ["Rain.", "a b", "Grüße, 世界", "x" * 500]
    rows = load("char-ngrams").features(texts)
    assert rows.shape == (4, 1024)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(rows, [by_hand(text) for text in texts], atol=1e-6)


def test_an_empty_text_spaces_and_options():
    rows = load("char-ngrams").features(["", "a  b", "a b"])
    assert not rows[0].any()
    np.testing.assert_array_equal(rows[1], rows[2])
    refused(lambda: load("char-ngrams", weights="x"), "'char-ngrams'", "has no weights")
    refused(lambda: load("char-ngrams", device="cuda"), "'char-ngrams'", "runs on the CPU")
