"""Squared kernel Stein discrepancy: of several densities to one reference, all from one pass
over the kernel, and of samples or Markov chains to a target density. `pairkernel` has the
Stein kernel.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg import block_diag

from relfit.compute.reduce import Runtime
from relfit.data.load import Data
from relfit.data.models import Density, scores_of, stored_scores
from relfit.estimators import base, group_moments
from relfit.estimators.base import (
    Dependence,
    Estimates,
    EstimateSettings,
    Estimator,
    PairSource,
    SecondOrderMoments,
    as_jackknife,
    ratio,
    samples_of,
    second_order,
    split_half_discrepancy,
)
from relfit.estimators.groups import row_orders
from relfit.estimators.kernel import centre_of, shifted
from relfit.estimators.pairkernel import ROW_BY_ROW, Layout, PairKernel, SteinTerms
from relfit.estimators.sums import (
    KernelSums,
    Members,
    between_group_sums,
    kernel_sums,
    summed_by_group,
)
from relfit.kernels.base import Kernel
from relfit.stats.joint import Psi, centred
from relfit.util.arrays import Array, Rows, host, parts
from relfit.util.errors import InputError

# Beyond this size, fourth powers of the numbers leave float64.
LARGEST = 1e50
# With fewer batches of a chain, their means are too few for a normal approximation.
FEWEST_BATCHES = 20
# Numbers of a block of derivatives of a kernel that is a function.
_BLOCK_NUMBERS = 2**21


def complete(
    x: Any,
    scores: Sequence[Any],
    kernel: Kernel,
    runtime: Runtime,
    seed: int,
    *,
    members: Members = None,
    kept: dict[bytes, SteinTerms] | None = None,
) -> Estimates:
    """KSD² of each model, scores (n, d) at the reference rows x (n, d), with ψ rows.

    ``g_i(x_a) = Σ_{b≠a} u_i(x_a,x_b)/(n−1)``, D_i = mean g_i and ψ = 2(g − ḡ)·(n−1)/(n−2):
    the factor makes ψᵀψ/(n(n−1)) the jackknife covariance, which the plain projection falls
    short of by ((n−2)/(n−1))². With `members`, pairs within a group are left out, and groups
    take the place of rows in ψ. The second-order part comes from random pairs of rows. The
    yardstick is that of the model with the smallest KSD²: each has a Stein kernel of its
    own, and this one is closest to that of the data. Terms of the random pairs are `kept`
    for other kernels.
    """
    n = len(x)
    rows = SteinRows(x, scores, kernel)
    sums = row_sums(x, scores, rows.kernel, runtime, centre=rows.centre)
    apart = between_group_sums(sums, rows.pair_values, members)
    values = apart.mean
    near = (sums - apart.sums).sum(axis=0) + sum(part.sum(axis=0) for part in rows.diagonal())
    best = int(np.argmin(values))
    yardstick = split_half_discrepancy(
        float(near[best]), n**2 - float(apart.counts.sum()), float(values[best]), n
    )
    psi = as_jackknife(Psi(centred(summed_by_group(apart.projection(), members))))
    estimates = Estimates(values, psi, yardstick=yardstick)
    return estimates if members is not None else rows.with_second_order(estimates, seed, kept)


def row_sums(
    x: Any,
    scores: Sequence[Any],
    kernel: Kernel,
    runtime: Runtime,
    *,
    centre: Array | float = 0.0,
) -> Array:
    """Σ_{b≠a} u_i(x_a, x_b) for every row and model (n, l); the kernel is that of rows with
    the `centre` subtracted.
    """
    if kernel.by_blocks:
        return _sums_by_blocks(x, scores, kernel, runtime, centre)
    reduction = KernelSums(kernel, centre, len(scores))
    return kernel_sums(reduction, (x, *scores), [(0, 0)], runtime)[0].rows


def _sums_by_blocks(
    x: Array, scores: Sequence[Array], kernel: Kernel, runtime: Runtime, centre: Array | float
) -> Array:
    """The row sums of a kernel whose derivatives are known for blocks of rows only."""
    stein = PairKernel(kernel)
    rows = [shifted(x, centre), *scores]
    size = max(1, _BLOCK_NUMBERS // rows[0].size)
    sums = np.empty((len(x), len(scores)))
    for start in range(0, len(x), size):
        part = slice(start, start + size)
        for i, values in enumerate(stein.stein([each[part] for each in rows], rows)):
            sums[part, i] = values.sum(axis=1) - values.diagonal(start)
        if runtime.progress is not None:
            runtime.progress(min(start + size, len(x)), len(x))
    return sums


class SteinRows:
    """Rows x (n, d) with each model's scores at them, and the kernel for rows with the
    `centre` subtracted.
    """

    def __init__(self, x: Any, scores: Sequence[Any], kernel: Kernel) -> None:
        self.x = x
        self.scores = scores
        self.centre = centre_of(x)
        self.kernel = kernel.moved(self.centre)
        self.stein = PairKernel(self.kernel)

    def at(self, rows: Rows | slice) -> list[Array]:
        """Some rows, shifted, and the scores at them, on the host."""
        return [shifted(host(self.x[rows]), self.centre), *(host(s[rows]) for s in self.scores)]

    def pair_values(self, a: Rows, b: Rows) -> Array:
        """u_i of pairs of rows: (m, l)."""
        return self.stein.stein_pairs(self.at(a), self.at(b))

    def matrices(self, rows: Rows) -> list[Array]:
        """u_i of all pairs of some rows, a matrix for each model."""
        same = self.at(rows)
        return self.stein.stein(same, same)

    def diagonal(self) -> Iterator[Array]:
        """u_i(x_a, x_a), (·, l), a part of the rows at a time."""
        for part in parts(self.x.shape):
            same = self.at(part)
            yield self.stein.stein_pairs(same, same)

    def with_second_order(
        self, estimates: Estimates, seed: int, kept: dict[bytes, SteinTerms] | None = None
    ) -> Estimates:
        """The estimates with the second-order part, from random pairs of rows."""

        def values(a: Rows, b: Rows) -> Array:
            if kept is None:
                return self.pair_values(a, b)
            key = a.tobytes() + b.tobytes()
            if key not in kept:
                terms = self.stein.stein_terms(self.at(a), self.at(b), ROW_BY_ROW)
                kept[key] = terms._replace(models=list(terms.models))
            return np.stack(self.stein.stein_of(kept[key]), axis=1)

        psi = estimates.psi.reference
        assert psi is not None  # noqa: S101  (its rows are the reference's)
        width = self.x.shape[1] * (1 + len(self.scores))
        plain, quadratic = second_order(values, width, seed, psi, estimates.values)
        return replace(estimates, second_order=plain, quadratic=quadratic)


class SteinKind(base.Kind):
    """Densities compared with samples by KSD²: several with one sample, or one with several."""

    smooth = True
    largest = LARGEST

    def densities(self, data: Data, key: str | None) -> Mapping[str, Density]:
        """Those whose scores are taken at this sample, by the names in error messages."""
        if data.target is None:
            return data.densities
        return {f"target at model {key!r}": data.target}

    def sources(
        self, data: Data, settings: EstimateSettings, *, in_order: bool = False
    ) -> list[PairSource]:
        orders = row_orders(
            data, settings.dependence, settings.seed, "pairs", in_order=in_order
        )

        def source(key: str | None, sample: Array) -> PairSource:
            centre = centre_of(sample)
            kernel = PairKernel(settings.kernel.moved(centre))
            densities = self.densities(data, key)

            def fetch(rows: Rows) -> list[Array]:
                x = sample[orders[key][rows]]
                scores = [scores_of(name, density, x) for name, density in densities.items()]
                return [x - centre, *scores]

            n, d = sample.shape
            models = len(densities)

            def values(
                first: Sequence[Array], second: Sequence[Array], layout: Layout
            ) -> Array:
                return np.stack(kernel.stein(first, second, layout))

            return PairSource(n, models, fetch, values, d * (1 + models))

        return [source(key, sample) for key, sample in samples_of(data).items()]

    def samples(
        self, data: Data, settings: EstimateSettings
    ) -> Iterator[tuple[str | None, Array, list[Array]]]:
        """The key, the rows and the scores of every sample in turn; scores are in memory, or
        in a file where memory is bounded.
        """
        for key, x in samples_of(data).items():
            densities = self.densities(data, key).items()
            yield key, x, [all_scores(*each, x, settings.folder) for each in densities]

    def complete(self, data: Data, settings: EstimateSettings) -> Estimates:
        # The seed gives the same pairs for all models of a size: rows from common random
        # numbers stay together.
        each = []
        for key, x, scores in self.samples(data, settings):
            estimates = complete(
                x,
                scores,
                settings.kernel,
                settings.runtime,
                settings.seed,
                members=settings.members(key),
                kept=settings.kept_of(key),
            )
            # What samples from common random numbers share is in the ψ rows only.
            if settings.groups is not None and settings.dependence == "independent":
                rows = SteinRows(x, scores, settings.kernel)
                moments = group_moments.of_sample(
                    rows.matrices, settings.groups, key, settings.seed
                )
                estimates = replace(estimates, quadratic=moments)
            each.append(estimates)
        return self.of_samples(data, settings, each)

    def right_hand_sides(self, data: Data) -> int:
        return (1 + int(data.reference.shape[1])) * (1 + len(self.densities(data, None)))


class Densities(SteinKind):
    """Densities compared with a reference sample, by KSD²."""

    words = "densities as models"
    discrepancies = ("ksd", "fssd")

    def check(
        self, data: Data, estimator: Estimator, dependence: Dependence, *, grouped: bool
    ) -> None:
        if dependence != "independent":
            raise InputError(
                f"dependence={dependence!r}: describes samples of the models; densities have "
                f'none, use "independent"'
            )
        check_continuous("reference", data.reference)


def all_scores(name: str, density: Density, x: Array, folder: Path | None) -> Array:
    """The scores at all rows: in memory, or in a file where memory is bounded."""
    if folder is None:
        return scores_of(name, density, x)
    return stored_scores(name, density, x, folder)


def check_continuous(argument: str, rows: Array) -> None:
    """Refuse data that are not continuous, or whose fourth powers do not fit into float64."""
    largest = 0.0
    whole = True
    for part in parts(rows.shape):
        chunk = rows[part]
        largest = max(largest, -float(chunk.min()), float(chunk.max()))
        whole = whole and np.array_equal(chunk, np.round(chunk))
    # From 2⁵² on every float64 is a whole number.
    if largest < 2.0**52 and whole:
        raise InputError(
            f"{argument}: expected continuous data for KSD, got whole numbers only; use "
            f"samples of the models and MMD"
        )
    if largest > LARGEST:
        raise InputError(
            f"{argument}: expected numbers below {LARGEST:g} in size for KSD, got "
            f"{largest:g}; rescale the data"
        )


class Target(SteinKind):
    """Samples compared with a target density, by KSD²: which sampler or approximation is
    closest to it?
    """

    words = "a density as the reference"
    discrepancies = ("ksd",)

    def check(
        self, data: Data, estimator: Estimator, dependence: Dependence, *, grouped: bool
    ) -> None:
        if dependence == "paired":
            raise InputError(
                'dependence="paired": pairs models with reference rows, but the '
                "reference is a density"
            )
        if dependence == "chain" and not estimator.every_pair:
            raise InputError(
                f'dependence="chain": expected estimator="complete", got {estimator.name!r}'
            )
        for name, x in data.samples.items():
            check_continuous(f"model {name!r}", x)
        self.check_shared({len(x) for x in data.samples.values()}, dependence, grouped=grouped)

    def sources(
        self, data: Data, settings: EstimateSettings, *, in_order: bool = False
    ) -> list[PairSource]:
        each = super().sources(data, settings, in_order=in_order)
        if settings.dependence != "shared":
            return each
        # The rows and the target's scores at them, of each model.
        both = [(source, slice(2 * i, 2 * i + 2)) for i, source in enumerate(each)]

        def fetch(rows: Rows) -> list[Array]:
            return [array for source in each for array in source.fetch(rows)]

        def values(first: Sequence[Array], second: Sequence[Array], layout: Layout) -> Array:
            return np.concatenate(
                [source.values(first[k], second[k], layout) for source, k in both]
            )

        width = sum(source.width for source in each)
        return [PairSource(each[0].rows, len(each), fetch, values, width)]

    def joined(self, each: Sequence[Estimates], *, shared: bool) -> Estimates:
        return side_by_side(each, shared=shared)

    def complete(self, data: Data, settings: EstimateSettings) -> Estimates:
        if settings.dependence == "chain":
            return _chains(self.samples(data, settings), settings)
        return super().complete(data, settings)

    def of_samples(
        self, data: Data, settings: EstimateSettings, each: Sequence[Estimates]
    ) -> Estimates:
        """The same, with the second-order part of samples from common random numbers."""
        estimates = super().of_samples(data, settings, each)
        if settings.dependence != "shared" or settings.groups is not None:
            return estimates
        (source,) = self.sources(data, settings, in_order=True)
        rows = np.stack(estimates.psi.models, axis=1)
        _, quadratic = second_order(
            source.values_between, source.width, settings.seed, rows, estimates.values
        )
        return replace(estimates, quadratic=quadratic)

    def models_together(self, data: Data, dependence: Dependence) -> int:
        return len(data.models) if dependence == "shared" else 1

    def width(self, data: Data, dependence: Dependence) -> int:
        return 2 * int(data.reference.shape[1]) * self.models_together(data, dependence)


def side_by_side(each: Sequence[Estimates], *, shared: bool) -> Estimates:
    """Estimates of different models as one; only the ψ rows can express what the models have
    in common.

    There are no data to halve, so there is no yardstick.
    """
    rows = tuple(
        column for e in each if e.psi.reference is not None for column in e.psi.reference.T
    )
    second = [e.second_order for e in each if e.second_order is not None]
    covariances = [e.covariance for e in each if e.covariance is not None]
    parts = [e.quadratic for e in each if e.quadratic is not None]
    together = None
    if parts:
        components = float(np.mean([part.components**-0.5 for part in parts])) ** -2.0
        trace = np.concatenate([part.trace for part in parts])
        together = SecondOrderMoments(
            block_diag(*(part.covariance for part in parts)), trace, components
        )
    psi = Psi(None, rows, shared=shared)
    covariance = block_diag(*covariances) if covariances else None
    if shared and covariance is not None and len(covariances) > 1:
        # What the models have in common is that of the ψ rows; the rest of each variance is the
        # model's own.
        plain = psi.covariance()
        variances = np.diag(covariance)
        limits = np.minimum(np.diag(plain), variances)
        scale = np.sqrt(ratio(limits, np.diag(plain)))
        covariance = np.outer(scale, scale) * plain + np.diag(variances - limits)
    values = np.concatenate([e.values for e in each])
    second_order = block_diag(*second) if second else None
    return Estimates(values, psi, second_order, each[0].notes, covariance, quadratic=together)


def _chains(
    samples: Iterable[tuple[str | None, Array, list[Array]]], settings: EstimateSettings
) -> Estimates:
    values = []
    rows = []
    notes = []
    for name, x, scores in samples:
        chain = chain_ksd(x, scores[0], settings.kernel, settings.runtime)
        batches = len(chain.batch_psi)
        few = (
            "; too few for a reliable standard error, run the chain longer"
            if batches < FEWEST_BATCHES
            else ""
        )
        values.append(chain.value)
        rows.append(chain.batch_psi)
        notes.append(
            f"chain {name!r}: autocorrelation time {chain.autocorrelation_time:.3g}, "
            f"{batches} batches of {chain.batch_length} draws{few}"
        )
    return Estimates(np.array(values), Psi(None, tuple(rows)), None, tuple(notes))


@dataclass(frozen=True)
class ChainEstimate:
    """KSD² of one chain, its ψ averaged over batches, and how the batches were chosen."""

    value: float
    batch_psi: Array
    batch_length: int
    autocorrelation_time: float


def chain_ksd(x: Array, scores: Array, kernel: Kernel, runtime: Runtime) -> ChainEstimate:
    """KSD² from the pairs of draws (m, d) at least one batch length apart, with ψ as batch
    means.

    Near pairs depend on each other and would bias D; they are left out. The variance of the
    mean of a correlated series is that of its batch means, ``V = Σ_b ψ̄_b²/(B(B−1))`` over B
    batches of length L.
    """
    m = len(x)
    rows = SteinRows(x, [scores], kernel)
    sums = row_sums(x, [scores], rows.kernel, runtime, centre=rows.centre)[:, 0]
    tau = autocorrelation_time(sums)
    length = batch_length(m, tau)
    near = np.zeros(m)
    for lag in range(1, length):
        u = rows.stein.stein_pairs(rows.at(slice(m - lag)), rows.at(slice(lag, None)))[:, 0]
        near[:-lag] += u
        near[lag:] += u
    sums -= near
    # There are (m − L)(m − L + 1) ordered pairs with |a − b| ≥ L.
    g = sums * (m / ((m - length) * (m - length + 1)))
    batches = m // length
    psi = centred(g)[: batches * length].reshape(batches, length).mean(axis=1)
    return ChainEstimate(float(g.mean()), psi - psi.mean(), length, tau)


def batch_length(m: int, tau: float) -> int:
    """``L = ⌈m^{1/3} τ^{2/3}⌉``: the order that balances the bias and the variance of batch
    means.
    """
    return int(min(max(1, math.ceil(m ** (1 / 3) * tau ** (2 / 3))), max(1, m // 4)))


def autocorrelation_time(series: Array) -> float:
    """τ = 1 + 2Σρ_k of a stationary series (m,), the sum ended by Geyer's initial positive
    sequence rule.

    >>> white = np.random.default_rng(0).normal(size=4000)
    >>> 0.7 < autocorrelation_time(white) < 1.4
    True
    """
    centre = series - series.mean()
    m = len(series)
    size = 1 << (2 * m - 1).bit_length()
    spectrum = np.fft.rfft(centre, size)
    covariance = np.fft.irfft(spectrum * spectrum.conj(), size)[:m]
    if covariance[0] <= 0.0:
        return 1.0
    pairs = (covariance / covariance[0])[: m // 2 * 2].reshape(-1, 2).sum(axis=1)
    end = int(np.argmax(np.append(pairs, 0.0) <= 0.0))
    return max(1.0, float(2.0 * pairs[:end].sum() - 1.0))
