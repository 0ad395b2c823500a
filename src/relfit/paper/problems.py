"""Distributions that can be sampled exactly and whose score is closed form: finite mixtures of Gaussians."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np

from relfit.util.arrays import Array
from relfit.util.errors import InputError


class Distribution(Protocol):
    """What a problem needs of a distribution on R^d."""

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """(n, d) independent draws."""

    def log_density(self, x: Array) -> Array:
        """Normalised log density at the rows of x, (n,)."""

    def score(self, x: Array) -> Array:
        """∇ log p at the rows of x, (n, d)."""

    def as_mixture(self) -> GaussianMixture:
        """The same distribution as a mixture of Gaussians."""


@dataclass(frozen=True, eq=False)
class GaussianMixture:
    """Mixture Σ_k w_k N(μ_k, C) with one covariance: `weights` (K,), `means` (K, d), `covariance` (d, d)."""

    weights: Array
    means: Array
    covariance: Array

    @cached_property
    def _precision(self) -> Array:
        return np.asarray(np.linalg.inv(self.covariance), dtype=np.float64)

    def as_mixture(self) -> GaussianMixture:
        """The same distribution as a mixture of Gaussians."""
        return self

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """(n, d) independent draws: a component, then its Gaussian."""
        labels = rng.choice(len(self.weights), size=n, p=self.weights)
        noise = rng.standard_normal((n, self.means.shape[1]))
        return self.means[labels] + noise @ np.linalg.cholesky(self.covariance).T

    def _log_joint(self, x: Array) -> Array:
        """log w_k + xᵀC⁻¹μ_k − ½ μ_kᵀC⁻¹μ_k, (n, K): log density of each component less what all share."""
        shifted = self.means @ self._precision
        return np.asarray(np.log(self.weights) - 0.5 * (shifted * self.means).sum(1) + x @ shifted.T)

    def log_density(self, x: Array) -> Array:
        """Log density at the rows of x, (n,)."""
        log_det = np.linalg.slogdet(2.0 * np.pi * self.covariance)[1]
        shared = -0.5 * ((x @ self._precision) * x).sum(1) - 0.5 * log_det
        return np.asarray(shared + np.logaddexp.reduce(self._log_joint(x), axis=1))

    def score(self, x: Array) -> Array:
        """∇ log p(x) = C⁻¹(Σ_k r_k(x) μ_k − x), (n, d), with r_k(x) the posterior of component k."""
        a = self._log_joint(x)
        responsibility = np.exp(a - np.logaddexp.reduce(a, axis=1, keepdims=True))
        return np.asarray((responsibility @ self.means - x) @ self._precision)

    def mean_kernel(self, other: GaussianMixture, bandwidth: float) -> float:
        """E exp(−‖x−y‖²/(2σ²)) of independent x from this and y from the other mixture.

        For Gaussians with covariances A and B: |I + (A+B)/σ²|^(−½) exp(−½ δᵀ(σ²I + A + B)⁻¹δ), δ = μ_x − μ_y.
        """
        d = self.means.shape[1]
        spread = np.eye(d) * bandwidth**2 + self.covariance + other.covariance
        gap = self.means[:, None, :] - other.means[None, :, :]
        exponent = -0.5 * np.einsum("ijk,kl,ijl->ij", gap, np.linalg.inv(spread), gap)
        scale = np.exp(d * np.log(bandwidth) - 0.5 * np.linalg.slogdet(spread)[1])
        return float(scale * (self.weights @ np.exp(exponent) @ other.weights))


@dataclass(frozen=True, eq=False)
class GaussianBernoulliRBM:
    """p(y) ∝ Σ_{h∈{−1,1}^q} exp(½ yᵀBh + bᵀy + cᵀh − ½‖y‖²).

    `coupling` is B (d, q), `visible` is b (d,), `latent` is c (q,).
    Summed over h it is a mixture of 2^q Gaussians N(½Bh + b, I) with log-weights cᵀh + ½‖½Bh + b‖².
    """

    coupling: Array
    visible: Array
    latent: Array

    @cached_property
    def _states(self) -> tuple[Array, Array]:
        """All 2^q means and unnormalised log-weights."""
        q = len(self.latent)
        h = 2.0 * ((np.arange(2**q)[:, None] >> np.arange(q)) & 1) - 1.0
        means = 0.5 * h @ self.coupling.T + self.visible
        return means, h @ self.latent + 0.5 * (means**2).sum(1)

    @cached_property
    def _mixture(self) -> GaussianMixture:
        means, log_weights = self._states
        weights = np.exp(log_weights - log_weights.max())
        return GaussianMixture(weights / weights.sum(), means, np.eye(len(self.visible)))

    def as_mixture(self) -> GaussianMixture:
        """The same distribution as a mixture of Gaussians."""
        return self._mixture

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """(n, d) exact, independent draws: no Gibbs chain, because the latent states can be listed."""
        return self._mixture.sample(n, rng)

    def log_density(self, x: Array) -> Array:
        """bᵀy − ½‖y‖² + Σ_j log 2cosh(½B_jᵀy + c_j) − log Z at the rows of x, (n,)."""
        a = 0.5 * x @ self.coupling + self.latent
        log_z = np.logaddexp.reduce(self._states[1]) + 0.5 * len(self.visible) * np.log(2.0 * np.pi)
        return np.asarray(x @ self.visible - 0.5 * (x**2).sum(1) + np.logaddexp(a, -a).sum(1) - log_z)

    def score(self, x: Array) -> Array:
        """b − y + ½ B tanh(½Bᵀy + c), (n, d)."""
        return self.visible - x + 0.5 * np.tanh(0.5 * x @ self.coupling + self.latent) @ self.coupling.T


# --------------------
# A comparison problem with its true answer, and how its samples are drawn.

Function = Callable[[Array], Array]


@dataclass(frozen=True, eq=False)
class Problem:
    """A reference, its candidate models, and the candidates that are truly best.

    `truth` maps "mmd" and "ksd" to the set of best models, or to None where it is not known; it holds for the
    kernels that the constructor names.

    >>> from relfit.paper.problems import mean_shift_l10
    >>> problem = mean_shift_l10()
    >>> problem.dim, len(problem.models), sorted(problem.worse("mmd"))
    (10, 10, ['P10'])
    """

    name: str
    dim: int
    models: tuple[str, ...]
    reference: Distribution = field(repr=False)
    distributions: tuple[Distribution, ...] = field(repr=False)
    truth: Mapping[str, frozenset[str] | None] = field(repr=False)

    def distribution(self, name: str) -> Distribution:
        """The distribution of one model."""
        if name not in self.models:
            raise InputError(f"name: expected one of {', '.join(self.models)}; got {name!r}")
        return self.distributions[self.models.index(name)]

    def sample_reference(self, n: int, rng: np.random.Generator) -> Array:
        """(n, dim) draws of the reference."""
        return self.reference.sample(n, rng)

    def sample_model(self, name: str, n: int, rng: np.random.Generator) -> Array:
        """(n, dim) draws of one model."""
        return self.distribution(name).sample(n, rng)

    def score(self, name: str) -> Function:
        """The score x ↦ ∇ log p(x) of one model, (n, dim) to (n, dim)."""
        return self.distribution(name).score

    def log_density(self, name: str) -> Function:
        """The normalised log density of one model, (n, dim) to (n,)."""
        return self.distribution(name).log_density

    def best(self, discrepancy: str) -> frozenset[str] | None:
        """The models tied for best (I_−) under "mmd" or "ksd"; None where it is not known."""
        if discrepancy not in self.truth:
            raise InputError(f"discrepancy: expected one of {', '.join(self.truth)}; got {discrepancy!r}")
        return self.truth[discrepancy]

    def worse(self, discrepancy: str) -> frozenset[str] | None:
        """The models that are truly worse than the best (I_+); None where it is not known."""
        best = self.best(discrepancy)
        return None if best is None else frozenset(self.models) - best


def population_mmd(problem: Problem, bandwidth: float) -> Array:
    """MMD² of every model to the reference under exp(−r²/(2σ²)), exact: (l,), in the order given.

    >>> from relfit.paper.problems import mean_shift_pair
    >>> values = population_mmd(mean_shift_pair(), bandwidth=3.0)
    >>> bool(values[0] == values[1])
    True
    """
    r = problem.reference.as_mixture()
    mixtures = [p.as_mixture() for p in problem.distributions]
    own = [p.mean_kernel(p, bandwidth) - 2.0 * p.mean_kernel(r, bandwidth) for p in mixtures]
    return np.array(own) + r.mean_kernel(r, bandwidth)


def stream(seed: int, name: str | None) -> np.random.Generator:
    """The random stream of one model, keyed by (seed, name); `None` is the reference.

    The key is a `SeedSequence` spawn key made of a word for this module and a hash of the name, so a stream
    depends neither on the place of the model in the list nor on the streams that other code makes of `seed`.
    """
    label = b"reference" if name is None else b"model:" + name.encode("utf-8")
    words = np.frombuffer(hashlib.sha256(b"relfit.problems/" + label).digest(), dtype="<u4")
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=tuple(int(w) for w in words)))


def draw(problem: Problem, n: int, seed: int, sizes: Mapping[str, int] | None = None) -> tuple[Array, dict[str, Array]]:
    """Reference (n rows) and a sample of each model (n rows, or `sizes[name]`), from independent streams.

    The same seed gives models of the same name the same stream in every problem: curves over a parameter of
    the problem use common random numbers.

    >>> from relfit.paper.problems import mean_shift_pair
    >>> reference, models = draw(mean_shift_pair(), 100, seed=1, sizes={"P2": 40})
    >>> reference.shape, models["P1"].shape, models["P2"].shape
    ((100, 10), (100, 10), (40, 10))
    """
    unknown = set(sizes or {}) - set(problem.models)
    if unknown:
        raise InputError(f"sizes: expected names of models; got {', '.join(sorted(unknown))}")
    counts = dict.fromkeys(problem.models, n) | dict(sizes or {})
    samples = {name: problem.sample_model(name, counts[name], stream(seed, name)) for name in problem.models}
    return problem.sample_reference(n, stream(seed, None)), samples


# --------------------
# The synthetic problems of the paper and of the level checks. P1, P2, … are the models, as in the paper.

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
