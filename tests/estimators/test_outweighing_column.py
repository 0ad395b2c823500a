"""Columns of unlike scale: said where one of them is all that the kernel sees, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest

import relfit

SAID = "standardise the columns"


def said(data, models, words=SAID, **options):
    """The notes that say so; NumPy has nothing to say."""
    with np.errstate(over="raise", divide="raise", invalid="raise"):
        result = relfit.compare(data, dict(zip("ab", models, strict=False)), rng=0, **options)
    return [note for note in result.warnings if words in note]


@pytest.fixture
def unlike(rng):
    """An income in column 1, two standard normal columns beside it."""
    return rng.normal((0.0, 40_000.0, 0.0), (1.0, 20_000.0, 1.0), (3, 120, 3))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"estimator": "linear"},
        {"test": "relmulti"},
        {"kernel": "select"},
        {"kernel": [relfit.Gaussian(1e4), relfit.IMQ(1e4)]},
        {"kernel": relfit.Tilted()},
        {"discrepancy": "ume"},
    ],
    ids=["complete", "linear", "relmulti", "select", "several", "tilted", "ume"],
)
def test_said_once(unlike, options):
    data, *models = unlike
    (note,) = said(data, models, **options)
    assert note.startswith("column 1 (counted from 0) holds 99.9% of the variance")


def test_said_of_densities_unless_they_are_whitened(unlike):
    data = unlike[0]
    models = [relfit.Density(score=lambda x, s=s: (s - x) / np.array([1.0, 4e8, 1.0]), dim=3) for s in (0.0, 1.0)]
    (note,) = said(data, models, words="whiten the columns")
    assert 'scale="whiten"' in note
    assert said(data, models) == said(data, models, words="whiten the columns", scale="whiten") == []
    # Unless that is turned off, there is nothing to say.
    target = relfit.Density(score=lambda x: -x / np.array([1.0, 4e8, 1.0]), dim=3)
    assert said(target, unlike[:2], words="whiten the columns") == []
    assert len(said(target, unlike[:2], words="whiten the columns", scale="none")) == 1


def test_the_share_by_hand_and_where_nothing_is_said(rng, unlike):
    """Variances 1 and 16: 94.1% of 17. Variances 1 and 36: 97.3% of 37."""
    exact = rng.normal(size=(3, 400, 2))
    exact = (exact - exact.mean(axis=1, keepdims=True)) / exact.std(axis=1, keepdims=True)
    below, above = ([rows * [1.0, scale] for rows in exact] for scale in (4.0, 6.0))
    assert said(below[0], below[1:]) == []
    (note,) = said(above[0], above[1:])
    assert "97.2%" in note or "97.3%" in note
    # One column; other columns constant; a kernel of inner products; outliers; a shift of a model; pixels.
    data, *models = unlike
    assert said(data[:, 1:2], [x[:, 1:2] for x in models]) == []
    still = [x * [0.0, 1.0, 0.0] + 0.1 for x in unlike]
    assert said(still[0], still[1:]) == []
    assert said(data, models, kernel=relfit.Polynomial(1, offset=0.0)) == []
    plain = rng.normal(size=(3, 60, 2))
    wild = plain.copy()
    wild[:, 0, 0] = 1e6
    assert said(wild[0], wild[1:]) == []
    assert said(plain[0], [plain[1], plain[2] + [1e3, 0.0]]) == []
    pixels = rng.uniform(size=(3, 60, 64)) * (rng.uniform(size=(3, 60, 64)) < 0.2)
    assert said(pixels[0], pixels[1:]) == []


@pytest.mark.parametrize("discrepancy", ["mmd", "ume"])
def test_samples_of_sizes_whose_quotient_is_no_number(rng, discrepancy):
    """N10: a model 1e350 times as large as the reference: a verdict, and no warning of NumPy on standard error."""
    data, model, other = rng.normal(size=(3, 60, 2))
    assert said(data * 1e-200, [model * 1e150, other * 1e-200], discrepancy=discrepancy) == []
