"""The fitted models of the Chicago data and all that the trials need of them, computed once and kept in one file.

A score is a function of the point alone, so the scores of every model at every test point are tabulated, and a trial
looks up those of the points it draws: the workers need neither torch nor scikit-learn.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.adapters import adapt
from relfit.errors import InputError
from relfit.experiments.cache import cache_folder, digest, read_arrays, write_arrays
from relfit.experiments.flows import Flow, trained
from relfit.experiments.given import Tell, library
from relfit.models import Density

Array = NDArray[np.float64]

NAME = "table2-chicago"
MIXTURES = {"MoG (1)": 1, "MoG (2)": 2, "MoG (5)": 5}
MADE, MAF = "MADE", "MAF (5)"
L2, LITTLE_L2 = 1e-2, 1e-6
# The same network from other random weights, trained in larger steps, with less of the penalty, with the plain base,
# and with both of these; again from other weights, for what they do by themselves.
VARIANTS: dict[str, dict[str, Any]] = {
    "seed 1": {"seed": 1},
    "seed 2": {"seed": 2},
    "Adam .001": {"rate": 1e-3},
    "little L2": {"l2": LITTLE_L2},
    "normal base": {"components": 0},
    "normal base, little L2": {"components": 0, "l2": LITTLE_L2},
    "normal base, little L2, seed 1": {"components": 0, "l2": LITTLE_L2, "seed": 1},
    "normal base, little L2, seed 2": {"components": 0, "l2": LITTLE_L2, "seed": 2},
}
SPLIT_SEED = 0
EDGE = 0.3  # of the pictures, around the test points
# Raise it when a change of the code changes the models or what is kept of them.
VERSION = 1


@dataclass(frozen=True)
class Recipe:
    """How many rows train, how many a trial draws, and the flows' size."""

    train: int = 7000
    draw: int = 2000
    hidden: int = 512
    epochs: int = 600
    pixels: int = 120
    variants: tuple[str, ...] = tuple(VARIANTS)

    def flows(self) -> dict[str, Flow]:
        """Every flow by its name."""
        made, maf = (Flow(k, base, L2, hidden=self.hidden, epochs=self.epochs) for k, base in ((1, 0), (5, 5)))
        variants = {f"{MAF}, {words}": replace(maf, **VARIANTS[words]) for words in self.variants}
        return {MADE: made, MAF: maf, **variants}


FULL = Recipe()
QUICK = Recipe(train=1000, draw=300, hidden=24, epochs=5, pixels=40, variants=("normal base, little L2",))


@dataclass(frozen=True)
class Study:
    """Test points (n, 2), standardised; for each of l models scores (l, n, 2), log densities (l, n) and a picture."""

    names: tuple[str, ...]
    points: Array
    scores: Array
    log_probs: Array
    pictures: Array
    extent: tuple[float, float, float, float]

    def nll(self, name: str) -> float:
        """Minus the mean log density of the test points."""
        return float(-self.log_probs[self.names.index(name)].mean())

    def density(self, name: str) -> Density:
        """The model as a density whose scores are looked up; it knows those at the test points only."""
        scores = self.scores[self.names.index(name)]
        keys = _keys(self.points)
        order = np.argsort(keys)

        def score(x: Array) -> Array:
            place = np.searchsorted(keys, _keys(x), sorter=order)
            rows = order[np.minimum(place, len(order) - 1)]
            if not np.array_equal(self.points[rows], x):
                raise InputError(f"{name}: expected test points of the study, got others")
            return np.asarray(scores[rows])

        return Density(score=score, dim=2)


def _keys(points: Array) -> NDArray[np.complex128]:
    """Points of the plane as complex numbers, which sort; equal points share their scores."""
    return np.asarray(points[:, 0] + 1j * points[:, 1])


def split(rows: Array, train: int) -> tuple[Array, Array]:
    """Training and test rows after a seeded shuffle, standardised by the mean and deviation of the training rows."""
    shuffled = rows[np.random.default_rng(SPLIT_SEED).permutation(len(rows))]
    centre, spread = shuffled[:train].mean(axis=0), shuffled[:train].std(axis=0)
    standard = (shuffled - centre) / spread
    return standard[:train], standard[train:]


def prepare(rows: Array, recipe: Recipe, tell: Tell) -> dict[str, str]:
    """Fit what is not in the cache; the study's name there and the digest of its contents."""
    least = recipe.train + recipe.draw
    if len(rows) < least:
        raise InputError(f"--data: expected {least} rows or more ({recipe.train} train), got {len(rows)}")
    flows = {name: asdict(flow) for name, flow in recipe.flows().items()}
    key = digest(rows.tobytes(), json.dumps([VERSION, asdict(recipe), MIXTURES, flows]).encode())
    path = _path(key)
    if not path.exists():
        train, test = split(rows, recipe.train)
        _write(path, fit(train, recipe, tell), test, recipe)
    return {"study": key, "contents": digest(path.read_bytes())}


def fit(train: Array, recipe: Recipe, tell: Tell) -> dict[str, Any]:
    """Every model, fitted to the training rows by maximum likelihood."""
    mixture = library(NAME, "sklearn.mixture", "scikit-learn").GaussianMixture
    mixtures = {name: mixture(k, n_init=5, random_state=0).fit(train) for name, k in MIXTURES.items()}
    folder = cache_folder("chicago")
    flows = {name: trained(name, flow, train, folder, tell) for name, flow in recipe.flows().items()}
    return {**mixtures, **flows}


def _write(path: Path, models: Mapping[str, Any], test: Array, recipe: Recipe) -> None:
    low, high = test.min(axis=0) - EDGE, test.max(axis=0) + EDGE
    across, up = (np.linspace(low[k], high[k], recipe.pixels) for k in (0, 1))
    grid = np.stack(np.meshgrid(across, up), axis=-1).reshape(-1, 2)
    pictures = [np.exp(log_density(model, grid)).reshape(recipe.pixels, -1) for model in models.values()]
    arrays = {
        "names": np.array(list(models)),
        "points": test,
        "scores": np.stack([scores(model, test) for model in models.values()]),
        "log_probs": np.stack([log_density(model, test) for model in models.values()]),
        "pictures": np.stack(pictures).astype(np.float32),
        "extent": np.array([low[0], high[0], low[1], high[1]]),
    }
    write_arrays(path, arrays)


def scores(model: Any, x: Array) -> Array:
    """∇ log p at the rows of x (n, 2), as relfit takes it from the fitted object."""
    density = adapt(model, 2)
    assert density is not None  # noqa: S101  (mixtures and flows are known to the adapters)
    return density.scores(x)


def log_density(model: Any, x: Array) -> Array:
    """log p at the rows of x (n,), normalised (a `Density` may leave out the constant)."""
    if hasattr(model, "score_samples"):
        return np.asarray(model.score_samples(x))
    torch = library(NAME, "torch", "torch zuko")
    with torch.no_grad():
        return np.asarray(model().log_prob(torch.from_numpy(x)).numpy())


def _path(key: str) -> Path:
    return cache_folder("chicago") / f"study-{key}.npz"


@lru_cache(maxsize=2)
def load(key: str, contents: str) -> Study:
    """The study of this name, if its file is still the one that was prepared."""
    path = _path(key)
    if not path.exists() or digest(path.read_bytes()) != contents:
        raise InputError(f"{NAME}: {str(path)!r} is not what was prepared; run the command again")
    stored = read_arrays(path)
    left, right, bottom, top = (float(edge) for edge in stored.pop("extent"))
    names = tuple(str(name) for name in stored.pop("names"))
    return Study(names=names, extent=(left, right, bottom, top), **stored)
