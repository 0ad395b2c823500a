"""Notes on samplers against a target: lost modes (D7) and draws on another scale (D8)."""

import numpy as np
import pytest
from scipy import stats

import relfit
from relfit import Density
from relfit.checks.data import lost_fraction


def two_modes(apart=4.0, weight=0.5):
    """A mixture of two normal distributions, `apart` from 0 in the first column."""
    heights = np.log([weight, 1.0 - weight])

    def joint(x):
        sides = np.stack([x[:, 0] - apart, x[:, 0] + apart])
        return heights[:, None] - 0.5 * sides**2

    def log_prob(x):
        return np.logaddexp(*joint(x)) - 0.5 * (x[:, 1:] ** 2).sum(axis=1)

    def score(x):
        first, second = joint(x)
        right = 1.0 / (1.0 + np.exp(np.clip(second - first, -700.0, 700.0)))
        slopes = -x
        slopes[:, 0] += apart * (2.0 * right - 1.0)
        return slopes

    return Density(score, log_prob)


def draws(rng, n, d, weight, apart=4.0):
    x = rng.normal(size=(n, d))
    x[:, 0] += apart * np.where(rng.random(n) < weight, 1.0, -1.0)
    return x


def lost(result):
    return [note for note in result.warnings if "lost a mode" in note]


def far(result):
    return [note for note in result.warnings if "standard errors from the target" in note]


@pytest.mark.parametrize("d", [1, 2, 10])
@pytest.mark.parametrize("seed", range(3))
def test_a_lost_mode_is_named(d, seed):
    """D7: at 56062bd the sampler of one mode is the best in 14 of 40 runs, without a note."""
    rng = np.random.default_rng(seed)
    models = {"both": draws(rng, 300, d, 0.5), "one": draws(rng, 300, d, 1.0)}
    for target in (two_modes(), Density(two_modes().score)):
        result = relfit.compare(target, models, rng=0)
        (note,) = lost(result)
        assert note.startswith("'one' has no draws where about ")
        fraction = int(note.split("about ")[1].split("%")[0])
        assert 40 <= fraction <= 60
        assert note in result.doubts
    pair = relfit.compare_pair(two_modes(), *models.values(), names=tuple(models), rng=0)
    assert note in pair.warnings
    assert note in pair.doubts


def test_draws_without_mass_of_the_target_are_no_mode_and_the_fraction_is_that_of_the_others(rng):
    """Draws in a mode with 1/10,000 of the mass are those of a bad sampler; the other one lost nothing."""
    rng = np.random.default_rng(1)
    models = {"right": draws(rng, 500, 2, 1.0), "spurious": draws(rng, 500, 2, 0.5)}
    assert lost(relfit.compare(two_modes(weight=1.0 - 1e-4), models, rng=0)) == []
    away = {"right": rng.normal(size=(300, 2)), "away": rng.normal([6.0, 0.0], 1.0, (300, 2))}
    assert lost(relfit.compare(stats.multivariate_normal(np.zeros(2)), away, rng=0)) == []
    own, others = draws(rng, 200, 1, 1.0), draws(rng, 200, 1, 0.7)
    missing = float((others < 0.0).mean())
    assert lost_fraction(two_modes(), own, others) == pytest.approx(missing, abs=0.03)
    assert lost_fraction(two_modes(), others, own) == 0.0


def problems(rng, n, d):
    """Targets and models of which none lost a mode: exact, biased, too narrow, too wide, heavy-tailed."""

    def normal(spread=1.0, mean=0.0):
        return rng.normal(mean, spread, size=(n, d))

    def signs(weight):
        return np.where(rng.random((n, 1)) < weight, 3.0, -3.0)

    gaussian = Density(lambda x: -x, lambda x: -0.5 * (x**2).sum(axis=1))
    heavy = Density(lambda x: -2.0 * x / (1.0 + x**2), lambda x: -np.log1p(x**2).sum(axis=1))
    halves = Density(
        log_prob=lambda x: np.logaddexp(-0.5 * ((x - 3.0) ** 2).sum(axis=1), -0.5 * ((x + 3.0) ** 2).sum(axis=1))
    )
    yield gaussian, {"a": normal(), "b": normal(), "c": normal()}
    yield gaussian, {"narrow": normal(0.4), "exact": normal()}
    yield gaussian, {"wide": normal(4.0), "exact": normal()}
    yield gaussian, {"narrow": normal(0.7, 0.1), "shifted": normal(0.8, 0.3)}
    yield heavy, {"a": rng.standard_cauchy((n, d)), "normal": normal()}
    yield halves, {"a": normal() + signs(0.5), "b": normal() + signs(0.5), "c": normal() + signs(0.8)}


@pytest.mark.parametrize("d", [1, 2, 10])
@pytest.mark.parametrize("n", [60, 300])
def test_ordinary_samplers_get_no_note(d, n):
    """36 problems: no note on lost modes or scales. (0 of 264 when both were adjusted.)"""
    for target, models in problems(np.random.default_rng(n + d), n, d):
        result = relfit.compare(target, models, rng=0)
        assert lost(result) == []
        assert far(result) == []


@pytest.mark.parametrize("sigma", [0.3, 1.0, 5.0])
def test_draws_on_another_scale_are_noted(sigma):
    """D8: sigma in place of log sigma; at 56062bd every model is 45 standard errors from the target, without a note."""
    rng = np.random.default_rng(0)
    y = rng.normal(0.0, sigma, size=50)

    def log_prob(x):
        mean, log_sigma = x.T
        squares = ((y - mean[:, None]) ** 2).sum(axis=1)
        return -50.0 * log_sigma - 0.5 * squares * np.exp(-2.0 * log_sigma)

    def posterior():
        log_sigma = np.log(y.std()) + 0.1 * rng.normal(size=400)
        mean = y.mean() + np.exp(log_sigma) * rng.normal(size=400) / np.sqrt(50.0)
        return np.stack([mean, log_sigma], axis=1)

    target, models = Density(log_prob=log_prob), {"a": posterior(), "b": posterior()}
    assert far(relfit.compare(target, models, rng=0)) == []
    wrong = {name: np.stack([x[:, 0], np.exp(x[:, 1])], axis=1) for name, x in models.items()}
    (note,) = far(relfit.compare(target, wrong, rng=0))
    assert "unconstrained" in note
    assert far(relfit.compare_pair(target, *wrong.values(), rng=0)) == [note]
    # One model on the right scale is enough: the others are then just worse.
    assert far(relfit.compare(target, wrong | {"right": models["a"]}, rng=0)) == []
