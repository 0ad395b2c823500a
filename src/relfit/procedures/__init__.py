"""Decisions from (names, D, V): which models are worse than the best."""

from relfit.procedures.best_set import BestSetDecision, best_set
from relfit.procedures.carve import CarveDecision, carve, carve_bounds
from relfit.procedures.corrections import CORRECTIONS, adjust
from relfit.procedures.decision import Decision
from relfit.procedures.pairwise import PairDecision, fixed_relpsi, relative_z
from relfit.procedures.regret import regret_bounds
from relfit.procedures.relmulti import relmulti
from relfit.procedures.relpsi import relpsi
from relfit.procedures.streams import seeded

__all__ = [
    "CORRECTIONS",
    "BestSetDecision",
    "CarveDecision",
    "Decision",
    "PairDecision",
    "adjust",
    "best_set",
    "carve",
    "carve_bounds",
    "fixed_relpsi",
    "regret_bounds",
    "relative_z",
    "relmulti",
    "relpsi",
    "seeded",
]
