import json

import numpy as np
import pytest

from relfit import Gaussian
from studies.estimators import costs, memory, page, power, shrinkage, truth


def through_json(result):
    return json.loads(json.dumps(result, sort_keys=True))


def test_ratio_is_mean_variance_over_mean_square_error():
    """Batches of (error, error², variance): mean variance 3 over mean square 2; residuals v − 1.5e² are ∓1, s.e. ½."""
    results = [{"x": [[0.1], [2.0], [2.0]]}, {"x": [[-0.1], [2.0], [4.0]]}]
    value, error = truth.ratio(results, "x")
    assert value == 1.5
    assert error == pytest.approx(0.5)


def test_population_of_ksd_by_simulation():
    """‖m‖² E k, against the mean of many KSD values: within 4 standard errors, for data and for a target."""
    setting = {"n": 400, "d": 2, "problem": "tied"}
    kernel = Gaussian(2.0)
    for measure in ("mmd", "ksd", "target"):
        own = {**setting, "measure": measure}
        values = []
        for seed in range(60):
            data = truth.draw(truth.means_of(own), own, seed)
            values.append(truth.estimates_of(data, "complete", kernel, seed)[truth.COMPLETE[0]].values)
        error = np.array(values) - truth.population(truth.means_of(own), measure, kernel)
        assert (np.abs(error.mean(0)) < 4 * error.std(0) / np.sqrt(60)).all()


@pytest.fixture(scope="module")
def results():
    """Every part with two tiny trials."""
    parts = {
        "truth": (truth.tied_cells()[:1] + truth.tied_cells()[3:5], truth.trial),
        "exact": (truth.exact_cells()[-1:], truth.trial),
        "noise": (truth.noise_cells()[:1], truth.noise_trial),
        "power": (power.cells()[3:4], power.trial),
        "lags": (power.lag_cells()[-1:], power.lag_trial),
        "shrinkage": ([{"l": 10, "n": 40}], shrinkage.trial),
        "costs to 10,000": (costs.cells(0, 200), costs.trial),
        "memory": (memory.cells(), lambda setting, seed: {"megabytes": 120.0 + seed, "seconds": 2.0}),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(truth, "REPLICATES", 2)
        patch.setattr(truth, "NOISE_REPLICATES", 2)
        return {
            name: [(cell, [through_json(trial(cell, seed)) for seed in range(2)]) for cell in cells]
            for name, (cells, trial) in parts.items()
        }


def test_the_page_holds_every_table_and_says_what_was_missed(results, tmp_path):
    page.write(tmp_path, results)
    text = (tmp_path / "estimators.md").read_text("utf-8")
    assert (tmp_path / "images" / "estimators.png").read_bytes().startswith(b"\x89PNG")
    for words in ("incomplete, R = 25", "complete, corrected", "block of 11 rows", "Ledoit–Wolf", "UME", "FSSD"):
        assert words in text
    assert "$" not in text
    assert "Holds: peak above the inputs below 500 MB: at most 121 MB" in text
