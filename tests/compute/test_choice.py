import numpy as np
import pytest
from refusals import refused

from relfit.api import compare
from relfit.compute import backend, reduce
from relfit.compute.backend import Job
from relfit.compute.reduce import Runtime, Workload, chosen_backend, kernel_products
from relfit.kernels.standard import Gaussian, Matern
from relfit.settings import Compute
from relfit.util.errors import BackendUnavailable


def workload(device=None, pairs=0, kernel=Gaussian(1.0), largest=1.0, executor=False, **more):  # noqa: B008  (frozen)
    return Workload(device, pairs, kernel, lambda: largest, executor=executor, **more)


@pytest.fixture
def machine(monkeypatch):
    """A machine with torch, triton, a CUDA device and no Numba, whatever this one has."""
    monkeypatch.setattr(reduce, "numba_problem", lambda: "numba is not installed")
    pytest.importorskip("torch")
    monkeypatch.setattr(reduce, "_has", lambda library: True)
    monkeypatch.setattr(reduce, "has_cuda", lambda: True)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


def name_of(name, precision, of):
    return chosen_backend(name, precision, of)[0].name


@pytest.mark.usefixtures("machine")
def test_auto_goes_by_where_the_data_live_and_how_much_there_is_to_do():
    much = reduce.DEVICE_PAIRS
    assert name_of("auto", "double", workload()) == "numpy"
    assert name_of("auto", "double", workload(pairs=much)) == "torch (cuda:0)"
    assert name_of("auto", "double", workload(pairs=much, executor=True)) == "numpy"
    assert name_of("auto", "double", workload("cuda:1")) == "torch (cuda:1)"
    assert name_of("auto", "single", workload()) == "numpy (float32)"
    assert name_of("auto", "single", workload("cuda:1")) == "triton (cuda:1)"
    assert name_of("auto", "single", workload("cuda:1", kernel=Matern(1.5, 1.0))) == "torch (cuda:1, float32)"
    assert name_of("auto", "single", workload("cuda:1", largest=1e9)) == "torch (cuda:1, float32)"
    assert name_of("auto", "single", workload("cuda:1", largest=30.0, sides=True)) == "torch (cuda:1, float32)"
    assert name_of("auto", "single", workload("cuda:1", dim=100, sides=True)) == "torch (cuda:1, float32)"
    assert name_of("auto", "single", workload("cuda:1", dim=100)) == "triton (cuda:1)"
    assert name_of("torch", "double", workload(pairs=much)) == "torch (cpu)"
    assert name_of("numpy", "double", workload("cuda:0")) == "numpy"


@pytest.mark.usefixtures("machine")
def test_fused_kernels_that_do_not_fit_leave_the_work_to_torch_and_say_so():
    assert chosen_backend("triton", "double", workload())[1] == ()
    assert name_of("triton", "double", workload()) == "triton (cuda:0)"
    chosen, notes = chosen_backend("triton", "double", workload(kernel=Matern(1.5, 1.0)))
    assert chosen.name == "torch (cuda:0)"
    assert "do not fit" in notes[0]


@pytest.mark.usefixtures("machine")
def test_auto_without_a_device_stays_with_numpy(monkeypatch):
    monkeypatch.setattr(reduce, "has_cuda", lambda: False)
    assert name_of("auto", "double", workload(pairs=reduce.DEVICE_PAIRS)) == "numpy"
    with pytest.raises(BackendUnavailable, match='"triton" needs a CUDA device'):
        chosen_backend("triton", "double", workload())


@pytest.mark.usefixtures("machine")
def test_numba_is_taken_by_the_number_of_pairs_if_it_works(monkeypatch):
    monkeypatch.setattr(reduce, "has_cuda", lambda: False)
    much = reduce.COMPILED_PAIRS
    assert name_of("auto", "double", workload(pairs=much)) == "numpy"
    monkeypatch.setattr(reduce, "numba_problem", lambda: "")
    assert name_of("auto", "double", workload(pairs=much)) == "numba"
    assert name_of("auto", "single", workload(pairs=much, executor=True)) == "numba (float32)"
    assert name_of("auto", "double", workload(pairs=much - 1)) == "numpy"
    assert name_of("numpy", "double", workload(pairs=much)) == "numpy"
    assert name_of("numba", "double", workload()) == "numba"


def test_numba_that_is_missing_or_does_not_work_is_named(monkeypatch):
    monkeypatch.setattr(backend, "find_spec", lambda name: None)
    backend.numba_problem.cache_clear()
    try:
        with pytest.raises(BackendUnavailable, match=r'install it with  pip install "relfit\[fast\]", or use backend='):
            chosen_backend("numba", "double", workload())
        # A worker may lack what the process that sent it a block has.
        x = np.arange(6.0).reshape(3, 2)
        plain, other = (
            kernel_products(
                [Job(Gaussian(1.0), kind.points(Gaussian(1.0), x), None, {"phi": np.ones(3)})], Runtime(kind)
            )
            for kind in (backend.NumpyBackend(), backend.NumbaBackend())
        )
        assert np.array_equal(plain[0].rows["phi"], other[0].rows["phi"])
        backend.numba_problem.cache_clear()
        monkeypatch.setattr(backend, "find_spec", lambda name: name)
        monkeypatch.setattr(backend, "import_module", lambda name: 1 / 0)
        assert backend.numba_problem() == "numba does not work here (ZeroDivisionError: division by zero)"
    finally:
        backend.numba_problem.cache_clear()


def test_the_result_says_what_was_chosen(rng):
    pytest.importorskip("torch")
    x = rng.normal(size=(60, 2))
    models = {"a": rng.normal(size=(60, 2)), "b": rng.normal(0.5, 1, size=(60, 2))}
    for asked, precision, name in (
        ("auto", "double", "numpy"),
        ("auto", "single", "numpy (float32)"),
        ("torch", "double", "torch (cpu)"),
        ("torch", "single", "torch (cpu, float32)"),
    ):
        result = compare(x, models, compute=Compute(backend=asked, precision=precision), rng=0)
        assert result.backend == name
        assert (name in str(result)) == (name != "numpy")
    refused(lambda: compare(x, models, compute=Compute(precision="half")), "precision: expected one of double, single")


def test_the_command_line_takes_a_backend(tmp_path, rng):
    pytest.importorskip("torch")
    from click.testing import CliRunner

    from relfit.cli.commands import cli

    for name, shift in (("r", 0.0), ("a", 0.0), ("b", 0.6)):
        np.save(tmp_path / f"{name}.npy", rng.normal(shift, 1, size=(50, 2)))
    files = [str(tmp_path / f"{name}.npy") for name in "rab"]
    typed = ["compare", *files, "--backend", "torch", "--precision", "single"]
    done = CliRunner().invoke(cli, typed, obj=typed)
    assert "torch (cpu, float32)" in done.output
