"""Discrepancies at J locations v_j: UME² of samples, FSSD² of densities; linear in the rows.

UME² and FSSD² are U-statistics of features τ(x): ``mean_{a≠b} τ_a·τ_b`` needs the sum of the
features only, so one pass over the rows gives the sums, and a second one the contribution of
every row.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from relfit.data.arrays import as_rows
from relfit.data.load import Data, require_rows
from relfit.data.models import scores_of
from relfit.estimators.base import (
    Complete,
    Dependence,
    Estimates,
    EstimateSettings,
    Locations,
    joint_psi,
    sample_name,
    samples_of,
)
from relfit.estimators.groups import row_orders, take
from relfit.estimators.kernel import MOST_HELD, centre_of, separation
from relfit.estimators.ksd import all_scores
from relfit.estimators.pairkernel import PairKernel, row_products, squared_distances
from relfit.kernels.base import Kernel
from relfit.stats.joint import JointEstimate, Psi, centred
from relfit.util.arrays import Array, Rows, cuts, host
from relfit.util.checks import Choice, Fraction, check_whole, checked, described, option
from relfit.util.errors import InputError
from relfit.util.random import stream

CHOICES = ("data", "optimise")
# Numbers in one array of a part of the rows: 2 MB.
CHUNK_NUMBERS = 2**18
# Rows whose pairs measure the second-order variance of FSSD.
SECOND_ORDER_ROWS = 500
# Locations that are tried when they are optimised; twice as many as are to be chosen, if that
# is more.
CANDIDATES = 100
# All scores are kept between the two passes over the rows if they are no more numbers than
# this: 64 MB.
MOST_SCORES = 2**23

Features = Callable[[slice], Array]
Scores = Callable[[slice], Sequence[Array]]
RowsOf = Mapping[str | None, Rows]


def _as_locations(value: Any) -> Any:
    """The number of locations, or the locations themselves as an array."""
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return check_whole("locations", value, 1)
    if value is None or isinstance(value, bool | float | str):
        raise InputError(
            f"locations: expected a number or an array (J, d), got {reprlib.repr(value)}"
        )
    return as_rows("locations", value)


@dataclass(frozen=True, eq=False)
class AtLocations:
    """A discrepancy at J locations."""

    kernel: Kernel | None = option(
        None, help="the kernel", shown="Gaussian with the median bandwidth"
    )
    locations: Any = option(
        10,
        _as_locations,
        "the number of locations",
        flag="--locations NUMBER",
        python="Or the locations themselves, an array (J, d) chosen without these data.",
    )
    choose: str = option(
        "data",
        Choice(CHOICES),
        'how they are chosen. "data" draws them from the rows; "optimise" picks those at '
        "which the "
        "models are best separated on held-out rows. Either way the rows used are left out "
        "of the test.",
    )
    fraction: float = option(
        0.2,
        Fraction(),
        'the fraction of the rows that "optimise" holds out, at most 2,000 rows of each sample',
    )

    def __post_init__(self) -> None:
        checked(self)
        if self.given is not None and self.choose != "data":
            raise InputError(
                "choose: cannot be combined with given locations; leave it out, "
                "or give only their number"
            )

    @property
    def given(self) -> Array | None:
        """The locations (J, d), if they were given."""
        return self.locations if isinstance(self.locations, np.ndarray) else None

    @property
    def count(self) -> int:
        """The number J of locations."""
        return int(self.locations) if self.given is None else len(self.given)


@described
class UME(AtLocations):
    """Squared difference of the mean embeddings of a sample and the data at J locations;
    linear in the rows.

    ``UME² = mean_j (E k(x,v_j) − E k(r,v_j))²``. It compares the models at these locations
    only.

    >>> UME(locations=[[0.0, 0.0], [1.0, 1.0]]).given.shape
    (2, 2)
    """


@described
class FSSD(AtLocations):
    """Squared finite-set Stein discrepancy of a density at J locations; linear in the rows.

    ``FSSD² = mean_j ‖E[s(r) k(r,v_j) + ∇_r k(r,v_j)]‖²/d`` over the data r, with s the
    density's score.

    >>> FSSD(locations=5, choose="optimise").fraction
    0.2
    """


AT_LOCATIONS: dict[str, type[AtLocations]] = {"ume": UME, "fssd": FSSD}


def chunks(rows: Array, features: int) -> list[slice]:
    """Parts of the rows so small that the rows of one and their features are few numbers."""
    width = max(16, features, rows.shape[1])
    return list(cuts(len(rows), max(64, CHUNK_NUMBERS // width)))


def ume(
    reference: Array,
    samples: Sequence[Array],
    points: Array,
    kernel: Kernel,
    dependence: Dependence,
) -> Estimates:
    """UME² of each sample to the reference at J locations, with ψ rows; unequal sizes allowed.

    It is MMD² under the kernel τ(x)·τ(y) with ``τ(x) = (k(x,v_j))_j/√J``: ``D_i =
    mean_{c≠c'} τ(x_c)·τ(x_c') + mean_{a≠b} τ(r_a)·τ(r_b) − 2 mean_{c,a} τ(x_c)·τ(r_a)``,
    ``g_i(r_a) = τ(r_a)·(Σ_{b≠a} τ(r_b)/(n−1) − mean_c τ(x_c))`` and f_i likewise for the
    model's rows.
    """
    pairs = PairKernel(kernel)
    unit = math.sqrt(len(points))

    def features(x: Array) -> Features:
        return lambda part: pairs.values(x[part], points) / unit

    if dependence == "paired":
        # τ_a = τ(x_a) − τ(r_a) and D = mean_{a≠b} τ_a·τ_b, which leaves out the pairs of one
        # row.
        gaps = [
            FeatureSample(reference, _difference(features(x), features(reference)), len(points))
            for x in samples
        ]
        psi = Psi(centred(np.hstack([x.contributions(x.others[:, None]) for x in gaps])))
        return Estimates(
            np.array([x.squared_norm for x in gaps]),
            psi,
            np.array([_second_order(x, x) for x in gaps]),
        )
    ours, *theirs = (FeatureSample(x, features(x), len(points)) for x in (reference, *samples))
    values = np.array(
        [ours.squared_norm + x.squared_norm - 2.0 * float(ours.mean @ x.mean) for x in theirs]
    )
    g = ours.contributions(np.stack([ours.others - x.mean for x in theirs], axis=1))
    f = [x.contributions((x.others - ours.mean)[:, None])[:, 0] for x in theirs]
    psi = joint_psi(g, f, dependence)
    each = np.array([_second_order(x, x) + 2.0 * _second_order(x, ours) for x in theirs])
    common = _second_order(ours, ours)
    # For models from common random numbers only the variances are known, not the second-order
    # covariances.
    return Estimates(
        values, psi, each + common if dependence == "shared" else np.diag(each) + common
    )


def fssd(reference: Array, scores: Scores, points: Array, kernel: Kernel) -> Estimates:
    """FSSD² of each model at the locations (J, d), with ψ rows; `scores` gives every model's
    at a part of the rows.

    ``D_i = mean_{a≠b} τ_i(x_a)·τ_i(x_b)`` with ``τ_i(x) = (s_i(x) k(x,v_j) + ∇_x
    k(x,v_j))_j/√(dJ)``, and ``g_i(x_a) = τ_i(x_a)·Σ_{b≠a} τ_i(x_b)/(n−1)``. ψ = 2(g −
    ḡ)·(n−1)/(n−2), the jackknife's, as for KSD.
    """
    n = len(reference)
    centre = centre_of(reference)
    kernel = kernel.moved(centre)
    points = points - centre
    parts = chunks(reference, len(points))

    def part_of(part: slice) -> _SteinPart:
        return _SteinPart(kernel, reference[part] - centre, scores(part), points)

    totals = np.sum([part_of(part).totals() for part in parts], axis=0)
    g = np.empty((n, len(totals)))
    for part in parts:
        g[part] = part_of(part).contributions(totals) / ((n - 1) * points.size)
    some = part_of(slice(0, n, -(-n // SECOND_ORDER_ROWS)))
    psi = Psi(centred(g) * ((n - 1) / (n - 2)))
    return Estimates(
        g.mean(axis=0), psi, some.second_moments() * (2.0 / (n * (n - 1) * points.size**2))
    )


class FeatureSample:
    """The features τ (n, J) of n rows, a part at a time, and what follows from their sum and
    their second moments.
    """

    def __init__(self, rows: Array, features: Features, count: int) -> None:
        n = len(rows)
        self.parts = chunks(rows, count)
        total = np.zeros(1)
        second = np.zeros((1, 1))
        for part in self.parts:
            tau = features(part)
            total = total + tau.sum(axis=0)
            second = second + tau.T @ tau
        self.rows = rows
        self.features = features
        self.mean: Array = total / n
        self.others: Array = total / (n - 1)  # Σ_b τ_b/(n−1)
        self.squared_norm = float(total @ total - np.trace(second)) / (
            n * (n - 1)
        )  # mean_{a≠b} τ_a·τ_b
        self.covariance: Array = second / n - np.outer(self.mean, self.mean)

    def contributions(self, directions: Array) -> Array:
        """``τ_a·m_i − ‖τ_a‖²/(n−1)`` for every row and direction m_i, `directions` (J, l):
        (n, l).
        """
        out = np.empty((len(self.rows), directions.shape[1]))
        for part in self.parts:
            tau = self.features(part)
            out[part] = tau @ directions - row_products(tau, tau)[:, None] / (
                len(self.rows) - 1
            )
        return out


def _difference(model: Features, reference: Features) -> Features:
    return lambda part: model(part) - reference(part)


def _second_order(a: FeatureSample, b: FeatureSample) -> float:
    """``2ζ/(nm)``, or 2ζ/(n(n−1)) within a sample, with ζ = E(τ̃·τ̃')² = tr(C C') of the
    centred features.
    """
    pairs = len(a.rows) * (len(b.rows) - (a is b))
    return 2.0 * float(np.vdot(a.covariance, b.covariance)) / pairs


class _SteinPart:
    """φ, 2φ' and r² of some rows (n, d) to the locations (J, d), each (n, J), and the
    models' scores at the rows.

    The features s φ + 2φ'·(x − v), (n, J, d) for every model, are never formed for all
    locations at once.
    """

    def __init__(
        self, kernel: Kernel, rows: Array, scores: Sequence[Array], points: Array
    ) -> None:
        stein = PairKernel(kernel)
        self.rows = rows
        self.points = points
        self.r2 = squared_distances(rows, points, kernel.length)
        self.scores = stein.tilted_scores(rows, *scores)
        self.phi, dphi = stein.weights(rows, points, ("phi", "dphi"))
        self.slope = 2.0 * dphi

    def totals(self) -> Array:
        """The sum of the features of every model: (l, J, d)."""
        gradient = self.slope.T @ self.rows - self.slope.sum(axis=0)[:, None] * self.points
        return np.stack([self.phi.T @ s + gradient for s in self.scores])

    def contributions(self, totals: Array) -> Array:
        """``τ_a·(T − τ_a)`` for every row and model, T its total: (n, l)."""
        columns = []
        for s, total in zip(self.scores, totals, strict=True):
            along = self.phi * (s @ total.T)
            along += self.slope * (self.rows @ total.T - row_products(self.points, total))
            across = row_products(s, self.rows)[:, None] - s @ self.points.T
            along -= self.phi**2 * row_products(s, s)[:, None]
            along -= self.slope * (2.0 * self.phi * across + self.slope * self.r2)
            columns.append(along.sum(axis=1))
        return np.stack(columns, axis=1)

    def second_moments(self) -> Array:
        """``ζ_ij = mean_{a≠b} (τ̃_a·τ̃_b)_i (τ̃_a·τ̃_b)_j`` of the centred features: (l, l)."""
        n = len(self.rows)
        grams = np.zeros((len(self.scores), n, n))
        for gram, score in zip(grams, self.scores, strict=True):
            for j, point in enumerate(self.points):
                tau = self.phi[:, j, None] * score + self.slope[:, j, None] * (
                    self.rows - point
                )
                tau -= tau.mean(axis=0)
                gram += tau @ tau.T
            np.fill_diagonal(gram, 0.0)
        flat = grams.reshape(len(grams), -1)
        return np.asarray(flat @ flat.T / (n * (n - 1)))


def at_locations(data: Data, settings: EstimateSettings, locations: Locations) -> Estimates:
    """UME² or FSSD² of every model at the locations, from the rows that were not used to
    choose them.
    """
    rest, _ = without_used_rows(data, locations)
    estimates = _estimator(rest, settings)(locations.points)
    return replace(estimates, notes=(f"{locations.note}; the models are compared there only",))


def sizes_left(data: Data, locations: Locations) -> tuple[int, ...]:
    """The numbers of rows tested: of the reference, then of each sample."""
    return tuple(
        len(x) - len(locations.left_out.get(key, ())) for key, x in samples_of(data).items()
    )


def without_used_rows(data: Data, locations: Locations) -> tuple[Data, Locations]:
    """The data without the rows that were used to choose the locations, and the locations by
    themselves.
    """
    if not locations.left_out:
        return data, locations
    rows = {
        key: np.delete(np.arange(len(x)), locations.left_out[key])
        for key, x in samples_of(data).items()
    }
    return take(data, rows), replace(locations, left_out={})


def choose_locations(
    data: Data, discrepancy: AtLocations, settings: EstimateSettings
) -> Locations:
    """The locations given, drawn from the rows, or chosen on held-out rows; the models'
    order changes nothing.
    """
    points = discrepancy.given
    if points is not None:
        columns = data.reference.shape[1]
        if points.shape[1] != columns:
            raise InputError(
                f"locations: expected {columns} columns like the reference, got "
                f"{points.shape[1]}"
            )
        at = points if data.encoding is None else data.encoding.apply(points)
        return Locations(at, {}, f"{_counted(points)} given")
    orders = row_orders(data, settings.dependence, settings.seed, "locations")
    if discrepancy.choose == "optimise":
        locations = _optimised(data, discrepancy, orders, settings)
    else:
        # Half of the locations are rows of the reference, the others rows of any models.
        count = discrepancy.count
        rows = count if not data.samples else -(-count // 2)
        used = {key: order[:rows] for key, order in orders.items()}
        points = pooled_rows(data, used, count, settings.seed)
        source = (
            "from the reference"
            if not data.samples
            else "half from the reference, half from the models"
        )
        locations = Locations(points, used, f"{_counted(points)} drawn {source}: {_left(used)}")
    for key, left in zip(samples_of(data), sizes_left(data, locations), strict=True):
        require_rows(
            sample_name(key),
            left,
            Complete.fewest_rows,
            "left for the test once the locations are chosen",
        )
    return locations


def _optimised(
    data: Data, discrepancy: AtLocations, orders: RowsOf, settings: EstimateSettings
) -> Locations:
    """The held-out rows that, taken one after another, separate the models best on all the
    held-out rows.
    """
    if len(data.models) < 2:
        raise InputError(
            'choose="optimise": expected at least 2 different models to tell apart, got 1'
        )
    held = {
        key: order[: min(MOST_HELD, round(discrepancy.fraction * len(order)))]
        for key, order in orders.items()
    }
    for key, rows in held.items():
        require_rows(
            sample_name(key), len(rows), Complete.fewest_rows, "held out for the locations"
        )
    count = discrepancy.count
    candidates = pooled_rows(data, held, max(CANDIDATES, 2 * count), settings.seed)
    if len(candidates) < count:
        raise InputError(
            f"locations: expected at most {len(candidates)} (the rows held out "
            f"for them), got {count}"
        )
    estimates_at = _estimator(take(data, held), settings)
    each = [estimates_at(candidate[None]) for candidate in candidates]
    points = candidates[best_separated(each, count)]
    note = (
        f"{_counted(points)} chosen among {len(candidates)} for telling the models apart: "
        f"{_left(held)}"
    )
    return Locations(points, held, note)


def best_separated(each: Sequence[Estimates], count: int) -> list[int]:
    """Which of the estimates, each at a single location, to add up: always the one that
    separates the models most.

    D and ψ of several locations are the means of those of each. The second-order variance is
    added to V: where no model differs from the data the estimated V alone can be tiny by
    chance. That of a sum is at most (Σ√S2)².
    """
    taken: list[int] = []
    best = None
    for _ in range(count):
        sums = {
            i: e if best is None else _sum(best, e)
            for i, e in enumerate(each)
            if i not in taken
        }
        taken.append(max(sums, key=lambda i: _separation(sums[i])))
        best = sums[taken[-1]]
    return taken


def _sum(a: Estimates, b: Estimates) -> Estimates:
    assert a.psi.reference is not None  # noqa: S101  (UME and FSSD have a reference sample)
    assert b.psi.reference is not None  # noqa: S101
    models = tuple(x + y for x, y in zip(a.psi.models, b.psi.models, strict=True))
    psi = Psi(a.psi.reference + b.psi.reference, models, a.psi.shared)
    second = np.square(np.sqrt(a.second_order_variances) + np.sqrt(b.second_order_variances))
    return Estimates(a.values + b.values, psi, second)


def _separation(estimates: Estimates) -> float:
    covariance = estimates.psi.covariance() + np.diag(estimates.second_order_variances)
    return separation(
        JointEstimate(tuple(map(str, range(len(covariance)))), estimates.values, covariance)
    )


def _estimator(data: Data, settings: EstimateSettings) -> Callable[[Array], Estimates]:
    """From locations to the estimates there."""
    kernel = settings.kernel
    if data.kind == "samples":
        reference, *samples = samples_of(data).values()
        return lambda points: ume(reference, samples, points, kernel, settings.dependence)
    scores = _scores(data, settings)
    return lambda points: fssd(data.reference, scores, points, kernel)


def _scores(data: Data, settings: EstimateSettings) -> Scores:
    """The scores of every model at a part of the rows, from a file, from memory or evaluated
    anew.
    """
    x = data.reference
    densities = data.densities.items()
    if settings.folder is None and x.size * len(densities) > MOST_SCORES:
        return lambda part: [scores_of(name, density, x[part]) for name, density in densities]
    held = [all_scores(name, density, x, settings.folder) for name, density in densities]
    return lambda part: [scores[part] for scores in held]


def pooled_rows(data: Data, rows: RowsOf, count: int, seed: int) -> Array:
    """At most `count` of these rows, half of them from the reference, the others from any
    models.

    A model's row is as likely to be taken as any other's of its size, and the draw sees
    sorted rows, so that neither the order nor the names of the models change it.
    """
    if not data.samples:
        return host(data.reference[rows[None][:count]])
    from_reference = host(data.reference[rows[None][: -(-count // 2)]])
    pool = np.concatenate([host(x[rows[name][:count]]) for name, x in data.samples.items()])
    pool = pool[np.lexsort(pool.T[::-1])]
    drawn = stream(seed, "locations", "models' rows").choice(
        len(pool), min(count // 2, len(pool)), replace=False
    )
    return np.concatenate([from_reference, pool[drawn]])


def _counted(points: Array) -> str:
    return "1 location" if len(points) == 1 else f"{len(points)} locations"


def _left(used: RowsOf) -> str:
    counts = sorted({len(rows) for rows in used.values()})
    count = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    rows = "1 row" if counts == [1] else f"{count} rows"
    sample = "each sample" if len(used) > 1 else "the reference"
    return (
        f"{rows} of {sample}, used for this, {'is' if counts == [1] else 'are'} left out "
        f"of the test"
    )
