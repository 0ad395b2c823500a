"""The only place where the pipeline is put together: input → estimate → decision → result."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy

from relfit.compute.reduce import Job, Runtime, kernel_products
from relfit.data.adapters.functions import at_level
from relfit.data.arrays import as_rows
from relfit.data.load import Data, check_pair_names
from relfit.data.models import Density
from relfit.data.presets import apply_preset
from relfit.estimators import joint_estimate
from relfit.estimators.base import KSD, MMD, Plan
from relfit.estimators.checks import check_rows
from relfit.estimators.groups import share_rows
from relfit.estimators.locations import AtLocations, choose_locations, without_used_rows
from relfit.estimators.split import choose, hold_out
from relfit.kernels.base import Kernel
from relfit.kernels.choice import Collection, Select
from relfit.results.comparison import Comparison
from relfit.results.pair import PairComparison
from relfit.settings import Options, Task, prepared
from relfit.stats.decision import CORRECTIONS, Decision, check_scale, difference_variance, lowest, without_variance
from relfit.stats.joint import NEAR_DEGENERATE, JointEstimate, Psi
from relfit.stats.maxt import seeded
from relfit.stats.tests.best_set import BestSetDecision, CollectionDecision, best_set, collection_best_set
from relfit.stats.tests.carve import CarveDecision, carve
from relfit.stats.tests.pair import PairDecision, fixed_relpsi, relative_z
from relfit.stats.tests.relmulti import relmulti
from relfit.stats.tests.relpsi import relpsi
from relfit.util.arrays import Array
from relfit.util.checks import check_alpha, check_choice, check_fraction, check_margin
from relfit.util.errors import InputError
from relfit.util.random import Seed, make_seed, stream
from relfit.util.version import __version__

TESTS = ("auto", "relpsi", "relmulti", "best-set", "carve")
# docs/choosing.md has the evidence.
DEFAULT_TEST = "best-set"


def compare(
    reference: Any,
    models: Any,
    *,
    test: str = "auto",
    discrepancy: str | MMD | KSD | AtLocations = "auto",
    estimator: str = "complete",
    kernel: Kernel | Select | Sequence[Kernel] | str | None = None,
    alpha: float = 0.05,
    select_fraction: float = 0.25,
    correction: str | None = None,
    dependence: str = "independent",
    rng: Seed = None,
    backend: str = "auto",
    executor: Any = None,
    progress: Any = None,
    shuffle: bool = True,
    preset: str | None = None,
    pairs: int | None = None,
    blocks: int | None = None,
    variance: str = "auto",
    margin: float = 0.0,
    groups: Any = None,
    precision: str = "double",
    checkpoint: str | os.PathLike[str] | None = None,
    memory: int | str | None = None,
) -> Comparison:
    """Decide which models are significantly worse than the best one, for these data.

    Args:
        reference: the data, an array (n, d) or a file; or a `Density` that samples are compared with.
        models: mapping of name to model, or a sequence (files are named after themselves, others m1, m2, …). A model
            is an array (m, d), a file, a `Density`, a `Sampler` or an object of another library that an adapter
            knows; all samples (MMD) or all densities (KSD).
        test: "best-set" (which models could be the best? controls the false positive rate), "relpsi" (controls it
            given the selected model), "carve" (relpsi with noise in the selection: more powerful, randomised) or
            "relmulti" (data splitting, controls the false discovery rate); "auto" is best-set. docs/choosing.md
            compares them.
        discrepancy: "mmd", "ksd", `MMD(kernel)`, `KSD(kernel)` or "auto"; linear in the rows, "ume" and "nystroem"
            (samples) and "fssd" (densities) look at some locations only: `UME(...)`, `Nystroem(...)`, `FSSD(...)`.
        estimator: "complete" (all pairs of rows), "incomplete" (each row with some others: far cheaper, nearly as
            powerful where the noise of single pairs is small beside that of rows), "block" (all pairs within
            blocks), "linear" (n/2 pairs) or "auto" (by the sizes, said in a warning). Of samples, all but
            "complete" need equal sizes.
        kernel: None is Gaussian with the median bandwidth; a kernel, or the name of one ("imq"). "select" or
            `Select(...)` chooses one on rows held out, several kernels (`Collection`) are used all at once (best-set),
            `Precomputed(matrix)` holds its values. In a relative test the kernel also decides which model counts as
            best.
        alpha: the level.
        select_fraction: the share of rows relmulti selects with.
        correction: "by", "bh", "holm", "bonferroni", "none", "auto"; None is BY for relmulti, none otherwise.
        dependence: "independent" samples, "shared" (models from common random numbers or prompts) or
            "paired" (with the reference rows too); "chain" for Markov chains against a density.
        rng: seed or Generator for the split, the pairs and the bandwidth's subsample; recorded in the result.
        backend: "numpy", "torch" (both compute where the data live, tensors on a CUDA device are not copied), "triton"
            (fused kernels on a CUDA device, in single precision) or "auto": by where the data live and how much
            there is to do. The result says which it was.
        executor: a `dask.distributed.Client`, or any `concurrent.futures.Executor`, that computes parts of the complete
            estimate, the same bits whoever does; None uses threads. docs/scale.md has examples.
        progress: None, True, False or a function of (done, total).
        shuffle: whether estimators other than "complete" take the rows in random order.
        preset: "kid" or "cmmd" for features: prepares the rows and sets the kernel.
        pairs: of "incomplete", the number of pairs of rows, rounded to whole pairs per row; None is 25 per row.
        blocks: of "block", the number of blocks; None is √n, no fewer than 40 or 5 for each model.
        variance: of "complete", "projection" (first-order theory, conservative for models close to the data) or
            "corrected" (its second-order part counted once); "auto" is projection.
        margin: a difference δ ≥ 0, in the units of the discrepancy, that does not matter: tests "worse by more than
            δ", and says where a model is shown to be equivalent within δ.
        groups: for rows that come in groups (completions of a prompt, frames of a video), a mapping of model names and
            "reference" to labels, one per row; one array of labels for densities, or where all are "paired".
        precision: of the kernel's values, "double" or "single", which is faster; sums are in double always.
        checkpoint: a file that notes finished parts of the complete estimate: after a crash or an interrupt the same
            call goes on from there. It is refused for other inputs or settings, and safe to delete.
        memory: a budget in bytes, or such as "2GB", for the whole process: files larger than it are then read a part at
            a time, and never held (docs/scale.md). None reads what is given into memory, but for .npy files.

    Returns:
        Comparison: verdicts with p-values; ``print`` it.

    >>> rng = np.random.default_rng(1)
    >>> data = rng.normal(size=(200, 2))
    >>> shifts = {"exact": 0.0, "slightly off": 0.1, "far off": 1.5}
    >>> result = compare(data, {k: rng.normal(s, 1, (200, 2)) for k, s in shifts.items()}, rng=0)
    >>> [row["name"] for row in result.rows() if row["worse"]]
    ['far off']
    """
    alpha, fraction, margin = check_alpha(alpha), check_fraction(select_fraction), check_margin(margin)
    test = check_choice("test", test, TESTS)
    test = DEFAULT_TEST if test == "auto" else test
    wanted = _correction(correction, test)
    options = Options(
        *(discrepancy, estimator, kernel, dependence, rng, backend, executor, shuffle, preset),
        pairs=pairs,
        blocks=blocks,
        variance=variance,
        groups=groups,
        precision=precision,
        checkpoint=checkpoint,
        memory=memory,
    )
    with prepared(reference, models, options, "comparing", progress) as task:
        kernels = task.plan.kernel
        if isinstance(kernels, Collection):
            task = with_locations_chosen(task)
            check_rows(task.data, task.plan)
            task, joint, decision = decide_with_all_kernels(task, kernels, test, alpha, wanted, margin)
        elif test == "relmulti":
            task, joint, decision = _split_and_decide(task, fraction, alpha, wanted, margin)
        else:
            task = with_locations_chosen(with_kernel_chosen(task))
            check_rows(task.data, task.plan)
            joint = joint_estimate(task.data, task.plan)
            decision = _decide(joint, test, alpha, wanted, task.plan.seed, margin)
    return replace(
        comparison_of(joint, decision, alpha, test, task.copies(), margin=margin),
        warnings=(
            *task.notes,
            *joint_warnings(joint, task.plan),
            *decision_warnings(joint, decision, margin),
            *(correction_notes(wanted, decision) if test == "relmulti" else ()),
        ),
        select_fraction=fraction if test == "relmulti" else None,
        shared_rows=task.data.shared_rows,
        **task.settings(),
    )


def estimate(
    reference: Any,
    models: Any,
    *,
    discrepancy: str | MMD | KSD | AtLocations = "auto",
    estimator: str = "complete",
    kernel: Kernel | Select | Sequence[Kernel] | str | None = None,
    dependence: str = "independent",
    rng: Seed = None,
    backend: str = "auto",
    executor: Any = None,
    progress: Any = None,
    shuffle: bool = True,
    preset: str | None = None,
    pairs: int | None = None,
    blocks: int | None = None,
    variance: str = "auto",
    groups: Any = None,
    precision: str = "double",
    checkpoint: str | os.PathLike[str] | None = None,
    memory: int | str | None = None,
) -> JointEstimate:
    """The discrepancies of the models and their joint covariance, without a test. One model is enough.

    Arguments as in `compare`.
    """
    options = Options(
        *(discrepancy, estimator, kernel, dependence, rng, backend, executor, shuffle, preset),
        pairs=pairs,
        blocks=blocks,
        variance=variance,
        groups=groups,
        precision=precision,
        checkpoint=checkpoint,
        memory=memory,
    )
    with prepared(reference, models, options, "estimating", progress, fewest_models=1) as task:
        task = with_locations_chosen(with_kernel_chosen(task))
        check_rows(task.data, task.plan)
        joint = joint_estimate(task.data, task.plan)
    return with_copies(joint, task.copies())


def decide(
    joint_estimate: JointEstimate,
    *,
    test: str = "auto",
    alpha: float = 0.05,
    correction: str | None = None,
    rng: Seed = None,
    margin: float = 0.0,
) -> Comparison:
    """Decide from any joint estimate: names, values (smaller is better) and their covariance.

    `test` is "best-set" (also "auto"), "relpsi" or "carve"; the first and last draw random numbers from `rng`. With a
    `margin` δ the question is which models are worse by more than δ, and which are equivalent within δ.

    >>> joint = JointEstimate(("a", "b"), [0.1, 0.9], [[0.01, 0.0], [0.0, 0.01]])
    >>> decide(joint).worse.tolist()
    [False, True]
    """
    if not isinstance(joint_estimate, JointEstimate):
        raise InputError(f"joint_estimate: expected a JointEstimate, got {type(joint_estimate).__name__}")
    if len(joint_estimate.names) < 2:
        raise InputError("joint_estimate: expected at least 2 models, got 1")
    if test == "relmulti":
        raise InputError('test="relmulti": needs the data to split; use compare(), or another test here')
    test = check_choice("test", test, [name for name in TESTS if name != "relmulti"])
    test = DEFAULT_TEST if test == "auto" else test
    alpha, margin = check_alpha(alpha), check_margin(margin)
    wanted = _correction(correction, test)
    seed = None if rng is None and test == "relpsi" else make_seed(rng)
    decision = _decide(joint_estimate, test, alpha, wanted, seed or 0, margin)
    notes = (*size_warnings(joint_estimate), *decision_warnings(joint_estimate, decision, margin))
    whole = comparison_of(joint_estimate, decision, alpha, test, margin=margin)
    return replace(whole, warnings=notes, seed=seed)


def compare_pair(
    reference: Any,
    a: Any,
    b: Any,
    *,
    names: Sequence[str] = ("a", "b"),
    test: str = "auto",
    discrepancy: str | MMD | KSD | AtLocations = "auto",
    estimator: str = "complete",
    kernel: Kernel | Select | Sequence[Kernel] | str | None = None,
    alpha: float = 0.05,
    dependence: str = "independent",
    rng: Seed = None,
    backend: str = "auto",
    executor: Any = None,
    progress: Any = None,
    shuffle: bool = True,
    preset: str | None = None,
    pairs: int | None = None,
    blocks: int | None = None,
    variance: str = "auto",
    margin: float = 0.0,
    groups: Any = None,
    precision: str = "double",
    checkpoint: str | os.PathLike[str] | None = None,
    memory: int | str | None = None,
) -> PairComparison:
    """Test the fixed hypothesis "a is no worse than b": RelMMD for samples, RelKSD for densities.

    ``test="relpsi"`` conditions on which of the two looks better, as the paper's first experiment does;
    the default "z" does not and has more power. With a `margin` δ the hypothesis is D_a ≤ D_b + δ. Other
    arguments as in `compare`.
    """
    alpha, margin = check_alpha(alpha), check_margin(margin)
    test = check_choice("test", test, ("auto", "z", "relpsi"))
    check_pair_names(names)
    options = Options(
        *(discrepancy, estimator, kernel, dependence, rng, backend, executor, shuffle, preset),
        pairs=pairs,
        blocks=blocks,
        variance=variance,
        groups=groups,
        precision=precision,
        checkpoint=checkpoint,
        memory=memory,
    )
    with prepared(reference, {names[0]: a, names[1]: b}, options, "comparing", progress) as task:
        task = with_locations_chosen(with_kernel_chosen(task))
        check_rows(task.data, task.plan)
        joint = with_copies(joint_estimate(task.data, task.plan), task.copies())
        check_scale(joint, margin)
    decision = (fixed_relpsi if test == "relpsi" else relative_z)(joint, alpha, margin)
    pvalue = float(np.exp(decision.log_pvalue))
    return PairComparison(
        names=(names[0], names[1]),
        statistic=_statistic(decision, margin),
        pvalue=pvalue,
        log_pvalue=decision.log_pvalue,
        worse=pvalue <= alpha,
        difference=decision.difference,
        standard_error=decision.standard_error,
        threshold=decision.threshold,
        discrepancy=(float(joint.values[0]), float(joint.values[1])),
        alpha=alpha,
        test="relpsi" if test == "relpsi" else f"rel{task.measure}",
        status=decision.status,
        truncation=decision.truncation,
        warnings=(*task.notes, *joint_warnings(joint, task.plan)),
        sizes=joint.sizes,
        groups=joint.groups,
        versions=versions(),
        margin=margin,
        equivalent=decision.equivalent,
        **task.settings(),
    )


def _split_and_decide(
    task: Task, fraction: float, alpha: float, correction: str, margin: float
) -> tuple[Task, JointEstimate, Decision]:
    task = with_locations_chosen(task, leave_out=True)
    plan = task.plan
    if plan.dependence == "chain":
        raise InputError('test="relmulti": splits rows at random, which a chain forbids; use another test')
    (selection, first), (testing, second) = share_rows(task.data, plan, fraction)
    check_rows(selection, first, selection=True, share="selection share, ")
    check_rows(testing, second, share="testing share, ")
    task = with_kernel_chosen_on(task, selection)
    kernel = task.plan.kernel
    joint = joint_estimate(testing, replace(second, kernel=kernel))
    selected = joint_estimate(selection, replace(first, kernel=kernel))
    for part in (selected, joint):
        check_scale(part, margin)
    return task, joint, relmulti(selected, joint, alpha, correction, margin=margin)


def _decide(joint: JointEstimate, test: str, alpha: float, correction: str, seed: int, margin: float) -> Decision:
    check_scale(joint, margin)
    if test == "best-set":
        return best_set(joint, alpha, correction, rng=seeded(seed, test), margin=margin)
    if test == "carve":
        return carve(joint, alpha, correction, rng=seeded(seed, test), margin=margin)
    return relpsi(joint, alpha, correction, margin=margin)


def _statistic(decision: PairDecision, margin: float = 0.0) -> float:
    if decision.standard_error > 0.0:
        return (decision.difference - margin) / decision.standard_error
    return math.copysign(math.inf, decision.difference - margin) if "deterministic" in decision.status else 0.0


def _correction(correction: str | None, test: str) -> str:
    if correction is None:
        return "by" if test == "relmulti" else "none"
    return check_choice("correction", correction, CORRECTIONS)


# --------------------
# Several kernels for one task: one of them chosen on rows of its own, or all of them in one test.

_MOST_BEATEN = 5


def with_kernel_chosen(task: Task) -> Task:
    """The task on the rows that are left once a share of them has chosen the kernel; others are as they were."""
    if task.select is None:
        return task
    held, rest = hold_out(task.data, task.select.share, task.plan)
    return replace(_chosen(task, held, "that were held out from the test"), data=rest)


def with_kernel_chosen_on(task: Task, selection: Data) -> Task:
    """The task with its kernel chosen on the share of the rows that also selects the best model (relmulti)."""
    return task if task.select is None else _chosen(task, selection, "that also selected the best model")


def with_locations_chosen(task: Task, *, leave_out: bool = False) -> Task:
    """The task with the locations of UME or FSSD; `leave_out` removes the rows used up for them from the data now."""
    if task.wanted is None:
        return task
    several = task.select is not None or isinstance(task.plan.kernel, Collection)
    if task.wanted.choose == "optimise" and several:
        raise InputError('choose="optimise": needs one kernel, got several to choose from or to combine; name one')
    data, locations = task.data, choose_locations(task.data, task.wanted, task.plan)
    if leave_out:
        data, locations = without_used_rows(data, locations)
    return replace(task, data=data, plan=replace(task.plan, locations=locations))


def decide_with_all_kernels(
    task: Task, kernels: Collection, test: str, alpha: float, correction: str, margin: float
) -> tuple[Task, JointEstimate, Decision]:
    """The best set under all kernels of a collection at once; notes say under which kernel a model is worse."""
    if test != "best-set" or margin:
        came = f"test={test!r}" if test != "best-set" else f"margin={margin:g}"
        raise InputError(
            f'kernel: several kernels in one test need test="best-set" without a margin, got {came}; '
            'kernel="select" chooses one of them for any test'
        )
    joints = [joint_estimate(task.data, replace(task.plan, kernel=kernel)) for kernel in kernels.kernels]
    source = seeded(task.plan.seed, test)
    joint, decision = collection_best_set(joints, alpha, correction, rng=source)
    return replace(task, notes=(*_collection_notes(kernels, joint, decision), *task.notes)), joint, decision


def _collection_notes(kernels: Collection, joint: JointEstimate, decision: CollectionDecision) -> list[str]:
    count = len(kernels.kernels)
    notes = [
        f"{count} kernels in one test: a model counts as worse where it is worse than another under any of them; the "
        "discrepancies shown are means over the kernels"
    ]
    beaten = [
        f"{name!r} is worse than {joint.names[by]!r} under the {kernels.kernels[under].describe()}"
        for name, by, under in zip(joint.names, decision.beaten_by, decision.beaten_under, strict=True)
        if by is not None and under is not None
    ]
    notes += beaten[:_MOST_BEATEN]
    if len(beaten) > _MOST_BEATEN:
        notes.append(f"{len(beaten) - _MOST_BEATEN} more models are worse under some kernel")
    if decision.contradicted:
        notes.append(
            f"even {joint.names[decision.best]!r}, the best on average, is worse than another model under some kernel: "
            "the kernels disagree about which model is best"
        )
    return notes


def _chosen(task: Task, data: Data, which: str) -> Task:
    choice = choose(data, task.plan, task.candidates, joint_estimate)
    # A target density has no rows.
    sizes = sorted({len(rows) for rows in (data.reference, *data.samples.values()) if len(rows)})
    count = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    note = choice.note(f"{count} rows{' of each sample' if data.samples else ''} {which}")
    return replace(task, plan=replace(task.plan, kernel=choice.kernel), notes=(note, *task.notes), select=None)


# --------------------
# The decision on the distinct models, spread over every name given: copies get their original's row.


def with_copies(joint: JointEstimate, copies: Mapping[str, str]) -> JointEstimate:
    """The estimate of every name given; `copies` maps each to the distinct model it stands for."""
    index = [joint.names.index(original) for original in copies.values()]
    if index == list(range(len(joint.names))):
        return joint
    share, second = joint.near_degeneracy, joint.second_order
    return JointEstimate(
        tuple(copies),
        joint.values[index],
        joint.covariance[np.ix_(index, index)],
        _each(joint.sizes, index),
        None,
        None if share is None else share[index],
        joint.notes,
        _each(joint.groups, index),
        None if second is None else second[np.ix_(index, index)],
        joint.measure,
    )


def _each(counts: tuple[int, ...] | None, index: list[int]) -> tuple[int, ...] | None:
    """Counts of the reference and the distinct models, as those of the reference and every model."""
    return counts if counts is None or len(counts) == 1 else (counts[0], *(counts[1 + k] for k in index))


def comparison_of(
    joint: JointEstimate,
    decision: Decision,
    alpha: float,
    test: str,
    copies: Mapping[str, str] | None = None,
    *,
    margin: float = 0.0,
) -> Comparison:
    """A Comparison without the settings that only the caller knows."""
    copies = copies or {name: name for name in joint.names}
    whole = with_copies(joint, copies)
    index = [joint.names.index(original) for original in copies.values()]
    best = joint.names[decision.best]
    best_index = whole.names.index(best)
    s = [difference_variance(joint.covariance, i, decision.best) ** 0.5 for i in range(len(joint.names))]
    return Comparison(
        names=whole.names,
        best=best,
        best_index=best_index,
        discrepancy=whole.values,
        standard_error=whole.standard_error,
        covariance=whole.covariance,
        difference=whole.values - whole.values[best_index],
        difference_standard_error=np.array(s)[index],
        pvalue=np.exp(decision.log_pvalue)[index],
        log_pvalue=decision.log_pvalue[index],
        adjusted_pvalue=decision.adjusted_pvalue[index],
        worse=decision.worse[index],
        status=tuple(_status(name, joint, decision, copies) for name in whole.names),
        alpha=alpha,
        test=test,
        correction=decision.correction,
        measure=joint.measure,
        truncation=None if decision.truncation is None else decision.truncation[index],
        beaten_by=_beaten_by(joint, decision, index),
        confidence_set=_confidence_set(whole.names, decision, index),
        randomised=isinstance(decision, CarveDecision),
        near_degeneracy=whole.near_degeneracy,
        second_order=whole.second_order,
        sizes=whole.sizes,
        versions=versions(),
        groups=whole.groups,
        margin=margin,
        equivalent=None if decision.equivalent is None else decision.equivalent[index],
        copies={name: original for name, original in copies.items() if name != original},
    )


def _beaten_by(joint: JointEstimate, decision: Decision, index: list[int]) -> tuple[str | None, ...] | None:
    if not isinstance(decision, BestSetDecision):
        return None
    beaters = [None if j is None else joint.names[j] for j in decision.beaten_by]
    return tuple(beaters[i] for i in index)


def _confidence_set(names: tuple[str, ...], decision: Decision, index: list[int]) -> tuple[str, ...] | None:
    if not isinstance(decision, BestSetDecision):
        return None
    return tuple(name for name, i in zip(names, index, strict=True) if i in decision.confidence_set)


def _status(name: str, joint: JointEstimate, decision: Decision, copies: Mapping[str, str]) -> tuple[str, ...]:
    original = copies[name]
    i = joint.names.index(original)
    words = decision.status[i]
    if joint.near_degeneracy is not None and joint.near_degeneracy[i] > NEAR_DEGENERATE:
        words = (*words, "near-degenerate")
    return words if name == original else (f"duplicate of {original}", *words)


def versions() -> dict[str, str]:
    """The versions that decide the last digits."""
    return {
        "relfit": __version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "python": platform.python_version(),
    }


# --------------------
# What a reader should be told about an estimate: too many models, near-degeneracy, near copies.

NEAR_COPY = 0.99
MASKED_ERRORS = 4.0
# The most samples for which RelPSI was seen to keep its level is 10; 50 were too many (docs/calibration/).
CROWD = 20
_MOST_PAIRS = 3


def joint_warnings(joint: JointEstimate, plan: Plan) -> list[str]:
    """Everything worth saying about an estimate made with this plan."""
    notes = [*joint.notes, *size_warnings(joint)]
    if not joint.covariance.any():
        notes.append(
            "the kernel takes one value on all pairs of rows, so no model can be told from another; "
            "choose a bandwidth near the median distance"
        )
    if joint.near_degeneracy is not None:
        close = [name for name, rho in zip(joint.names, joint.near_degeneracy, strict=True) if rho > NEAR_DEGENERATE]
        if close:
            notes.append(
                f"the variance of {_list(close)} is mostly of second order (nearly as close to the reference as its "
                f"noise allows), so the test is conservative there: real differences may be missed{_remedy(plan)}"
            )
    if plan.dependence == "independent" and plan.estimator == "complete":
        notes += _near_copies(joint)
    if plan.estimator == "linear" and joint.sizes is not None and max(joint.sizes[:2]) % 2:
        notes.append("the linear estimator pairs rows: one row was left over and not used")
    return notes


def _remedy(plan: Plan) -> str:
    if plan.locations is not None:
        return ""
    return "; the estimators linear and incomplete have no such weakness but need more rows"


def size_warnings(joint: JointEstimate) -> list[str]:
    """Whether there are too many models for the covariance to be trusted."""
    sizes, what = (joint.sizes, "rows") if joint.groups is None else (joint.groups, "groups")
    # A reference of no rows is a density: the covariance is then diagonal and needs no rows per model.
    if sizes is None or not sizes[0] or len(joint.names) <= sizes[0] / 5:
        return []
    # Rows of the reference alone may be items that losses were taken on, and no reference.
    whose = "reference " if len(sizes) > 1 else ""
    return [
        f"{len(joint.names)} models are many for {sizes[0]} {whose}{what}: their covariance is noisy and the "
        f"error rate can exceed alpha; use at least 5 {what} per model"
    ]


def decision_warnings(joint: JointEstimate, decision: Decision, margin: float = 0.0) -> list[str]:
    """Whether a tie or near tie for the best, and not the data, decides the other models' selective p-values."""
    masked = tie_warnings(joint, decision) or masked_warnings(joint, decision, margin)
    return [*masked, *crowd_warnings(joint, decision)]


