"""From loaded data and settings to a joint estimate: one file for each discrepancy, design
or kind of data.
"""

from __future__ import annotations

import math

import numpy as np

from relfit.compute.reduce import one_blas_thread
from relfit.data.load import Data
from relfit.estimators.base import Complete, EstimateSettings, Estimator, Kind, PairDesign
from relfit.estimators.designs import Block, Incomplete, Linear
from relfit.estimators.kernel import column_notes
from relfit.estimators.ksd import Densities, Target
from relfit.estimators.landmarks import Landmarks
from relfit.estimators.locations import at_locations, sizes_left
from relfit.estimators.losses import Likelihood
from relfit.estimators.mmd import Samples
from relfit.stats.close import CloseLaw
from relfit.stats.joint import NEAR_DEGENERATE, ROUNDING, JointEstimate, Psi, in_blocks
from relfit.util.arrays import Array
from relfit.util.text import listed

ESTIMATORS: dict[str, type[Estimator]] = {
    each.name: each for each in (Complete, Linear, Block, Incomplete, Landmarks)
}
KINDS: dict[str, Kind] = {
    "samples": Samples(),
    "densities": Densities(),
    "target": Target(),
    "likelihoods": Likelihood(),
}


def _spread(data: Data) -> Array:
    """(l,) 1/n + 1/m_i for samples, 1/m_i for samples of a target density, and 1 for
    densities (`CloseLaw.spread`).
    """
    if data.kind not in ("samples", "target"):
        return np.ones(len(data.models))
    sizes = np.array([len(data.samples[name]) for name in data.models])
    reference = 1.0 / len(data.reference) if data.kind == "samples" else 0.0
    return np.asarray(reference + 1.0 / sizes)


def joint_estimate(data: Data, settings: EstimateSettings) -> JointEstimate:
    """D and V of every distinct model, in the order of `data.models`."""
    kind = KINDS[data.kind]
    groups = settings.groups
    estimator = settings.estimator
    with one_blas_thread:
        if settings.locations is not None:
            estimates = at_locations(data, settings, settings.locations)
        else:
            estimates = estimator.estimate(kind, data, settings)
        covariance = estimates.projection
        close = None
        quadratic = estimates.quadratic
        if quadratic is not None and estimator.variance == "auto":
            # V holds S2 twice: an S2 far above it is rounding, as of constant rows.
            varies = np.diag(covariance) > 1e-6 * np.diag(quadratic.covariance)
            part = quadratic.covariance * np.outer(varies, varies)
            third = estimates.psi.third()
            first = covariance - 2.0 * part
            close = CloseLaw(
                first,
                part,
                quadratic.trace,
                quadratic.components,
                third,
                _spread(data),
            )
    # V holds the second-order part twice, and it is known off the diagonal too.
    plain = settings.dependence == "independent" and groups is None
    second = estimates.second_order if close is None else close.second
    note = (settings.note,) if settings.note else ()
    group_sizes = None
    if groups is not None:
        counts = {key: len(np.unique(codes)) for key, codes in groups.codes.items()}
        group_sizes = (counts.get(None, 0), *(counts[name] for name in data.samples))
    sizes = (len(data.reference), *(len(x) for x in data.samples.values()))
    columns = () if data.likelihood else column_notes(data, settings.kernel)
    return JointEstimate(
        tuple(data.models),
        estimates.values,
        covariance,
        sizes if settings.locations is None else sizes_left(data, settings.locations),
        estimates.psi,
        estimates.second_order_fraction(),
        (*note, *estimates.notes, *columns),
        group_sizes,
        second if plain and second is not None and second.ndim == 2 else None,
        close=close,
        yardstick=estimates.yardstick,
        measure="loglik" if data.likelihood else "score",
        leading=columns,
        design=f"given {data.covariates} covariate{'s' * (data.covariates > 1)}"
        if data.covariates
        else None,
    )


# A larger cosine of the ψ rows of two samples means that the samples are nearly the same rows.
NEAR_COPY = 0.99
_MOST_PAIRS = 3


def estimate_notes(joint: JointEstimate, settings: EstimateSettings) -> list[str]:
    """Notes for the reader about an estimate made with these settings."""
    notes = [*joint.notes, *size_notes(joint)]
    if not joint.covariance.any() and joint.measure != "loglik":
        notes.append(
            "the kernel takes one value on all pairs of rows, so the models cannot be told "
            "apart; choose a bandwidth "
            "near the median distance"
        )
    # The law with both parts finds differences there, too.
    fractions = (
        ()
        if joint.near_degeneracy is None or joint.close is not None
        else joint.near_degeneracy
    )
    close = [
        name
        for name, fraction in zip(joint.names, fractions, strict=False)
        if fraction > NEAR_DEGENERATE
    ]
    if close:
        fit = "fit" if len(close) > 1 else "fits"
        notes.append(f"{listed(close)} {fit} so well that real differences may be missed")
    checkpoint = settings.runtime.checkpoint
    if checkpoint is not None and checkpoint.damaged:
        notes.append(f"damaged parts of the checkpoint, computed again: {checkpoint.damaged}")
    if settings.dependence == "independent" and not isinstance(settings.estimator, PairDesign):
        notes += _near_copies(joint)
    return notes


