"""Masked autoregressive flows by zuko: maximum likelihood with an L2 penalty and early stopping, kept once trained."""

from __future__ import annotations

import copy
import io
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from numpy.typing import NDArray

from relfit.api import compare, decide, estimate
from relfit.data.adapters import adapt
from relfit.data.models import Density
from relfit.features.base import fit_state, read_state
from relfit.kernels.base import Kernel
from relfit.kernels.standard import IMQ, Gaussian
from relfit.paper.chicago_data import cache_folder, digest, read_arrays, robberies, write_arrays
from relfit.paper.drawing import FAINT, INK, Rates, draw_bars
from relfit.paper.experiment import (
    ALPHA,
    Cell,
    Check,
    Decision,
    Experiment,
    Given,
    Results,
    Row,
    Setting,
    Tell,
    library,
    rate,
)
from relfit.paper.images import beside, rejected, selected, verdicts
from relfit.util.arrays import Array
from relfit.util.errors import InputError
from relfit.util.files import write_bytes_atomic

LINE_SECONDS = 10.0
HELD_OUT = 0.1  # of the training rows, for early stopping


@dataclass(frozen=True)
class Flow:
    """How a flow is built and trained; with the training rows it determines the weights, up to rounding.

    Attributes:
        transforms: autoregressive layers, each a network with one hidden layer; one layer is MADE.
        components: of the Gaussian mixture that is the base, fitted with the rest; 0 is a standard normal.
        l2: λ of the penalty λ/2·Σw² on the weights of the layers, biases and base left out.
        hidden: units of the hidden layer.
        rate: of Adam.
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


def trained(name: str, flow: Flow, rows: Array, folder: Path, tell: Tell) -> Any:
    """The flow in double precision, from `folder` if it was trained before on these rows in this way."""
    torch = library(name, "torch", "torch zuko")
    key = digest(rows.tobytes(), json.dumps(asdict(flow), sort_keys=True).encode())
    path = folder / f"flow-{key}.pt"
    network = build(name, flow)
    if path.exists():
        try:
            return fit_state(network, read_state(path), path).double()
        except InputError as error:
            tell(f"{error}; training it again")
    state = train(name, network, flow, rows, tell)
    buffer = io.BytesIO()
    torch.save(state, buffer)
    write_bytes_atomic(path, buffer.getvalue())
    return fit_state(network, state, path).double()


def build(name: str, flow: Flow) -> Any:
    """The flow on the plane with the random weights of its seed."""
    torch, zuko = (library(name, module, "torch zuko") for module in ("torch", "zuko"))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(flow.seed)
        network = zuko.flows.MAF(2, transforms=flow.transforms, hidden_features=(flow.hidden,))
        if not flow.components:
            return network
        return zuko.flows.Flow(network.transform, zuko.mixtures.GMM(2, components=flow.components))


def train(name: str, network: Any, flow: Flow, rows: Array, tell: Tell) -> dict[str, Any]:
    """The weights with the highest likelihood of the held-out rows."""
    torch = library(name, "torch", "torch zuko")
    kept = len(rows) - round(HELD_OUT * len(rows))
    data = torch.as_tensor(rows, dtype=torch.float32)
    fitted, held_out = data[:kept], data[kept:]
    optimiser = _optimiser(torch, network, flow)
    order = torch.Generator().manual_seed(flow.seed)
    best, best_epoch, state = np.inf, -1, {}
    start = last = time.monotonic()
    with _one_thread(torch):
        for epoch in range(flow.epochs):
            for batch in torch.randperm(kept, generator=order).split(flow.batch):
                _step(network, optimiser, fitted[batch])
            with torch.no_grad():
                loss = -network().log_prob(held_out).mean().item()
            if loss < best:
                best, best_epoch, state = loss, epoch, copy.deepcopy(network.state_dict())
            if time.monotonic() - last > LINE_SECONDS:
                last = time.monotonic()
                tell(f"{name}: epoch {epoch}, held-out NLL {loss:.3f} (best {best:.3f}), {last - start:.0f} s so far")
            if epoch - best_epoch >= flow.patience:
                break
    tell(f"{name}: trained, held-out NLL {best:.3f} at epoch {best_epoch}, {time.monotonic() - start:.0f} s")
    return state


def _step(network: Any, optimiser: Any, rows: Any) -> None:
    loss = -network().log_prob(rows).mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()


def _optimiser(torch: Any, network: Any, flow: Flow) -> Any:
    """Adam, whose weight decay is the gradient λw of the penalty."""
    weights: list[Any] = []
    others: list[Any] = []
    for name, parameter in network.named_parameters():
        (weights if name.startswith("transform") and parameter.ndim == 2 else others).append(parameter)
    return torch.optim.Adam([{"params": weights, "weight_decay": flow.l2}, {"params": others}], lr=flow.rate)


@contextmanager
def _one_thread(torch: Any) -> Iterator[None]:
    """One thread, so that the order of the sums, and with it the weights, is the same on every run."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


