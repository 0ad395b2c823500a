"""Table 2: which density fits the robberies of Chicago? Mixtures, MADE and MAF by KSD on
points no model has seen.

The flows are masked autoregressive ones by zuko, trained by maximum likelihood with an L2
penalty and early stopping, and kept once trained. A score is a function of the point alone,
so the scores of every model at every test point are tabulated in one file, the study, and a
trial looks up those of the points it draws: the workers need neither torch nor scikit-learn.

The robberies of 2016 come from the City of Chicago's open-data portal: its Socrata API gives
the rows of "Crimes - 2001 to Present" (data set ijzp-q8t2) with primary type ROBBERY and
year 2016 as CSV. They are downloaded once, checked, and cached with a checksum. Nothing is
fetched unless the user asked for it.
"""

from __future__ import annotations

import copy
import csv
import hashlib
import http.client
import io
import json
import time
import urllib.error
import urllib.parse
import urllib.request
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
from relfit.paper.experiment import (
    ALPHA,
    FAINT,
    INK,
    PLAIN,
    Cell,
    Check,
    DataAbsent,
    DataOptions,
    Decision,
    Experiment,
    Log,
    Results,
    Row,
    Setting,
    Tests,
    beside,
    cache_folder,
    decided,
    digest,
    draw_bars,
    relmulti,
    verdicts,
)
from relfit.paper.table1 import KEYS
from relfit.util.arrays import Array
from relfit.util.errors import BackendUnavailable, InputError
from relfit.util.files import write_bytes_atomic, write_text_atomic

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


# ── the robberies ─────────────────────────────────────────────────────────────────────────────

PORTAL = "https://data.cityofchicago.org/resource/ijzp-q8t2.csv"
WHERE = "primary_type='ROBBERY' AND year=2016"
MOST_ROWS = 50_000
TIMEOUT = 60.0  # seconds without an answer
MOST_BYTES = 8_000_000  # the whole is about 300 kB
ROWS = (11_000, 13_000)  # 11,957 when the paper was written; records are amended now and then
LONGITUDES = (-88.0, -87.4)
LATITUDES = (41.6, 42.1)
NAMES = {"longitude": "lon", "lon": "lon", "latitude": "lat", "lat": "lat"}
CACHED = "robbery_2016.csv"
HOW_TO_GET = (
    "table2-chicago: its data are not on this machine; add --download to fetch the robberies "
    "of 2016 from the City of "
    "Chicago's portal (300 kB), or --data FILE with a CSV of lon,lat"
)


def robberies(options: DataOptions, log: Log) -> Array:
    """Longitude and latitude (n, 2), sorted, from the user's file, the cache or, if asked
    for, the portal.
    """
    if options.data is not None:
        return _sorted(read_file(options.data))
    cached, checksum = (cache_folder("chicago") / name for name in (CACHED, f"{CACHED}.sha256"))
    if options.download and not _intact(cached, checksum):
        log(f"table2-chicago: downloading {CACHED} from {urllib.parse.urlsplit(PORTAL).netloc}")
        text = "lon,lat\n" + "".join(f"{lon:.9f},{lat:.9f}\n" for lon, lat in download(PORTAL))
        write_text_atomic(checksum, hashlib.sha256(text.encode()).hexdigest() + "\n")
        write_bytes_atomic(cached, text.encode())
    if not cached.exists():
        raise DataAbsent(HOW_TO_GET)
    if not _intact(cached, checksum):
        raise InputError(
            f"{str(cached)!r} is not what was downloaded (its checksum differs); add --download"
        )
    return _sorted(parse(cached.read_text(encoding="utf-8"), str(cached)))


def _sorted(rows: Array) -> Array:
    """The rows sorted by their values, so that the seeded split does not depend on the order
    of the file.
    """
    return np.ascontiguousarray(rows[np.lexsort(rows.T[::-1])])


