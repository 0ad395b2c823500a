"""The study of landmarks: its trials and rows, and the page that they make."""

import numpy as np
import pytest

from studies import landmarks


def test_trials_and_rows():
    for setting in landmarks.biases():
        (row,) = landmarks.bias_rows(setting, [landmarks.bias_trial(setting, seed) for seed in range(20)])
        assert abs(float(row["bias of D₁, in s.e."])) < 5.0
    setting = {**landmarks.variances()[0], "n": 300}
    (row,) = landmarks.variance_rows(setting, [landmarks.variance_trial(setting, seed) for seed in range(8)])
    assert row["variance, landmarks / complete"][0] == pytest.approx(1.0, abs=0.3)
    (row,) = landmarks.level_rows({"n": 300}, [landmarks.level_trial({"n": 300}, seed) for seed in range(2)])
    assert row["worse one found"] == (1.0, 0.0)
    (row,) = landmarks.power_rows({"n": 300}, [landmarks.power_trial({"n": 300}, seed) for seed in range(2)])
    assert np.isfinite(row["landmarks − complete"]).all()


def test_the_page_is_made_from_a_few_trials(tmp_path):
    times = [{"seconds": 2.0, "cpu": c, "peak": 1e9, "note": "landmarks estimator: 50 landmarks"} for c in (3.0, 30.0)]
    small = {"bias": landmarks.biases()[:1], "variance": [{**landmarks.variances()[0], "n": 300}]}
    small |= {"level": [{"n": 200}], "level-large": [{"n": 300}], "power": [{"n": 200}]}
    results = {
        name: [(setting, [landmarks.STUDY.parts[name].trial(setting, seed) for seed in range(2)]) for setting in some]
        for name, some in small.items()
    }
    results["times"] = [({"n": n}, [used]) for n, used in zip((10**5, 10**6), times, strict=True)]
    landmarks.write(tmp_path, results)
    page = (tmp_path / "calibration" / "landmarks.md").read_text()
    assert "to the power 1.00" in page
    assert "$" not in page
