"""The lag-1 autocorrelation of rows that were taken for independent (`relfit.stats.dependence`)."""

import numpy as np
import pytest
from scipy.signal import lfilter

from relfit.stats.dependence import MOST_ROWS, autocorrelations, is_sorted, order_effect, successive
from relfit.stats.joint import Psi


def effect_of(rows, **options):
    """What the order of losses (n, l) shows."""
    return order_effect(Psi(rows - rows.mean(axis=0)), int(rows.mean(axis=0).argmin()), **options)


def in_time(rng, phi, n, columns=2):
    """Stationary AR(1) series of variance 1."""
    noise = np.sqrt(1.0 - phi**2) * rng.normal(size=(n + 300, columns))
    return lfilter([1.0], [1.0, -phi], noise, axis=0)[300:]


def in_blocks(rng, size, within, n):
    """Rows of which those of one block have a fraction `within` of their variance in common."""
    common = np.repeat(rng.normal(size=(-(-n // size), 2)), size, axis=0)[:n]
    return np.sqrt(within) * common + np.sqrt(1.0 - within) * rng.normal(size=(n, 2))


def test_a_value_by_hand():
    """x = 2, 1, −1, −2 eight times: Σ x² = 80; products 2, −1, 2 in each, and −4 between two of them."""
    x = np.tile([2.0, 1.0, -1.0, -2.0], 8)[None]
    total = 8 * (2.0 - 1.0 + 2.0) - 7 * 4.0
    squares = 8 * (4.0 + 1.0 + 4.0) + 7 * 16.0
    r, t, size = autocorrelations(x)
    np.testing.assert_allclose([r[0], t[0], size[0]], [total / 80.0, total / np.sqrt(squares), 80.0])
    # No product between different runs.
    r, t, _ = autocorrelations(x, np.repeat(np.arange(8), 4))
    np.testing.assert_allclose([r[0], t[0]], [24.0 / 80.0, 24.0 / np.sqrt(72.0)])


DRAWS = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "t with 2 degrees of freedom": lambda rng, shape: rng.standard_t(2, size=shape),
    "cauchy": lambda rng, shape: rng.standard_cauchy(size=shape),
    "lognormal": lambda rng, shape: np.exp(2.0 * rng.normal(size=shape)),
    "right or wrong": lambda rng, shape: (rng.random(shape) < 0.5).astype(float),
    "rarely wrong": lambda rng, shape: (rng.random(shape) < 0.02).astype(float),
    "of changing scale": lambda rng, shape: rng.normal(size=shape) * np.linspace(0.1, 3.0, shape[0])[:, None],
}


def test_independent_rows_get_no_note():
    """At most 1 in 1,000 comparisons, over all models together: of 2,240 at most 7 (99.7% of Poisson(2.24))."""
    rng, notes, doubts = np.random.default_rng(0), 0, 0
    for draw in DRAWS.values():
        for n, models in ((40, 2), (60, 6), (150, 3), (400, 2)):
            for _ in range(80):
                effect = effect_of(draw(rng, (n, models)))
                notes += effect is not None
                doubts += effect is not None and effect.doubtful
    assert notes <= 7
    assert doubts <= 2


@pytest.mark.parametrize(("phi", "n", "found"), [(0.95, 60, 27), (0.95, 300, 30), (0.8, 200, 30), (0.5, 200, 30)])
def test_rows_in_the_order_of_time_are_doubted(phi, n, found):
    """D4: in at least 27 of 30, with about the inflation √((1 + φ)/(1 − φ)), less of it in few rows."""
    rng = np.random.default_rng(1)
    effects = [effect_of(in_time(rng, phi, n)) for _ in range(30)]
    assert sum(effect is not None and effect.doubtful for effect in effects) >= found
    inflation = np.mean([effect.inflation for effect in effects if effect is not None])
    assert 0.6 < inflation / np.sqrt((1 + phi) / (1 - phi)) < 1.1


def test_dependence_too_weak_to_matter_gets_no_note():
    """r = 0.05 is clear with 8,000 rows, T = 4.5, and makes standard errors 5% larger."""
    rows = in_time(np.random.default_rng(2), 0.05, 8000)
    assert autocorrelations((rows - rows.mean(axis=0)).T)[1].max() > 3.5
    assert effect_of(rows) is None
    assert effect_of(-in_time(np.random.default_rng(2), -0.9, 300)) is None


def test_groups_are_doubted_and_sorted_files_are_not():
    """Five items a document, against tasks of 200 items one after another, where no item follows another in time."""
    rng = np.random.default_rng(3)
    of_documents = [effect_of(in_blocks(rng, 5, 0.5, 1000)) for _ in range(20)]
    of_tasks = [effect_of(in_blocks(rng, 200, 0.4, 2000)) for _ in range(20)]
    assert all(effect is not None and effect.doubtful for effect in of_documents)
    assert sum(effect is not None for effect in of_tasks) >= 15
    assert not any(effect.doubtful or effect.fades for effect in of_tasks if effect is not None)


def test_strata_are_looked_at_one_by_one():
    """Tasks one after another, centred each by itself as in a macro average; mixed up and in another order too."""
    rng = np.random.default_rng(4)
    tasks = np.repeat(np.arange(10), 200)
    rows = rng.normal(size=(2000, 2)) + np.repeat(rng.normal(size=(10, 2)), 200, axis=0)
    centred = rows - np.array([rows[tasks == t].mean(axis=0) for t in range(10)])[tasks]
    assert effect_of(rows) is not None
    assert order_effect(Psi(centred), 0, strata=tasks) is None
    series = in_time(rng, 0.9, 2000)
    mixed = rng.permutation(2000)
    assert effect_of(series[mixed]) is None
    assert effect_of(series[mixed], order=np.argsort(mixed)).doubtful
    # Two series take turns: neighbours within a stratum are two rows apart.
    assert effect_of(np.stack([series[:1000], -series[1000:]], axis=1).reshape(2000, 2), strata=np.tile([0, 1], 1000))


def test_samples_of_their_own():
    """Only the rows of the second model depend on each other; its part of the variance decides."""
    rng = np.random.default_rng(5)
    series = in_time(rng, 0.9, 400, 1)[:, 0]
    reference, other = rng.normal(size=(400, 2)), rng.normal(size=400)
    effect = order_effect(Psi(reference, (other, series)), 0)
    assert (effect.model, effect.sample, effect.doubtful) == (1, 1, True)
    effect = order_effect(Psi(reference, (series, other)), 0)
    assert (effect.model, effect.sample) == (1, 0)
    # A part so small that it does not matter.
    assert order_effect(Psi(reference, (other, 0.05 * series)), 0) is None
    effect = order_effect(Psi(reference, (other, series), shared=True), 0)
    assert (effect.model, effect.sample) == (1, None)


def test_many_rows_are_looked_at_in_runs():
    n = 5 * MOST_ROWS
    rows, run = successive(n, strata=np.repeat([0, 1], n // 2))
    assert len(rows) == len(run) == MOST_ROWS
    joined = run[1:] == run[:-1]
    assert (np.diff(rows)[joined] == 1).all()
    assert joined.sum() >= MOST_ROWS - 18
    assert effect_of(in_time(np.random.default_rng(6), 0.9, n)).doubtful


def test_few_rows_and_rows_without_variance():
    rng = np.random.default_rng(7)
    assert effect_of(in_time(rng, 0.99, 30)) is None
    assert effect_of(np.zeros((100, 3))) is None
    assert order_effect(Psi(rng.normal(size=(100, 1))), 0) is None


def test_sorted_rows():
    rows = np.random.default_rng(8).normal(size=(100, 3))
    assert not is_sorted(rows)
    assert is_sorted(rows[np.argsort(-rows[:, 1])])
    assert not is_sorted(np.ones((100, 1)))