# --------------------
# The fitted models of the Chicago data and all that the trials need of them, computed once and kept in one file.
#
# A score is a function of the point alone, so the scores of every model at every test point are tabulated, and a
# trial looks up those of the points it draws: the workers need neither torch nor scikit-learn.

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


# --------------------
# Table 2: which density fits the robberies of Chicago? Mixtures, MADE and MAF by KSD on points no model has seen.

KERNELS: dict[str, Kernel] = {"IMQ": IMQ(), "Gaussian": Gaussian()}
# The text of the paper, and the authors' code.
CORRECTION = {"IMQ": "by", "Gaussian": "bonferroni"}
WORDS = {"IMQ": "IMQ, BY", "Gaussian": "Gaussian, Bonferroni"}
SPLITS = {
    "50%, by": {"select_fraction": 0.5, "correction": "by"},
    "50%, bonferroni": {"select_fraction": 0.5, "correction": "bonferroni"},
    "50%, none": {"select_fraction": 0.5, "correction": "none"},
    "25%, by": {"select_fraction": 0.25, "correction": "by"},
}
WHOLE = {"RelPSI": "relpsi", "best set": "best-set", "carving": "carve"}
LINEUP = (*MIXTURES, MADE, MAF)
SHOWN_TOO = f"{MAF}, normal base, little L2"
PAPER_NLL = dict(zip(LINEUP, (2.64, 2.55, 2.38, 2.53, 2.25), strict=True))
NLL_REACH = dict(zip(LINEUP, (0.05, 0.05, 0.05, 0.05, 0.08), strict=True))
PAPER = {
    ("RelPSI", "rej."): dict(zip(LINEUP, (0.42, 0.28, 0.02, 0.26, 0.0), strict=True)),
    ("RelPSI", "sel."): dict(zip(LINEUP, (0.0, 0.01, 0.62, 0.01, 0.36), strict=True)),
    ("RelMulti", "rej."): dict(zip(LINEUP, (0.22, 0.07, 0.0, 0.04, 0.0), strict=True)),
    ("RelMulti", "sel."): dict(zip(LINEUP, (0.0, 0.08, 0.38, 0.03, 0.51), strict=True)),
}


def trial(setting: Setting, seed: int) -> dict[str, Any]:
    """One draw of n test points: the verdicts of every test, and the negative log-likelihoods."""
    known = load(setting["study"], setting["contents"])
    rows = np.random.default_rng(seed).choice(len(known.points), setting["n"], replace=False)
    lineup = [*MIXTURES, MADE, setting["flow"]]
    densities = {name: known.density(name) for name in lineup}
    points, kernel = known.points[rows], KERNELS[setting["kernel"]]
    joint = estimate(points, densities, kernel=kernel, rng=seed, progress=False)
    results = {words: decide(joint, test=test, alpha=ALPHA, rng=seed) for words, test in WHOLE.items()}
    for words, options in SPLITS.items():
        split: dict[str, Any] = {"test": "relmulti", "alpha": ALPHA, "rng": seed, "progress": False, **options}
        results[f"RelMulti {words}"] = compare(points, densities, kernel=kernel, **split)
    decisions = [decision for test, result in results.items() for decision in verdicts(test, result)]
    return {"decisions": decisions + _likelihoods(known, lineup, rows)}


def _likelihoods(known: Study, lineup: Sequence[str], rows: Any) -> list[Decision]:
    nll = {name: float(-known.log_probs[known.names.index(name)][rows].mean()) for name in lineup}
    best = min(nll, key=nll.__getitem__)
    unjudged: Decision = {"worse": False, "pvalue": None}
    return [
        {"test": "NLL", "model": name, **unjudged, "selected": name == best, "value": value}
        for name, value in nll.items()
    ]


def _known(results: Results) -> Study:
    setting = results[0].setting
    return load(setting["study"], setting["contents"])


def _relmulti(cell: Cell) -> str:
    return f"RelMulti 50%, {CORRECTION[cell.setting['kernel']]}"


def table(results: Results) -> list[Row]:
    """As the paper's: a row per setting and model, the paper's figure in brackets."""
    known = _known(results)
    return [_row(cell, model, known) for cell in results if cell.setting["flow"] == MAF for model in LINEUP]


