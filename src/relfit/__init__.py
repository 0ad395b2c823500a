"""relfit: which of several models fit the data best, with statistical guarantees.

>>> import numpy as np, relfit
>>> rng = np.random.default_rng(0)
>>> data = rng.normal(size=(300, 2))
>>> result = relfit.compare(
...     data, {"good": rng.normal(size=(300, 2)), "off": rng.normal(1, 1, (300, 2))}, rng=0
... )
>>> result.best, result.worse.tolist()
('good', [False, True])
"""

from __future__ import annotations

from importlib import import_module

from relfit.util import __version__, attach_from

TYPE_CHECKING = False

# Where each public name is defined. It is imported when it is first used, so that `import
# relfit` is quick.
_HOMES = {
    "relfit.api": (
        "NoisedComparison",
        "as_published",
        "compare",
        "compare_losses",
        "compare_noised",
        "compare_pair",
        "decide",
        "estimate",
        "plan",
        "published",
    ),
    "relfit.data.check_score": ("ScoreCheck", "check_score"),
    "relfit.data.encode": ("Encode", "Encoding"),
    "relfit.data.evals": ("read_evals",),
    "relfit.data.models": ("Density", "Sample"),
    "relfit.data.adapters": ("Sampler", "draw"),
    "relfit.data.scored": ("Scores",),
    "relfit.data.scores": ("scores",),
    "relfit.estimators.base": ("KSD", "MMD", "Complete", "LogLikelihood"),
    "relfit.estimators.designs": ("Block", "Incomplete", "Linear"),
    "relfit.estimators.discrepancy": ("Discrepancy",),
    "relfit.estimators.landmarks": ("Landmarks",),
    "relfit.estimators.locations": ("FSSD", "UME"),
    "relfit.estimators.losses": ("from_elpd", "from_losses"),
    "relfit.kernels.composite": ("Collection", "Decay", "MultiScale", "Select", "Tilted"),
    "relfit.kernels.custom": ("FunctionKernel", "Precomputed", "Radial"),
    "relfit.kernels.standard": ("IMQ", "Gaussian", "Matern", "Polynomial", "RationalQuadratic"),
    "relfit.monitor": ("Monitor", "MonitorResult"),
    "relfit.report.gate": ("assert_not_worse",),
    "relfit.results.comparison": ("Comparison", "PairComparison"),
    "relfit.results.plan": ("Plan",),
    "relfit.settings": ("Compute", "computing"),
    "relfit.stats.joint": ("JointEstimate",),
    "relfit.stats.planning": ("Assumed",),
    "relfit.stats.tests.best_set": ("BestSet",),
    "relfit.stats.tests.carve": ("Carve",),
    "relfit.stats.tests.relmulti": ("RelMulti",),
    "relfit.stats.tests.relpsi": ("RelPSI",),
    "relfit.util.errors": ("BackendUnavailable", "InputError", "RelfitError"),
}
# What draws results, and writes them as pages, is imported when it is first asked for.
attach_from(lambda: import_module("relfit.report"))
_HOME = {name: module for module, names in _HOMES.items() for name in names}

if TYPE_CHECKING:
    from relfit.api import (
        NoisedComparison,
        as_published,
        compare,
        compare_losses,
        compare_noised,
        compare_pair,
        decide,
        estimate,
        plan,
        published,
    )
    from relfit.data.adapters import Sampler, draw
    from relfit.data.check_score import ScoreCheck, check_score
    from relfit.data.encode import Encode, Encoding
    from relfit.data.evals import read_evals
    from relfit.data.models import Density, Sample
    from relfit.data.scored import Scores
    from relfit.data.scores import scores
    from relfit.estimators.base import KSD, MMD, Complete, LogLikelihood
    from relfit.estimators.designs import Block, Incomplete, Linear
    from relfit.estimators.discrepancy import Discrepancy
    from relfit.estimators.landmarks import Landmarks
    from relfit.estimators.locations import FSSD, UME
    from relfit.estimators.losses import from_elpd, from_losses
    from relfit.kernels.composite import Collection, Decay, MultiScale, Select, Tilted
    from relfit.kernels.custom import FunctionKernel, Precomputed, Radial
    from relfit.kernels.standard import IMQ, Gaussian, Matern, Polynomial, RationalQuadratic
    from relfit.monitor import Monitor, MonitorResult
    from relfit.report.gate import assert_not_worse
    from relfit.results.comparison import Comparison, PairComparison
    from relfit.results.plan import Plan
    from relfit.settings import Compute, computing
    from relfit.stats.joint import JointEstimate
    from relfit.stats.planning import Assumed
    from relfit.stats.tests.best_set import BestSet
    from relfit.stats.tests.carve import Carve
    from relfit.stats.tests.relmulti import RelMulti
    from relfit.stats.tests.relpsi import RelPSI
    from relfit.util.errors import BackendUnavailable, InputError, RelfitError

__all__ = [
    "FSSD",
    "IMQ",
    "KSD",
    "MMD",
    "UME",
    "Assumed",
    "BackendUnavailable",
    "BestSet",
    "Block",
    "Carve",
    "Collection",
    "Comparison",
    "Complete",
    "Compute",
    "Decay",
    "Density",
    "Discrepancy",
    "Encode",
    "Encoding",
    "FunctionKernel",
    "Gaussian",
    "Incomplete",
    "InputError",
    "JointEstimate",
    "Landmarks",
    "Linear",
    "LogLikelihood",
    "Matern",
    "Monitor",
    "MonitorResult",
    "MultiScale",
    "NoisedComparison",
    "PairComparison",
    "Plan",
    "Polynomial",
    "Precomputed",
    "Radial",
    "RationalQuadratic",
    "RelMulti",
    "RelPSI",
    "RelfitError",
    "Sample",
    "Sampler",
    "ScoreCheck",
    "Scores",
    "Select",
    "Tilted",
    "__version__",
    "as_published",
    "assert_not_worse",
    "check_score",
    "compare",
    "compare_losses",
    "compare_noised",
    "compare_pair",
    "computing",
    "decide",
    "draw",
    "estimate",
    "from_elpd",
    "from_losses",
    "plan",
    "published",
    "read_evals",
    "scores",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'relfit' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
