"""The only place where the pipeline is put together: input → estimate → decision → result."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from relfit.assemble import comparison_of, versions, with_copies
from relfit.choosing import (
    decide_with_all_kernels,
    with_kernel_chosen,
    with_kernel_chosen_on,
    with_locations_chosen,
)
from relfit.diagnostics import correction_notes, decision_warnings, joint_warnings, size_warnings
from relfit.discrepancies import KSD, MMD, AtLocations
from relfit.errors import InputError
from relfit.estimate import JointEstimate
from relfit.inputs import Seed, check_alpha, check_choice, check_fraction, check_margin, check_pair_names, make_seed
from relfit.kernels import Collection, Kernel, Select
from relfit.measure import check_rows, joint_estimate, share_rows
from relfit.procedures import (
    CORRECTIONS,
    Decision,
    PairDecision,
    best_set,
    carve,
    check_scale,
    fixed_relpsi,
    relative_z,
    relmulti,
    relpsi,
    seeded,
)
from relfit.result import Comparison, PairComparison
from relfit.task import Options, Task, prepared

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
