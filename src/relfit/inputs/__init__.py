"""Files and arrays into checked data. Every input check lives in this package, once."""

from relfit.inputs.arrays import as_rows
from relfit.inputs.data import Data, check_pair_names, is_rows, load, require_rows
from relfit.inputs.drawing import draw
from relfit.inputs.files import name_of, read_rows, split_key
from relfit.inputs.labels import group_labels
from relfit.inputs.options import (
    Seed,
    check_alpha,
    check_choice,
    check_fraction,
    check_level,
    check_margin,
    make_seed,
    stream,
)
from relfit.inputs.scores import scores_of, stored_scores

__all__ = [
    "Data",
    "Seed",
    "as_rows",
    "check_alpha",
    "check_choice",
    "check_fraction",
    "check_level",
    "check_margin",
    "check_pair_names",
    "draw",
    "group_labels",
    "is_rows",
    "load",
    "make_seed",
    "name_of",
    "read_rows",
    "require_rows",
    "scores_of",
    "split_key",
    "stored_scores",
    "stream",
]