def _row(cell: Cell, model: str, known: Study) -> Row:
    row: Row = {"kernel, correction": WORDS[cell.setting["kernel"]], "model": model}
    row["NLL (paper)"] = f"{known.nll(model):.2f} ({PAPER_NLL[model]:.2f})"
    row["NLL sel."] = f"{selected(cell, 'NLL', model)[0]:.2f}"
    for words, score in (("rej.", rejected), ("sel.", selected)):
        for name, test in (("RelPSI", "RelPSI"), ("RelMulti", _relmulti(cell))):
            row[f"{name} {words} (paper)"] = beside(score(cell, test, model), PAPER[name, words][model])
    return {**row, **{f"{name} rej.": rejected(cell, name, model) for name in ("best set", "carving")}}


def extras(results: Results) -> Mapping[str, list[Row]]:
    """The ablations: correction and split of RelMulti, base and penalty of the flow."""
    known = _known(results)
    splits: list[Row] = [
        {"kernel": cell.setting["kernel"], "model": model}
        | {f"select {words}": rejected(cell, f"RelMulti {words}", model) for words in SPLITS}
        for cell in results
        if cell.setting["flow"] == MAF
        for model in LINEUP
    ]
    return {
        "Rejection rates of RelMulti by its split and correction:": splits,
        "Another MAF in place of MAF (5), the other four models as before (the score is that at the test points):": [
            _flow_row(cell, known) for cell in results
        ],
    }


def _flow_row(cell: Cell, known: Study) -> Row:
    flow = cell.setting["flow"]
    size = np.linalg.norm(known.scores[known.names.index(flow)], axis=1)
    row: Row = {"kernel": cell.setting["kernel"], "flow": flow, "NLL": known.nll(flow)}
    row["lowest NLL"] = selected(cell, "NLL", flow)
    row["RelPSI sel."] = selected(cell, "RelPSI", flow)
    tests = {"RelPSI": "RelPSI", "RelMulti": _relmulti(cell), "best set": "best set"}
    row |= {f"{words} rej.": rejected(cell, test, flow) for words, test in tests.items()}
    row["KSD²"] = rate(d["value"] for trial in cell.decisions("RelPSI") for d in trial if d["model"] == flow)[0]
    others = [f"{rejected(cell, 'RelPSI', model)[0]:.2f}" for model in LINEUP[:-1]]
    return {**row, "largest score": f"{size.max():.0f}", "RelPSI rej. of the other four": ", ".join(others)}


def figure(results: Results) -> Figure:
    """The data and the densities above, the rejection rates below."""
    known = _known(results)
    shown = [*LINEUP, SHOWN_TOO]
    tests = {"RelPSI": "RelPSI", "RelMulti": "", "best set": "best set", "carving": "carving"}
    panels = {
        WORDS[cell.setting["kernel"]]: {
            name: [rejected(cell, test or _relmulti(cell), model) for model in LINEUP] for name, test in tests.items()
        }
        for cell in results
        if cell.setting["flow"] == MAF
    }
    papers = {name: list(PAPER[name, "rej."].values()) for name in ("RelPSI", "RelMulti")}
    return draw(known, shown, LINEUP, panels, papers)


def checks(results: Results) -> list[Check]:
    """The likelihoods; with the full recipe they are near the paper's."""
    known = _known(results)
    one, two, five = (known.nll(name) for name in MIXTURES)
    ordered = Check("more components, lower NLL", one > two > five, f"{one:.2f}, {two:.2f}, {five:.2f}")
    full = results[0].setting["n"] == FULL.draw
    return [ordered, *([_near(model, known.nll(model)) for model in LINEUP] if full else [])]


def _near(model: str, nll: float) -> Check:
    paper, reach = PAPER_NLL[model], NLL_REACH[model]
    return Check(f"{model}: NLL within {reach:.2f} of the paper's {paper:.2f}", abs(nll - paper) <= reach, f"{nll:.3f}")


def _settings(quick: bool) -> list[Setting]:
    recipe = QUICK if quick else FULL
    flows = [flow for flow in recipe.flows() if flow != MADE]
    return [{"kernel": kernel, "flow": flow, "n": recipe.draw} for flow in flows for kernel in KERNELS]


def _prepare(given: Given, quick: bool, tell: Tell) -> Setting:
    return dict(prepare(robberies(given, tell), QUICK if quick else FULL, tell))


