"""The torch backend against dense arithmetic and against NumPy, tile edges and hard data included."""

import numpy as np
import pytest
from oracle.products import products

from relfit.api import estimate
from relfit.compute.backend import NumpyBackend
from relfit.data.models import Density
from relfit.kernels.composite import MultiScale
from relfit.kernels.standard import IMQ, Gaussian
from relfit.settings import Compute

torch = pytest.importorskip("torch")

from relfit.compute import torch_backend  # noqa: E402
from relfit.compute.torch_backend import TorchBackend  # noqa: E402


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    monkeypatch.setattr(torch_backend, "TILE", 64)


def test_single_precision_does_not_use_tf32(monkeypatch):
    seen = []
    add_up = torch_backend.add_up_tiles
    monkeypatch.setattr(
        torch_backend, "add_up_tiles", lambda *a: seen.append(torch.get_float32_matmul_precision()) or add_up(*a)
    )
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        products(TorchBackend(precision="single"), Gaussian(1.0), np.zeros((3, 1)))
        assert seen == ["highest"]
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("kernel", [Gaussian(1.3), IMQ(1.1), MultiScale((0.5, 2.0), 1.0)], ids=["g", "imq", "multi"])
def test_ksd_and_mmd_agree_with_numpy(kernel, rng):
    x = rng.normal(size=(150, 3))
    densities = {"a": Density(score=lambda x: -x), "b": Density(score=lambda x: 0.3 - x)}
    samples = {"a": rng.normal(size=(90, 3)), "b": rng.normal(0.4, 1, size=(170, 3))}
    for models in (densities, samples):
        plain, other = (
            estimate(x, models, kernel=kernel, rng=0, compute=Compute(backend=name)) for name in ("numpy", "torch")
        )
        np.testing.assert_allclose(other.values, plain.values, atol=1e-12)
        np.testing.assert_allclose(other.covariance, plain.covariance, rtol=1e-9)
        np.testing.assert_allclose(other.near_degeneracy, plain.near_degeneracy, rtol=1e-8)


def test_a_whole_matrix_is_one_block_and_tiles_bound_the_memory(monkeypatch, rng):
    """n = 3000 would need 72 MB for the matrix; every tile that is made is at most 64 × 64."""
    largest = []
    weights = torch_backend._Operands.weights
    monkeypatch.setattr(
        torch_backend._Operands,
        "weights",
        lambda self, i, j: largest.append(max(i.stop - i.start, j.stop - j.start)) or weights(self, i, j),
    )
    x = rng.normal(size=(3000, 2))
    got = products(TorchBackend(), Gaussian(1.0), x, columns=0)[0]
    plain = products(NumpyBackend(), Gaussian(1.0), x, columns=0)[0]
    assert max(largest) == 64
    np.testing.assert_allclose(got.rows["phi"], plain.rows["phi"], rtol=1e-12)
