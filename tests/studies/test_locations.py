"""The simulations of UME and FSSD: true values against an independent formula, and the page they make."""

import numpy as np
import pytest

from relfit.paper.problems import mean_shift
from studies.locations import levels, page, power, truth
from studies.problems import mirrored_points, true_fssd, true_ume


def test_population_values_of_mean_shifts():
    """E exp(−‖x−v‖²/(2b²)) of x ~ N(m, I) is (b²/(b²+1))^(d/2) exp(−‖m−v‖²/(2(b²+1)))."""
    means, points, b = np.array([[0.5, 0.0], [-0.5, 0.0], [0.0, 2.0]]), mirrored_points(2), 1.3
    spread = b**2 + 1.0

    def embedding(m):
        return b**2 / spread * np.exp(-np.square(points - m).sum(axis=1) / (2.0 * spread))

    problem = mean_shift(means)
    expected = [np.mean((embedding(m) - embedding(np.zeros(2))) ** 2) for m in means]
    found = true_ume(problem, points, b)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert found[0] == pytest.approx(found[1], rel=1e-12)
    expected = np.array([0.25, 0.25, 4.0]) * np.mean(embedding(np.zeros(2)) ** 2) / 2.0
    np.testing.assert_allclose(true_fssd(problem, points, b), expected, rtol=1e-12)


def test_the_page_is_made_from_a_few_trials(monkeypatch, tmp_path):
    monkeypatch.setattr(truth, "REPLICATES", 3)

    def run(module, cells):
        return [(cell, [module.trial(cell, seed) for seed in (0, 1)]) for cell in cells]

    small = {"n": 80}
    results = {
        "truth": run(truth, truth.cells()),
        "levels": run(levels, [{**cell, **small} for cell in levels.cells()[:2]]),
        "levels, optimised": run(levels, [{**levels.optimised_cells()[1], "n": 120}]),
        "many rows": run(levels, [{**levels.large_cells()[0], **small}]),
        "power": run(power, [cell for cell in power.cells() if cell["problem"] == "blobs"][-1:]),
        "memory": [({"samples": True, "options": {"discrepancy": "ume"}}, [{"megabytes": 12.0, "seconds": 1.0}])],
    }
    page.write(tmp_path, results)
    text = (tmp_path / "locations.md").read_text("utf-8")
    assert "| UME " in text
    assert "The largest peak is 12 MB" in text
    assert "nan" not in text
    assert "mean_{a≠b} τ_a·τ_b" in text
