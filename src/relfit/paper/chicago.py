"""Table 2: which density fits the robberies of Chicago? Mixtures, MADE and MAF by KSD on
points no model has seen.

The flows are masked autoregressive ones by zuko, trained by maximum likelihood with an L2
penalty and early stopping, and kept once trained. A score is a function of the point alone,
so the scores of every model at every test point are tabulated in one file, the study, and a
trial looks up those of the points it draws: the workers need neither torch nor scikit-learn.
"""

from __future__ import annotations

import copy
import io
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure

from relfit import IMQ, Density, Gaussian, decide, estimate
from relfit.data.adapters import adapt
from relfit.paper.data import DataOptions, Log, cache_folder, digest, robberies
from relfit.paper.experiment import (
    ALPHA,
    FAINT,
    INK,
    PLAIN,
    Cell,
    Check,
    Decision,
    Experiment,
    Results,
    Row,
    Setting,
    Tests,
    beside,
    decided,
    draw_bars,
    relmulti,
    verdicts,
)
from relfit.paper.table1 import KEYS
from relfit.util.arrays import Array
from relfit.util.errors import BackendUnavailable, InputError
from relfit.util.files import write_bytes_atomic

NAME = "table2-chicago"
# Raise it when a change of the code changes the models or what is kept of them.
VERSION = 1
SPLIT_SEED = 0
HELD_OUT = 0.1  # of the training rows, for early stopping
LINE_SECONDS = 10.0  # between two progress lines
EDGE = 0.3  # of the pictures, around the test points

MIXTURES = {"MoG (1)": 1, "MoG (2)": 2, "MoG (5)": 5}
MADE = "MADE"
MAF = "MAF (5)"
LINEUP = (*MIXTURES, MADE, MAF)
L2 = 1e-2
LITTLE_L2 = 1e-6
# The same network from other random weights, trained in larger steps, with less of the penalty,
# with the plain base, and with both of these; again from other weights, to show what those
# alone change.
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
KERNELS: dict[str, IMQ | Gaussian] = {"IMQ": IMQ(), "Gaussian": Gaussian()}
# The text of the paper, and the authors' code.
CORRECTION = {"IMQ": "by", "Gaussian": "bonferroni"}
TITLES = {"IMQ": "IMQ, BY", "Gaussian": "Gaussian, Bonferroni"}
CORRECTED = ((50, "by"), (50, "bonferroni"), (50, "none"), (25, "by"))
SPLITS: Tests = {
    f"RelMulti {percent}%, {correction}": ("models", relmulti(percent / 100, correction))
    for percent, correction in CORRECTED
}
BY_LIKELIHOOD: Tests = {"NLL": ("models", {"discrepancy": "loglik"})}
WHOLE = {"RelPSI": "relpsi", "best set": "best-set", "carving": "carve"}
SHOWN_TOO = f"{MAF}, normal base, little L2"
PAPER_NLL = dict(zip(LINEUP, (2.64, 2.55, 2.38, 2.53, 2.25), strict=True))
NLL_REACH = dict(zip(LINEUP, (0.05, 0.05, 0.05, 0.05, 0.08), strict=True))
PAPER = {
    ("RelPSI", "rej."): dict(zip(LINEUP, (0.42, 0.28, 0.02, 0.26, 0.0), strict=True)),
    ("RelMulti", "rej."): dict(zip(LINEUP, (0.22, 0.07, 0.0, 0.04, 0.0), strict=True)),
    ("RelPSI", "sel."): dict(zip(LINEUP, (0.0, 0.01, 0.62, 0.01, 0.36), strict=True)),
    ("RelMulti", "sel."): dict(zip(LINEUP, (0.0, 0.08, 0.38, 0.03, 0.51), strict=True)),
}


@dataclass(frozen=True)
class Flow:
    """How a flow is built and trained; with the training rows it determines the weights, up
    to rounding.

    Attributes:
        transforms: autoregressive layers, each a network with one hidden layer; one layer is
            MADE.
        components: of the Gaussian mixture that is the base, fitted with the rest; 0 is a
            standard normal.
        l2: λ of the penalty λ/2·Σw² on the weights of the layers, biases and base left out.
        rate: learning rate of Adam.
        patience: epochs without a better held-out likelihood before it stops.
    """

    transforms: int
    components: int
    l2: float
    hidden: int = 512
    rate: float = 1e-4
    batch: int = 100
    patience: int = 30
    epochs: int = 600
    seed: int = 0


