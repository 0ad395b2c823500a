"""The reference and the candidates, checked together: dimensions, names, copies, rows in common."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from relfit.errors import InputError
from relfit.inputs.arrays import as_rows
from relfit.models import Density

Array = NDArray[np.float64]
Kind = Literal["samples", "densities"]

# Scores are first compared at this many rows; only pairs that agree there are compared at all rows.
_SCORE_PROBE = 256


@dataclass(frozen=True)
class Data:
    """Checked input. `models` holds each distinct model once; `copies` maps a copy's name to that model's.

    `keys` names each model's random stream: the alphabetically first among its copies, so that neither
    the order of the models nor a copy more changes a number.
    """

    reference: Array
    models: dict[str, Array | Density]
    names: tuple[str, ...]
    copies: dict[str, str]
    keys: dict[str, str]
    warnings: tuple[str, ...]

    @property
    def kind(self) -> Kind:
        """Whether the models are samples or densities."""
        return "densities" if isinstance(next(iter(self.models.values())), Density) else "samples"

    @property
    def samples(self) -> dict[str, Array]:
        """The models that are samples."""
        return {k: m for k, m in self.models.items() if not isinstance(m, Density)}

    @property
    def densities(self) -> dict[str, Density]:
        """The models that are densities."""
        return {k: m for k, m in self.models.items() if isinstance(m, Density)}


def load(reference: Any, models: Any, *, fewest_models: int = 2) -> Data:
    """Check the reference and the models (a mapping of names, or a sequence) and collapse copies."""
    if isinstance(reference, Density):
        raise InputError("reference: expected a sample of the data, got a Density")
    rows = as_rows("reference", reference)
    named = _named(models)
    if len(named) < fewest_models:
        raise InputError(f"models: expected at least {fewest_models}, got {len(named)}")
    checked = {name: _model(name, value, rows.shape[1]) for name, value in named.items()}
    kinds = {isinstance(model, Density) for model in checked.values()}
    if len(kinds) > 1:
        raise InputError(
            "models: expected all samples or all densities, got both; MMD and KSD values cannot be compared"
        )
    copies = _copies(rows, checked)
    kept = {name: model for name, model in checked.items() if name not in copies}
    keys = {name: min([name, *(c for c, original in copies.items() if original == name)]) for name in kept}
    return Data(rows, kept, tuple(checked), copies, keys, tuple(_warnings(rows, kept)))


def require_rows(what: str, count: int, fewest: int, why: str) -> None:
    """Refuse a sample that is too small."""
    if count < fewest:
        raise InputError(f"{what}: expected at least {fewest} rows ({why}), got {count}")


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


def _model(name: str, value: Any, dim: int) -> Array | Density:
    if isinstance(value, Density):
        if value.dim not in (None, dim):
            raise InputError(f"model {name!r}: expected dimension {dim} like the reference, got {value.dim}")
        return value
    if value is None or callable(value):
        raise InputError(
            f"model {name!r}: expected an array, a file or a Density, got {type(value).__name__}; "
            "wrap a score function as Density(score=...)"
        )
    rows = as_rows(f"model {name!r}", value)
    if rows.shape[1] != dim:
        raise InputError(f"model {name!r}: expected {dim} columns like the reference, got {rows.shape[1]}")
    return rows


def _copies(reference: Array, models: Mapping[str, Array | Density]) -> dict[str, str]:
    """Copy → original, the first of its kind in the order given."""
    first: dict[tuple[Any, ...], str] = {}
    copies = _score_copies(reference, {k: m for k, m in models.items() if isinstance(m, Density)})
    for name, rows in models.items():
        if isinstance(rows, Density):
            continue
        key = (rows.shape, hashlib.blake2b(rows.data, digest_size=16).digest())
        if first.setdefault(key, name) != name:
            copies[name] = first[key]
    return copies


def _score_copies(reference: Array, models: Mapping[str, Density]) -> dict[str, str]:
    probe = reference[:: max(1, len(reference) // _SCORE_PROBE)]
    probed = {name: scores_of(name, model, probe) for name, model in models.items()}
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


def scores_of(name: str, density: Density, rows: Array) -> Array:
    """The density's scores at these rows, any complaint naming the model."""
    try:
        return density.scores(rows)
    except InputError as error:
        raise InputError(f"model {name!r}: {error}") from None


def _same_scores(a: Array, b: Array) -> bool:
    return bool(np.all(np.abs(a - b) <= 1e-12 * np.maximum(1.0, np.maximum(np.abs(a), np.abs(b)))))


def _warnings(reference: Array, models: Mapping[str, Array | Density]) -> list[str]:
    notes = []
    constant = int((reference == reference[0]).all(axis=0).sum())
    if constant:
        plural = "column is" if constant == 1 else "columns are"
        notes.append(f"{constant} of {reference.shape[1]} {plural} constant in the reference")
    keys = _row_keys(reference)
    repeated = 1.0 - len(np.unique(keys)) / len(keys)
    for name, rows in models.items():
        if isinstance(rows, Density):
            continue
        common = int(np.isin(_row_keys(rows), keys).sum())
        # Data with atoms meet by chance; there, rows in common say nothing about memorised data.
        if common and repeated < 0.1:
            notes.append(
                f"{common} of {len(rows)} rows of {name!r} also occur in the reference: if the model has seen "
                "these data its discrepancy is too small; compare on data that no model was fitted to"
            )
    return notes


def _row_keys(rows: Array) -> NDArray[np.uint64]:
    """A 64-bit key per row, equal for equal rows (0.0 and −0.0 are equal)."""
    odd = np.random.default_rng(0).integers(2**62, size=(rows.shape[1], 1)).astype(np.uint64) * np.uint64(
        2
    ) + np.uint64(1)
    keys = np.zeros(len(rows), dtype=np.uint64)
    for k in range(rows.shape[1]):
        bits = (rows[:, k] + 0.0).view(np.uint64)
        mixed = (bits ^ (bits >> np.uint64(32))) * odd[k]
        keys += mixed ^ (mixed >> np.uint64(29))
    return keys
