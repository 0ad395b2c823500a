"""UME², FSSD² and the Nyström MMD² of checked data, and the choice of their locations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from relfit.discrepancies import AtLocations, Estimates, Nystroem, Psi
from relfit.discrepancies.locations import Chunked, Locations, fssd, ume
from relfit.errors import InputError
from relfit.estimate import JointEstimate
from relfit.inputs import Data, require_rows, scores_of, stored_scores, stream
from relfit.measure.bandwidth import centre_of
from relfit.measure.checks import FEWEST_ROWS
from relfit.measure.plan import Plan
from relfit.measure.select import MOST_HELD, separation
from relfit.measure.shares import row_orders, take
from relfit.stored import LazyRows, some_rows

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
RowsOf = Mapping[str | None, Rows]

# Locations that are tried when they are optimised; twice as many as are wanted, if that is more.
CANDIDATES = 100
# All scores are kept between the two passes over the rows if they are no more numbers than this: 64 MB.
MOST_SCORES = 2**23


def of_locations(data: Data, plan: Plan) -> Estimates:
    """UME² or FSSD² of every model at the plan's locations, from the rows that were not used up for them."""
    assert plan.locations is not None  # noqa: S101  (asked for only where there are locations)
    locations = plan.locations
    measured = _measuring(data, _rows_left(data, locations), plan, whitened=locations.whitened)
    # With as many locations as Nyström takes the models are compared by the kernel, wherever they differ.
    only = "" if locations.whitened else "; the models are compared there only"
    return replace(measured(locations.points), notes=(locations.note + only,))


def sizes_left(data: Data, locations: Locations | None) -> tuple[int, ...]:
    """The numbers of rows tested: of the reference, then of each sample."""
    used = {} if locations is None else locations.left_out
    return tuple(len(x) - len(used.get(key, ())) for key, x in _samples(data).items())


def without_used_rows(data: Data, locations: Locations) -> tuple[Data, Locations]:
    """The data without the rows that were used up for the locations, and the locations by themselves."""
    if not locations.left_out:
        return data, locations
    return take(data, _rows_left(data, locations)), replace(locations, left_out={})


def choose_locations(data: Data, wanted: AtLocations, plan: Plan) -> Locations:
    """The locations given, drawn from the rows, or chosen on rows held out; the models' order changes nothing."""
    if wanted.given is not None:
        return replace(_given(data, wanted.given), whitened=isinstance(wanted, Nystroem))
    orders = row_orders(data, plan.dependence, plan.seed, "locations")
    found = (_drawn if wanted.choose == "data" else _chosen)(data, wanted, orders, plan)
    for key, left in zip(_samples(data), sizes_left(data, found), strict=True):
        require_rows(_who(key), left, FEWEST_ROWS["complete"], "left for the test once the locations are chosen")
    return found


def _given(data: Data, points: Array) -> Locations:
    if points.shape[1] != data.reference.shape[1]:
        raise InputError(
            f"locations: expected {data.reference.shape[1]} columns like the reference, got {points.shape[1]}"
        )
    return Locations(points, {}, f"{_counted(points)} given")