def library(name: str) -> Any:
    """An optional library, imported here and nowhere at the top of a module."""
    package = name.partition(".")[0]
    try:
        return import_module(name)
    except ImportError as error:
        install = "scikit-learn" if package == "sklearn" else "torch zuko"
        raise BackendUnavailable(
            f"{NAME}: needs {package}, which is not installed; pip install {install}"
        ) from error


def trained(name: str, flow: Flow, rows: Array, log: Log) -> Any:
    """The flow in double precision, from the cache if it was trained before on these rows in
    this way.
    """
    torch = library("torch")
    recipe = json.dumps(asdict(flow), sort_keys=True).encode()
    path = cache_folder("chicago") / f"flow-{digest(rows.tobytes(), recipe)}.pt"
    network = build(flow)
    if not path.exists():
        buffer = io.BytesIO()
        torch.save(train(name, network, flow, rows, log), buffer)
        write_bytes_atomic(path, buffer.getvalue())
    # Only the weights are read: code in the file is never run.
    network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    return network.eval().requires_grad_(False).double()


def build(flow: Flow) -> Any:
    """The flow on the plane with the random weights of its seed."""
    torch = library("torch")
    zuko = library("zuko")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(flow.seed)
        network = zuko.flows.MAF(2, transforms=flow.transforms, hidden_features=(flow.hidden,))
        if not flow.components:
            return network
        return zuko.flows.Flow(
            network.transform, zuko.mixtures.GMM(2, components=flow.components)
        )


def train(name: str, network: Any, flow: Flow, rows: Array, log: Log) -> dict[str, Any]:
    """The weights with the highest likelihood of the held-out rows."""
    torch = library("torch")
    kept = len(rows) - round(HELD_OUT * len(rows))
    data = torch.as_tensor(rows, dtype=torch.float32)
    fitted = data[:kept]
    held_out = data[kept:]
    weights: list[Any] = []
    others: list[Any] = []
    for part, values in network.named_parameters():
        penalised = part.startswith("transform") and values.ndim == 2
        (weights if penalised else others).append(values)
    # Adam's weight decay is the gradient λw of the penalty.
    optimiser = torch.optim.Adam(
        [{"params": weights, "weight_decay": flow.l2}, {"params": others}], lr=flow.rate
    )
    order = torch.Generator().manual_seed(flow.seed)
    best = np.inf
    best_epoch = -1
    state = {}
    start = last = time.monotonic()
    threads = torch.get_num_threads()
    # One thread, so that the order of the sums, and with it the weights, is the same on every
    # run.
    torch.set_num_threads(1)
    try:
        for epoch in range(flow.epochs):
            for batch in torch.randperm(kept, generator=order).split(flow.batch):
                optimiser.zero_grad()
                (-network().log_prob(fitted[batch]).mean()).backward()
                optimiser.step()
            with torch.no_grad():
                loss = -network().log_prob(held_out).mean().item()
            if loss < best:
                best = loss
                best_epoch = epoch
                state = copy.deepcopy(network.state_dict())
            if time.monotonic() - last > LINE_SECONDS:
                last = time.monotonic()
                log(
                    f"{name}: epoch {epoch}, held-out NLL {loss:.3f} (best {best:.3f}), "
                    f"{last - start:.0f} s so far"
                )
            if epoch - best_epoch >= flow.patience:
                break
    finally:
        torch.set_num_threads(threads)
    log(
        f"{name}: trained, held-out NLL {best:.3f} at epoch {best_epoch}, "
        f"{time.monotonic() - start:.0f} s"
    )
    return state


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
        made, maf = (
            Flow(k, base, L2, hidden=self.hidden, epochs=self.epochs)
            for k, base in ((1, 0), (5, 5))
        )
        return {MADE: made, MAF: maf} | {
            f"{MAF}, {words}": replace(maf, **VARIANTS[words]) for words in self.variants
        }


FULL = Recipe()
QUICK = Recipe(
    train=1000, draw=300, hidden=24, epochs=5, pixels=40, variants=("normal base, little L2",)
)


