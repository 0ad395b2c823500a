"""Normalised densities compared by KSD because nobody chose (D13)."""

import numpy as np
import pytest
from scipy import stats

import relfit
from relfit import Density

LOGLIK = 'discrepancy="loglik"'


@pytest.fixture
def x(rng):
    return rng.normal(size=(200, 1))


def about(result):
    return [note for note in result.warnings if LOGLIK in note]


def test_undecided_normalised_densities_get_one_note(x, rng):
    """D13: at 56062bd KSD is used without a word where the log-likelihood decides."""
    result = relfit.compare(x, {"normal": stats.norm(), "near": stats.norm(0.02)}, rng=0)
    assert result.measure == "ksd"
    (note,) = about(result)
    assert note.startswith("all densities are normalised")
    # Weights of separated modes have a note of their own, which names the log-likelihood too.
    mixture = pytest.importorskip("sklearn.mixture")
    x = rng.normal(size=(400, 1)) + np.repeat([[-8.0], [8.0]], 200, axis=0)
    fitted = mixture.GaussianMixture(2, random_state=0).fit(x)
    other = mixture.GaussianMixture(2, random_state=0).fit(x)
    other.weights_ = np.array([0.3, 0.7])
    assert len(about(relfit.compare(x, {"fitted": fitted, "other": other}, rng=0))) == 1


def test_no_note_where_it_does_not_help(x, rng):
    near = {"normal": stats.norm(), "near": stats.norm(0.02)}
    unnormalised = {"a": Density(score=lambda x: -x), "b": stats.norm(0.02)}
    samples = {"a": rng.normal(size=(200, 1)), "b": rng.normal(size=(200, 1))}
    assert about(relfit.compare(x, near, discrepancy="ksd", rng=0)) == []
    assert about(relfit.compare(x, near, discrepancy=["ksd", "loglik"], rng=0)) == []
    assert about(relfit.compare(x, near, discrepancy="mmd", rng=0)) == []
    assert about(relfit.compare(x, unnormalised, rng=0)) == []
    assert about(relfit.compare(x, samples, rng=0)) == []
    assert about(relfit.compare(stats.norm(), samples, rng=0)) == []
    decided = relfit.compare(x, {"normal": stats.norm(), "far": stats.norm(3.0)}, rng=0)
    assert decided.worse.any()
    assert about(decided) == []
