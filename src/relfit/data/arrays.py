"""Anything array-like as rows (n, d) of numbers, or as labels of rows; whatever cannot be
used is refused in one line.

Rows are loaded in one of three ways, with the same checks of shape and values. `as_rows`
gives float64 arrays. `spilled_rows` gives float64 arrays too, mapped from a file, so that
they take no memory of the process. `resident_rows` gives tensors on the CUDA device where
the data live already.

Rows that arrive in batches are gathered, in memory or, under a budget of memory, in a file
that grows with every batch. Batches come from generators and other objects that can be
iterated, from torch's data loaders and data sets, from Hugging Face's and pyarrow's data
sets. They are arrays or tensors of rows, or data frames, which together are a table.

Posteriors are the draws of Bayesian models as ArviZ holds them: InferenceData, xarray's
DataTree, or the group `posterior` itself.

Rows that samples have in common are found by 64-bit keys, the same for equal rows. Comparing
keys takes memory linear in the number of rows, and one sort per sample. The keys of rows on a
CUDA device stay there, but for one copy that the digest is made of.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from relfit.compute.memory import Budget, held_rows, in_words, spilled
from relfit.data.files import FileRows, as_file, find_file, read_rows
from relfit.data.files.arrays import is_tensor, tensor_array
from relfit.data.files.base import column_positions, reading
from relfit.data.tables import Table, computed, frame_array, is_table, table_in_parts
from relfit.util.arrays import (
    PART_NUMBERS,
    Array,
    cuts,
    extremes,
    host,
    is_mapped,
    library,
    numeric_rows,
    parts,
    rounds_coarsely,
    two_dimensional,
)
from relfit.util.errors import InputError
from relfit.util.libraries import is_instance, loaded
from relfit.util.progress import Progress, counted
from relfit.util.text import listed, visible

# Squares of differences, and their quotients by the squared bandwidth, must stay within
# float64.
LARGEST_VALUE = 1e152
# A file that is read whole, or a chunk of a file, may take the memory budget divided by this.
_BUDGET_DIVISOR = 8
# The code of CUDA in the DLPack protocol, which JAX and CuPy support too.
_CUDA = 2
# The rows that a data set of another library is asked for at once.
_BATCH_ROWS = 4096
# What an object has that is a model, or a value to be computed, even if it can be iterated.
_OTHERWISE = ("log_prob", "sample", "__call__", "__array__", "__dlpack__", "__dask_graph__")
# Posteriors are told by the names of their types: the classes differ from version to version
# of these libraries.
_WHOLE = ("InferenceData", "DataTree")
_GROUPS = ("Dataset", "DataTree")
_ORDER = ("chain", "draw")

_Rows = TypeVar("_Rows")


def argument_of(name: str | None) -> str:
    """What errors call a model, or (None) the reference."""
    return "reference" if name is None else f"model {name!r}"


def as_rows(argument: str, value: Any, *, missing: bool = False) -> Array:
    """The value as a C-ordered float64 array of n rows and d columns; a 1-d array is n × 1.

    Accepts arrays, nested lists, data frames of numbers, tensors of other libraries and file
    names. An array that is float64 and C-ordered already, such as a memory-mapped file, is
    not copied, and stays read-only if it was. With `missing`, NaN and finite numbers of any
    size are allowed.
    """
    rows = two_dimensional(argument, _cast(_numeric(argument, _array(argument, value))))
    gone = np.isnan(rows) if missing else None
    known = rows if gone is None or not gone.any() else np.where(gone, 0.0, rows)
    checked_rows(argument, known, math.inf if missing else LARGEST_VALUE)
    return np.ascontiguousarray(rows)


def spilled_rows(
    argument: str, value: Any, budget: Budget, progress: Progress | None = None
) -> Array:
    """The value as a mapped array like that of `as_rows`; accepts what `as_rows` accepts.

    A mapped array that is float64 and C-ordered stays where it is. Anything else is written
    to a file in the budget's folder, a part at a time.
    """
    file = as_file(value)
    if file is not None:
        rows = _rows_of_file(argument, file, budget, progress)
    elif isinstance(value, Table):
        columns = value.number_columns()
        shape = (len(value), len(columns))
        blocks = (
            np.stack([column[part] for column in columns], axis=1) for part in parts(shape)
        )
        rows = spilled(blocks, budget.folder)
    else:
        array = _numeric(argument, _array(argument, value))
        rows = _spilled(two_dimensional(argument, array), budget)
    return checked_rows(argument, rows)


def _rows_of_file(
    argument: str, file: FileRows, budget: Budget, progress: Progress | None
) -> Array:
    """The rows of a file, mapped: in place where the format allows it, else from a copy."""
    format, selection = find_file(file.source, file.columns)
    path = selection.path
    with reading(path):
        if format.parts is not None:
            blocks = format.parts(selection, budget.total // _BUDGET_DIVISOR)
            return spilled(counted(progress, str(path), blocks), budget.folder)
        size = (
            path.stat().st_size if format.unpacked_size is None else format.unpacked_size(path)
        )
        if size > budget.total // _BUDGET_DIVISOR:
            raise InputError(
                f"{path}: {path.suffix} files are read whole, and its {in_words(size)} are "
                f"more than an "
                f"eighth of memory={in_words(budget.total)}; save it as .npy, .parquet or .zarr"
            )
        array = numeric_rows(path, format.read(replace(selection, columns=None)))
        _refuse_rounded(argument, array)
        columns = None
        if selection.columns is not None:
            columns = column_positions(selection, None, array.shape[1])
        return _spilled(array, budget, columns)


def _spilled(
    array: NDArray[Any], budget: Budget, columns: Sequence[int] | None = None
) -> Array:
    """The array, or some of its columns, mapped from a file; a mapped array of float64 as it
    is.
    """
    if (
        columns is None
        and is_mapped(array)
        and array.dtype == np.float64
        and array.flags.c_contiguous
    ):
        return np.asarray(array)
    # A file that holds one column after the other is read in places far apart: the fewer blocks
    # the better.
    numbers = None if array.flags.c_contiguous else 4 * PART_NUMBERS
    taken = slice(None) if columns is None else columns
    return spilled(
        (array[part][:, taken] for part in parts(array.shape, numbers)), budget.folder
    )


def resident_rows(argument: str, value: Any, device: str) -> Any:
    """The value as a tensor (n, d) of float32 or float64 on the device; accepts what
    `as_rows` accepts.

    Data that live on the device already are not copied, whatever their library, unless they
    must be converted.
    """
    import torch

    if device_of([value]) is None and not is_tensor(value):
        return torch.as_tensor(as_rows(argument, value), device=device)
    rows = (value.detach() if is_tensor(value) else torch.from_dlpack(value)).to(device)
    if rows.is_complex():
        raise InputError(
            f"{argument}: expected numbers, got complex numbers (dtype {rows.dtype})"
        )
    if rows.dtype not in (torch.float32, torch.float64):
        rows = rows.to(torch.float32 if rows.is_floating_point() else torch.float64)
    return checked_rows(argument, two_dimensional(argument, rows)).contiguous()


def device_of(values: Iterable[Any]) -> str | None:
    """The CUDA device of the first of the values that lives on one; None if all of them live
    on the host.
    """
    if loaded("torch") is None:
        return None
    for value in values:
        if callable(getattr(value, "__dlpack_device__", None)):
            # JAX raises one of these for an array that is spread over several devices.
            with suppress(BufferError, RuntimeError, TypeError, ValueError):
                kind, number = value.__dlpack_device__()
                if int(kind) == _CUDA:
                    return f"cuda:{int(number)}"
    return None


def checked_rows(argument: str, rows: _Rows, largest: float = LARGEST_VALUE) -> _Rows:
    """The rows (an array or a tensor), refused if they are empty, not finite or too large."""
    blocks: Any = rows
    if 0 in blocks.shape:
        raise InputError(
            f"{argument}: expected at least one row and one column, got shape "
            f"{tuple(blocks.shape)}"
        )
    # A tensor at once: every part would wait for its device.
    in_parts = list(parts(blocks.shape)) if isinstance(blocks, np.ndarray) else [slice(None)]
    # The usual case, without a temporary array; NaN fails both comparisons.
    ends = (extremes(blocks[part]) for part in in_parts)
    if all(low > -largest and high < largest for low, high in ends):
        return rows
    for limit, expected, got, advice in (
        (np.inf, "finite numbers", "NaN or infinity", ""),
        (
            largest,
            f"numbers below {largest:g} in size",
            "larger ones",
            "; rescale the data or drop these rows",
        ),
    ):
        bad = [host(~(abs(blocks[part]) < limit).all(axis=1)) for part in in_parts]
        numbers = np.flatnonzero(np.concatenate(bad))
        if len(numbers):
            where = f"{len(numbers)} of {len(blocks)} rows (first: row {numbers[0]})"
            raise InputError(f"{argument}: expected {expected}, got {got} in {where}{advice}")
    return rows


def refuse_sparse(argument: str, value: Any) -> None:
    """Refuse a sparse matrix of scipy, whose items are no rows."""
    if is_instance(value, "scipy.sparse", "spmatrix", "sparray"):
        raise InputError(
            f"{argument}: expected an array, got a sparse {type(value).__name__}; convert it "
            f"by .toarray()"
        )


def _array(argument: str, value: Any) -> NDArray[Any]:
    refuse_sparse(argument, value)
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        masked = int(np.ma.getmaskarray(value).sum())
        raise InputError(
            f"{argument}: expected complete rows, got {masked} masked values; fill or drop them"
        )
    if isinstance(value, np.ndarray):
        return np.asarray(value)
    if isinstance(value, Table):
        return np.stack(value.number_columns(), axis=1)
    file = as_file(value)
    if file is not None:
        return np.asarray(read_rows(file.source, columns=file.columns))
    value = computed(argument, value)
    frame = frame_array(argument, value)
    if frame is not None:
        return frame
    try:
        return _converted(value)
    # The conversion of another library may raise anything.
    except Exception as error:  # noqa: BLE001
        if isinstance(value, list | tuple) and isinstance(error, ValueError):
            raise InputError(
                f"{argument}: expected a rectangular array, got rows of different lengths"
            ) from None
        raise InputError(
            f"{argument}: expected an array, got a {type(value).__name__} ({error})"
        ) from None


def _converted(value: Any) -> NDArray[Any]:
    if is_tensor(value):
        return tensor_array(value)
    if not hasattr(value, "__dlpack__"):
        return np.asarray(value)
    # np.asarray would wrap an object without __array__ in an array of one object.
    if hasattr(value, "__array__"):
        with suppress(TypeError):  # CuPy raises this for an array that lives on a device.
            return np.asarray(value)
    with suppress(
        TypeError
    ):  # NumPy before 2.1, or a library that implements the first version of the protocol.
        return np.from_dlpack(value, device="cpu")
    return np.from_dlpack(value)


def _cast(array: NDArray[Any]) -> Array:
    # What overflows, or is a signalling NaN, is refused by the check of the values.
    with np.errstate(over="ignore", invalid="ignore"):
        return array.astype(np.float64, copy=False)


def _numeric(argument: str, array: NDArray[Any]) -> NDArray[Any]:
    """The array, refused unless it holds numbers that float64 can tell apart."""
    # A number type that another library added to NumPy, such as bfloat16 and int4, has kind "V"
    # like records.
    dtype = array.dtype
    added = (
        dtype.kind == "V"
        and dtype.names is None
        and dtype.name.lstrip("bu").startswith(("int", "float"))
    )
    if dtype.kind in "biuf" or added:
        _refuse_rounded(argument, array)
        return array
    kinds = {
        "O": "Python objects",
        "U": "text",
        "S": "text",
        "c": "complex numbers",
        "M": "dates",
        "m": "durations",
    }
    kind = kinds.get(dtype.kind, "records")
    raise InputError(
        f"{argument}: expected numbers, got {kind} (dtype {dtype}); convert to float first"
    )


def _refuse_rounded(argument: str, array: NDArray[Any]) -> None:
    """Refuse columns of whole numbers beyond 2^53 of which different ones become equal in
    float64.
    """
    if (
        array.dtype.kind not in "iu"
        or array.dtype.itemsize < 8
        or not array.size
        or array.ndim not in (1, 2)
    ):
        return
    lows = np.atleast_1d(array.min(axis=0)).tolist()
    highs = np.atleast_1d(array.max(axis=0)).tolist()
    for low, high in zip(lows, highs, strict=True):
        if low < high and rounds_coarsely(low, high):
            raise InputError(
                f"{argument}: expected numbers that float64 can tell apart, got whole numbers "
                f"from {low} to {high} in "
                "one column; subtract a constant"
            )


def group_labels(argument: str, labels: Any, rows: int) -> NDArray[Any]:
    """The labels that say which of `rows` rows belong together: (rows,) numbers or text,
    none missing.

    >>> group_labels("groups", ["a", "a", "b"], 3).tolist()
    ['a', 'a', 'b']
    """
    try:
        array = np.asarray(labels)
    except (TypeError, ValueError):
        array = np.empty(())
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        shape = f"an array of shape {array.shape}" if array.ndim else type(labels).__name__
        raise InputError(f"{argument}: expected one label per row, got {shape}")
    if len(array) != rows:
        hint = ", one more than rows; is the first a header?" if len(array) == rows + 1 else ""
        raise InputError(
            f"{argument}: expected {rows} labels, one per row, got {len(array)}{hint}"
        )
    if array.dtype.kind == "O":
        missing = [k for k, label in enumerate(array) if label is None or label != label]
        array = array if missing else array.astype(str)
    else:
        missing = np.flatnonzero(np.isnan(array)).tolist() if array.dtype.kind == "f" else []
    if missing:
        raise InputError(
            f"{argument}: expected a label for every row, got none in row {missing[0]}"
        )
    if array.dtype.kind not in "biufUS":
        raise InputError(f"{argument}: expected numbers or text, got {array.dtype}")
    return array


# ── batches ───────────────────────────────────────────────────────────────────────────────────


def gathered(
    argument: str,
    value: Any,
    budget: Budget | None = None,
    progress: Progress | None = None,
) -> tuple[Any, str | None]:
    """The rows of something that yields them, and a note if it yields more or rows one by
    one; anything else as it is.

    Of tuples, as data sets with labels yield them, the first part is taken. With a budget of
    memory, no more than a batch is held: the rows are mapped from a file in its folder, as a
    `Table` where they are data frames.
    """
    refuse_sparse(argument, value)
    found = _items(value)
    if found is None:
        return value, None
    items, single = found
    widest = 1
    lengths = Counter[int | None]()

    def taken() -> Iterator[Any]:
        nonlocal widest
        for item in items:
            if isinstance(item, tuple | list):
                widest = max(widest, len(item))
                item = item[0] if item else item
            lengths[len(item) if getattr(item, "ndim", 0) == 1 else None] += 1
            yield item

    stream = taken()
    first = next(stream, None)
    if not lengths:
        raise InputError(
            f"{argument}: expected rows, but {type(value).__name__} yields none; has it been "
            f"used up? An object with "
            "__iter__ can be read more than once"
        )
    stream = itertools.chain([first], stream)
    if is_table(argument, first):
        rows: Any = table_in_parts(argument, stream, budget, progress)
    else:
        blocks = counted(progress, argument, _blocks(argument, stream, single))
        rows = (
            held_rows(blocks)
            if budget is None
            else checked_rows(argument, spilled(blocks, budget.folder))
        )
    count = lengths.total()
    length = next(iter(lengths))
    if widest > 1:
        note = f"the first of the {widest} parts of each item was taken as its row"
    elif not single and len(lengths) == 1 and length is not None and 1 < length < count:
        note = (
            f"{count} batches of {length} numbers were read as {count * length} rows of one "
            f"column; if each batch is one row, yield arrays of shape (n, {length})"
        )
    else:
        return rows, None
    return rows, f"{argument}: {note}"


def _items(value: Any) -> tuple[Iterable[Any], bool] | None:
    """What yields the rows, and True if each item is a single row; None for a value that is
    no source of rows.
    """
    if is_instance(value, "datasets", "Dataset", "IterableDataset"):
        return value.with_format("arrow").iter(_BATCH_ROWS), False
    if is_instance(value, "pyarrow.dataset", "Dataset"):
        # As little as possible is read ahead.
        ahead = {"batch_readahead": 0, "fragment_readahead": 0, "use_threads": False}
        return value.to_batches(batch_size=_BATCH_ROWS, **ahead), False
    if is_instance(value, "torch.utils.data", "IterableDataset"):
        return value, True
    if is_instance(value, "torch.utils.data", "Dataset"):
        return (value[k] for k in range(len(value))), True
    if isinstance(value, Mapping | Set | bytes | bytearray | type):
        return None
    other = any(hasattr(value, name) for name in _OTHERWISE)
    known = isinstance(value, Iterator) or (isinstance(value, Iterable) and not other)
    return (value, False) if known else None


def _blocks(argument: str, items: Iterable[Any], single: bool) -> Iterator[NDArray[Any]]:
    """The rows of all items, which must have the same columns."""
    width: int | None = None
    for item in items:
        for block in _batch_rows(argument, item, single=single):
            if width not in (None, block.shape[1]):
                came = f"batches of unlike shapes ({width} columns, then {block.shape[1]})"
                raise InputError(
                    f"{argument}: expected batches of rows with the same columns, got {came}"
                )
            width = block.shape[1]
            yield block


def _batch_rows(argument: str, value: Any, *, single: bool) -> Iterator[Array]:
    """A batch of rows, or a single one, in blocks; a mapped file is read a part at a time."""
    if isinstance(value, str | os.PathLike | Mapping):
        came = (
            "a mapping" if isinstance(value, Mapping) else f"the text {os.fspath(value)!r:.60}"
        )
        raise InputError(
            f"{argument}: expected batches of rows, got {came}; yield arrays or data frames"
        )
    array = _array(argument, value)
    if not (array.ndim or single):
        raise InputError(
            f"{argument}: expected batches of rows, got single numbers; yield "
            f"arrays of shape (n, d)"
        )
    rows = two_dimensional(argument, _numeric(argument, array[None] if single else array))
    if not len(rows):
        yield rows
    for part in parts(rows.shape):
        yield _cast(rows[part])


# ── posteriors ────────────────────────────────────────────────────────────────────────────────


def is_inference_data(value: Any) -> bool:
    """True for InferenceData or a DataTree, which hold groups such as `posterior` and
    `log_likelihood`.
    """
    return type(value).__name__ in _WHOLE and (
        hasattr(value, "posterior") or hasattr(value, "log_likelihood")
    )


def with_draws(values: Mapping[Any, Any]) -> tuple[dict[Any, Any], tuple[str, ...]]:
    """The reference (None) and the models, posteriors as rows with their columns in one
    order, and a note on these.

    There is no note if all columns are known by their names.
    """
    every = {key: _draws(argument_of(key), value) for key, value in values.items()}
    posteriors = {key: draws for key, draws in every.items() if draws is not None}
    if not posteriors:
        return dict(values), ()
    first = next(iter(posteriors))
    expected = posteriors[first][0]
    found = dict(values)
    for key, (columns, rows) in posteriors.items():
        if sorted(columns) != sorted(expected):
            raise InputError(
                f"{argument_of(key)}: expected the variables of {argument_of(first)} "
                f"({_shown(expected)}), got {_shown(columns)}; select them, such as by "
                "posterior[['a', 'b']]"
            )
        found[key] = rows[:, [columns.index(name) for name in expected]]
    if None in posteriors:
        return found, ()
    return found, (
        f"the rows of {listed(list(map(str, posteriors)))} are posterior draws with the "
        f"columns {_shown(expected)}, in this order; the reference "
        "must have the same columns, on the same scale",
    )


def _draws(argument: str, value: Any) -> tuple[list[str], Array] | None:
    """The names of the columns, and the draws of all chains as rows; None for anything else."""
    if is_inference_data(value):
        if not hasattr(value, "posterior"):
            raise InputError(
                f"{argument}: expected a group 'posterior', got "
                f"{type(value).__name__} without it"
            )
        value = value.posterior
    elif type(value).__name__ == "DataArray" and set(_ORDER) <= set(value.dims):
        value = value.to_dataset(name=value.name or "x")
    if type(value).__name__ not in _GROUPS or not hasattr(value, "data_vars"):
        return None
    columns: list[str] = []
    blocks: list[Array] = []
    for name, variable in value.data_vars.items():
        if not set(_ORDER) <= set(variable.dims):
            dims = [repr(str(dim)) for dim in variable.dims]
            got = listed(dims or ["none"], quote=str)
            raise InputError(
                f"{argument}: expected the dimensions 'chain' and 'draw' of "
                f"{str(name)!r}, got {got}"
            )
        cells = np.asarray(variable.transpose(*_ORDER, ...).to_numpy())
        if cells.dtype.kind not in "biuf":
            raise InputError(
                f"{argument}: expected numbers in {str(name)!r}, got dtype {cells.dtype}"
            )
        columns += [
            f"{name}[{', '.join(map(str, place))}]" if place else str(name)
            for place in np.ndindex(cells.shape[2:])
        ]
        blocks.append(cells.reshape(cells.shape[0] * cells.shape[1], -1).astype(np.float64))
    if not blocks:
        raise InputError(f"{argument}: expected variables in the posterior, got none")
    return columns, np.hstack(blocks)


def _shown(columns: list[str]) -> str:
    return listed([visible(name) for name in columns], most=6, quote=str)


# ── rows in common ───────────────────────────────────────────────────────────────────────────────

Keys = NDArray[np.int64]

# The number of values hashed at once, so that temporary arrays stay in the processor's cache, and
# of rows on a device.
_VALUES_AT_ONCE = 2**16
_DEVICE_ROWS = 2**20


@dataclass(frozen=True)
class Fingerprint:
    """The keys of a sample's rows, where the rows are. Those of 0.0 and −0.0 are equal."""

    keys: Keys

    @cached_property
    def ordered(self) -> Keys:
        """The keys, sorted."""
        if isinstance(self.keys, np.ndarray):
            return np.sort(self.keys)
        return self.keys.sort().values

    @cached_property
    def digest(self) -> str:
        """A digest of the rows in this order."""
        return hashlib.sha256(host(self.keys).data).hexdigest()

    @cached_property
    def atoms(self) -> bool:
        """True if so many rows repeat that samples have rows in common by chance, which then
        means nothing.
        """
        distinct = 1 + int((self.ordered[1:] != self.ordered[:-1]).sum())
        return distinct <= 0.9 * len(self.ordered)


