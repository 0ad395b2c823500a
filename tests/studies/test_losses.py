"""The simulation of the best set beside arch's model confidence set: both work where it is clear, rates by hand."""

import numpy as np
import pytest

pytest.importorskip("arch", reason="arch is not installed")
pytest.importorskip("sklearn", reason="scikit-learn is not installed")
losses = pytest.importorskip("studies.losses")
BEST = losses.GAPS == 0.0


@pytest.mark.parametrize("case", losses.CASES)
def test_both_find_what_nobody_can_miss(case):
    matrix = losses.drawn_losses(case, 400, np.random.default_rng(1))
    matrix[:, ~BEST] += 3.0
    for kept in losses.kept_models(matrix, seed=2).values():
        assert kept[BEST].sum() >= 3
        assert not kept[~BEST].any()


def test_rates_by_hand():
    """Two trials: one drops a best model of four and all four worse ones, the other drops nothing."""
    some, nothing = [False, True, True, True, False, False, False, False], [True] * 8
    results = [dict.fromkeys(("best-set", "best-set, Holm", "MCS"), kept) for kept in (some, nothing)]
    row = losses.rows({"case": "independent", "n": 200}, results)[0]
    assert row["a best model lost"] == (0.5, 0.5)
    assert row["fraction of best lost"] == (0.125, 0.125)
    assert row["fraction of worse found"] == (0.5, 0.5)
