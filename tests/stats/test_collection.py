"""The best set under several kernels at once."""

from dataclasses import replace

import numpy as np
import pytest
from refusals import refused

import relfit
from relfit.kernels import kernel_from_dict
from relfit.kernels.composite import Collection
from relfit.kernels.standard import IMQ, Gaussian
from relfit.paper.problems import blobs, draw
from relfit.stats.joint import JointEstimate, Psi
from relfit.stats.maxt import seeded
from relfit.stats.tests.base import Criteria
from relfit.stats.tests.best_set import BestSet, best_set, collection_best_set, joint_covariance, mean_estimate

KERNELS = (Gaussian(0.9), Gaussian(4.0), IMQ(2.0))


def estimate(kernel, n=80, seed=0, **options):
    return relfit.estimate(*draw(blobs(), n, seed), kernel=kernel, rng=0, **options)


@pytest.fixture(params=["independent", "shared", "paired"])
def joints(request):
    return [estimate(kernel, dependence=request.param) for kernel in KERNELS]


def test_the_joint_covariance_holds_that_of_every_combination(joints):
    """MMD² is linear in the kernel: c·D over kernels is MMD² under Σ c_k k, whose covariance is known by itself."""
    whole = joint_covariance([joint.psi for joint in joints])
    dependence = "paired" if not joints[0].psi.models else "shared" if joints[0].psi.shared else "independent"
    summed = estimate(KERNELS[0] + KERNELS[1] + KERNELS[2], dependence=dependence)
    across = np.kron(np.ones((1, 3)), np.eye(2))
    np.testing.assert_allclose(across @ whole @ across.T, summed.covariance, rtol=1e-9)
    for k, joint in enumerate(joints):
        np.testing.assert_allclose(whole[2 * k : 2 * k + 2, 2 * k : 2 * k + 2], joint.covariance, rtol=1e-12)
    mean = mean_estimate(joints)
    np.testing.assert_allclose(mean.values, summed.values / 3, rtol=1e-9)
    np.testing.assert_allclose(mean.covariance, summed.covariance / 9, rtol=1e-9)


@pytest.mark.parametrize("n", [80, 400])
def test_one_kernel_twice_is_that_kernel(n):
    """Below and above 300 rows: Student's law and the normal one. Copies of a kernel add nothing to a maximum."""
    joint = replace(estimate(KERNELS[0], n=n), close=None)
    alone = best_set(joint, 0.05, rng=seeded(1, "best-set"))
    _, twice = collection_best_set([joint, joint], 0.05, rng=seeded(1, "best-set"))
    np.testing.assert_allclose(np.exp(twice.log_pvalue), np.exp(alone.log_pvalue), atol=0.01)
    assert twice.worse.tolist() == alone.worse.tolist()
    assert twice.beaten_by == alone.beaten_by


def test_independent_kernels_by_hand():
    """Two models, two kernels, D_1−D_2 = 2 s and −s independently: T_1 = 2, T_2 = 1.

    p_1 = P(max(Z, Z') ≥ 2) = 1 − Φ(2)² = .0450; p_2 likewise at 1: 1 − Φ(1)² = .2922. n = 10⁶ keeps every pair.
    """
    rows = np.random.default_rng(0).normal(size=(400, 4))
    rows = np.linalg.qr(rows - rows.mean(axis=0))[0] * np.sqrt(400 * 399)  # orthogonal columns of mean 0: V = identity
    first, second = Psi(rows[:, :2]), Psi(rows[:, 2:4])
    half = np.sqrt(2.0)
    joints = [
        JointEstimate(("a", "b"), [2 * half, 0.0], first.covariance(), (1_000_000,), first),
        JointEstimate(("a", "b"), [0.0, half], second.covariance(), (1_000_000,), second),
    ]
    _, decision = collection_best_set(joints, 0.05, rng=seeded(3, "best-set"), draws=200_000)
    np.testing.assert_allclose(np.exp(decision.log_pvalue), [0.04498, 0.29216], atol=0.003)
    assert decision.beaten_by == (1, None)
    assert decision.beaten_under == (0, None)


def test_kernels_that_disagree_are_told():
    """a is far better under the first kernel and far worse under the second: the one with the smaller mean is kept."""
    rows = np.random.default_rng(0).normal(size=(400, 4))
    rows -= rows.mean(axis=0)
    parts = [Psi(rows[:, :2]), Psi(rows[:, 2:])]
    values = [[0.0, 1.0], [2.0, 0.0]]
    joints = [JointEstimate(("a", "b"), v, p.covariance(), (400,), p) for v, p in zip(values, parts, strict=True)]
    mean, decision = BestSet().decide_under_all(joints, ["one", "two"], Criteria(0.05))
    assert mean.values.tolist() == [1.0, 0.5]
    assert decision.worse.tolist() == [True, False]
    assert decision.adjusted_pvalue.max() < 1e-6
    assert decision.notes[1:] == (
        "'a' is worse than 'b' under the two",
        "even 'b', the best on average, is worse than another model under some kernel: the kernels disagree about "
        "which model is best",
    )


def test_the_reader_is_told():
    reference, models = draw(blobs(), 400, 1)
    result = relfit.compare(reference, models, kernel=(Gaussian(1.0), Gaussian()), test="best-set", rng=0)
    text = str(result)
    assert "any of 2 kernels: Gaussian kernel, bandwidth 1; Gaussian kernel, bandwidth 7" in text
    assert "2 kernels in one test: a model is called worse if it is worse than another one under any of them" in text
    assert "'P1' is worse than 'P2' under the Gaussian kernel, bandwidth 1" in text
    assert result.beaten_by == ("P2", None)
    assert result.confidence_set == ("P2",)
    again = relfit.Comparison.from_json(result.to_json())
    assert again.kernel == result.kernel
    assert kernel_from_dict(result.kernel.to_dict()) == result.kernel


def test_closeness_to_the_data_under_any_kernel_is_told():
    rng = np.random.default_rng(0)
    data, models = rng.normal(size=(200, 2)), {"a": rng.normal(size=(200, 2)), "b": rng.normal(size=(200, 2)) + 0.02}
    kernels = [Gaussian(1.0), Gaussian(2.0)]
    single = [relfit.compare(data, models, kernel=kernel, rng=0).near_degeneracy for kernel in kernels]
    both = relfit.compare(data, models, kernel=kernels, rng=0)
    np.testing.assert_allclose(both.near_degeneracy, np.max(single, axis=0))
    assert any("near-degenerate" in words for words in both.status)


def test_refusals():
    reference, models = draw(blobs(), 80, 1)
    for test in ("relpsi", "relmulti", "carve"):
        refused(
            lambda test=test: relfit.compare(reference, models, kernel=KERNELS, test=test),
            "best-set",
            f'got test="{test}"',
        )
    several = {"kernel": KERNELS, "test": "best-set"}
    refused(lambda: relfit.compare(reference, models, margin=0.1, **several), "best-set", "margin=0.1")
    refused(lambda: relfit.compare(reference, models, estimator="incomplete", **several), "covariance of the ψ rows")
    refused(lambda: relfit.estimate(reference, models, kernel=KERNELS), "one kernel here", "Collection")
    refused(lambda: Collection((Gaussian(),)), "kernels of Collection", "got 1")
    refused(lambda: Collection((Gaussian(), Collection((Gaussian(), IMQ())))), "kernels of Collection", "Collection")
    refused(lambda: Gaussian() + Collection((Gaussian(), IMQ())), "cannot add")
