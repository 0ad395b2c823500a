"""The synthetic problems of the paper and of the level checks. P1, P2, … are the models, as in the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from relfit.errors import InputError
from relfit.problems.distributions import Array, GaussianBernoulliRBM, GaussianMixture
from relfit.problems.problem import Problem

RBM_SEED = 0
"""Seed of `numpy.random.default_rng` that draws B, then b, then c of the reference RBM."""


def _gaussian(mean: Array, covariance: Array) -> GaussianMixture:
    return GaussianMixture(np.ones(1), np.atleast_2d(mean), covariance)


def _names(count: int) -> tuple[str, ...]:
    return tuple(f"P{i}" for i in range(1, count + 1))


def _smallest(names: Sequence[str], distance: Array) -> frozenset[str]:
    """The names at the smallest distance; distances that differ by rounding only are tied."""
    near = distance <= distance.min() * (1.0 + 1e-9)
    return frozenset(name for name, tied in zip(names, near, strict=True) if tied)


def mean_shift(name: str, means: Array) -> Problem:
    """R = N(0, I), models P1, P2, … = N(m_i, I), `means` (l, d).

    Best are the smallest ‖m_i‖, for any decreasing isotropic kernel: MMD² = const − 2E k(x, r), and E k(x, r)
    falls with ‖m_i‖ and depends on nothing else; the scores differ by m_i, so KSD² = ‖m_i‖² E_R k(r, r').
    """
    names, d = _names(len(means)), means.shape[1]
    best = _smallest(names, np.linalg.norm(means, axis=1))
    models = tuple(_gaussian(m, np.eye(d)) for m in means)
    return Problem(name, d, names, _gaussian(np.zeros(d), np.eye(d)), models, {"mmd": best, "ksd": best})


def mean_shift_pair(d: int = 10) -> Problem:
    """P1, P2 = N(±.5e₁, I) against N(0, I): tied (fig1-meanshift)."""
    return mean_shift("mean-shift-pair", _signed_axes(2, d))


def mean_shift_l10(d: int = 10) -> Problem:
    """P1..P9 at ±.5e₁, …, ±.5e₄, +.5e₅, tied; P10 at 1·e₁, worse (meanshift-l10)."""
    return mean_shift("mean-shift-l10", np.vstack([_signed_axes(9, d), np.eye(d)[:1]]))


def calibration_1d(mu1: float, mu2: float) -> Problem:
    """P1, P2 = N(μ₁, 1), N(μ₂, 1) against N(0, 1); equal μ are one and the same density (calibration)."""
    return mean_shift("calibration-1d", np.array([[mu1], [mu2]], dtype=float))


def all_tied(l: int, d: int = 10, seed: int = 0) -> Problem:
    """l models N(m_i, I), ‖m_i‖ = .5, all tied for an isotropic kernel, by rotation about R = N(0, I).

    m_i = +.5e₁, −.5e₁, +.5e₂, … while l ≤ 2d; otherwise directions uniform on the sphere, drawn with `seed`.
    """
    if l < 1:
        raise InputError(f"l: expected at least one model; got {l}")
    if l <= 2 * d:
        return mean_shift("all-tied", _signed_axes(l, d))
    directions = np.random.default_rng(seed).standard_normal((l, d))
    return mean_shift("all-tied", 0.5 * directions / np.linalg.norm(directions, axis=1, keepdims=True))


def graded(d: int = 10) -> Problem:
    """Ten models at .5e₁, .55e₁, …, .95e₁: each a little worse than the one before."""
    return mean_shift("graded", np.linspace(0.5, 0.95, 10)[:, None] * np.eye(d)[:1])


def _signed_axes(count: int, d: int) -> Array:
    """The first `count` of +.5e₁, −.5e₁, +.5e₂, −.5e₂, …"""
    if count > 2 * d:
        raise InputError(f"d: expected at least {(count + 1) // 2} dimensions for {count} models; got {d}")
    axes = np.repeat(np.eye(d), 2, axis=0)[:count]
    return 0.5 * axes * np.where(np.arange(count) % 2, -1.0, 1.0)[:, None]


def _rotated(angle: float) -> Array:
    """diag(5, .5) turned by `angle`."""
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return np.asarray(turn @ np.diag([5.0, 0.5]) @ turn.T)


def blobs() -> Problem:
    """Four equal Gaussians at (±3.5, ±3.5), covariance diag(5, .5) turned about each centre (fig1-blobs).

    R by 0, P1 by π/2, P2 by π/5: P2 is best (the tests check it for Gaussian kernels of many bandwidths).
    """
    centres = 3.5 * np.array([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]])
    r, p1, p2 = (GaussianMixture(np.full(4, 0.25), centres, _rotated(a)) for a in (0.0, np.pi / 2, np.pi / 5))
    best = frozenset({"P2"})
    return Problem("blobs", 2, ("P1", "P2"), r, (p1, p2), {"mmd": best, "ksd": best})


def rotation_2d(angle: float) -> Problem:
    """N(0, C) with C = diag(5, .5) turned: R by 0, P1 by `angle`, P2 by π/2 (tpr-rotation).

    P1 is best, and tied with P2 at π/2 (mod π), where they are the same density. With A = C_R⁻¹ − C_i⁻¹ the
    scores differ by Ax, and AᵀA ∝ sin²(angle)·I, so KSD² ∝ sin²(angle) for every kernel; MMD² rises with the
    angle too (the tests check it for Gaussian kernels of many bandwidths).
    """
    origin = np.zeros(2)
    r, p1, p2 = (_gaussian(origin, _rotated(a)) for a in (0.0, angle, np.pi / 2))
    # The angle between the long axes of R and P_i, in [0, π/2]: R is symmetric in the sign of the angle.
    turn = np.abs(np.arcsin(np.sin(np.array([angle, np.pi / 2]))))
    best = _smallest(("P1", "P2"), np.where(np.isclose(turn, np.pi / 2), np.pi / 2, turn))
    return Problem("rotation-2d", 2, ("P1", "P2"), r, (p1, p2), {"mmd": best, "ksd": best})


def mixture_1d() -> Problem:
    """M(ρ) = ρN(1,1) + (1−ρ)N(−1,1): R = M(.5), P1 = M(.7), P2 = M(.75) (tpr-mixture).

    M(ρ) − M(.5) = (ρ − .5)(N(1,1) − N(−1,1)), so MMD² ∝ (ρ − .5)² for every kernel: P1 is best. KSD agrees
    (the tests check it by quadrature for Gaussian kernels of many bandwidths).
    """
    r, p1, p2 = (
        GaussianMixture(np.array([rho, 1.0 - rho]), np.array([[1.0], [-1.0]]), np.eye(1)) for rho in (0.5, 0.7, 0.75)
    )
    best = frozenset({"P1"})
    return Problem("mixture-1d", 1, ("P1", "P2"), r, (p1, p2), {"mmd": best, "ksd": best})


def rbm(
    perturbations: Mapping[str, float] | Sequence[float], d: int = 20, latents: int = 5, seed: int = RBM_SEED
) -> Problem:
    """Gaussian–Bernoulli RBMs that differ from the reference in B[0, 0] only, by `perturbations` (fig1-rbm).

    B ∈ {−1, 1}^(d×latents), b and c standard normal, drawn in this order by `default_rng(seed)`. Names are
    those of a mapping, otherwise P1, P2, … Best is the smallest perturbation (equal ones are one density);
    this is known, for Gaussian kernels, where all lie in [0, 1] and d, latents and seed are the defaults (the
    tests check that both discrepancies rise with the perturbation), and None otherwise.
    """
    if len(perturbations) == 0 or not 1 <= latents <= 16:
        raise InputError(
            "perturbations, latents: expected one perturbation or more and 1 to 16 latents (2^latents "
            f"components are listed); got {len(perturbations)} and {latents}"
        )
    if not isinstance(perturbations, Mapping):
        perturbations = dict(zip(_names(len(perturbations)), perturbations, strict=True))
    rng = np.random.default_rng(seed)
    coupling = rng.choice([-1.0, 1.0], size=(d, latents))
    b, c = rng.standard_normal(d), rng.standard_normal(latents)
    names, shifts = tuple(perturbations), np.array(list(perturbations.values()), dtype=float)
    corner = np.zeros_like(coupling)
    corner[0, 0] = 1.0
    models = tuple(GaussianBernoulliRBM(coupling + e * corner, b, c) for e in shifts)
    known = (d, latents, seed) == (20, 5, RBM_SEED) and bool(np.all((shifts >= 0.0) & (shifts <= 1.0)))
    best = _smallest(names, shifts) if known else None
    return Problem("rbm", d, names, GaussianBernoulliRBM(coupling, b, c), models, {"mmd": best, "ksd": best})


def rbm_l7(eps: float) -> Problem:
    """P1 perturbed by `eps`, P2..P7 by .2, .3, .35, .4, .45, .5 (rbm-l7)."""
    return rbm([eps, 0.2, 0.3, 0.35, 0.4, 0.45, 0.5])
