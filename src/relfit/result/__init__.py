"""Finished results: what was decided, with every setting. They know nothing of how they are shown."""

from relfit.result.comparison import Comparison
from relfit.result.pair import PairComparison
from relfit.result.ranking import PairMatrix, Ranks

__all__ = ["Comparison", "PairComparison", "PairMatrix", "Ranks"]
