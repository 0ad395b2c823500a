"""Do the data fall apart into groups? KSD hardly sees how the weight is shared among them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree
from scipy.spatial.distance import cdist

from relfit.api import plan
from relfit.data.check_score import check_score
from relfit.data.models import Density
from relfit.data.overlap import fingerprint
from relfit.report import words
from relfit.report.recall import Recalled
from relfit.report.sensitivity import Sensitivity
from relfit.report.words import grouped
from relfit.results.comparison import Comparison
from relfit.results.plan import Plan
from relfit.stats.joint import NEAR_DEGENERATE, JointEstimate
from relfit.stats.planning import Forecast
from relfit.stats.tests import TESTS
from relfit.stats.tests.base import Test
from relfit.stats.tests.relmulti import RelMulti
from relfit.util.arrays import Array
from relfit.util.errors import InputError, RelfitError
from relfit.util.text import listed, quoted, visible

MOST_ROWS = 400
# A group holds at least this share of the rows; fewer are outliers.
SMALLEST_SHARE = 0.05
# How many times the usual step between neighbours a gap between groups is.
WIDE = 4.0
_USUAL = 0.9
_TRIED = 60


@dataclass(frozen=True)
class Separation:
    """Two groups: their shares of the rows (the smaller first), the gap between them and the usual step within."""

    shares: tuple[float, float]
    gap: float
    step: float


def separated_groups(x: Array) -> Separation | None:
    """The widest gap of the rows (n, d) that has at least 5% of them on either side, if it is wide.

    Gaps are edges of the minimum spanning tree, which joins every row to the others by the shortest steps; a gap is
    wide from four times the 90% point of all its edges.

    >>> rng = np.random.default_rng(0)
    >>> separated_groups(rng.normal(size=(300, 2))) is None
    True
    >>> two = np.concatenate([rng.normal(size=(100, 2)), rng.normal(20.0, 1.0, (300, 2))])
    >>> separated_groups(two).shares
    (0.25, 0.75)
    """
    some = x[:: max(1, -(-len(x) // MOST_ROWS))]
    distances = cdist(some, some)
    # A distance of exactly 0 would be no edge at all.
    tree = minimum_spanning_tree(np.maximum(distances, np.finfo(float).tiny)).tocoo()
    step = float(np.quantile(tree.data, _USUAL)) if tree.nnz else 0.0
    if step <= np.finfo(float).tiny:
        # Most rows are repeated: steps between them say nothing.
        return None
    for k in np.argsort(tree.data)[::-1][:_TRIED]:
        if tree.data[k] < WIDE * step:
            return None
        cut = tree.copy()
        cut.data[k] = 0.0
        cut.eliminate_zeros()
        _, labels = connected_components(cut, directed=False)
        share = float(np.mean(labels == labels[0]))
        small = min(share, 1.0 - share)
        if small >= SMALLEST_SHARE:
            return Separation((small, 1.0 - small), float(tree.data[k]), step)
    return None


# --------------------
# How far the answer can be trusted: what was looked at, what was found, in sentences.

# Rows at which derivatives of a density are checked for the report.
_SCORE_ROWS = 40
_DENSITY_MEASURES = ("ksd", "fssd")


@dataclass(frozen=True)
class Check:
    """One thing looked at. `state`: "good" (nothing found), "mind" (the reader should know) or "plain" (a fact)."""

    title: str
    state: str
    sentences: tuple[str, ...]


def checks(comparison: Comparison, recalled: Recalled | None, sensitivity: Sensitivity | None) -> list[Check]:
    """Everything that was looked at, in the order of the page."""
    found = [
        _kernel(comparison),
        _sensitivity(comparison, recalled, sensitivity),
        _degeneracy(comparison),
        _shared_rows(comparison, recalled),
        _weights(comparison, recalled),
        _scores(comparison, recalled),
        _randomised(comparison),
    ]
    return [check for check in found if check is not None]


def _kernel(comparison: Comparison) -> Check | None:
    described = words.kernel_words(comparison)
    if described is None:
        return None
    how = {
        "median": "Its bandwidth is the median distance between rows, the usual choice and not always a good one.",
        "given": "It was given, not chosen by these data.",
        "selected": "It was chosen on rows of its own, for telling these models apart; the test did not use them.",
    }.get(comparison.bandwidth_rule or "", "")
    decides = "It decides which differences count, and so which model is the best."
    return Check("Kernel", "plain", tuple(part for part in (f"{described}.", how, decides) if part))


def _sensitivity(comparison: Comparison, recalled: Recalled | None, found: Sensitivity | None) -> Check | None:
    title = "Another bandwidth"
    if comparison.kernel is None:
        return None
    if recalled is None:
        return Check(title, "plain", ("Not looked at: the report was made without the data.",))
    if found is None and comparison.groups is not None:
        return Check(title, "plain", ("Not looked at: the rows are in groups, and a result does not hold which.",))
    if found is None:
        return Check(title, "plain", ("Not looked at: this kernel has no bandwidth, or was used at locations.",))
    if found.stable:
        return Check(
            title, "good", ("The best model and every verdict are the same at half and at twice the bandwidth.",)
        )
    changed = [name for name in comparison.names if len(set(_near(found, name))) > 1]
    return Check(title, "mind", (f"At half or twice the bandwidth the verdict on {listed(changed)} is another.",))


def _near(found: Sensitivity, name: str) -> list[str]:
    return [kind for factor, kind in zip(found.factors, found.kinds(name), strict=True) if 0.5 <= factor <= 2.0]


def _degeneracy(comparison: Comparison) -> Check | None:
    share = comparison.near_degeneracy
    if share is None:
        return None
    close = [name for name, part in zip(comparison.names, share, strict=True) if part > NEAR_DEGENERATE]
    title = "Models very close to the data"
    if not close:
        largest = f"{100 * float(share.max()):.0f}%"
        text = f"None: second-order noise makes up at most {largest} of a variance, and the normal approximation holds."
        return Check(title, "good", (text,))
    many = len(close) > 1
    text = (
        f"{listed(close)} {'are' if many else 'is'} so close to the data that the usual approximation is "
        "cautious there: false alarms are rarer than stated, but real differences may be missed."
    )
    return Check(title, "mind", (text,))


def _shared_rows(comparison: Comparison, recalled: Recalled | None) -> Check | None:
    if comparison.measure not in ("mmd", "ume", "nystroem") or (comparison.sizes or (1,))[0] == 0:
        return None
    title = "Rows shared with the reference"
    if comparison.shared_rows:
        found = [f"{count} rows of {quoted(name)}" for name, count in comparison.shared_rows.items()]
        advice = "A model that has seen these data looks too good; compare on data that no model was fitted to."
        return Check(title, "mind", (f"{', '.join(found)} also occur in the reference.", advice))
    if recalled is not None and fingerprint(recalled.data.reference).atoms:
        return Check(title, "plain", ("Rows repeat so often in these data that rows in common say nothing.",))
    return Check(title, "good", ("None were found.",))


def _weights(comparison: Comparison, recalled: Recalled | None) -> Check | None:
    if comparison.measure not in _DENSITY_MEASURES:
        return None
    blind = (
        "KSD sees the slope of the log density. Where the data fall into groups far apart, it hardly notices how much "
        "weight a model gives each of them."
    )
    title = "Separate groups in the data"
    if recalled is None:
        return Check(title, "mind", (blind,))
    rows = recalled.reference if recalled.data.target is None else recalled.sample(next(iter(recalled.data.samples)))
    apart = separated_groups(rows)
    if apart is None:
        return Check(title, "good", ("No groups far apart were found in the data.", blind))
    small, large = (f"{100 * share:.0f}%" for share in apart.shares)
    seen = (
        f"The data fall into groups: {small} and {large} of the rows lie {apart.gap / apart.step:.0f} times further "
        "apart than neighbours do. Compare the groups' weights by other means."
    )
    return Check(title, "mind", (seen, blind))


def _scores(comparison: Comparison, recalled: Recalled | None) -> Check | None:
    if comparison.measure not in _DENSITY_MEASURES:
        return None
    title = "Score check"
    if recalled is None:
        return Check(title, "plain", ("Not looked at: the report was made without the data.",))
    said: dict[str, list[str]] = {}
    good = True
    for name, density, rows in _densities(recalled):
        fine, message = _score_message(density, rows)
        good = good and fine
        said.setdefault(message, []).append(name)
    own = recalled.data.target is None
    sentences = [f"{listed(names) if own else 'The target'}: {visible(message)}." for message, names in said.items()]
    return Check(title, "good" if good else "mind", tuple(sentences))


def _densities(recalled: Recalled) -> list[tuple[str, Density, Any]]:
    data = recalled.data
    if data.target is not None:
        return [("the target", data.target, recalled.sample(next(iter(data.samples))))]
    return [(name, density, recalled.reference) for name, density in data.densities.items()]


def _score_message(density: Density, rows: Any) -> tuple[bool, str]:
    try:
        found = check_score(density, rows, max_rows=_SCORE_ROWS)
    except RelfitError as error:
        return False, f"could not be checked ({error})"
    return found.ok, "; ".join(found.messages)


def _randomised(comparison: Comparison) -> Check | None:
    if not comparison.randomised:
        return None
    text = f"The choice of the best is randomised: another seed than {comparison.seed} may choose another model."
    return Check("Random choice", "mind", (text,))


# --------------------
# How many rows it would take to tell the undecided models from the best.

POWER = 0.8
TRIALS = 200
_MOST_SENTENCES = 4


def used_test(comparison: Comparison) -> Test:
    """The test of a comparison, with its options."""
    if comparison.test == RelMulti.name and comparison.select_fraction is not None:
        return RelMulti(comparison.select_fraction)
    return TESTS[comparison.test]()


def own_plan(comparison: Comparison, names: Sequence[str], *, power: float = POWER, trials: int = TRIALS) -> Plan:
    """The plan with these models of the comparison as its pilot, for the test it used."""
    joint = comparison.distinct()
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
        tests=[used_test(comparison)],
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
    undecided = [name for name in undecided if name in comparison.distinct().names]
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
