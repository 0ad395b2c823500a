"""Log densities as discrepancies: of the reference rows, and expected log predictive
densities of Bayesian models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from relfit.data.arrays import as_rows
from relfit.data.likelihoods import log_densities
from relfit.data.load import Data
from relfit.estimators import base
from relfit.estimators.base import (
    Dependence,
    Estimates,
    EstimateSettings,
    Estimator,
    PairSource,
)
from relfit.estimators.losses import row_means
from relfit.stats.joint import JointEstimate, Psi
from relfit.util.arrays import Array
from relfit.util.errors import InputError
from relfit.util.libraries import needed
from relfit.util.text import as_name, listed, quoted

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


class Likelihood(base.Kind):
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
