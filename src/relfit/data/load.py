"""The way from what the user gave to `Data`: the reference and the models, checked together.

`load` matches columns by name, turns samples into rows, recognises densities, draws from
generators, and then looks at all of it at once: dimensions, copies, rows that samples have
in common, and what a reader should know about them.
"""

from __future__ import annotations

import itertools
import os
import reprlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from relfit.compute.memory import Budget
from relfit.data.adapters import DEFAULT_ROWS, adapt, columns_drawn, recognised_models
from relfit.data.arrays import (
    argument_of,
    as_rows,
    checked_rows,
    device_of,
    fingerprint,
    fingerprints,
    gathered,
    reordered_copies,
    resident_rows,
    rows_in_common,
    sample_copies,
    spilled_rows,
    with_draws,
)
from relfit.data.densities import (
    check_same_unit,
    check_target,
    ends,
    impossible_models,
    instead,
    likelihood_copies,
    likelihood_notes,
    log_densities,
    refusal,
    score_copies,
    score_notes,
    unseen_heights,
)
from relfit.data.encode import (
    Encode,
    Encoding,
    Scale,
    density_encoding,
    encoded_density,
    encoded_tables,
    fit_rows,
    fitted_columns,
)
from relfit.data.files import FileRows, as_file, find_file, name_of, read_names
from relfit.data.files.base import column_positions, separator_hint
from relfit.data.files.text import ROW_NUMBERS
from relfit.data.models import (
    Density,
    OutsideSupport,
    Sample,
    naming,
)
from relfit.data.tables import (
    Table,
    drop_option,
    frame_columns,
    frame_names,
    read_table,
    table_of,
)
from relfit.util.arrays import Array, host, parts
from relfit.util.errors import InputError, way
from relfit.util.progress import Progress
from relfit.util.text import as_name, is_text, listed

Kind = Literal["samples", "densities", "target", "likelihoods", "functions"]
ToRows = Callable[[str, Any], Array]
Names = list[str]
Positions = Sequence[int]
# What was given: models by their names, the reference under None.
Values = dict[Any, Any]

# The bytes that the checks here need besides the data, and the number of rows from which the
# median distance is taken.
_CHECK_BYTES = 40_000_000
_MEDIAN_ROWS = 4_000
# Wider tables than this are rows of numbers where memory is bounded: parts of them would have
# few rows.
_MOST_STORED = 256
_REFERENCE_FIRST = "the reference comes first, as in relfit.compare(reference, models)"
# The most names of columns in an error, and the most letters of each.
_MOST_NAMES = 4
_LONGEST_NAME = 40
# The rows, and the numbers, by which the spreads of columns are compared.
_SPREAD_ROWS = 1000
_SPREAD_NUMBERS = 2**18
# Columns whose standard deviations differ by a larger factor are not alike.
_UNEVEN = 1.5


