"""Log densities of several models at the same rows: checks, copies, rows of density 0, and
where KSD cannot be used.

KSD does not see what scores do not show. Where densities end it is refused in one line, or
replaced by the log-likelihood; the search for these places is in `support`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations

import numpy as np

from relfit.data.models import LARGEST_SCORE, SCORE_BATCH, Density, count_rows, naming
from relfit.data.support import Edge, Extent, harmful_edge
from relfit.util.arrays import Array
from relfit.util.errors import InputError
from relfit.util.text import listed

# Rows at which log densities and scores of two models are compared, and the most models that
# are.
_ROWS = 500
_MODELS = 20
# The part of the rows left out at either end: rare rows between two modes have slopes that KSD
# does not notice.
_TAIL = 0.02
# Log densities differ if by this many nats, and slopes do not if they explain only this part of
# that. Of smooth densities on one cluster of rows they explain at least a tenth, heavy tails
# included.
_NATS = 0.1
_PART = 0.05
_MOST_PAIRS = 3
# The draws of each model at which a target is examined, and the most densities that a message
# names.
_DRAWS = 1000
_MOST_NAMED = 3
_HARM = "there KSD and FSSD find even the true model worse"

# How a note ends on a comparison by log densities where KSD was the default.
INSTEAD = 'discrepancy="loglik" was used instead'


def log_densities(rows: Array, densities: Mapping[str, Density]) -> Array:
    """(n, l) log p of every model at every row, −inf where a density is 0; NaN and infinite
    densities are refused.
    """
    columns = []
    for name, density in densities.items():
        with naming(f"model {name!r}"):
            _check_normalised(density)
            column = density.log_probs(rows).astype(np.float64, copy=False)
            bad = ~(np.abs(column) < LARGEST_SCORE) & ~np.isneginf(column)
            if bad.any():
                raise InputError(
                    f"log_prob: expected numbers below {LARGEST_SCORE:g} in size, or -inf "
                    f"where the density is 0, got "
                    f"{column[bad][0]:g} at {count_rows(bad, rows)}"
                )
            columns.append(column)
    return np.stack(columns, axis=1)


def check_same_unit(densities: Mapping[str, Density]) -> None:
    """Refuse probability mass functions together with densities: the one has no unit, the
    other that of the data.
    """
    masses = [
        name
        for name, each in densities.items()
        if each.support is not None and each.support.discrete
    ]
    others = [name for name in densities if name not in masses]
    if masses and others:
        raise InputError(
            f"models: expected all densities or all probability mass functions, got "
            f"{masses[0]!r}, which is discrete, "
            f"and {others[0]!r}, which is not; their log-likelihoods cannot be compared"
        )


def _check_normalised(density: Density) -> None:
    if density.log_prob is None:
        raise InputError(
            'discrepancy="loglik": expected a density with log_prob, got one '
            'with a score only; use "ksd"'
        )
    if density.normalised is None:
        raise InputError(
            'discrepancy="loglik": expected a normalised density, and of this one it is not '
            "known; if it is, say "
            'Density(log_prob=..., normalised=True), otherwise use "ksd", which needs '
            "no constant"
        )
    if not density.normalised:
        raise InputError(
            'discrepancy="loglik": expected a normalised density, got one known up to a '
            'constant; use "ksd", which '
            "needs none"
        )


def likelihood_copies(log_probs: Array, names: list[str]) -> dict[str, str]:
    """Copy → original, the first model with the same log density at every row, to rounding."""
    originals: list[int] = []
    copies: dict[str, str] = {}
    for j, name in enumerate(names):
        same = (i for i in originals if _same(log_probs[:, i], log_probs[:, j]))
        original = next(same, None)
        if original is None:
            originals.append(j)
        else:
            copies[name] = names[original]
    return copies


def _same(a: Array, b: Array) -> bool:
    finite = np.isfinite(a)
    if not np.array_equal(finite, np.isfinite(b)):
        return False
    a = a[finite]
    b = b[finite]
    return bool(
        (np.abs(a - b) <= 1e-12 * np.maximum(np.maximum(np.abs(a), np.abs(b)), 1.0)).all()
    )


def impossible_models(log_probs: Array, names: list[str], rows: Array) -> dict[str, int]:
    """The models that give density 0 to some rows, and to how many; refused if there are no
    others.
    """
    bad = np.isneginf(log_probs)
    counts = {
        name: int(count) for name, count in zip(names, bad.sum(axis=0), strict=True) if count
    }
    if len(counts) == len(names):
        raise InputError(
            f"models: expected one with a positive density at every row, but all have density "
            f"0 at some, model "
            f"{names[0]!r} at {count_rows(np.asarray(bad[:, 0]), rows)}; leave out such rows, "
            f"or make the models allow "
            "for them"
        )
    return counts


def likelihood_notes(
    log_probs: Array, names: list[str], densities: Mapping[str, Density], rows: Array
) -> list[str]:
    """What a reader should know: density 0 at some rows, and log densities in less than
    double precision.
    """
    notes = []
    for name, column in zip(names, log_probs.T, strict=True):
        bad = np.isneginf(column)
        if bad.any():
            notes.append(
                f"{name!r} has density 0 (log density -inf) at "
                f"{count_rows(np.asarray(bad), rows)}: under this model "
                "they are impossible, so that it is worse than every model that allows for them"
            )
    # Of two rows: some functions give a bare number for one.
    single = {name: densities[name].log_probs(rows[:2]).dtype for name in names}
    short: dict[str, list[str]] = {}
    for name, dtype in single.items():
        if dtype.itemsize < 8:
            text = (
                f"log densities computed in {dtype}, to about "
                f"{np.finfo(dtype).precision} digits"
            )
            short.setdefault(text, []).append(repr(name))
    return notes + [f"{', '.join(whose)}: {text}" for text, whose in short.items()]


def unseen_heights(densities: Mapping[str, Density], reference: Array) -> tuple[str, ...]:
    """A note on models whose log densities differ where the data are, while their scores,
    all that KSD sees, do not.

    f = log p_i − log p_j varies by about ‖∇f‖ times the width of the data where the rows
    hang together. Where they do not, as in separated modes to which the models give other
    weights, it can vary without any slope at the rows.

    >>> from relfit.data.adapters.scipy_sklearn import gaussian_mixture
    >>> means, roots = np.array([[-4.0], [4.0]]), np.ones((2, 1, 1))
    >>> models = {
    ...     f"{w}": gaussian_mixture(np.array([w, 1.0 - w]), means, roots) for w in (0.5, 0.65)
    ... }
    >>> x = np.random.default_rng(0).normal(size=(400, 1)) + np.repeat(
    ...     [[-4.0], [4.0]], 200, axis=0
    ... )
    >>> unseen_heights(models, x)[0][:75]
    "KSD does not see how '0.5' and '0.65' differ: where the data are, their log"
    """
    rows = np.asarray(reference[:: max(1, -(-len(reference) // _ROWS))])
    chosen = {
        name: density for name, density in densities.items() if density.log_prob is not None
    }
    names = list(chosen)[:_MODELS]
    if len(names) < 2:
        return ()
    log_probs = {name: chosen[name].log_probs(rows).astype(np.float64) for name in names}
    try:
        scores = {name: chosen[name].scores(rows) for name in names}
    except InputError:
        # Said again, of all rows and with the name of the model, when the scores are used.
        return ()
    width = float(np.linalg.norm(_spread(rows)))
    pairs = []
    for a, b in combinations(names, 2):
        apart = float(_spread(log_probs[a] - log_probs[b]))
        slopes = np.linalg.norm(scores[a] - scores[b], axis=1)
        slope = float(
            np.sqrt(np.square(slopes[slopes <= np.quantile(slopes, 1.0 - _TAIL)]).mean())
        )
        if apart >= _NATS and slope * width <= _PART * apart:
            pairs.append((a, b, apart))
    if not pairs:
        return ()
    shown = "; ".join(f"{listed([a, b], quote=repr)}" for a, b, _ in pairs[:_MOST_PAIRS])
    more = f" (and {len(pairs) - _MOST_PAIRS} more pairs)" if len(pairs) > _MOST_PAIRS else ""
    return (
        f"KSD does not see how {shown}{more} differ: where the data are, their log densities "
        f"differ by about "
        f"{max(apart for *_, apart in pairs):.2g} nats and their slopes do not, as with other "
        f"weights of separated "
        'modes; compare them by discrepancy="loglik" too, if they are normalised',
    )


def _spread(values: Array) -> Array:
    """Half the distance between the outer quantiles of each column."""
    low, high = np.quantile(values, [_TAIL, 1.0 - _TAIL], axis=0)
    return np.asarray((high - low) / 2.0)


# ── where densities end ───────────────────────────────────────────────────────────────────────


def ends(densities: Mapping[str, Density], x: Array) -> list[str]:
    """The densities that end without vanishing where the rows are, each with the place, in
    words.
    """
    extent = Extent(x)
    found = []
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
            'use discrepancy="loglik" if the densities are normalised, discrepancy="mmd" if '
            "they can "
            "be sampled, or transform the data to the whole line"
        )
    return InputError(
        "models: expected densities that vanish where their support ends, got an edge among "
        "the data "
        f"({_listed(places)}); {_HARM}: {advice}"
    )


def instead(places: list[str]) -> str:
    """The note on a comparison by log densities where KSD was the default.

    Without places, some models have density 0 at some rows.
    """
    if not places:
        return (
            f"some models have density 0 at some rows, where KSD needs positive densities: "
            f"{INSTEAD}"
        )
    return (
        f"densities end among the data without vanishing ({_listed(places)}), and {_HARM}: "
        f"{INSTEAD}"
    )


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
            f"reference: expected a density that vanishes where it ends, got an edge at "
            f"{edge.place(draws.shape[1])}, "
            "where there are draws; there KSD finds even exact draws worse: transform the "
            "draws and "
            "the density to the whole line, or give draws of the target as the reference"
        )


def _edge(density: Density, extent: Extent) -> Edge | None:
    if density.log_prob is None:
        return None
    # JAX compiles a function again for every number of rows; that of the data it needs anyway.
    compiled = density.autodiff == "jax" or type(density.log_prob).__module__.startswith("jax")
    rows = min(len(extent.x), SCORE_BATCH) if compiled else 0
    return harmful_edge(density.log_probs, density.support, extent, rows=rows)