def correction_notes(asked: str, decision: Decision) -> list[str]:
    """Which correction "auto" chose for relmulti, and why."""
    why = {
        "bh": "Benjamini–Hochberg, as no two differences to the selected model are negatively correlated",
        "by": "Benjamini–Yekutieli, as some differences to the selected model are negatively correlated",
    }
    chosen = why.get(decision.correction)
    return [f'correction="auto": {chosen}'] if asked == "auto" and chosen else []


def tie_warnings(joint: JointEstimate, decision: Decision) -> list[str]:
    """Whether a tie for the best, and not the data, decides the other models' selective p-values."""
    best, tied = lowest(joint)
    still = without_variance(joint.covariance, best)
    level = [name for i, name in enumerate(joint.names) if tied[i] and (i == best or not still[i])]
    if decision.truncation is None or len(level) < 2 or (tied | still).all():
        return []
    return [
        f"{_list(level)} are level to the last digit: given such a tie relpsi has no power against the others; use "
        'test="best-set", or leave one of them out'
    ]


def masked_warnings(joint: JointEstimate, decision: Decision, margin: float = 0.0) -> list[str]:
    """Models that a plain z test would call worse beyond doubt and RelPSI does not: a near tie for best masks them."""
    if decision.truncation is None:
        return []
    masked = []
    for i, name in enumerate(joint.names):
        s = difference_variance(joint.covariance, i, decision.best) ** 0.5
        gap = float(joint.values[i] - joint.values[decision.best]) - margin
        if not decision.worse[i] and gap > MASKED_ERRORS * s > 0.0:
            masked.append(name)
    if not masked:
        return []
    return [
        f"{_list(masked)} lie more than {MASKED_ERRORS:g} standard errors above {joint.names[decision.best]!r}"
        f"{' and the margin' if margin else ''}, yet relpsi cannot call them worse, because another model is nearly "
        'level with the best; test="best-set" has no such weakness'
    ]


