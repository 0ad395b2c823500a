"""Checks of a density before relying on it: one that a user can run, and one that every comparison does."""

from relfit.check.contradictions import score_warnings
from relfit.check.score import ScoreCheck, check_score

__all__ = ["ScoreCheck", "check_score", "score_warnings"]