CHICAGO = Experiment(
    name=NAME,
    title="Table 2: densities of the robberies in Chicago",
    setting="Locations of the robberies of 2016 (longitude and latitude, standardised): 7000 train, the rest test; a "
    "trial draws n = 2000 test points. Five densities: mixtures of 1, 2 and 5 Gaussians (scikit-learn), MADE (one "
    "autoregressive layer, normal base) and MAF (5) (five layers, base a mixture of 5 Gaussians), both with 512 "
    "hidden units (zuko), by maximum likelihood with L2 penalty .01 on the weights, Adam at .0001, early stopping on "
    "a tenth of the training rows. KSD, complete estimator, α = 0.05; RelMulti selects on half of the rows. The "
    "paper's text says IMQ and Benjamini–Yekutieli, the authors' code has a Gaussian with the median bandwidth and "
    "Bonferroni: both are run. Rej. is how often a model is declared worse, Sel. how often it is selected: has the "
    "smallest KSD, or NLL. Little L2 is a penalty of .000001.",
    paper="RelPSI declares MoG (1), MoG (2) and MADE worse, and is unsure of MoG (5) and MAF; RelMulti rejects less. "
    "NLL picks MAF every time. The paper's figures stand in brackets.",
    note="The training settings were fixed after KSD results of five trial networks had been seen (40 trials each; the "
    "step size is the published one and seed 0 was fixed beforehand); the rows of other seeds were added after "
    "seeing the main table. The checks cover likelihoods only. "
    "Likelihoods agree with the paper's. Rates are given this test set and these networks: all trials draw from "
    "the same test points, and the paper's split and networks are not published. The kernel matters most among "
    "the settings: with the Gaussian of the authors' code RelPSI rejects about half as often as with IMQ, and its "
    "rates stand closer to the paper's; correction and split change RelMulti less. But the last table shows that "
    "no single setting explains the rest: flows that differ in nothing but their random seed (first weights and "
    "order of the batches) have nearly the same NLL and are selected in anything from a few to nearly all of the "
    "trials, and with them the rejection rates of MoG (2), MoG (5) and MADE change too, so agreement with the "
    "paper in these is partly luck. KSD sees the gradient, which the likelihood hardly pins down: a flow trained "
    "in larger steps has the best NLL of its line-up and is rejected in most trials. Little L2 with a normal "
    "base, tried with three seeds, was hardly ever rejected here; little L2 with the MoG base was at times. The "
    "larger steps and little L2 with the MoG base are one trained network each: what was seen, not a law.",
    settings=_settings,
    trials=(100, 3),
    trial=trial,
    table=table,
    figure=figure,
    checks=checks,
    prepare=_prepare,
    takes=("--data", "--download"),
    extras=extras,
)
EXPERIMENTS: Sequence[Experiment] = (CHICAGO,)


# --------------------
# The figure of table 2: the data and the fitted densities above, the rejection rates below.


def draw(
    known: Study,
    shown: Sequence[str],
    models: Sequence[str],
    panels: Mapping[str, Rates],
    papers: Mapping[str, Sequence[float]],
) -> Figure:
    """Pictures of the test points and the `shown` densities on one scale; a panel of bars per setting."""
    figure = Figure(figsize=(14.0, 6.6), layout="constrained")
    FigureCanvasAgg(figure)
    above, below = figure.subfigures(2, 1, height_ratios=(0.62, 1.0), squeeze=False)[:, 0]
    pictures = list(above.subplots(1, 1 + len(shown), squeeze=False)[0])
    _points(pictures[0], known)
    # One scale for all, cut where a few pixels of a spike would darken every other picture.
    norm = PowerNorm(0.5, 0.0, float(np.quantile(known.pictures, 0.998)), clip=True)
    for ax, name in zip(pictures[1:], shown, strict=True):
        image = known.pictures[known.names.index(name)]
        ax.imshow(image, origin="lower", extent=known.extent, norm=norm, cmap="magma_r", aspect="equal")
        _frame(ax, f"{name}\nNLL {known.nll(name):.2f}".replace(", ", ",\n"))
    axes = list(below.subplots(1, len(panels), squeeze=False)[0])
    for ax, (title, rates) in zip(axes, panels.items(), strict=True):
        draw_bars(ax, title, models, rates, papers)
    handles, labels = axes[0].get_legend_handles_labels()
    below.legend(handles, labels, loc="outside lower center", ncols=6, frameon=False, labelcolor=INK)
    return figure


def _points(ax: Axes, known: Study) -> None:
    left, right, bottom, top = known.extent
    ax.scatter(known.points[:, 0], known.points[:, 1], s=1.0, color=INK, alpha=0.25, linewidths=0, rasterized=True)
    ax.set(xlim=(left, right), ylim=(bottom, top), aspect="equal")
    _frame(ax, f"data\n{len(known.points)} test points")


def _frame(ax: Axes, title: str) -> None:
    ax.set_title(title, color=INK, fontsize="small")
    ax.set(xticks=[], yticks=[])
    for spine in ax.spines.values():
        spine.set_color(FAINT)
