"""The Fréchet distance between Gaussians fitted to two samples of features (FID when they are Inception's)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from relfit.api import compare
from relfit.kernels.standard import IMQ
from relfit.paper.drawing import draw_bars, new_figure
from relfit.paper.experiment import ALPHA, Cell, Check, Decision, Point, Results, Row, level_kept, rate
from relfit.results.comparison import Comparison
from relfit.util.arrays import Array


class Moments(NamedTuple):
    """Mean (d,) and covariance (d, d)."""

    mean: Array
    covariance: Array


def moments(x: Array) -> Moments:
    """Those of the rows of x (n, d)."""
    return Moments(x.mean(axis=0), np.atleast_2d(np.cov(x, rowvar=False)))


def fids(reference: Array, samples: Mapping[str, Array]) -> dict[str, float]:
    """‖μ − μ'‖² + tr(C + C' − 2(C^½ C' C^½)^½) of every sample to the reference.

    C^½ and the eigenvalues of the symmetric C^½ C' C^½ are all that is needed: no root of CC', which is not symmetric
    and whose computed root may be complex.

    >>> x = np.array([[-1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    >>> round(fids(x, {"moved": x + [3.0, 4.0]})["moved"], 6)
    25.0
    """
    known = moments(reference)
    root = _root(known.covariance)
    return {name: _distance(known, root, moments(x)) for name, x in samples.items()}


def _root(covariance: Array) -> Array:
    sizes, directions = np.linalg.eigh(covariance)
    return np.asarray((directions * np.sqrt(np.maximum(sizes, 0.0))) @ directions.T)


def _distance(a: Moments, root_of_a: Array, b: Moments) -> float:
    product = np.linalg.eigvalsh(root_of_a @ b.covariance @ root_of_a)
    # Singular covariances (n < d) have eigenvalues of 0, which rounding makes negative.
    overlap = np.sqrt(np.maximum(product, 0.0)).sum()
    gap = a.mean - b.mean
    return float(gap @ gap + np.trace(a.covariance) + np.trace(b.covariance) - 2.0 * overlap)


# --------------------
# Model-wise rates of the paper's two tables: how often a model is declared worse, and how often it is selected.

Rate = tuple[float, float]


def verdicts(test: str, result: Comparison) -> list[Decision]:
    """The decisions of one comparison: p-value, verdict, whether it was selected, and its discrepancy."""
    return [
        {
            "test": test,
            "model": model,
            "worse": bool(result.worse[k]),
            "pvalue": float(result.pvalue[k]),
            "selected": model == result.best,
            "value": float(result.discrepancy[k]),
        }
        for k, model in enumerate(result.names)
    ]


def mean_of(cell: Cell, test: str, model: str, score: Callable[[Decision], float]) -> Rate:
    """The mean over trials of a function of one model's decision, with its standard error."""
    return rate(score(d) for decisions in cell.decisions(test) for d in decisions if d["model"] == model)


def rejected(cell: Cell, test: str, model: str) -> Rate:
    """How often the model is declared worse."""
    return mean_of(cell, test, model, lambda decision: float(decision["worse"]))


def selected(cell: Cell, test: str, model: str) -> Rate:
    """How often the model is the one the others are tested against."""
    return mean_of(cell, test, model, lambda decision: float(decision["selected"]))


def beside(ours: Rate, papers: float) -> str:
    """Our rate with its standard error, the paper's in brackets.

    >>> beside((0.4, 0.049), 0.42)
    '0.40 ± 0.05 (0.42)'
    """
    return f"{ours[0]:.2f} ± {ours[1]:.2f} ({papers:.2f})"


# --------------------
# What the two versions of table 1 share: five mixtures of two groups of images against an even one, FID beside.


class Mixture(NamedTuple):
    """A model: the share of the first group, and whether its images are generated."""

    share: float
    generated: bool


MODELS = {
    "G .50/.50": Mixture(0.50, True),
    "R .60/.40": Mixture(0.60, False),
    "R .40/.60": Mixture(0.40, False),
    "R .51/.49": Mixture(0.51, False),
    "R .52/.48": Mixture(0.52, False),
}
TRULY_BEST = "R .51/.49"
TESTS: dict[str, dict[str, Any]] = {
    "RelPSI": {"test": "relpsi"},
    "RelMulti": {"test": "relmulti", "select_fraction": 0.5, "correction": "by"},
    "RelMulti, BH": {"test": "relmulti", "select_fraction": 0.5, "correction": "bh"},
    "best set": {"test": "best-set"},
    "carving": {"test": "carve"},
}
FID = "FID"
# The generated images and the truly best model alone: RelPSI without the other, nearly tied ones.
PAIR, PAIRED = ("G .50/.50", TRULY_BEST), "RelPSI, two models"
PAPER = {
    ("RelPSI", "rej."): (0.99, 0.39, 0.28, 0.02, 0.06),
    ("RelPSI", "sel."): (0.0, 0.02, 0.03, 0.52, 0.43),
    ("RelMulti", "rej."): (1.0, 0.18, 0.19, 0.03, 0.0),
    ("RelMulti", "sel."): (0.0, 0.08, 0.10, 0.37, 0.45),
    (FID, "sel."): (0.0, 0.39, 0.03, 0.27, 0.31),
}
PAPER_FID = (27.86, 16.01, 16.29, 16.03, 16.01)


@dataclass(frozen=True)
class Source:
    """Real images of the two groups, rows of features, and a generator of each: (group, count, rng) → rows."""

    real: tuple[Array, Array]
    generate: Callable[[int, int, np.random.Generator], Array]


def rows_needed(n: int) -> int:
    """Real images of a group that a trial needs: half of the reference, and the larger share of a model."""
    return n // 2 + max(_counts(mixture.share, n)[0] for mixture in MODELS.values())


def _counts(share: float, n: int) -> tuple[int, int]:
    first = round(share * n)
    return first, n - first


def draw(source: Source, n: int, seed: int) -> tuple[Array, dict[str, Array]]:
    """The reference and the models' samples: the reference's images are in no model, each model draws from the rest.

    The models draw independently of each other, so that two of them may have images in common.
    """
    first, *streams = [np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(1 + len(MODELS))]
    shuffled = [group[first.permutation(len(group))] for group in source.real]
    halves = _counts(0.5, n)
    reference = np.concatenate([group[:count] for group, count in zip(shuffled, halves, strict=True)])
    rest = [group[count:] for group, count in zip(shuffled, halves, strict=True)]

    def sample(mixture: Mixture, rng: np.random.Generator) -> Array:
        counts = _counts(mixture.share, n)
        if mixture.generated:
            return np.concatenate([source.generate(k, count, rng) for k, count in enumerate(counts)])
        return np.concatenate([without_replacement(rest[k], count, rng) for k, count in enumerate(counts)])

    return reference, {name: sample(MODELS[name], rng) for name, rng in zip(MODELS, streams, strict=True)}


def without_replacement(rows: Array, count: int, rng: np.random.Generator) -> Array:
    """`count` distinct rows."""
    return rows[rng.choice(len(rows), count, replace=False)]


def trial(source: Source, n: int, seed: int) -> dict[str, Any]:
    """One draw: the verdicts of every test, and FID."""
    reference, samples = draw(source, n, seed)
    decisions: list[Decision] = []
    for name, options in TESTS.items():
        result = compare(reference, samples, kernel=IMQ(), alpha=ALPHA, rng=seed, progress=False, **options)
        decisions += verdicts(name, result)
    pair = {name: samples[name] for name in PAIR}
    decisions += verdicts(PAIRED, compare(reference, pair, kernel=IMQ(), alpha=ALPHA, rng=seed, progress=False))
    distances = fids(reference, samples)
    lowest = min(distances, key=distances.__getitem__)
    unjudged: Decision = {"worse": False, "pvalue": None}
    decisions += [
        {"test": FID, "model": name, **unjudged, "selected": name == lowest, "value": value}
        for name, value in distances.items()
    ]
    return {"decisions": decisions}


def table(results: Results) -> list[Row]:
    """As the paper's: a row per model, the paper's figure in brackets."""
    return [_row(cell, k, model) for cell in results for k, model in enumerate(MODELS)]


def _row(cell: Cell, k: int, model: str) -> Row:
    row: Row = {"n": cell.setting["n"], "model": model}
    for (test, words), figures in PAPER.items():
        score = rejected if words == "rej." else selected
        row[f"{test} {words} (paper)"] = beside(score(cell, test, model), figures[k])
    mean = mean_of(cell, FID, model, lambda decision: decision["value"])[0]
    row["mean FID (paper)"] = f"{mean:.3g} ({PAPER_FID[k]:.1f})"
    return {**row, **{f"{test} rej.": rejected(cell, test, model) for test in ("RelMulti, BH", "best set", "carving")}}


def extras(results: Results) -> Mapping[str, list[Row]]:
    """What the nearly tied models cost RelPSI."""
    generated = PAIR[0]
    rows: list[Row] = [
        {
            "n": cell.setting["n"],
            **{f"{models} models": rejected(cell, test, generated) for models, test in tests.items()},
        }
        for cell in results
        for tests in [{"five": "RelPSI", "two": PAIRED}]
    ]
    return {f"How often RelPSI declares {generated} worse, among five models and beside {TRULY_BEST} alone:": rows}


def figure(title: str, results: Results) -> Figure:
    """How often each model is declared worse, and how often it is selected, for the largest n."""
    cell = results[-1]
    drawn, axes = new_figure(2, 4.6)
    panels = (("rej.", rejected, ("RelPSI", "RelMulti", "best set", "carving")), ("sel.", selected, ("RelPSI", FID)))
    labels = ("Declared worse (share of trials)", "Selected as best (share of trials)")
    for ax, (words, score, tests), label in zip(axes, panels, labels, strict=True):
        rates = {test: [score(cell, test, model) for model in MODELS] for test in tests}
        papers = {test: PAPER[test, words] for test in tests if (test, words) in PAPER}
        draw_bars(
            ax, f"{title}, n = {cell.setting['n']}", list(MODELS), rates, papers, label, "the paper (faces, n = 2000)"
        )
        ax.tick_params(axis="x", labelsize="small")
    for ax in axes:
        ax.legend(loc="best", frameon=False, fontsize="small")
    return drawn


def checks(results: Results) -> list[Check]:
    """The model nearest to the truth is seldom declared worse."""
    tests = ("RelPSI", "RelMulti", "best set", "carving")
    return [_kept(test, results) for test in tests]


def _kept(test: str, results: Results) -> Check:
    points = [Point(cell.setting["n"], *rejected(cell, test, TRULY_BEST)) for cell in results]
    return level_kept(f"{test}: {TRULY_BEST}, the truly best, declared worse at most .05 + 3 s.e.", "n", points)


def generated_worst(results: Results) -> list[Check]:
    """The generated images are declared worse more often than any other model, as the paper found."""
    first, *others = MODELS
    return [_worst(test, first, others, results) for test in ("RelPSI", "RelMulti", "best set", "carving")]


def _worst(test: str, first: str, others: list[str], results: Results) -> Check:
    ours = [rejected(cell, test, first)[0] for cell in results]
    next_to = [max(rejected(cell, test, model)[0] for model in others) for cell in results]
    ok = all(a > b for a, b in zip(ours, next_to, strict=True))
    figures = ", ".join(f"{a:.3f} and {b:.3f}" for a, b in zip(ours, next_to, strict=True))
    return Check(f"{test}: the generated images declared worse more often than any other model", ok, figures)
