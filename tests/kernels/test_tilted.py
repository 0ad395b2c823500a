"""Tilted kernels: against the dense formulas, with every derivative of w(x) w(y) k(x, y) by finite differences."""

import numpy as np
import pytest
from oracle import dense
from refusals import refused

import relfit
from relfit.compute.reduce import Runtime
from relfit.estimators import mmd
from relfit.estimators.pairkernel import ROW_BY_ROW, PairKernel
from relfit.estimators.sums import KernelSums, kernel_sums
from relfit.kernels import kernel_from_dict
from relfit.kernels.composite import Decay, MultiScale, Tilted
from relfit.kernels.custom import Recorded
from relfit.kernels.standard import IMQ, Gaussian, Matern, Polynomial

RUNTIME = Runtime()
CENTRE = (0.3, -0.2)
DECAY = Decay(exponent=0.7, scale=1.3, centre=CENTRE)


def bell(x):
    return -0.1 * np.square(x).sum(axis=1)


KERNELS = {
    "gaussian": Tilted(Gaussian(1.1), DECAY),
    "imq": Tilted(IMQ(), DECAY),
    "matern32": Tilted(Matern(1.5, 1.2), DECAY),
    "matern52": Tilted(Matern(2.5, 1.4), DECAY),
    "sum": Tilted(Gaussian(0.8) + IMQ(2.0), Decay(0.5, 2.0, 0.0)),
    "functions": Tilted(MultiScale((0.5, 1.0), 1.2), (bell, lambda x: -0.2 * x)),
}


@pytest.fixture(params=KERNELS)
def kernel(request):
    return KERNELS[request.param]


def value(kernel, x, y):
    return float(kernel.pairs(x[None], y[None])[0])


def test_decay_by_hand():
    """x − c = (3, 4), s = 5, b = ½: w = (1 + 25/25)^−½ = 1/√2 and ∇ log w = −(3, 4)/(25 + 25)."""
    decay = Decay(0.5, 5.0, (1.0, 1.0))
    x = np.array([[4.0, 5.0]])
    assert decay.weights(x)[0] == pytest.approx(2**-0.5)
    np.testing.assert_allclose(decay.gradient(x), [[-0.06, -0.08]], rtol=1e-14)
    np.testing.assert_allclose(decay.moved(np.array([10.0, -3.0])).weights(x - [10.0, -3.0]), decay.weights(x))


def test_mmd_weights_the_rows(kernel, rng):
    """Against dense Gram matrices of w k w, in values, ψ rows and the sums of squares of the second-order part."""
    reference, samples = rng.normal(size=(15, 2)), [rng.normal(0.4, 1, (12, 2)), rng.normal(size=(20, 2))]
    table = _Table(kernel)
    values, psi_r, psi_x = dense.mmd(reference, samples, table)
    got = mmd.complete(reference, samples, kernel, "independent", RUNTIME)
    np.testing.assert_allclose(got.values, values, atol=1e-13)
    np.testing.assert_allclose(got.psi.reference, psi_r, atol=1e-12)
    for rows, expected in zip(got.psi.models, psi_x, strict=True):
        np.testing.assert_allclose(rows, expected, atol=1e-12)
    matrices = [(0, 0), (1, 1), (2, 2), (1, 0), (2, 0)]
    sums = kernel_sums(KernelSums(kernel, squares=True), (reference, *samples), matrices, RUNTIME)
    squares = [each.squares for each in sums]
    within = [np.square(_off_diagonal(table.gram(x, x))).sum() for x in (reference, *samples)]
    across = [np.square(table.gram(x, reference)).sum() for x in samples]
    np.testing.assert_allclose(squares, [*within, *across], rtol=1e-12)


def test_mmd_pairs_are_those_of_the_tilted_kernel(kernel, rng):
    r, x, r2, x2 = rng.normal(size=(4, 7, 2))
    got = mmd.pair_values(PairKernel(kernel), (r, x), (r2, x2), ROW_BY_ROW)[0]
    expected = [
        value(kernel, x[a], x2[a])
        + value(kernel, r[a], r2[a])
        - value(kernel, x[a], r2[a])
        - value(kernel, x2[a], r[a])
        for a in range(7)
    ]
    np.testing.assert_allclose(got, expected, rtol=1e-13, atol=1e-14)


