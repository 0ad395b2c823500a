"""The estimate by landmarks: against a readable whitened reference, the complete estimate, and itself elsewhere."""

from itertools import product

import numpy as np
import pytest
from refusals import refused

import relfit
from relfit.compute.checkpoint import finished_patches
from relfit.estimators import landmarks
from relfit.kernels.composite import Decay, MultiScale, Tilted
from relfit.kernels.standard import IMQ, Gaussian, Matern, Polynomial

KERNELS = {
    "gaussian": Gaussian(1.5),
    "imq": IMQ(0.7),
    "matern": Matern(1.5, 1.3),
    "multiscale": MultiScale(bandwidth=1.2),
    "polynomial": Polynomial(2, 1.0, 0.5),
    "tilted": Tilted(Gaussian(1.1), Decay(1.0, 2.0, 0.3)),
}
SMOOTH = ["gaussian", "imq", "multiscale", "tilted"]
SIZES = {"independent": (60, 45, 70), "shared": (60, 50, 50), "paired": (60, 60, 60)}


@pytest.fixture(autouse=True)
def landmarks_for_few_pairs(monkeypatch):
    """Landmarks also where all pairs take a moment."""
    monkeypatch.setattr(landmarks, "FEW_PAIRS", 0)


def sampled(rng, sizes, d=3, shift=0.3):
    reference, *models = (rng.normal(shift * i, 1.0, (m, d)) for i, m in enumerate(sizes))
    return reference, {f"m{i}": x for i, x in enumerate(models, start=1)}


def densities(d, shifts=(0.1, 0.3)):
    return {f"s{s}": relfit.Density(score=lambda x, s=s: s - x, dim=d) for s in shifts}


@pytest.mark.parametrize(("name", "kind"), [*product(KERNELS, SIZES), *product(SMOOTH, ("densities", "target"))])
def test_residuals_of_all_rows_give_the_complete_estimate(name, kind, rng):
    """However few the landmarks are: the first pass then sees every pair, and nothing is left to chance."""
    if kind in SIZES:
        data, options = sampled(rng, SIZES[kind]), {"dependence": kind}

    elif kind == "densities":
        data, options = (rng.normal(size=(60, 3)), densities(3)), {}
    else:
        data, options = (relfit.Density(score=lambda x: -x, dim=3), sampled(rng, (9, 40, 55))[1]), {}
    options |= {"kernel": KERNELS[name], "rng": 0}
    complete = relfit.estimate(*data, **options)
    found = relfit.estimate(*data, estimator=relfit.Landmarks(3, 10**6), **options)
    assert (np.abs(found.values - complete.values) < 1e-9 * complete.standard_error).all()
    np.testing.assert_allclose(found.covariance, complete.covariance, rtol=1e-7, atol=1e-12)
    assert "adds less than 0.1% to the variance" in found.notes[0]


@pytest.mark.parametrize("dependence", ["independent", "paired"])
def test_unbiased_for_the_complete_estimate_whatever_the_landmarks_are(dependence, rng):
    """Over 600 draws with three landmarks: means within 3.5 standard errors, and the variance that is added."""
    reference, models = sampled(rng, SIZES[dependence])
    options = {"kernel": Gaussian(1.0), "dependence": dependence}
    complete = relfit.estimate(reference, models, rng=0, **options)
    plain = relfit.estimate(reference, models, estimator=relfit.Landmarks(3, 10**6), rng=0, **options)
    draws = [
        relfit.estimate(reference, models, estimator=relfit.Landmarks(3, 600), rng=seed, **options)
        for seed in range(600)
    ]
    found = np.array([each.values for each in draws])
    error = found.std(axis=0) / np.sqrt(len(found))
    assert (np.abs(found.mean(axis=0) - complete.values) < 3.5 * error).all()
    # Landmarks differ between the draws too, so that only a rough agreement of the variance can be expected.
    added = np.mean([np.diag(each.covariance) for each in draws], axis=0) - np.diag(plain.covariance)
    np.testing.assert_allclose(added, found.var(axis=0), rtol=0.25)