# The keys of every sample, and of the reference under None.
Prints = Mapping[str | None, Fingerprint]


def fingerprint(rows: Any) -> Fingerprint:
    """The keys of all rows of an array or of a tensor."""
    # An odd factor for every column.
    factors: Any = np.random.default_rng(0).integers(2**62, size=rows.shape[1]) * 2 + 1
    if isinstance(rows, np.ndarray):
        keys = np.empty(len(rows), np.int64)
        for part in parts(rows.shape, _VALUES_AT_ONCE):
            keys[part] = _keys((rows[part] + 0.0).view(np.int64), factors)
        return Fingerprint(keys)
    torch = library(rows)
    factors = torch.as_tensor(factors, device=rows.device)
    blocks = (rows[part].double() + 0.0 for part in cuts(len(rows), _DEVICE_ROWS))
    return Fingerprint(
        torch.cat([_keys(block.contiguous().view(torch.int64), factors) for block in blocks])
    )


def fingerprints(samples: Mapping[str | None, Array]) -> Prints:
    """The keys of every sample."""
    return {name: fingerprint(rows) for name, rows in samples.items()}


def sample_copies(samples: Mapping[str, Array], prints: Prints) -> dict[str, str]:
    """Copy → original, the first sample with the same rows in the same order."""
    first: dict[str, str] = {}
    copies: dict[str, str] = {}
    for name, rows in samples.items():
        twin = first.setdefault(prints[name].digest, name)
        # Keys may collide, so the rows themselves decide.
        if twin != name and _equal(rows, samples[twin]):
            copies[name] = twin
    return copies


