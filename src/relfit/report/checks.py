"""How far the answer can be trusted: what was checked, with what outcome, and how many rows more it would take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree
from scipy.spatial.distance import cdist

from relfit.api import plan
from relfit.data.check_score import check_score
from relfit.data.models import Density
from relfit.report.recall import Recalled
from relfit.report.sensitivity import Sensitivity, obstacle, used_test
from relfit.report.words import grouped, kernel_words, measure_of
from relfit.results.comparison import Comparison
from relfit.results.plan import Plan
from relfit.stats.joint import NEAR_DEGENERATE, JointEstimate
from relfit.stats.planning import Forecast
from relfit.util.arrays import Array
from relfit.util.errors import InputError, RelfitError
from relfit.util.text import listed, quoted, visible

# Rows at which derivatives of a density are checked.
_SCORE_ROWS = 40
# Rows among which clusters are looked for.
_CLUSTER_ROWS = 400
# A cluster holds at least this fraction of the rows; fewer are outliers.
_SMALLEST_FRACTION = 0.05
# A gap between clusters is at least so many times the usual step between neighbours, this quantile of all steps; only
# so many of the widest gaps are tried.
_WIDE, _USUAL, _TRIED = 4.0, 0.9, 60
# Advice on the number of rows: the power, the trials of a simulation, and the most models it is given for.
POWER, TRIALS, _MOST_SENTENCES = 0.8, 200, 4
_WITHOUT_DATA = "Not checked: the report was made without the data."


@dataclass(frozen=True)
class Check:
    """One check. `state`: "good" (nothing found), "mind" (the reader should know) or "plain" (a fact)."""

    title: str
    state: str
    sentences: tuple[str, ...]


def checks(comparison: Comparison, recalled: Recalled | None, sensitivity: Sensitivity | None) -> list[Check]:
    """Every check that applies, in the order of the page."""
    each = [
        _kernel(comparison),
        _bandwidth(comparison, recalled, sensitivity),
        _degeneracy(comparison),
        _shared_rows(comparison, recalled),
        _clusters(comparison, recalled),
        _scores(comparison, recalled),
        _randomised(comparison),
    ]
    return [check for check in each if check is not None]


def _kernel(comparison: Comparison) -> Check | None:
    described = kernel_words(comparison)
    if described is None:
        return None
    how = {
        "median": "Its bandwidth is the median distance between rows: the usual choice, but not always a good one.",
        "given": "It was specified in advance, not chosen from these data.",
        "selected": "It was chosen on separate rows for telling these models apart; the test did not use those rows.",
    }.get(comparison.bandwidth_rule or "", "")
    decides = "It decides which differences count, and so which model is the best."
    return Check("Kernel", "plain", tuple(part for part in (f"{described}.", how, decides) if part))


def _bandwidth(comparison: Comparison, recalled: Recalled | None, sensitivity: Sensitivity | None) -> Check | None:
    title = "Another bandwidth"
    if comparison.kernel is None:
        return None
    if recalled is None:
        return Check(title, "plain", (_WITHOUT_DATA,))
    if sensitivity is None:
        return Check(title, "plain", (f"Not checked: {obstacle(comparison, recalled)}.",))
    changed = sensitivity.changed()
    if not changed:
        text = "The best model and every verdict are the same at half and at twice the bandwidth."
        return Check(title, "good", (text,))
    return Check(title, "mind", (f"The verdict on {listed(changed)} changes at half or twice the bandwidth.",))


def _degeneracy(comparison: Comparison) -> Check | None:
    parts = comparison.near_degeneracy
    if parts is None:
        return None
    close = [name for name, part in zip(comparison.names, parts, strict=True) if part > NEAR_DEGENERATE]
    title = "Models very close to the data"
    if not close:
        most = f"{100 * float(parts.max()):.0f}%"
        text = f"None: second-order noise makes up at most {most} of any variance, so the normal approximation holds."
        return Check(title, "good", (text,))
    text = (
        f"{listed(close)} {'are' if len(close) > 1 else 'is'} so close to the data that the usual approximation is "
        "conservative: false alarms are rarer than stated, but real differences may be missed."
    )
    return Check(title, "mind", (text,))


def _shared_rows(comparison: Comparison, recalled: Recalled | None) -> Check | None:
    if measure_of(comparison).kind != "samples":
        return None
    title = "Rows shared with the reference"
    if comparison.shared_rows:
        counts = [f"{count} rows of {quoted(name)}" for name, count in comparison.shared_rows.items()]
        advice = "A model that has seen these data looks too good; compare on data that no model was fitted to."
        return Check(title, "mind", (f"{', '.join(counts)} also occur in the reference.", advice))
    if recalled is not None and recalled.data.atoms:
        return Check(title, "plain", ("Rows repeat so often in these data that rows in common say nothing.",))
    return Check(title, "good", ("None were found.",))


def _clusters(comparison: Comparison, recalled: Recalled | None) -> Check | None:
    if measure_of(comparison).kind != "densities":
        return None
    blind = (
        "KSD compares slopes of the log density. Where the data fall into clusters far apart, it is nearly blind to "
        "how much weight a model gives each of them."
    )
    title = "Separate clusters in the data"
    if recalled is None:
        return Check(title, "mind", (blind,))
    data = recalled.data
    apart = separated_clusters(data.reference if data.target is None else next(iter(data.samples.values())))
    if apart is None:
        return Check(title, "good", ("No clusters far apart were found in the data.", blind))
    small, large = (f"{100 * fraction:.0f}%" for fraction in apart.fractions)
    seen = (
        f"The data fall into clusters: {small} and {large} of the rows lie {apart.gap / apart.step:.0f} times further "
        "apart than neighbours do. Compare the weights of the clusters by other means."
    )
    return Check(title, "mind", (seen, blind))


def _scores(comparison: Comparison, recalled: Recalled | None) -> Check | None:
    if measure_of(comparison).kind != "densities":
        return None
    title = "Score check"
    if recalled is None:
        return Check(title, "plain", (_WITHOUT_DATA,))
    data, rows, densities = recalled.data, recalled.data.reference, recalled.data.densities
    if data.target is not None:
        rows, densities = next(iter(data.samples.values())), {"target": data.target}
    good, names = True, dict[str, list[str]]()
    for name, density in densities.items():
        passed, message = _score_message(density, rows)
        good = good and passed
        names.setdefault(message, []).append(name)
    sentences = [
        f"{listed(models) if data.target is None else 'The target'}: {visible(message)}."
        for message, models in names.items()
    ]
    return Check(title, "good" if good else "mind", tuple(sentences))


def _score_message(density: Density, rows: Array) -> tuple[bool, str]:
    try:
        outcome = check_score(density, rows, max_rows=_SCORE_ROWS)
    except RelfitError as error:
        return False, f"could not be checked ({error})"
    return outcome.ok, "; ".join(outcome.messages)


def _randomised(comparison: Comparison) -> Check | None:
    if not comparison.randomised:
        return None
    text = f"The choice of the best model is randomised: a seed other than {comparison.seed} may choose another model."
    return Check("Random choice", "mind", (text,))


@dataclass(frozen=True)
class Separation:
    """Two clusters: their fractions of the rows (the smaller first), the gap between them and the usual step within."""

    fractions: tuple[float, float]
    gap: float
    step: float


def separated_clusters(x: Array) -> Separation | None:
    """The widest gap of the rows (n, d) that has at least 5% of them on either side, if it is wide.

    Gaps are edges of the minimum spanning tree, which joins every row to the others by the shortest steps; a gap is
    wide from four times the 90% point of all its edges.

    >>> rng = np.random.default_rng(0)
    >>> separated_clusters(rng.normal(size=(300, 2))) is None
    True
    >>> two = np.concatenate([rng.normal(size=(100, 2)), rng.normal(20.0, 1.0, (300, 2))])
    >>> separated_clusters(two).fractions
    (0.25, 0.75)
    """
    some = x[:: max(1, -(-len(x) // _CLUSTER_ROWS))]
    # A distance of exactly 0 would be no edge at all.
    tree = minimum_spanning_tree(np.maximum(cdist(some, some), np.finfo(float).tiny)).tocoo()
    step = float(np.quantile(tree.data, _USUAL)) if tree.nnz else 0.0
    if step <= np.finfo(float).tiny:
        # Most rows are repeated: steps between them say nothing.
        return None
    for k in np.argsort(tree.data)[::-1][:_TRIED]:
        if tree.data[k] < _WIDE * step:
            return None
        cut = tree.copy()
        cut.data[k] = 0.0
        cut.eliminate_zeros()
        _, labels = connected_components(cut, directed=False)
        fraction = float(np.mean(labels == labels[0]))
        small = min(fraction, 1.0 - fraction)
        if small >= _SMALLEST_FRACTION:
            return Separation((small, 1.0 - small), float(tree.data[k]), step)
    return None


def own_plan(comparison: Comparison, names: Sequence[str], *, power: float = POWER, trials: int = TRIALS) -> Plan:
    """The plan with these models of the comparison as its pilot, for the test it used."""
    joint = comparison.distinct()
    if joint.sizes is None:
        raise InputError("sample size: this result does not record how many rows it was made from")
    if comparison.margin:
        raise InputError(
            f"margin: planning does not support a margin, got {comparison.margin:g}; plan from a result without one"
        )
    at = [k for k, name in enumerate(joint.names) if name in names]
    square = np.ix_(at, at)
    return plan(
        JointEstimate(
            tuple(joint.names[k] for k in at),
            joint.values[at],
            joint.covariance[square],
            (joint.sizes[0], *(joint.sizes[1 + k] for k in at if len(joint.sizes) > 1)),
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
    if comparison.sizes is None:
        return []
    if comparison.margin:
        return ["No sample-size advice: planning does not support a margin."]
    *_, undecided = grouped(comparison)
    undecided = [name for name in undecided if name not in comparison.copies]
    if not undecided:
        return ["No other model is undecided: these rows were enough."]
    # The few models asked about are planned for by themselves: those found worse by far have no part in it. If there
    # are many, those with the largest gaps: for the closest no number of rows may be enough.
    forecast = own_plan(comparison, [comparison.best, *undecided[-_MOST_SENTENCES:]])
    sentences = [_sentence(forecast, cell) for cell in forecast.forecasts]
    more = len(undecided) - _MOST_SENTENCES
    if more > 0:
        sentences.append(f"{more} more {'models are' if more > 1 else 'model is'} also undecided.")
    return sentences


def about(rows: float) -> str:
    """A number of rows to two digits.

    >>> about(5437.0), about(87.2), about(1_234_567.0)
    ('5,400', '87', '1,200,000')
    """
    digits = max(0, math.floor(math.log10(rows)) - 1)
    return f"{round(rows, -digits):,.0f}"


def _sentence(forecast: Plan, cell: Forecast) -> str:
    pair, most = f"{quoted(cell.name)} from {quoted(forecast.best)}", about(forecast.most)
    if not math.isfinite(cell.n_needed):
        return f"Even {most} rows would not be enough to tell {pair}: the gap is too small to detect."
    start = f"To tell {pair} you would need about n = {about(cell.n_needed)} rows"
    if cell.gap < cell.gap_standard_error:
        return (
            f"{start} if the gap is as large as it looks. But it is smaller than its standard error, and if there is "
            "none, no number of rows is enough."
        )
    low, high = cell.n_range or (cell.n_needed, cell.n_needed)
    upper = about(high) if math.isfinite(high) else f"more than {most}"
    return f"{start}; the uncertainty about the gap makes that {about(low)} to {upper}."
