"""Model-wise rates of the paper's two tables: how often a model is declared worse, and how often it is selected."""

from __future__ import annotations

from collections.abc import Callable

from relfit.experiments.experiment import Cell, Decision
from relfit.experiments.summaries import rate
from relfit.result import Comparison

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
