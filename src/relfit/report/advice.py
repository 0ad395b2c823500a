"""How many rows it would take to tell the undecided models from the best."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from relfit.errors import InputError
from relfit.estimate import JointEstimate
from relfit.planning import Plan, plan
from relfit.planning.plan import TESTS
from relfit.planning.result import Forecast
from relfit.report.words import grouped, quoted
from relfit.result import Comparison

POWER = 0.8
TRIALS = 200
_MOST_SENTENCES = 4


def own_plan(comparison: Comparison, names: Sequence[str], *, power: float = POWER, trials: int = TRIALS) -> Plan:
    """The plan with these models of the comparison as its pilot, for the test it used."""
    joint = comparison._distinct()
    if joint.sizes is None or comparison.test not in TESTS:
        raise InputError("sample size: this result does not say how many rows it was made from")
    if comparison.margin:
        raise InputError(f"margin: plans know none, got {comparison.margin:g}; plan from the result without it")
    at = [k for k, name in enumerate(joint.names) if name in names]
    sizes = (joint.sizes[0], *(joint.sizes[1 + k] for k in at if len(joint.sizes) > 1))
    square = np.ix_(at, at)
    return plan(
        JointEstimate(
            tuple(joint.names[k] for k in at),
            joint.values[at],
            joint.covariance[square],
            sizes,
            near_degeneracy=None if joint.near_degeneracy is None else joint.near_degeneracy[at],
            second_order=None if joint.second_order is None else joint.second_order[square],
        ),
        power=power,
        alpha=comparison.alpha,
        tests=[comparison.test],
        select_fraction=comparison.select_fraction or 0.25,
        correction=comparison.correction,
        trials=trials,
        rng=comparison.seed or 0,
        progress=False,
    )


def rows_advice(comparison: Comparison) -> list[str]:
    """A sentence for each undecided model: to tell it from the best you would need about n = … rows.

    The gap seen is taken for the true one; the range is what the data leave open about it.
    """
    if comparison.sizes is None or comparison.test not in TESTS:
        return []
    if comparison.margin:
        return ["Not looked at: plans know no margin."]
    _, _, undecided = grouped(comparison.rows())
    undecided = [row["name"] for row in comparison.rows() if row["name"] in undecided and not row["equivalent"]]
    undecided = [name for name in undecided if name in comparison._distinct().names]
    if not undecided:
        return ["No other model is undecided: these rows were enough."]
    # The few models asked about are planned for by themselves: those found worse by far have no part in it.
    # Of many the ones with the largest gaps: for the closest no number of rows may be enough.
    made = own_plan(comparison, [comparison.best, *undecided[-_MOST_SENTENCES:]])
    said = [_sentence(made, cell) for cell in made.forecasts]
    more = len(undecided) - _MOST_SENTENCES
    if more > 0:
        said.append(f"{more} more {'models are' if more > 1 else 'model is'} undecided too.")
    return said


def about(rows: float) -> str:
    """A number of rows to two digits.

    >>> about(5437.0), about(87.2), about(1_234_567.0)
    ('5,400', '87', '1,200,000')
    """
    digits = max(0, math.floor(math.log10(rows)) - 1)
    return f"{round(rows, -digits):,.0f}"


def _sentence(made: Plan, cell: Forecast) -> str:
    name, best = quoted(cell.name), quoted(made.best)
    if not math.isfinite(cell.n_needed):
        return f"To tell {name} from {best}, {about(made.most)} rows would not be enough: hardly a gap is to be seen."
    start = f"To tell {name} from {best} you would need about n = {about(cell.n_needed)} rows"
    if cell.gap < cell.gap_standard_error:
        return (
            f"{start} if the gap is what it looks like; but it is smaller than its own standard error, and if there is "
            "none, no number of rows is enough."
        )
    low, high = cell.n_range or (cell.n_needed, cell.n_needed)
    most = about(high) if math.isfinite(high) else f"more than {about(made.most)}"
    return f"{start}; what these data leave open about the gap makes that {about(low)} to {most}."
