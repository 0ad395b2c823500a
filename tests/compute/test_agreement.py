"""Some of the random problems of tools/agreement.py; that script runs 200 of them, on a CUDA device too."""

import pytest

from tools.agreement import DOUBLE, PLACES, SINGLE, difference, problem

torch = pytest.importorskip("torch")

CUDA = torch.cuda.is_available()


@pytest.mark.parametrize(
    ("options", "backend"),
    [
        ({"backend": "numpy", "precision": "single"}, "numpy (float32)"),
        ({"backend": "torch"}, "torch (cpu)"),
        ({"backend": "torch", "precision": "single"}, "torch (cpu, float32)"),
    ],
    ids=["numpy, single", "torch", "torch, single"],
)
@pytest.mark.parametrize("seed", range(16))
def test_a_backend(seed, options, backend):
    found = difference(problem(seed, largest=300), **options)
    assert found["backend"] == backend
    if "precision" in options:
        assert found["of a standard error"] <= SINGLE, found
    else:
        assert found["of the kernel mean"] <= DOUBLE, found
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
