"""The public functions: load → resolve → split if the test asks for it → estimate → decide →
result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack

import numpy as np

from relfit.checks import (
    Compared,
    Estimated,
    Findings,
    ScoredItems,
    run_checks,
    together,
)
from relfit.checks.robustness import pair_findings, with_scores_kept
from relfit.compute.reduce import PATCH_ROWS
from relfit.data.arrays import as_rows
from relfit.data.load import Data, check_pair_names
from relfit.data.models import at_level, naming
from relfit.data.presets import PRESETS, as_preset
from relfit.data.scored import MAX_MISSING, Scores
from relfit.data.scores import ScoreOptions, scores, with_score_options
from relfit.estimators import estimate_notes, joint_estimate, size_notes
from relfit.estimators.base import Complete, LogLikelihood
from relfit.estimators.designs import Linear
from relfit.estimators.groups import split, split_rows
from relfit.estimators.kernel import MOST_HELD, choose_kernel
from relfit.estimators.locations import choose_locations, without_used_rows
from relfit.estimators.losses import from_losses
from relfit.kernels.base import Kernel
from relfit.kernels.composite import Collection
from relfit.results.comparison import Comparison, PairComparison, comparison
from relfit.results.plan import Plan as SizePlan
from relfit.results.verdicts import Provenance, recorded
from relfit.settings import NO_TEST, Options, Settings, shows_options
from relfit.settings.resolve import Plan, progress_of, resolved
from relfit.stats.decision import CORRECTIONS, Decision, check_scale
from relfit.stats.joint import JointEstimate, Psi, binary_step, smallest_sample
from relfit.stats.pairs import PAIR_TESTS, fixed_relpsi, impossible_pair
from relfit.stats.planning import FEWEST_TRIALS, Assumed, Planning, as_pilot, check_power
from relfit.stats.tests import TESTS, as_test
from relfit.stats.tests.base import Test
from relfit.stats.tests.relmulti import RelMulti
from relfit.stats.tests.relpsi import RelPSI
from relfit.util.checks import as_choice, check_alpha, check_choice, check_number, check_whole
from relfit.util.errors import InputError
from relfit.util.random import Seed, make_seed, stream
from relfit.util.text import listed


@shows_options()
def compare(  # noqa: D417
    reference: Any, models: Any, *more: Any, **options: Unpack[Options]
) -> Comparison:
    """Decide which models are worse than the best one, for these data.

    Args:
        reference: the data, an array (n, d), a file, a folder of Parquet files or batches of
            rows; or a `Density` that samples are compared with.
        models: mapping of name to model, or a sequence (files are named after themselves,
            others m1, m2, …). A model is an array (m, d), a file, batches of rows (a
            generator of arrays or frames, a DataLoader; with `Compute(memory=...)` no more
            than a batch is held), a `Density`, a `Sampler` or an object of another library
            that an adapter knows; all samples (MMD) or all densities (KSD).
        OPTIONS

    Returns:
        Comparison: verdicts with p-values; ``print`` it.

    >>> rng = np.random.default_rng(1)
    >>> data = rng.normal(size=(200, 2))
    >>> shifts = {"exact": 0.0, "slightly off": 0.1, "far off": 1.5}
    >>> result = compare(
    ...     data, {k: rng.normal(s, 1, (200, 2)) for k, s in shifts.items()}, rng=0
    ... )
    >>> [row["name"] for row in result.rows() if row["worse"]]
    ['far off']
    """
    if more:
        raise TypeError(
            f"compare: expected the reference and all models together, got {2 + len(more)} "
            f"positional arguments; write "
            'relfit.compare(reference, {"a": a, "b": b})'
        )
    return compare_with_data(reference, models, **options)[0]


def compare_with_data(
    reference: Any, models: Any, **options: Unpack[Options]
) -> tuple[Comparison, Data | None]:
    """What `compare` returns, and the data that it loaded."""
    several = options.get("discrepancy")
    if isinstance(several, list | tuple):
        return _by_each(reference, models, several, options)
    settings = Settings.of("compare", options)
    test = settings.test
    selection = None
    selecting = None
    with resolved(reference, models, settings, "comparing") as plan:
        given = plan.data
        if test.split is not None:
            selecting, plan = _split(plan, test.split)
            selecting = with_scores_kept(selecting)
            selection = joint_estimate(selecting.data, selecting.estimate)
            check_scale(selection, settings.margin)
        else:
            plan = _ready(plan)
        kept = plan
        if isinstance(plan.estimate.kernel, Collection):
            joint, decision = _under_all(plan, plan.estimate.kernel, settings)
        else:
            kept = with_scores_kept(plan)
            joint = test.prepared(joint_estimate(kept.data, kept.estimate))
            check_scale(joint, settings.margin)
            decision = test.decide(joint, settings.criteria, selection)
        compared = Compared(
            plan,
            joint,
            given,
            decision,
            test,
            settings.criteria,
            selection,
            selecting,
            kept,
            settings.discrepancy_name,
        )
        found = run_checks(compared)
    notes = (*plan.notes, *estimate_notes(joint, plan.estimate), *decision.notes, *found.notes)
    joint = replace(joint, measure=plan.measure, doubts=(*joint.doubts, *found.doubts))
    data = plan.data
    result = comparison(
        joint,
        decision,
        test,
        settings.criteria,
        names=data.names,
        copies=data.copies,
        impossible=data.impossible,
        method=_method(plan, settings),
        provenance=_provenance(plan, settings),
        warnings=notes,
        **found.fields,
    )
    return result, plan.loaded


def _under_all(
    plan: Plan, collection: Collection, settings: Settings
) -> tuple[JointEstimate, Decision]:
    """The mean of the estimates with each kernel, and the verdicts from all of them."""
    kernels = collection.kernels
    joints = [
        joint_estimate(plan.data, replace(plan.estimate, kernel=kernel)) for kernel in kernels
    ]
    known = [each.yardstick for each in joints if each.yardstick is not None]
    joint, decision = settings.test.decide_under_all(
        joints,
        [kernel.describe() for kernel in kernels],
        settings.criteria,
    )
    return replace(joint, yardstick=float(np.mean(known)) if known else None), decision


def _by_each(
    reference: Any, models: Any, several: Sequence[Any], options: Options
) -> tuple[Comparison, Data | None]:
    """The comparison by the first discrepancy, with those by the others in `also`; each is
    tested by itself.
    """
    if not several:
        raise InputError("discrepancy: expected at least one, got an empty list")
    if options.get("margin"):
        raise InputError(
            "margin: is in the units of one discrepancy, got several; compare by "
            "each of them alone"
        )
    results: list[Comparison] = []
    data = None
    seed = make_seed(options.get("rng"))
    for each in several:
        chosen: Any = {**options, "discrepancy": each, "rng": seed}
        if each == "loglik" or isinstance(each, LogLikelihood):
            chosen |= {"kernel": None, "estimator": "complete"}
        result, loaded = compare_with_data(reference, models, **chosen)
        if result.measure in [other.measure for other in results]:
            raise InputError(
                f"discrepancy: expected different ones, got {result.measure!r} "
                f"twice; leave one out"
            )
        results.append(result)
        data = data or loaded
    return replace(results[0], also=tuple(results[1:])), data


def _split(plan: Plan, fraction: float) -> tuple[Plan, Plan]:
    """The plan for a fraction of the rows, which selects the best model and the kernel, and
    the plan for the rest.
    """
    data = plan.data
    if plan.at_locations is not None:
        data, locations = without_used_rows(
            data, choose_locations(data, plan.at_locations, plan.estimate)
        )
        plan = plan.estimated_with(locations=locations)
    first, second = (
        replace(plan, data=rows, estimate=estimate)
        for rows, estimate in split_rows(data, plan.estimate, fraction)
    )
    plan.kind.check_rows(first.data, first.estimate, selection=True, part="selecting rows, ")
    plan.kind.check_rows(second.data, second.estimate, part="testing rows, ")
    if plan.select is not None:
        kernel, note = _chosen_kernel(first, "that also selected the best model")
        first = first.estimated_with(kernel=kernel)
        second = replace(second.estimated_with(kernel=kernel), notes=(note, *plan.notes))
    return first, second


def _ready(plan: Plan) -> Plan:
    """The plan for the rows that are left once the kernel and the locations have been
    chosen, if they are to be.
    """
    data = plan.data
    estimate = plan.estimate
    if plan.select is not None:
        held, data = split(
            data,
            plan.select.fraction,
            estimate.dependence,
            estimate.seed,
            "kernel",
            most=MOST_HELD,
        )
        plan.kind.check_rows(
            held, replace(estimate, estimator=Complete()), part="rows held out for the kernel, "
        )
        plan.kind.check_rows(data, estimate, part="rows left for the test, ")
        kernel, note = _chosen_kernel(
            replace(plan, data=held), "that were held out from the test"
        )
        plan = replace(plan.estimated_with(kernel=kernel), data=data, notes=(note, *plan.notes))
    if plan.at_locations is not None:
        plan = plan.estimated_with(
            locations=choose_locations(data, plan.at_locations, plan.estimate)
        )
    plan.kind.check_rows(data, plan.estimate)
    return plan


def _chosen_kernel(plan: Plan, which: str) -> tuple[Kernel, str]:
    """The candidate that tells the models apart best on these rows, and a note about it."""
    data = plan.data
    estimator = plan.estimate.estimator
    complete = estimator if isinstance(estimator, Complete) else Complete()
    estimate = replace(plan.estimate, estimator=complete, locations=None)
    # A target density has no rows.
    sizes = sorted(
        {len(rows) for rows in (data.reference, *data.samples.values()) if len(rows)}
    )
    count = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    rows = f"{count} rows{' of each sample' if data.samples else ''} {which}"
    return choose_kernel(data, estimate, plan.candidates, joint_estimate, rows)


def _method(plan: Plan, settings: Settings) -> dict[str, Any]:
    """How models are compared, as every result records it."""
    estimate = plan.estimate
    return {
        "kernel": None if plan.data.without_kernel else estimate.kernel,
        "bandwidth_rule": plan.bandwidth_rule or None,
        "estimator": estimate.estimator.name,
        "dependence": estimate.dependence,
        **estimate.estimator.record(),
        "locations": None if estimate.locations is None else estimate.locations.points,
        "preset": settings.preset,
    }


def _provenance(plan: Plan, settings: Settings) -> Provenance:
    """What a result was made from."""
    data = plan.data
    runtime = plan.estimate.runtime
    digests = {name: data.digests.get(name) for name in data.names}
    return Provenance(
        seed=settings.seed,
        backend=runtime.backend.name,
        inputs={"reference": data.digests.get(None), "models": digests},
        plan={"memory": runtime.memory, "patch_rows": runtime.patch_rows or PATCH_ROWS},
        encoding=data.encoding,
        # A preset defines the units of its features.
        unscaled=None if settings.preset else data.unscaled,
        shared_rows=data.shared_rows,
    )


@shows_options(without=NO_TEST)
def estimate(reference: Any, models: Any, **options: Unpack[Options]) -> JointEstimate:
    """The discrepancies of the models and their joint covariance, without a test. One model
    is enough.

    Arguments as in `compare`.
    """
    settings = Settings.of("estimate", options, without=NO_TEST)
    with resolved(reference, models, settings, "estimating", fewest_models=1) as plan:
        for name, count in plan.data.impossible.items():
            raise InputError(
                f"model {name!r}: has density 0 at {count} of {len(plan.data.reference)} "
                f"rows, so that its mean -log p "
                "is infinite and no estimate can hold it; leave it out"
            )
        joint = _estimated(_ready(plan))
        # What the values are, where that is not what one would expect.
        instead = (plan.data.instead,) if plan.data.instead else ()
        notes = (*joint.notes, *instead)
        leading = (*joint.leading, *instead)
        return replace(joint, measure=plan.measure, notes=notes, leading=leading)


def _estimated(plan: Plan) -> JointEstimate:
    """The estimate of every name given: a copy gets what its original has."""
    return _of_names(joint_estimate(plan.data, plan.estimate), plan)


def _of_names(joint: JointEstimate, plan: Plan) -> JointEstimate:
    originals = plan.originals
    return joint.at([joint.names.index(name) for name in originals.values()], tuple(originals))


def decide(
    joint_estimate: JointEstimate,
    *,
    selection: JointEstimate | None = None,
    test: str | Test = "auto",
    alpha: float = 0.05,
    correction: str | None = None,
    rng: Seed = None,
    margin: float = 0.0,
) -> Comparison:
    """Decide from any joint estimate: names, values (smaller is better) and their covariance.

    `test` is "best-set" (also "auto"), "relpsi", "carve" or, with the estimates of other rows
    as the `selection`, "relmulti", which selects the best model by these. The best set and
    carving draw random numbers from `rng`. With a `margin` δ the question is which models are
    worse by more than δ, and which are equivalent within δ. It is on the scale of the scores:
    of an estimate in a `unit`, values and the result's margin are divided by that unit.

    >>> joint = JointEstimate(("a", "b"), [0.1, 0.9], [[0.01, 0.0], [0.0, 0.01]])
    >>> decide(joint).worse.tolist()
    [False, True]
    """
    for argument, given in (("joint_estimate", joint_estimate), ("selection", selection)):
        if not isinstance(given, JointEstimate) and (
            given is not None or argument != "selection"
        ):
            raise InputError(
                f"{argument}: expected a JointEstimate, got {type(given).__name__}"
            )
    if len(joint_estimate.names) < 2:
        raise InputError("joint_estimate: expected at least 2 models, got 1")
    options: dict[str, Any] = {"test": test, "correction": correction, "rng": rng}
    settings = Settings(alpha=alpha, margin=margin, **options)
    test = settings.test
    if test.split is not None:
        test = _with_selection(test, joint_estimate, selection)
    elif selection is not None:
        raise InputError(
            f'selection: test="{test.name}" selects and tests by the same rows; leave it out, '
            f'or use test="relmulti"'
        )
    joint = test.prepared(joint_estimate)
    if settings.margin:
        settings = replace(settings, margin=settings.margin / joint.unit)
    check_scale(joint, settings.margin)
    decision = test.decide(joint, settings.criteria, selection)
    notes = (*joint.notes, *size_notes(joint), *decision.notes)
    # A test without random numbers needs no seed to be repeated.
    seed = None if rng is None and not test.draws else settings.seed
    provenance = Provenance(seed=seed)
    return comparison(
        joint, decision, test, settings.criteria, warnings=notes, provenance=provenance
    )


def _with_selection(
    test: Test, testing: JointEstimate, selection: JointEstimate | None
) -> Test:
    """A test that splits the rows, with the fraction that selected where it is known."""
    if selection is None:
        raise InputError(
            f'test="{test.name}": expected selection=, the estimates of the rows that select '
            f"the best model; use compare() to split rows, or another test"
        )
    if selection.names != testing.names:
        raise InputError(
            f"selection: expected the models {listed(testing.names)}, got "
            f"{listed(selection.names)}"
        )
    rows = [smallest_sample(joint) for joint in (selection, testing)]
    if None in rows or not isinstance(test, RelMulti):
        return test
    selecting, tested = (float(count or 0) for count in rows)
    return replace(test, select_fraction=selecting / (selecting + tested))


@with_score_options
def compare_losses(
    losses: Any,
    *,
    names: Sequence[str] | None = None,
    dependence: str = "independent",
    lags: int | None = None,
    max_missing: float = MAX_MISSING,
    test: str | Test = "best-set",
    correction: str | None = None,
    alpha: float = 0.05,
    margin: float = 0.0,
    rng: Seed = None,
    **options: Unpack[ScoreOptions],
) -> Comparison:
    """Decide which models are worse than the best one, from their scores on the same items.

    `losses` is what `relfit.scores` returned or reads, with its options: an array (items ×
    models), a mapping, a data frame or a file, wide or long, or what `relfit.read_evals`
    returned. `higher_is_better` is needed unless the name of the column `score` or an
    evaluation log tells the direction ("accuracy", "val_loss"). A gate raises an error if a
    model lacks more than the fraction `max_missing` of the items. `relfit.from_losses`
    describes `dependence` and `lags`. The rest is as in `decide`.

    >>> rows = {
    ...     "item": [*range(30)] * 2,
    ...     "model": ["old"] * 30 + ["new"] * 30,
    ...     "right": [0, 1] * 15 + [1] * 30,
    ... }
    >>> result = compare_losses(
    ...     rows, item="item", model="model", score="right", higher_is_better=True, rng=0
    ... )
    >>> [(row["name"], row["discrepancy"], row["verdict"]) for row in result.rows()]
    [('new', 1.0, 'best observed'), ('old', 0.5, 'significantly worse')]
    """
    test = as_test(test)
    read = scores(losses, names=names, **options).common(max_missing)
    read.larger_is_better()
    joint = from_losses(read, dependence=dependence, lags=lags)
    found = run_checks(ScoredItems(read))
    joint = replace(
        joint, notes=(*joint.notes, *found.notes), doubts=(*joint.doubts, *found.doubts)
    )
    result = decide(
        joint, test=test, alpha=alpha, correction=correction, margin=margin, rng=rng
    )
    return result.changed(inputs={"reference": read.digest(), "models": {}})


@shows_options(without=("correction",))
def compare_pair(
    reference: Any,
    a: Any,
    b: Any,
    *,
    names: Sequence[str] = ("a", "b"),
    **options: Unpack[Options],
) -> PairComparison:
    """Test the fixed hypothesis "a is no worse than b": RelMMD for samples, RelKSD for
    densities.

    By default the test is that of the best set with two models. ``test="z"`` is the
    published z test, and ``test="relpsi"`` conditions on which of the two looks better, as
    the paper's first experiment does. With a `margin` δ the hypothesis is D_a ≤ D_b + δ.
    Other arguments as in `compare`.
    """
    test = options.pop("test", "auto")
    if getattr(test, "scale", None) == "root":
        raise InputError(
            'test: compare_pair has the published scale of relpsi only; use test="relpsi"'
        )
    # A test, or its class, has the name.
    decided, name = PAIR_TESTS[as_choice("test", getattr(test, "name", test), PAIR_TESTS)]
    names = check_pair_names(names)
    settings = Settings.of(
        "compare_pair", options, without=("test", "correction"), also=("names", "test")
    )
    with resolved(reference, {names[0]: a, names[1]: b}, settings, "comparing") as plan:
        given = plan.data
        plan = _ready(plan)
        impossible = plan.data.impossible
        kept = with_scores_kept(plan)
        joint = joint_estimate(plan.data, plan.estimate) if impossible else _estimated(kept)
        prepared = TESTS["relpsi" if decided is fixed_relpsi else "best-set"]().prepared

        def is_worse(near: JointEstimate) -> bool:
            every = prepared(_of_names(near, plan))
            return bool(
                decided(every, settings.alpha, settings.margin, settings.seed).log_pvalue
                <= math.log(settings.alpha)
            )

        found = Findings()
        if not impossible:
            found = run_checks(Estimated(plan, joint, given))
            if not settings.margin:
                found = together([found, pair_findings(kept, is_worse(joint), is_worse)])
    joint = prepared(joint)
    check_scale(joint, settings.margin)
    if impossible:
        decision = impossible_pair(names[0] in impossible, settings.margin)
        values = [math.inf if each in impossible else float(joint.values[0]) for each in names]
    else:
        decision = decided(joint, settings.alpha, settings.margin, settings.seed)
        values = joint.values.tolist()
    joint = replace(joint, measure=plan.measure, doubts=(*joint.doubts, *found.doubts))
    test = name.format(measure=plan.measure)
    return PairComparison(
        names=(names[0], names[1]),
        decision=decision,
        discrepancy=(values[0], values[1]),
        provenance=_provenance(plan, settings),
        warnings=(*plan.notes, *estimate_notes(joint, plan.estimate), *found.notes),
        **recorded(joint, settings.criteria, _method(plan, settings), test=test),
        **found.fields,
    )


def plan(
    pilot: JointEstimate | Comparison | Scores | Assumed,
    *,
    power: float = 0.8,
    alpha: float = 0.05,
    tests: Sequence[str | Test] | str | Test = "best-set",
    n: int | None = None,
    correction: str | None = None,
    trials: int = 1000,
    rng: Seed = None,
    progress: Any = None,
) -> SizePlan:
    """How many rows each test needs to find each model worse than the best, with the
    requested power.

    The pilot's D is taken for the truth and estimates are N(D, V n₀/n) with n rows, n₀ being
    the rows of the pilot's smallest sample (all samples grow in proportion). Two models have
    closed forms then; more are simulated with common random numbers. For complete estimates
    of MMD and KSD the part of V that shrinks like 1/n² is known too: any number of models is
    then simulated as squared lengths (`relfit.stats.population`). The tests themselves decide
    up to 300 of the trials; fast versions of them decide all, and are corrected by the
    difference.

    A pilot's gaps are uncertain: every number of rows comes with its range, from the gap
    moved by one standard error up and down (16% and 84% points), the other models staying
    where they are. A gap of less than one standard error promises nothing, and the range
    says "more than". The smallest of several noisy D is too small on average, so gaps to it
    are too large where several models are nearly tied: lean towards the upper end.

    Args:
        pilot: a JointEstimate with its sizes, from `relfit.estimate` or
            `relfit.from_losses`; a `Comparison`, whose distinct models' estimates it is;
            `Scores`, of which it is the means; or `relfit.Assumed` gaps.
        power: the probability, to be reached, that a model is declared worse.
        alpha: the level of the tests.
        tests: names of tests, or values such as `RelMulti(select_fraction=0.5)`; the default
            test unless given.
        n: the rows for the reverse question, the power and the detectable gap with n rows; the
            pilot's if not given.
        correction: of the p-values, as in `relfit.compare`.
        trials: simulated trials per number of rows.
        rng: seed or Generator.
        progress: as in `relfit.compare`.

    >>> made = plan(Assumed(0.01, standard_error=0.01, n=500))
    >>> made.needed("m1", "best-set")  # 500 · 2 · (1.9600 + 0.8416)²
    7849
    """
    planning = _planning(pilot, power, alpha, tests, n, correction, trials)
    seed = make_seed(rng)
    sizes = planning.sizes()
    with progress_of(progress, "planning") as update:
        outcomes = planning.forecasts(sizes, seed, update)
    curves = np.stack([curve for _, curve in outcomes])
    # Curves are shown up to the size where every one is nearly 1.
    settled = (curves > 0.995).all(axis=(0, 1))
    shown = int(np.argmax(settled)) + 1 if settled.any() else curves.shape[2]
    forecasts = tuple(cells[c] for c in range(len(planning.models)) for cells, _ in outcomes)
    joint = planning.pilot.joint
    closed = planning.in_closed_form
    names = joint.names
    more = [f"differences are in units of {joint.unit:.3g}"] if joint.unit != 1.0 else []
    more += joint.leading
    return SizePlan(
        names=names,
        best=names[planning.pilot.best],
        target_power=planning.power,
        alpha=planning.alpha,
        tests=tuple(test.name for test in planning.tests),
        select_fraction=next(
            (test.split for test in planning.tests if test.split is not None), 0.25
        ),
        corrections=planning.corrections,
        n=planning.n,
        pilot_n=planning.pilot.rows,
        measured=planning.pilot.measured,
        fewest=planning.fewest,
        most=planning.pilot.most,
        forecasts=forecasts,
        sizes=np.array(sizes[:shown]),
        curves=curves[:, :, :shown],
        method="closed forms" if closed else "simulation",
        trials=0 if closed else planning.trials,
        seed=None if closed else seed,
        notes=(*planning.notes(forecasts), *more),
        binary=joint.binary and math.isclose(binary_step(joint), 1.0),
        **{key: getattr(joint, key) for key in ("measure", "higher_is_better", "yardstick")},
    )


def _planning(
    pilot: Any, power: Any, alpha: Any, tests: Any, n: Any, correction: str | None, trials: Any
) -> Planning:
    """What is to be planned, checked."""
    linear = isinstance(pilot, Comparison) and pilot.estimator == Linear.name
    if isinstance(pilot, Comparison):
        if pilot.margin:
            raise InputError(
                f"pilot: expected a comparison without a margin, got a margin of "
                f"{pilot.margin:g}"
            )
        pilot = pilot.pilot()
    elif isinstance(pilot, Scores):
        pilot.larger_is_better()
        pilot = from_losses(pilot)
    if isinstance(pilot, JointEstimate):
        _refuse_components(pilot)
    start = as_pilot(pilot, linear=linear)
    alpha = check_alpha(alpha)
    several = np.iterable(tests) and not isinstance(tests, str)
    listed = tuple(tests) if several else (tests,)
    if not listed:
        raise InputError(f"tests: expected some of {', '.join(TESTS)}, got none")
    chosen = tuple(dict.fromkeys(as_test(test, "tests") for test in listed))
    names = [test.name for test in chosen]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise InputError(
            f"tests: expected each test once, got {twice[0]} twice; make a plan for each of them"
        )
    if correction is not None:
        check_choice("correction", correction, CORRECTIONS)
    corrections = tuple(_planned_correction(test, correction) for test in chosen)
    design = Linear if start.linear else Complete
    fewest = tuple(
        _fewest_rows(test, design.fewest_rows, design.fewest_selection_rows) for test in chosen
    )
    rows = (
        max(start.rows, *fewest)
        if n is None
        else check_whole("n", n, max(fewest), "what these tests need")
    )
    check_whole("trials", trials, FEWEST_TRIALS, "fewer give no usable power")
    power = check_power(power, alpha)
    return Planning(start, power, alpha, chosen, corrections, fewest, rows, int(trials))


def _planned_correction(test: Test, correction: str | None) -> str:
    """The correction that is planned for; step-down of the best set only."""
    name = test.default_correction if correction is None else correction
    if name == "stepdown" and not test.steps_down:
        return "holm"
    return test.auto_correction if name == "auto" else name


def _refuse_components(joint: JointEstimate) -> None:
    """Refuse an estimate whose variance does not shrink with more items alone."""
    if joint.components:
        others = [name for name in joint.components if name != "items"]
        raise InputError(
            f"pilot: expected scores without {others[0]}, whose part of the variance does not "
            f"shrink with more items; compare_losses has a note on how many more "
            f"{others[0]} or items separate two models"
        )


def _fewest_rows(test: Test, tested: int, selected: int) -> int:
    """The fewest rows with which a test runs; one that splits the rows needs enough in both
    parts.
    """
    if test.split is None:
        return tested
    return max(
        math.ceil(tested / (1.0 - test.split) - 1e-9), math.ceil(selected / test.split - 1e-9)
    )


def published(preset: str, reference: Any, models: Any) -> JointEstimate:
    """The numbers that papers print, for comparison with them: "kid" or "cmmd" of features
    (n, d).

    "kid" is the unbiased estimate itself, over all rows at once (one subset of all rows, for
    those who average over subsets). "cmmd" is 1000 times the V-statistic, the biased
    estimate that keeps the pairs of a row with itself: ``1000 (mean_{c,c'} k(x_c,x_c') +
    mean_{a,b} k(r_a,r_b) − 2 mean_{c,a} k(x_c,r_a))``. The covariance is that of the
    unbiased estimate, times 1000² for CMMD: the bias is nearly constant, so it is right for
    both. Test with `compare(preset=...)`, on the unbiased values, which alone compare
    samples of unequal sizes.

    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.normal(size=(2, 50, 8))
    >>> joint = published("cmmd", x, {"model": y})
    >>> joint.names, joint.values.round(2), joint.standard_error.round(2)
    (('model',), array([0.13]), array([0.15]))
    """
    name = as_preset(preset)
    return PRESETS[name].published(estimate(reference, models, preset=name, rng=0))


def as_published(test: str) -> dict[str, Any]:
    """Options for `compare` that make "relpsi" or "relmulti" the algorithm of the paper.

    RelPSI is Algorithm 1; RelMulti is Algorithm 2 with half of the rows for selection and the
    correction of Benjamini and Yekutieli. Both take the covariance by first-order theory.
    Samples of unequal sizes are allowed, unlike in the paper. For samples, ``dependence=
    "paired"`` leaves out the n terms k(x_a, r_a) that the paper's U-statistic of equal sizes
    leaves out.

    >>> as_published("relmulti")["test"]
    RelMulti(select_fraction=0.5)
    """
    published = {
        "relpsi": {"test": RelPSI(), "correction": "none"},
        "relmulti": {"test": RelMulti(select_fraction=0.5), "correction": "by"},
    }
    name = check_choice("test", test, published)
    return {**published[name], "estimator": Complete(variance="projection")}


@dataclass(frozen=True, repr=False)
class NoisedComparison:
    """Score networks compared at several noise levels.

    Attributes:
        overall: the verdicts on the average over the levels, each weighted by its σ².
        levels: the noise levels σ.
        by_level: the comparison at each level alone, at the same alpha: several tests, to be
            read as a picture.
    """

    overall: Comparison
    levels: tuple[float, ...]
    by_level: tuple[Comparison, ...]

    def __repr__(self) -> str:
        return f"{self.overall}\n{self._averaged()}"

    def _repr_html_(self) -> str:
        return f"{self.overall._repr_html_()}<p>{self._averaged()}</p>"

    def _averaged(self) -> str:
        return (
            f"(average over the noise levels "
            f"{', '.join(f'{level:g}' for level in self.levels)})"
        )


def compare_noised(
    reference: Any,
    networks: Mapping[str, Any],
    levels: Sequence[float],
    *,
    test: str | Test = "auto",
    kernel: Kernel | None = None,
    alpha: float = 0.05,
    correction: str | None = None,
    rng: Seed = None,
) -> NoisedComparison:
    """Which score networks s(x, σ) fit the data worse than the best one, over several noise
    levels?

    At level σ the data become x + σε with seeded standard normal ε, and each network's KSD
    to them is estimated. The levels are averaged with weights ∝ σ², as score matching weighs
    them: scores shrink like 1/σ. A row gives one contribution to every level, so the average
    keeps the rows' dependence.

    Args:
        reference: the data (n, d), without noise.
        networks: name → s(x, σ), the score of the data with noise of standard deviation σ
            added (see `relfit.data.models.at_level` for how it is called).
        levels: noise levels σ > 0, in the data's unit.
        test: one that `decide` takes.
        kernel: as in `compare`.
        alpha: the level of the test.
        correction: as in `compare`.
        rng: seed or Generator of the noise.

    >>> x = np.random.default_rng(0).normal(size=(200, 1))
    >>> networks = {
    ...     m: lambda x, sigma, m=m: (float(m) - x) / (1 + sigma**2) for m in ("0", "2")
    ... }
    >>> compare_noised(x, networks, [0.1, 1.0], rng=0).overall.worse.tolist()
    [False, True]
    """
    rows = as_rows("reference", reference)
    sigmas = _noise_levels(levels)
    if not isinstance(networks, Mapping) or len(networks) < 2:
        raise InputError(
            "networks: expected a mapping of at least two names to functions s(x, σ)"
        )
    seed = make_seed(rng)
    joints = []
    for k, sigma in enumerate(sigmas):
        noised = rows + sigma * stream(seed, "noise", str(k)).standard_normal(rows.shape)
        densities = {}
        for name, network in networks.items():
            with naming(f"network {name!r}"):
                densities[name] = at_level(network, sigma)
        # The average has the covariance of the rows' contributions, and so has each level.
        plain = Complete(variance="projection")
        joints.append(estimate(noised, densities, kernel=kernel, estimator=plain, rng=seed))

    def decided(joint: JointEstimate) -> Comparison:
        result = decide(joint, test=test, alpha=alpha, correction=correction, rng=seed)
        return result.changed(estimator="complete", dependence="independent")

    return NoisedComparison(
        decided(_average(joints, sigmas)), sigmas, tuple(decided(joint) for joint in joints)
    )


def _average(joints: Sequence[JointEstimate], sigmas: Sequence[float]) -> JointEstimate:
    """Σ_σ w_σ D_σ with its covariance from Σ_σ w_σ ψ_σ, w_σ = σ²/Σσ²."""
    weights = np.square(sigmas) / np.square(sigmas).sum()
    rows = [
        joint.psi.reference
        for joint in joints
        if joint.psi is not None and joint.psi.reference is not None
    ]
    if len(rows) < len(joints):
        raise InputError(
            "networks: expected different networks, got two with equal scores; leave one out"
        )
    psi = Psi(np.asarray(sum(w * row for w, row in zip(weights, rows, strict=True))))
    values = sum(w * joint.values for w, joint in zip(weights, joints, strict=True))
    return JointEstimate(
        joints[0].names,
        np.asarray(values),
        psi.covariance(),
        joints[0].sizes,
        psi,
        measure="ksd",
    )


def _noise_levels(levels: Any) -> tuple[float, ...]:
    sigmas = list(levels) if np.iterable(levels) else [levels]
    expected = "noise levels above 0"
    if not sigmas:
        raise InputError(f"levels: expected {expected}, got none")
    return tuple(check_number("levels", each, 0.0, math.inf, expected) for each in sigmas)
