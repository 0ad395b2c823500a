"""Some of the random problems of tools/agreement.py; that script runs 200 of them, on a CUDA device too."""

import pytest

from tools.agreement import DOUBLE, PLACES, SINGLE, difference, problem

torch = pytest.importorskip("torch")

CUDA = torch.cuda.is_available()


@pytest.mark.parametrize("seed", range(16))
def test_numpy_in_single_precision(seed):
    found = difference(problem(seed, largest=300), backend="numpy", precision="single")
    assert found["backend"] == "numpy (float32)"
    assert found["of a standard error"] <= SINGLE, found
    assert not found["other verdicts"], found


@pytest.mark.parametrize("seed", range(16))
def test_torch_in_double_precision(seed):
    found = difference(problem(seed, largest=300), backend="torch")
    assert found["backend"] == "torch (cpu)"
    assert found["of the kernel mean"] <= DOUBLE, found
    assert not found["other verdicts"], found


@pytest.mark.parametrize("seed", range(16))
def test_torch_in_single_precision(seed):
    found = difference(problem(seed, largest=300), backend="torch", precision="single")
    assert found["of a standard error"] <= SINGLE, found
    assert not found["other verdicts"], found


@pytest.mark.skipif(CUDA, reason="the CUDA device runs them")
@pytest.mark.parametrize("seed", range(100, 106))
def test_fused_kernels_in_the_interpreter(seed):
    pytest.importorskip("triton")
    found = difference(problem(seed, largest=70), backend="triton")
    assert found["of a standard error"] <= SINGLE, found
    assert not found["other verdicts"], found


def test_the_problems_reach_every_place_and_kind():
    words = [problem(seed, largest=40).words for seed in range(60)]
    for part in (*PLACES, "mmd", "ksd", "target", "Gaussian", "IMQ", "RationalQuadratic", "Polynomial"):
        assert any(part in each for each in words), part


@pytest.mark.gpu
@pytest.mark.skipif(not CUDA, reason="no CUDA device")
@pytest.mark.parametrize("seed", range(200, 230))
def test_a_cuda_device(seed):
    asked = problem(seed)
    double = difference(asked, device="cuda")
    assert double["backend"] == "torch (cuda:0)"
    assert double["of the kernel mean"] <= DOUBLE, double
    for backend in ("torch", "triton"):
        single = difference(asked, device="cuda", backend=backend, precision="single")
        assert single["of a standard error"] <= SINGLE, single
        assert not single["other verdicts"] + double["other verdicts"], single
