"""Power and sample size: how many rows a comparison needs, and what a given number of rows can show."""

from relfit.planning.pilot import Assumed
from relfit.planning.plan import plan
from relfit.planning.result import Plan

__all__ = ["Assumed", "Plan", "plan"]
