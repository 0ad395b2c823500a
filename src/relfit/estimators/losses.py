"""Means over items as discrepancies: any loss of models on the same items, log densities of
the reference rows, and expected log predictive densities of Bayesian models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Unpack

import numpy as np

from relfit.data.arrays import as_rows
from relfit.data.densities import log_densities
from relfit.data.load import Data
from relfit.data.scored import Scores
from relfit.data.scores import ScoreOptions, scores, with_score_options
from relfit.estimators.base import (
    Dependence,
    Estimates,
    EstimateSettings,
    Estimator,
    Kind,
    PairSource,
)
from relfit.estimators.means import item_means, row_means
from relfit.stats.dependence import (
    STEPS,
    OrderEffect,
    is_sorted,
    order_effect,
)
from relfit.stats.joint import JointEstimate, Psi
from relfit.util.arrays import Array, Rows
from relfit.util.checks import check_choice, check_whole
from relfit.util.errors import InputError
from relfit.util.libraries import needed
from relfit.util.text import as_name, listed, quoted

DEPENDENCE = ("independent", "series")
FEWEST_OBSERVATIONS = 20
# From here on the estimate of an observation is not reliable (Vehtari, Simpson, Gelman, Yao and
# Gabry 2024).
LARGEST_PARETO_K = 0.7
# Below these the normal law of a difference is a weak approximation (Sivula, Magnusson and
# Vehtari 2020).
SMALL_DIFFERENCE = 4.0
FEW_OBSERVATIONS = 100
# What elpd_i is multiplied by on each of ArviZ's scales.
_SCALES = {"log": 1.0, "negative_log": -1.0, "deviance": -0.5}
# The cubes of scores below this, and of their errors, do not fit into float64.
SMALLEST_SCORES = 1e-75


@with_score_options
def from_losses(
    losses: Any,
    names: Sequence[str] | None = None,
    *,
    dependence: str = "independent",
    lags: int | None = None,
    **options: Unpack[ScoreOptions],
) -> JointEstimate:
    """The mean loss of each model (smaller is better) and the covariance of the means.

    Args:
        losses: what `relfit.scores` returned or reads, with its options. Scores of which
            larger ones are better are turned round once, in here: `values` are the means of
            minus the scores. Without `higher_is_better` and a name that tells the direction,
            smaller is better, with a note where the numbers look like accuracies.
        names: l names.
        dependence: "series" for items in the order of time that depend on their neighbours.
        lags: with "series", how far dependence reaches: the L of the formula below. By
            default the rows are prewhitened instead.

    Items that some model has no score for are left out, unless `missing` is "adjust"
    (`estimators.holes.additive_means`). ``D = mean of the rows``, ``V =
    cov(losses)/n``: items are taken as independent, models as paired by item. With groups
    only the groups are: V sums over the groups the squares of their totals Σ_{a∈g} (loss_a −
    D)/n, each divided by 1 − n_g/n (CR2), and each difference has Bell and McCaffrey's degrees
    of freedom (`stats.dependence.cluster_freedom`). With strata ``D = Σ_t w_t mean_t`` and
    ``V = Σ_t w_t² V_t``. A series is prewhitened by the autocorrelation that all models have
    in common (`stats.dependence.series_law`); with `lags` ``V = (Γ_0 + Σ_{k≤L} (1 −
    k/(L+1))(Γ_k + Γ_kᵀ))/(n − 1 − L)``, Γ_k = Σ_a ψ_a ψ_{a+k}ᵀ/n. With labels ``D = λ
    mean(judge, items without labels) + mean(human − λ judge, items with)``, λ = cov(human,
    judge)/((1 + n/N) var(judge)) between 0 and 1 (Angelopoulos, Duchi and Zrnic 2023); for
    each item with labels λ is estimated from the others. With strata and labels the degrees
    of freedom of each difference are Welch's and Satterthwaite's. Training runs, judges and a
    second grouping of the items add to V what they vary (`stats.crossed`). Groups of a series
    are in the order of their labels.

    >>> joint = from_losses(
    ...     {"old": [0.1, 0.4] * 10, "new": [0.0, 0.3] * 10}, higher_is_better=False
    ... )
    >>> joint.names, joint.values.round(2).tolist()
    (('old', 'new'), [0.25, 0.15])
    """
    check_choice("dependence", dependence, DEPENDENCE)
    table = scores(losses, names=names, **options).common()
    _check_design(table, dependence, lags)
    better = bool(table.higher_is_better)
    rows = -table.values if better else table.values
    notes = (
        table.notes
        if table.higher_is_better is not None
        else (*_unknown_direction(table), *table.notes)
    )
    means = item_means(table, rows, dependence, lags)
    notes = (*notes, *means.notes)
    values = means.values
    covariance = means.psi.covariance() if means.covariance is None else means.covariance
    _refuse_small_columns(table, values, covariance)
    doubts = table.doubts
    effect = None
    if table.groups is None and dependence == "independent":
        effect = _order_effect(table, means.psi, int(values.argmin()), means.strata)
    if effect is not None:
        sentence = _order_note(effect, table, table.names[int(values.argmin())])
        notes = (*notes, sentence)
        doubts = (*doubts, sentence) if effect.doubtful else doubts
    return JointEstimate(
        table.names,
        values,
        covariance,
        (len(rows),),
        means.psi,
        notes=notes,
        groups=means.groups,
        measure="loss",
        higher_is_better=better,
        design=means.design,
        lags=means.psi.lags,
        binary=means.binary,
        unit=table.unit,
        doubts=doubts,
        freedom=means.freedom,
        components=means.components,
    )


def _order_effect(
    table: Scores, psi: Psi, best: int, strata: Rows | None
) -> OrderEffect | None:
    """How far items depend on the items before them in their file, within strata."""
    order = None if table.order is None else np.argsort(table.order, kind="stable")
    effect = order_effect(psi, best, order, strata)
    # Items in the order of one model's scores were sorted.
    if effect is not None and is_sorted(table.values if order is None else table.values[order]):
        return replace(effect, fades=False, doubtful=False)
    return effect


def _order_note(effect: OrderEffect, table: Scores, best: str) -> str:
    """What the order of the items shows, and the option that allows for it."""
    difference = (
        f"the difference between {quoted(table.names[effect.model])} and {quoted(best)}"
    )
    size = f"lag-1 autocorrelation {effect.autocorrelation:.2f}"
    groups = "groups= for items of one prompt or document"
    aside = "leave out labels= and " if table.labels is not None else ""
    if effect.fades:
        return (
            f"successive items depend on each other ({size} of {difference}), so the standard "
            f"error is too small by a "
            f"factor of about {effect.inflation:.2g} and a model may be called worse by "
            f"chance: {aside}pass "
            f'dependence="series" to compare_losses for items in the order of time, or {groups}'
        )
    strata = "" if table.strata is not None else "strata= for the tasks of a benchmark, or "
    return (
        f"{difference} changes along the table ({size}, and much the same {STEPS} items "
        f"apart), as where items are "
        f"sorted by task or document, so the standard error may be too small: {aside}pass to "
        f"compare_losses "
        f"{strata}{groups}"
    )


def _refuse_small_columns(table: Scores, values: Array, covariance: Array) -> None:
    """Refuse a model whose scores are so small compared with those of others that their
    cubes are lost.
    """
    smallest = SMALLEST_SCORES
    for j in np.flatnonzero(
        (np.abs(values) < smallest) & (np.diag(covariance) < smallest * smallest)
    ):
        size = float(np.abs(table.values[:, j]).max())
        if 0.0 < size < smallest:
            raise InputError(
                f"losses: expected scores of similar size for all models, got at most "
                f"{table.unit * size:.2g} for "
                f"{table.names[j]!r} and {table.unit * float(np.abs(table.values).max()):.2g} "
                f"for another; use "
                "logarithms, such as log-likelihoods"
            )


def _check_design(table: Scores, dependence: str, lags: Any) -> None:
    """Refuse what cannot be combined."""
    if lags is not None and dependence != "series":
        raise InputError(
            'lags: belongs to dependence="series"; leave it out, or say that the '
            "items are a series"
        )
    for name in ("strata", "groups", "crossed", "labels", "runs", "judges"):
        if getattr(table, name) is None:
            continue
        word = "a second grouping" if name == "crossed" else name
        if dependence == "series" and name in ("strata", "crossed", "labels"):
            raise InputError(
                f'{word}: cannot be combined with dependence="series"; leave out one of them'
            )
        if name != "labels" and table.labels is not None:
            raise InputError(
                f"labels: cannot be combined with {word} yet; leave out one of them"
            )
    units = len(table.values)
    what = "items"
    if table.groups is not None:
        units = len(np.unique(table.groups))
        what = "groups"
    if lags is not None and check_whole("lags", lags, 0) > units // 4:
        raise InputError(f"lags: expected at most a quarter of the {units} {what}, got {lags}")


def _unknown_direction(table: Scores) -> list[str]:
    """A note on scores that look like accuracies."""
    if table.values.min() < 0.0 or table.values.max() > 1.0:
        return []
    return [
        "all numbers lie between 0 and 1, and the smallest mean was taken for the best: for "
        "accuracies pass "
        "higher_is_better=True, and for losses higher_is_better=False"
    ]


class Likelihood(Kind):
    """Normalised densities compared with a sample, by D_i = mean_a −log p_i(x_a) =
    KL(data‖P_i) + a common constant.

    V is the covariance of the rows' losses over n; of rows in groups that of the groups' sums.
    """

    words = "normalised densities"
    discrepancies = ("loglik",)

    def check(
        self, data: Data, estimator: Estimator, dependence: Dependence, *, grouped: bool
    ) -> None:
        if dependence != "independent":
            raise InputError(
                f'dependence={dependence!r}: expected "independent" for loglik, '
                f"whose models have no rows"
            )

    def sources(
        self, data: Data, settings: EstimateSettings, *, in_order: bool = False
    ) -> list[PairSource]:
        return []

    def complete(self, data: Data, settings: EstimateSettings) -> Estimates:
        members = settings.members(None)
        losses = -log_densities(data.reference, data.densities)
        values, psi, _ = row_means(
            losses,
            np.zeros(len(losses), dtype=np.intp),
            np.ones(1),
            None if members is None else members[0],
        )
        return Estimates(values, psi)

    def right_hand_sides(self, data: Data) -> int:
        return 0


def from_elpd(models: Mapping[str, Any]) -> JointEstimate:
    """The elpd of each model (larger is better; `values` are minus the elpd) and the
    covariance of the estimates.

    Args:
        models: name → ``ELPDData`` with pointwise values (``arviz_stats.loo(data,
            pointwise=True)``); or data with a group ``log_likelihood``, for which
            arviz_stats or ArviZ computes them; or n log predictive densities, those of
            held-out observations for example. The observations are the same n, in the same
            order, for all models.

    ``D_i = −Σ_a elpd_i(a)`` and ``V = n cov(elpd)``: differences are elpd_diff of
    ``arviz_stats.compare``, and their standard errors √(n/(n−1)) times its dse.

    >>> rng = np.random.default_rng(0)
    >>> good = -rng.exponential(size=150)
    >>> joint = from_elpd({"good": good, "off": good - 0.2})
    >>> (joint.values[1] - joint.values[0]).round(6)
    np.float64(30.0)
    """
    if not isinstance(models, Mapping) or not models:
        raise InputError(
            f"models: expected a mapping of names to models, got {type(models).__name__}"
        )
    read = {
        as_name(name): _pointwise(f"models[{name!r}]", value) for name, value in models.items()
    }
    lengths = {name: len(values) for name, (values, _, _) in read.items()}
    if len(set(lengths.values())) > 1:
        raise InputError(
            f"models: expected the same observations for every model, got {lengths}"
        )
    first = next(iter(read))
    n = next(iter(lengths.values()))
    if n < FEWEST_OBSERVATIONS:
        raise InputError(
            f"models: expected at least {FEWEST_OBSERVATIONS} observations, got {n}"
        )
    for name, (_, _, labels) in read.items():
        known = read[first][2]
        if labels.keys() == known.keys() and any(
            not np.array_equal(labels[key], known[key]) for key in labels
        ):
            raise InputError(
                f"models[{name!r}]: expected the observations in the order of "
                f"{first!r}, got another one"
            )
    losses = -np.stack([values for values, _, _ in read.values()], axis=1)
    totals = losses.sum(axis=0)
    psi = Psi(n * (losses - losses.mean(axis=0)))
    notes = (
        *_pareto_notes({name: k for name, (_, k, _) in read.items()}),
        *_weak_notes(list(read), totals, n),
    )
    return JointEstimate(
        tuple(read),
        totals,
        psi.covariance(),
        (n,),
        psi,
        notes=notes,
        measure="elpd",
        higher_is_better=True,
    )


def _pointwise(where: str, value: Any) -> tuple[Array, Array | None, dict[str, Any]]:
    """(n,) log predictive densities, Pareto's k of each if it is known, and the labels of
    the observations.
    """
    if hasattr(value, "log_likelihood"):
        value = _loo(where)(value, pointwise=True)
    if not hasattr(value, "scale"):
        rows = as_rows(where, value)
        if rows.shape[1] != 1:
            advice = (
                "for the draws of a log-likelihood, give arviz_stats.loo(data, pointwise=True)"
            )
            raise InputError(
                f"{where}: expected one number for each observation, got shape "
                f"{rows.shape}; {advice}"
            )
        return np.asarray(rows[:, 0]), None, _labels(value)
    held = next(
        (
            part
            for key in ("elpd_i", "loo_i", "waic_i")
            if (part := getattr(value, key, None)) is not None
        ),
        None,
    )
    if held is None:
        raise InputError(
            f"{where}: expected values for each observation, got their sum only; use loo(…, "
            f"pointwise=True)"
        )
    if getattr(value, "subsample_size", None) is not None:
        raise InputError(
            f"{where}: expected all observations, got a subsample of them; use "
            f"loo(…, pointwise=True)"
        )
    if value.scale not in _SCALES:
        raise InputError(
            f"{where}: expected the scale log, negative_log or deviance, got {value.scale!r}"
        )
    k = getattr(value, "pareto_k", None)
    rows = as_rows(where, np.asarray(held, dtype=float).reshape(-1))
    return (
        _SCALES[value.scale] * rows[:, 0],
        None if k is None else np.asarray(k, dtype=float).reshape(-1),
        _labels(held),
    )


def _loo(where: str) -> Callable[..., Any]:
    """The function `loo` of arviz_stats, or of ArviZ before its version 1."""
    for library, oldest in (("arviz_stats", (0, 6)), ("arviz", (0, 12))):
        with suppress(InputError):
            loo: Callable[..., Any] | None = getattr(
                needed(where, library, oldest), "loo", None
            )
            if loo is not None:
                return loo
    raise InputError(
        f"{where}: PSIS-LOO needs arviz_stats; install it with  pip install "
        f'"arviz-stats[xarray]"'
    )


def _labels(value: Any) -> dict[str, Any]:
    """The coordinates of an xarray; none for other arrays."""
    coordinates = getattr(value, "coords", {})
    return {
        str(dim): coordinates[dim].to_numpy()
        for dim in getattr(value, "dims", ())
        if dim in coordinates
    }


def _pareto_notes(by_name: Mapping[str, Array | None]) -> list[str]:
    large = {name: k[k > LARGEST_PARETO_K] for name, k in by_name.items() if k is not None}
    bad = [
        f"{len(k)} of {quoted(name)} (up to {k.max():.2f})"
        for name, k in large.items()
        if len(k)
    ]
    if not bad:
        return []
    return [
        f"observations with a Pareto k above {LARGEST_PARETO_K}, whose elpd is not reliable: "
        f"{listed(bad, quote=str)}; "
        "fit the model again without each of them, or use K-fold cross-validation"
    ]


def _weak_notes(names: list[str], totals: Array, n: int) -> list[str]:
    best = int(totals.argmin())
    close = [
        name
        for k, name in enumerate(names)
        if k != best and totals[k] - totals[best] < SMALL_DIFFERENCE
    ]
    notes = []
    if close:
        notes.append(
            f"the elpd of {listed(close)} is less than {SMALL_DIFFERENCE:g} below the best: "
            f"so small a difference is "
            "of little practical importance, and its normal law is a weak approximation "
            "(Sivula et al. 2020)"
        )
    if n < FEW_OBSERVATIONS:
        notes.append(
            f"{n} observations are few: below {FEW_OBSERVATIONS} the normal law of a "
            f"difference in elpd is a weak "
            "approximation (Sivula et al. 2020)"
        )
    return notes
