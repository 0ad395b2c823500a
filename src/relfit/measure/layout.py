"""How many pairs a design uses: the lags of the cyclic one, the blocks of the block one."""

from __future__ import annotations

import math
from dataclasses import replace

from relfit.discrepancies import Estimates, designs
from relfit.discrepancies.windows import Source
from relfit.errors import InputError
from relfit.measure.plan import Plan

# Of the cyclic design, where nothing else is asked for: docs/estimators.md shows what more of them would gain.
DEFAULT_LAGS = 25
# A covariance of l models from fewer block values than this for each is mostly noise.
BLOCKS_PER_MODEL = 5
FEWEST_BLOCKS = 40


def of_pairs(source: Source, plan: Plan) -> Estimates:
    """The estimate by the block or the incomplete design; `source` gives its rows in the order wanted."""
    n = source.rows
    if plan.estimator == "incomplete":
        lags = lags_of(n, plan.pairs)
        said = f"{n * lags:,} of {n * (n - 1) // 2:,} pairs of rows, each row with the {lags} after it in random order"
        found = designs.incomplete(source, lags, plan.runtime)
    else:
        size = block_size(n, source.models, plan.blocks)
        said = f"{n // size} blocks of {size} rows" + (f"; {n % size} rows left over and not used" if n % size else "")
        found = designs.block(replace(source, rows=n // size * size), size, plan.runtime)
    return replace(found, notes=(f"{plan.estimator} estimator: {said}",))


def lags_of(rows: int, pairs: int | None) -> int:
    """R of the cyclic design, which has nR pairs: round(pairs/n), at most (n−1)/2, where nearly all are used.

    >>> lags_of(1000, 10_000), lags_of(1000, None), lags_of(21, None)
    (10, 25, 10)
    """
    wanted = DEFAULT_LAGS if pairs is None else math.floor(pairs / rows + 0.5)
    if wanted < 1:
        raise InputError(
            f'pairs: expected at least {rows} (one for every row), got {pairs}; for fewer use estimator="linear"'
        )
    return min(wanted, (rows - 1) // 2)


def block_size(rows: int, models: int, blocks: int | None) -> int:
    """The rows b = ⌊n/B⌋ of a block; as many blocks as there is room for are used, B or a few more.

    By default B is √n, and no fewer than 40 or 5 for each model.

    >>> block_size(10_000, 3, None), block_size(10_000, 3, 500)
    (100, 20)
    """
    most = rows // 2
    wanted = min(max(math.isqrt(rows), FEWEST_BLOCKS, BLOCKS_PER_MODEL * models), most) if blocks is None else blocks
    if wanted > most:
        raise InputError(f"blocks: expected at most {most} for {rows} rows (of two rows or more each), got {blocks}")
    return rows // wanted


def check_blocks(rows: int, models: int, blocks: int | None) -> None:
    """Refuse too few blocks for the joint covariance of so many models."""
    fewest = BLOCKS_PER_MODEL * models
    each = f"{BLOCKS_PER_MODEL} for each of {models} models"
    if blocks is None and rows < 2 * fewest:
        raise InputError(
            f'estimator="block": expected at least {2 * fewest} rows (blocks of two, {each}), got {rows}; '
            'use estimator="complete"'
        )
    if blocks is not None and blocks < fewest:
        raise InputError(f"blocks: expected at least {fewest} ({each}), got {blocks}")
