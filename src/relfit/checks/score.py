"""Scores that are the gradient of no log density."""

from __future__ import annotations

import numpy as np

from relfit.checks import Compared, Findings
from relfit.data.models import Density
from relfit.util.arrays import Array
from relfit.util.text import listed

# Rows at which the Jacobian is looked at, and the asymmetry that counts, as a fraction of its size.
_ROWS, _ASYMMETRIC = 6, 1e-3


def check_symmetry(compared: Compared) -> Findings:
    """A note on scores without log densities whose Jacobian is not symmetric.

    Scores with log densities are compared with their gradients when the data are loaded.
    """
    data = compared.plan.data
    if data.kind not in ("densities", "target"):
        return Findings()
    densities = {repr(name): density for name, density in data.densities.items()}
    rows = data.reference
    if data.target is not None:
        densities = {"reference": data.target}
        rows = next(iter(data.samples.values()))
    step = -(-len(rows) // _ROWS)
    some = np.asarray(rows[::step])
    wrong = [name for name, density in densities.items() if not _may_be_gradient(density, some)]
    if not wrong:
        return Findings()
    whose = "scores are" if len(wrong) > 1 else "score is"
    note = (
        f"{listed(wrong, quote=str)}: the {whose} the gradient of no log density (the Jacobian is not symmetric), so "
        "KSD compares what no density has; relfit.check_score gives details"
    )
    return Findings((note,))


def _may_be_gradient(density: Density, x: Array) -> bool:
    """Whether v·Jw = w·Jv for random directions v and w at each row, J being the Jacobian of the score."""
    if density.log_prob is not None or x.shape[1] < 2 or len(x) < 2:
        return True
    try:
        with np.errstate(all="ignore"):
            first, second = (_crossed(density, x, step) for step in (1.0, 2.0))
    except Exception:  # noqa: BLE001  (a function that accepts only the rows it was made for can raise anything)
        return True
    if first is None or second is None:
        return True
    gap = np.abs(first[0] - first[1])
    change = np.abs(first - second).max(axis=0)
    size = float(np.sqrt(np.square(first).mean()))
    if not np.isfinite(gap).all() or not np.isfinite(change).all() or size == 0.0:
        return True
    return bool((gap <= _ASYMMETRIC * size + 10.0 * np.maximum(change, np.median(change))).mean() >= 0.5)


def _crossed(density: Density, x: Array, widen: float) -> Array | None:
    """(2, n) v·Jw and w·Jv by central differences; None for scores in single precision."""
    spread = x.std(axis=0)
    scale = np.where(spread > 0.0, spread, 1.0)
    v, w = np.random.default_rng(0).standard_normal((2, *x.shape)) * scale
    h = widen * np.finfo(float).eps ** (1.0 / 3.0)
    moved = np.concatenate([x + h * w, x - h * w, x + h * v, x - h * v])
    scores = density.raw_scores(moved)
    if scores.dtype.itemsize < 8:
        return None
    ahead, behind, up, down = scores.reshape(4, *x.shape)
    return np.stack([(v * (ahead - behind)).sum(axis=1), (w * (up - down)).sum(axis=1)]) / (2.0 * h)
