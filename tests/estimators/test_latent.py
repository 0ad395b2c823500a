"""KSD of latent-variable models with Monte-Carlo scores: unbiased, and the values of the published code.

The models are probabilistic PCA, x = Wz + ε, whose marginal score is known: −(WWᵀ + I)⁻¹x. A Monte-Carlo score is the
mean of ∇ₓ log p(x | z) = Wz − x over draws z from p(z | x).
"""

import numpy as np
import pytest
from scipy import stats

import relfit

# What LDC_KSD and DC_KSD of github.com/noukoudashisoup/lkgof (commit 54303a2) print for its problem ppca_h1_dx10_dz5 on
# the rows and the draws below: the KSD² of P and Q, their difference, its jackknife variance and the p-value.
PUBLISHED = {
    "median": 6.155014979697091,
    "latent": (0.08109346689576945, 0.059575699299763404, 0.021517767596006043, 0.0002048177065528581),
    "latent p-value": 0.06635060451453036,
    "exact": (0.07815579142878913, 0.06030305976713507, 0.01785273166165406, 0.00018303438661744942),
    "exact p-value": 0.09348631809760521,
}
STATE = np.random.RandomState(13)
WEIGHT = STATE.uniform(0.0, 1.0, (10, 5))


def perturbed(delta):
    """Their models differ from the data's in the first weight."""
    weight = WEIGHT.copy()
    weight[0, 0] += delta
    return weight


P, Q = perturbed(2.0), perturbed(1.0)


def data(n=100, seeds=(1, 2)):
    z, noise = (np.random.default_rng(seed).standard_normal((n, d)) for seed, d in zip(seeds, (5, 10), strict=True))
    return z @ WEIGHT.T + noise


def exact(weight):
    precision = np.linalg.inv(weight @ weight.T + np.eye(len(weight)))
    return relfit.Density(score=lambda x: -x @ precision, dim=len(weight))


def posterior(weight, x, count, rng):
    """(count, n, dz) draws from p(z | x): normal with covariance C = (I + WᵀW)⁻¹ and mean CWᵀx."""
    covariance = np.linalg.inv(np.eye(weight.shape[1]) + weight.T @ weight)
    mean = x @ weight @ covariance
    return mean + rng.standard_normal((count, *mean.shape)) @ np.linalg.cholesky(covariance).T


def of_draws(weight, x, draws):
    """A density that is asked at the rows of x only: there it has the means over these draws."""
    scores = {row.tobytes(): score for row, score in zip(x, draws.mean(axis=0) @ weight.T - x, strict=True)}
    return relfit.Density(score=lambda rows: np.array([scores[row.tobytes()] for row in rows]), dim=x.shape[1])


def published_form(models, x):
    """The two KSD², their difference, its variance and the one-sided p-value.

    The published kernel (1 + r²/m²)^−½ is m times relfit's IMQ(m), (m² + r²)^−½.
    """
    kernel, plain = relfit.IMQ(PUBLISHED["median"]), relfit.Complete(variance="projection")
    joint = relfit.estimate(x, {"P": models[0], "Q": models[1]}, kernel=kernel, estimator=plain, rng=0)
    gap = np.array([1.0, -1.0])
    values, covariance = PUBLISHED["median"] * joint.values, PUBLISHED["median"] ** 2 * joint.covariance
    difference, variance = gap @ values, gap @ covariance @ gap
    return (*values, difference, variance), stats.norm.sf(difference / np.sqrt(variance))


def test_the_values_of_the_published_code():
    x = data()
    draws = [posterior(weight, x, 50, np.random.default_rng(12 + k)) for k, weight in enumerate((P, Q))]
    latent = [of_draws(weight, x, z) for weight, z in zip((P, Q), draws, strict=True)]
    for name, models in {"latent": latent, "exact": [exact(P), exact(Q)]}.items():
        numbers, pvalue = published_form(models, x)
        np.testing.assert_allclose(numbers, PUBLISHED[name], rtol=1e-9)
        assert pvalue == pytest.approx(PUBLISHED[f"{name} p-value"], rel=1e-9)
