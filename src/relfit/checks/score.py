"""Scores that are the gradient of no log density."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relfit.checks.base import Compared, Findings
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
    own = {name: density for name, density in densities.items() if density.log_prob is None}
    if not own or rows.shape[1] < 2 or len(rows) < 2:
        return Findings()
    probe = _Probe.at(np.asarray(rows[:: -(-len(rows) // _ROWS)]))
    wrong = [name for name, density in own.items() if not probe.may_be_gradient(density)]
    if not wrong:
        return Findings()
    whose = "scores are" if len(wrong) > 1 else "score is"
    note = (
        f"{listed(wrong, quote=str)}: the {whose} the gradient of no log density (the Jacobian is not symmetric), so "
        "KSD compares what no density has; relfit.check_score gives details"
    )
    return Findings((note,))


@dataclass(frozen=True)
class _Probe:
    """Rows (n, d), and two random directions at each in units of the columns' spread."""

    x: Array
    v: Array
    w: Array

    @classmethod
    def at(cls, x: Array) -> _Probe:
        spread = x.std(axis=0)
        scale = np.where(spread > 0.0, spread, 1.0)
        v, w = np.random.default_rng(0).standard_normal((2, *x.shape)) * scale
        return cls(x, v, w)

    def may_be_gradient(self, density: Density) -> bool:
        """Whether v·Jw = w·Jv at most rows, J being the Jacobian of the score."""
        try:
            with np.errstate(all="ignore"):
                first = self._crossed(density, 1.0)
                if first is None or _agree(first, np.zeros(len(self.x))):
                    return True
                second = self._crossed(density, 2.0)
        except Exception:  # noqa: BLE001  (a function that accepts only the rows it was made for can raise anything)
            return True
        if second is None or not (np.isfinite(first).all() and np.isfinite(second).all()):
            return True
        return _agree(first, np.abs(first - second).max(axis=0))

    def _crossed(self, density: Density, widen: float) -> Array | None:
        """(2, n) v·Jw and w·Jv by central differences; None for scores in single precision."""
        x, v, w = self.x, self.v, self.w
        h = widen * np.finfo(float).eps ** (1.0 / 3.0)
        scores = density.raw_scores(np.concatenate([x + h * w, x - h * w, x + h * v, x - h * v]))
        if scores.dtype.itemsize < 8:
            return None
        ahead, behind, up, down = scores.reshape(4, *x.shape)
        return np.stack([(v * (ahead - behind)).sum(axis=1), (w * (up - down)).sum(axis=1)]) / (2.0 * h)


def _agree(values: Array, change: Array) -> bool:
    """Whether the two rows of values (2, n) agree in most places, but for how much they `change` with the step (n,)."""
    size = float(np.sqrt(np.square(values).mean()))
    allowed = _ASYMMETRIC * size + 10.0 * np.maximum(change, np.median(change))
    return bool((np.abs(values[0] - values[1]) <= allowed).mean() >= 0.5)
