"""The problems on which a level must hold: how each is drawn, which models are truly best, how it is compared."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from relfit import Density, Gaussian
from relfit.paper.problems import (
    blobs,
    calibration_1d,
    draw,
    mean_shift_l10,
    mixture_1d,
    rbm_l7,
    rotation_2d,
    stream,
)
from studies.problems import all_tied, graded, signed_axes

FEW, MANY = 50, 1000
# The median distance of the ten-dimensional mean shifts is 4.5: this is 50 times too small.
NARROW = 4.5 / 50
TINY = 1e-6


@dataclass(frozen=True, eq=False)
class Case:
    """Candidates and their truth; `samples` draws (reference, models) from (n, seed), `scores` are None for MMD only.

    `light` asks the best set for fewer Monte-Carlo draws, to save time.
    """

    dim: int
    best: frozenset[str]
    worse: frozenset[str]
    samples: Callable[[int, int], tuple[Any, dict[str, Any]]]
    scores: Mapping[str, Callable[[Any], Any]] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    light: bool = False

    def candidates(self, measure, n, seed):
        """Reference and models as `compare` takes them: samples for MMD, densities for KSD."""
        reference, samples = self.samples(n, seed)
        if measure == "mmd":
            return reference, samples
        return reference, {name: Density(score=score, dim=self.dim) for name, score in (self.scores or {}).items()}


def case(name):
    """The case of this name."""
    family, _, number = name.partition("-l")
    return all_tied_case(int(number)) if family == "tied" else CASES[name]()


def of_problem(problem, **options):
    """A problem of `relfit.paper.problems`, all samples of n rows."""
    scores = {name: problem.models[name].score for name in problem.models}
    return Case(problem.dim, problem.best, problem.worse, lambda n, seed: draw(problem, n, seed), scores, options)


def located(means, freedom=math.inf, **options):
    """Models m_i + noise against noise of independent coordinates, Student's t with `freedom` (inf: normal).

    Means that are signed multiples of the axes are tied when their lengths are: noise, reference and kernel keep
    their law when axes are swapped or turned round.
    """
    length = np.linalg.norm(means, axis=1)
    names = [f"P{i + 1}" for i in range(len(means))]
    best = frozenset(np.array(names)[length <= length.min() * (1.0 + 1e-9)].tolist())
    shift = dict(zip(names, means, strict=True))

    def noise(n, rng):
        size = (n, means.shape[1])
        return rng.standard_normal(size) if math.isinf(freedom) else rng.standard_t(freedom, size)

    def samples(n, seed):
        return noise(n, stream(seed, None)), {k: m + noise(n, stream(seed, k)) for k, m in shift.items()}

    scores = {k: _student_score(m, freedom) for k, m in shift.items()}
    return Case(means.shape[1], best, frozenset(names) - best, samples, scores, options, light=True)


def _student_score(mean, freedom):
    if math.isinf(freedom):
        return lambda x: mean - x
    return lambda x: -(freedom + 1.0) * (x - mean) / (freedom + (x - mean) ** 2)


def all_tied_case(count):
    """`count` tied mean shifts in ten dimensions."""
    return replace(of_problem(all_tied(count)), light=count >= 50)


def with_copy(noise):
    """meanshift-l10 and a copy of P1 (its sample or its density) that is changed by `noise`."""
    plain = of_problem(mean_shift_l10())

    def samples(n, seed):
        reference, models = plain.samples(n, seed)
        moved = models["P1"] + noise * stream(seed, "copy").normal(size=models["P1"].shape)
        return reference, {**models, "copy": moved}

    # A mean moved sideways: as far from the data as before, to first order.
    sideways, first = noise * np.eye(plain.dim)[-1], plain.scores["P1"]
    scores = {**plain.scores, "copy": lambda x: first(x) + sideways}
    return replace(plain, best=plain.best | {"copy"}, samples=samples, scores=scores)


def common_noise(dependence):
    """Ten tied shifts of one noise sample; "paired": of the reference rows, blurred by one noise sample."""
    means = signed_axes(10, 10, 0.5)

    def samples(n, seed):
        reference = stream(seed, None).standard_normal((n, 10))
        noise = stream(seed, "noise").standard_normal((n, 10))
        if dependence == "paired":
            noise = 0.6 * noise + 0.8 * reference
        return reference, {f"P{i + 1}": m + noise for i, m in enumerate(means)}

    return replace(located(means), samples=samples, scores=None, options={"dependence": dependence})


def unequal(rows):
    """Ten tied mean shifts, `rows` rows of each model."""
    problem = all_tied(10)

    def samples(n, seed):
        return draw(problem, n, seed, dict.fromkeys(problem.models, rows))

    return replace(of_problem(problem), samples=samples, scores=None, light=True)


def atoms():
    """Ten coin tosses a row, fair in the reference; in model P_i coin i shows heads with probability .8: all tied."""

    def samples(n, seed):
        chance = 0.5 + 0.3 * np.eye(10)
        models = {f"P{i + 1}": _heads(chance[i], n, stream(seed, f"P{i + 1}")) for i in range(10)}
        return _heads(np.full(10, 0.5), n, stream(seed, None)), models

    return Case(10, frozenset(f"P{i + 1}" for i in range(10)), frozenset(), samples, light=True)


def _heads(chance, n, rng):
    return (rng.random((n, len(chance))) < chance).astype(float)


CASES = {
    "meanshift-l10": lambda: of_problem(mean_shift_l10()),
    "rbm-l7 ε=.18": lambda: of_problem(rbm_l7(0.18)),
    "rbm-l7 ε=.19": lambda: of_problem(rbm_l7(0.19)),
    "rbm-l7 ε=.20": lambda: of_problem(rbm_l7(0.2)),
    "rbm-l7 ε=.22": lambda: of_problem(rbm_l7(0.22)),
    "graded": lambda: of_problem(graded()),
    "blobs": lambda: of_problem(blobs()),
    "mixture": lambda: of_problem(mixture_1d(), kernel=Gaussian(1.0)),
    "rotation": lambda: of_problem(rotation_2d(1.4), kernel=Gaussian(1.0)),
    "pair (.5, −.5)": lambda: of_problem(calibration_1d(0.5, -0.5)),
    "pair (2.5, 2.5)": lambda: of_problem(calibration_1d(2.5, 2.5)),
    "pair (2.5, −2.5)": lambda: of_problem(calibration_1d(2.5, -2.5)),
    "copy": lambda: with_copy(0.0),
    "near-copy": lambda: with_copy(TINY),
    "identical": lambda: located(np.tile(0.5 * np.eye(10)[0], (10, 1))),
    "reference": lambda: located(np.zeros((10, 10))),
    "near-reference": lambda: located(signed_axes(10, 10, 0.02)),
    "d=500": lambda: located(signed_axes(10, 500, 0.5)),
    "t₂": lambda: located(signed_axes(10, 5, 0.5), 2.0),
    "Cauchy": lambda: located(signed_axes(10, 5, 0.5), 1.0),
    "narrow": lambda: replace(of_problem(all_tied(10), kernel=Gaussian(NARROW)), light=True),
    "shared": lambda: common_noise("shared"),
    "paired": lambda: common_noise("paired"),
    "few model rows": lambda: unequal(FEW),
    "few reference rows": lambda: unequal(MANY),
    "atoms": atoms,
    "far-best": lambda: located(np.vstack([0.25 * np.eye(10)[:1], signed_axes(9, 10, 1.0)])),
}
