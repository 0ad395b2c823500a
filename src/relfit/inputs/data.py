"""The reference and the candidates, checked together: dimensions, names, copies, rows in common."""

from __future__ import annotations

import os
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from relfit.adapters import adapt
from relfit.errors import InputError
from relfit.inputs.arrays import as_rows
from relfit.inputs.drawing import DEFAULT_ROWS, Progress, columns_drawn, with_samples_drawn
from relfit.inputs.overlap import fingerprint, reordered_copies, rows_in_common, sample_copies
from relfit.inputs.resident import device_of, resident_rows
from relfit.models import Density, Sample

Array = NDArray[np.float64]
Kind = Literal["samples", "densities", "target"]
RowsOf = Callable[[str, Any], Array]

# Scores are first compared at this many rows; only pairs that agree there are compared at all rows.
_SCORE_PROBE = 256


@dataclass(frozen=True)
class Data:
    """Checked input. `models` holds each distinct model once; `copies` maps a copy's name to that model's.

    `digests` names the rows given, of the reference by None and of every sample by its name.
    Samples are arrays, or all of them tensors on the `device` that they were given on. Where the reference is a
    density it is the `target`, and `reference` has no rows.
    """

    reference: Array
    models: dict[str, Array | Density]
    names: tuple[str, ...]
    copies: dict[str, str]
    warnings: tuple[str, ...]
    target: Density | None = None
    device: str | None = None
    digests: dict[str | None, str] = field(default_factory=dict)

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
) -> Data:
    """Check the reference and the models (a mapping of names, or a sequence) and collapse copies.

    Models given as generators are drawn from once, with the seed; `all_samples` draws from densities too. With
    `in_place`, samples of which some live on a CUDA device become tensors there; others come to the host.
    """
    named = _named(models)
    if len(named) < fewest_models:
        raise InputError(f"models: expected at least {fewest_models}, got {len(named)}")
    device = device_of([reference, *named.values()])
    target = _as_target(reference, named)
    if target is not None:
        return replace(_load_for_target(target, named, seed, progress), device=device)
    rows_of: RowsOf = as_rows
    if in_place and device is not None and all(map(_is_rows, (reference, *named.values()))):
        rows_of = partial(resident_rows, device=device)
    rows = rows_of("reference", reference)
    named, drawn = with_samples_drawn(named, rows.shape[1], len(rows), seed, all_samples=all_samples, progress=progress)
    checked = {name: _model(name, value, rows.shape[1], rows_of) for name, value in named.items()}
    samples = {name: model for name, model in checked.items() if not isinstance(model, Density)}
    _refuse_one_point(rows, *samples.values())
    densities = {name: model for name, model in checked.items() if isinstance(model, Density)}
    own = fingerprint(rows)
    prints = {name: fingerprint(x) for name, x in samples.items()}
    copies = {**sample_copies(samples, prints), **_score_copies(rows, densities)}
    kept = {name: model for name, model in checked.items() if name not in copies}
    distinct = {name: x for name, x in samples.items() if name in kept}
    notes = (
        *drawn,
        *_constant_columns(rows, "the reference"),
        *(rows_in_common(rows, distinct, own, prints) if distinct else ()),
        *reordered_copies(distinct, prints),
        *_score_notes(rows, {k: model for k, model in densities.items() if k in kept}),
    )
    digests: dict[str | None, str] = {None: own.digest, **{name: print_.digest for name, print_ in prints.items()}}
    return Data(rows, kept, tuple(checked), copies, notes, device=device, digests=digests)


def _as_target(reference: Any, named: Mapping[str, Any]) -> Density | None:
    """The reference as a density, if it is one; the models' columns say of what dimension."""
    if isinstance(reference, Density):
        return reference
    if _is_rows(reference):
        return None
    given = [value for value in named.values() if _is_rows(value)]
    columns = as_rows("models", given[0]).shape[1] if given else columns_drawn(next(iter(named.values())))
    try:
        return adapt(reference, columns)
    except InputError as error:
        raise InputError(f"reference: {error}") from None


def _is_rows(value: Any) -> bool:
    return isinstance(value, str | os.PathLike | list | tuple | Sample) or hasattr(value, "__array__")


