"""relfit: which of several models fit the data best, with statistical guarantees.

>>> import numpy as np, relfit
>>> rng = np.random.default_rng(0)
>>> data = rng.normal(size=(300, 2))
>>> result = relfit.compare(data, {"good": rng.normal(size=(300, 2)), "off": rng.normal(1, 1, (300, 2))}, rng=0)
>>> result.best, result.worse.tolist()
('good', [False, True])
"""

from relfit.compare import compare, compare_pair, decide, estimate
from relfit.discrepancies import KSD, MMD
from relfit.errors import BackendUnavailable, InputError, RelfitError
from relfit.estimate import JointEstimate
from relfit.kernels import IMQ, Gaussian, Matern, MultiScale, Polynomial, RationalQuadratic
from relfit.models import Density, Sample
from relfit.result import Comparison, PairComparison
from relfit.version import __version__

__all__ = [
    "IMQ",
    "KSD",
    "MMD",
    "BackendUnavailable",
    "Comparison",
    "Density",
    "Gaussian",
    "InputError",
    "JointEstimate",
    "Matern",
    "MultiScale",
    "PairComparison",
    "Polynomial",
    "RationalQuadratic",
    "RelfitError",
    "Sample",
    "__version__",
    "compare",
    "compare_pair",
    "decide",
    "estimate",
]
