"""Roles turned round: the reference is a density, the models are samples."""

import numpy as np
import pytest
from oracle import dense
from refusals import refused

import relfit

TARGET = relfit.Density(score=lambda x: -x, dim=2)
KERNEL = relfit.Gaussian(1.3)


def samples(seed=0, sizes=(150, 90, 120)):
    rng = np.random.default_rng(seed)
    shifts = {"exact": 0.0, "off": 0.4, "wide": 0.0}
    return {
        name: rng.normal(shift, 1.6 if name == "wide" else 1.0, (m, 2))
        for (name, shift), m in zip(shifts.items(), sizes, strict=True)
    }


def test_each_sample_has_its_own_ksd_and_shared_noise_gives_covariances():
    models = samples()
    joint = relfit.estimate(TARGET, models, kernel=KERNEL, rng=0)
    for k, x in enumerate(models.values()):
        value, g = dense.ksd(x, [-x], KERNEL)
        m = len(x)
        psi = 2 * (g - g.mean()) * (m - 1) / (m - 2)
        assert joint.values[k] == pytest.approx(value[0], abs=1e-12)
        assert joint.covariance[k, k] == pytest.approx(float((psi**2).sum() / (m * (m - 1))), rel=1e-9)
    assert np.count_nonzero(joint.covariance - np.diag(np.diag(joint.covariance))) == 0
    assert joint.sizes == (0, 150, 90, 120)
    noise = np.random.default_rng(1).normal(size=(200, 2))
    models = {"a": noise * 1.05, "b": noise * 1.1}
    own = relfit.estimate(TARGET, models, rng=0)
    shared = relfit.estimate(TARGET, models, dependence="shared", rng=0)
    np.testing.assert_array_equal(own.values, shared.values)
    assert own.covariance[0, 1] == 0.0
    assert shared.covariance[0, 1] / np.sqrt(shared.covariance[0, 0] * shared.covariance[1, 1]) > 0.9


def test_chains_report_their_batches():
    rng = np.random.default_rng(3)
    chains = {}
    for name, rho in (("slow", 0.95), ("fast", 0.3)):
        x = np.empty((1500, 2))
        x[0] = rng.normal(size=2)
        for k in range(1, 1500):
            x[k] = rho * x[k - 1] + np.sqrt(1 - rho**2) * rng.normal(size=2)
        chains[name] = x
    result = relfit.compare(TARGET, chains, dependence="chain", rng=0)
    notes = [note for note in result.warnings if note.startswith("chain ")]
    assert len(notes) == 2
    assert "'slow'" in notes[0]
    independent = relfit.compare(TARGET, chains, rng=0)
    assert result.standard_error[0] > 2 * independent.standard_error[0]
    assert not result.worse.any()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dependence": "paired"}, "reference is a density"),
        ({"dependence": "chain", "estimator": "linear"}, "complete"),
        ({"dependence": "chain", "test": "relmulti"}, "chain"),
        ({"discrepancy": "mmd"}, "samples on both sides, got a density as the reference"),
        ({"dependence": "chain", "kernel": [relfit.Gaussian(0.7), relfit.Gaussian(2.0)]}, "several kernels"),
        ({"kernel": relfit.Polynomial()}, "smooth"),
        ({"kernel": relfit.Matern(0.5)}, "smooth"),
    ],
)
def test_what_does_not_fit_is_refused(change, words):
    refused(lambda: relfit.compare(TARGET, samples(), **change), words)


def test_bad_models_for_a_target():
    models = samples()
    for more, said in (
        ({"thin": np.ones(50)}, ["2 columns"]),
        ({"d": TARGET}, ["'d'", "sample"]),
        ({"short": np.random.default_rng(0).normal(size=(10, 2))}, ["at least 20"]),
        ({"counts": np.arange(100).reshape(50, 2)}, ["whole numbers"]),
    ):
        refused(lambda more=more: relfit.compare(TARGET, {**models, **more}), *said)
    by_differences = relfit.Density(log_prob=lambda x: -0.5 * (x**2).sum(axis=1), dim=2)
    said = relfit.compare(by_differences, models, rng=0).warnings
    assert any(note.startswith("reference: ") and "finite differences" in note for note in said)
    half_line = relfit.Density(score=lambda x: np.where(x > 0, -1.0, np.nan))
    refused(lambda: relfit.compare(half_line, models), "target", "'exact'", "rows")