@dataclass(frozen=True)
class Study:
    """Test points (n, 2), standardised; for each of l models scores (l, n, 2), log densities
    (l, n) and a picture.
    """

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
        """The model as a density whose scores are looked up; it knows those at the test
        points only.
        """
        return Density(score=self._looked_up(name, self.scores), dim=2)

    def likelihood(self, name: str) -> Density:
        """The same with its log densities in place of the scores."""
        return Density(log_prob=self._looked_up(name, self.log_probs), dim=2, normalised=True)

    def _looked_up(self, name: str, table: Array) -> Callable[[Array], Array]:
        values = table[self.names.index(name)]
        # Points of the plane as complex numbers, which sort; equal points share their values.
        keys = self.points[:, 0] + 1j * self.points[:, 1]
        order = np.argsort(keys)

        def look_up(x: Array) -> Array:
            place = np.searchsorted(keys, x[:, 0] + 1j * x[:, 1], sorter=order)
            rows = order[np.minimum(place, len(order) - 1)]
            if not np.array_equal(self.points[rows], x):
                raise InputError(f"{name}: expected test points of the study, got others")
            return np.asarray(values[rows])

        return look_up


def split(rows: Array, train: int) -> tuple[Array, Array]:
    """Training and test rows after a seeded shuffle, standardised by the mean and deviation
    of the training rows.
    """
    shuffled = rows[np.random.default_rng(SPLIT_SEED).permutation(len(rows))]
    centre = shuffled[:train].mean(axis=0)
    spread = shuffled[:train].std(axis=0)
    standard = (shuffled - centre) / spread
    return standard[:train], standard[train:]


def prepare(options: DataOptions, quick: bool, log: Log) -> Setting:
    """Fit what is not in the cache; the study's name there and the digest of its contents."""
    rows = robberies(options, log)
    recipe = QUICK if quick else FULL
    least = recipe.train + recipe.draw
    if len(rows) < least:
        raise InputError(
            f"--data: expected {least} rows or more ({recipe.train} train), got {len(rows)}"
        )
    flows = {name: asdict(flow) for name, flow in recipe.flows().items()}
    key = digest(
        rows.tobytes(), json.dumps([VERSION, asdict(recipe), MIXTURES, flows]).encode()
    )
    path = _path(key)
    if not path.exists():
        train, test = split(rows, recipe.train)
        _write(path, fit(train, recipe, log), test, recipe)
    return {"study": key, "contents": digest(path.read_bytes())}


def fit(train: Array, recipe: Recipe, log: Log) -> dict[str, Any]:
    """Every model, fitted to the training rows by maximum likelihood."""
    mixture = library("sklearn.mixture").GaussianMixture
    mixtures = {
        name: mixture(k, n_init=5, random_state=0).fit(train) for name, k in MIXTURES.items()
    }
    return mixtures | {
        name: trained(name, flow, train, log) for name, flow in recipe.flows().items()
    }


def _write(path: Path, models: Mapping[str, Any], test: Array, recipe: Recipe) -> None:
    low = test.min(axis=0) - EDGE
    high = test.max(axis=0) + EDGE
    across, up = (np.linspace(low[k], high[k], recipe.pixels) for k in (0, 1))
    grid = np.stack(np.meshgrid(across, up), axis=-1).reshape(-1, 2)
    pictures = [
        np.exp(log_density(model, grid)).reshape(recipe.pixels, -1) for model in models.values()
    ]
    stream = io.BytesIO()
    np.savez_compressed(
        stream,
        allow_pickle=False,
        names=np.array(list(models)),
        points=test,
        scores=np.stack([scores(model, test) for model in models.values()]),
        log_probs=np.stack([log_density(model, test) for model in models.values()]),
        pictures=np.stack(pictures).astype(np.float32),
        extent=np.array([low[0], high[0], low[1], high[1]]),
    )
    write_bytes_atomic(path, stream.getvalue())


def scores(model: Any, x: Array) -> Array:
    """∇ log p at the rows of x (n, 2), as relfit takes it from the fitted object."""
    density = adapt(model, 2)
    assert density is not None  # noqa: S101  (mixtures and flows are known to the adapters)
    return density.scores(x)


def log_density(model: Any, x: Array) -> Array:
    """log p at the rows of x (n,), normalised (a `Density` may leave out the constant)."""
    if hasattr(model, "score_samples"):
        return np.asarray(model.score_samples(x))
    torch = library("torch")
    with torch.no_grad():
        return np.asarray(model().log_prob(torch.from_numpy(x)).numpy())


