import numpy as np
import pytest

from relfit.estimators import mmd
from relfit.estimators.pairkernel import STEP, Part
from relfit.kernels.composite import Decay, MultiScale, Tilted
from relfit.kernels.standard import IMQ, Gaussian, Matern, Polynomial

RADIAL = {
    "gaussian": Gaussian(1.5),
    "imq": IMQ(0.7),
    "matern": Matern(2.5, 1.2),
    "multiscale": MultiScale(bandwidth=1.0),
    "sum": Gaussian(0.8) + IMQ(2.0),
    "tilted gaussian": Tilted(Gaussian(1.5), Decay(scale=1.0, centre=0.3)),
    "tilted imq": Tilted(IMQ(), Decay(scale=1.0, centre=0.3)),
}
KERNELS = {**RADIAL, "polynomial": Polynomial(scale=1 / 3)}
# A part that is a whole number of steps, one that is not, one shorter than a step, and one with many lags.
PARTS = [Part(0, 2 * STEP, 5), Part(3, 2 * STEP + 6, 1), Part(7, 7 + STEP - 3, 4), Part(2, 11, 20)]


def pairs_of(part):
    a, r = np.meshgrid(np.arange(part.first, part.last), np.arange(1, part.lags + 1), indexing="ij")
    return a.ravel(), (a + r).ravel()


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("part", PARTS)
def test_mmd_bands_are_the_values_of_the_pairs(name, part, rng):
    window = [rng.normal(0.2 * k, 1, (40, 3)) for k in range(3)]
    a, b = pairs_of(part)
    got = mmd.mmd_band_values(KERNELS[name], window)(part)
    expected = mmd.pair_values(KERNELS[name], [x[a] for x in window], [x[b] for x in window])
    np.testing.assert_allclose(got.reshape(2, -1).T, expected, atol=1e-13 * np.abs(expected).max())


@pytest.mark.parametrize("kernel", [Gaussian(1.0), IMQ()], ids=["gaussian", "imq"])
def test_rows_far_out_keep_their_digits(kernel, rng):
    """Rows 1e5 lengths from the centre, neighbours 1 apart: products of them would lose r² altogether."""
    x = 1e5 + np.arange(12.0)[:, None] + 0.1 * rng.normal(size=(12, 1))
    part = Part(0, 8, 3)
    a, b = pairs_of(part)
    got = mmd.mmd_band_values(kernel, [x, x + 0.5])(part).ravel()
    expected = mmd.pair_values(kernel, (x[a], x[a] + 0.5), (x[b], x[b] + 0.5))[:, 0]
    np.testing.assert_allclose(got, expected, atol=1e-14)
