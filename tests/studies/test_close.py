"""The study of models close to the data."""

import numpy as np
import pytest

import relfit
from studies import close


def test_trials_and_rows():
    (setting,) = (s for s in close.worse_models() if s["worse"] == 1.0 and s["directions"] == "same")
    results = [close.trial({**setting, "n": 60, "models": 3}, seed) for seed in range(2)]
    assert set(results[0]) == set(close.VARIANCES)
    (row,) = close.found_rows({**setting, "models": 3}, results)
    assert {f"{variance}: {what}" for variance in close.VARIANCES for what in ("wrong", "found")} < set(row)
    tie = {**close.ties()[0], "n": 60}
    (row,) = close.tie_rows(tie, [close.trial(tie, 0), close.trial(tie, 1)])
    assert row["level"] in ("kept", "EXCEEDED")


@pytest.mark.parametrize(
    ("setting", "scores", "width"),
    [
        ({"case": "rare rows", "percent": 2.3}, close.rare_scores(2.3), 1.0),
        ({"case": "heavy tails", "freedom": 5}, close.tail_scores(5), 1.5),
    ],
    ids=["rare rows", "heavy tails"],
)
def test_unlike_models_tie(setting, scores, width):
    """The two densities have the same KSD², to within the error of an estimate from 3000 rows."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(3000, 1)) if width == 1.0 else rng.standard_t(5, size=(3000, 1))
    models = {name: relfit.Density(score=score, dim=1) for name, score in zip("AB", scores, strict=True)}
    joint = relfit.estimate(x, models, kernel=relfit.Gaussian(width), rng=0)
    gap = np.array([1.0, -1.0])
    assert abs(joint.values @ gap) < 4.0 * np.sqrt(gap @ joint.covariance @ gap)
    (row,) = close.unlike_rows({**setting, "n": 60}, [close.unlike_trial({**setting, "n": 60}, 0)] * 2)
    assert {"auto: A", "auto: B"} < set(row)


def test_coverage_is_measured_against_the_truth():
    """Truths of KSD² from all pairs of the rows, those with themselves included: rows are drawn with replacement."""
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    rows, scores, truth = close.diabetes()
    kernel = relfit.Gaussian(close.DIABETES_WIDTH)
    models = {name: relfit.Density(score=score, dim=4) for name, score in scores.items()}
    joint = relfit.estimate(rows, models, kernel=kernel, rng=0)
    # The estimate leaves out the pairs of a row with itself, whose mean is larger.
    assert (joint.values < truth).all()
    assert (truth - joint.values < 10.0 / len(rows)).all()
    setting = close.covered()[0]
    (row,) = close.cover_rows(setting, [close.cover_trial({**setting, "n": 60}, seed) for seed in range(2)])
    assert float(row["length, auto / projection"]) < 1.0