@dataclass(frozen=True)
class Data:
    """Checked input. `models` holds each distinct model once; `copies` maps a copy's name to
    that of its original.

    `digests` identifies the rows of the reference (under None) and of every sample (under
    its name). Samples are arrays, or all of them tensors on the `device` where they were
    given. With a `folder` they are mapped, and arrays made from them are written to files in
    it. If the reference is a density, it is the `target`, and `reference` has no rows.
    `atoms`: rows of the reference repeat so often that rows in common say nothing.
    `likelihood`: the models are compared by their log densities; `impossible` are those that
    are not among `models`, since they give density 0 to so many rows. `covariates`: the
    densities are conditional on so many columns, the last ones of the reference. `encoding`
    says how the rows were made from columns, where they were; the rows of densities are as
    they were given, until `encoded` applies it. `unscaled`: the number of columns of plain
    samples whose spreads differ. `instead`: why log densities are compared where KSD was to
    be the default. `own`: the discrepancy of the caller that samples are compared by.
    """

    reference: Array
    models: dict[str, Array | Density]
    names: tuple[str, ...]
    copies: dict[str, str]
    warnings: tuple[str, ...]
    target: Density | None = None
    device: str | None = None
    digests: dict[str | None, str] = field(default_factory=dict)
    shared_rows: dict[str, int] = field(default_factory=dict)
    atoms: bool = False
    likelihood: bool = False
    impossible: dict[str, int] = field(default_factory=dict)
    covariates: int = 0
    encoding: Encoding | None = None
    unscaled: int | None = None
    instead: str = ""
    folder: Path | None = None
    own: Any = None

    @property
    def kind(self) -> Kind:
        """Samples or densities against a sample, or samples against a target density."""
        if self.target is not None:
            return "target"
        if self.likelihood:
            return "likelihoods"
        if self.own is not None:
            return "functions"
        return (
            "densities" if isinstance(next(iter(self.models.values())), Density) else "samples"
        )

    @property
    def without_kernel(self) -> bool:
        """True if the models are compared without a kernel."""
        return self.likelihood or self.own is not None

    @property
    def samples(self) -> dict[str, Array]:
        return {
            name: model for name, model in self.models.items() if not isinstance(model, Density)
        }

    @property
    def densities(self) -> dict[str, Density]:
        return {
            name: model for name, model in self.models.items() if isinstance(model, Density)
        }

    @property
    def rows(self) -> Array:
        """The reference, or the first sample where that is a density."""
        return self.reference if self.target is None else next(iter(self.samples.values()))

    def encoded(self) -> Data:
        """The data of densities in the coordinates of the encoding; samples are encoded when
        they are loaded.
        """
        encoding = self.encoding
        if encoding is None or encoding.scale == "none" or self.kind == "samples":
            return self

        def apply(given: Any) -> Any:
            if isinstance(given, Density):
                return encoded_density(given, encoding)
            return encoding.apply(given, self.folder)

        return replace(
            self,
            reference=apply(self.reference),
            models={name: apply(model) for name, model in self.models.items()},
            target=None if self.target is None else apply(self.target),
        )


