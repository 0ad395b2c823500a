"""Does the design fit the data? Sizes, dependence, continuous data for KSD."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relfit.discrepancies import Dependence
from relfit.errors import InputError
from relfit.inputs import Data, require_rows
from relfit.measure.bandwidth import LARGEST

Array = NDArray[np.float64]

FEWEST_ROWS = {"complete": 20, "linear": 40}
FEWEST_SELECTION_ROWS = {"complete": 5, "linear": 10}


def check_design(data: Data, estimator: str, dependence: Dependence) -> None:
    """Refuse sizes and kinds of data that the estimator or the dependence does not fit."""
    samples = {name: len(x) for name, x in data.samples.items()}
    lengths = set(samples.values())
    _check_dependence(data, estimator, dependence)
    if data.kind == "densities":
        check_continuous("reference", data.reference)
    if data.kind == "target":
        for name, x in data.samples.items():
            check_continuous(f"model {name!r}", x)
    if dependence == "shared" and len(lengths) > 1:
        raise InputError(f'dependence="shared": expected models of equal size, got {sorted(lengths)}')
    if dependence == "paired" and lengths != {len(data.reference)}:
        raise InputError(
            f'dependence="paired": expected every model to have {len(data.reference)} rows like the reference, '
            f"got {sorted(lengths)}"
        )
    lengths.add(len(data.reference))
    if data.kind == "samples" and estimator == "linear" and len(lengths) > 1:
        raise InputError(
            f'estimator="linear": expected samples of equal size (it pairs model and reference rows), '
            f'got {sorted(lengths)} rows; use estimator="complete" or equal sizes'
        )


def _check_dependence(data: Data, estimator: str, dependence: Dependence) -> None:
    if data.kind == "densities" and dependence != "independent":
        raise InputError(
            f'dependence={dependence!r}: describes samples of the models; densities have none, use "independent"'
        )
    if data.kind == "target" and dependence == "paired":
        raise InputError('dependence="paired": pairs models with reference rows, but the reference is a density')
    if dependence == "chain" and data.kind != "target":
        raise InputError('dependence="chain": expected a Density as the reference, got a sample')
    if dependence == "chain" and estimator != "complete":
        raise InputError(f'dependence="chain": expected estimator="complete", got {estimator!r}')


def check_rows(data: Data, estimator: str, *, selection: bool = False, share: str = "") -> None:
    """Refuse samples too small for the normal approximation."""
    fewest = (FEWEST_SELECTION_ROWS if selection else FEWEST_ROWS)[estimator]
    why = f"{share}{estimator} estimator"
    if data.target is None:
        require_rows("reference", len(data.reference), fewest, why)
    for name, rows in data.samples.items():
        require_rows(f"model {name!r}", len(rows), fewest, why)


def check_continuous(argument: str, rows: Array) -> None:
    """KSD needs continuous data whose fourth powers stay within float64."""
    largest, most = float(np.abs(rows).max()), LARGEST["ksd"]
    # From 2⁵² on every float64 is a whole number.
    if largest < 2.0**52 and np.array_equal(rows, np.round(rows)):
        raise InputError(
            f"{argument}: expected continuous data for KSD, got whole numbers only; use samples of the models and MMD"
        )
    if largest > most:
        raise InputError(
            f"{argument}: expected numbers below {most:g} in size for KSD, got {largest:g}; rescale the data"
        )
