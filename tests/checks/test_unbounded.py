"""Kernels that are not bounded: a note where a handful of rows carries their features, and hardly ever elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

import relfit
from relfit.cli import main

NOTE = "half of the variance of the features of this kernel"
CUBIC = relfit.Polynomial(3, 1.0, 1.0)


def drawn(n, seed, far=0.0038):
    """A shifted model, and one with rare rows 12 standard deviations away."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, 1))
    rare = rng.normal(size=(n, 1))
    rare[rng.random(n) < far] += 12.0
    return rows, {"shifted": rng.normal(size=(n, 1)) + 1.2, "rare": rare}


def noted(reference, models, **options):
    result = relfit.compare(reference, models, rng=0, progress=False, **options)
    return any(NOTE in note for note in result.warnings)


def features(n, seed, columns=64):
    """Rows like features of images: not negative, correlated, of similar length."""
    rng = np.random.default_rng(seed)
    mixing = np.random.default_rng(1).normal(size=(16, columns)) / 4.0
    return np.maximum(rng.normal(size=(n, 16)) @ mixing, 0.0)


def test_rare_far_rows_are_noted():
    """With four rows of 1,000 on average in at least nine of ten samples."""
    assert np.mean([noted(*drawn(1000, seed), kernel=CUBIC) for seed in range(30)]) >= 0.9


@pytest.mark.parametrize("n", [100, 400])
def test_other_rows_are_hardly_ever_noted(n):
    """At most one of twenty samples each of normal rows in one column and in ten, and of features."""
    rng = np.random.default_rng(0)
    draws = {
        "one column": lambda seed: rng.normal(size=(n, 1)),
        "ten columns": lambda seed: rng.normal(size=(n, 10)),
        "features": lambda seed: features(n, seed),
    }
    for draw in draws.values():
        found = [noted(draw(3 * k), {"a": draw(3 * k + 1), "b": draw(3 * k + 2)}, preset="kid") for k in range(20)]
        assert np.mean(found) <= 0.1


@pytest.mark.parametrize("kernel", [relfit.Gaussian(), relfit.IMQ(), relfit.Tilted(relfit.Gaussian(), relfit.Decay())])
def test_bounded_kernels_are_not_noted(kernel):
    reference, models = drawn(400, 3, far=0.01)
    assert not noted(reference, models, kernel=kernel)


def test_kernels_of_the_user_are_noted():
    """A matrix of the same kernel, and a tilted kernel whose weight grows."""
    reference, models = drawn(1000, 0)
    assert noted(reference, models, kernel=CUBIC)
    rows = np.concatenate([reference, *models.values()])
    matrix = relfit.Precomputed(CUBIC.phi(rows @ rows.T))
    counts = {name: len(model) for name, model in models.items()}
    assert noted(len(reference), counts, kernel=matrix)
    growing = relfit.Tilted(relfit.Gaussian(), lambda x: 3.0 * np.log1p(x[:, 0] ** 2))
    assert noted(reference, models, kernel=growing)


def test_note_reaches_every_surface(tmp_path, capsys):
    """The note has what was seen, what follows and what to do, in the words of the interface."""
    reference, models = drawn(1000, 0)
    result = relfit.compare(reference, models, kernel=CUBIC, rng=0, progress=False)
    (note,) = [note for note in result.warnings if NOTE in note]
    assert "of 3,000 rows carr" in note
    assert "p-values can be too small" in note
    assert 'preset="cmmd"' in note
    assert NOTE in str(result)
    assert NOTE in result.to_json()
    result.report(tmp_path / "page.html", data=(reference, models))
    assert NOTE in (tmp_path / "page.html").read_text(encoding="utf-8")
    pair = relfit.compare_pair(reference, *models.values(), kernel=CUBIC, rng=0, progress=False)
    assert any(NOTE in each for each in pair.warnings)
    paths = []
    for name, rows in {"reference": reference, **models}.items():
        paths.append(str(tmp_path / f"{name}.npy"))
        np.save(paths[-1], rows)
    assert main(["compare", *paths, "--preset", "kid", "--seed", "0"]) == 0
    printed = capsys.readouterr().out
    assert NOTE in printed
    assert "--preset cmmd" in printed