def load(
    reference: Any,
    models: Any,
    *,
    fewest_models: int = 2,
    seed: int = 0,
    all_samples: bool = False,
    progress: Progress | None = None,
    in_place: bool = False,
    budget: Budget | None = None,
    likelihood: bool = False,
    given: Any = None,
    scale: Scale | None = None,
    encode: Encode | None = None,
    encoding: Encoding | None = None,
    plain: bool = False,
    target_scale: Scale = "none",
    needs_densities: bool = False,
    or_likelihood: bool = False,
) -> Data:
    """Check the reference and the models (a mapping of names to models, or a sequence of
    models).

    Named columns are matched to those of the reference by name. Models given as generators
    are drawn from once, with the seed; `all_samples` draws from densities too. With
    `in_place`, samples of which some live on a CUDA device become tensors there; otherwise
    they are copied to the host. With a `budget` all samples are mapped from files. With
    `likelihood`, densities are evaluated themselves instead of their scores; `given` are
    covariates, one row for each row of the reference, which they may be conditional on. With
    `or_likelihood` that is done where KSD cannot be used. `needs_densities`: no model may be
    replaced by draws from it.

    `scale` says how columns are scaled, by what the reference is (None: "auto" if its
    columns have names), `encode` what they mean; a finished `encoding` is applied instead.
    `plain` takes rows as they are. Where there are densities, `scale` is fitted to the rows
    of the reference, or to all draws for a target (None: `target_scale`); `Data.encoded`
    applies it.
    """
    named = _named(models)
    if len(named) < fewest_models:
        raise InputError(f"models: expected at least {fewest_models}, got {len(named)}")
    values: Values = {None: reference, **named}
    values = {
        key: value.x if isinstance(value, Sample) else value for key, value in values.items()
    }
    values, notes = with_draws(values)
    values, in_batches, taken = _gathered(values, budget, progress)
    reference = values.pop(None)
    if isinstance(reference, Mapping):
        raise InputError(
            f"reference: expected data or a density, got a mapping; {_REFERENCE_FIRST}"
        )
    reference, named, matched = aligned(reference, values, encode=encode, budget=budget)
    values = {None: reference, **named}
    notes = (*matched, *notes, *taken)
    folder = None if budget is None else budget.folder
    to_rows: ToRows = as_rows
    if budget is not None:
        to_rows = cast(ToRows, partial(spilled_rows, budget=budget, progress=progress))
    only_rows = all(map(is_rows, values.values()))
    columns = None if plain else _names(reference, selected=True)
    tables = None
    if only_rows and columns is not None:
        tables = _tables(values, columns, to_rows, budget, progress)
    if scale == "whiten" and only_rows:
        raise InputError(
            'scale="whiten": belongs to densities, got samples; use "auto" or "robust"'
        )
    if tables is not None:
        if budget is not None:
            _check_budget(
                budget, [(len(table), len(table.columns)) for table in tables.values()]
            )
        encoding, rows, more = encoded_tables(
            tables, scale or "auto", encode or Encode(), encoding, folder
        )
        samples = {key: checked_rows(argument_of(key), x) for key, x in rows.items()}
        names = tuple(named)
        return _checked(samples, names, notes + more, encoding=encoding, folder=folder)
    if encode is not None and replace(encode, drop=()) != Encode():
        raise InputError(
            "encode: says what the columns of tables mean where all models are samples, and "
            "the reference has names of "
            f"columns (a data frame, .csv, .parquet); leave out "
            f"{way('--categorical, --missing and --metadata', 'it')}"
        )
    device = device_of(values.values())
    if budget is None and in_place and scale is None and device is not None and only_rows:
        to_rows = partial(resident_rows, device=device)
    samples = {
        key: to_rows(argument_of(key), value) for key, value in values.items() if is_rows(value)
    }
    densities: dict[str, Density] = {}
    target = None if None in samples else _as_target(reference, named, samples)
    if None not in samples and target is None:
        samples[None] = to_rows("reference", reference)
    others = {name: value for name, value in named.items() if name not in samples}
    if others:
        if target is None:
            dim = samples[None].shape[1]
            count = len(samples[None])
        else:
            # As many rows as the largest array has, or the largest of all samples under a
            # memory budget.
            sizes = [
                len(x)
                for key, x in samples.items()
                if isinstance(values[key], np.ndarray) or folder is not None
            ]
            dim = target.dim or 1
            count = max(sizes, default=DEFAULT_ROWS)
        densities, loadable, drawn = recognised_models(
            *(others, dim, count, seed),
            all_samples=all_samples or target is not None,
            any_rows=len(others) < len(named),
            as_densities=needs_densities and target is None,
            likelihood=likelihood,
            progress=progress,
        )
        samples |= {name: to_rows(argument_of(name), value) for name, value in loadable.items()}
        samples = {key: samples[key] for key in values if key in samples}
        notes += drawn
    _refuse_flat(in_batches, samples)
    if budget is not None:
        _check_budget(budget, [x.shape for x in samples.values()])
    covariates = None if given is None else as_rows("given", given)
    for name, density in densities.items():
        if density.conditional and not (likelihood and covariates is not None):
            raise InputError(
                f"model {name!r}: its log_prob takes y and covariates x; give these as "
                f"given=, with "
                'discrepancy="loglik", or a log_prob of one argument'
            )
    if likelihood and densities and len(densities) == len(named):
        check_same_unit(densities)
        return _likelihoods(samples[None], densities, covariates, notes)
    finish = partial(_checked, names=tuple(named), notes=notes, device=device, folder=folder)
    if densities or target is not None:
        if target is not None:
            data = finish(samples, target=target)
            check_target(target, data.samples.values())
            columns = _names(next(iter(named.values())), selected=True)
            default = target_scale
        else:
            data = _densities(finish, samples[None], densities, notes, or_likelihood)
            default = "none"
        if data.likelihood or encoding is not None or plain:
            return replace(data, encoding=encoding)
        rows_to_fit = [samples[None]] if target is None else list(data.samples.values())
        encoding, note = _encoding(rows_to_fit, scale or default, columns, densities=True)
        return replace(data, encoding=encoding, warnings=data.warnings + note)
    if encoding is None and not plain:
        encoding, _ = _encoding([samples[None]], scale, columns, densities=False)
    if encoding is None:
        data = finish(samples)
        return data if plain else replace(data, unscaled=uneven_columns(data.reference))
    _check_width(samples, len(encoding.columns))
    encoded = {
        key: checked_rows(argument_of(key), encoding.apply(rows, folder))
        for key, rows in samples.items()
    }
    return finish(encoded, encoding=encoding)


