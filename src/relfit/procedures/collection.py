"""The best set under several kernels at once: one max-t test over all models and all kernels.

*The hypothesis.* D_i^k is model i's discrepancy under kernel k. H_i: "under every kernel i is as good as every other
model", D_i^k ≤ D_j^k for all j and k. A model is declared worse when for some kernel some other model is
significantly better under it.

*The level.* ``T_i = max_{k,j} (D_i^k − D_j^k)/s_ij^k`` is compared with the same maximum of
Z_ij^k = (G_i^k − G_j^k)/s_ij^k, where G ~ N(0, V) and V is the joint covariance over (model, kernel): the ψ rows of all
kernels come from the same rows of data, so their stacked Gram matrix is that covariance. Under H_i every
(D_i^k − D_j^k)/s_ij^k has a mean of at most 0, so T_i is at most its maximum with the means taken out, whose law is the
one drawn: P(p_i ≤ α) → at most α. Moment selection leaves out pairs (j, k) that i is far better than, as in one kernel.
Where no model is best under every kernel, every H_i is false and nothing can be declared wrongly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from relfit.discrepancies.psi import Psi
from relfit.errors import InputError
from relfit.estimate import JointEstimate
from relfit.inputs import make_seed
from relfit.procedures.best_set import DRAWS, BestSetDecision, moment_selection, status_words
from relfit.procedures.bootstrap import Pairs
from relfit.procedures.corrections import adjust
from relfit.procedures.decision import lowest
from relfit.procedures.differences import Differences, differences, psi_rows, smallest_sample
from relfit.procedures.maxt import BOOTSTRAP, GAUSSIAN, SMALL_SAMPLE, STUDENT, Law, law
from relfit.procedures.streams import Source, covariance_root, seeded, streams

Array = NDArray[np.float64]


@dataclass(frozen=True)
class CollectionDecision(BestSetDecision):
    """Verdicts of the best set under several kernels.

    `beaten_under` is the index of the kernel under which each rejected model is worst against `beaten_by`, None for
    the others. `best` is the smallest mean over the kernels; `contradicted` says that it, too, is worse than another
    model under some kernel (it is never declared worse).
    """

    beaten_under: tuple[int | None, ...] = ()
    contradicted: bool = False


def collection_best_set(
    joints: Sequence[JointEstimate], alpha: float, correction: str = "none", *, rng: Source, draws: int = DRAWS
) -> tuple[JointEstimate, CollectionDecision]:
    """Test every H_i; the mean of the estimates over the kernels, and the verdicts.

    Args:
        joints: one estimate for each kernel, of the same models from the same rows, with their ψ rows.
        alpha: the level.
        correction: as in `best_set`.
        rng: as in `best_set`.
        draws: Monte-Carlo draws.
    """
    _check(joints)
    source = seeded(make_seed(rng), "collection") if isinstance(rng, np.random.Generator) else rng
    pairs = [differences(joint) for joint in joints]
    families = _laws(joints, pairs, source, draws)
    n = smallest_sample(joints[0])
    offsets = [moment_selection(each, n) for each in pairs]
    ratios = np.stack([each.ratio for each in pairs])
    statistic = ratios.max(axis=(0, 2))
    log_p = np.max([_log_pvalues(laws, offsets, statistic) for laws in families], axis=0)
    certain = np.stack([each.certain for each in pairs])
    log_p[certain.any(axis=(0, 2))] = -math.inf
    used = "by" if correction == "auto" else correction
    adjusted = adjust(np.exp(log_p), used)
    mean = mean_estimate(joints)
    best, tied = lowest(mean)
    worse = adjusted <= alpha
    contradicted, worse[best] = bool(worse[best]), False
    under, by = _worst(ratios, certain)
    return mean, CollectionDecision(
        best=best,
        log_pvalue=log_p,
        adjusted_pvalue=adjusted,
        worse=worse,
        status=status_words(_joined(pairs), best, tied),
        correction=used,
        statistic=statistic,
        beaten_by=_where(by, worse),
        confidence_set=tuple(np.flatnonzero(~worse).tolist()),
        method=families[0][0].method,
        beaten_under=_where(under, worse),
        contradicted=contradicted,
    )


def mean_estimate(joints: Sequence[JointEstimate]) -> JointEstimate:
    """The mean over the kernels: the estimate under the mean kernel, as MMD² and KSD² are linear in the kernel."""
    parts = [joint.psi for joint in joints if joint.psi is not None]
    first = parts[0]
    own = [part.reference for part in parts if part.reference is not None]
    reference = np.mean(own, axis=0) if own else None
    models = tuple(np.mean([part.models[i] for part in parts], axis=0) for i in range(len(first.models)))
    psi = Psi(reference, models, first.shared)
    values = np.mean([joint.values for joint in joints], axis=0)
    whole = {"values": values, "covariance": psi.covariance(), "psi": psi}
    shares = [joint.near_degeneracy for joint in joints if joint.near_degeneracy is not None]
    largest = np.max(shares, axis=0) if len(shares) == len(joints) else None
    return replace(joints[0], **whole, near_degeneracy=largest, second_order=None)


def _joined(pairs: Sequence[Differences]) -> Differences:
    """Certain under any kernel, the same under all of them."""
    certain, same = np.any([each.certain for each in pairs], axis=0), np.all([each.same for each in pairs], axis=0)
    return replace(pairs[0], certain=certain, same=same)


def joint_covariance(parts: Sequence[Psi]) -> Array:
    """(K·l, K·l) covariance of all estimates, kernel by kernel, from the ψ rows they share."""
    size = len(parts) * parts[0].covariance().shape[0]
    reference = [part.reference for part in parts if part.reference is not None]
    total = _gram(np.hstack(reference)) if reference else np.zeros((size, size))
    models = len(parts[0].models)
    if models and parts[0].shared:
        return total + _gram(np.hstack([np.stack(part.models, axis=1) for part in parts]))
    for i in range(models):
        place = np.arange(i, size, models)
        total[np.ix_(place, place)] += _gram(np.stack([part.models[i] for part in parts], axis=1))
    return total


def _laws(joints: Sequence[JointEstimate], pairs: Sequence[Differences], source: Source, draws: int) -> list[list[Law]]:
    """The law of each kernel's differences; their draws belong together, one by one. With few rows two such families.

    Each law makes its random numbers anew from the same streams: in the bootstrap the same resamples, otherwise the
    same G, of which it takes its own kernel's part.
    """
    rows = psi_rows(joints[0])
    few = rows is not None and rows < SMALL_SAMPLE
    root = covariance_root(joint_covariance([joint.psi for joint in joints if joint.psi is not None]))
    method, freedom = (STUDENT, rows - 1) if rows is not None and few else (GAUSSIAN, None)
    parts = [_part(root, len(joints), k, each.error, source, joints[0].names, freedom) for k, each in enumerate(pairs)]
    drawn = [Law(method, draws, rows, each.error, part) for each, part in zip(pairs, parts, strict=True)]
    if not few:
        return [drawn]
    return [
        [law(joint, each.error, BOOTSTRAP, source, draws) for joint, each in zip(joints, pairs, strict=True)],
        drawn,
    ]


def _part(
    root: Array, kernels: int, k: int, error: Array, source: Source, names: Sequence[str], freedom: int | None
) -> Callable[[int], Pairs]:
    own = streams(source, names)
    scale = np.divide(1.0, error, out=np.zeros_like(error), where=error > 0.0)
    mine = root[k * len(names) : (k + 1) * len(names)]

    def chunk(draws: int) -> Pairs:
        normal = np.stack([rng.standard_normal((kernels, draws)) for rng in own.models], axis=1)
        g = mine @ normal.reshape(len(root), draws)
        if freedom is not None:
            g /= np.sqrt(own.reference.chisquare(freedom, draws) / freedom)
        return lambda i, others: np.asarray((g[i] - g[others]) * scale[i, others, None])

    return chunk


def _log_pvalues(laws: Sequence[Law], offsets: Sequence[Array], statistic: Array) -> Array:
    members = sum((each > -math.inf).sum(axis=1) for each in offsets)
    statistic = np.where(members > 0, statistic, 0.0)
    top = np.maximum.reduce([law_.maxima(each) for law_, each in zip(laws, offsets, strict=True)])
    reached = (top >= statistic[:, None]).sum(axis=1)
    log_p = np.log((1.0 + reached) / (1.0 + laws[0].draws))
    unions = [law_.log_union(each, statistic) for law_, each in zip(laws, offsets, strict=True)]
    union = np.logaddexp.reduce(unions, axis=0)
    if laws[0].method != BOOTSTRAP:
        log_p = np.where(members == 1, union, np.minimum(log_p, union))
    else:
        log_p = np.where(reached == 0, np.minimum(log_p, union), log_p)
    return np.where(members > 0, np.minimum(log_p, 0.0), 0.0)


def _worst(ratios: Array, certain: NDArray[np.bool_]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """For every model the kernel and the other model with the largest ratio; a difference without variance first."""
    order = np.where(certain, math.inf, ratios).transpose(1, 0, 2)
    flat = order.reshape(len(order), -1).argmax(axis=1)
    return np.divmod(flat, order.shape[2])


def _where(found: NDArray[np.intp], worse: NDArray[np.bool_]) -> tuple[int | None, ...]:
    return tuple(int(k) if bad else None for k, bad in zip(found, worse, strict=True))


def _check(joints: Sequence[JointEstimate]) -> None:
    for joint in joints:
        own = None if joint.psi is None else joint.psi.covariance()
        scale = np.sqrt(np.diag(joint.covariance))
        if own is None or (np.abs(own - joint.covariance) > 1e-6 * np.outer(scale, scale)).any():
            raise InputError(
                "kernel: several kernels in one test need the covariance of the ψ rows; use "
                'estimator="complete" or "linear", variance="projection"'
            )


def _gram(psi: Array) -> Array:
    n = len(psi)
    return np.asarray(psi.T @ psi / (n * (n - 1)))
