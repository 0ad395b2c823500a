"""The only place where the pipeline is put together: input → estimate → decision → result."""

from __future__ import annotations

import math
import platform
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import scipy
from numpy.typing import NDArray

from relfit.backends import NumpyBackend
from relfit.diagnostics import NEAR_DEGENERATE, decision_warnings, joint_warnings, size_warnings
from relfit.discrepancies import KSD, MMD, Dependence
from relfit.errors import BackendUnavailable, InputError
from relfit.estimate import JointEstimate
from relfit.inputs import Data, Seed, check_alpha, check_choice, check_fraction, check_pair_names, load, make_seed
from relfit.kernels import Kernel
from relfit.measure import Plan, check_design, check_rows, joint_estimate, resolve_kernel, split
from relfit.procedures import CORRECTIONS, Decision, PairDecision, fixed_relpsi, relative_z, relmulti, relpsi
from relfit.procedures.decision import difference_variance
from relfit.progress import Progress, reporting
from relfit.result import Comparison, PairComparison
from relfit.tiles import Runtime
from relfit.version import __version__

Array = NDArray[np.float64]

TESTS = ("auto", "relpsi", "relmulti")
ESTIMATORS = ("complete", "linear")
_KINDS = {"samples": "samples", "densities": "densities as models", "target": "a density as the reference"}
DEPENDENCE = ("independent", "shared", "paired", "chain")


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
) -> Comparison:
    """Decide which models are significantly worse than the best one, for these data.

    Args:
        reference: the data, an array (n, d) or a file.
        models: mapping of name to model, or a sequence (named m1, m2, …). A model is an array (m, d), a
            file or a `Density`; all samples (MMD) or all densities (KSD).
        test: "relpsi" (controls the false positive rate given the selected model) or "relmulti" (data
            splitting, controls the false discovery rate); "auto" is relpsi.
        discrepancy: "mmd", "ksd", `MMD(kernel)`, `KSD(kernel)` or "auto".
        estimator: "complete" (all pairs) or "linear" (n/2 pairs, O(n), needs equal sizes).
        kernel: None is Gaussian with the median bandwidth. In a relative test the kernel also decides which
            model counts as best.
        alpha: the level.
        select_fraction: the share of rows relmulti selects with.
        correction: "by", "bh", "holm", "bonferroni", "none", "auto"; None is BY for relmulti, none for relpsi.
        dependence: "independent" samples, "shared" (models from common random numbers or prompts) or
            "paired" (with the reference rows too).
        rng: seed or Generator for the split, the pairs and the bandwidth's subsample; recorded in the result.
        backend: "auto" or "numpy".
        executor: a `concurrent.futures.Executor` for the tiles; None uses threads.
        progress: None, True, False or a function of (done, total).
        shuffle: whether the linear estimator pairs rows at random.

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
    with reporting(progress, "comparing") as update:
        task = _prepare(reference, models, discrepancy, estimator, kernel, dependence, rng, backend)
        plan = task.plan_for(shuffle, executor, update)
        if test == "relmulti":
            if plan.dependence == "chain":
                raise InputError('test="relmulti": splits rows at random, which a chain forbids; use another test')
            selection, testing = split(task.data, fraction, plan.dependence, plan.seed)
            check_rows(selection, plan.estimator, selection=True, share="selection share, ")
            check_rows(testing, plan.estimator, share="testing share, ")
            joint = joint_estimate(testing, plan)
            decision = relmulti(joint_estimate(selection, plan), joint, alpha, wanted)
        else:
            check_rows(task.data, plan.estimator)
            joint = joint_estimate(task.data, plan)
            decision = relpsi(joint, alpha, wanted)
    result = _comparison(joint, decision, alpha, test, task.copies())
    return replace(
        result,
        measure=task.measure,
        warnings=(*task.data.warnings, *joint_warnings(joint, plan), *decision_warnings(joint, decision)),
        kernel=plan.kernel,
        bandwidth_rule=task.bandwidth_rule,
        estimator=plan.estimator,
        dependence=plan.dependence,
        select_fraction=fraction if test == "relmulti" else None,
        seed=plan.seed,
        backend=plan.runtime.backend.name,
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
) -> JointEstimate:
    """The discrepancies of the models and their joint covariance, without a test. One model is enough.

    Arguments as in `compare`.
    """
    with reporting(progress, "estimating") as update:
        task = _prepare(reference, models, discrepancy, estimator, kernel, dependence, rng, backend, fewest_models=1)
        plan = task.plan_for(shuffle, executor, update)
        check_rows(task.data, plan.estimator)
        joint = joint_estimate(task.data, plan)
    return _with_copies(joint, task.copies())


def decide(
    joint_estimate: JointEstimate,
    *,
    test: str = "auto",
    alpha: float = 0.05,
    correction: str | None = None,
    rng: Seed = None,
) -> Comparison:
    """Decide from any joint estimate: names, values (smaller is better) and their covariance.

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
    test = check_choice("test", test, ("auto", "relpsi"))
    alpha = check_alpha(alpha)
    wanted = _correction(correction, "relpsi")
    seed = None if rng is None else make_seed(rng)
    decision = relpsi(joint_estimate, alpha, wanted)
    notes = (*size_warnings(joint_estimate), *decision_warnings(joint_estimate, decision))
    return replace(_comparison(joint_estimate, decision, alpha, "relpsi", {}), warnings=notes, seed=seed)


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
) -> PairComparison:
    """Test the fixed hypothesis "a is no worse than b": RelMMD for samples, RelKSD for densities.

    ``test="relpsi"`` conditions on which of the two looks better, as the paper's first experiment does;
    the default "z" does not and has more power. Other arguments as in `compare`.
    """
    alpha = check_alpha(alpha)
    test = check_choice("test", test, ("auto", "z", "relpsi"))
    check_pair_names(names)
    with reporting(progress, "comparing") as update:
        task = _prepare(reference, {names[0]: a, names[1]: b}, discrepancy, estimator, kernel, dependence, rng, backend)
        plan = task.plan_for(shuffle, executor, update)
        check_rows(task.data, plan.estimator)
        joint = _with_copies(joint_estimate(task.data, plan), task.copies())
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
        test="relpsi" if test == "relpsi" else f"rel{task.measure}",
        measure=task.measure,
        status=decision.status,
        truncation=decision.truncation,
        warnings=(*task.data.warnings, *joint_warnings(joint, plan)),
        kernel=plan.kernel,
        bandwidth_rule=task.bandwidth_rule,
        estimator=plan.estimator,
        dependence=plan.dependence,
        sizes=joint.sizes,
        seed=plan.seed,
        backend=plan.runtime.backend.name,
        versions=_versions(),
    )


