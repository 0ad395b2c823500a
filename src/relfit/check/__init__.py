"""Checks a user can run on a density before relying on it."""

from relfit.check.score import ScoreCheck, check_score

__all__ = ["ScoreCheck", "check_score"]
