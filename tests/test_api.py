"""The whole pipeline: seeds, permutations, executors, splitting, JSON."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import relfit
from relfit.data.load import load
from relfit.estimators.groups import row_orders, split

OPTIONS = [
    {"test": "relpsi"},
    {"test": "relmulti"},
    {"test": relfit.RelMulti(select_fraction=0.5), "correction": "holm"},
    {"estimator": "linear"},
    {"estimator": "linear", "test": "relmulti"},
    {"kernel": relfit.IMQ()},
    {"kernel": relfit.Gaussian() + relfit.IMQ("median")},
]


def samples(n=240, d=3, seed=0):
    rng = np.random.default_rng(seed)
    reference = rng.normal(size=(n, d))
    return reference, {
        name: rng.normal(shift, 1, (n, d)) for name, shift in zip("abcd", (0.0, 0.3, 0.05, 0.6), strict=True)
    }


def densities():
    return {
        name: relfit.Density(score=lambda x, m=m: m - x) for name, m in zip("abcd", (0.02, 0.3, 0.05, 0.6), strict=True)
    }


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_same_seed_gives_the_same_json_byte_for_byte(options):
    reference, models = samples()
    with ThreadPoolExecutor(3) as threads:
        texts = {
            relfit.compare(reference, models, rng=3, compute=relfit.Compute(executor=e), **options).to_json()
            for e in (None, threads, None)
        }
    texts.add(relfit.compare(reference.tolist(), models, rng=np.int64(3), **options).to_json())
    assert len(texts) == 1


def test_no_seed_draws_one_and_progress_is_reported():
    reference, models = samples()
    first = relfit.compare(reference, models, test="relmulti")
    again = relfit.compare(reference, models, test="relmulti", rng=first.seed)
    assert first.to_json() == again.to_json()
    assert relfit.compare(reference, models).seed != first.seed
    reference, models = samples()
    calls = []
    relfit.compare(reference, models, progress=lambda done, total: calls.append((done, total)))
    assert calls
    assert calls[-1][0] == calls[-1][1]
    with pytest.raises(relfit.InputError, match="progress"):
        relfit.compare(reference, models, progress="yes")


def test_relmulti_is_two_estimates_on_disjoint_shares_whose_orders_know_no_company():
    """The shares the split makes, estimated by themselves with the bandwidth of the whole, give the same numbers."""
    reference, models = samples()
    result = relfit.compare(reference, models, test="relmulti", rng=5)
    selection, testing = split(load(reference, models), 0.25, "independent", 5)
    assert (len(selection.reference), len(testing.reference)) == (60, 180)
    joint = relfit.estimate(testing.reference, testing.samples, kernel=result.kernel)
    np.testing.assert_allclose(result.discrepancy, joint.values, atol=1e-14)
    chosen = relfit.estimate(selection.reference, selection.samples, kernel=result.kernel)
    assert result.best == chosen.names[int(np.argmin(chosen.values))]
    # A model's random order depends on the seed alone: other models and their places change nothing.
    rng = np.random.default_rng(0)
    reference, a, b = rng.normal(size=(3, 50, 2))
    few = row_orders(load(reference, {"a": a, "b": b}), "independent", 3, "split")
    many = row_orders(load(reference, {"z": b + 1, "b": b, "a": a}), "independent", 3, "split")
    np.testing.assert_array_equal(few["a"], many["a"])
    np.testing.assert_array_equal(few[None], many[None])
    assert (few["a"] != few[None]).any()


def test_pair_tests_agree_with_the_joint_estimate():
    reference, models = samples()
    joint = relfit.estimate(reference, {"d": models["d"], "a": models["a"]}, rng=0)
    pair = relfit.compare_pair(reference, models["d"], models["a"], names=("d", "a"), rng=0)
    contrast = np.array([1.0, -1.0])
    assert pair.test == "relmmd"
    assert pair.worse
    assert pair.difference == pytest.approx(contrast @ joint.values)
    covariance = joint.close.covariance(joint.values)
    assert pair.standard_error == pytest.approx(np.sqrt(contrast @ covariance @ contrast))
    plain = relfit.compare_pair(reference, models["d"], models["a"], test="relpsi", rng=0)
    assert plain.standard_error == pytest.approx(np.sqrt(contrast @ joint.covariance @ contrast))
    back = relfit.compare_pair(reference, models["a"], models["d"], rng=0)
    assert back.pvalue > 0.95
    both = relfit.compare(reference, {"d": models["d"], "a": models["a"]}, rng=0)
    assert pair.pvalue == both.pvalue[0]
    assert (pair.difference >= pair.threshold) == pair.worse
    ksd = relfit.compare_pair(reference, densities()["d"], densities()["a"], rng=0)
    assert ksd.test == "relksd"
    projection = relfit.Complete(variance="projection")
    plain_z = relfit.compare_pair(reference, models["d"], models["a"], test="z", estimator=projection, rng=0)
    assert plain.pvalue == pytest.approx(2 * plain_z.pvalue, rel=1e-9)


@pytest.mark.parametrize(
    ("test", "count", "told"), [("relpsi", 21, True), ("relpsi", 20, False), ("best-set", 21, False)]
)
def test_relpsi_says_that_many_samples_cost_its_level(rng, test, count, told):
    models = [rng.normal(0.5, 1, (105, 2)) for _ in range(count)]
    notes = relfit.compare(rng.normal(size=(105, 2)), models, test=test, rng=0).warnings
    assert any("relpsi selects among 21 samples" in note for note in notes) == told


def test_pairs_are_not_called_near_degenerate_for_their_common_noise():
    """Models that are the reference's rows, moved: of first order almost alone (C/M is 2% of V)."""
    rows = np.random.default_rng(1).normal(size=(400, 2))
    noise = 0.05 * np.random.default_rng(2).normal(size=(2, 400, 2))
    models = {"a": rows + [0.5, 0.0] + noise[0], "b": rows + [0.0, 0.5] + noise[1]}
    result = relfit.compare(rows, models, kernel=relfit.Gaussian(1.0), dependence="paired", rng=0)
    assert result.near_degeneracy.max() < 0.1
    assert result.status == ((), ())


def test_a_near_tie_for_best_that_masks_a_bad_model_is_said():
    """Two models nearly level, a third 6 standard errors above: RelPSI's lower limit is pushed up to t."""
    joint = relfit.JointEstimate(("a", "b", "far"), [1.0, 1.001, 3.0], 0.05 * np.eye(3))
    result = relfit.decide(joint, test="relpsi")
    assert not result.worse.any()
    assert any(
        note.startswith("far is more than 4 ") and 'test="best-set" does not' in note for note in result.warnings
    )
    assert relfit.decide(joint, test="best-set", rng=0).worse.tolist() == [False, False, True]
    clear = relfit.decide(relfit.JointEstimate(("a", "b", "far"), [1.0, 2.0, 3.0], 0.05 * np.eye(3)), test="relpsi")
    assert clear.worse[2]
    assert not clear.warnings