def _statistic(decision: PairDecision) -> float:
    if decision.standard_error > 0.0:
        return decision.difference / decision.standard_error
    return math.copysign(math.inf, decision.difference) if "deterministic" in decision.status else 0.0


@dataclass(frozen=True)
class _Task:
    data: Data
    measure: str
    plan: Plan
    bandwidth_rule: str

    def copies(self) -> dict[str, str]:
        """Every name given, in that order, with the distinct model it stands for."""
        return {name: self.data.copies.get(name, name) for name in self.data.names}

    def plan_for(self, shuffle: bool, executor: Executor | None, progress: Progress | None) -> Plan:
        """The plan with what one call adds to it."""
        if executor is not None and not callable(getattr(executor, "submit", None)):
            raise InputError(f"executor: expected a concurrent.futures.Executor or None, got {type(executor).__name__}")
        runtime = replace(self.plan.runtime, executor=executor, progress=progress)
        return replace(self.plan, shuffle=shuffle, runtime=runtime)


def _prepare(
    reference: Any,
    models: Any,
    discrepancy: str | MMD | KSD,
    estimator: str,
    kernel: Kernel | None,
    dependence: str,
    rng: Seed,
    backend: str,
    *,
    fewest_models: int = 2,
) -> _Task:
    estimator = check_choice("estimator", estimator, ESTIMATORS)
    dependence = check_choice("dependence", dependence, DEPENDENCE)
    if isinstance(discrepancy, MMD | KSD):
        if kernel is not None and discrepancy.kernel is not None:
            raise InputError("kernel: expected it once, got it both in kernel= and in discrepancy=")
        kernel = discrepancy.kernel if kernel is None else kernel
        discrepancy = type(discrepancy).__name__.lower()
    check_choice("discrepancy", discrepancy, ("auto", "mmd", "ksd"))
    data = load(reference, models, fewest_models=fewest_models)
    measure = data.measure
    if discrepancy not in ("auto", measure):
        need = "samples on both sides" if discrepancy == "mmd" else "densities (relfit.Density) on one side"
        raise InputError(f"discrepancy={discrepancy!r}: expected {need}, got {_KINDS[data.kind]}")
    check_design(data, estimator, cast(Dependence, dependence))
    seed = make_seed(rng)
    resolved, rule = resolve_kernel(data, kernel, seed)
    plan = Plan(resolved, estimator, cast(Dependence, dependence), seed, Runtime(_backend(backend)))
    return _Task(data, measure, plan, rule)


def _backend(name: str) -> NumpyBackend:
    if isinstance(name, str) and name in ("torch", "triton"):
        raise BackendUnavailable(f'backend: {name!r} is not part of this version; use "auto" or "numpy"')
    check_choice("backend", name, ("auto", "numpy"))
    return NumpyBackend()


def _correction(correction: str | None, test: str) -> str:
    if correction is None:
        return "by" if test == "relmulti" else "none"
    return check_choice("correction", correction, CORRECTIONS)


def _with_copies(joint: JointEstimate, copies: dict[str, str]) -> JointEstimate:
    index = [joint.names.index(original) for original in copies.values()]
    if index == list(range(len(joint.names))):
        return joint
    share = joint.near_degeneracy
    sizes = joint.sizes
    if sizes is not None and len(sizes) > 1:
        sizes = (sizes[0], *(sizes[1 + k] for k in index))
    return JointEstimate(
        tuple(copies),
        joint.values[index],
        joint.covariance[np.ix_(index, index)],
        sizes,
        None,
        None if share is None else share[index],
    )


def _comparison(
    joint: JointEstimate, decision: Decision, alpha: float, test: str, copies: dict[str, str]
) -> Comparison:
    """The decision on the distinct models, spread over every name given."""
    copies = copies or {name: name for name in joint.names}
    whole = _with_copies(joint, copies)
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
        measure="score",
        truncation=None if decision.truncation is None else decision.truncation[index],
        near_degeneracy=whole.near_degeneracy,
        sizes=whole.sizes,
        versions=_versions(),
    )


def _status(name: str, joint: JointEstimate, decision: Decision, copies: dict[str, str]) -> tuple[str, ...]:
    original = copies[name]
    i = joint.names.index(original)
    words = decision.status[i]
    if joint.near_degeneracy is not None and joint.near_degeneracy[i] > NEAR_DEGENERATE:
        words = (*words, "near-degenerate")
    return words if name == original else (f"duplicate of {original}", *words)


def _versions() -> dict[str, str]:
    return {
        "relfit": __version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "python": platform.python_version(),
    }
