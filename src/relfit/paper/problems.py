"""The synthetic problems: distributions with exact samplers and closed-form scores, and
their true ranking; and the handwritten digits, which come with relfit.

All distributions are finite mixtures of Gaussians. P1, P2, … are the models, as in the paper.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit import Density
from relfit.util.arrays import Array
from relfit.util.errors import InputError

GREY_LEVELS = 16.0  # of the pixels of the digits
RBM_SEED = 0  # draws B, then b, then c of the reference RBM


@dataclass(frozen=True, eq=False)
class GaussianMixture:
    """Mixture Σ_k w_k N(μ_k, C) with one covariance: `weights` (K,), `means` (K, d),
    `covariance` (d, d).
    """

    weights: Array
    means: Array
    covariance: Array

    @cached_property
    def _precision(self) -> Array:
        return np.asarray(np.linalg.inv(self.covariance), dtype=np.float64)

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """(n, d) independent draws: a component, then its Gaussian."""
        labels = rng.choice(len(self.weights), size=n, p=self.weights)
        noise = rng.standard_normal((n, self.means.shape[1]))
        return self.means[labels] + noise @ np.linalg.cholesky(self.covariance).T

    def _log_joint(self, x: Array) -> Array:
        """log w_k + xᵀC⁻¹μ_k − ½ μ_kᵀC⁻¹μ_k, (n, K): log density of each component less what
        all share.
        """
        shifted = self.means @ self._precision
        return np.asarray(
            np.log(self.weights) - 0.5 * (shifted * self.means).sum(1) + x @ shifted.T
        )

    def log_density(self, x: Array) -> Array:
        """Normalised log density at the rows of x, (n,)."""
        shared = (
            -0.5 * ((x @ self._precision) * x).sum(1)
            - 0.5 * np.linalg.slogdet(2.0 * np.pi * self.covariance)[1]
        )
        return np.asarray(shared + np.logaddexp.reduce(self._log_joint(x), axis=1))

    def score(self, x: Array) -> Array:
        """∇ log p(x) = C⁻¹(Σ_k r_k(x) μ_k − x), (n, d), with r_k(x) the posterior of
        component k.
        """
        a = self._log_joint(x)
        responsibility = np.exp(a - np.logaddexp.reduce(a, axis=1, keepdims=True))
        return np.asarray((responsibility @ self.means - x) @ self._precision)


def gaussian_bernoulli_rbm(coupling: Array, visible: Array, latent: Array) -> GaussianMixture:
    """p(y) ∝ Σ_{h∈{−1,1}^q} exp(½ yᵀBh + bᵀy + cᵀh − ½‖y‖²).

    `coupling` is B (d, q), `visible` is b (d,), `latent` is c (q,). Summed over h it is a
    mixture of 2^q Gaussians N(½Bh + b, I) with log-weights cᵀh + ½‖½Bh + b‖², so that draws
    are exact and need no Gibbs chain.
    """
    q = len(latent)
    h = 2.0 * ((np.arange(2**q)[:, None] >> np.arange(q)) & 1) - 1.0
    means = 0.5 * h @ coupling.T + visible
    log_weights = h @ latent + 0.5 * (means**2).sum(1)
    weights = np.exp(log_weights - log_weights.max())
    return GaussianMixture(weights / weights.sum(), means, np.eye(len(visible)))


@dataclass(frozen=True, eq=False)
class Problem:
    """A reference, its candidate models by name, and the names of those that are truly best,
    by MMD and by KSD.

    The truth holds for the kernels that the constructor of the problem names.

    >>> problem = mean_shift_l10()
    >>> problem.dim, len(problem.models), sorted(problem.worse)
    (10, 10, ['P10'])
    """

    reference: GaussianMixture = field(repr=False)
    models: Mapping[str, GaussianMixture] = field(repr=False)
    best: frozenset[str]

    @property
    def dim(self) -> int:
        return int(self.reference.means.shape[1])

    @property
    def worse(self) -> frozenset[str]:
        """The models that are truly worse than the best (I_+)."""
        return frozenset(self.models) - self.best

    def densities(self) -> dict[str, Density]:
        """Every model by its score, as `compare` takes it."""
        return {
            name: Density(score=model.score, dim=self.dim)
            for name, model in self.models.items()
        }


def stream(seed: int, name: str | None) -> np.random.Generator:
    """The random stream of one model, keyed by (seed, name); `None` is the reference.

    The key is a `SeedSequence` spawn key made of a word for this module and a hash of the
    name, so a stream depends neither on the place of the model in the list nor on the
    streams that other code makes of `seed`.
    """
    label = b"reference" if name is None else b"model:" + name.encode("utf-8")
    words = np.frombuffer(hashlib.sha256(b"relfit.problems/" + label).digest(), dtype="<u4")
    return np.random.default_rng(
        np.random.SeedSequence(seed, spawn_key=tuple(int(w) for w in words))
    )


def draw(
    problem: Problem, n: int, seed: int, sizes: Mapping[str, int] | None = None
) -> tuple[Array, dict[str, Array]]:
    """Reference (n rows) and a sample of each model (n rows, or `sizes[name]`), from
    independent streams.

    The same seed gives models of the same name the same stream in every problem: curves over
    a parameter of the problem use common random numbers.

    >>> reference, models = draw(mean_shift_pair(), 100, seed=1, sizes={"P2": 40})
    >>> reference.shape, models["P1"].shape, models["P2"].shape
    ((100, 10), (100, 10), (40, 10))
    """
    counts = dict.fromkeys(problem.models, n) | dict(sizes or {})
    samples = {
        name: model.sample(counts[name], stream(seed, name))
        for name, model in problem.models.items()
    }
    return problem.reference.sample(n, stream(seed, None)), samples


def candidates(
    problem: Problem, measure: str, n: int, seed: int
) -> tuple[Array, dict[str, Any]]:
    """A drawn reference and the models as `compare` takes them: samples for "mmd", densities
    for "ksd".
    """
    reference, samples = draw(problem, n, seed)
    return reference, dict(samples) if measure == "mmd" else dict(problem.densities())


def _gaussian(mean: Array, covariance: Array) -> GaussianMixture:
    return GaussianMixture(np.ones(1), np.atleast_2d(mean), covariance)


def _problem(
    reference: GaussianMixture, models: Sequence[GaussianMixture], distance: Array
) -> Problem:
    """Models P1, P2, …; best are the smallest distances, and distances that differ by
    rounding only are tied.
    """
    names = [f"P{i}" for i in range(1, len(models) + 1)]
    near = distance <= distance.min() * (1.0 + 1e-9)
    best = frozenset(name for name, tied in zip(names, near, strict=True) if tied)
    return Problem(reference, dict(zip(names, models, strict=True)), best)


def mean_shift(means: Array) -> Problem:
    """R = N(0, I), models P1, P2, … = N(m_i, I), `means` (l, d).

    Best are the smallest ‖m_i‖, for any decreasing isotropic kernel: MMD² = const − 2E k(x,
    r), and E k(x, r) falls with ‖m_i‖ and depends on nothing else; the scores differ by m_i,
    so KSD² = ‖m_i‖² E_R k(r, r').
    """
    eye = np.eye(means.shape[1])
    models = [_gaussian(mean, eye) for mean in means]
    return _problem(_gaussian(np.zeros(len(eye)), eye), models, np.linalg.norm(means, axis=1))


def mean_shift_pair(d: int = 10) -> Problem:
    """P1, P2 = N(±.5e₁, I) against N(0, I): tied (fig1-meanshift)."""
    return mean_shift(_signed_axes(2, d))


def mean_shift_l10() -> Problem:
    """P1..P9 at ±.5e₁, …, ±.5e₄, +.5e₅, tied; P10 at 1·e₁, worse; d = 10 (meanshift-l10)."""
    return mean_shift(np.vstack([_signed_axes(9, 10), np.eye(10)[:1]]))


def calibration_1d(mu1: float, mu2: float) -> Problem:
    """P1, P2 = N(μ₁, 1), N(μ₂, 1) against N(0, 1); equal μ are one and the same density
    (calibration).
    """
    return mean_shift(np.array([[mu1], [mu2]], dtype=float))


def _signed_axes(count: int, d: int) -> Array:
    """The first `count` of +.5e₁, −.5e₁, +.5e₂, −.5e₂, …"""
    return (
        0.5
        * np.repeat(np.eye(d), 2, axis=0)[:count]
        * np.where(np.arange(count) % 2, -1.0, 1.0)[:, None]
    )


def _rotated(angle: float) -> Array:
    """diag(5, .5) turned by `angle`."""
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return np.asarray(turn @ np.diag([5.0, 0.5]) @ turn.T)


def blobs() -> Problem:
    """Four equal Gaussians at (±3.5, ±3.5), covariance diag(5, .5) turned about each centre
    (fig1-blobs).

    R by 0, P1 by π/2, P2 by π/5: P2 is best (the tests check it for Gaussian kernels of many
    bandwidths).
    """
    centres = 3.5 * np.array([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]])
    angles = np.array([np.pi / 2, np.pi / 5])
    r, *models = (
        GaussianMixture(np.full(4, 0.25), centres, _rotated(a)) for a in (0.0, *angles)
    )
    return _problem(r, models, angles)


def rotation_2d(angle: float) -> Problem:
    """N(0, C) with C = diag(5, .5) turned: R by 0, P1 by `angle`, P2 by π/2 (tpr-rotation).

    P1 is best, and tied with P2 at π/2 (mod π), where they are the same density. With A =
    C_R⁻¹ − C_i⁻¹ the scores differ by Ax, and AᵀA ∝ sin²(angle)·I, so KSD² ∝ sin²(angle) for
    every kernel; MMD² rises with the angle too (the tests check it for Gaussian kernels of
    many bandwidths).
    """
    r, *models = (_gaussian(np.zeros(2), _rotated(a)) for a in (0.0, angle, np.pi / 2))
    # The angle between the long axes of R and P_i, in [0, π/2]: R is symmetric in the sign of
    # the angle.
    turn = np.abs(np.arcsin(np.sin(np.array([angle, np.pi / 2]))))
    return _problem(r, models, np.where(np.isclose(turn, np.pi / 2), np.pi / 2, turn))


def mixture_1d() -> Problem:
    """M(ρ) = ρN(1,1) + (1−ρ)N(−1,1): R = M(.5), P1 = M(.7), P2 = M(.75) (tpr-mixture).

    M(ρ) − M(.5) = (ρ − .5)(N(1,1) − N(−1,1)), so MMD² ∝ (ρ − .5)² for every kernel: P1 is
    best. KSD agrees (the tests check it by quadrature for Gaussian kernels of many
    bandwidths).
    """
    weights = np.array([0.5, 0.7, 0.75])
    r, *models = (
        GaussianMixture(np.array([p, 1.0 - p]), np.array([[1.0], [-1.0]]), np.eye(1))
        for p in weights
    )
    return _problem(r, models, weights[1:] - weights[0])


def rbm(perturbations: Sequence[float]) -> Problem:
    """Gaussian–Bernoulli RBMs that differ from the reference in B[0, 0] only, by
    `perturbations` (fig1-rbm).

    d = 20 and 5 latents; B ∈ {−1, 1}^(d×5), b and c standard normal, drawn in this order by
    `default_rng(RBM_SEED)`. Best is the smallest perturbation, for Gaussian kernels (equal
    ones are one density): the tests check that both discrepancies rise with the perturbation
    in [0, 1].
    """
    shifts = np.array(perturbations, dtype=float)
    if not shifts.size or shifts.min() < 0.0 or shifts.max() > 1.0:
        raise InputError(
            f"perturbations: expected numbers between 0 and 1, where the truth "
            f"is known; got {shifts}"
        )
    rng = np.random.default_rng(RBM_SEED)
    coupling = rng.choice([-1.0, 1.0], size=(20, 5))
    b = rng.standard_normal(20)
    c = rng.standard_normal(5)
    corner = np.zeros_like(coupling)
    corner[0, 0] = 1.0
    r, *models = (gaussian_bernoulli_rbm(coupling + e * corner, b, c) for e in (0.0, *shifts))
    return _problem(r, models, shifts)


def rbm_l7(epsilon: float) -> Problem:
    """P1 perturbed by `epsilon`, P2..P7 by .2, .3, .35, .4, .45, .5 (rbm-l7)."""
    return rbm([epsilon, 0.2, 0.3, 0.35, 0.4, 0.45, 0.5])


def digits() -> tuple[Array, NDArray[np.uint8]]:
    """The handwritten digits of digits.md: images (1797, 64) with pixels in [0, 1], and
    their labels 0 to 9.
    """
    with (
        files("relfit").joinpath("paper/digits.npz").open("rb") as stored,
        np.load(stored, allow_pickle=False) as data,
    ):
        return data["images"] / GREY_LEVELS, data["labels"]
