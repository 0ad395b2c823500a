"""Scores as dictionaries and refused logs, for tests."""

import numpy as np
from refusals import refused

from relfit.data.evals import read_evals


def refusal(*args, **options):
    """The line in which `read_evals` refuses these arguments."""
    return refused(lambda: read_evals(*args, **options))


def by_model(read):
    """Model → item, or (stratum, item) → score, without those that are missing."""
    items = read.items.tolist()
    keys = items if read.strata is None else list(zip(read.strata.tolist(), items, strict=True))
    columns = zip(read.names, read.values.T.tolist(), strict=True)
    return {
        name: {key: value for key, value in zip(keys, column, strict=True) if not np.isnan(value)}
        for name, column in columns
    }
