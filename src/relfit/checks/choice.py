"""Would another seed select another model? For tests that select the best model at random."""

from __future__ import annotations

from relfit.checks.base import Compared, Findings
from relfit.stats.joint import JointEstimate
from relfit.stats.maxt import covariance_root, normal_draws, seeded, streams
from relfit.stats.tests.carve import GAMMA
from relfit.util.text import quoted

# Draws of the selection, and the probability from which on the reader is told.
_DRAWS, _OFTEN = 500, 0.1


def check_choice(compared: Compared) -> Findings:
    """A note if another seed would often select another model."""
    test = compared.test
    if not test.randomised:
        return Findings()
    joint = compared.joint
    best = joint.names[compared.decision.best]
    chance = chance_of_another(joint, best, compared.criteria.seed)
    if not is_often(chance):
        return Findings()
    note = (
        f"another seed would select another model than {quoted(best)} with probability about {chance:.0%}, because "
        f'test="{test.name}" selects at random: report the seed, or use test="best-set", which selects no model'
    )
    return Findings((note,))


def chance_of_another(joint: JointEstimate, best: str, seed: int) -> float:
    """About how often another seed of carving, which adds noise to the estimates, selects another model than this one.

    >>> import numpy as np
    >>> chance_of_another(JointEstimate(("a", "b"), [0.0, 9.0], np.eye(2)), "a", 0)
    0.0
    """
    models = streams(seeded(seed, "choice"), joint.names).models
    noise = GAMMA * normal_draws(covariance_root(joint.covariance), models, _DRAWS)
    draws = joint.values[:, None] + noise
    return float((draws.argmin(axis=0) != joint.names.index(best)).mean())


def is_often(chance: float) -> bool:
    """Whether the reader is told about the chance."""
    return chance >= _OFTEN