def _gathered(
    values: Values, budget: Budget | None, progress: Progress | None
) -> tuple[Values, list[str | None], tuple[str, ...]]:
    """The reference and the models, those that arrive in batches as rows, which of them do,
    and notes about them.
    """
    found = dict(values)
    notes: list[str] = []
    for key, value in values.items():
        if not is_rows(value):
            found[key], note = gathered(argument_of(key), value, budget, progress)
            notes += [note] if note else []
    in_batches = [key for key in values if found[key] is not values[key]]
    return found, in_batches, tuple(notes)


def _check_budget(budget: Budget, shapes: Sequence[tuple[int, int]]) -> None:
    """Refuse a budget too small for the checks: two keys for every row, and the rows for the
    median distance.

    What is kept later, by the complete estimate of samples, is known in detail when the
    estimator is.
    """
    n, *lengths = (rows for rows, _ in shapes)
    later = 16 * (n + max(lengths, default=0)) + 48 * (len(lengths) * n + sum(lengths))
    budget.working(
        24 * (n + sum(lengths)), _CHECK_BYTES + _MEDIAN_ROWS * 8 * shapes[0][1], later
    )


def _tables(
    values: Values,
    columns: Names,
    to_rows: ToRows,
    budget: Budget | None,
    progress: Progress | None,
) -> dict[str | None, Table] | None:
    """The reference and the models as tables; None if the reference is none."""
    if budget is not None:
        if len(columns) > _MOST_STORED:
            return None
        # What is too little for any number of rows is refused before they are read.
        _check_budget(budget, [(0, len(columns))])
    tables: dict[str | None, Table] = {}
    for key, value in values.items():
        where = _source(key, value)
        table = None
        if _names(value, selected=True) is not None:
            table = read_table(where, value, budget, progress)
        if table is None:
            if key is None:
                return None
            folder = None if budget is None else budget.folder
            table = table_of(argument_of(key), to_rows(where, value), folder)
        if len(table.columns) != len(columns):
            came = (
                f"expected {len(columns)} columns like the reference, got {len(table.columns)}"
            )
            raise InputError(f"{table.source}: {came}")
        tables[key] = table.renamed(columns)
    return tables


def _encoding(
    rows: Sequence[Array], scale: Scale | None, names: Names | None, *, densities: bool
) -> tuple[Encoding | None, tuple[str, ...]]:
    """The encoding of rows of numbers, and a note on it; None for rows as they are whose
    columns have no names. Columns with names are standardised unless `scale` is given.
    """
    names = names if names is not None and len(names) == rows[0].shape[1] else None
    if scale is None:
        scale = "none" if names is None else "auto"
    if scale == "none" and names is None:
        return None, ()
    if scale == "none" or not densities:
        return fit_rows(rows[0], scale, names), ()
    encoding, note = density_encoding(rows, scale, names)
    return encoding, (note,) if note else ()


def _densities(
    finish: Callable[..., Data],
    rows: Array,
    densities: Mapping[str, Density],
    notes: tuple[str, ...],
    or_likelihood: bool,
) -> Data:
    """Densities to be compared by KSD, or by their log densities where KSD cannot be used
    and nobody asked for it.
    """
    places = ends(densities, rows)
    or_likelihood = or_likelihood and all(density.normalised for density in densities.values())
    if not places:
        try:
            return finish({None: rows}, densities=densities)
        except OutsideSupport:
            if not or_likelihood:
                raise
    elif not or_likelihood:
        raise refusal(densities, places)
    note = instead(places)
    return replace(_likelihoods(rows, densities, None, (*notes, note)), instead=note)


