"""How far the answer can be trusted: what was checked, other bandwidths, and how many rows more it would take.

`checks` says what was checked and with what outcome. `bandwidth_sensitivity` repeats the same test at several multiples
of the bandwidth. `rows_advice` says how many rows would tell the undecided models from the best.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree
from scipy.spatial.distance import cdist

from relfit.api import plan
from relfit.checks.bandwidth import Sensitivity, scaled, sensitivity
from relfit.compute.reduce import Runtime
from relfit.data.check_score import check_score
from relfit.estimators.base import EstimateSettings
from relfit.estimators.designs import Complete
from relfit.report.recall import Recalled
from relfit.report.words import about, grouped, kernel_words, measure_of, used_test
from relfit.results.comparison import Comparison
from relfit.results.grade import OPEN
from relfit.results.plan import Plan
from relfit.stats.joint import NEAR_DEGENERATE
from relfit.stats.planning import Forecast
from relfit.stats.tests.base import Criteria
from relfit.util.arrays import Array
from relfit.util.errors import InputError, RelfitError
from relfit.util.text import listed, quoted, visible

# Rows at which derivatives of a density are checked, and among which clusters are looked for.
_SCORE_ROWS, _CLUSTER_ROWS = 40, 400
# A cluster holds at least this fraction of the rows; fewer are outliers.
_SMALLEST_FRACTION = 0.05
# A gap between clusters is at least so many times the usual step between neighbours, this quantile of all steps; only
# so many of the widest gaps are tried.
_WIDE, _USUAL, _TRIED = 4.0, 0.9, 60
# Advice on the number of rows: the power, the trials of a simulation, and the most models it is given for.
POWER, TRIALS, _MOST_SENTENCES = 0.8, 200, 4
# The multiples of the bandwidth that are tried.
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
_WITHOUT_DATA = "Not checked: the report was made without the data."


@dataclass(frozen=True)
class Check:
    """One check. `state`: "good" (nothing found), "mind" (the reader should know) or "plain" (a fact)."""

    title: str
    state: str
    sentences: tuple[str, ...]


def checks(comparison: Comparison, recalled: Recalled | None, others: Sensitivity | None) -> list[Check]:
    """Every check that applies, in the order of the page."""
    each, kind = [], measure_of(comparison).kind
    if comparison.kernel is not None:
        each += [_kernel(comparison), _bandwidth(comparison, recalled, others)]
    if comparison.near_degeneracy is not None:
        parts = dict(zip(comparison.names, comparison.near_degeneracy.tolist(), strict=True))
        each.append(_parts(comparison, parts))
    if kind == "samples":
        each.append(_shared_rows(comparison, recalled))
    if kind == "densities":
        each += [_clusters(recalled), _scores(recalled)]
    if comparison.randomised:
        other = f"a seed other than {comparison.seed} may choose another model"
        each.append(Check("Random choice", "mind", (f"The choice of the best model is randomised: {other}.",)))
    return each


def _kernel(comparison: Comparison) -> Check:
    how = {
        "median": "Its bandwidth is the median distance between rows: the usual choice, but not always a good one.",
        "given": "It was specified in advance, not chosen from these data.",
        "selected": "It was chosen on separate rows for telling these models apart; the test did not use those rows.",
    }.get(comparison.bandwidth_rule or "", "")
    decides = "It decides which differences count, and so which model is the best."
    return Check("Kernel", "plain", tuple(part for part in (f"{kernel_words(comparison)}.", how, decides) if part))


def _bandwidth(comparison: Comparison, recalled: Recalled | None, others: Sensitivity | None) -> Check:
    title = "Another bandwidth"
    changed = changed_verdicts(comparison, others)
    if changed is None:
        why = _WITHOUT_DATA if recalled is None else f"Not checked: {obstacle(comparison, recalled)}."
        return Check(title, "plain", (why,))
    if changed:
        return Check(title, "mind", (f"The verdict on {listed(changed)} changes at half or twice the bandwidth.",))
    return Check(title, "good", ("No verdict changes at half or twice the bandwidth.",))


def changed_verdicts(comparison: Comparison, others: Sensitivity | None) -> list[str] | None:
    """The models whose verdict depends on the bandwidth, as the result has them; None where nobody looked.

    Where the comparison did not look, the report's rows tell.
    """
    if comparison.robust_to_bandwidth is not None:
        both = zip(comparison.names, comparison.robust_to_bandwidth, strict=True)
        return [name for name, robust in both if not robust]
    return None if others is None else others.changed()


def _parts(comparison: Comparison, parts: Mapping[str, float]) -> Check:
    """Which part of the variances dominates, and what follows from it."""
    title, close = "Models very close to the data", [name for name, part in parts.items() if part > NEAR_DEGENERATE]
    if not close:
        most = f"{100 * max(parts.values()):.0f}%"
        text = f"None: second-order noise makes up at most {most} of any variance, so the normal approximation holds."
        return Check(title, "good", (text,))
    which = f"{listed(close)} {'are' if len(close) > 1 else 'is'} so close to the data that"
    if comparison.variance == "second-order":
        return Check(title, "good", (f"{which} second-order noise dominates; the law used here allows for it.",))
    text = (
        f"{which} the usual approximation is conservative: false alarms are rarer than stated, but real differences "
        "may be missed."
    )
    remedy = "The best set, and the linear and incomplete estimators with more rows, do not have this weakness."
    return Check(title, "mind", (text, remedy) if comparison.locations is None else (text,))


def _shared_rows(comparison: Comparison, recalled: Recalled | None) -> Check:
    title = "Rows shared with the reference"
    if comparison.shared_rows:
        counts = [f"{count} rows of {quoted(name)}" for name, count in comparison.shared_rows.items()]
        advice = "A model that has seen these data looks too good; compare on data that no model was fitted to."
        return Check(title, "mind", (f"{', '.join(counts)} also occur in the reference.", advice))
    if recalled is not None and recalled.data.atoms:
        return Check(title, "plain", ("Rows repeat so often in these data that rows in common say nothing.",))
    return Check(title, "good", ("None were found.",))


def _clusters(recalled: Recalled | None) -> Check:
    blind = (
        "KSD compares slopes of the log density. Where the data fall into clusters far apart, it is nearly blind to "
        "how much weight a model gives each of them."
    )
    title = "Separate clusters in the data"
    if recalled is None:
        return Check(title, "mind", (blind,))
    data = recalled.encoded
    apart = separated_clusters(data.reference if data.target is None else next(iter(data.samples.values())))
    if apart is None:
        return Check(title, "good", ("No clusters far apart were found in the data.", blind))
    small, steps = apart
    seen = (
        f"The data fall into clusters: {100 * small:.0f}% and {100 * (1.0 - small):.0f}% of the rows lie {steps:.0f} "
        "times further apart than neighbours do. Compare the weights of the clusters by other means."
    )
    return Check(title, "mind", (seen, blind))


def _scores(recalled: Recalled | None) -> Check:
    title = "Score check"
    if recalled is None:
        return Check(title, "plain", (_WITHOUT_DATA,))
    data, rows, densities = recalled.data, recalled.data.reference, recalled.data.densities
    if data.target is not None:
        rows, densities = next(iter(data.samples.values())), {"target": data.target}
    good, models_with = True, dict[str, list[str]]()
    for name, density in densities.items():
        try:
            outcome = check_score(density, rows, max_rows=_SCORE_ROWS)
            passed, message = outcome.ok, "; ".join(outcome.messages)
        except RelfitError as error:
            passed, message = False, f"could not be checked ({error})"
        good = good and passed
        models_with.setdefault(message, []).append(name)
    whose = {text: listed(models) if data.target is None else "The target" for text, models in models_with.items()}
    return Check(title, "good" if good else "mind", tuple(f"{whose[text]}: {visible(text)}." for text in whose))


def separated_clusters(x: Array) -> tuple[float, float] | None:
    """The widest gap between rows (n, d) with at least 5% of them on either side, if it is wide.

    Returns the fraction of the rows on the smaller side, and the gap in units of the usual step between neighbours.

    Gaps are edges of the minimum spanning tree, which joins every row to the others by the shortest steps; a gap is
    wide from four times the 90% point of all its edges.

    >>> rng = np.random.default_rng(0)
    >>> separated_clusters(rng.normal(size=(300, 2))) is None
    True
    >>> two = np.concatenate([rng.normal(size=(100, 2)), rng.normal(20.0, 1.0, (300, 2))])
    >>> fraction, steps = separated_clusters(two)
    >>> fraction
    0.25
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
            return small, float(tree.data[k]) / step
    return None


