"""The reference and the candidates, checked together: dimensions, names, copies, rows in common."""

from __future__ import annotations

import os
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, cast

import numpy as np

from relfit.compute.memory import Budget
from relfit.compute.rows import LazyRows, parts
from relfit.data.adapters import adapt
from relfit.data.align import aligned
from relfit.data.arrays import as_rows, device_of, resident_rows
from relfit.data.files import FileRows, as_file
from relfit.data.files.paths import name_of
from relfit.data.lazy import bounded_rows
from relfit.data.models import Density, Sample
from relfit.data.overlap import fingerprint, reordered_copies, rows_in_common, sample_copies, shared_notes
from relfit.data.samplers import DEFAULT_ROWS, Progress, columns_drawn, with_samples_drawn
from relfit.data.scores import score_copies, score_notes, target_notes
from relfit.util.arrays import Array
from relfit.util.errors import InputError
from relfit.util.text import is_text

Kind = Literal["samples", "densities", "target"]
RowsOf = Callable[[str, Any], Array]

# Bytes of the temporaries of a check, and rows of which some hundred are compared with each other.
_CHECKS, _MEDIAN_ROWS = 40_000_000, 4_000


@dataclass(frozen=True)
class Data:
    """Checked input. `models` holds each distinct model once; `copies` maps a copy's name to that model's.

    `digests` names the rows given, of the reference by None and of every sample by its name.
    Samples are arrays, or all of them tensors on the `device` that they were given on, or all of them `LazyRows`.
    Where the reference is a density it is the `target`, and `reference` has no rows. `atoms`: its rows repeat so often
    that rows in common say nothing.
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

    @property
    def kind(self) -> Kind:
        """Samples or densities against a sample, or samples against a target density."""
        if self.target is not None:
            return "target"
        return "densities" if isinstance(next(iter(self.models.values())), Density) else "samples"

    @property
    def measure(self) -> Literal["mmd", "ksd"]:
        """The discrepancy that fits: MMD compares samples with a sample, KSD involves a density."""
        return "mmd" if self.kind == "samples" else "ksd"

    @property
    def samples(self) -> dict[str, Array]:
        """The models that are samples."""
        return {k: m for k, m in self.models.items() if not isinstance(m, Density)}

    @property
    def densities(self) -> dict[str, Density]:
        """The models that are densities."""
        return {k: m for k, m in self.models.items() if isinstance(m, Density)}


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
) -> Data:
    """Check the reference and the models (a mapping of names, or a sequence) and collapse copies.

    Columns with names are matched to the reference's by name. Models given as generators are drawn from once, with the
    seed; `all_samples` draws from densities too. With `in_place`, samples of which some live on a CUDA device become
    tensors there; others come to the host. With a `budget` no sample is held as a whole: all of them are `LazyRows`.
    """
    reference, named, moved = aligned(reference, _named(models))
    rows_of: RowsOf = as_rows
    if budget is not None:
        rows_of = cast(RowsOf, partial(bounded_rows, budget=budget))
        reference, named = _bounded(reference, named, rows_of)
    if len(named) < fewest_models:
        raise InputError(f"models: expected at least {fewest_models}, got {len(named)}")
    device = device_of([reference, *named.values()])
    target = _as_target(reference, named)
    if target is not None:
        return replace(_load_for_target(target, named, seed, progress, rows_of, budget), device=device)
    if in_place and device is not None and all(map(is_rows, (reference, *named.values()))):
        rows_of = partial(resident_rows, device=device)
    rows = rows_of("reference", reference)
    if budget is not None:
        _check_budget(budget, [rows, *(x for x in named.values() if isinstance(x, LazyRows))])
    named, drawn = with_samples_drawn(named, rows.shape[1], len(rows), seed, all_samples=all_samples, progress=progress)
    checked = {name: _model(name, value, rows.shape[1], rows_of) for name, value in named.items()}
    samples = {name: model for name, model in checked.items() if not isinstance(model, Density)}
    _refuse_one_point(rows, *samples.values())
    densities = {name: model for name, model in checked.items() if isinstance(model, Density)}
    own = fingerprint(rows)
    prints = {name: fingerprint(x) for name, x in samples.items()}
    copies = {**sample_copies(samples, prints), **score_copies(rows, densities)}
    kept = {name: model for name, model in checked.items() if name not in copies}
    distinct = {name: x for name, x in samples.items() if name in kept}
    shared = rows_in_common(rows, distinct, own, prints) if distinct else {}
    notes = (
        *moved,
        *drawn,
        *_constant_columns(rows, "the reference"),
        *shared_notes(shared, distinct),
        *reordered_copies(distinct, prints),
        *score_notes(rows, {k: model for k, model in densities.items() if k in kept}),
    )
    digests: dict[str | None, str] = {None: own.digest, **{name: print_.digest for name, print_ in prints.items()}}
    return Data(rows, kept, tuple(checked), copies, notes, None, device, digests, shared, own.atoms)


def _bounded(reference: Any, named: Mapping[str, Any], rows_of: RowsOf) -> tuple[Any, dict[str, Any]]:
    """Samples among these opened as rows that are read a part at a time; other things as they are."""
    return (
        rows_of("reference", reference) if is_rows(reference) else reference,
        {name: rows_of(f"model {name!r}", value) if is_rows(value) else value for name, value in named.items()},
    )


def _check_budget(budget: Budget, samples: Sequence[Any]) -> None:
    """Refuse a budget too small for the checks: two keys for every row, and some rows of which the median is taken."""
    rows, columns = sum(len(x) for x in samples), samples[0].shape[1]
    budget.working(24 * rows, _CHECKS + _MEDIAN_ROWS * 8 * columns)


def _as_target(reference: Any, named: Mapping[str, Any]) -> Density | None:
    """The reference as a density, if it is one; the models' columns say of what dimension."""
    if isinstance(reference, Density):
        return reference
    if is_rows(reference):
        return None
    given = [value for value in named.values() if is_rows(value)]
    columns = as_rows("models", given[0]).shape[1] if given else columns_drawn(next(iter(named.values())))
    try:
        return adapt(reference, columns)
    except InputError as error:
        raise InputError(f"reference: {error}") from None


