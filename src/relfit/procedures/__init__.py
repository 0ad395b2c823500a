"""Decisions from (names, D, V): which models are worse than the best."""

from relfit.procedures.corrections import CORRECTIONS, adjust
from relfit.procedures.decision import Decision
from relfit.procedures.pairwise import PairDecision, fixed_relpsi, relative_z
from relfit.procedures.relmulti import relmulti
from relfit.procedures.relpsi import relpsi

__all__ = ["CORRECTIONS", "Decision", "PairDecision", "adjust", "fixed_relpsi", "relative_z", "relmulti", "relpsi"]
