"""Rows that arrive in batches give the answer of the same rows in one array."""

from __future__ import annotations

import numpy as np
import pytest
from refusals import refused

import relfit

RNG = np.random.default_rng(0)
DATA, A, B = (RNG.normal(shift, 1.0, (100, 3)) for shift in (0.0, 0.0, 0.4))


def parts(rows):
    return (rows[k : k + 33] for k in range(0, len(rows), 33))


def whole():
    return relfit.compare(DATA, {"a": A, "b": B}, rng=0)


def test_generators_of_batches():
    result = relfit.compare(parts(DATA), {"a": parts(A), "b": iter(list(parts(B)))}, rng=0)
    assert np.array_equal(result.estimates, whole().estimates)
    assert result.warnings == whole().warnings


def test_loaders_and_data_sets_of_torch():
    torch = pytest.importorskip("torch")
    from torch.utils.data import DataLoader, TensorDataset

    labelled = TensorDataset(torch.tensor(B), torch.zeros(len(B)))
    loaders = {"a": TensorDataset(torch.tensor(A)), "b": DataLoader(labelled, batch_size=33)}
    result = relfit.compare(DataLoader(torch.tensor(DATA), batch_size=7), loaders, rng=0)
    assert np.array_equal(result.estimates, whole().estimates)
    assert "model 'b': the first of the 2 parts of each item was taken as its row" in result.warnings


def test_what_is_used_up_or_has_no_rows():
    used = parts(A)
    list(used)
    refused(lambda: relfit.compare(DATA, {"a": used, "b": B}), "model 'a': expected rows, but generator yields none")
    refused(lambda: relfit.compare(iter([1.0, 2.0]), {"a": A, "b": B}), "reference: expected batches of rows", "single")
    unlike = iter([np.ones((2, 3)), np.ones((2, 4))])
    refused(lambda: relfit.compare(unlike, {"a": A, "b": B}), "got batches of unlike shapes")


@pytest.mark.parametrize(
    ("call", "parts"),
    [
        (lambda: relfit.compare(DATA, [A, B], bandwidth=2.0), ("kernel=relfit.Gaussian(bandwidth=...)",)),
        (lambda: relfit.compare(DATA, [A, B], seed=2), ("seed: is called rng",)),
        (lambda: relfit.compare(DATA, [A, B], kernel="RBF"), ("got 'RBF'; here it is called gaussian",)),
        (lambda: relfit.compare("https://example.org/x.npy", [A, B]), ("download the file first",)),
    ],
)
def test_first_mistakes_are_told_the_right_call(call, parts):
    refused(call, *parts)


def test_models_one_after_the_other_are_told_the_right_call():
    with pytest.raises(TypeError, match=r'write relfit\.compare\(reference, {"a": a, "b": b}\)'):
        relfit.compare(DATA, A, B)


def test_a_folder_of_images_is_told_about_features(tmp_path):
    refused(lambda: relfit.compare(tmp_path, [A, B]), "got a folder with nothing in it; relfit features")


def test_a_model_that_was_not_fitted():
    mixture = pytest.importorskip("sklearn.mixture").GaussianMixture
    fitted = mixture(2, random_state=0).fit(DATA)
    refused(
        lambda: relfit.compare(DATA, {"x": mixture(2), "y": fitted}), "model 'x': GaussianMixture", "call fit first"
    )