def _load_for_target(target: Density, named: Mapping[str, Any], seed: int, progress: Progress | None) -> Data:
    densities = [name for name, value in named.items() if isinstance(value, Density)]
    if densities:
        raise InputError(
            f"model {densities[0]!r}: expected a sample, got a Density; the reference is a density already, and two "
            "densities cannot be compared without samples"
        )
    given = [len(x) for x in named.values() if isinstance(x, np.ndarray)]
    named, drawn = with_samples_drawn(
        named, target.dim or 1, max(given, default=DEFAULT_ROWS), seed, all_samples=True, progress=progress
    )
    first = as_rows(f"model {next(iter(named))!r}", next(iter(named.values())))
    dim = first.shape[1] if target.dim is None else target.dim
    samples = {name: _sample(name, value, dim) for name, value in named.items()}
    _refuse_one_point(*samples.values())
    prints = {name: fingerprint(x) for name, x in samples.items()}
    copies = sample_copies(samples, prints)
    distinct = {name: x for name, x in samples.items() if name not in copies}
    constant = [note for name, x in distinct.items() for note in _constant_columns(x, f"model {name!r}")]
    said = [f"reference: {note}" for note in _target_notes(target, next(iter(distinct.values())))]
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
    if not pair or not all(isinstance(name, str) and name.strip() for name in names) or names[0] == names[1]:
        raise InputError(f"names: expected two different names, got {reprlib.repr(names)}")


def _named(models: Any) -> dict[str, Any]:
    if isinstance(models, Mapping):
        wrong = [name for name in models if not isinstance(name, str) or not name.strip()]
        if wrong:
            raise InputError(f"models: expected names that are non-empty text, got {wrong[0]!r}")
        return dict(models)
    if isinstance(models, str | bytes | np.ndarray) or not isinstance(models, Sequence):
        raise InputError(
            f"models: expected a mapping of names to models, or a list of models, got {type(models).__name__}"
        )
    return {f"m{k}": model for k, model in enumerate(models, 1)}


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


def _sample(name: str, value: Any, dim: int, rows_of: RowsOf = as_rows) -> Array:
    rows = rows_of(f"model {name!r}", value)
    if rows.shape[1] != dim:
        raise InputError(f"model {name!r}: expected {dim} columns like the reference, got {rows.shape[1]}")
    return rows


def _refuse_one_point(*pooled: Array) -> None:
    if all((rows == pooled[0][0]).all() for rows in pooled):
        raise InputError("reference and models: expected at least two distinct rows, all pooled rows coincide")


def _score_copies(reference: Array, models: Mapping[str, Density]) -> dict[str, str]:
    probed = {name: _probe(name, model, reference) for name, model in models.items()}
    copies: dict[str, str] = {}
    for name, model in models.items():
        for other in models:
            if other == name:
                break
            if other in copies or not _same_scores(probed[name], probed[other]):
                continue
            whole = scores_of(name, model, reference), scores_of(other, models[other], reference)
            if _same_scores(*whole):
                copies[name] = other
                break
    return copies


def _probe(name: str, model: Density, reference: Array) -> Array:
    step = max(1, len(reference) // _SCORE_PROBE)
    try:
        return model.scores(reference[::step])
    except InputError:
        # Asked again at every row, so that the complaint counts rows of the reference.
        return scores_of(name, model, reference)[::step]


def scores_of(name: str, density: Density, rows: Array) -> Array:
    """The density's scores at these rows, any complaint naming the model."""
    try:
        return density.scores(rows)
    except InputError as error:
        raise InputError(f"model {name!r}: {error}") from None


def _target_notes(target: Density, rows: Array) -> tuple[str, ...]:
    try:
        return target.notes(rows)
    except InputError as error:
        raise InputError(f"reference: {error}") from None


def _score_notes(reference: Array, densities: Mapping[str, Density]) -> list[str]:
    said: dict[str, list[str]] = {}
    for name, density in densities.items():
        try:
            notes = density.notes(reference)
        except InputError as error:
            raise InputError(f"model {name!r}: {error}") from None
        for note in notes:
            said.setdefault(note, []).append(repr(name))
    return [f"{', '.join(names)}: {note}" for note, names in said.items()]


def _same_scores(a: Array, b: Array) -> bool:
    # Relative to the typical score: its size depends on the unit the data are measured in.
    size = np.maximum(np.abs(a), np.abs(b))
    return bool(np.all(np.abs(a - b) <= 1e-12 * np.maximum(size, size.mean())))


def _constant_columns(rows: Array, where: str) -> list[str]:
    constant = int((rows == rows[0]).all(axis=0).sum())
    verb = "is" if constant == 1 else "are"
    return [f"{constant} of {rows.shape[1]} columns {verb} constant in {where}"] if constant else []
