"""relfit: which of several models fit the data best, with statistical guarantees.

>>> import numpy as np, relfit
>>> rng = np.random.default_rng(0)
>>> data = rng.normal(size=(300, 2))
>>> result = relfit.compare(data, {"good": rng.normal(size=(300, 2)), "off": rng.normal(1, 1, (300, 2))}, rng=0)
>>> result.best, result.worse.tolist()
('good', [False, True])
"""

from relfit.api import NoisedComparison, compare, compare_noised, compare_pair, decide, estimate, published
from relfit.data.check_score import ScoreCheck, check_score
from relfit.data.models import Density, Sample
from relfit.data.samplers import Sampler, draw
from relfit.estimators.base import KSD, MMD
from relfit.estimators.locations import FSSD, UME, Nystroem
from relfit.estimators.losses import from_losses
from relfit.kernels.choice import Collection, Select
from relfit.kernels.composite import Decay, MultiScale, Tilted
from relfit.kernels.custom import Radial
from relfit.kernels.precomputed import Precomputed
from relfit.kernels.standard import IMQ, Gaussian, Matern, Polynomial, RationalQuadratic
from relfit.results.comparison import Comparison
from relfit.results.pair import PairComparison
from relfit.results.plan import Plan
from relfit.results.planning import Assumed, plan
from relfit.stats.joint import JointEstimate
from relfit.util.errors import BackendUnavailable, InputError, RelfitError
from relfit.util.version import __version__

__all__ = [
    "FSSD",
    "IMQ",
    "KSD",
    "MMD",
    "UME",
    "Assumed",
    "BackendUnavailable",
    "Collection",
    "Comparison",
    "Decay",
    "Density",
    "Gaussian",
    "InputError",
    "JointEstimate",
    "Matern",
    "MultiScale",
    "NoisedComparison",
    "Nystroem",
    "PairComparison",
    "Plan",
    "Polynomial",
    "Precomputed",
    "Radial",
    "RationalQuadratic",
    "RelfitError",
    "Sample",
    "Sampler",
    "ScoreCheck",
    "Select",
    "Tilted",
    "__version__",
    "check_score",
    "compare",
    "compare_noised",
    "compare_pair",
    "decide",
    "draw",
    "estimate",
    "from_losses",
    "plan",
    "published",
]
