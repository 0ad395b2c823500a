"""Separate clusters in the data, whose weights KSD hardly sees."""

from __future__ import annotations

from relfit.checks.base import Compared, Findings
from relfit.data.structure import separated_clusters


def check_clusters(compared: Compared) -> Findings:
    """A note if the data of a comparison by KSD fall into clusters far apart."""
    data = compared.plan.data
    if data.kind not in ("densities", "target"):
        return Findings()
    rows = data.reference if data.target is None else next(iter(data.samples.values()))
    apart = separated_clusters(rows)
    if apart is None:
        return Findings()
    small, steps = apart
    note = (
        f"the data fall into clusters ({100 * small:.0f}% and {100 * (1.0 - small):.0f}% of the rows, "
        f"{steps:.0f} times further apart than neighbours), whose weights KSD hardly sees: a model with wrong weights "
        "passes; compare the weights of the clusters by other means"
    )
    return Findings((note,))
