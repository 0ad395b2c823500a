"""KSD² of samples to a target density: which sampler or approximation is closest to it? Also for Markov chains."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import block_diag

from relfit.compute.reduce import Runtime
from relfit.data.load import Data
from relfit.data.models import Density, scores_of
from relfit.estimators.base import (
    Dependence,
    Estimates,
    EstimateSettings,
    Estimator,
    Groups,
    Kind,
    PairDesign,
    PairSource,
    second_order,
)
from relfit.estimators.designs import BandValues
from relfit.estimators.groups import row_orders
from relfit.estimators.kernel import centre_of
from relfit.estimators.ksd import (
    LARGEST,
    all_scores,
    check_continuous,
    complete,
    grouped_ksd,
    pair_values,
    row_sums,
    stein_band_values,
)
from relfit.kernels.base import Kernel
from relfit.stats.joint import Psi, centred
from relfit.util.arrays import Array, Rows, host
from relfit.util.errors import InputError

# With fewer batches their means are too few for a normal approximation.
FEWEST_BATCHES = 20


class Target(Kind):
    """Samples compared with a target density, by KSD²: which sampler or approximation is closest to it?"""

    words = "a density as the reference"
    discrepancies = ("ksd",)
    smooth = True
    largest = LARGEST

    def check(self, data: Data, estimator: Estimator, dependence: Dependence, *, grouped: bool) -> None:
        if dependence == "paired":
            raise InputError('dependence="paired": pairs models with reference rows, but the reference is a density')
        if dependence == "chain" and isinstance(estimator, PairDesign):
            raise InputError(f'dependence="chain": expected estimator="complete", got {estimator.name!r}')
        if dependence == "chain" and estimator.corrected:
            raise InputError(
                'variance="corrected": cannot be combined with a chain, whose variance comes from batches; leave it out'
            )
        for name, x in data.samples.items():
            check_continuous(f"model {name!r}", x)
        self.check_shared({len(x) for x in data.samples.values()}, dependence, grouped=grouped)

    def sources(self, data: Data, settings: EstimateSettings, *, in_order: bool = False) -> list[PairSource]:
        orders = row_orders(data, settings.dependence, settings.seed, "pairs", in_order=in_order)
        each = [{name: x} for name, x in data.samples.items()]
        together = [data.samples] if settings.dependence == "shared" else each
        return [self._source(samples, data, orders, settings.kernel) for samples in together]

    def _source(
        self, samples: Mapping[str, Array], data: Data, orders: Mapping[str | None, Rows], kernel: Kernel
    ) -> PairSource:
        """Samples of one size whose rows are taken in one order, or a single sample."""
        centres = {name: centre_of(x) for name, x in samples.items()}
        kernels = [kernel.moved(centre) for centre in centres.values()]

        def fetch(rows: Rows) -> list[Array]:
            taken = {name: x[orders[name][rows]] for name, x in samples.items()}
            return [a for name, x in taken.items() for a in (x - centres[name], _target_scores(name, x, data))]

        def values(first: Sequence[Array], second: Sequence[Array]) -> Array:
            both = [slice(2 * i, 2 * i + 2) for i in range(len(kernels))]
            each = [pair_values(moved, first[k], second[k]) for moved, k in zip(kernels, both, strict=True)]
            return np.hstack(each)

        def of_window(window: Sequence[Array]) -> BandValues:
            each = [stein_band_values(moved, window[2 * i : 2 * i + 2]) for i, moved in enumerate(kernels)]
            return lambda part: np.concatenate([values_of_model(part) for values_of_model in each])

        count, d = next(iter(samples.values())).shape
        return PairSource(count, len(samples), fetch, values, of_window, 2 * d * len(samples))

    def estimate(self, data: Data, settings: EstimateSettings) -> Estimates:
        estimator = settings.estimator
        if settings.dependence == "chain":
            return _chains(data, settings)
        if not isinstance(estimator, PairDesign):
            return self.complete(data, settings)
        sources = self.sources(data, settings, in_order=not estimator.shuffle)
        each = [estimator.estimate(source, settings.runtime) for source in sources]
        return _side_by_side(each, shared=settings.dependence == "shared")

    def complete(self, data: Data, settings: EstimateSettings) -> Estimates:
        each = []
        for name, x in data.samples.items():
            scores = all_scores(f"target at model {name!r}", _target(data), x, settings)
            # The seed gives the same pairs for all models of a size: rows from common random numbers stay together.
            each.append(complete(x, [scores], settings.kernel, settings.runtime, settings.seed))
        shared = settings.dependence == "shared"
        estimates = _side_by_side(each, shared=shared)
        if shared and settings.estimator.corrected:
            (source,) = self.sources(data, settings, in_order=True)
            return replace(estimates, second_order=second_order(source, settings.seed))
        return estimates

    def grouped(self, data: Data, settings: EstimateSettings, groups: Groups) -> Estimates:
        each = []
        for name, x in data.samples.items():
            scores, codes, count = _target_scores(name, x, data), groups.codes[name], groups.counts[name]
            each.append(grouped_ksd(x, [scores], codes, count, settings.kernel, settings.runtime))
        return _side_by_side(each, shared=settings.dependence == "shared")

    def models_together(self, data: Data, dependence: Dependence) -> int:
        return len(data.models) if dependence == "shared" else 1

    def width(self, data: Data, dependence: Dependence) -> int:
        return 2 * int(data.reference.shape[1]) * self.models_together(data, dependence)

    def right_hand_sides(self, data: Data) -> int:
        return 2 * (1 + int(data.reference.shape[1]))

    def bands(self, data: Data) -> int:
        return 2 * sum(len(x) for x in data.samples.values())


def _side_by_side(each: Sequence[Estimates], *, shared: bool) -> Estimates:
    """Estimates of different models as one; only the ψ rows can express what the models have in common."""
    rows = tuple(column for e in each if e.psi.reference is not None for column in e.psi.reference.T)
    second = [e.second_order for e in each if e.second_order is not None]
    covariances = [e.covariance for e in each if e.covariance is not None]
    return Estimates(
        np.concatenate([e.values for e in each]),
        Psi(None, rows, shared=shared),
        block_diag(*second) if second else None,
        each[0].notes,
        block_diag(*covariances) if covariances else None,
    )


def _chains(data: Data, settings: EstimateSettings) -> Estimates:
    values, rows, notes = [], [], []
    for name, x in data.samples.items():
        chain = chain_ksd(x, _target_scores(name, x, data), settings.kernel, settings.runtime)
        batches = len(chain.batch_psi)
        few = "; too few for a reliable standard error, run the chain longer" if batches < FEWEST_BATCHES else ""
        values.append(chain.value)
        rows.append(chain.batch_psi)
        notes.append(
            f"chain {name!r}: autocorrelation time {chain.autocorrelation_time:.3g}, {batches} batches of "
            f"{chain.batch_length} draws{few}"
        )
    return Estimates(np.array(values), Psi(None, tuple(rows)), None, tuple(notes))


def _target(data: Data) -> Density:
    assert data.target is not None  # noqa: S101  (the kind of data was checked)
    return data.target


def _target_scores(name: str, x: Array, data: Data) -> Array:
    return scores_of(f"target at model {name!r}", _target(data), x)


@dataclass(frozen=True)
class ChainEstimate:
    """KSD² of one chain, its ψ averaged over batches, and how the batches were chosen."""

    value: float
    batch_psi: Array
    batch_length: int
    autocorrelation_time: float


def chain_ksd(x: Array, scores: Array, kernel: Kernel, runtime: Runtime) -> ChainEstimate:
    """KSD² from the pairs of draws (m, d) at least one batch length apart, with ψ as batch means.

    Near pairs depend on each other and would bias D; they are left out. The variance of the mean of a
    correlated series is that of its batch means, ``V = Σ_b ψ̄_b²/(B(B−1))`` over B batches of length L.
    """
    m, centre = len(x), centre_of(x)
    x, kernel = x - centre, kernel.moved(centre)
    sums = host(row_sums(x, [scores], kernel, runtime))[:, 0]
    tau = autocorrelation_time(sums)
    length = batch_length(m, tau)
    near = np.zeros(m)
    for lag in range(1, length):
        u = pair_values(kernel, (x[:-lag], scores[:-lag]), (x[lag:], scores[lag:]))[:, 0]
        near[:-lag] += u
        near[lag:] += u
    sums -= near
    # There are (m − L)(m − L + 1) ordered pairs with |a − b| ≥ L.
    g = sums * (m / ((m - length) * (m - length + 1)))
    batches = m // length
    psi = centred(g)[: batches * length].reshape(batches, length).mean(axis=1)
    return ChainEstimate(float(g.mean()), psi - psi.mean(), length, tau)


def batch_length(m: int, tau: float) -> int:
    """``L = ⌈m^{1/3} τ^{2/3}⌉``: the order that balances the bias and the variance of batch means."""
    return int(min(max(1, math.ceil(m ** (1 / 3) * tau ** (2 / 3))), max(1, m // 4)))


def autocorrelation_time(series: Array) -> float:
    """τ = 1 + 2Σρ_k of a stationary series (m,), the sum ended by Geyer's initial positive sequence rule.

    >>> white = np.random.default_rng(0).normal(size=4000)
    >>> 0.7 < autocorrelation_time(white) < 1.4
    True
    """
    centre = series - series.mean()
    m = len(centre)
    size = 1 << (2 * m - 1).bit_length()
    spectrum = np.fft.rfft(centre, size)
    covariance = np.fft.irfft(spectrum * spectrum.conj(), size)[:m]
    if covariance[0] <= 0.0:
        return 1.0
    rho = covariance / covariance[0]
    pairs = rho[: m // 2 * 2].reshape(-1, 2).sum(axis=1)
    negative = np.flatnonzero(pairs <= 0.0)
    end = int(negative[0]) if len(negative) else len(pairs)
    return max(1.0, float(2.0 * pairs[:end].sum() - 1.0))
