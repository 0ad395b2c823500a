"""KSD where densities end: refused in one line, or replaced by the log-likelihood; the search is in `support`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from relfit.data.models import SCORE_BATCH, Density
from relfit.data.support import Edge, Extent, harmful_edge
from relfit.util.arrays import Array
from relfit.util.errors import InputError
from relfit.util.text import listed

# The draws of each model at which a target is examined, and the most densities that a message names.
_DRAWS, _MOST_NAMED = 1000, 3
_HARM = "there KSD and FSSD find even the true model worse"

# How a note ends on a comparison by log densities where KSD was the default.
INSTEAD = 'discrepancy="loglik" was used instead'


def ends(densities: Mapping[str, Density], x: Array) -> list[str]:
    """The densities that end without vanishing where the rows are, each with the place, in words."""
    extent, found = Extent(x), []
    for name, density in densities.items():
        edge = _edge(density, extent)
        if edge is not None:
            found.append(f"{name!r} at {edge.place(x.shape[1])}")
    return found


def refusal(densities: Mapping[str, Density], places: list[str]) -> InputError:
    """The error for densities that KSD and FSSD cannot compare on these data."""
    advice = 'use discrepancy="loglik"'
    if not all(density.normalised for density in densities.values()):
        advice = (
            'use discrepancy="loglik" if the densities are normalised, discrepancy="mmd" if they can '
            "be sampled, or transform the data to the whole line"
        )
    return InputError(
        "models: expected densities that vanish where their support ends, got an edge among the data "
        f"({_listed(places)}); {_HARM}: {advice}"
    )


def instead(places: list[str]) -> str:
    """The note on a comparison by log densities where KSD was the default.

    Without places, some models have density 0 at some rows.
    """
    if not places:
        return f"some models have density 0 at some rows, where KSD needs positive densities: {INSTEAD}"
    return f"densities end among the data without vanishing ({_listed(places)}), and {_HARM}: {INSTEAD}"


def _listed(places: list[str]) -> str:
    return listed(places, most=_MOST_NAMED, quote=str)


def check_target(target: Density, samples: Iterable[Array]) -> None:
    """Refuse a target that ends without vanishing where the draws are."""
    if target.support is not None and target.support.whole:
        return
    draws = np.concatenate([np.asarray(x[:: max(1, -(-len(x) // _DRAWS))]) for x in samples])
    edge = _edge(target, Extent(draws))
    if edge is not None:
        raise InputError(
            f"reference: expected a density that vanishes where it ends, got an edge at {edge.place(draws.shape[1])}, "
            "where there are draws; there KSD finds even exact draws worse: transform the draws and "
            "the density to the whole line, or give draws of the target as the reference"
        )


def _edge(density: Density, extent: Extent) -> Edge | None:
    if density.log_prob is None:
        return None
    # JAX compiles a function again for every number of rows; that of the data it needs anyway.
    compiled = density.autodiff == "jax" or type(density.log_prob).__module__.startswith("jax")
    rows = min(len(extent.x), SCORE_BATCH) if compiled else 0
    return harmful_edge(density.log_probs, density.support, extent, rows=rows)
