"""Two problems beside the paper's, and the true discrepancies of problems made of Gaussians, for Gaussian kernels.

Every true value is exact: a closed form under k(x, y) = exp(−‖x−y‖²/(2b²)).
"""

import numpy as np

from relfit.paper.problems import GaussianMixture, mean_shift


def all_tied(l):
    """l models N(m_i, I), ‖m_i‖ = .5, d = 10, all tied for an isotropic kernel, by rotation about R = N(0, I).

    m_i = +.5e₁, −.5e₁, +.5e₂, … up to 20 models; otherwise random directions, uniform on the sphere.
    """
    if l <= 20:
        return mean_shift(signed_axes(l, 10, 0.5))
    directions = np.random.default_rng(0).standard_normal((l, 10))
    return mean_shift(0.5 * directions / np.linalg.norm(directions, axis=1, keepdims=True))


def graded():
    """Ten models at .5e₁, .55e₁, …, .95e₁, d = 10: each a little worse than the one before."""
    return mean_shift(np.linspace(0.5, 0.95, 10)[:, None] * np.eye(10)[:1])


def signed_axes(count, d, length):
    """+e₁, −e₁, +e₂, … times `length`, (count, d)."""
    axes = np.repeat(np.eye(d), 2, axis=0)[:count]
    return length * axes * np.where(np.arange(count) % 2, -1.0, 1.0)[:, None]


def mean_kernel(a, b, bandwidth):
    """E k(x, y) of independent x from the mixture a and y from the mixture b.

    For Gaussians with covariances A and B: |I + (A+B)/b²|^(−½) exp(−½ δᵀ(b²I + A + B)⁻¹δ), δ = μ_x − μ_y.
    """
    d = a.means.shape[1]
    spread = np.eye(d) * bandwidth**2 + a.covariance + b.covariance
    gap = a.means[:, None, :] - b.means[None, :, :]
    exponent = -0.5 * np.einsum("ijk,kl,ijl->ij", gap, np.linalg.inv(spread), gap)
    scale = np.exp(d * np.log(bandwidth) - 0.5 * np.linalg.slogdet(spread)[1])
    return float(scale * (a.weights @ np.exp(exponent) @ b.weights))


def true_mmd(problem, bandwidth):
    """MMD² of every model to the reference: (l,), in the order of the models.

    >>> from relfit.paper.problems import mean_shift_pair
    >>> values = true_mmd(mean_shift_pair(), bandwidth=3.0)
    >>> bool(values[0] == values[1])
    True
    """
    r = problem.reference
    within = [mean_kernel(p, p, bandwidth) - 2.0 * mean_kernel(p, r, bandwidth) for p in problem.models.values()]
    return np.array(within) + mean_kernel(r, r, bandwidth)


def true_ksd(problem, bandwidth):
    """KSD² of every model: (l,), for a Gaussian reference and Gaussian models.

    D = E δ(x)·δ(y) k(x,y) with δ(x) = M(x − m) + c the difference of the scores, m the reference's mean. Under the
    density proportional to k(x,y) r(x) r(y) the rows are Gaussian: D = E k · (tr M Q Mᵀ + ‖c‖²), Q = Cov(x, y) there.
    """
    reference = problem.reference
    mean, eye = reference.means[0], np.eye(problem.dim)
    tie = np.kron(np.array([[1.0, -1.0], [-1.0, 1.0]]), eye) / bandwidth**2
    precision = np.kron(np.eye(2), np.linalg.inv(reference.covariance)) + tie
    scale = (np.linalg.det(precision) * np.linalg.det(reference.covariance) ** 2) ** -0.5
    across = np.linalg.inv(precision)[: problem.dim, problem.dim :]
    values = []
    for model in problem.models.values():
        at = np.vstack([mean, mean + eye])
        delta = model.score(at) - reference.score(at)
        slope = (delta[1:] - delta[0]).T
        values.append(scale * (np.trace(slope @ across @ slope.T) + delta[0] @ delta[0]))
    return np.array(values)


def mirrored_points(d, pairs=5):
    """2·pairs locations that the reflection of the first axis maps onto each other: N(±m e₁, I) are tied there."""
    points = np.random.default_rng(7).standard_normal((pairs, d))
    return np.concatenate([points, points * np.where(np.arange(d) == 0, -1.0, 1.0)])


def true_ume(problem, points, bandwidth):
    """``mean_j (E k(x,v_j) − E k(r,v_j))²`` of every model at the locations v_j = `points`: (l,).

    >>> from relfit.paper.problems import mean_shift_pair
    >>> values = true_ume(mean_shift_pair(2), mirrored_points(2), bandwidth=1.0)
    >>> bool(np.isclose(values[0], values[1], rtol=1e-12))
    True
    """
    ours = mean_embedding(problem.reference, points, bandwidth)
    theirs = [mean_embedding(model, points, bandwidth) for model in problem.models.values()]
    return np.array([np.mean(np.square(x - ours)) for x in theirs])


def true_fssd(problem, points, bandwidth):
    """FSSD² of mean shifts N(m_i, I) of N(0, I): scores differ by m_i, so it is ``‖m_i‖² mean_j (E k(r,v_j))²/d``."""
    means = np.array([model.means[0] for model in problem.models.values()])
    seen = np.mean(np.square(mean_embedding(problem.reference, points, bandwidth)))
    return np.asarray(np.square(means).sum(axis=1) * seen / problem.dim)


def mean_embedding(mixture, points, bandwidth):
    """E k(x, v_j) of x from the mixture: (J,)."""
    still = np.zeros((points.shape[1],) * 2)
    at = [GaussianMixture(np.ones(1), point[None], still) for point in points]
    return np.array([mean_kernel(mixture, point, bandwidth) for point in at])
