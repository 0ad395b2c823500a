import numpy as np
import pytest

import relfit


@pytest.mark.parametrize(
    ("losses", "words"),
    [({"a": 1.0, "b": 2.0}, r"losses\['a'\]"), ({"a": [1.0, [2.0]], "b": [1.0, 2.0]}, r"losses\['a'\]")],
)
def test_losses_of_another_shape_are_refused_in_a_line(losses, words):
    with pytest.raises(relfit.InputError, match=words):
        relfit.from_losses(losses)


def test_means_and_covariance_of_the_means(rng):
    losses = rng.normal([0.0, 0.1, 0.5], size=(50, 3))
    joint = relfit.from_losses(losses)
    np.testing.assert_allclose(joint.values, losses.mean(0))
    np.testing.assert_allclose(joint.covariance, np.cov(losses.T) / 50)
    assert joint.names == ("m1", "m2", "m3")
    assert joint.sizes == (50,)


def test_pairing_by_item_is_used(rng):
    """Items of very different difficulty: paired differences are small and the worse model is found."""
    difficulty = rng.normal(size=200) * 10
    noise = 0.2 * rng.normal(size=(2, 200))
    losses = {"good": difficulty + noise[0], "bad": difficulty + 0.2 + noise[1]}
    for test in ("relpsi", "best-set", "carve"):
        result = relfit.decide(relfit.from_losses(losses), test=test, rng=0)
        assert result.worse.tolist() == [False, True]
    assert result.measure == "score"


def test_a_loss_plus_a_constant_is_worse_for_certain(rng):
    loss = rng.normal(size=100)
    result = relfit.decide(relfit.from_losses({"a": loss, "b": loss + 0.01, "c": loss}))
    assert result.worse.tolist() == [False, True, False]
    assert "deterministic" in result.status[1]
    assert "indistinguishable" in result.status[2]


def test_frames_name_their_columns(rng):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame(rng.normal(size=(30, 2)), columns=["x", "y"])
    assert relfit.from_losses(frame).names == ("x", "y")
    assert relfit.from_losses(frame, names=["p", "q"]).names == ("p", "q")


def test_groups_of_items(rng):
    """Every item four times: V is that of the distinct items, not a quarter of it."""
    losses = rng.normal(size=(40, 3))
    once = relfit.from_losses(losses)
    often = relfit.from_losses(np.repeat(losses, 4, axis=0), groups=np.repeat(np.arange(40), 4))
    np.testing.assert_allclose(often.covariance, once.covariance, rtol=1e-12)
    assert often.groups == (40,)
    unequal = np.r_[np.zeros(30), np.arange(10) + 1, np.arange(12) + 11]
    got = relfit.from_losses(losses[np.r_[:40, :12]], groups=unequal)
    centred = losses[np.r_[:40, :12]] - losses[np.r_[:40, :12]].mean(0)
    totals = np.array([centred[unequal == g].sum(0) for g in np.unique(unequal)]) / 52
    np.testing.assert_allclose(got.covariance, totals.T @ totals * 23 / 22, rtol=1e-12)


@pytest.mark.parametrize(
    ("losses", "options", "words"),
    [
        (np.zeros((5, 2)), {}, "at least 20"),
        (np.zeros((30, 2)), {"names": ["a"]}, "expected 2"),
        ({"a": [1.0] * 30, "b": [1.0] * 29}, {}, "as many"),
        ({}, {}, "losses"),
        (np.full((30, 2), np.nan), {}, "NaN"),
        ([["x", "y"]] * 30, {}, "text"),
        (np.zeros((30, 2)), {"groups": np.arange(30) % 5}, "at least 20 groups"),
        (np.zeros((30, 2)), {"groups": [1, 2]}, "expected 30 labels"),
    ],
)
def test_refusals(losses, options, words):
    with pytest.raises(relfit.InputError, match=words) as caught:
        relfit.from_losses(losses, **options)
    assert "\n" not in str(caught.value)
