"""Decisions from (names, D, V): which models are worse than the best."""

from relfit.procedures.best_set import BestSetDecision, best_set
from relfit.procedures.carve import CarveDecision, carve
from relfit.procedures.carve_bounds import CarveBounds, carve_bounds
from relfit.procedures.collection import CollectionDecision, collection_best_set
from relfit.procedures.corrections import CORRECTIONS, adjust
from relfit.procedures.decision import Decision
from relfit.procedures.pairwise import PairDecision, fixed_relpsi, relative_z
from relfit.procedures.ranks import pair_intervals, pairwise_matrix, rank_sets
from relfit.procedures.regret import RegretBounds, regret_bounds
from relfit.procedures.relmulti import relmulti
from relfit.procedures.relpsi import relpsi
from relfit.procedures.scale import check_scale
from relfit.procedures.streams import seeded

__all__ = [
    "CORRECTIONS",
    "BestSetDecision",
    "CarveBounds",
    "CarveDecision",
    "CollectionDecision",
    "Decision",
    "PairDecision",
    "RegretBounds",
    "adjust",
    "best_set",
    "carve",
    "carve_bounds",
    "check_scale",
    "collection_best_set",
    "fixed_relpsi",
    "pair_intervals",
    "pairwise_matrix",
    "rank_sets",
    "regret_bounds",
    "relative_z",
    "relmulti",
    "relpsi",
    "seeded",
]