def _likelihoods(
    rows: Array,
    densities: Mapping[str, Density],
    covariates: Array | None,
    notes: tuple[str, ...],
) -> Data:
    """Densities to be compared by their log densities at the rows; copies and impossible
    models are set aside.
    """
    count = 0
    if covariates is not None:
        if len(covariates) != len(rows):
            raise InputError(
                f"given: expected {len(rows)} rows like the reference, got {len(covariates)}"
            )
        dim = rows.shape[1]
        densities = {name: density.on_joined(dim) for name, density in densities.items()}
        rows = np.hstack([rows, covariates])
        count = covariates.shape[1]
    log_probs = log_densities(rows, densities)
    names = list(densities)
    impossible = impossible_models(log_probs, names, rows)
    copies = likelihood_copies(log_probs, names)
    distinct = [name not in copies for name in names]
    originals = [name for name in names if name not in copies]
    notes += tuple(likelihood_notes(log_probs[:, distinct], originals, densities, rows))
    kept: dict[str, Array | Density] = {
        name: densities[name] for name in originals if name not in impossible
    }
    return Data(
        *(rows, kept, tuple(names), copies, notes),
        digests={None: fingerprint(rows).digest},
        likelihood=True,
        impossible=impossible,
        covariates=count,
    )


def _checked(
    samples: Mapping[str | None, Array],
    names: tuple[str, ...],
    notes: tuple[str, ...],
    *,
    densities: Mapping[str, Density] | None = None,
    target: Density | None = None,
    device: str | None = None,
    encoding: Encoding | None = None,
    folder: Path | None = None,
) -> Data:
    """Check the dimensions, collapse copies and collect notes; the reference, unless it is a
    target, is under None.
    """
    densities = densities or {}
    rows = {name: x for name, x in samples.items() if name is not None}
    first = next(iter(samples.values()))
    dim = first.shape[1] if target is None or target.dim is None else target.dim
    _check_width(rows, dim)
    if all((x[part] == first[:1]).all() for x in samples.values() for part in parts(x.shape)):
        raise InputError(
            "reference and models: expected at least two distinct rows, but all "
            "pooled rows coincide"
        )
    prints = fingerprints(samples)
    copies = sample_copies(rows, prints)
    if densities:
        copies |= score_copies(samples[None], densities)
    distinct = {name: x for name, x in rows.items() if name not in copies}
    shared = {}
    if target is None:
        notes += _constant_columns(samples[None], "the reference", encoding)
        shared = rows_in_common(samples[None], distinct, prints)
        notes += tuple(
            f"{count} of {len(rows[name])} rows of {name!r} also occur in the reference: if "
            f"the model has seen these "
            "data, then its discrepancy is too small; compare on data that no model was "
            "fitted to"
            for name, count in shared.items()
        )
    else:
        for name, x in distinct.items():
            notes += _constant_columns(x, f"model {name!r}")
    notes += tuple(reordered_copies(distinct, prints))
    if densities:
        originals = {name: model for name, model in densities.items() if name not in copies}
        notes += tuple(score_notes(samples[None], originals))
        # Copies are included: their scores are the same, and their densities need not be.
        notes += unseen_heights(densities, samples[None])
    elif target is not None:
        with naming("reference"):
            found = target.notes(next(iter(distinct.values())))
        notes += tuple(f"reference: {note}" for note in found)
    models: dict[str, Any] = {**rows, **densities}
    return Data(
        reference=samples[None] if target is None else np.empty((0, dim)),
        models={name: models[name] for name in names if name not in copies},
        names=names,
        copies=copies,
        warnings=notes,
        target=target,
        device=device,
        digests={name: each.digest for name, each in prints.items()},
        shared_rows=shared,
        atoms=target is None and prints[None].atoms,
        encoding=encoding,
        folder=folder,
    )


def _check_width(samples: Mapping[Any, Array], width: int) -> None:
    for key, x in samples.items():
        if x.shape[1] != width:
            raise InputError(
                f"{argument_of(key)}: expected {width} columns like the reference, "
                f"got {x.shape[1]}"
            )