# With fewer rows that decide, no law of a difference can be trusted.
FEW_ROWS = 10.0


def effective_sample_size(psi: Psi, best: int) -> Array:
    """(l,) (Σz²)²/Σz⁴ of the rows' contributions z to D_i − D_best: how many rows, all
    alike, would vary as much.
    """
    variance = psi.covariance().diagonal()
    # The fourth powers of very large or small values do not fit into float64.
    unit = math.ldexp(1.0, math.frexp(math.sqrt(float(variance.max())))[1])

    sums = np.zeros((2, len(variance)))
    for columns in psi.together:
        for z in in_blocks(columns):
            gaps = np.square((z - z[best]) / (len(columns[0]) * unit))
            sums += gaps.sum(axis=1), np.einsum("ij,ij->i", gaps, gaps)
    if psi.models and not psi.shared:
        own = [np.square(z / (len(z) * unit)) for z in psi.models]
        each = np.array([[z.sum() for z in own], [z @ z for z in own]])
        sums += each + each[:, [best]]
    squares, fourth = sums
    # Of a difference that never varies only rounding is left.
    varies = squares > ROUNDING**2 * (variance + variance[best]) / unit**2
    return np.asarray(
        np.divide(
            squares**2,
            fourth,
            out=np.full(len(fourth), math.inf),
            where=varies & (fourth > 0.0),
        )
    )


def _deciding_notes(joint: JointEstimate) -> list[str]:
    """A note if a handful of rows decides how a model differs from the best."""
    psi = joint.psi
    best = int(np.argmin(joint.values))
    if psi is None or joint.lags is not None:
        return []
    rows = zip(joint.names, effective_sample_size(psi, best).tolist(), strict=True)
    few = {
        name: count for name, count in rows if count < FEW_ROWS and name != joint.names[best]
    }
    if not few:
        return []
    unit = "group" if joint.groups is not None else "item" if joint.measure == "loss" else "row"
    differ = (
        f"{listed(list(few))} {'differ' if len(few) > 1 else 'differs'} from "
        f"{joint.names[best]}"
    )
    count = f"{min(few.values()):.0f}"
    decide = f"{unit} decides" if count == "1" else f"{unit}s decide"
    return [
        f"only about {count} {decide} how {differ}: p-values can be too small, and only "
        f"more {unit}s help"
    ]


def size_notes(joint: JointEstimate) -> list[str]:
    """Notes if there are too many models for the covariance to be trusted, or too few rows
    that decide.
    """
    return [*_many_notes(joint), *_deciding_notes(joint)]


def _many_notes(joint: JointEstimate) -> list[str]:
    sizes, what = (joint.sizes, "rows") if joint.groups is None else (joint.groups, "groups")
    # A reference without rows is a density: the covariance is then diagonal and needs no rows
    # per model.
    if sizes is None or not sizes[0] or len(joint.names) <= sizes[0] / 5:
        return []
    # With a single size the rows are the items that losses were measured on; there is no
    # reference.
    whose = "reference " if len(sizes) > 1 else ""
    return [
        f"{len(joint.names)} models are many for {sizes[0]} {whose}{what}: their covariance "
        f"is noisy and the "
        f"error rate can exceed alpha; use at least 5 {what} per model"
    ]


def _near_copies(joint: JointEstimate) -> list[str]:
    rows = () if joint.psi is None else joint.psi.models
    pairs = []
    for size in sorted({len(row) for row in rows}):
        same = [i for i, row in enumerate(rows) if len(row) == size]
        gram = sum((part @ part.T for part in in_blocks([rows[i] for i in same])), np.zeros(()))
        norms = np.sqrt(gram.diagonal())
        pairs += [
            (same[a], same[b])
            for a, b in np.argwhere(np.triu(gram > NEAR_COPY * np.outer(norms, norms), 1))
        ]
    notes = [
        f"the samples of {joint.names[a]!r} and {joint.names[b]!r} are nearly the same rows; "
        f"if they come from common "
        'random numbers, use dependence="shared", otherwise one of them hides the difference '
        "to the others"
        for a, b in pairs[:_MOST_PAIRS]
    ]
    if len(pairs) > _MOST_PAIRS:
        notes.append(
            f"{len(pairs) - _MOST_PAIRS} more pairs of samples are nearly the same rows"
        )
    return notes
