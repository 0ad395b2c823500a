"""relfit: which of several models fit the data best, with statistical guarantees.

>>> import numpy as np, relfit
>>> rng = np.random.default_rng(0)
>>> data = rng.normal(size=(300, 2))
>>> result = relfit.compare(data, {"good": rng.normal(size=(300, 2)), "off": rng.normal(1, 1, (300, 2))}, rng=0)
>>> result.best, result.worse.tolist()
('good', [False, True])
"""

from relfit.adapters.samplers import Sampler
from relfit.check import ScoreCheck, check_score
from relfit.compare import compare, compare_pair, decide, estimate
from relfit.discrepancies import FSSD, KSD, MMD, UME, Nystroem
from relfit.errors import BackendUnavailable, InputError, RelfitError
from relfit.estimate import JointEstimate
from relfit.inputs import draw
from relfit.kernels import (
    IMQ,
    Collection,
    Decay,
    Gaussian,
    Matern,
    MultiScale,
    Polynomial,
    Precomputed,
    Radial,
    RationalQuadratic,
    Select,
    Tilted,
)
from relfit.losses import from_losses
from relfit.models import Density, Sample
from relfit.noise import NoisedComparison, compare_noised
from relfit.planning import Assumed, Plan, plan
from relfit.published import published
from relfit.result import Comparison, PairComparison
from relfit.version import __version__

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