def _refuse_flat(in_batches: Collection[str | None], samples: Mapping[Any, Array]) -> None:
    """Refuse a sample from batches of one dimension, of which every number is a row, where
    others have columns.
    """
    width = max(x.shape[1] for x in samples.values())
    for key, x in samples.items():
        if key in in_batches and x.shape[1] == 1 < width:
            raise InputError(
                f"{argument_of(key)}: expected batches of rows with {width} columns, got "
                f"batches whose numbers are rows of "
                f"one column; yield arrays of shape (n, {width})"
            )


def is_rows(value: Any) -> bool:
    """True for a sample (rows or a file of rows), and not for something from which rows are
    drawn.
    """
    if isinstance(value, Density):
        return False
    types = (np.ndarray, str, os.PathLike, list, tuple, Sample, FileRows, Table)
    arrays = ("__array__", "__dlpack__")
    return (
        isinstance(value, types)
        or any(hasattr(value, name) for name in arrays)
        or frame_names(value) is not None
    )


def require_rows(what: str, count: int, fewest: int, why: str) -> None:
    """Refuse a sample that is too small."""
    if count < fewest:
        raise InputError(f"{what}: expected at least {fewest} rows ({why}), got {count}")


def check_pair_names(names: Any) -> tuple[str, str]:
    """The two names; anything but two different ones is refused."""
    is_pair = isinstance(names, Sequence) and not isinstance(names, str) and len(names) == 2
    found = [_as_name(name) for name in names] if is_pair else []
    if None in found or len(set(found)) != 2:
        raise InputError(f"names: expected two different names, got {reprlib.repr(names)}")
    return str(found[0]), str(found[1])


def _as_name(name: Any) -> str | None:
    """A model's name: text, or a number as text; None for anything else."""
    name = as_name(name)
    return name if is_text(name) and name.strip() else None


def _named(models: Any) -> dict[str, Any]:
    if isinstance(models, Mapping):
        found: dict[str, Any] = {}
        for key, model in models.items():
            name = _as_name(key)
            if name is None:
                raise InputError(f"models: expected names that are non-empty text, got {key!r}")
            if name in found:
                raise InputError(f"models: two are called {name!r}; give them different names")
            found[name] = model
        return found
    if isinstance(models, str | bytes | np.ndarray) or not isinstance(models, Sequence):
        came = type(models).__name__
        expected = "a mapping of names to models, or a list of models"
        raise InputError(f"models: expected {expected}, got {came}; {_REFERENCE_FIRST}")
    named: dict[str, Any] = {}
    for k, model in enumerate(models, 1):
        file = as_file(model)
        # A file name need not be valid text; the name of a model must be.
        name = "" if file is None else name_of(file.source)
        name = (
            name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
            if name.strip()
            else f"m{k}"
        )
        if name in named:
            raise InputError(
                f"models: two are called {name!r}; give a mapping of different names to models"
            )
        named[name] = model
    return named


def _source(key: str | None, value: Any) -> str:
    """The value as errors name it: by its file if it is one, else by its argument."""
    file = as_file(value)
    return argument_of(key) if file is None else file.source


def _as_target(
    reference: Any, named: Mapping[str, Any], samples: Mapping[str | None, Array]
) -> Density | None:
    """The reference as a density, if it is one, with as many columns as the models have; no
    model may be one too.
    """
    target = reference if isinstance(reference, Density) else None
    if target is None:
        rows = next(iter(samples.values()), None)
        dim = columns_drawn(next(iter(named.values()))) if rows is None else rows.shape[1]
        with naming("reference"):
            target = adapt(reference, dim)
    density = next((name for name, model in named.items() if isinstance(model, Density)), None)
    if target is not None and density is not None:
        reason = (
            "the reference is a density too, and two densities cannot be compared "
            "without samples"
        )
        raise InputError(f"model {density!r}: expected a sample, got a Density; {reason}")
    return target


def _constant_columns(
    rows: Array, where: str, encoding: Encoding | None = None
) -> tuple[str, ...]:
    first = rows[:1]
    constant = (first == first).all(axis=0)
    for part in parts(rows.shape):
        constant = constant & (rows[part] == first).all(axis=0)
        if not constant.any():
            return ()
    if encoding is None:
        count = int(constant.sum())
        which = f"{count} of {rows.shape[1]} columns"
    else:
        # A level or a flag may well be the same in all rows.
        columns = zip(encoding.columns, encoding.slices, strict=True)
        names = [
            column.name
            for column, at in columns
            if column.kind != "category" and constant[at.start]
        ]
        count = len(names)
        which = listed(names, quote=repr) if names else ""
    return (f"{which} {'is' if count == 1 else 'are'} constant in {where}",) if count else ()