def _path(key: str) -> Path:
    return cache_folder("chicago") / f"study-{key}.npz"


@lru_cache(maxsize=2)
def load(key: str, contents: str) -> Study:
    """The study of this name, if its file is still the one that was prepared."""
    path = _path(key)
    if not path.exists() or digest(path.read_bytes()) != contents:
        raise InputError(
            f"{NAME}: {str(path)!r} is not what was prepared; run the command again"
        )
    with np.load(path, allow_pickle=False) as file:
        stored = {name: file[name] for name in file.files}
    return Study(
        **stored | {name: tuple(stored[name].tolist()) for name in ("names", "extent")}
    )


def trial(setting: Setting, seed: int) -> dict[str, Any]:
    """One draw of n test points: the verdicts of every test by KSD, and of the best set by
    the log-likelihood.
    """
    study = load(setting["study"], setting["contents"])
    rows = np.random.default_rng(seed).choice(len(study.points), setting["n"], replace=False)
    points = study.points[rows]
    lineup = [*MIXTURES, MADE, setting["flow"]]
    densities = {name: study.density(name) for name in lineup}
    kernel = KERNELS[setting["kernel"]]
    joint = estimate(
        points, densities, estimator=PLAIN, kernel=kernel, rng=seed, progress=False
    )
    decisions: list[Decision] = []
    for words, test in WHOLE.items():
        decisions += verdicts(words, decide(joint, test=test, alpha=ALPHA, rng=seed))
    decisions += decided(points, {"models": densities}, SPLITS, seed, kernel=kernel)
    likelihoods = {name: study.likelihood(name) for name in lineup}
    decisions += decided(points, {"models": likelihoods}, BY_LIKELIHOOD, seed)
    return {"decisions": decisions}


def _study(results: Results) -> Study:
    setting = results[0].setting
    return load(setting["study"], setting["contents"])


def _with_maf(results: Results) -> list[Cell]:
    return [cell for cell in results if cell.setting["flow"] == MAF]


def _tests(cell: Cell) -> dict[str, str]:
    """The tests of the table and figure; RelMulti corrects as the paper or the code with
    this kernel does.
    """
    correction = CORRECTION[cell.setting["kernel"]]
    return {
        "RelPSI": "RelPSI",
        "RelMulti": f"RelMulti 50%, {correction}",
        "best set": "best set",
        "carving": "carving",
    }


def table(results: Results) -> list[Row]:
    """As the paper's: a row per setting and model, the paper's figure in brackets."""
    study = _study(results)
    rows: list[Row] = []
    for cell in _with_maf(results):
        tests = _tests(cell)
        for model in LINEUP:
            row: Row = {"kernel, correction": TITLES[cell.setting["kernel"]], "model": model}
            row["NLL (paper)"] = f"{study.nll(model):.2f} ({PAPER_NLL[model]:.2f})"
            row["NLL sel."] = f"{cell.mean('NLL', model, 'selected')[0]:.2f}"
            row["NLL rej."] = f"{cell.mean('NLL', model)[0]:.2f}"
            for (name, kind), figures in PAPER.items():
                ours = cell.mean(tests[name], model, KEYS[kind])
                row[f"{name} {kind} (paper)"] = beside(ours, figures[model])
            for name in ("best set", "carving"):
                row[f"{name} rej."] = cell.mean(name, model)
            rows.append(row)
    return rows


def extras(results: Results) -> Mapping[str, list[Row]]:
    """The ablations: correction and split of RelMulti, base and penalty of the flow."""
    study = _study(results)
    splits: list[Row] = [
        {"kernel": cell.setting["kernel"], "model": model}
        | {test.replace("RelMulti", "select"): cell.mean(test, model) for test in SPLITS}
        for cell in _with_maf(results)
        for model in LINEUP
    ]
    flows: list[Row] = []
    for cell in results:
        flow = cell.setting["flow"]
        tests = _tests(cell)
        largest = np.linalg.norm(study.scores[study.names.index(flow)], axis=1).max()
        others = [f"{cell.mean('RelPSI', model)[0]:.2f}" for model in LINEUP[:-1]]
        flows.append(
            {
                "kernel": cell.setting["kernel"],
                "flow": flow,
                "NLL": study.nll(flow),
                "lowest NLL": cell.mean("NLL", flow, "selected"),
                "RelPSI sel.": cell.mean("RelPSI", flow, "selected"),
                "RelPSI rej.": cell.mean("RelPSI", flow),
                "RelMulti rej.": cell.mean(tests["RelMulti"], flow),
                "best set rej.": cell.mean("best set", flow),
                "KSD²": cell.mean("RelPSI", flow, "value")[0],
                "largest score": f"{largest:.0f}",
                "RelPSI rej. of the other four": ", ".join(others),
            }
        )
    line = (
        "Another MAF in place of MAF (5), the other four models as before (the score is "
        "that at the test points):"
    )
    return {"Rejection rates of RelMulti by its split and correction:": splits, line: flows}


