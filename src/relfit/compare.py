"""The only place where the pipeline is put together: input → estimate → decision → result."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

import numpy as np

from relfit.assemble import comparison_of, versions, with_copies
from relfit.diagnostics import decision_warnings, joint_warnings, size_warnings
from relfit.discrepancies import KSD, MMD
from relfit.errors import InputError
from relfit.estimate import JointEstimate
from relfit.inputs import Seed, check_alpha, check_choice, check_fraction, check_pair_names, make_seed
from relfit.kernels import Kernel
from relfit.measure import check_rows, joint_estimate, split
from relfit.procedures import (
    CORRECTIONS,
    Decision,
    PairDecision,
    best_set,
    carve,
    fixed_relpsi,
    relative_z,
    relmulti,
    relpsi,
    seeded,
)
from relfit.progress import reporting
from relfit.result import Comparison, PairComparison
from relfit.task import Options, Task, prepare

TESTS = ("auto", "relpsi", "relmulti", "best-set", "carve")


def compare(
    reference: Any,
    models: Any,
    *,
    test: str = "auto",
    discrepancy: str | MMD | KSD = "auto",
    estimator: str = "complete",
    kernel: Kernel | None = None,
    alpha: float = 0.05,
    select_fraction: float = 0.25,
    correction: str | None = None,
    dependence: str = "independent",
    rng: Seed = None,
    backend: str = "auto",
    executor: Executor | None = None,
    progress: Any = None,
    shuffle: bool = True,
    preset: str | None = None,
) -> Comparison:
    """Decide which models are significantly worse than the best one, for these data.

    Args:
        reference: the data, an array (n, d) or a file; or a `Density` that samples are compared with.
        models: mapping of name to model, or a sequence (named m1, m2, …). A model is an array (m, d), a
            file, a `Density`, a `Sampler` or an object of another library that an adapter knows; all samples
            (MMD) or all densities (KSD).
        test: "relpsi" (controls the false positive rate given the selected model), "relmulti" (data
            splitting, controls the false discovery rate), "best-set" (which models could be the best:
            controls the false positive rate unconditionally, far more powerful with many models) or "carve"
            (relpsi with noise in the selection: randomised, seeded); "auto" is relpsi.
        discrepancy: "mmd", "ksd", `MMD(kernel)`, `KSD(kernel)` or "auto".
        estimator: "complete" (all pairs) or "linear" (n/2 pairs, O(n), needs equal sizes).
        kernel: None is Gaussian with the median bandwidth. In a relative test the kernel also decides which
            model counts as best.
        alpha: the level.
        select_fraction: the share of rows relmulti selects with.
        correction: "by", "bh", "holm", "bonferroni", "none", "auto"; None is BY for relmulti, none for relpsi.
        dependence: "independent" samples, "shared" (models from common random numbers or prompts) or
            "paired" (with the reference rows too); "chain" for Markov chains against a density.
        rng: seed or Generator for the split, the pairs and the bandwidth's subsample; recorded in the result.
        backend: "auto" or "numpy".
        executor: a `concurrent.futures.Executor` for the tiles; None uses threads.
        progress: None, True, False or a function of (done, total).
        shuffle: whether the linear estimator pairs rows at random.
        preset: "kid" or "cmmd" for features: prepares the rows and sets the kernel.

    Returns:
        Comparison: verdicts with p-values; ``print`` it.

    >>> rng = np.random.default_rng(1)
    >>> data = rng.normal(size=(200, 2))
    >>> shifts = {"exact": 0.0, "slightly off": 0.1, "far off": 1.5}
    >>> result = compare(data, {k: rng.normal(s, 1, (200, 2)) for k, s in shifts.items()}, rng=0)
    >>> [row["name"] for row in result.rows() if row["worse"]]
    ['far off']
    """
    alpha, fraction = check_alpha(alpha), check_fraction(select_fraction)
    test = check_choice("test", test, TESTS)
    test = "relpsi" if test == "auto" else test
    wanted = _correction(correction, test)
    options = Options(discrepancy, estimator, kernel, dependence, rng, backend, executor, shuffle, preset)
    with reporting(progress, "comparing") as update:
        task = prepare(reference, models, options, update)
        if test == "relmulti":
            joint, decision = _split_and_decide(task, fraction, alpha, wanted)
        else:
            check_rows(task.data, task.plan.estimator)
            joint = joint_estimate(task.data, task.plan)
            decision = _decide(joint, test, alpha, wanted, task.plan.seed)
    return replace(
        comparison_of(joint, decision, alpha, test, task.copies()),
        warnings=(*task.notes, *joint_warnings(joint, task.plan), *decision_warnings(joint, decision)),
        select_fraction=fraction if test == "relmulti" else None,
        **task.settings(),
    )


def estimate(
    reference: Any,
    models: Any,
    *,
    discrepancy: str | MMD | KSD = "auto",
    estimator: str = "complete",
    kernel: Kernel | None = None,
    dependence: str = "independent",
    rng: Seed = None,
    backend: str = "auto",
    executor: Executor | None = None,
    progress: Any = None,
    shuffle: bool = True,
    preset: str | None = None,
) -> JointEstimate:
    """The discrepancies of the models and their joint covariance, without a test. One model is enough.

    Arguments as in `compare`.
    """
    options = Options(discrepancy, estimator, kernel, dependence, rng, backend, executor, shuffle, preset)
    with reporting(progress, "estimating") as update:
        task = prepare(reference, models, options, update, fewest_models=1)
        check_rows(task.data, task.plan.estimator)
        joint = joint_estimate(task.data, task.plan)
    return with_copies(joint, task.copies())


def decide(
    joint_estimate: JointEstimate,
    *,
    test: str = "auto",
    alpha: float = 0.05,
    correction: str | None = None,
    rng: Seed = None,
) -> Comparison:
    """Decide from any joint estimate: names, values (smaller is better) and their covariance.

    `test` is "relpsi" (also "auto"), "best-set" or "carve"; the last two draw random numbers from `rng`.

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
    test = "relpsi" if test == "auto" else test
    alpha = check_alpha(alpha)
    wanted = _correction(correction, test)
    seed = None if rng is None and test == "relpsi" else make_seed(rng)
    decision = _decide(joint_estimate, test, alpha, wanted, seed or 0)
    notes = (*size_warnings(joint_estimate), *decision_warnings(joint_estimate, decision))
    return replace(comparison_of(joint_estimate, decision, alpha, test), warnings=notes, seed=seed)


