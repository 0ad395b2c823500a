"""Forecasts that the tests themselves decide, and the distribution of simulated estimates."""

import numpy as np
import pytest

from relfit import Gaussian, compare, decide, estimate, from_losses, plan
from relfit.stats.joint import JointEstimate
from relfit.stats.planning import as_pilot, simulation
from relfit.stats.population import estimate_law, with_variances
from relfit.stats.simulated import affordable, decided
from relfit.stats.tests.base import Criteria
from relfit.stats.tests.best_set import BestSet
from relfit.stats.tests.relmulti import RelMulti


def skewed(n, seed):
    """Losses of unlike spread and skewness."""
    rng = np.random.default_rng(seed)
    item = rng.normal(size=n)
    wide = 0.25 + 1.4 * rng.normal(size=n)
    late = 0.4 + rng.exponential(size=n) - 1.0
    return {"normal": item + rng.normal(size=n), "wide": item + wide, "skewed": item + late}


def shifted(n, seed, m=None):
    rng = np.random.default_rng(seed)
    models = {f"m{k}": rng.normal(size=(m or n, 2)) + by for k, by in enumerate(([0.2, 0.0], [0.0, 0.6]))}
    return rng.normal(size=(n, 2)), models


def test_a_noisy_variance_changes_no_other():
    first = np.diag([1.0, 4.0, 9.0])
    first[0, 1] = first[1, 0] = 1.0
    noisy = first.copy()
    noisy[2, 2] = -50.0
    assert with_variances(first) == pytest.approx(first)
    assert with_variances(noisy)[:2, :2] == pytest.approx(first[:2, :2])
    assert with_variances(noisy)[2].tolist() == [0.0, 0.0, 0.0]
    impossible = np.array([[1.0, 1.0, -1.0], [1.0, 1.0, 1.0], [-1.0, 1.0, 1.0]])
    found = with_variances(impossible)
    assert np.diag(found) == pytest.approx(np.ones(3))
    assert np.linalg.eigvalsh(found)[0] > -1e-12


def test_simulated_losses_have_the_skewness_of_the_rows():
    """Mean, variance and skewness of means of 40 exponential losses, and variances that follow the means."""
    pilot = from_losses({"a": np.random.default_rng(0).exponential(size=4000), "b": np.arange(4000.0) / 4000.0})
    law = estimate_law(pilot, 4000)
    z = np.random.default_rng(1).normal(size=(1, 200_000, 2))
    values, covariances = law.drawn(np.repeat(pilot.values[None], 200_000, axis=0), 40, z)
    error = values[:, 0] - values[:, 0].mean()
    true = np.random.default_rng(2).exponential(size=(200_000, 40))
    means = true.mean(axis=1)
    assert values[:, 0].std() == pytest.approx(means.std(), rel=0.08)
    skewness = ((means - means.mean()) ** 3).mean() / means.std() ** 3
    assert (error**3).mean() / error.std() ** 3 == pytest.approx(skewness, rel=0.15)
    given = np.corrcoef(values[:, 0], covariances.variance[:, 0])[0, 1]
    assert given > 0.9


def test_squares_have_the_skewness_of_their_components():
    """The second-order part alone: χ² with K degrees of freedom, and a variance that follows it."""
    reference, models = shifted(200, 0)
    joint = estimate(reference, models, kernel=Gaussian(1.5), rng=0, progress=False)
    law = estimate_law(joint, 200)
    assert law.components == joint.close.components
    z = np.random.default_rng(1).normal(size=(2, 100_000, 2))
    z[0] = 0.0
    centres = np.zeros((100_000, 2))
    part = law._standard_rest(z)[:, 0]
    assert part.std() == pytest.approx(1.0, abs=0.02)
    assert (part**3).mean() == pytest.approx(np.sqrt(8.0 / law.components), rel=0.1)
    follows = law.matrices(centres[:500], 200, z[:, :500])[:, 0, 0]
    assert np.corrcoef(follows, part[:500])[0, 1] > 0.99


@pytest.mark.parametrize("correction", ["none", "stepdown"])
def test_forecasts_come_true_for_unlike_losses(correction):
    """Within .05 and three Monte-Carlo errors of 300 fresh tables of 60 items."""
    truth = np.array([0.0, 0.25, 0.4])
    large = from_losses(skewed(4000, 10**6))
    pilot = JointEstimate(large.names, truth, large.covariance, (4000,), large.psi, measure="loss")
    made = plan(pilot, n=60, correction=correction, rng=0, progress=False)
    found = [decide(from_losses(skewed(60, seed)), correction=correction, rng=seed).worse for seed in range(300)]
    realised = dict(zip(pilot.names, np.mean(found, axis=0), strict=True))
    for cell in made.forecasts:
        assert abs(cell.power - realised[cell.name]) < 0.05 + 3.0 * np.sqrt(0.25 / 300)


def test_the_test_decides_with_its_rows_and_its_selection():
    """RelMulti selects by other values than it tests; sizes, of which tests use the number, go with the rows."""
    reference, models = shifted(200, 0, m=400)
    pilot = estimate(reference, models, kernel=Gaussian(1.5), rng=0, progress=False)
    values = np.array([[0.0, 1.0]] * 2)
    selections = np.array([[0.0, 1.0], [1.0, 0.0]])
    tiny = np.broadcast_to(1e-4 * np.eye(2), (1, 2, 2))
    criteria = Criteria(0.05)
    split = decided(RelMulti(), criteria, pilot, values, tiny, 2.0, lambda: selections)
    assert split.tolist() == [[False, True], [False, False]]
    seen = []

    class Recording(BestSet):
        def decide(self, joint, criteria, selection=None):
            seen.append(joint)
            return super().decide(joint, criteria, selection)

    decided(Recording(), criteria, pilot, values[:1], tiny, 2.0, lambda: selections)
    assert seen[0].sizes == (100, 200, 200)
    assert seen[0].close.second == pytest.approx(4.0 * pilot.close.second)
    assert seen[0].close.trace == pytest.approx(2.0 * pilot.close.trace)


def test_the_difference_to_the_test_is_added():
    """The power of `decided` is that of the fast version plus the difference, and few trials do for many models."""
    reference, models = shifted(100, 1)
    pilot = estimate(reference, models, rng=0, progress=False)
    args = (pilot.names, as_pilot(pilot).law, 0.05, 400, 10, 0, pilot.values[None])
    slow = simulation(*args, pilot).decided(BestSet(), "none", 100, [1])
    fast = simulation(*args).decided(BestSet(), "none", 100, [1])
    assert fast[0, 0] == simulation(*args).power(BestSet(), "none", 100, [1])[0, 0]
    assert 0.0 < abs(slow[0, 0] - fast[0, 0]) < 0.3
    assert slow[1, 0] >= fast[1, 0]
    stored = compare(reference, models, rng=0, progress=False).pilot()
    assert simulation(*args, stored).decided(BestSet(), "none", 100, [1]).tolist() == fast.tolist()
    assert affordable(2) == 300
    assert affordable(1000) == 20