def crowd_warnings(joint: JointEstimate, decision: Decision) -> list[str]:
    """Whether RelPSI has so many samples to select from that its level suffers."""
    samples = joint.psi is not None and len(joint.psi.models) > 0
    if decision.truncation is None or not samples or len(joint.names) <= CROWD:
        return []
    return [
        f"relpsi selects among {len(joint.names)} samples: its error rate can then exceed alpha a little (0.064 for "
        '0.05 with 50 tied models, simulated); test="best-set" keeps it'
    ]


def _near_copies(joint: JointEstimate) -> list[str]:
    rows = () if joint.psi is None else joint.psi.models
    pairs = []
    for size in sorted({len(row) for row in rows}):
        same = [i for i, row in enumerate(rows) if len(row) == size]
        unit = np.array([rows[i] / (np.linalg.norm(rows[i]) or 1.0) for i in same])
        pairs += [(same[a], same[b]) for a, b in np.argwhere(np.triu(unit @ unit.T > NEAR_COPY, 1))]
    notes = [_near_copy(joint.names[a], joint.names[b]) for a, b in pairs[:_MOST_PAIRS]]
    if len(pairs) > _MOST_PAIRS:
        notes.append(f"{len(pairs) - _MOST_PAIRS} more pairs of samples are nearly the same rows")
    return notes


