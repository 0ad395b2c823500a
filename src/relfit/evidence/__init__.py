"""What the raw data add to a finished comparison: where models and data differ, and what another bandwidth says."""

from relfit.evidence.groups import Separation, separated_groups
from relfit.evidence.landscape import Landscape, landscape
from relfit.evidence.recall import Recalled, recall
from relfit.evidence.rows import Differing, differing_rows
from relfit.evidence.sensitivity import Sensitivity, bandwidth_sensitivity

__all__ = [
    "Differing",
    "Landscape",
    "Recalled",
    "Sensitivity",
    "Separation",
    "bandwidth_sensitivity",
    "differing_rows",
    "landscape",
    "recall",
    "separated_groups",
]