class _Table:
    """The tilted kernel as the oracle takes kernels: through its Gram matrices."""

    variable = "pairs"

    def __init__(self, kernel):
        self.kernel = kernel

    def gram(self, x, y):
        return np.array([[value(self.kernel, a, b) for b in y] for a in x])


def _off_diagonal(matrix):
    return matrix - np.diag(np.diag(matrix))


def data(rng, n=60):
    reference = rng.standard_t(2.0, size=(n, 2))
    return reference, {name: rng.standard_t(2.0, size=(n, 2)) + shift for name, shift in (("a", 0.0), ("b", 1.0))}


def scored():
    return {name: relfit.Density(score=lambda x, m=m: m - x, dim=2) for name, m in (("a", 0.0), ("b", 1.0))}


@pytest.mark.parametrize("estimator", ["complete", "linear", "incomplete", "block"])
@pytest.mark.parametrize("kind", ["samples", "densities"])
def test_an_offset_of_the_data_moves_the_weight_along(estimator, kind, rng):
    """Data moved by 1e4 give the same answer with a "median" centre and scale, or with a fixed centre moved along."""
    reference, models = data(rng, 120)
    at = np.array([1e4, -2e4])
    moved = {k: x + at for k, x in models.items()}
    if kind == "densities":
        models = scored()
        moved = {k: relfit.Density(score=lambda x, m=m: m.score(x - at), dim=2) for k, m in models.items()}
    for first, second in (
        (Tilted(Gaussian()), Tilted(Gaussian())),
        (Tilted(IMQ(), Decay(0.5, 2.0, 0.0)), Tilted(IMQ(), Decay(0.5, 2.0, tuple(at)))),
    ):
        here = relfit.estimate(reference, models, kernel=first, rng=0, estimator=estimator)
        there = relfit.estimate(reference + at, moved, kernel=second, rng=0, estimator=estimator)
        np.testing.assert_allclose(there.values, here.values, rtol=1e-7, atol=1e-10)
        np.testing.assert_allclose(there.covariance, here.covariance, rtol=1e-6, atol=1e-12)


def test_dictionaries_and_words(rng):
    kernel = KERNELS["gaussian"]
    assert kernel_from_dict(kernel.to_dict()) == kernel
    assert kernel.describe() == "Gaussian kernel, bandwidth 1.1, tilted by (1 + r²/s²)^−0.7, s = 1.3, about (0.3, -0.2)"
    recorded = kernel_from_dict(KERNELS["functions"].to_dict())
    assert isinstance(recorded, Recorded)
    assert recorded.describe().endswith("tilted by a custom weight")
    reference, models = data(rng)
    for kernel in (Tilted(), KERNELS["functions"]):
        result = relfit.compare(reference, models, kernel=kernel, rng=0)
        again = relfit.Comparison.from_json(result.to_json())
        assert again.to_json() == result.to_json()
        assert "tilted by" in str(again)


def test_refusals(rng):
    reference, models = data(rng)
    refused(lambda: Tilted(Tilted()), "kernel of Tilted", "plain kernel")
    refused(lambda: Tilted() + Gaussian(), "cannot add", "tilt the sum")
    refused(lambda: Gaussian() + Tilted(), "cannot add", "tilt the sum")
    refused(lambda: Tilted(Gaussian(), 3.0), "weight of Tilted", "3.0")
    refused(lambda: Decay(-1.0), "exponent of Decay")
    refused(lambda: Decay(scale="mean"), "scale of Decay")
    refused(lambda: Decay(centre=[np.nan]), "centre of Decay")
    refused(lambda: Tilted().phi(np.zeros(1)), "plain kernel")
    wide = Tilted(Gaussian(), Decay(centre=(0.0, 0.0, 0.0)))
    refused(lambda: relfit.estimate(reference, models, kernel=wide), "centre of Decay", "2 columns", "got 3")
    refused(lambda: relfit.estimate(reference, scored(), kernel=Tilted(Gaussian(), bell)), "KSD needs")
    refused(lambda: relfit.estimate(reference, scored(), kernel=Tilted(Polynomial())), "KSD needs")
    short = Tilted(Gaussian(), lambda x: np.zeros(3))
    refused(lambda: relfit.estimate(reference, models, kernel=short), "log_weight of Tilted", "shape (60,)", "(3,)")