def _near_copy(a: str, b: str) -> str:
    return (
        f"the samples of {a!r} and {b!r} are nearly the same rows; if they come from common random numbers, say "
        'dependence="shared", or one of them hides the difference to the others'
    )


def _list(names: Sequence[str]) -> str:
    shown = [repr(name) for name in names[:5]]
    return ", ".join(shown) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


# --------------------
# KID and CMMD in the form in which they are published, with standard errors.


CMMD_FACTOR = 1000.0


def published(preset: str, reference: Any, models: Any) -> JointEstimate:
    """The numbers that papers print, so that they can be held against them: "kid" or "cmmd" of features (n, d).

    "kid" is the unbiased estimate itself, over all rows at once (one subset of all rows, for those who average over
    subsets). "cmmd" is 1000 times the V-statistic, the biased estimate that keeps the pairs of a row with itself:
    ``1000 (mean_{c,c'} k(x_c,x_c') + mean_{a,b} k(r_a,r_b) − 2 mean_{c,a} k(x_c,r_a))``.
    The covariance is that of the unbiased estimate, times 1000² for CMMD: the bias is nearly constant, so it is right
    for both. Test with `compare(preset=...)`, on the unbiased values, which alone compare samples of unequal sizes.

    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.normal(size=(2, 50, 8))
    >>> joint = published("cmmd", x, {"model": y})
    >>> joint.names, joint.values.round(2), joint.standard_error.round(2)
    (('model',), array([0.13]), array([0.15]))
    """
    rows, prepared, kernel = apply_preset(preset, reference, models)
    joint = estimate(rows, prepared, kernel=kernel, rng=0)
    if preset == "kid":
        return joint
    samples = list(prepared.values()) if isinstance(prepared, dict) else prepared
    own, *others = _excess(kernel, [rows, *samples])
    values = CMMD_FACTOR * (joint.values + own + np.array(others))
    covariance = CMMD_FACTOR**2 * joint.covariance
    return replace(joint, values=values, covariance=covariance, psi=None, second_order=None)


