"""D6: structure finer than the kernel resolves is noted, and MultiScale reaches it."""

from __future__ import annotations

import numpy as np
import pytest

import relfit
from relfit.estimators.kernel import fine_structure
from relfit.kernels.base import median_distance

NOTE = "does not resolve such tight clusters"
GRID = 10.0 * np.array([(i, j) for i in range(3) for j in range(3)])
ROWS = 500


def blurred(seed):
    """Nine clusters 10 apart and 0.05 wide, and a model that is 20 times too wide."""
    rng = np.random.default_rng(seed)

    def drawn(width):
        return GRID[rng.integers(9, size=ROWS)] + width * rng.normal(size=(ROWS, 2))

    return drawn(0.05), {"good": drawn(0.05), "blurred": drawn(1.0)}


@pytest.mark.parametrize("seed", range(3))
def test_tight_clusters_are_noted_and_multiscale_finds_the_model(seed):
    """D6: with the default kernel the wrong model may pass, now with a note; multiscale finds it, without one."""
    data, models = blurred(seed)
    plain = relfit.compare(data, models, rng=seed, progress=False)
    assert any(NOTE in note for note in plain.warnings)
    pair = relfit.compare_pair(data, models["blurred"], models["good"], rng=seed, progress=False)
    assert any(NOTE in note for note in pair.warnings)
    several = relfit.compare(data, models, rng=seed, kernel="multiscale", progress=False)
    assert several.worse.tolist() == [False, True]
    assert not any(NOTE in note for note in several.warnings)
    assert several.kernel.length < 0.05


def test_reaching_by_hand():
    """From 0.25 · 8 = 2 by quarters down to 0.1: 0.5 and 0.125 are above it, 0.03125 is not."""
    kernel = relfit.MultiScale((0.25, 1.0), 8.0).reaching(0.1)
    assert kernel.factors == (0.25 / 64.0, 0.25 / 16.0, 0.25 / 4.0, 0.25, 1.0)
    assert kernel.length == 0.03125


DRAWN = {
    "gaussian": lambda rng, d: rng.normal(size=(ROWS, d)),
    "uniform": lambda rng, d: rng.uniform(size=(ROWS, d)),
    "cauchy": lambda rng, d: rng.standard_cauchy(size=(ROWS, d)),
    "t2": lambda rng, d: rng.standard_t(2, size=(ROWS, d)),
    "exponential": lambda rng, d: rng.exponential(size=(ROWS, d)),
    "lognormal": lambda rng, d: rng.lognormal(0.0, 2.0, size=(ROWS, d)),
    "counts": lambda rng, d: rng.poisson(3.0, size=(ROWS, d)).astype(float),
    "rounded": lambda rng, d: rng.normal(size=(ROWS, d)).round(1),
    "binary": lambda rng, d: rng.integers(0, 2, size=(ROWS, d)).astype(float),
    "many zeros": lambda rng, d: np.where(rng.random((ROWS, d)) < 0.6, 0.0, rng.exponential(size=(ROWS, d))),
    "two clusters": lambda rng, d: rng.normal(size=(ROWS, d)) + 20.0 * rng.integers(0, 2, size=(ROWS, 1)),
}


@pytest.mark.parametrize("d", [1, 2, 10, 200])
@pytest.mark.parametrize("drawn", DRAWN.values(), ids=DRAWN)
def test_no_false_alarms(drawn, d):
    """Ordinary, heavy-tailed, discrete and tied data in few and in many dimensions."""
    for seed in range(5):
        rows = drawn(np.random.default_rng(seed), d)
        assert fine_structure(rows, median_distance(rows)) is None
