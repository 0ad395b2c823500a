"""Adjusting the p-values of several hypotheses."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relfit.errors import InputError

Array = NDArray[np.float64]

CORRECTIONS = ("none", "by", "bh", "holm", "bonferroni", "auto")


def adjust(pvalues: Array, correction: str) -> Array:
    """Adjusted p-values: reject those at or below α.

    "by" and "bh" control the false discovery rate (Benjamini–Yekutieli for any dependence,
    Benjamini–Hochberg for positive dependence), "holm" and "bonferroni" the chance of any error.
    """
    count = len(pvalues)
    if count <= 1 or correction == "none":
        return pvalues.copy()
    if correction in ("by", "bh"):
        # Imported here: scipy.stats takes longer to load than all of relfit.
        from scipy.stats import false_discovery_control

        return np.asarray(false_discovery_control(pvalues, method=correction))
    if correction == "bonferroni":
        return np.minimum(count * pvalues, 1.0)
    if correction != "holm":
        raise InputError(f"correction: expected none, by, bh, holm or bonferroni, got {correction!r}")
    order = np.argsort(pvalues, kind="stable")
    stepped = np.maximum.accumulate(pvalues[order] * np.arange(count, 0, -1))
    adjusted = np.empty(count)
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted


def sign_condition(covariance: Array, best: int) -> bool:
    """Whether every Cov(D_i − D_J, D_k − D_J) ≥ 0, so that Benjamini–Hochberg is allowed."""
    others = np.delete(np.arange(len(covariance)), best)
    contrast = np.eye(len(covariance))[others] - np.eye(len(covariance))[best]
    joint = contrast @ covariance @ contrast.T
    return bool((joint >= -1e-12 * np.abs(joint).max(initial=0.0)).all())


def resolve_correction(correction: str, covariance: Array, best: int) -> str:
    """The correction really used: "auto" is BH where the sign condition holds, else BY; none for two models."""
    if len(covariance) <= 2:
        return "none"
    if correction == "auto":
        return "bh" if sign_condition(covariance, best) else "by"
    return correction