def _excess(kernel: Kernel, samples: Sequence[Array]) -> list[float]:
    """By how much the mean over all pairs exceeds that over pairs of different rows: (mean k(x,x) − mean_{a≠b} k)/n."""
    runtime = Runtime()
    jobs = [Job(kernel, runtime.backend.points(kernel, x), None, {"phi": np.ones(len(x))}) for x in samples]
    sums = [float(product.rows["phi"].sum()) for product in kernel_products(jobs, runtime)]
    return [
        (float(kernel.diagonal(x).mean()) - total / (len(x) * (len(x) - 1))) / len(x)
        for x, total in zip(samples, sums, strict=True)
    ]


# --------------------
# Score networks compared on noised data, at several noise levels and over all of them.


@dataclass(frozen=True)
class NoisedComparison:
    """Score networks compared at several noise levels.

    Attributes:
        overall: the verdicts on the average over the levels, each weighted by its σ².
        levels: the noise levels σ.
        by_level: the comparison at each level alone, at the same alpha; several looks, so read them as a picture.
    """

    overall: Comparison
    levels: tuple[float, ...]
    by_level: tuple[Comparison, ...]

    def __str__(self) -> str:
        return f"{self.overall}\n(average over the noise levels {', '.join(f'{level:g}' for level in self.levels)})"