def aligned(
    reference: Any,
    models: Mapping[str, Any],
    columns: Mapping[str | None, Positions] | None = None,
    encode: Encode | None = None,
    budget: Budget | None = None,
) -> tuple[Any, dict[str, Any], tuple[str, ...]]:
    """The reference and the models with columns of the same name in the same position, and
    notes on what was changed.

    Data frames have names, and so have files with a header unless columns of them were
    selected. Anything else is matched by position, and so are names that only count.
    `columns` gives, for some files (the reference under None), the positions of the columns
    to use. Columns called as in `encode.drop` are left out of all of them, and so are
    columns that a model lacks and that say nothing of a distribution.
    """
    values: Values = {None: reference, **models}
    # Neither arrays nor densities have names of columns; only the latter lack one to drop.
    nameless = np.ndarray if encode is not None else np.ndarray | Density
    if all(isinstance(value, nameless) for value in values.values()):
        return reference, dict(models), ()
    encode = encode or Encode()
    chosen = dict(columns or {})
    names = {key: _names(value, chosen.get(key)) for key, value in values.items()}
    for name in encode.drop:
        if not any(name in some for some in names.values() if some):
            reason = "which no sample has, or not beside a choice of columns"
            raise InputError(f"drop: expected the name of a column, got {name!r}, {reason}")

    def choose(key: str | None, positions: Positions) -> None:
        before = chosen.get(key)
        chosen[key] = positions if before is None else [before[k] for k in positions]

    def leave_out(left: Collection[str]) -> None:
        for key, some in names.items():
            kept = [k for k, name in enumerate(some or ()) if name not in left]
            if some is not None and len(kept) < len(some):
                choose(key, kept)
                names[key] = [some[k] for k in kept]

    leave_out(encode.drop)
    left, notes = _unmatched(values, names, chosen.get(None), encode, budget)
    leave_out(left)
    if names[None] is None:
        _refuse_two_orders(values, names)
    moved = []
    for key, value in values.items():
        order = _order(key, value, names[key], names[None])
        if order is not None:
            choose(key, order)
            moved.append(str(key))
    taken: Values = {key: _taken(value, chosen.get(key)) for key, value in values.items()}
    if moved:
        shown = listed(moved, most=8, quote=repr)
        notes = (
            f"columns of {shown} were matched to those of the reference by name, not "
            f"by position",
            *notes,
        )
    return taken.pop(None), taken, notes


