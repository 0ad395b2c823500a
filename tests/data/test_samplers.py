"""Models given as generators are drawn from once, with the seed."""

import numpy as np
import pytest
from refusals import refused
from scipy import stats

import relfit
from relfit.data import adapters


def normal(n, rng):
    return rng.normal(size=(n, 2))


class Machine:
    def sample(self, n, rng):
        return rng.normal(0.5, 1, size=(n, 2))


@pytest.fixture
def reference(rng):
    return rng.normal(size=(200, 2))


def test_functions_and_objects_are_drawn_from_said_and_saved(reference, tmp_path):
    result = relfit.compare(reference, {"f": normal, "machine": Machine(), "given": reference + 1.0}, rng=3)
    assert result.sizes == (200, 200, 200, 200)
    assert result.best == "f"
    assert any("drew 200 rows from 'f', 'machine' (seed 3)" in note for note in result.warnings)
    models = {"f": normal, "machine": Machine()}
    rows = relfit.draw(models, 200, rng=3)
    np.save(tmp_path / "f.npy", rows["f"])
    np.save(tmp_path / "machine.npy", rows["machine"])
    direct = relfit.compare(reference, models, rng=3)
    again = relfit.compare(reference, {k: tmp_path / f"{k}.npy" for k in models}, rng=3)
    np.testing.assert_array_equal(direct.pvalue, again.pvalue)
    np.testing.assert_array_equal(direct.discrepancy, again.discrepancy)


def test_large_draws_come_in_batches_and_functions_of_n_are_samplers(reference):
    asked = []

    def count(n, rng):
        asked.append(n)
        return rng.normal(size=(n, 1))

    progress = []
    rows = adapters.draw_rows(
        "m", relfit.Sampler(count), 10_000, np.random.default_rng(0), lambda *a: progress.append(a)
    )
    assert rows.shape == (10_000, 1)
    assert asked == [4096, 4096, 1808]
    assert progress[-1] == (10_000, 10_000)
    # D32: `lambda n: …` was told to be a density, and failed in a Sampler when it was called.
    own = np.random.default_rng(5)
    refused(
        lambda: relfit.compare(reference, {"f": lambda n: own.normal(size=(n, 2)), "g": normal}), "relfit.Sampler(f)"
    )
    sampler = relfit.Sampler(lambda n: own.normal(size=(n, 2)))
    assert relfit.compare(reference, {"f": sampler, "g": normal}, rng=0).sizes == (200, 200, 200)
    refused(lambda: relfit.Sampler(lambda: 1), "Sampler: expected a function of (n, rng) or of n")


def test_densities_mix_with_samples_if_they_can_be_sampled(reference):
    target = stats.multivariate_normal([0.0, 0.0])
    result = relfit.compare(reference, {"scipy": target, "rows": reference[::-1] + 0.7}, rng=0)
    assert result.measure == "mmd"
    assert any("compared by their samples" in note for note in result.warnings)
    pure = relfit.compare(reference, {"a": target, "b": stats.multivariate_normal([1.0, 0.0])}, rng=0)
    assert pure.measure == "ksd"
    forced = relfit.compare(
        reference, {"a": target, "b": stats.multivariate_normal([1.0, 0.0])}, rng=0, discrepancy="mmd"
    )
    assert forced.measure == "mmd"
    density = relfit.Density(score=lambda x: -x)
    with pytest.raises(relfit.InputError, match=r"'d' is a density that cannot be sampled") as caught:
        relfit.compare(reference, {"d": density, "rows": reference + 1.0})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (lambda n, rng: rng.normal(size=(n - 1, 2)), "'bad': expected 200 rows.*got 199"),
        (lambda n, rng: 3.0, "'bad': expected 200 rows.*single number"),
        (lambda n, rng: rng.normal(size=(n, 3)), "'bad': expected 2 columns"),
        (lambda n, rng: np.full((n, 2), np.nan), "'bad': .*NaN"),
        (lambda x: -x, "'bad'"),
        (relfit.Sample, "'bad'"),
    ],
)
def test_bad_samplers_are_named(reference, bad, words):
    with pytest.raises(relfit.InputError, match=words):
        relfit.compare(reference, {"bad": bad, "good": normal}, rng=0)


def test_sklearn_objects_are_drawn_without_touching_them(reference):
    mixture_module = pytest.importorskip("sklearn.mixture", reason="scikit-learn is not installed")
    density_module = pytest.importorskip("sklearn.neighbors", reason="scikit-learn is not installed")
    mixture = mixture_module.GaussianMixture(2, random_state=5).fit(reference)
    kde = density_module.KernelDensity(bandwidth=0.3).fit(reference)
    rows = relfit.draw({"mixture": mixture, "kde": kde}, 500, rng=0)
    assert rows["mixture"].shape == rows["kde"].shape == (500, 2)
    assert mixture.random_state == 5
    np.testing.assert_array_equal(rows["mixture"], relfit.draw({"mixture": mixture}, 500, rng=0)["mixture"])


def test_torch_distributions_leave_the_global_state_alone():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    normal_2d = torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))
    one = relfit.draw({"t": normal_2d}, 100, rng=0)["t"]
    two = relfit.draw({"t": normal_2d}, 100, rng=0)["t"]
    np.testing.assert_array_equal(one, two)
    assert torch.equal(before, torch.random.get_rng_state())
