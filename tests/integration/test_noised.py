"""Score networks s(x, σ) compared over noise levels."""

import numpy as np
import pytest
from refusals import refused

from relfit.api import compare_noised
from relfit.data.models import at_level


def smoothed(mean):
    """The score of N(mean, I) with noise of standard deviation σ added: (mean − x)/(1 + σ²)."""
    return lambda x, sigma: (mean - x) / (1.0 + sigma**2)


@pytest.fixture
def x(rng):
    return rng.normal(size=(300, 2))


def test_the_network_of_the_data_is_best_at_every_level(x):
    result = compare_noised(x, {"off": smoothed(1.0), "right": smoothed(0.0)}, [0.1, 0.5, 2.0], rng=0)
    assert result.overall.best == "right"
    assert result.overall.worse.tolist() == [True, False]
    assert result.overall.measure == "ksd"
    assert result.levels == (0.1, 0.5, 2.0)
    assert [level.best for level in result.by_level] == ["right"] * 3
    assert "noise levels 0.1, 0.5, 2" in str(result)
    networks = {"a": smoothed(1.0), "b": smoothed(0.0)}
    for levels in ([], [0.0], [-1.0], [np.nan], ["a"], None, [[1.0]]):
        refused(lambda levels=levels: compare_noised(x, networks, levels), "levels: expected noise levels above 0")
    refused(lambda: compare_noised(x, {"a": smoothed(0.0)}, [1.0]), "networks: expected a mapping of at least two")
    refused(lambda: compare_noised(x, {**networks, "c": 3}, [1.0]), "network 'c': expected a score network")
    refused(lambda: compare_noised(x, {**networks, "c": networks["a"]}, [1.0]), "equal scores; leave one out")
    refused(lambda: compare_noised(x, {**networks, "c": lambda x, s: x[0]}, [1.0]), "model 'c': score: expected shape")


def test_a_torch_network_gets_tensors_in_its_own_precision(x):
    torch = pytest.importorskip("torch", reason="torch is not installed")

    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.tensor(1.0))

        def forward(self, rows, sigma):
            assert rows.dtype == sigma.dtype == torch.float32
            assert sigma.shape == (len(rows),)
            return -rows / (self.scale**2 + sigma[:, None] ** 2)

    np.testing.assert_allclose(at_level(Network(), 2.0).scores(x), -x / 5.0, rtol=1e-5)
