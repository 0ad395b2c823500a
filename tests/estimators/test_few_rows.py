"""The note about how many rows decide."""

import math

import numpy as np
import pytest

import relfit
from relfit.estimators import effective_sample_size
from relfit.stats.joint import Psi


def said(result):
    return [note for note in result.warnings if "influential" in note]


def test_equal_rows_count_in_full_and_differences_that_never_vary_too():
    """Four contributions of one size and many zeros: (4z²)²/(4z⁴) = 4."""
    psi = np.zeros((100, 2))
    psi[:4, 0] = [1.0, -1.0, 1.0, -1.0]
    assert effective_sample_size(Psi(psi), 1).tolist() == [4.0, math.inf]
    # Only rounding is left of it, which gave a note on few items, or on their order, in one of ten tables.
    for seed in range(30):
        losses = np.random.default_rng(seed).random(60)
        result = relfit.compare_losses(np.column_stack([losses, losses + 0.25]), higher_is_better=False, rng=0)
        assert result.warnings == result.doubts == ()


def test_a_score_that_is_wrong_on_few_rows_is_named(rng):
    x = rng.normal(size=(400, 1))
    models = {
        "shifted": relfit.Density(score=lambda x: 0.3 - x, dim=1),
        "tail": relfit.Density(score=lambda x: 28.76 * (x > 2.4) - x, dim=1),
    }
    (note,) = said(relfit.compare(x, models, kernel=relfit.Gaussian(1.0), rng=0))
    assert note.startswith("about ")
    assert "influential rows drive the difference of" in note
    models = {str(k): rng.normal(k, 1.0, (100, 2)) for k in (0.0, 0.5)}
    assert not said(relfit.compare(rng.normal(size=(100, 2)), models, rng=0))


def test_losses_speak_of_items(rng):
    wrong = np.zeros((200, 2))
    wrong[:3, 0] = 1.0
    (note,) = said(relfit.decide(relfit.from_losses(wrong, ["old", "new"]), rng=0))
    assert note.startswith("about 3 influential items drive the difference of old to new, so p-values")
    wrong[1:3, 0] = 0.0
    (note,) = said(relfit.decide(relfit.from_losses(wrong, ["old", "new"]), rng=0))
    assert note.startswith("about 1 influential item drives the difference of old to new, so")  # D46: "about 1 items"


@pytest.mark.parametrize("size", [1.0, 1e120, 1e-120])
@pytest.mark.parametrize("shared", [False, True])
def test_rows_that_decide_are_counted_over_all_samples(shared, size, rng):
    """Beside the formula on whole arrays; more rows than a block holds, and fourth powers that do not fit."""
    reference, models = rng.exponential(size=(20_000, 3)), [rng.exponential(size=15_000) for _ in range(3)]
    found = effective_sample_size(Psi(size * reference, tuple(size * x for x in models), shared=shared), 1)
    for i in (0, 2):
        parts = [models[i] - models[1]] if shared else [models[i], models[1]]
        z = np.concatenate([(reference[:, i] - reference[:, 1]) / 20_000, *(x / 15_000 for x in parts)])
        assert found[i] == pytest.approx(np.sum(z**2) ** 2 / np.sum(z**4), rel=1e-9)
