"""Would another seed select another model? For tests that select the best model at random."""

from __future__ import annotations

from relfit.checks import Compared, Findings
from relfit.stats.joint import JointEstimate
from relfit.stats.maxt import covariance_root, normal_draws, seeded, streams
from relfit.stats.tests.base import Test
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
    chance = chance_of_another(joint, best, test, compared.criteria.seed)
    if not is_often(chance):
        return Findings()
    note = (
        f"another seed would select another model than {quoted(best)} with probability about {chance:.0%}, because "
        f'test="{test.name}" selects at random: report the seed, or use test="best-set", which selects no model'
    )
    return Findings((note,))


def chance_of_another(joint: JointEstimate, best: str, test: Test, seed: int) -> float:
    """About how often another seed selects another model than this one.

    Carving selects with noise of the estimates' covariance; RelMulti on a random fraction of the rows, whose estimates
    have the covariance of those on the other rows times the ratio of their numbers.

    >>> import numpy as np
    >>> from relfit.stats.tests.carve import Carve
    >>> chance_of_another(JointEstimate(("a", "b"), [0.0, 9.0], np.eye(2)), "a", Carve(), 0)
    0.0
    """
    noise = GAMMA**2 if test.split is None else (1.0 - test.split) / test.split
    models = streams(seeded(seed, "choice"), joint.names).models
    draws = joint.values[:, None] + normal_draws(covariance_root(noise * joint.covariance), models, _DRAWS)
    return float((draws.argmin(axis=0) != joint.names.index(best)).mean())


def is_often(chance: float) -> bool:
    """Whether the reader is told about the chance."""
    return chance >= _OFTEN
