"""Table 1: five mixtures of two groups of images against an even one, beside selection by
the lowest FID.

table1-celeba has the paper's groups, smiling and other faces, from folders of photographs or
from files of their features. table1-digits has images that come with relfit: digits 0 to 4 and 5 to
9 in place of the faces.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from relfit import IMQ
from relfit.paper.experiment import (
    PLAIN,
    Cell,
    Check,
    DataAbsent,
    DataOptions,
    Decision,
    Experiment,
    Log,
    Point,
    Printed,
    Results,
    Row,
    Setting,
    Tests,
    beside,
    cache_folder,
    decided,
    digest,
    draw_bars,
    from_setting,
    grid,
    levels_kept,
    new_figure,
    relmulti,
)
from relfit.paper.faces import ABOUT, GENERATED_FILES, REAL_FILES, feature_files
from relfit.paper.problems import GREY_LEVELS, digits
from relfit.util.arrays import Array
from relfit.util.errors import InputError
from relfit.util.files import write_text_atomic

# The fraction of the first group in each model; the images of one model are generated.
MODELS = {
    "G .50/.50": 0.50,
    "R .60/.40": 0.60,
    "R .40/.60": 0.40,
    "R .51/.49": 0.51,
    "R .52/.48": 0.52,
}
GENERATED = "G .50/.50"
TRULY_BEST = "R .51/.49"
# The generated images and the truly best model alone: RelPSI without the other, nearly tied
# ones.
PAIRED = "RelPSI, two models"
TESTS: Tests = {
    "RelPSI": ("all", {"test": "relpsi"}),
    "RelMulti": ("all", relmulti(0.5, "by")),
    "RelMulti, BH": ("all", relmulti(0.5, "bh")),
    "best set": ("all", {"test": "best-set", "estimator": PLAIN, "correction": "none"}),
    "carving": ("all", {"test": "carve"}),
    PAIRED: ("pair", {"test": "relpsi"}),
}
WITHOUT_GENERATED = {name: test for name, test in TESTS.items() if name != PAIRED}
SHOWN = ("RelPSI", "RelMulti", "best set", "carving")
FID = "FID"
FID_RESAMPLED = "FID, 10 resamples"
# The key of a decision for each rate of the tables: declared worse, and selected as best.
KEYS = {"rej.": "worse", "sel.": "selected"}
PAPER = {
    ("RelPSI", "rej."): (0.99, 0.39, 0.28, 0.02, 0.06),
    ("RelPSI", "sel."): (0.0, 0.02, 0.03, 0.52, 0.43),
    ("RelMulti", "rej."): (1.0, 0.18, 0.19, 0.03, 0.0),
    ("RelMulti", "sel."): (0.0, 0.08, 0.10, 0.37, 0.45),
    (FID, "sel."): (0.0, 0.39, 0.03, 0.27, 0.31),
}
PAPER_FID = (27.86, 16.01, 16.29, 16.03, 16.01)

TRAINING = 397  # digits that the generators learn from; the other 1400 are the pools
GROUPS = (range(5), range(5, 10))
COMPONENTS = 8
SIZES = (300, 500)
QUICK_SIZES = (300,)

CELEBA_NAME = "table1-celeba"
CELEBA_SIZE = 2000
# With fewer rows half of them are too few to test on.
FEWEST_CELEBA = 60
QUICK_CELEBA_SIZE = 200
HOW_TO_GET = (
    f"{CELEBA_NAME}: its data are not on this machine; give CelebA's aligned images with "
    f"--images DIR --attributes list_attr_celeba.txt [--generated DIR], or features with "
    f"--features DIR, or run table1-digits, which has its own images"
)
# Features from which FID by resampling takes long, and the trials that compute it then.
MANY_FEATURES = 512
EVERY = 10
RESAMPLES = 10


def fids(reference: Array, samples: Mapping[str, Array]) -> dict[str, float]:
    """‖μ − μ'‖² + tr(C + C' − 2(C^½ C' C^½)^½) of every sample to the reference.

    The Fréchet distance between Gaussians fitted to two samples of features is called FID
    when they are Inception's. C^½ and the eigenvalues of the symmetric C^½ C' C^½ are all
    that is needed: no root of CC', which is not symmetric and whose computed root may be
    complex.

    >>> x = np.array([[-1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    >>> round(fids(x, {"moved": x + [3.0, 4.0]})["moved"], 6)
    25.0
    """
    mean, rows = _scaled(reference)
    root: Array | None = None
    distances = {}
    for name, sample in samples.items():
        other_mean, other = _scaled(sample)
        if min(len(rows), len(other)) < rows.shape[1]:
            # The roots of the eigenvalues of CC' are the singular values of a smaller matrix.
            overlap = np.linalg.svd(rows @ other.T, compute_uv=False).sum()
        else:
            root = _root(rows) if root is None else root
            # Rounding makes eigenvalues of 0 negative.
            shared = np.linalg.eigvalsh(root @ (other.T @ other) @ root)
            overlap = np.sqrt(np.maximum(shared, 0.0)).sum()
        gap = mean - other_mean
        traces = np.square(rows).sum() + np.square(other).sum()
        distances[name] = float(gap @ gap + traces - 2.0 * overlap)
    return distances


def _scaled(x: Array) -> tuple[Array, Array]:
    """The mean, and the centred rows whose Gram matrix is the covariance."""
    mean = x.mean(axis=0)
    return mean, (x - mean) / np.sqrt(len(x) - 1.0)


def _root(rows: Array) -> Array:
    sizes, directions = np.linalg.eigh(rows.T @ rows)
    return np.asarray((directions * np.sqrt(np.maximum(sizes, 0.0))) @ directions.T)


def resampled_fids(
    reference: Array, samples: Mapping[str, Array], seed: int
) -> dict[str, tuple[float, float]]:
    """The mean and the standard deviation of FID over resamples of both samples, as in the
    authors' code: much larger than FID itself where there are many features.
    """
    rng = np.random.default_rng(np.random.SeedSequence([seed, RESAMPLES]))

    def drawn(rows: Array) -> Array:
        return np.asarray(rows[rng.integers(len(rows), size=len(rows))])

    found: dict[str, list[float]] = {name: [] for name in samples}
    for _ in range(RESAMPLES):
        once = fids(drawn(reference), {name: drawn(rows) for name, rows in samples.items()})
        for name, value in once.items():
            found[name].append(value)
    return {name: (float(np.mean(each)), float(np.std(each))) for name, each in found.items()}


def unjudged(test: str, values: Mapping[str, float]) -> list[Decision]:
    """The decisions of a criterion that only selects: the model with the lowest value."""
    lowest = min(values, key=values.__getitem__)
    return [
        {
            "test": test,
            "model": name,
            "worse": False,
            "pvalue": None,
            "selected": name == lowest,
            "value": value,
        }
        for name, value in values.items()
    ]


@dataclass(frozen=True)
class Source:
    """Real images of the two groups, rows of features, and a generator of each: (group,
    count, rng) → rows; None if there are no generated images.
    """

    real: tuple[Array, Array]
    generate: Callable[[int, int, np.random.Generator], Array] | None


def rows_needed(n: int) -> int:
    """Real images of a group that a trial needs: half of the reference, and the larger part
    of a model.
    """
    return n // 2 + max(_counts(fraction, n)[0] for fraction in MODELS.values())


def _counts(fraction: float, n: int) -> tuple[int, int]:
    first = round(fraction * n)
    return first, n - first


def draw(source: Source, n: int, seed: int) -> tuple[Array, dict[str, Array]]:
    """The reference and the models' samples: the reference's images are in no model, each
    model draws from the rest.

    The models draw independently of each other, so that two of them may have images in common.
    """
    first, *streams = [
        np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(1 + len(MODELS))
    ]
    shuffled = [group[first.permutation(len(group))] for group in source.real]
    halves = _counts(0.5, n)
    reference = np.concatenate(
        [group[:count] for group, count in zip(shuffled, halves, strict=True)]
    )
    rest = [group[count:] for group, count in zip(shuffled, halves, strict=True)]

    generate = source.generate

    def sample(name: str, rng: np.random.Generator) -> Array:
        counts = _counts(MODELS[name], n)
        if name == GENERATED and generate is not None:
            return np.concatenate([generate(k, count, rng) for k, count in enumerate(counts)])
        return np.concatenate(
            [rng.choice(rest[k], count, replace=False) for k, count in enumerate(counts)]
        )

    return reference, {
        name: sample(name, rng)
        for name, rng in zip(MODELS, streams, strict=True)
        if name != GENERATED or generate is not None
    }


def trial(make: Callable[..., Source], setting: Setting, seed: int) -> dict[str, Any]:
    """One draw of n images for the reference and each model: the verdicts of every test, and
    FID.
    """
    reference, samples = draw(from_setting(make, setting), setting["n"], seed)
    tests = TESTS if GENERATED in samples else WITHOUT_GENERATED
    pair = {name: samples[name] for name in (GENERATED, TRULY_BEST) if name in samples}
    decisions = decided(reference, {"all": samples, "pair": pair}, tests, seed, kernel=IMQ())
    decisions += unjudged(FID, fids(reference, samples))
    if reference.shape[1] < MANY_FEATURES or seed % EVERY == 0:
        resampled = resampled_fids(reference, samples, seed)
        means = {name: mean for name, (mean, _) in resampled.items()}
        for decision in unjudged(FID_RESAMPLED, means):
            decisions.append({**decision, "spread": resampled[decision["model"]][1]})
    return {"decisions": decisions}


def lineup(cell: Cell) -> list[tuple[int, str]]:
    """The models of a run with their places in the paper's table."""
    compared = {decision["model"] for decision in cell.outcomes[0]["decisions"]}
    return [(k, model) for k, model in enumerate(MODELS) if model in compared]


def table(results: Results) -> list[Row]:
    """As the paper's: a row per model, the paper's figure in brackets."""
    rows: list[Row] = []
    for cell in results:
        for k, model in lineup(cell):
            row: Row = {"n": cell.setting["n"], "model": model}
            for (test, kind), figures in PAPER.items():
                ours = cell.mean(test, model, KEYS[kind])
                row[f"{test} {kind} (paper)"] = beside(ours, figures[k])
            fid, _ = cell.mean(FID, model, "value")
            row["mean FID"] = f"{fid:.3g}"
            resampled, _ = cell.mean(FID_RESAMPLED, model, "value")
            spread, _ = cell.mean(FID_RESAMPLED, model, "spread")
            row["FID, 10 resamples (paper)"] = (
                f"{resampled:.3g} ± {spread:.2g} ({PAPER_FID[k]:.1f})"
            )
            for test in ("RelMulti, BH", "best set", "carving"):
                row[f"{test} rej."] = cell.mean(test, model)
            rows.append(row)
    return rows


def printed(results: Results) -> list[Printed]:
    """The paper's 25 rates, for the largest n."""
    cell = results[-1]
    return [
        Printed(f"{test} {kind} of {model}", figures[k], cell.mean(test, model, KEYS[kind]))
        for (test, kind), figures in PAPER.items()
        for k, model in lineup(cell)
    ]


def extras(results: Results) -> Mapping[str, list[Row]]:
    """What the nearly tied models cost RelPSI."""
    if len(lineup(results[0])) < len(MODELS):
        return {}
    line = (
        f"How often RelPSI declares {GENERATED} worse, among five models and beside "
        f"{TRULY_BEST} alone:"
    )
    return {
        line: [
            {
                "n": cell.setting["n"],
                "five models": cell.mean("RelPSI", GENERATED),
                "two models": cell.mean(PAIRED, GENERATED),
            }
            for cell in results
        ]
    }


def figure(title: str, results: Results) -> Figure:
    """How often each model is declared worse, and how often it is selected, for the largest
    n.
    """
    cell = results[-1]
    drawn, axes = new_figure(2, 4.6)
    panels = (
        ("rej.", SHOWN, "Declared worse (share of trials)"),
        ("sel.", ("RelPSI", FID), "Selected (fraction of trials)"),
    )
    for ax, (kind, tests, label) in zip(axes, panels, strict=True):
        models = lineup(cell)
        rates = {
            test: [cell.mean(test, model, KEYS[kind]) for _, model in models] for test in tests
        }
        papers = {
            test: [PAPER[test, kind][k] for k, _ in models]
            for test in tests
            if (test, kind) in PAPER
        }
        panel_title = f"{title}, n = {cell.setting['n']}"
        draw_bars(
            ax,
            panel_title,
            [model for _, model in models],
            rates,
            papers,
            label,
            "the paper (faces, n = 2000)",
        )
        ax.tick_params(axis="x", labelsize="small")
        ax.legend(loc="best", frameon=False, fontsize="small")
    return drawn


def checks(results: Results) -> list[Check]:
    """The model nearest to the truth is seldom declared worse."""
    claim = f"{{}}: {TRULY_BEST}, the truly best, declared worse at most .05 + 3 s.e."
    curves = {
        test: [Point(cell.x, *cell.mean(test, TRULY_BEST)) for cell in results]
        for test in SHOWN
    }
    return levels_kept(claim, "n", curves)


def digits_checks(results: Results) -> list[Check]:
    """Besides, the generated images are declared worse more often than any other model, as
    the paper found.
    """
    all_checks = checks(results)
    for test in SHOWN:
        rates = [[cell.mean(test, model)[0] for model in MODELS] for cell in results]
        pairs = [(first, max(others)) for first, *others in rates]
        claim = f"{test}: the generated images declared worse more often than any other model"
        words = ", ".join(f"{a:.3f} and {b:.3f}" for a, b in pairs)
        all_checks.append(Check(claim, all(a > b for a, b in pairs), words))
    return all_checks


class PrincipalGaussian:
    """Images of one digit: mean + Σ_k z_k s_k v_k + noise, z normal, over the leading
    principal directions v_k.
    """

    def __init__(self, images: Array) -> None:
        self.centre = images.mean(axis=0)
        _, sizes, directions = np.linalg.svd(images - self.centre, full_matrices=False)
        spread = sizes / np.sqrt(len(images) - 1)
        self.axes = spread[:COMPONENTS, None] * directions[:COMPONENTS]
        self.noise = np.sqrt((spread[COMPONENTS:] ** 2).sum() / (images.shape[1] - COMPONENTS))

    def __call__(self, count: int, rng: np.random.Generator) -> Array:
        drawn = self.centre + rng.normal(size=(count, COMPONENTS)) @ self.axes
        return np.asarray(drawn + rng.normal(scale=self.noise, size=drawn.shape))


@cache
def digits_source() -> Source:
    """The pools of real images and the generators, which have seen none of them."""
    images, labels = digits()
    order = np.random.default_rng(0).permutation(len(images))
    train = order[:TRAINING]
    pool = order[TRAINING:]
    makers = [PrincipalGaussian(images[train][labels[train] == digit]) for digit in range(10)]

    def generate(group: int, count: int, rng: np.random.Generator) -> Array:
        drawn = rng.integers(GROUPS[group][0], GROUPS[group][-1] + 1, size=count)
        made = [makers[digit](int((drawn == digit).sum()), rng) for digit in GROUPS[group]]
        return np.clip(np.round(np.concatenate(made) * GREY_LEVELS) / GREY_LEVELS, 0.0, 1.0)

    first, second = (images[pool][np.isin(labels[pool], group)] for group in GROUPS)
    return Source((first, second), generate)


def prepare_celeba(options: DataOptions, quick: bool, log: Log) -> Setting:
    """Check the feature files and note where they are; their digest stands for them in the
    settings.
    """
    if options.images is not None:
        folder = feature_files(options, log)
    elif options.features is None:
        raise DataAbsent(HOW_TO_GET)
    else:
        folder = options.features.resolve()
    generated = [name for name in GENERATED_FILES if (folder / name).exists()]
    if len(generated) == 1:
        raise InputError(
            f"--features: expected both of {', '.join(GENERATED_FILES)}, or neither"
        )
    n = QUICK_CELEBA_SIZE if quick else CELEBA_SIZE
    fewest = rows_needed(FEWEST_CELEBA)
    shapes = {name: _check(folder / name, fewest) for name in REAL_FILES}
    shapes |= {name: _check(folder / name, FEWEST_CELEBA // 2) for name in generated}
    columns = {name: shape[1] for name, shape in shapes.items()}
    if len(set(columns.values())) > 1:
        raise InputError(
            f"--features: expected files with the same number of columns, got {columns}"
        )
    real = min(shapes[name][0] for name in REAL_FILES)
    made = min((2 * shapes[name][0] for name in generated), default=n)
    most = min(n, made)
    while rows_needed(most) > real:
        most -= 1
    log(f"{CELEBA_NAME}: reading {folder}")
    sums = []
    for name in shapes:
        with (folder / name).open("rb") as stream:
            sums.append(hashlib.file_digest(stream, "sha256").digest())
    key = digest(*sums)
    write_text_atomic(_pointer(key), json.dumps({"folder": str(folder)}) + "\n")
    return {"features": key, "most n": most}


def about_celeba(prepared: Setting) -> str:
    """What the features are, as the folder of the feature files says."""
    folder = _folder(prepared["features"])
    if (folder / ABOUT).exists():
        words: str = json.loads((folder / ABOUT).read_text(encoding="utf-8"))["about"]
        return words
    rows = {
        name: _open(folder / name)
        for name in (*REAL_FILES, *GENERATED_FILES)
        if (folder / name).exists()
    }
    counts = ", ".join(f"{len(each):,} in {name}" for name, each in rows.items())
    columns = next(iter(rows.values())).shape[1]
    return f"{columns} features of faces from feature files ({counts})"


def _check(path: Path, least: int) -> tuple[int, int]:
    """The shape of a file that has enough rows, all finite."""
    rows = _open(path)
    if rows.ndim != 2 or rows.dtype.kind != "f" or len(rows) < least:
        raise InputError(
            f"--features: {path.name}: expected {least} rows or more of numbers, got "
            f"{rows.dtype} of shape {rows.shape}"
        )
    if not np.isfinite(rows).all():
        raise InputError(
            f"--features: {path.name}: expected finite numbers, got NaN or infinity"
        )
    return int(rows.shape[0]), int(rows.shape[1])


def _open(path: Path) -> NDArray[Any]:
    try:
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except FileNotFoundError as error:
        raise InputError(
            f"--features: expected the file {path.name} in {str(path.parent)!r}, found none"
        ) from error
    except (OSError, ValueError) as error:
        raise InputError(
            f"--features: {path.name}: expected an .npy file of numbers ({error})"
        ) from error


def _pointer(key: str) -> Path:
    """Where the files with this digest are: the path is no part of a setting, the files'
    contents are.
    """
    return cache_folder("celeba") / f"features-{key}.json"


def _folder(features: str) -> Path:
    return Path(json.loads(_pointer(features).read_text(encoding="utf-8"))["folder"])


@lru_cache(maxsize=1)
def celeba_source(features: str) -> Source:
    """The faces of the files with this digest."""
    folder = _folder(features)
    smiling, others = (np.asarray(_open(folder / name), dtype=float) for name in REAL_FILES)
    files = [folder / name for name in GENERATED_FILES]
    if not all(path.exists() for path in files):
        return Source((smiling, others), None)
    generated = [np.asarray(_open(path), dtype=float) for path in files]
    return Source(
        (smiling, others),
        lambda group, count, rng: rng.choice(generated[group], count, replace=False),
    )


EXPERIMENTS = (
    Experiment(
        name=CELEBA_NAME,
        title="Table 1: mixtures of smiling and other faces (CelebA)",
        settings=grid("n", (CELEBA_SIZE,), (QUICK_CELEBA_SIZE,)),
        trials=(100, 4),
        trial=partial(trial, celeba_source),
        table=table,
        figure=partial(figure, "CelebA"),
        checks=checks,
        prepare=prepare_celeba,
        about=about_celeba,
        data_options=(
            "--features",
            "--images",
            "--attributes",
            "--generated",
            "--model",
            "--weights",
        ),
        extras=extras,
        printed=printed,
    ),
    Experiment(
        name="table1-digits",
        title="Table 1 with digits: mixtures of two groups of images",
        settings=grid("n", SIZES, QUICK_SIZES),
        trials=(100, 6),
        trial=partial(trial, digits_source),
        table=table,
        figure=partial(figure, "Digits"),
        checks=digits_checks,
        extras=extras,
        printed=printed,
    ),
)