def read_file(path: Path) -> Array:
    """The rows of a user's CSV file."""
    if path.exists() and not path.is_file():
        raise InputError(
            f"--data: cannot read {str(path)!r} (a folder or device); expected a CSV of lon,lat"
        )
    try:
        return parse(path.read_text(encoding="utf-8-sig"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"--data: cannot read {str(path)!r} ({error}); expected a CSV of lon,lat"
        ) from error


def parse(text: str, source: str) -> Array:
    r"""The rows (n, 2) of a CSV with columns lon (longitude) and lat (latitude); rows
    without a location are left out.

    >>> parse("latitude,longitude\n41.88,-87.63\n,\n", "example")
    array([[-87.63,  41.88]])
    """
    lines = csv.reader(io.StringIO(text))
    header = [NAMES.get(name.strip().lower(), name) for name in next(lines, [])]
    if not {"lon", "lat"} <= set(header):
        raise InputError(
            f"{source}: expected a CSV with columns lon,lat; its first line is "
            f"{','.join(header)[:80]!r}"
        )
    columns = header.index("lon"), header.index("lat")
    try:
        cells = [[line[column].strip() for column in columns] for line in lines if line]
        rows = np.array(
            [[float(value) for value in row] for row in cells if all(row)], dtype=np.float64
        )
    except (ValueError, IndexError) as error:
        raise InputError(
            f"{source}: expected two numbers on line {lines.line_num} or before, got "
            f"something else"
        ) from error
    rows = rows.reshape(-1, 2)
    low, high = np.array([LONGITUDES, LATITUDES]).T
    outside = ~((rows >= low) & (rows <= high)).all(axis=1)
    if outside.any():
        first = ", ".join(f"{value:g}" for value in rows[outside.argmax()])
        raise InputError(
            f"{source}: expected longitudes {LONGITUDES[0]:g} to {LONGITUDES[1]:g} and "
            f"latitudes {LATITUDES[0]:g} to "
            f"{LATITUDES[1]:g}, got {int(outside.sum())} rows outside Chicago (first: {first})"
        )
    return rows


def download(url: str) -> Array:
    """All rows of the query, in one answer, which the portal gives up to MOST_ROWS rows."""
    query = {
        "$select": "id,longitude,latitude",
        "$where": WHERE,
        "$order": "id",
        "$limit": str(MOST_ROWS),
    }
    text = _fetch(url, query)
    # The count includes the rows without a location.
    count = len(text.splitlines()) - 1
    low, high = ROWS
    if not low <= count <= high or not text.endswith("\n"):
        raise InputError(
            f"{url}: expected {low} to {high} robberies, the portal sent {count} or a part "
            f"of them; try again, or give a file with --data"
        )
    return parse(text, url)


def _fetch(url: str, query: dict[str, str]) -> str:
    """The answer to one query."""
    try:
        return _read(f"{url}?{urllib.parse.urlencode(query)}").decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{url}: expected text, got bytes that are not UTF-8; give a file with --data"
        ) from error
    except urllib.error.HTTPError as error:
        reason = f"status {error.code}"
    except (OSError, http.client.HTTPException) as error:
        reason = " ".join(str(getattr(error, "reason", error)).split())
    raise InputError(
        f"{url}: cannot download ({reason}); try later, or give a file with --data"
    )


def _read(address: str) -> bytes:
    # Https, or a test's server.
    request = urllib.request.Request(address, headers={"Accept": "text/csv"})  # noqa: S310
    with urllib.request.urlopen(request, timeout=TIMEOUT) as response:  # noqa: S310
        if address.startswith("https:") and not response.geturl().startswith("https:"):
            raise InputError(
                f"{address.partition('?')[0]}: redirected to an address without https; not kept"
            )
        body: bytes = response.read(MOST_BYTES + 1)
        length = response.headers.get("Content-Length")
    if len(body) > MOST_BYTES:
        raise InputError(
            f"{address.partition('?')[0]}: expected at most {MOST_BYTES} bytes, "
            f"got more; not kept"
        )
    if length is not None and len(body) < int(length):
        raise http.client.IncompleteRead(body, int(length) - len(body))
    return body


def _intact(path: Path, checksum: Path) -> bool:
    if not (path.exists() and checksum.exists()):
        return False
    return (
        hashlib.sha256(path.read_bytes()).hexdigest()
        == checksum.read_text(encoding="utf-8").strip()
    )


# ── the models ────────────────────────────────────────────────────────────────────────────────


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


# ── the experiment ────────────────────────────────────────────────────────────────────────────


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
        decisions += verdicts(
            words, decide(joint, test=test, correction="none", alpha=ALPHA, rng=seed)
        )
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
