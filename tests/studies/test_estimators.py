import json

import numpy as np
import pytest

from relfit import Gaussian, JointEstimate
from relfit.stats.joint import Psi
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


def test_shrinking_keeps_the_variances_it_should():
    rng = np.random.default_rng(0)
    psi = rng.normal(size=(30, 10))
    own = Psi(psi - psi.mean(0))
    joint = JointEstimate(tuple("abcdefghij"), np.zeros(10), own.covariance(), (30,), own)
    shrunk = shrinkage.ledoit_wolf(joint)
    assert np.trace(shrunk) == pytest.approx(np.trace(joint.covariance))
    off = ~np.eye(10, dtype=bool)
    assert np.abs(shrunk[off]).sum() < 0.5 * np.abs(joint.covariance[off]).sum()
    common = shrinkage.constant_correlation(joint)
    np.testing.assert_allclose(np.diag(common), np.diag(joint.covariance), rtol=1e-12)


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


def test_the_picture_has_a_panel_for_samples_and_one_for_densities(results):
    figure = costs.figure(results["costs to 10,000"])
    titles = [ax.get_title() for ax in figure.axes]
    assert titles == ["Samples, d = 10: MMD and UME", "Densities, d = 2: KSD and FSSD"]
    assert all(ax.get_xscale() == "log" for ax in figure.axes)


@pytest.mark.parametrize("n", power.LAGS)
def test_equal_cost_designs_have_equally_many_pairs(n):
    """Blocks of 2R + 1 rows: n/(2R+1) of them with R(2R+1) pairs each, so nR in all, up to the rows left over."""
    pairs = {design: power.words_of(design, n)["pairs"] for design in power.designs(n)}
    for r in power.LAGS[n]:
        assert 0 <= pairs[f"incomplete {r}"] - pairs[f"block {2 * r + 1}"] < (2 * r + 1) * r
    assert pairs["more rows"] == power.MORE_ROWS * n