def compare_noised(
    reference: Any,
    networks: Mapping[str, Any],
    levels: Sequence[float],
    *,
    test: str = "auto",
    kernel: Kernel | None = None,
    alpha: float = 0.05,
    correction: str | None = None,
    rng: Seed = None,
) -> NoisedComparison:
    """Which score networks s(x, σ) fit the data worse than the best one, over several noise levels?

    At level σ the data become x + σε with seeded standard normal ε, and each network's KSD to them is estimated. The
    levels are averaged with weights ∝ σ², as score matching weighs them: scores shrink like 1/σ. A row gives one
    contribution to every level, so the average keeps the rows' dependence.

    Args:
        reference: the data (n, d), without noise.
        networks: name → s(x, σ), the score of the data with noise of standard deviation σ added (see
            `relfit.data.adapters.functions.at_level` for how it is called).
        levels: noise levels σ > 0, in the data's unit.
        test: one that `decide` takes.
        kernel: as in `compare`.
        alpha: the level.
        correction: as in `compare`.
        rng: seed or Generator of the noise.

    >>> x = np.random.default_rng(0).normal(size=(200, 1))
    >>> networks = {m: lambda x, sigma, m=m: (float(m) - x) / (1 + sigma**2) for m in ("0", "2")}
    >>> compare_noised(x, networks, [0.1, 1.0], rng=0).overall.worse.tolist()
    [False, True]
    """
    rows = as_rows("reference", reference)
    sigmas = _levels(levels)
    if not isinstance(networks, Mapping) or len(networks) < 2:
        raise InputError("networks: expected a mapping of at least two names to functions s(x, σ)")
    seed = make_seed(rng)
    joints = []
    for k, sigma in enumerate(sigmas):
        noised = rows + sigma * stream(seed, "noise", str(k)).standard_normal(rows.shape)
        densities = {name: _density(name, network, sigma) for name, network in networks.items()}
        joints.append(estimate(noised, densities, kernel=kernel, rng=seed))

    def decided(joint: JointEstimate) -> Comparison:
        result = decide(joint, test=test, alpha=alpha, correction=correction, rng=seed)
        return replace(result, measure="ksd", estimator="complete", dependence="independent")

    return NoisedComparison(decided(_average(joints, sigmas)), sigmas, tuple(decided(joint) for joint in joints))


