"""The best set and carving through the public functions."""

import numpy as np

import relfit


def test_the_best_set_is_not_masked_by_a_near_tie():
    """Where RelPSI is helpless: two models nearly level, a third six standard errors above."""
    joint = relfit.JointEstimate(("a", "b", "far"), [1.0, 1.001, 3.0], 0.05 * np.eye(3))
    assert not relfit.decide(joint, test="relpsi").worse[2]
    assert relfit.decide(joint, test="best-set", rng=0).worse[2]
