"""The simulation behind docs/evidence/kernels.md: its trials run."""

import pytest

from studies import kernels


@pytest.mark.parametrize("problem", ["fig1-meanshift", "cauchy"])
def test_a_trial_decides_with_every_kernel(problem):
    setting = {"problem": problem, "measure": "ksd", "n": 100}
    first, second = (kernels.trial(setting, 3) for _ in range(2))
    assert first == second
    runs = kernels.TAILS if problem == "cauchy" else (*kernels.SELECTIVE, *kernels.BEST_SET)
    assert {f"{test}/{kernel}" for test, kernel in runs} == set(first) - {"factor"}


def test_a_trial_of_units():
    """At n = 300 the narrow sampler is found with whitening, in this trial, and is not without."""
    first, second = (kernels.unit_trial({"ties": "exact", "n": 300}, 3) for _ in range(2))
    assert first == second
    assert "mean field" in first["whiten"]
    assert "mean field" in first["known"]
    assert "mean field" not in first["none"]
