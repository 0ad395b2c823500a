"""Distributions of scipy.stats, and mixtures and kernel density estimates of scipy and
scikit-learn, in closed form.

Mixtures of Gaussians are `gaussian_mixture` for components with their own covariances, and
`shared_mixture` for very many components with one covariance.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist
from scipy.special import gammaln, logsumexp, softmax

from relfit.data.models import Density, Draw
from relfit.util.arrays import Array
from relfit.util.errors import InputError
from relfit.util.libraries import is_instance, loaded
from relfit.util.text import first_line

# The most entries of the matrix of rows × components that are held at once.
_MOST_ENTRIES = 2_000_000
_DISCRETE = 'use discrepancy="loglik", or discrepancy="mmd" with draws from it'
# The kernels of KernelDensity that are positive everywhere.
_SMOOTH_KERNELS = ("gaussian", "exponential")
_LOG_2PI = float(np.log(2.0 * np.pi))

# The derivative of the log density of a standardised variable, given the shape parameters.
_SLOPES: dict[str, Callable[..., Array]] = {
    "norm": lambda z: -z,
    "t": lambda z, df: -(df + 1.0) * z / (df + z**2),
    "cauchy": lambda z: -2.0 * z / (1.0 + z**2),
    "logistic": lambda z: -np.tanh(0.5 * z),
    "laplace": lambda z: -np.sign(z),
    "gumbel_r": lambda z: np.expm1(-z),
    "gumbel_l": lambda z: -np.expm1(z),
}


def scipy_density(value: Any, dim: int) -> Density | None:
    """A frozen distribution or a `gaussian_kde` as a density; None for any other value.

    Scores have a closed form for the distributions in this file, and are finite differences
    of ``logpdf`` for others.
    """
    if not _is_scipy(value):
        return None
    stats = loaded("scipy.stats")
    name = type(value).__name__
    if isinstance(value, stats.gaussian_kde):
        root = _root(value.covariance, "gaussian_kde")
        return shared_mixture(value.weights, value.dataset.T, root)
    if isinstance(value, stats.distributions.rv_frozen):
        return _univariate(value, stats)
    if name == "multivariate_normal_frozen":
        root = _root(np.atleast_2d(value.cov), "multivariate_normal")
        return gaussian_mixture(np.ones(1), np.atleast_1d(value.mean)[None], root[None])
    if name == "multivariate_t_frozen":
        return _multivariate_t(value)
    if not callable(getattr(value, "logpdf", None)):
        raise InputError(
            f"{name}: expected a continuous distribution with logpdf, got one without"
        )

    def log_prob(x: Array) -> Any:
        try:
            return np.reshape(value.logpdf(x[:, 0] if dim == 1 else x), len(x))
        except ValueError as error:
            raise InputError(
                f"{name}: logpdf failed on {len(x)} rows of {dim} columns: {first_line(error)}"
            ) from None

    # A density on the simplex or the sphere has another unit than one of as many columns.
    surface = name in ("dirichlet_frozen", "vonmises_fisher_frozen")
    return Density(
        log_prob=log_prob,
        normalised=None if surface else True,
    )


def scipy_mass(value: Any, dim: int) -> Density | None:
    """A frozen discrete distribution, whose density is its probability mass function; None
    for any other value.
    """
    if not _is_scipy(value) or not hasattr(value, "logpmf"):
        return None

    def log_prob(x: Array) -> Any:
        return value.logpmf(x[:, 0] if dim == 1 else x)

    if np.shape(log_prob(np.zeros((2, dim)))) != (2,):
        name = getattr(getattr(value, "dist", None), "name", type(value).__name__)
        raise InputError(
            f"{name}: expected one distribution of {dim} columns, got an array "
            f"of them or other columns"
        )
    return Density(
        log_prob=lambda x: np.reshape(log_prob(x), len(x)),
        dim=dim,
        normalised=True,
        support="discrete",
    )


def _is_scipy(value: Any) -> bool:
    return loaded("scipy.stats") is not None and type(value).__module__.startswith(
        "scipy.stats"
    )


def scipy_sampler(value: Any) -> Draw | None:
    """Draws from a frozen distribution or a `gaussian_kde`."""
    if is_instance(value, "scipy.stats", "gaussian_kde"):
        return lambda n, rng: value.resample(n, seed=rng).T
    if _is_scipy(value) and hasattr(value, "rvs"):
        return lambda n, rng: np.asarray(value.rvs(size=n, random_state=rng)).reshape(n, -1)
    return None


def _univariate(value: Any, stats: Any) -> Density:
    name = value.dist.name
    if not isinstance(value.dist, stats.rv_continuous):
        raise InputError(
            f"{name}: expected a continuous distribution, got a discrete one; {_DISCRETE}"
        )
    shapes, loc, scale = value.dist._parse_args(*value.args, **value.kwds)
    if any(np.size(part) != 1 for part in (*shapes, loc, scale)):
        raise InputError(
            f"{name}: expected one distribution, got an array of them; freeze it "
            f"with single numbers"
        )

    def score(x: Array) -> Array:
        return np.asarray(_SLOPES[name]((x - loc) / scale, *shapes) / scale)

    slope = score if name in _SLOPES else None
    return Density(slope, lambda x: value.logpdf(x[:, 0]), 1, normalised=True)


def _multivariate_t(value: Any) -> Density:
    """Log density −½(ν + d) log(1 + q/ν) with q = (x − μ)ᵀΣ⁻¹(x − μ): the score is −(ν +
    d)/(ν + q) Σ⁻¹(x − μ).
    """
    root = _root(value.shape, "multivariate_t")
    df = float(value.df)
    d = value.dim
    if np.isinf(df):
        return gaussian_mixture(np.ones(1), value.loc[None], root[None])

    def score(x: Array) -> Array:
        z = (x - value.loc) @ root
        return np.asarray(-(df + d) / (df + (z**2).sum(axis=1, keepdims=True)) * (z @ root.T))

    return Density(
        score,
        lambda x: np.reshape(value.logpdf(x), len(x)),
        d,
        normalised=True,
        support="whole",
    )


def _floats(values: Any) -> Array:
    return np.asarray(values, dtype=np.float64)


def _root(covariance: Array, name: str) -> Array:
    """R with RRᵀ = C⁻¹."""
    try:
        return np.asarray(np.linalg.inv(np.linalg.cholesky(_floats(covariance))).T)
    except np.linalg.LinAlgError:
        raise InputError(
            f"{name}: expected a positive definite covariance, got a singular one"
        ) from None


def sklearn_density(value: Any, dim: int) -> Density | None:
    """A fitted mixture or kernel density estimate as a density; None for any other value.

    A BayesianGaussianMixture is the mixture of its fitted weights, means and covariances,
    from which its ``sample`` draws. (Its ``score_samples`` is a variational bound, and not
    the log of a density.)
    """
    is_mixture = is_instance(
        value, "sklearn.mixture", "GaussianMixture", "BayesianGaussianMixture"
    )
    if not (is_mixture or is_instance(value, "sklearn.neighbors", "KernelDensity")):
        return None
    if not hasattr(value, "means_" if is_mixture else "tree_"):
        raise InputError(
            f"{type(value).__name__}: expected a fitted model, got one that is "
            f"not fitted; call fit first"
        )
    return _mixture(value) if is_mixture else _kernel_density(value)


def sklearn_bounded(value: Any, dim: int) -> Density | None:
    """A kernel density estimate whose kernel ends, which only its log density can compare;
    None for other values.
    """
    is_estimate = is_instance(value, "sklearn.neighbors", "KernelDensity")
    if not is_estimate or not hasattr(value, "tree_") or value.kernel in _SMOOTH_KERNELS:
        return None
    return Density(
        log_prob=value.score_samples,
        dim=int(value.n_features_in_),
        normalised=value.metric == "euclidean",
    )


def sklearn_sampler(value: Any) -> Draw | None:
    """Draws from any fitted estimator that has ``sample``."""
    if not type(value).__module__.startswith("sklearn.") or not hasattr(value, "sample"):
        return None
    if not any(name.endswith("_") for name in vars(value)):
        return None

    def draw(n: int, rng: np.random.Generator) -> Any:
        seed = int(rng.integers(2**31))
        if "random_state" in inspect.signature(value.sample).parameters:
            return value.sample(n, random_state=seed)
        # Mixtures draw from their own random_state: it is set on a copy, and the user's object
        # stays as it is.
        estimator = copy.copy(value)
        estimator.random_state = seed
        rows, components = estimator.sample(n)
        # The rows are sorted by component, which a split or pairing by row must not see.
        return rows[rng.permutation(len(components))]

    return draw


def _mixture(value: Any) -> Density:
    weights = _floats(value.weights_)
    means = _floats(value.means_)
    roots = _floats(value.precisions_cholesky_)
    k, d = means.shape
    if value.covariance_type == "tied":
        return shared_mixture(weights, means, roots)
    if value.covariance_type in ("diag", "spherical"):
        roots = roots.reshape(k, -1, 1) * np.eye(d)
    return gaussian_mixture(weights, means, roots)


def _kernel_density(value: Any) -> Density:
    """Gaussian, or p(x) ∝ Σ_j w_j exp(−‖x − x_j‖/h) with ``∇ log p = Σ_j r_j(x) (x_j −
    x)/(h‖x − x_j‖)``.

    exp(−‖x‖/h) has the integral h^d Γ(d) 2π^{d/2}/Γ(d/2), the last factor being the area of
    the unit sphere.
    """
    if value.metric != "euclidean" or value.kernel not in _SMOOTH_KERNELS:
        raise InputError(
            f'KernelDensity: expected kernel "gaussian" or "exponential" and metric '
            f'"euclidean", got {value.kernel!r} '
            f"and {value.metric!r}; other kernels are 0 away from the points, but KSD needs a "
            f"positive density"
        )
    points = _floats(value.tree_.data)
    h = float(value.bandwidth_)
    weights = getattr(value.tree_, "sample_weight", None)
    weights = np.ones(len(points)) if weights is None else _floats(weights)
    weights = weights / weights.sum()
    if value.kernel == "gaussian":
        return shared_mixture(weights, points, np.eye(points.shape[1]) / h)
    heights, points = _present(weights, points)
    d = points.shape[1]
    volume = (
        d * np.log(h) + gammaln(d) + np.log(2.0) + 0.5 * d * np.log(np.pi) - gammaln(0.5 * d)
    )

    def score(z: tuple[Array, Array], posterior: Array) -> Array:
        x, distance = z
        pull = np.divide(
            posterior, h * distance, out=np.zeros_like(posterior), where=distance > 0.0
        )
        return np.asarray(pull @ points - pull.sum(axis=1, keepdims=True) * x)

    return _mixture_density(
        lambda x: (x, cdist(x, points)),
        lambda z: heights - z[1] / h,
        score,
        len(points),
        d,
        -float(volume),
    )


def gaussian_mixture(weights: Array, means: Array, roots: Array) -> Density:
    """Σ_k w_k N(μ_k, Λ_k⁻¹) with Λ_k = R_kR_kᵀ: weights (K,), means (K, d), roots (K, d, d).

    ``∇ log p(x) = −Σ_k r_k(x) R_kR_kᵀ(x − μ_k)``, with r_k(x) the posterior of component k.

    >>> pair = gaussian_mixture(
    ...     np.array([0.5, 0.5]), np.array([[-1.0], [1.0]]), np.ones((2, 1, 1))
    ... )
    >>> bool(np.isclose(pair.scores(np.array([[0.3]]))[0, 0], np.tanh(0.3) - 0.3))
    True
    """
    heights, means, roots = _present(weights, means, roots)
    heights = heights + np.linalg.slogdet(roots)[1]
    return _mixture_density(
        lambda x: np.stack(
            [(x - mean) @ root for mean, root in zip(means, roots, strict=True)], axis=1
        ),
        lambda z: heights - 0.5 * (z**2).sum(axis=2),
        lambda z, posterior: -np.einsum("nk,nkj,kij->ni", posterior, z, roots, optimize=True),
        means.size,
        means.shape[1],
        -0.5 * means.shape[1] * _LOG_2PI,
    )


def shared_mixture(weights: Array, means: Array, root: Array) -> Density:
    """Σ_k w_k N(μ_k, Λ⁻¹) with one Λ = RRᵀ, root R (d, d), such as a Gaussian kernel density
    estimate.

    ``∇ log p(x) = Λ(Σ_k r_k(x) μ_k − x)``: one matrix product for all components.
    """
    heights, kept = _present(weights, means)
    # Rows and means are taken relative to one of the means, so that a common offset costs no
    # digits.
    origin = means[0]
    centres = (kept - origin) @ root
    return _mixture_density(
        lambda x: (x - origin) @ root,
        lambda z: heights - 0.5 * cdist(z, centres, "sqeuclidean"),
        lambda z, posterior: (posterior @ centres - z) @ root.T,
        len(heights),
        means.shape[1],
        float(np.linalg.slogdet(root)[1]) - 0.5 * means.shape[1] * _LOG_2PI,
    )


def _present(weights: Array, *parts: Array) -> list[Array]:
    """The logarithms of positive weights, and the parts of these components."""
    kept = weights > 0.0
    return [np.log(weights[kept]), *(part[kept] for part in parts)]


def _mixture_density(
    transform: Callable[[Array], Any],
    log_joint: Callable[[Any], Any],
    score: Callable[..., Any],
    width: int,
    dim: int,
    constant: float,
) -> Density:
    """The density e^c Σ_k exp J_k(z), with z = transform(x), J = log_joint(z) (n, K), and
    score(z, posteriors of J).

    It is evaluated at pieces of the rows, because each row takes `width` numbers.
    """
    step = max(1, _MOST_ENTRIES // width)

    def in_pieces(function: Callable[[Any], Array]) -> Callable[[Array], Array]:
        return lambda x: np.concatenate(
            [function(transform(x[a : a + step])) for a in range(0, len(x), step)]
        )

    scores = in_pieces(lambda z: score(z, softmax(log_joint(z), axis=1)))
    log_probs = in_pieces(lambda z: logsumexp(log_joint(z), axis=1) + constant)
    return Density(scores, log_probs, dim, normalised=True, support="whole")
