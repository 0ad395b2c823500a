"""from_elpd beside arviz_stats.compare: its stored answers (scripts/eval_fixtures.py), and itself where installed."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from refusals import refused

import relfit

GOLDEN = json.loads((Path(__file__).parents[1] / "oracle" / "elpd_values.json").read_text())


def elpd_data(values, **fields):
    """What relfit reads of ArviZ's ELPDData."""
    return SimpleNamespace(**{"elpd_i": values, "pareto_k": None, "scale": "log", **fields})


def check_like_compare(models, table):
    """elpd_diff and dse; the variance of arviz_stats divides by n, and ours by n − 1."""
    joint = relfit.from_elpd(models)
    result = relfit.decide(joint, rng=0)
    n = joint.sizes[0]
    for k, name in enumerate(joint.names):
        assert result.discrepancy[k] == pytest.approx(table[name]["elpd"], rel=0, abs=1e-9)
        assert result.difference[k] == pytest.approx(table[name]["elpd_diff"], rel=0, abs=1e-9)
        dse = result.difference_standard_error[k] * np.sqrt((n - 1) / n)
        assert dse == pytest.approx(table[name]["dse"], rel=0, abs=1e-9)
    return result


def test_differences_are_those_of_arviz():
    models = {name: elpd_data(values) for name, values in GOLDEN["elpd_i"].items()}
    result = check_like_compare(models, GOLDEN["compare"])
    assert result.best == "both"
    check_like_compare(GOLDEN["elpd_i"], GOLDEN["compare"])


def test_notes_are_named_and_reach_the_result(rng):
    models = {name: elpd_data(GOLDEN["elpd_i"][name], pareto_k=np.array(k)) for name, k in GOLDEN["pareto_k"].items()}
    assert relfit.from_elpd(models).notes == (
        "observations with a Pareto k above 0.7, whose elpd is not reliable: 1 of first (up to 0.78); fit the model "
        "again without each of them, or use K-fold cross-validation",
    )
    # Differences of 3 and 5 in 50 observations: the first is small, and 50 are few.
    elpd = -rng.exponential(size=50)
    joint = relfit.from_elpd({"best": elpd, "near": elpd - 3 / 50, "far": elpd - 5 / 50})
    assert joint.notes == (
        "the elpd of near is less than 4 below the best: so small a difference is of little practical importance, and "
        "its normal law is a weak approximation (Sivula et al. 2020)",
        "50 observations are few: below 100 the normal law of a difference in elpd is a weak approximation (Sivula et "
        "al. 2020)",
    )
    result = relfit.decide(joint, rng=0)
    assert result.warnings[:2] == joint.notes
    assert str(result).startswith("best set · elpd (larger is better) · n = 50")
    assert relfit.Comparison.from_json(result.to_json()).measure == "elpd"


def test_the_sums_on_every_scale_and_their_covariance(rng):
    elpd = rng.normal(size=(80, 3))
    joint = relfit.from_elpd(dict(zip("abc", elpd.T, strict=True)))
    np.testing.assert_allclose(joint.covariance, 80 * np.cov(elpd.T), rtol=1e-12)
    np.testing.assert_allclose(joint.psi.covariance(), joint.covariance, rtol=1e-12)
    # The scales of ArviZ, and its older name of the values.
    for scale, factor in (("log", 1.0), ("negative_log", -1.0), ("deviance", -2.0)):
        older = SimpleNamespace(loo_i=factor * elpd[:, 0], pareto_k=None, scale=scale)
        np.testing.assert_allclose(relfit.from_elpd({"a": elpd[:, 0], "b": older}).values, joint.values[0], rtol=1e-12)


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ([], "models: expected a mapping of names to models, got list"),
        ({}, "models: expected a mapping of names to models, got dict"),
        (
            {"a": np.zeros(30), "b": np.zeros(31)},
            "models: expected the same observations for every model, got {'a': 30",
        ),
        ({"a": np.zeros(19)}, "models: expected at least 20 observations, got 19"),
        ({"a": np.zeros((30, 2))}, "models['a']: expected one number for each observation, got shape (30, 2)"),
        ({"a": np.full(30, np.nan)}, "models['a']: "),
        ({"a": elpd_data(None)}, "models['a']: expected values for each observation, got their sum only"),
        ({"a": elpd_data(np.zeros(30), subsample_size=9)}, "models['a']: expected all observations, got a subsample"),
        ({"a": elpd_data(np.zeros(30), scale="bits")}, "models['a']: expected the scale log, negative_log or deviance"),
    ],
)
def test_models_of_another_kind(models, message):
    assert refused(lambda: relfit.from_elpd(models)).startswith(message)