def test_chosen_sizes_keep_the_residual_correction_below_its_part(rng):
    reference, models = sampled(rng, (4000, 4000, 4000), d=5, shift=0.05)
    complete = relfit.estimate(reference, models, rng=0)
    found = relfit.estimate(reference, models, estimator="landmarks", rng=0)
    assert (np.abs(found.values - complete.values) < 0.6 * complete.standard_error).all()
    np.testing.assert_allclose(found.covariance, complete.covariance, rtol=0.06)
    np.testing.assert_allclose(found.close.second, complete.close.second, rtol=0.15)
    np.testing.assert_allclose(found.close.trace, complete.close.trace, rtol=0.1)
    np.testing.assert_allclose(found.yardstick, complete.yardstick, rtol=0.1)
    part = float(found.notes[0].split("adds ")[1].split("%")[0].removeprefix("less than "))
    assert part < 5.0


class Stop(Exception):
    """Ends a run half-way."""


@pytest.mark.usefixtures("small_patches")
@pytest.mark.parametrize("share", [0.3, 0.9])
def test_stopped_runs_resume(share, rng, tmp_path):
    reference, models = sampled(rng, (900, 800, 900))
    for k, data in enumerate(((reference, models), (reference, densities(3)))):
        totals, calls = [], [0]
        plain = relfit.compare(
            *data, estimator="landmarks", rng=0, progress=lambda done, total, seen=totals: seen.append((done, total))
        )
        # Both passes are one piece of work.
        assert [done for done, _ in totals] == sorted(done for done, _ in totals)
        assert len({total for _, total in totals}) == 1
        assert totals[-1][0] == totals[-1][1]
        stop_at = int(share * len(totals))

        def progress(done, total, calls=calls, stop_at=stop_at):
            calls[0] += 1
            if calls[0] > stop_at:
                raise Stop

        checkpoint = relfit.Compute(checkpoint=tmp_path / f"{k}.sqlite")
        with pytest.raises(Stop):
            relfit.compare(*data, estimator="landmarks", rng=0, compute=checkpoint, progress=progress)
        before, _ = finished_patches(checkpoint.checkpoint)
        assert before > 0
        again = relfit.compare(*data, estimator="landmarks", rng=0, compute=checkpoint)
        assert again.to_json() == plain.to_json()
        done, known = finished_patches(checkpoint.checkpoint)
        assert done == known > before


@pytest.mark.parametrize("precision", ["double", "single"])
def test_torch_and_single_precision(precision, rng):
    pytest.importorskip("torch")
    reference, models = sampled(rng, (3000, 2500, 3000), d=4, shift=0.1)
    for data in ((reference, models), (reference, densities(4))):
        plain = relfit.estimate(*data, estimator=relfit.Landmarks(100, 300_000), rng=0)
        for backend in ("numpy", "torch"):
            compute = relfit.Compute(backend=backend, precision=precision)
            found = relfit.estimate(*data, estimator=relfit.Landmarks(100, 300_000), rng=0, compute=compute)
            apart = np.abs(found.values - plain.values) / plain.standard_error
            # In single precision fewer directions of the landmarks are kept, and the residuals make up for them.
            assert (apart < (1e-6 if precision == "double" else 0.15)).all()
            np.testing.assert_allclose(found.covariance, plain.covariance, rtol=1e-6 if precision == "double" else 0.05)


