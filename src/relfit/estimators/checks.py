"""Does the design fit the data? Sizes, dependence, continuous data for KSD."""

from __future__ import annotations

import reprlib
from typing import Any

import numpy as np

from relfit.compute.rows import parts
from relfit.data.load import Data, require_rows
from relfit.estimators.base import Dependence, Plan
from relfit.estimators.designs import block_size, check_blocks, lags_of
from relfit.estimators.kernel import LARGEST
from relfit.util.arrays import Array
from relfit.util.errors import InputError

FEWEST_ROWS = {"complete": 20, "linear": 40, "block": 40, "incomplete": 20}
FEWEST_SELECTION_ROWS = {"complete": 5, "linear": 10, "block": 10, "incomplete": 5}


def check_design(data: Data, estimator: str, dependence: Dependence, *, grouped: bool = False) -> None:
    """Refuse sizes and kinds of data that the estimator or the dependence does not fit.

    Rows in groups belong together by their labels, and need not be equally many.
    """
    samples = {name: len(x) for name, x in data.samples.items()}
    lengths = set(samples.values())
    _check_dependence(data, estimator, dependence)
    if data.kind == "densities":
        check_continuous("reference", data.reference)
    if data.kind == "target":
        for name, x in data.samples.items():
            check_continuous(f"model {name!r}", x)
    if dependence == "shared" and len(lengths) > 1 and not grouped:
        raise InputError(f'dependence="shared": expected models of equal size, got {sorted(lengths)}')
    if dependence == "paired" and lengths != {len(data.reference)} and not grouped:
        raise InputError(
            f'dependence="paired": expected every model to have {len(data.reference)} rows like the reference, '
            f"got {sorted(lengths)}"
        )
    lengths.add(len(data.reference))
    if data.kind == "samples" and estimator != "complete" and len(lengths) > 1:
        raise InputError(
            f'estimator="{estimator}": expected samples of equal size (it pairs model and reference rows), '
            f'got {sorted(lengths)} rows; use estimator="complete" or equal sizes'
        )


def check_layout(estimator: str, pairs: Any, blocks: Any) -> None:
    """Refuse numbers of pairs or blocks that are none, or that the estimator has no use for."""
    for argument, value, owner in (("pairs", pairs, "incomplete"), ("blocks", blocks, "block")):
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise InputError(f"{argument}: expected a whole number of at least 1, got {reprlib.repr(value)}")
        if estimator != owner:
            raise InputError(f'{argument}: belongs to estimator="{owner}", got estimator={estimator!r}; leave it out')


def resolved_variance(variance: str) -> str:
    """The covariance that "auto" stands for."""
    return "projection" if variance == "auto" else variance


def check_variance(data: Data, estimator: str, dependence: Dependence, variance: str) -> None:
    """Refuse a second-order correction where it is not known, or where there is nothing to choose.

    UME and FSSD have no estimator, which is "" here.
    """
    if variance == "auto":
        return
    if estimator != "complete":
        owner = repr(estimator) if estimator else "a discrepancy at locations"
        raise InputError(
            f'variance={variance!r}: chooses between two covariances of estimator="complete"; '
            f"{owner} has one of its own, leave it out"
        )
    if variance == "projection":
        return
    if dependence == "chain":
        raise InputError('variance="corrected": not known for a chain, whose covariance comes from batch means')
    lengths = {len(x) for x in data.samples.values()}
    if dependence == "shared" and data.kind == "samples" and lengths != {len(data.reference)}:
        raise InputError(
            f'variance="corrected": expected models of {len(data.reference)} rows like the reference with '
            f'dependence="shared", got {sorted(lengths)}; use variance="projection"'
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


def check_rows(data: Data, plan: Plan, *, selection: bool = False, share: str = "") -> None:
    """Refuse samples too small for the normal approximation, and numbers of pairs or blocks that do not fit them."""
    fewest = (FEWEST_SELECTION_ROWS if selection else FEWEST_ROWS)[plan.estimator]
    why = f"{share}{plan.estimator} estimator"
    sizes = {f"model {name!r}": len(rows) for name, rows in data.samples.items()}
    if data.target is None:
        sizes = {"reference": len(data.reference), **sizes}
    for what, rows in sizes.items():
        require_rows(what, rows, fewest, why)
    if plan.groups is not None:
        for key, codes in plan.groups.codes.items():
            found, who = len(np.unique(codes)), "reference" if key is None else f"model {key!r}"
            if found < fewest:
                raise InputError(f"groups: expected at least {fewest} groups in {who} ({why}), got {found}")
    together = 1 if data.kind == "target" and plan.dependence != "shared" else len(data.models)
    for rows in sorted(set(sizes.values())):
        if plan.estimator == "incomplete":
            lags_of(rows, plan.pairs)
        if plan.estimator == "block":
            block_size(rows, together, plan.blocks)
            if not selection:
                check_blocks(rows, together, plan.blocks)


def check_continuous(argument: str, rows: Array) -> None:
    """KSD needs continuous data whose fourth powers stay within float64."""
    largest, most, whole = 0.0, LARGEST["ksd"], True
    for part in parts(rows.shape):
        chunk = rows[part]
        largest = max(largest, -float(chunk.min()), float(chunk.max()))
        whole = whole and np.array_equal(chunk, np.round(chunk))
    # From 2⁵² on every float64 is a whole number.
    if largest < 2.0**52 and whole:
        raise InputError(
            f"{argument}: expected continuous data for KSD, got whole numbers only; use samples of the models and MMD"
        )
    if largest > most:
        raise InputError(
            f"{argument}: expected numbers below {most:g} in size for KSD, got {largest:g}; rescale the data"
        )