def rows_in_common(
    reference: Array, samples: Mapping[str, Array], prints: Prints
) -> dict[str, int]:
    """The number of a sample's rows that also occur in the reference, for every sample that
    has such rows.
    """
    ordered = prints[None].ordered
    atoms = prints[None].atoms
    counts = {}
    for name, rows in samples.items():
        # Both are sorted, so that the searches walk through memory in order.
        keys = prints[name].ordered
        nearest = ordered[library(keys).searchsorted(ordered, keys).clip(max=len(ordered) - 1)]
        count = int((nearest == keys).sum())
        if count and (not atoms or _equal(rows, reference)):
            counts[name] = count
    return counts


def reordered_copies(samples: Mapping[str, Array], prints: Prints) -> list[str]:
    """A note for every sample that holds the rows of another in a different order."""
    notes = []
    first: dict[tuple[int, int], str] = {}
    for name in samples:
        keys = prints[name].ordered
        twin = first.setdefault((len(keys), int(keys.sum())), name)
        if (
            twin != name
            and bool((keys == prints[twin].ordered).all())
            and not prints[name].atoms
        ):
            notes.append(
                f"{name!r} holds the rows of {twin!r} in another order: the two are not "
                f"independent, and one of them "
                "hides the difference between the other and the rest; leave one out"
            )
    return notes


def _equal(a: Array, b: Array) -> bool:
    return a.shape == b.shape and all(
        bool((a[part] == b[part]).all()) for part in parts(a.shape)
    )


def _keys(bits: Any, factors: Any) -> Any:
    """The keys of rows given by the bits of their numbers: NumPy's or torch's signed
    integers, whose products wrap.
    """
    # A right shift of a negative number fills in ones, which the masks remove.
    mixed = (bits ^ ((bits >> 32) & (2**32 - 1))) * factors
    mixed ^= (mixed >> 29) & (2**35 - 1)
    return mixed.sum(axis=1)