def test_what_cannot_be_combined_is_refused(rng):
    reference, models = sampled(rng, (60, 60, 60))
    labels = {name: np.arange(60) // 2 for name in ("reference", *models)}
    target = relfit.Density(score=lambda x: -x, dim=3)
    refused(
        lambda: relfit.compare(reference, models, estimator="landmarks", groups=labels), "groups: expected estimator"
    )
    refused(
        lambda: relfit.compare(target, models, estimator="landmarks", dependence="chain"),
        'dependence="chain": expected estimator="complete"',
    )
    refused(lambda: relfit.Landmarks(0), "count: expected")
    refused(lambda: relfit.Landmarks(residual_pairs=2.5), "residual_pairs: expected")
    said = 'discrepancy="nystroem": was removed; use estimator="landmarks"'
    refused(lambda: relfit.compare(reference, models, discrepancy="nystroem"), said)


@pytest.mark.parametrize("rows", [1, 2])
def test_rows_that_are_all_the_same(rows, rng):
    """Constant samples have no variance, and nothing divides by it."""
    constant = np.ones((50, 2))
    models = {"a": constant * 2.0, "b": np.concatenate([constant[:-rows], rng.normal(size=(rows, 2))])}
    complete = relfit.estimate(constant, models, kernel=Gaussian(1.0), rng=0)
    found = relfit.estimate(constant, models, kernel=Gaussian(1.0), estimator="landmarks", rng=0)
    np.testing.assert_allclose(found.values, complete.values, atol=1e-9)


def test_samples_of_a_target_that_belong_together_keep_their_covariances(rng):
    z = rng.normal(size=(2000, 3))
    models = {"a": z + 0.1, "b": z + 0.15, "c": z + 0.12}
    target = relfit.Density(score=lambda x: -x)
    found, complete = (
        relfit.estimate(target, models, dependence="shared", estimator=e, rng=0) for e in ("landmarks", "complete")
    )
    np.testing.assert_allclose(found.covariance, complete.covariance, rtol=0.1)
    contrast = np.array([1.0, -1.0, 0.0])
    assert contrast @ found.covariance @ contrast == pytest.approx(contrast @ complete.covariance @ contrast, rel=0.2)


def test_the_residual_correction_of_ksd_knows_its_noise_where_rows_are_far_away(rng):
    """Given the data, over draws of landmarks and of the residual rows."""
    x = rng.normal(size=(300, 2)) * np.where(np.arange(300) % 100 == 0, 10.0, 1.0)[:, None]
    kernel, models = Gaussian(1.5), densities(2)
    complete, plain = (relfit.estimate(x, models, kernel=kernel, estimator=e, rng=0) for e in ("complete", "landmarks"))
    draws = [
        relfit.estimate(x, models, kernel=kernel, estimator=relfit.Landmarks(25, 40 * 300), rng=k) for k in range(150)
    ]
    found = np.array([each.values for each in draws])
    error = found.std(axis=0) / np.sqrt(len(found))
    assert (np.abs(found.mean(axis=0) - complete.values) < 3.5 * error).all()
    shares = [float(each.notes[0].split("adds ")[1].split("%")[0].removeprefix("less than ")) for each in draws]
    variance = complete.standard_error**2 - np.diag(complete.close.second)
    # About 1 if the noise is known; rows drawn alike give thousands, from draws without a row far away.
    squares = (found - complete.values) ** 2 / (np.array(shares)[:, None] / 100.0 * variance)
    assert squares.mean(axis=0).max() < 5.0
    assert plain.notes[0] == landmarks.ALL_PAIRS


@pytest.mark.parametrize(("count", "residual_pairs"), [(62, None), (151, 61), (400, 10_000)])
def test_more_landmarks_than_rows_are_all_rows(rng, count, residual_pairs):
    """As many as there are is the complete estimate; a count above half of the rows ended in a ValueError."""
    reference, models = sampled(rng, (30, 20, 24))
    estimator = relfit.Landmarks(count, residual_pairs)
    found = relfit.estimate(reference, models, estimator=estimator, rng=0)
    complete = relfit.estimate(reference, models, estimator="complete", rng=0)
    np.testing.assert_allclose(found.values, complete.values, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found.standard_error, complete.standard_error, rtol=1e-3)
