"""Draws of Bayesian models as ArviZ holds them (D34): stand-ins for its types, and itself where it is installed."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from refusals import refused

import relfit


class DataArray:
    """What relfit uses of xarray's."""

    def __init__(self, values, dims, name=None):
        self.values, self.dims, self.name = np.asarray(values), dims, name

    def transpose(self, *order):
        rest = [dim for dim in self.dims if dim not in order]
        dims = (*order[:-1], *rest)
        return DataArray(self.values.transpose([self.dims.index(dim) for dim in dims]), dims)

    def to_numpy(self):
        return self.values

    def to_dataset(self, name):
        return Dataset({name: self})


class Dataset:
    def __init__(self, data_vars):
        self.data_vars = data_vars


class InferenceData:
    def __init__(self, **groups):
        vars(self).update(groups)


def posterior(rng, names=("mu", "theta")):
    """4 chains of 30 draws: mu is a number, theta has two entries, and its dimensions are in another order."""
    rows = rng.normal(size=(4, 30, 3))
    held = {
        "mu": DataArray(rows[..., 0], ("chain", "draw")),
        "theta": DataArray(rows[..., 1:].transpose(2, 1, 0), ("theta_dim_0", "draw", "chain")),
    }
    return Dataset({name: held[name] for name in names}), rows.reshape(120, 3)


@pytest.mark.parametrize("whole", [False, True])
def test_posteriors_are_draws(rng, whole):
    """`idata` was refused: "expected dimension 1 like the data, got 2"."""
    held, rows = zip(*(posterior(rng) for _ in "ab"), strict=True)
    models = [InferenceData(posterior=each) if whole else each for each in held]
    target = relfit.Density(lambda x: -x, dim=3)
    result = relfit.compare(target, dict(zip("ab", models, strict=True)), rng=0)
    expected = relfit.compare(target, dict(zip("ab", rows, strict=True)), rng=0)
    np.testing.assert_array_equal(result.estimates, expected.estimates)
    assert result.warnings[0] == (
        "the rows of a and b are posterior draws with the columns mu, theta[0] and theta[1], in this order; the "
        "reference must have the same columns, on the same scale"
    )


def test_variables_are_matched_by_name_and_posteriors_that_are_none_refused(rng):
    (first, x), (second, y), (third, z) = posterior(rng), posterior(rng, ("theta", "mu")), posterior(rng)
    result = relfit.compare(first, {"a": second, "b": third}, rng=0)
    expected = relfit.compare(x, {"a": y, "b": z}, rng=0)
    np.testing.assert_array_equal(result.estimates, expected.estimates)
    assert result.warnings == expected.warnings
    held, rows = posterior(rng)
    text = Dataset({"mu": DataArray(np.full((4, 30), "x"), ("chain", "draw"))})
    models = {"a": rows, "b": rows + 1.0}
    without = InferenceData(log_likelihood=1)
    refused(lambda: relfit.compare(without, models), "reference: expected a group 'posterior', got InferenceData")
    refused(lambda: relfit.compare(text, models), "reference: expected numbers in 'mu', got dtype")
    refused(lambda: relfit.compare(Dataset({}), models), "reference: expected variables in the posterior, got none")
    plain = Dataset({"mu": DataArray(np.ones(30), ("draw",))})
    refused(lambda: relfit.compare(plain, models), "expected the dimensions 'chain' and 'draw' of 'mu', got 'draw'")
    few = posterior(rng, ("mu",))[0]
    said = "model 'b': expected the variables of model 'a' (mu, theta[0] and theta[1]), got mu; select them"
    refused(lambda: relfit.compare(rows, {"a": held, "b": few}), said)


def test_posteriors_are_no_scores(rng):
    """The groups were taken for columns of text."""
    data = InferenceData(log_likelihood=1, posterior=posterior(rng)[0])
    for losses, where in ((data, "losses"), ({"a": data, "b": data}, "losses['a']")):
        line = refused(lambda losses=losses: relfit.compare_losses(losses, higher_is_better=True))
        assert line.startswith(f"{where}: expected scores, got InferenceData; PSIS-LOO gives scores of Bayesian models")
        assert line.endswith('use relfit.decide(relfit.from_elpd({"name": data, ...}))')


def test_loo_of_arviz_is_enough(rng, monkeypatch):
    """D34: arviz 0.23 has `loo`, and from_elpd asked for arviz_stats."""
    elpd = dict(zip("ab", rng.normal(size=(2, 150)), strict=True))

    def loo(data, pointwise):
        assert pointwise
        return SimpleNamespace(loo_i=data.log_likelihood, scale="log")

    monkeypatch.setitem(sys.modules, "arviz_stats", None)
    monkeypatch.setitem(sys.modules, "arviz", SimpleNamespace(loo=loo, __version__="0.23.4"))
    joint = relfit.from_elpd({name: InferenceData(log_likelihood=values) for name, values in elpd.items()})
    np.testing.assert_array_equal(joint.values, relfit.from_elpd(elpd).values)
    monkeypatch.setitem(sys.modules, "arviz", None)
    said = "models['a']: PSIS-LOO needs arviz_stats; install it with  pip install \"arviz-stats[xarray]\""
    refused(lambda: relfit.from_elpd({"a": InferenceData(log_likelihood=1)}), said)


def test_arviz_itself(rng):
    base = pytest.importorskip("arviz_base")
    draws = rng.normal(size=(2, 4, 50, 2))
    models = {name: base.from_dict({"posterior": {"x": each}}) for name, each in zip("ab", draws, strict=True)}
    target = relfit.Density(lambda x: -x, dim=2)
    expected = relfit.compare(target, dict(zip("ab", draws.reshape(2, 200, 2), strict=True)), rng=0)
    result = relfit.compare(target, models, rng=0)
    np.testing.assert_array_equal(result.estimates, expected.estimates)
    arrays = {name: each.posterior["x"] for name, each in models.items()}
    np.testing.assert_array_equal(relfit.compare(target, arrays, rng=0).estimates, expected.estimates)
