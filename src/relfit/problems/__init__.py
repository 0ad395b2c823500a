"""The paper's synthetic problems, with the models that are truly best.

Every distribution is a finite mixture of Gaussians, so it is sampled exactly, its score is closed form, and
for a Gaussian kernel so is its MMD² to the reference (`population_mmd`). Needs only numpy.
"""

from relfit.problems.catalogue import (
    RBM_SEED,
    all_tied,
    blobs,
    calibration_1d,
    graded,
    mean_shift,
    mean_shift_l10,
    mean_shift_pair,
    mixture_1d,
    rbm,
    rbm_l7,
    rotation_2d,
)
from relfit.problems.distributions import Distribution, GaussianBernoulliRBM, GaussianMixture
from relfit.problems.problem import Problem, draw, population_mmd, stream

__all__ = [
    "RBM_SEED",
    "Distribution",
    "GaussianBernoulliRBM",
    "GaussianMixture",
    "Problem",
    "all_tied",
    "blobs",
    "calibration_1d",
    "draw",
    "graded",
    "mean_shift",
    "mean_shift_l10",
    "mean_shift_pair",
    "mixture_1d",
    "population_mmd",
    "rbm",
    "rbm_l7",
    "rotation_2d",
    "stream",
]
