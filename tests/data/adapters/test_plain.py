"""Objects with log_prob, bare functions, arrays; and that recognising imports nothing."""

import sys

import numpy as np
import pytest

from relfit.api import compare
from relfit.data.adapters import adapt
from relfit.data.models import Density


class Cubic:
    def log_prob(self, x):
        assert isinstance(x, np.ndarray)
        return -0.25 * np.sum(x**4, axis=1)


class Generic:
    def log_prob(self, x):
        return -0.25 * (x**4).sum(-1)


def test_an_object_that_works_on_numpy_arrays_only_is_differentiated_numerically_and_said(rng):
    x = rng.normal(size=(50, 2))
    density = adapt(Cubic(), 2)
    assert density.by_finite_differences
    np.testing.assert_allclose(density.scores(x), -(x**3), rtol=1e-8, atol=1e-10)
    x = rng.normal(size=(100, 2))
    models = {
        "score": Density(score=lambda x: -x),
        "log_prob": Density(log_prob=lambda x: -0.5 * ((x - 1) ** 2).sum(1)),
    }
    (note,) = (note for note in compare(x, models, rng=0).warnings if "finite differences" in note)
    assert note.startswith("'log_prob': scores by finite differences of log_prob, off by about ")
    assert float(note.split("about ")[1].split()[0]) < 1e-9


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_an_object_that_works_on_any_array_is_differentiated_exactly(rng, library, monkeypatch):
    pytest.importorskip(library, reason=f"{library} is not installed")
    for other in {"torch", "jax"} - {library}:
        monkeypatch.delitem(sys.modules, other, raising=False)
    x = rng.normal(size=(50, 2))
    density = adapt(Generic(), 2)
    assert density.autodiff == library
    np.testing.assert_allclose(density.scores(x), -(x**3), rtol=1e-13)
