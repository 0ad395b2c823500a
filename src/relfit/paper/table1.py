"""Table 1: five mixtures of two groups of images against an even one, beside selection by
the lowest FID.

table1-celeba has the paper's groups, smiling and other faces, from the authors' four files
of Inception features. table1-digits has images that come with relfit: digits 0 to 4 and 5 to
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
    Check,
    DataAbsent,
    DataOptions,
    Decision,
    Experiment,
    Log,
    Point,
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
SHOWN = ("RelPSI", "RelMulti", "best set", "carving")
FID = "FID"
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
REAL_FILES = ("ref_smile.npy", "ref_nonsmile.npy")
GENERATED_FILES = ("gen_smile.npy", "gen_nonsmile.npy")
CELEBA_SIZE = 2000
QUICK_CELEBA_SIZE = 200
HOW_TO_GET = (
    f"{CELEBA_NAME}: its data are not on this machine; give the folder of the authors' "
    f"feature files "
    f"({', '.join((*GENERATED_FILES, *REAL_FILES))}) with --features DIR, or run "
    f"table1-digits, which has its own"
)


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
    mean, covariance = _moments(reference)
    sizes, directions = np.linalg.eigh(covariance)
    root = np.asarray((directions * np.sqrt(np.maximum(sizes, 0.0))) @ directions.T)
    distances = {}
    for name, sample in samples.items():
        other_mean, other = _moments(sample)
        # Singular covariances (n < d) have eigenvalues of 0, which rounding makes negative.
        overlap = np.sqrt(np.maximum(np.linalg.eigvalsh(root @ other @ root), 0.0)).sum()
        gap = mean - other_mean
        distances[name] = float(
            gap @ gap + np.trace(covariance) + np.trace(other) - 2.0 * overlap
        )
    return distances


def _moments(x: Array) -> tuple[Array, Array]:
    return x.mean(axis=0), np.atleast_2d(np.cov(x, rowvar=False))


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
    count, rng) → rows.
    """

    real: tuple[Array, Array]
    generate: Callable[[int, int, np.random.Generator], Array]


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

    def sample(name: str, rng: np.random.Generator) -> Array:
        counts = _counts(MODELS[name], n)
        if name == GENERATED:
            return np.concatenate(
                [source.generate(k, count, rng) for k, count in enumerate(counts)]
            )
        return np.concatenate(
            [rng.choice(rest[k], count, replace=False) for k, count in enumerate(counts)]
        )

    return reference, {
        name: sample(name, rng) for name, rng in zip(MODELS, streams, strict=True)
    }


def trial(make: Callable[..., Source], setting: Setting, seed: int) -> dict[str, Any]:
    """One draw of n images for the reference and each model: the verdicts of every test, and
    FID.
    """
    reference, samples = draw(from_setting(make, setting), setting["n"], seed)
    pair = {name: samples[name] for name in (GENERATED, TRULY_BEST)}
    decisions = decided(reference, {"all": samples, "pair": pair}, TESTS, seed, kernel=IMQ())
    return {"decisions": decisions + unjudged(FID, fids(reference, samples))}


def table(results: Results) -> list[Row]:
    """As the paper's: a row per model, the paper's figure in brackets."""
    rows: list[Row] = []
    for cell in results:
        for k, model in enumerate(MODELS):
            row: Row = {"n": cell.setting["n"], "model": model}
            for (test, kind), figures in PAPER.items():
                ours = cell.mean(test, model, KEYS[kind])
                row[f"{test} {kind} (paper)"] = beside(ours, figures[k])
            fid, _ = cell.mean(FID, model, "value")
            row["mean FID (paper)"] = f"{fid:.3g} ({PAPER_FID[k]:.1f})"
            for test in ("RelMulti, BH", "best set", "carving"):
                row[f"{test} rej."] = cell.mean(test, model)
            rows.append(row)
    return rows


def extras(results: Results) -> Mapping[str, list[Row]]:
    """What the nearly tied models cost RelPSI."""
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
        rates = {
            test: [cell.mean(test, model, KEYS[kind]) for model in MODELS] for test in tests
        }
        papers = {test: PAPER[test, kind] for test in tests if (test, kind) in PAPER}
        panel_title = f"{title}, n = {cell.setting['n']}"
        draw_bars(
            ax, panel_title, list(MODELS), rates, papers, label, "the paper (faces, n = 2000)"
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
    """Check the four files and note where they are; their digest stands for them in the
    settings.
    """
    if options.features is None:
        raise DataAbsent(HOW_TO_GET)
    folder = options.features.resolve()
    n = QUICK_CELEBA_SIZE if quick else CELEBA_SIZE
    least = dict.fromkeys(REAL_FILES, rows_needed(n)) | dict.fromkeys(GENERATED_FILES, n // 2)
    columns = {name: _check(folder / name, rows) for name, rows in least.items()}
    if len(set(columns.values())) > 1:
        raise InputError(
            f"--features: expected files with the same number of columns, got {columns}"
        )
    log(f"{CELEBA_NAME}: reading {folder}")
    sums = []
    for name in least:
        with (folder / name).open("rb") as stream:
            sums.append(hashlib.file_digest(stream, "sha256").digest())
    key = digest(*sums)
    write_text_atomic(_pointer(key), json.dumps({"folder": str(folder)}) + "\n")
    return {"features": key}


def _check(path: Path, least: int) -> int:
    """The number of columns of a file that has enough rows, all finite."""
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
    return int(rows.shape[1])


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


@lru_cache(maxsize=1)
def celeba_source(features: str) -> Source:
    """The faces of the files with this digest."""
    folder = Path(json.loads(_pointer(features).read_text(encoding="utf-8"))["folder"])
    names = (*REAL_FILES, *GENERATED_FILES)
    smiling, others, *generated = (
        np.asarray(_open(folder / name), dtype=np.float64) for name in names
    )
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
        data_options=("--features",),
        extras=extras,
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
    ),
)
