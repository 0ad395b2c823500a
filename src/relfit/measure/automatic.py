"""The estimator that `estimator="auto"` stands for: all pairs where that takes seconds, otherwise as many as do."""

from __future__ import annotations

from relfit.discrepancies import Dependence
from relfit.inputs import Data
from relfit.measure.layout import DEFAULT_LAGS
from relfit.tiles import usable_cores

# What an estimate may take, in seconds.
PATIENCE = 10.0
# Nanoseconds of one core, to within a factor of two or so on processors of the last ten years: for one kernel value
# and each of its columns in tiles and in bands, and for each right-hand side that a value is multiplied with.
TILE, TILE_COLUMN = 1.6, 0.05
BAND, BAND_COLUMN = 8.0, 0.15
RIGHT_HAND_SIDE = 0.09
# A CUDA device does the complete estimate as fast as so many cores, at the least.
DEVICE_CORES = 200


def chosen_estimator(
    data: Data, dependence: Dependence, *, grouped: bool = False, device: bool = False
) -> tuple[str, int | None, str]:
    """(estimator, pairs, why): complete if its time is short or nothing else fits, else incomplete in that time.

    `device`: all pairs would be computed on a CUDA device. The incomplete estimate is always made on the host.
    """
    sizes = {len(x) for x in (data.reference, *data.samples.values()) if len(x)}
    rows, whole = max(sizes), complete_seconds(data)
    if device:
        whole *= usable_cores() / DEVICE_CORES
    place = "a CUDA device" if device else _cores()
    where = f"for {rows:,} rows, {len(data.models)} models and {data.reference.shape[1]} columns on {place}"
    picked = 'estimator="auto": the complete one, '
    if whole <= PATIENCE:
        return "complete", None, f"{picked}as all pairs take about {_duration(whole)} {where}"
    alone = {
        'with dependence="chain"': dependence == "chain",
        "for rows in groups": grouped,
        "for rows that live on a device": hasattr(data.reference, "is_cuda"),
        "for samples of different sizes": data.kind == "samples" and len(sizes) > 1,
    }
    if any(alone.values()):
        reason = next(reason for reason, holds in alone.items() if holds)
        return "complete", None, f"{picked}about {_duration(whole)}, as there is no other {reason}"
    lags = max(DEFAULT_LAGS, min(int(PATIENCE / lag_seconds(data)), (rows - 1) // 2))
    why = f'estimator="auto": the incomplete one, as all pairs would take about {_duration(whole)} {where}'
    return "incomplete", rows * lags, why


def complete_seconds(data: Data) -> float:
    """About how long all pairs take."""
    n, d = data.reference.shape
    lengths = [len(x) for x in data.samples.values()]
    value = TILE + TILE_COLUMN * d
    if data.kind == "samples":
        return _shared_out(value * (n * n / 2 + sum(m * (m / 2 + n) for m in lengths)))
    models = len(data.models) if data.kind == "densities" else 1
    value += RIGHT_HAND_SIDE * (1 + d) * (1 + models)
    return _shared_out(value * sum(m * m / 2 for m in lengths or [n]))


def lag_seconds(data: Data) -> float:
    """About how long the incomplete estimator takes for each pair that a row is the first of, scores not counted."""
    n, d = data.reference.shape
    lengths = [len(x) for x in data.samples.values()]
    bands = {"samples": n * (1 + 3 * len(lengths)), "densities": n * (1 + len(data.models)), "target": 2 * sum(lengths)}
    return _shared_out((BAND + BAND_COLUMN * d) * bands[data.kind])


def _shared_out(nanoseconds: float) -> float:
    return 1e-9 * nanoseconds / usable_cores()


def _cores() -> str:
    count = usable_cores()
    return "1 core" if count == 1 else f"{count} cores"


def _duration(seconds: float) -> str:
    if seconds < 1.0:
        return "1 s or less"
    if seconds < 120.0:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200.0 else f"{seconds / 3600:.0f} h"
