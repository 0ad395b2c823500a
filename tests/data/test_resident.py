"""Tensors that stay where they live. On the CPU, tensors stand in for those of a CUDA device."""

import numpy as np
import pytest
from refusals import refused

from relfit.api import compare
from relfit.data import load as data_module
from relfit.data.arrays import device_of, fingerprint, fingerprints, resident_rows
from relfit.data.load import load
from relfit.data.models import Density
from relfit.settings import Compute

torch = pytest.importorskip("torch")


@pytest.fixture
def resident(monkeypatch):
    """Take every tensor for one of a device."""

    def found(values):
        return "cpu" if any(isinstance(value, torch.Tensor) for value in values) else None

    monkeypatch.setattr(data_module, "device_of", found)


def test_keys_are_those_of_the_host(rng):
    x = rng.normal(size=(300, 7))
    x[3] = x[200]
    x[5, 2], x[6] = 0.0, x[5]
    x[6, 2] = -0.0
    there, here = fingerprint(torch.as_tensor(x)), fingerprint(x)
    np.testing.assert_array_equal(there.keys, here.keys)
    np.testing.assert_array_equal(there.ordered, here.ordered)
    assert there.keys[5] == there.keys[6]
    samples = {None: x, "a": x[:120] + 1.0, "b": x[7:]}
    together = fingerprints({name: torch.as_tensor(rows) for name, rows in samples.items()})
    for name, apart in fingerprints(samples).items():
        np.testing.assert_array_equal(together[name].ordered, apart.ordered)
        assert together[name].digest == apart.digest


def test_tensors_are_kept_and_not_copied_or_refused(rng):
    x = torch.as_tensor(rng.normal(size=(20, 3)))
    assert resident_rows("reference", x, "cpu").data_ptr() == x.data_ptr()
    assert resident_rows("reference", x.float(), "cpu").dtype == torch.float32
    assert resident_rows("reference", x.bfloat16(), "cpu").dtype == torch.float32
    assert resident_rows("reference", torch.arange(4), "cpu").shape == (4, 1)
    assert resident_rows("reference", rng.normal(size=(4, 2)), "cpu").dtype == torch.float64
    bad = torch.ones(6, 2)
    bad[4, 1] = torch.nan
    refused(lambda: resident_rows("model 'a'", bad, "cpu"), "model 'a': expected finite numbers", "(first: row 4)")
    refused(lambda: resident_rows("x", torch.ones(2, 2, 2), "cpu"), "x: expected rows and columns", "(2, 2, 2)")
    refused(lambda: resident_rows("x", torch.ones(0, 2), "cpu"), "x: expected at least one row")
    refused(lambda: resident_rows("x", torch.ones(2, 2) * 1j, "cpu"), "x: expected numbers, got complex")


@pytest.mark.usefixtures("resident")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("test", ["relpsi", "relmulti"])
def test_the_pipeline_on_tensors_gives_what_arrays_give(dtype, test, rng):
    arrays = {name: rng.normal(s, 1, size=(n, 3)).astype(dtype) for name, s, n in (("r", 0, 90), ("a", 0.1, 80))}
    arrays["b"] = np.concatenate([arrays["a"][:10] + 0.5, arrays["r"][:40]])
    arrays["twin"] = arrays["a"]
    tensors = {name: torch.as_tensor(x) for name, x in arrays.items()}
    plain, other = (
        compare(
            given["r"], {k: given[k] for k in ("a", "b", "twin")}, test=test, compute=Compute(backend=backend), rng=0
        )
        for given, backend in ((arrays, "numpy"), (tensors, "torch"))
    )
    assert other.backend == "torch (cpu)"
    assert other.warnings == plain.warnings
    assert other.status == plain.status
    assert other.kernel.length == pytest.approx(plain.kernel.length, rel=1e-12)
    np.testing.assert_allclose(other.discrepancy, plain.discrepancy, atol=1e-13)
    np.testing.assert_allclose(other.pvalue, plain.pvalue, rtol=1e-8)