def _unmatched(
    values: Values,
    names: Mapping[str | None, Names | None],
    columns: Positions | None,
    encode: Encode,
    budget: Budget | None,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The columns that only some samples have and that no comparison needs, and notes about
    them.

    These are row numbers that only a model has, and what a model lacks of the columns that
    the reference leaves out.
    """
    expected = names[None]
    if expected is None:
        return (), ()
    only: dict[str, list[str]] = {}
    lacking: dict[str, list[str]] = {}
    for key, own in names.items():
        if key is None or own is None or not set(own).difference(expected) <= set(ROW_NUMBERS):
            continue
        for name in set(own).symmetric_difference(expected):
            (only if name in own else lacking).setdefault(name, []).append(key)
    notes = [
        f"{name!r} of {listed(some, quote=repr)} not in the reference, and left out"
        for name, some in sorted(only.items())
    ]
    reasons: dict[str, str] = {}
    if lacking:
        positions = [k for k, name in enumerate(expected) if name in lacking]
        if columns is not None:
            positions = [columns[k] for k in positions]
        reference = _taken(values[None], positions)
        table = read_table(_source(None, reference), reference, budget)
        if table is not None:
            _, reasons = fitted_columns(table, "auto", encode.kinds(expected))
    for name, why in reasons.items():
        notes.append(
            f"{name!r} is missing in {listed(lacking[name], quote=repr)}, and left "
            f"out of all ({why})"
        )
    return (*only, *reasons), tuple(notes)


def _names(
    value: Any, columns: Positions | None = None, *, selected: bool = False
) -> Names | None:
    """The names of the columns in use; None if they have none or if some repeat.

    The columns of a file that were selected have names only where `selected` asks for them:
    they are not matched by name.
    """
    if isinstance(value, np.ndarray | Density):
        return None
    file = as_file(value)
    if isinstance(value, Table):
        names: Names | None = value.names
    elif file is None:
        names = frame_names(value)
    else:
        names = read_names(file.source) if selected or file.columns is None else None
    if names is None:
        return None
    if file is not None and file.columns is not None:
        columns = column_positions(find_file(file.source, file.columns)[1], names, len(names))
    used = [
        name.strip() for name in (names if columns is None else [names[k] for k in columns])
    ]
    return used if len(set(used)) == len(used) else None


def _order(
    key: str | None, value: Any, names: Names | None, expected: Names | None
) -> Positions | None:
    """The position of each expected name among the names; None if all columns stay where
    they are.
    """
    if names is None or expected is None or names == expected:
        return None
    if set(names) == set(expected):
        position = {name: k for k, name in enumerate(names)}
        return [position[name] for name in expected]
    # The names that pandas and polars give to columns without names.
    counting = [
        [f"{word}{k}" for k in range(len(some))]
        for word in ("", "column_")
        for some in (names, expected)
    ]
    if names in counting or expected in counting:
        return None
    missing = [name for name in expected if name not in names]
    extra = [name for name in names if name not in expected]
    differences = ", ".join(
        f"{listed([name[:_LONGEST_NAME] for name in some], most=_MOST_NAMES, quote=repr)} {what}"
        for what, some in (("missing", missing), ("extra", extra))
        if some
    )
    hint = separator_hint(names) or separator_hint(expected)
    raise InputError(
        f"{_source(key, value)}: expected the reference's columns, got {differences}{hint}; "
        f"rename them, or leave "
        f"them out ({drop_option([*missing, *extra])})"
    )


def _refuse_two_orders(values: Values, names: Mapping[str | None, Names | None]) -> None:
    """Refuse models with the same names in different orders: matched by position, one of
    them is certainly wrong.
    """
    named = {key: columns for key, columns in names.items() if columns is not None}
    for first, key in itertools.combinations(named, 2):
        if named[key] != named[first] and set(named[key]) == set(named[first]):
            raise InputError(
                f"{_source(key, values[key])}: has the columns of "
                f"{_source(first, values[first])} in another order, and the reference has "
                f"no names to show which is "
                "right; give the reference names, or all models one order"
            )


def _taken(value: Any, columns: Positions | None) -> Any:
    """The value with the columns at these positions only; None for all of them."""
    if columns is None:
        return value
    if isinstance(value, Table):
        return value.select(columns)
    file = as_file(value)
    return frame_columns(value, columns) if file is None else FileRows(file.source, columns)


def uneven_columns(rows: Any) -> int | None:
    """The number of columns of rows (n, d) if their standard deviations differ by more than
    a half, else None.

    Constant columns do not count. About a thousand evenly spaced rows are enough, and may be
    tensors.

    A table of the same numbers is standardised, and gives other estimates.

    >>> (
    ...     uneven_columns(np.array([[0.0, 5.0], [4.0, 6.0]])),
    ...     uneven_columns(np.array([[0.0, 5.0], [1.0, 6.0]])),
    ... )
    (2, None)
    """
    count = min(_SPREAD_ROWS, max(20, _SPREAD_NUMBERS // rows.shape[1]))
    some = host(rows[:: max(1, len(rows) // count)]).astype(np.float64)
    some = some / (np.abs(some).max() or 1.0)
    variance = some.var(axis=0)
    variance = variance[variance > 0.0]
    uneven = len(variance) > 1 and variance.max() > _UNEVEN**2 * variance.min()
    return int(rows.shape[1]) if uneven else None
