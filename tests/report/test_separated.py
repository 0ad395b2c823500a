"""Groups far apart: found where they are, not where there are outliers or tails."""

from __future__ import annotations

import numpy as np
import pytest

from relfit.report.checks import separated_groups


def test_by_hand():
    """Eleven points a unit apart, a gap of ten, nine more: 45% and 55%, the gap is 10 steps of 1."""
    x = np.concatenate([np.arange(11.0), np.arange(20.0, 29.0)])[:, None]
    found = separated_groups(x)
    assert found.shares == pytest.approx((0.45, 0.55))
    assert (found.gap, found.step) == (10.0, 1.0)


def test_an_outlier_is_no_group():
    assert separated_groups(np.append(np.arange(40.0), 500.0)[:, None]) is None


def test_a_group_behind_an_outlier_is_found():
    x = np.concatenate([np.arange(20.0), np.arange(60.0, 80.0), [5000.0]])[:, None]
    assert separated_groups(x).gap == 41.0


@pytest.mark.parametrize("d", [1, 2, 10])
def test_one_cloud_is_no_groups(rng, d):
    assert all(separated_groups(rng.normal(size=(300, d))) is None for _ in range(5))


def test_repeated_rows_do_not_break_it():
    assert separated_groups(np.zeros((30, 2))) is None
    assert separated_groups(np.repeat(np.arange(10.0), 3)[:, None]) is None