def _drawn(data: Data, wanted: AtLocations, orders: RowsOf, plan: Plan) -> Locations:
    """Half of the locations are rows of the reference and half rows of the models, whichever the draw finds."""
    count = wanted.count(len(data.reference))
    rows = count if not data.samples else -(-count // 2)
    used = {key: order[:rows] for key, order in orders.items()}
    points = _pooled(data, used, count, plan.seed)
    source = "from the reference" if not data.samples else "half from the reference, half from the models"
    note = f"{_counted(points)} drawn {source}: {_left(used)}"
    return Locations(points, used, note, whitened=isinstance(wanted, Nystroem))


def _chosen(data: Data, wanted: AtLocations, orders: RowsOf, plan: Plan) -> Locations:
    """Of held-out rows those that, taken one after another, separate the models best on all the held-out rows."""
    if len(data.models) < 2:
        raise InputError('choose="optimise": expected at least 2 different models to tell apart, got 1')
    held = {key: order[: min(MOST_HELD, round(wanted.share * len(order)))] for key, order in orders.items()}
    for key, rows in held.items():
        require_rows(_who(key), len(rows), FEWEST_ROWS["complete"], "share held out for the locations")
    count = wanted.count(len(data.reference))
    candidates = _pooled(data, held, max(CANDIDATES, 2 * count), plan.seed)
    if len(candidates) < count:
        raise InputError(f"locations: expected at most {len(candidates)} (the rows held out for them), got {count}")
    measured = _measuring(data, held, plan)
    each = [measured(candidate[None]) for candidate in candidates]
    points = candidates[best_separated(each, count)]
    note = f"{_counted(points)} chosen among {len(candidates)} for telling the models apart: {_left(held)}"
    return Locations(points, held, note)


def best_separated(each: Sequence[Estimates], count: int) -> list[int]:
    """Which of the estimates, each at a single location, to add up: always the one that separates the models most.

    D and ψ of several locations are the means of those of each. The second-order variance is added to V: where no
    model differs from the data the estimated V alone can be tiny by chance. That of a sum is at most (Σ√S2)².
    """
    taken: list[int] = []
    best = None
    for _ in range(count):
        found = {i: e if best is None else _sum(best, e) for i, e in enumerate(each) if i not in taken}
        taken.append(max(found, key=lambda i: _separation(found[i])))
        best = found[taken[-1]]
    return taken


def _sum(a: Estimates, b: Estimates) -> Estimates:
    assert a.psi.reference is not None  # noqa: S101  (UME and FSSD have a reference sample)
    assert b.psi.reference is not None  # noqa: S101
    models = tuple(x + y for x, y in zip(a.psi.models, b.psi.models, strict=True))
    psi = Psi(a.psi.reference + b.psi.reference, models, a.psi.shared)
    second = np.square(np.sqrt(_own_second_order(a)) + np.sqrt(_own_second_order(b)))
    return Estimates(a.values + b.values, psi, second)


def _own_second_order(estimates: Estimates) -> Array:
    second = estimates.second_order
    assert second is not None  # noqa: S101  (U-statistics of all pairs have one)
    return np.diag(second) if second.ndim == 2 else second


def _separation(found: Estimates) -> float:
    covariance = found.psi.covariance() + np.diag(_own_second_order(found))
    return separation(JointEstimate(tuple(map(str, range(len(found.values)))), found.values, covariance))


def _measuring(data: Data, rows: RowsOf, plan: Plan, *, whitened: bool = False) -> Callable[[Array], Estimates]:
    """The estimates from these rows as a function of the locations."""
    kernel, dependence = plan.kernel, plan.dependence
    if data.kind == "samples":
        reference, *samples = (Chunked(x, rows.get(key)) for key, x in _samples(data).items())
        return lambda points: ume(reference, samples, points, kernel, dependence, whitened=whitened)
    centre = centre_of(data.reference)
    raw = Chunked(data.reference, rows.get(None))
    scores = _scores(data, raw, plan)
    moved = replace(raw, centre=centre)
    return lambda points: fssd(moved, scores, points - centre, kernel.moved(centre))


def _scores(data: Data, rows: Chunked, plan: Plan) -> Callable[[slice], list[Array]]:
    if isinstance(data.reference, LazyRows) and plan.folder is not None:
        folder, all_rows = plan.folder, data.reference if rows.kept is None else some_rows(data.reference, rows.kept)
        stored = [stored_scores(name, density, all_rows, folder) for name, density in data.densities.items()]
        return lambda part: [scores[part] for scores in stored]
    kept: dict[tuple[int, int, int | None], list[Array]] | None = {}
    if len(rows) * data.reference.shape[1] * len(data.densities) > MOST_SCORES:
        kept = None

    def scores(part: slice) -> list[Array]:
        key = (part.start, part.stop, part.step)
        if kept is None or key not in kept:
            found = [scores_of(name, density, rows[part]) for name, density in data.densities.items()]
            if kept is None:
                return found
            kept[key] = found
        return kept[key]

    return scores


def _pooled(data: Data, rows: RowsOf, count: int, seed: int) -> Array:
    """At most `count` of these rows, half of them the reference's; of the models, any, in an order without their names.

    A model's row is as likely to be taken as any other's of its size, and the draw sees sorted rows, so that neither
    the order nor the names of the models change it.
    """
    if not data.samples:
        return data.reference[rows[None][:count]]
    own = data.reference[rows[None][: -(-count // 2)]]
    theirs = np.concatenate([x[rows[name][:count]] for name, x in data.samples.items()])
    theirs = theirs[np.lexsort(theirs.T[::-1])]
    wanted = min(count // 2, len(theirs))
    drawn = stream(seed, "locations", "models' rows").choice(len(theirs), wanted, replace=False)
    return np.concatenate([own, theirs[drawn]])


def _samples(data: Data) -> dict[str | None, Array]:
    out: dict[str | None, Array] = {None: data.reference}
    out.update(data.samples)
    return out


def _rows_left(data: Data, locations: Locations) -> dict[str | None, Rows]:
    used = locations.left_out
    return {key: np.delete(np.arange(len(x)), used[key]) for key, x in _samples(data).items() if key in used}


def _who(key: str | None) -> str:
    return "reference" if key is None else f"model {key!r}"


def _counted(points: Array) -> str:
    return "1 location" if len(points) == 1 else f"{len(points)} locations"


def _left(used: RowsOf) -> str:
    counts = sorted({len(rows) for rows in used.values()})
    count = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    rows = "1 row" if counts == [1] else f"{count} rows"
    return f"{rows} of {'each sample' if len(used) > 1 else 'the reference'}, used for that, left the test"