def bandwidth_sensitivity(
    comparison: Comparison, recalled: Recalled, factors: Sequence[float] = FACTORS
) -> Sensitivity | None:
    """The same test on the recalled rows at several multiples of the bandwidth; None if there is an `obstacle`."""
    if obstacle(comparison, recalled) is not None:
        return None
    # Every setting is kept but the estimator: those for very many rows would have too few here.
    seed = comparison.seed or 0
    dependence: Any = comparison.dependence or "independent"
    estimator = Complete(recorded_variance(comparison) or "auto")
    estimate = EstimateSettings(recalled.kernel, estimator, dependence, seed, Runtime())
    criteria = Criteria(comparison.alpha, comparison.correction, comparison.margin, seed)
    return sensitivity(recalled.encoded, estimate, used_test(comparison), criteria, factors)


def obstacle(comparison: Comparison, recalled: Recalled) -> str | None:
    """Why other bandwidths cannot be tried; None if they can."""
    if scaled(recalled.kernel, 1.0) is None:
        return f"{recalled.kernel.describe()} has no bandwidth"
    if not measure_of(comparison).pairs:
        return "the locations were chosen for this bandwidth"
    if comparison.groups is not None:
        return "the rows are in groups, and a result does not record which rows belong together"
    if comparison.select_fraction is not None:
        rows = min(len(numbers) for numbers in recalled.rows.values() if len(numbers))
        selecting = round(comparison.select_fraction * rows)
        if selecting < Complete.fewest_selection_rows or rows - selecting < Complete.fewest_rows:
            return f"the report uses {rows} rows of each sample, too few to select with some and test with others"
    return None


def recorded_variance(comparison: Comparison) -> str | None:
    """The option of `Complete` that gives the variance of a comparison; None for the default."""
    return None if comparison.variance == "second-order" else comparison.variance


def own_plan(comparison: Comparison, names: Collection[str], *, power: float = POWER, trials: int = TRIALS) -> Plan:
    """The plan with these models of the comparison as its pilot, for the test it used."""
    if comparison.sizes is None:
        raise InputError("sample size: this result does not record how many rows it was made from")
    if comparison.margin:
        raise InputError(
            f"margin: planning does not support a margin, got {comparison.margin:g}; plan from a result without one"
        )
    return plan(
        replace(comparison.pilot(names), groups=None),
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
    undecided = [name for name in grouped(comparison)[OPEN.name] if name not in comparison.copies]
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
