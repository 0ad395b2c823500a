"""How far the answer can be trusted: what was checked, other bandwidths, and how many rows
more it would take.

`checks` says what was checked and with what outcome. `bandwidth_sensitivity` repeats the
same test at several multiples of the bandwidth. `rows_advice` says how many rows would tell
the inconclusive models from the best.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from relfit.api import plan
from relfit.checks.data import fine_structure_note, separated_clusters
from relfit.checks.robustness import (
    Sensitivity,
    bandwidth_note,
    chance_of_another,
    is_often,
    scaled,
    sensitivity,
)
from relfit.compute.reduce import Runtime
from relfit.data.check_score import check_score
from relfit.estimators.base import Complete, EstimateSettings
from relfit.estimators.kernel import fine_structure
from relfit.kernels.base import Kernel
from relfit.report.recall import PanelData, recall
from relfit.results.comparison import Comparison
from relfit.results.plan import Plan
from relfit.results.scale import INCONCLUSIVE
from relfit.results.words import about, kernel_words, measure_of, used_test
from relfit.stats.crossed import SEPARATION
from relfit.stats.joint import NEAR_DEGENERATE
from relfit.stats.planning import Forecast
from relfit.stats.tests.base import Criteria
from relfit.util.errors import InputError, RelfitError
from relfit.util.text import listed, quoted, visible

# Rows at which derivatives of a density are checked.
_SCORE_ROWS = 40
# Advice on the number of rows: the power, the trials of a simulation, and the most models it is
# given for.
POWER = 0.8
TRIALS = 200
_MOST_SENTENCES = 4
# The multiples of the bandwidth that are tried.
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
_WITHOUT_DATA = "Not checked: the report was made without the data."


# The state of a check with its sentences, as in `Check`; nothing where it does not apply.
Found = tuple[str, ...]


@dataclass(frozen=True)
class Check:
    """One check. `state`: "good" (nothing found), "mind" (the reader should know) or "plain"
    (a fact).
    """

    title: str
    state: str
    sentences: tuple[str, ...]


def checks(
    comparison: Comparison, recalled: PanelData | None, others: Sensitivity | None
) -> list[Check]:
    """Every check that applies, in the order of the page."""
    kind = measure_of(comparison).kind
    found: dict[str, Found] = {}
    if comparison.kernel is not None:
        found["Kernel"] = _kernel(comparison)
        found["Another bandwidth"] = _bandwidth(comparison, recalled, others)
        fine = "Structure finer than the bandwidth"
        found[fine] = _fine_structure(comparison.kernel, recalled)
    if comparison.near_degeneracy is not None:
        found["Models very close to the data"] = _second_order(
            comparison, comparison.near_degeneracy.tolist()
        )
    if kind == "samples":
        found["Rows shared with the reference"] = _shared_rows(comparison, recalled)
    if kind == "densities":
        found["Separate clusters in the data"] = _clusters(recalled)
        found["Score check"] = _scores(recalled)
    if comparison.randomised:
        found["Random choice"] = _choice(comparison)
    return [Check(title, each[0], each[1:]) for title, each in found.items() if each]


def _choice(comparison: Comparison) -> Found:
    seed = comparison.seed or 0
    best = comparison.originals()[comparison.best]
    chance = chance_of_another(comparison.distinct(), best, seed)
    return (
        "mind" if is_often(chance) else "plain",
        f"The choice of the best model is randomised: a seed other than {seed} selects another "
        f"one with probability {f'about {chance:.0%}' if chance >= 0.01 else 'below 1%'}.",
    )


def _kernel(comparison: Comparison) -> Found:
    how = {
        "median": "Its bandwidth is the median distance between rows: the usual choice, but "
        "not always a good one.",
        "given": "It was specified in advance, not chosen from these data.",
        "selected": "It was chosen on separate rows for telling these models apart; the test "
        "did not use those rows.",
    }
    rule = comparison.bandwidth_rule or ""
    decides = "It decides which differences count, and so which model is the best."
    chosen = (how[rule],) if rule in how else ()
    return "plain", f"{kernel_words(comparison)}.", *chosen, decides


def _bandwidth(
    comparison: Comparison, recalled: PanelData | None, others: Sensitivity | None
) -> Found:
    changed = changed_verdicts(comparison, others)
    if changed:
        said = f"The verdict on {listed(changed)} changes at half or twice the bandwidth."
        return "mind", said
    if changed is not None:
        return "good", "No verdict changes at half or twice the bandwidth."
    if recalled is None:
        return "plain", _WITHOUT_DATA
    margin = "the margin is in the units of the discrepancy with this bandwidth"
    return "plain", f"Not checked: {why_not(comparison, recalled) or margin}."


def changed_verdicts(comparison: Comparison, others: Sensitivity | None) -> list[str] | None:
    """The models whose verdict depends on the bandwidth, as the result has them; None where
    nobody looked.

    Where the comparison did not look, the report's rows tell.
    """
    if comparison.margin:
        return None
    if comparison.robust_to_bandwidth is not None:
        both = zip(comparison.names, comparison.robust_to_bandwidth, strict=True)
        return [name for name, robust in both if not robust]
    return None if others is None else others.changed()


def with_other_bandwidths(comparison: Comparison, data: Any) -> tuple[Comparison, Any]:
    """The comparison with what the report's rows tell about other bandwidths, where all rows
    would have taken long; and the data for the report, which are then recalled already.
    """
    if (
        comparison.robust_to_bandwidth is not None
        or comparison.margin
        or comparison.kernel is None
    ):
        return comparison, data
    try:
        recalled = recall(comparison, data)
        others = bandwidth_sensitivity(comparison, recalled)
    except RelfitError:
        return comparison, data
    recalled = replace(recalled, others=others)
    if others is None:
        return comparison, recalled
    found = {name: str(others.remark(name)) for name in others.changed()}
    warnings = comparison.warnings
    if found:
        rows = None if recalled.complete else recalled.most_rows
        held_out = comparison.dependence != "chain"
        warnings = (*warnings, bandwidth_note(found, held_out=held_out, rows=rows))
    robust = tuple(name not in found for name in comparison.names)
    return replace(comparison, robust_to_bandwidth=robust, warnings=warnings), recalled


def _fine_structure(kernel: Kernel, recalled: PanelData | None) -> Found:
    if recalled is None:
        return "plain", _WITHOUT_DATA
    if kernel.variable != "r2" or not math.isfinite(kernel.length):
        return ()
    step = fine_structure(recalled.encoded.rows, kernel.length)
    if step is None:
        return "good", "None was found."
    text = fine_structure_note(step, kernel.length)
    return "mind", f"{text[0].upper()}{text[1:]}."


def _second_order(comparison: Comparison, parts: Sequence[float]) -> Found:
    """Which part of the variances dominates, and what follows from it."""
    each = zip(comparison.names, parts, strict=True)
    close = [name for name, part in each if part > NEAR_DEGENERATE]
    if not close:
        return (
            "good",
            f"None: second-order noise makes up at most {100 * max(parts):.0f}% of any "
            "variance, so the normal approximation holds.",
        )
    which = f"{listed(close)} {'are' if len(close) > 1 else 'is'} so close to the data that"
    if comparison.variance == "second-order":
        allowed = f"{which} second-order noise dominates; the law used here allows for it."
        return "good", allowed
    text = (
        f"{which} the usual approximation is conservative: false alarms are rarer than "
        f"stated, but real differences "
        "may be missed."
    )
    remedy = (
        "The best set, and the linear and incomplete estimators with more rows, do not "
        "have this weakness."
    )
    return ("mind", text, remedy) if comparison.locations is None else ("mind", text)


def _shared_rows(comparison: Comparison, recalled: PanelData | None) -> Found:
    if comparison.shared_rows:
        counts = [
            f"{count} rows of {quoted(name)}" for name, count in comparison.shared_rows.items()
        ]
        return (
            "mind",
            f"{', '.join(counts)} also occur in the reference.",
            "A model that has seen these data looks too good; compare on data that no "
            "model was fitted to.",
        )
    if recalled is not None and recalled.data.atoms:
        return "plain", "Rows repeat so often in these data that rows in common say nothing."
    return "good", "None were found."


def _clusters(recalled: PanelData | None) -> Found:
    blind = (
        "KSD compares slopes of the log density. Where the data fall into clusters far apart, "
        "it is nearly blind to "
        "how much weight a model gives each of them."
    )
    if recalled is None:
        return "plain", blind, _WITHOUT_DATA
    apart = separated_clusters(recalled.encoded.rows)
    if apart is None:
        return "good", "No clusters far apart were found in the data.", blind
    small, steps = apart
    seen = (
        f"The data fall into clusters: {100 * small:.0f}% and {100 * (1.0 - small):.0f}% of "
        f"the rows lie {steps:.0f} "
        "times further apart than neighbours do. Compare the weights of the clusters by "
        "other means."
    )
    return "mind", seen, blind


def _scores(recalled: PanelData | None) -> Found:
    if recalled is None:
        return "plain", _WITHOUT_DATA
    data = recalled.data
    densities = data.densities if data.target is None else {"target": data.target}
    state = "good"
    models_with = dict[str, list[str]]()
    for name, density in densities.items():
        try:
            outcome = check_score(density, data.rows, max_rows=_SCORE_ROWS)
        except RelfitError as error:
            message = f"could not be checked ({error})"
        else:
            message = "; ".join(outcome.messages)
            state = state if outcome.ok else "mind"
        models_with.setdefault(message, []).append(name)
    sentences = [
        f"{listed(models) if data.target is None else 'The target'}: {visible(message)}."
        for message, models in models_with.items()
    ]
    return state, *sentences


def bandwidth_sensitivity(
    comparison: Comparison, recalled: PanelData, factors: Sequence[float] = FACTORS
) -> Sensitivity | None:
    """The same test on the recalled rows at several bandwidths; None if it cannot be made
    (`why_not`).
    """
    if why_not(comparison, recalled) is not None:
        return None
    # Every setting is kept but the estimator: those for very many rows would have too few here.
    seed = comparison.seed or 0
    dependence: Any = comparison.dependence or "independent"
    estimator = Complete.of_record(comparison)
    estimate = EstimateSettings(recalled.kernel, estimator, dependence, seed, Runtime())
    criteria = Criteria(comparison.alpha, comparison.correction, comparison.margin, seed)
    return sensitivity(recalled.encoded, estimate, used_test(comparison), criteria, factors)


def why_not(comparison: Comparison, recalled: PanelData) -> str | None:
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
        if (
            selecting < Complete.fewest_selection_rows
            or rows - selecting < Complete.fewest_rows
        ):
            return (
                f"the report uses {rows} rows of each sample, too few to select with some "
                f"and test with others"
            )
    return None


def own_plan(
    comparison: Comparison,
    names: Collection[str],
    *,
    power: float = POWER,
    trials: int = TRIALS,
) -> Plan:
    """The plan with these models of the comparison as its pilot, for the test it used."""
    if comparison.sizes is None:
        raise InputError(
            "sample size: this result does not record how many rows it was made from"
        )
    if comparison.margin:
        raise InputError(
            f"margin: planning does not support a margin, got {comparison.margin:g}; plan "
            f"from a result without one"
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
    """A sentence for each inconclusive model: to tell it from the best you would need about n =
    … rows.

    The gap seen is taken for the true one; the range is what the data leave open about it.
    """
    if comparison.sizes is None:
        return []
    if comparison.margin:
        return ["No sample-size advice: planning does not support a margin."]
    if comparison.components:
        told = [note for note in comparison.warnings if note.startswith(SEPARATION)]
        return [f"{note[0].upper()}{note[1:]}." for note in told] or [
            "No other number of runs, judges or items is needed to separate the two best models."
        ]
    undecided = [
        row["name"]
        for row in comparison.rows()
        if row["verdict"] == INCONCLUSIVE.shown and row["name"] not in comparison.copies
    ]
    if not undecided:
        return ["No verdict is inconclusive: these rows were enough."]
    # The few models asked about are planned for by themselves: those found worse by far have no
    # part in it. If there are many, those with the largest gaps: for the closest no number of
    # rows may be enough.
    forecast = own_plan(comparison, [comparison.best, *undecided[-_MOST_SENTENCES:]])
    sentences = [_sentence(forecast, cell) for cell in forecast.forecasts]
    more = len(undecided) - _MOST_SENTENCES
    if more > 0:
        sentences.append(
            f"{more} more {'models are' if more > 1 else 'model is'} also inconclusive."
        )
    return sentences


def _sentence(forecast: Plan, cell: Forecast) -> str:
    pair = f"{quoted(cell.name)} from {quoted(forecast.best)}"
    most = about(forecast.most)
    if not math.isfinite(cell.n_needed):
        return (
            f"Even {most} rows would not be enough to tell {pair}: the gap is too small "
            f"to detect."
        )
    start = f"To tell {pair} you would need about n = {about(cell.n_needed)} rows"
    if cell.gap < cell.gap_standard_error:
        return (
            f"{start} if the gap is as large as it looks. But it is smaller than its standard "
            f"error, and if there is "
            "none, no number of rows is enough."
        )
    low, high = cell.n_range or (cell.n_needed, cell.n_needed)
    upper = about(high) if math.isfinite(high) else f"more than {most}"
    return f"{start}; the uncertainty about the gap makes that {about(low)} to {upper}."