def compare_pair(
    reference: Any,
    a: Any,
    b: Any,
    *,
    names: Sequence[str] = ("a", "b"),
    test: str = "auto",
    discrepancy: str | MMD | KSD = "auto",
    estimator: str = "complete",
    kernel: Kernel | None = None,
    alpha: float = 0.05,
    dependence: str = "independent",
    rng: Seed = None,
    backend: str = "auto",
    executor: Executor | None = None,
    progress: Any = None,
    shuffle: bool = True,
    preset: str | None = None,
) -> PairComparison:
    """Test the fixed hypothesis "a is no worse than b": RelMMD for samples, RelKSD for densities.

    ``test="relpsi"`` conditions on which of the two looks better, as the paper's first experiment does;
    the default "z" does not and has more power. Other arguments as in `compare`.
    """
    alpha = check_alpha(alpha)
    test = check_choice("test", test, ("auto", "z", "relpsi"))
    check_pair_names(names)
    options = Options(discrepancy, estimator, kernel, dependence, rng, backend, executor, shuffle, preset)
    with reporting(progress, "comparing") as update:
        task = prepare(reference, {names[0]: a, names[1]: b}, options, update)
        check_rows(task.data, task.plan.estimator)
        joint = with_copies(joint_estimate(task.data, task.plan), task.copies())
    decision = (fixed_relpsi if test == "relpsi" else relative_z)(joint, alpha)
    pvalue = float(np.exp(decision.log_pvalue))
    return PairComparison(
        names=(names[0], names[1]),
        statistic=_statistic(decision),
        pvalue=pvalue,
        log_pvalue=decision.log_pvalue,
        worse=pvalue <= alpha,
        difference=decision.difference,
        standard_error=decision.standard_error,
        threshold=decision.threshold,
        discrepancy=(float(joint.values[0]), float(joint.values[1])),
        alpha=alpha,
        test="relpsi" if test == "relpsi" else f"rel{task.data.measure}",
        status=decision.status,
        truncation=decision.truncation,
        warnings=(*task.notes, *joint_warnings(joint, task.plan)),
        sizes=joint.sizes,
        versions=versions(),
        **task.settings(),
    )


def _split_and_decide(task: Task, fraction: float, alpha: float, correction: str) -> tuple[JointEstimate, Decision]:
    plan = task.plan
    if plan.dependence == "chain":
        raise InputError('test="relmulti": splits rows at random, which a chain forbids; use another test')
    selection, testing = split(task.data, fraction, plan.dependence, plan.seed)
    check_rows(selection, plan.estimator, selection=True, share="selection share, ")
    check_rows(testing, plan.estimator, share="testing share, ")
    joint = joint_estimate(testing, plan)
    return joint, relmulti(joint_estimate(selection, plan), joint, alpha, correction)


def _decide(joint: JointEstimate, test: str, alpha: float, correction: str, seed: int) -> Decision:
    if test == "best-set":
        return best_set(joint, alpha, correction, rng=seeded(seed, test))
    if test == "carve":
        return carve(joint, alpha, correction, rng=seeded(seed, test))
    return relpsi(joint, alpha, correction)


def _statistic(decision: PairDecision) -> float:
    if decision.standard_error > 0.0:
        return decision.difference / decision.standard_error
    return math.copysign(math.inf, decision.difference) if "deterministic" in decision.status else 0.0


def _correction(correction: str | None, test: str) -> str:
    if correction is None:
        return "by" if test == "relmulti" else "none"
    return check_choice("correction", correction, CORRECTIONS)