def is_rows(value: Any) -> bool:
    """Whether this is a sample: rows or a file of rows, not something that has rows drawn from it."""
    kinds = (str, os.PathLike, list, tuple, Sample, LazyRows, FileRows)
    return isinstance(value, kinds) or hasattr(value, "__array__")


def _load_for_target(
    target: Density,
    named: Mapping[str, Any],
    seed: int,
    progress: Progress | None,
    rows_of: RowsOf,
    budget: Budget | None,
) -> Data:
    densities = [name for name, value in named.items() if isinstance(value, Density)]
    if densities:
        raise InputError(
            f"model {densities[0]!r}: expected a sample, got a Density; the reference is a density already, and two "
            "densities cannot be compared without samples"
        )
    given = [len(x) for x in named.values() if isinstance(x, np.ndarray | LazyRows)]
    named, drawn = with_samples_drawn(
        named, target.dim or 1, max(given, default=DEFAULT_ROWS), seed, all_samples=True, progress=progress
    )
    first = rows_of(f"model {next(iter(named))!r}", next(iter(named.values())))
    dim = first.shape[1] if target.dim is None else target.dim
    samples = {name: _sample(name, value, dim, rows_of) for name, value in named.items()}
    if budget is not None:
        _check_budget(budget, list(samples.values()))
    _refuse_one_point(*samples.values())
    prints = {name: fingerprint(x) for name, x in samples.items()}
    copies = sample_copies(samples, prints)
    distinct = {name: x for name, x in samples.items() if name not in copies}
    constant = [note for name, x in distinct.items() for note in _constant_columns(x, f"model {name!r}")]
    said = [f"reference: {note}" for note in target_notes(target, next(iter(distinct.values())))]
    notes = (*drawn, *constant, *reordered_copies(distinct, prints), *said)
    digests: dict[str | None, str] = {name: print_.digest for name, print_ in prints.items()}
    return Data(np.empty((0, dim)), {**distinct}, tuple(samples), copies, notes, target, digests=digests)


def require_rows(what: str, count: int, fewest: int, why: str) -> None:
    """Refuse a sample that is too small."""
    if count < fewest:
        raise InputError(f"{what}: expected at least {fewest} rows ({why}), got {count}")


def check_pair_names(names: Any) -> None:
    """Two different names."""
    pair = isinstance(names, Sequence) and not isinstance(names, str) and len(names) == 2
    if not pair or not all(is_text(name) and name.strip() for name in names) or names[0] == names[1]:
        raise InputError(f"names: expected two different names, got {reprlib.repr(names)}")


def _named(models: Any) -> dict[str, Any]:
    if isinstance(models, Mapping):
        wrong = [name for name in models if not is_text(name) or not name.strip()]
        if wrong:
            raise InputError(f"models: expected names that are non-empty text, got {wrong[0]!r}")
        return dict(models)
    if isinstance(models, str | bytes | np.ndarray) or not isinstance(models, Sequence):
        raise InputError(
            f"models: expected a mapping of names to models, or a list of models, got {type(models).__name__}"
        )
    named: dict[str, Any] = {}
    for k, model in enumerate(models, 1):
        name = _file_name(model) or f"m{k}"
        if name in named:
            raise InputError(f"models: two are called {name!r}; give a mapping of different names to models")
        named[name] = model
    return named


def _file_name(model: Any) -> str:
    """The name that a file gives to a model, as on the command line; none for other things."""
    file = as_file(model)
    # A file name need not be valid text; the name of a model must be.
    name = "" if file is None else name_of(file.source).encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return name if name.strip() else ""


def _model(name: str, value: Any, dim: int, rows_of: RowsOf) -> Array | Density:
    try:
        density = adapt(value, dim)
    except InputError as error:
        raise InputError(f"model {name!r}: {error}") from None
    if density is not None:
        return density
    if value is None or callable(value):
        raise InputError(
            f"model {name!r}: expected an array, a file or a Density, got {type(value).__name__}; "
            "wrap a function as Density(score=...) or Density(log_prob=...)"
        )
    return _sample(name, value, dim, rows_of)


def _sample(name: str, value: Any, dim: int, rows_of: RowsOf) -> Array:
    rows = rows_of(f"model {name!r}", value)
    if rows.shape[1] != dim:
        raise InputError(f"model {name!r}: expected {dim} columns like the reference, got {rows.shape[1]}")
    return rows


def _refuse_one_point(*pooled: Array) -> None:
    first = pooled[0][:1]
    if all((rows[part] == first).all() for rows in pooled for part in parts(rows.shape)):
        raise InputError("reference and models: expected at least two distinct rows, all pooled rows coincide")


def _constant_columns(rows: Array, where: str) -> list[str]:
    first = rows[:1]
    constant = (first == first).all(axis=0)
    for part in parts(rows.shape):
        constant = constant & (rows[part] == first).all(axis=0)
        if not constant.any():
            return []
    count = int(constant.sum())
    return [f"{count} of {rows.shape[1]} columns {'is' if count == 1 else 'are'} constant in {where}"]
