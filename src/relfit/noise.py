"""Score networks compared on noised data, at several noise levels and over all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.adapters.score_network import at_level
from relfit.compare import decide, estimate
from relfit.discrepancies.psi import Psi
from relfit.errors import InputError
from relfit.estimate import JointEstimate
from relfit.inputs import Seed, as_rows, make_seed, stream
from relfit.kernels import Kernel
from relfit.models import Density
from relfit.result import Comparison

Array = NDArray[np.float64]


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
            `relfit.adapters.score_network.at_level` for how it is called).
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
