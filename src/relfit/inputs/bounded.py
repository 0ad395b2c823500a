"""Inputs under a budget of memory: none of them is held, copied or looked at as a whole."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.errors import InputError
from relfit.inputs.arrays import LARGEST_VALUE, as_rows, non_finite_error, too_large_error
from relfit.inputs.files.opened import as_file, fortran_parts, open_rows, two_dimensional
from relfit.memory import Budget
from relfit.models import Sample
from relfit.stored import CastRows, LazyRows, bare_rows, parts, written_rows


def bounded_rows(argument: str, value: Any, budget: Budget) -> LazyRows:
    """The value as rows that are read a part at a time, checked like `as_rows`.

    Files and mapped arrays stay where they are, or go to the budget's folder; arrays in memory are the caller's, and
    are cast as they are used.
    """
    if isinstance(value, LazyRows):
        return value
    value = value.x if isinstance(value, Sample) else value
    rows = _opened(argument, value, budget)
    if not rows.shape[0] or not rows.shape[1]:
        raise InputError(f"{argument}: expected at least one row and one column, got shape {rows.shape}")
    _refuse_non_finite(argument, rows)
    return rows


def _opened(argument: str, value: Any, budget: Budget) -> LazyRows:
    file = as_file(value)
    if file is not None:
        return open_rows(file, budget)
    if isinstance(value, np.memmap) and value.dtype.kind in "biuf":
        mapped = _mapped(two_dimensional(argument, value), budget)
        if mapped is not None:
            return mapped
    if type(value) is np.ndarray and value.dtype.kind in "biuf":
        return CastRows(two_dimensional(argument, value))
    return CastRows(as_rows(argument, value))


def _mapped(array: Any, budget: Budget) -> LazyRows | None:
    """A mapped array as the file it maps; None for one whose changes are its own, and never reach the file."""
    base = array._mmap
    if array.filename is None or base is None or array.mode == "c":
        return None
    start = array.offset - array.offset % mmap.ALLOCATIONGRANULARITY
    # Of a part of a mapped array NumPy keeps the whole one's offset; where its numbers lie tells its own.
    offset = start + array.__array_interface__["data"][0] - _address(base)
    if array.flags.c_contiguous:
        return bare_rows(array.filename, array.dtype, array.shape, offset)
    if array.flags.f_contiguous:
        return written_rows(fortran_parts(array.filename, array.dtype, array.shape, offset), budget.folder)
    return written_rows(_parts_of_mapped(array, base), budget.folder)


def _parts_of_mapped(array: Any, base: mmap.mmap) -> Iterator[NDArray[Any]]:
    for part in parts(array.shape):
        yield np.array(array[part])
        if hasattr(base, "madvise"):
            # What was touched would stay resident; the file keeps it.
            base.madvise(mmap.MADV_DONTNEED)


def _address(base: mmap.mmap) -> int:
    whole: NDArray[np.uint8] = np.frombuffer(base, np.uint8)
    return int(whole.__array_interface__["data"][0])


def _refuse_non_finite(argument: str, rows: LazyRows) -> None:
    bad = large = 0
    first_bad = first_large = -1
    for part in parts(rows.shape):
        block = rows[part]
        if block.min() > -LARGEST_VALUE and block.max() < LARGEST_VALUE:
            continue
        not_finite = ~np.isfinite(block).all(axis=1)
        too_large = (np.abs(block) >= LARGEST_VALUE).any(axis=1)
        first_bad = part.start + int(not_finite.argmax()) if not_finite.any() and not bad else first_bad
        first_large = part.start + int(too_large.argmax()) if too_large.any() and not large else first_large
        bad, large = bad + int(not_finite.sum()), large + int(too_large.sum())
    if bad:
        raise non_finite_error(argument, bad, len(rows), first_bad)
    if large:
        raise too_large_error(argument, large, len(rows), first_large)