def figure(results: Results) -> Figure:
    """The data and the densities on one scale above, the rejection rates below."""
    study = _study(results)
    drawn = Figure(figsize=(14.0, 6.6), layout="constrained")
    FigureCanvasAgg(drawn)
    above, below = drawn.subfigures(2, 1, height_ratios=(0.62, 1.0), squeeze=False)[:, 0]
    shown = [*LINEUP, SHOWN_TOO]
    pictures = list(above.subplots(1, 1 + len(shown), squeeze=False)[0])
    pictures[0].scatter(
        *study.points.T, s=1.0, color=INK, alpha=0.25, linewidths=0, rasterized=True
    )
    pictures[0].set(xlim=study.extent[:2], ylim=study.extent[2:], aspect="equal")
    _frame(pictures[0], f"data\n{len(study.points)} test points")
    # One scale for all, cut where a few pixels of a spike would darken every other picture.
    norm = PowerNorm(0.5, 0.0, float(np.quantile(study.pictures, 0.998)), clip=True)
    for ax, name in zip(pictures[1:], shown, strict=True):
        image = study.pictures[study.names.index(name)]
        ax.imshow(
            image,
            origin="lower",
            extent=study.extent,
            norm=norm,
            cmap="magma_r",
            aspect="equal",
        )
        _frame(ax, f"{name}\nNLL {study.nll(name):.2f}".replace(", ", ",\n"))
    papers = {name: list(PAPER[name, "rej."].values()) for name in ("RelPSI", "RelMulti")}
    cells = _with_maf(results)
    axes = list(below.subplots(1, len(cells), squeeze=False)[0])
    for ax, cell in zip(axes, cells, strict=True):
        rates = {
            name: [cell.mean(test, model) for model in LINEUP]
            for name, test in _tests(cell).items()
        }
        draw_bars(ax, TITLES[cell.setting["kernel"]], LINEUP, rates, papers)
    entries = axes[0].get_legend_handles_labels()
    below.legend(*entries, loc="outside lower center", ncols=6, frameon=False, labelcolor=INK)
    return drawn


def _frame(ax: Axes, title: str) -> None:
    ax.set_title(title, color=INK, fontsize="small")
    ax.set(xticks=[], yticks=[])
    for spine in ax.spines.values():
        spine.set_color(FAINT)


def checks(results: Results) -> list[Check]:
    """The likelihoods; with the full recipe they are near the paper's."""
    study = _study(results)
    one, two, five = (study.nll(name) for name in MIXTURES)
    ordered = Check(
        "more components, lower NLL", one > two > five, f"{one:.2f}, {two:.2f}, {five:.2f}"
    )
    full = results[0].setting["n"] == FULL.draw
    near = []
    for model in LINEUP if full else ():
        nll = study.nll(model)
        paper = PAPER_NLL[model]
        reach = NLL_REACH[model]
        claim = f"{model}: NLL within {reach:.2f} of the paper's {paper:.2f}"
        near.append(Check(claim, abs(nll - paper) <= reach, f"{nll:.3f}"))
    return [ordered, *near]


def _settings(quick: bool) -> list[Setting]:
    recipe = QUICK if quick else FULL
    flows = [flow for flow in recipe.flows() if flow != MADE]
    return [
        {"kernel": kernel, "flow": flow, "n": recipe.draw}
        for flow in flows
        for kernel in KERNELS
    ]


EXPERIMENT = Experiment(
    name=NAME,
    title="Table 2: densities of the robberies in Chicago",
    settings=_settings,
    trials=(100, 3),
    trial=trial,
    table=table,
    figure=figure,
    checks=checks,
    prepare=prepare,
    data_options=("--data", "--download"),
    extras=extras,
)