def _average(joints: Sequence[JointEstimate], sigmas: Sequence[float]) -> JointEstimate:
    """Σ_σ w_σ D_σ with its covariance from Σ_σ w_σ ψ_σ, w_σ = σ²/Σσ²."""
    weights = np.square(sigmas) / np.square(sigmas).sum()
    rows = [joint.psi.reference for joint in joints if joint.psi is not None and joint.psi.reference is not None]
    if len(rows) < len(joints):
        raise InputError("networks: expected different networks, got two with equal scores; leave one out")
    psi = Psi(np.asarray(sum(w * row for w, row in zip(weights, rows, strict=True))))
    values = sum(w * joint.values for w, joint in zip(weights, joints, strict=True))
    return JointEstimate(joints[0].names, np.asarray(values), psi.covariance(), joints[0].sizes, psi)


def _density(name: str, network: Any, sigma: float) -> Density:
    try:
        return at_level(network, sigma)
    except InputError as error:
        raise InputError(f"network {name!r}: {error}") from None


def _levels(levels: Any) -> tuple[float, ...]:
    try:
        sigmas = np.atleast_1d(np.asarray(levels, dtype=np.float64))
    except (TypeError, ValueError):
        sigmas = np.zeros(1)
    if sigmas.ndim != 1 or not len(sigmas) or not (np.isfinite(sigmas) & (sigmas > 0.0)).all():
        raise InputError(f"levels: expected noise levels above 0, got {levels!r}")
    return tuple(float(sigma) for sigma in sigmas)
