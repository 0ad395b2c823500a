"""The best set and carving through the public functions."""

import numpy as np
import pytest

import relfit

TESTS = ["best-set", "carve"]


def samples(n=350, seed=0):
    rng = np.random.default_rng(seed)
    shifts = {"a": 0.0, "b": 0.05, "c": 0.3, "d": 0.6}
    return rng.normal(size=(n, 3)), {name: rng.normal(shift, 1, (n, 3)) for name, shift in shifts.items()}


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("n", [100, 350])
def test_permuting_the_models_permutes_the_answer(test, n):
    reference, models = samples(n)
    order = ["d", "b", "a", "c"]
    first = relfit.compare(reference, models, test=test, rng=1)
    second = relfit.compare(reference, {name: models[name] for name in order}, test=test, rng=1)
    index = [first.names.index(name) for name in order]
    assert first.best == second.best
    np.testing.assert_allclose(second.pvalue, first.pvalue[index], rtol=1e-6, atol=1e-12)
    np.testing.assert_array_equal(second.worse, first.worse[index])


@pytest.mark.parametrize("test", TESTS)
def test_a_copy_more_changes_nothing_and_json_round_trips(test):
    reference, models = samples()
    plain = relfit.compare(reference, models, test=test, rng=1)
    more = relfit.compare(reference, {**models, "again": models["c"]}, test=test, rng=1)
    np.testing.assert_array_equal(more.pvalue[:4], plain.pvalue)
    assert more.pvalue[4] == plain.pvalue[2]
    np.testing.assert_allclose(more.confidence_interval()[:4], plain.confidence_interval())
    np.testing.assert_array_equal(more.confidence_interval()[4], more.confidence_interval()[2])
    back = relfit.Comparison.from_json(more.to_json())
    assert back.to_json() == more.to_json()
    np.testing.assert_array_equal(back.confidence_interval(), more.confidence_interval())


def test_the_best_set_is_not_masked_by_a_near_tie():
    """Where RelPSI is helpless: two models nearly level, a third six standard errors above."""
    joint = relfit.JointEstimate(("a", "b", "far"), [1.0, 1.001, 3.0], 0.05 * np.eye(3))
    assert not relfit.decide(joint, test="relpsi").worse[2]
    assert relfit.decide(joint, test="best-set", rng=0).worse[2]
