"""Densities that the log-likelihood can compare too, where KSD leaves models undecided."""

from __future__ import annotations

from relfit.checks.base import Compared, Findings

_NAME = 'discrepancy="loglik"'


def likelihood_at_hand(compared: Compared) -> Findings:
    """A note if KSD was the default, left a model undecided, and all densities are normalised."""
    plan = compared.plan
    densities = plan.data.densities
    if compared.asked != "auto" or not densities or plan.measure != "ksd":
        return Findings()
    undecided = int((~compared.decision.worse).sum()) > 1
    normalised = all(density.normalised for density in densities.values())
    known = any(_NAME in note for note in plan.notes)
    if not undecided or not normalised or known:
        return Findings()
    return Findings(
        (f"all densities are normalised: {_NAME} can compare them too, and may decide what KSD leaves open",)
    )