@pytest.mark.usefixtures("resident")
def test_no_tensor_leaves_its_device_whole(monkeypatch, rng):
    """Of 4000 rows of five columns, only what was computed from them and a few rows may come to the host."""
    moved = []
    cpu = torch.Tensor.cpu
    monkeypatch.setattr(torch.Tensor, "cpu", lambda self: moved.append(self.shape) or cpu(self))
    x, a, b = (torch.as_tensor(rng.normal(size=(4000, 5))) for _ in range(3))
    compare(x, {"a": a, "b": b}, compute=Compute(backend="torch"), rng=0)
    assert moved
    assert all(shape[0] <= 1400 or shape[1:] != (5,) for shape in moved if len(shape))


@pytest.mark.usefixtures("resident")
def test_a_density_sees_rows_on_the_host_and_the_work_stays_on_the_device(rng):
    x = rng.normal(size=(60, 2))
    models = {"a": Density(score=lambda x: -x), "b": Density(score=lambda x: 0.5 - x)}
    found = load(torch.as_tensor(x), models, in_place=True)
    assert isinstance(found.reference, np.ndarray)
    assert found.device == "cpu"
    plain, other = compare(x, models, rng=0), compare(torch.as_tensor(x), models, rng=0)
    assert other.backend == "torch (cpu)"
    np.testing.assert_allclose(other.discrepancy, plain.discrepancy, atol=1e-13)


@pytest.mark.usefixtures("resident")
@pytest.mark.parametrize("options", [{"estimator": "linear"}, {"estimator": "block"}, {"preset": "cmmd"}])
def test_what_needs_the_rows_themselves_takes_them_to_the_host(options, rng):
    x, a, b = rng.normal(size=(3, 200, 3))
    plain = compare(x, {"a": a, "b": b}, rng=0, **options)
    other = compare(torch.as_tensor(x), {"a": torch.as_tensor(a), "b": b}, rng=0, **options)
    np.testing.assert_allclose(other.discrepancy, plain.discrepancy, atol=1e-13)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_cuda_tensors_and_arrays_of_other_libraries(rng):
    x, a, b = rng.normal(size=(3, 200, 3))
    plain = compare(x, {"a": a, "b": b}, compute=Compute(backend="numpy"), rng=0)
    tensors = [torch.as_tensor(rows, device="cuda") for rows in (x, a)]
    other = compare(tensors[0], {"a": tensors[1], "b": b}, rng=0)
    assert other.backend == "torch (cuda:0)"
    np.testing.assert_allclose(other.discrepancy, plain.discrepancy, atol=1e-13)
    jax = pytest.importorskip("jax")
    given = jax.numpy.asarray(x.astype(np.float32))
    expected = "torch (cuda:0)" if device_of([given]) else "numpy"
    assert compare(given, {"a": a, "b": b}, rng=0).backend == expected


@pytest.mark.usefixtures("resident")
@pytest.mark.parametrize("dependence", ["independent", "paired"])
def test_landmarks_of_tensors_are_those_of_arrays(rng, dependence):
    """The same rows are drawn, so that the estimates differ by rounding only."""
    x = rng.normal(size=(3000, 4))
    models = {f"m{k}": 0.1 * k + rng.normal(size=(3000, 4)) for k in range(3)}
    options = {"estimator": "landmarks", "dependence": dependence, "rng": 0}
    here = compare(x, models, **options)
    tensors = {name: torch.as_tensor(rows) for name, rows in models.items()}
    there = compare(torch.as_tensor(x), tensors, **options, compute=Compute(backend="torch"))
    np.testing.assert_allclose(there.discrepancy, here.discrepancy, atol=1e-9 * here.standard_error.min())
    np.testing.assert_allclose(there.covariance, here.covariance, rtol=1e-7)
    assert there.warnings == here.warnings
