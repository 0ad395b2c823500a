"""Sums over kernel matrices: against dense arithmetic, however they are cut, with the same bits wherever computed."""

import os
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context, parent_process

import numpy as np
import pytest
import threadpoolctl
from oracle.products import products
from refusals import refused
from threadpoolctl import threadpool_info, threadpool_limits

import relfit
from relfit.compute import reduce, schedulers
from relfit.compute.backend import NumpyBackend
from relfit.compute.memory import mapped_rows, spilled
from relfit.compute.reduce import LocalBackend, one_blas_thread
from relfit.kernels.composite import MultiScale
from relfit.kernels.standard import IMQ, Gaussian, Matern, Polynomial
from relfit.util.errors import WorkersLost
from relfit.util.libraries import has_cuda

KERNELS = [Gaussian(1.5), IMQ(), Matern(0.5, 1.0), MultiScale((0.5, 2.0), 1.0), Gaussian(1.0) + IMQ()]
ANY = [*KERNELS, Polynomial(scale=0.3)]
BACKEND = NumpyBackend()


@pytest.mark.parametrize("kernel", ANY, ids=str)
@pytest.mark.parametrize("n", [1, 2, 255, 256, 257, 700])
def test_symmetric_products_leave_out_the_diagonal(kernel, n, rng):
    x = rng.normal(size=(n, 3))
    got, rows, _, squares = products(BACKEND, kernel, x)
    np.testing.assert_allclose(got.rows["phi"], rows, atol=1e-11)
    assert got.squares == pytest.approx(squares, rel=1e-11)


@pytest.mark.parametrize("kernel", ANY, ids=str)
@pytest.mark.parametrize(("n", "m"), [(1, 1), (3, 300), (300, 3), (513, 257)])
def test_cross_products_give_rows_and_columns(kernel, n, m, rng):
    got, rows, columns, squares = products(BACKEND, kernel, rng.normal(size=(n, 2)), rng.normal(size=(m, 2)))
    np.testing.assert_allclose(got.rows["phi"], rows, atol=1e-11)
    np.testing.assert_allclose(got.columns["phi"], columns, atol=1e-11)
    assert got.squares == pytest.approx(squares, rel=1e-11)


N = 700


@pytest.fixture
def samples(rng):
    """A reference and models of unequal sizes."""
    return rng.normal(size=(N, 3)), {"a": rng.normal(0.1, 1, (500, 3)), "b": rng.normal(0.3, 1, (N, 3))}


def densities():
    """Models whose scores need several columns."""
    return {f"s{s}": relfit.Density(score=Cubic(s), dim=3) for s in (0.1, 0.4)}


class Cubic:
    """The score of exp(−‖x − s‖⁴/4), as an object that another process can import."""

    def __init__(self, shift):
        self.shift = shift

    def __call__(self, x):
        gap = x - self.shift
        return -gap * (gap**2).sum(axis=1, keepdims=True)


OF_DATA = [Gaussian(1.5), relfit.IMQ(), relfit.Gaussian(1.0) + relfit.IMQ(), relfit.Tilted(relfit.IMQ())]


def both(reference, models, kernel, **how):
    """MMD of samples and KSD of densities, computed with these options of `Compute`."""
    with relfit.computing(**how):
        return tuple(relfit.estimate(reference, each, kernel=kernel, rng=0) for each in (models, densities()))


@pytest.mark.parametrize("kernel", OF_DATA, ids=lambda k: k.describe())
def test_cutting_into_patches_changes_rounding_only(kernel, samples, monkeypatch):
    whole = both(*samples, kernel)
    monkeypatch.setattr(reduce, "PATCH_ROWS", 200)
    monkeypatch.setattr(reduce, "BLOCK_ROWS", 200)
    cut = both(*samples, kernel)
    for one, other in zip(whole, cut, strict=True):
        np.testing.assert_allclose(other.values, one.values, rtol=1e-10, atol=1e-13)
        np.testing.assert_allclose(other.covariance, one.covariance, rtol=1e-9, atol=1e-16)
        np.testing.assert_allclose(other.second_order, one.second_order, rtol=1e-9, atol=1e-18)


@pytest.mark.usefixtures("small_patches")
@pytest.mark.parametrize(
    ("kernel", "workers"),
    [(Gaussian(1.5), 2), (Gaussian(1.5), 4), (relfit.Tilted(relfit.IMQ()), 1)],
    ids=lambda part: part if isinstance(part, int) else part.describe(),
)
def test_same_bits_wherever_patches_are_computed(kernel, workers, samples):
    here = both(*samples, kernel)
    # Spawned, not forked: another test may have loaded a library with threads of its own.
    with ThreadPoolExecutor(3) as threads, ProcessPoolExecutor(workers, get_context("spawn")) as others:
        for executor in (threads, others):
            there = both(*samples, kernel, executor=executor, backend="numpy")
            for one, other in zip(here, there, strict=True):
                np.testing.assert_array_equal(other.values, one.values)
                np.testing.assert_array_equal(other.covariance, one.covariance)


@pytest.mark.usefixtures("small_patches")
def test_files_are_read_where_they_are(samples, tmp_path, monkeypatch):
    """Mapped rows reach other processes by their path; only arrays are written for them."""
    reference, models = samples
    written = []
    monkeypatch.setattr(schedulers, "spilled", lambda *args: written.append(1) or spilled(*args))
    np.save(tmp_path / "r.npy", reference)
    with ProcessPoolExecutor(1, get_context("spawn")) as workers:
        joint = relfit.estimate(
            str(tmp_path / "r.npy"), models, rng=0, compute=relfit.Compute(executor=workers, backend="numpy")
        )
    np.testing.assert_array_equal(joint.values, relfit.estimate(reference, models, rng=0).values)
    assert len(written) == len(models)


def test_mapped_rows_are_those_of_the_array(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.arange(8000.0).reshape(2000, 4))
    mapped = np.load(path, mmap_mode="r")
    part = mapped[1000:1500][7:]
    np.testing.assert_array_equal(mapped_rows(part).open(), part)
    np.testing.assert_array_equal(mapped_rows(np.asarray(mapped)).open()[5:9], mapped[5:9])
    changed = np.load(path, mmap_mode="c")
    changed[1200] = 7.0
    cut = mapped[:, :2], mapped[::2], mapped[:, 0]
    for other in (np.array(mapped), changed, *cut, mapped.astype(np.float32), [[1.0]]):
        assert mapped_rows(other) is None
    np.save(tmp_path / "y.npy", np.zeros((2000, 4)))
    (tmp_path / "y.npy").replace(path)
    assert mapped_rows(part) is None  # another file has taken its place


def test_kernels_of_functions_are_refused_by_processes(samples):
    kernel = relfit.Radial(lambda t: np.exp(-t), lambda t: -np.exp(-t), lambda t: np.exp(-t))
    with ProcessPoolExecutor(1, get_context("spawn")) as processes:
        compute = relfit.Compute(executor=processes)
        refused(lambda: relfit.estimate(*samples, kernel=kernel, compute=compute), "cannot be sent to other processes")


class Deadly(relfit.IMQ):
    """A kernel that ends the worker that evaluates it on a tile."""

    def weights(self, t, which):
        if t.size > 10_000 and parent_process() is not None:
            os._exit(1)
        return super().weights(t, which)


@pytest.mark.usefixtures("small_patches")
def test_a_dead_process_is_reported(samples):
    with (
        ProcessPoolExecutor(1, get_context("spawn")) as processes,
        pytest.raises(WorkersLost, match=r"ended without a result.* with a checkpoint, the same call resumes"),
    ):
        relfit.estimate(*samples, kernel=Deadly(), rng=0, compute=relfit.Compute(executor=processes))


@pytest.mark.gpu
@pytest.mark.skipif(not has_cuda(), reason="needs a CUDA device")
@pytest.mark.parametrize("precision", ["double", "single"])
def test_workers_use_their_device(precision, samples):
    here = both(*samples, Gaussian(1.5))
    with ProcessPoolExecutor(1, get_context("spawn")) as processes:
        there = both(*samples, Gaussian(1.5), executor=processes, precision=precision)
        assert processes.submit(_place, precision).result().startswith("torch" if precision == "double" else "triton")
    for one, other in zip(here, there, strict=True):
        bound = 1e-10 if precision == "double" else 1e-3 * one.standard_error.min()
        assert np.abs(other.values - one.values).max() <= bound
        # Another library adds in another order: equal bits would mean that NumPy computed.
        assert not np.array_equal(other.covariance, one.covariance)


def _place(precision):
    """The backend of a worker, as it names itself."""
    return LocalBackend(precision, fused=precision == "single").here().name


def _blas_threads():
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


@pytest.fixture
def two_blas_threads():
    with threadpool_limits(2, "blas"):
        # As in a process where nobody has set a limit: no thread owns it.
        getattr(threadpoolctl.OpenBLASController, "clear_controlling_thread", lambda: None)()
        before = _blas_threads()
        assert set(before) == {2}
        yield before


def test_overlapping_calls_give_blas_its_threads_back(two_blas_threads):
    """The first to come is the first to go, and the last one restores what the first one found."""
    with ExitStack() as later:
        with one_blas_thread:
            later.enter_context(one_blas_thread)
            assert set(_blas_threads()) == {1}
        assert set(_blas_threads()) == {1}
    assert _blas_threads() == two_blas_threads


def test_an_interrupt_while_blas_gets_its_threads_back(monkeypatch):
    """It may come when one of two libraries has them back."""

    class Limit:
        restored = 0

        def restore_original_limits(self):
            self.restored += 1
            if self.restored == 1:
                raise KeyboardInterrupt

    class Controller:
        made = Limit()

        def limit(self, **_):
            return self.made

    monkeypatch.setattr(reduce, "_blas", Controller)
    with pytest.raises(KeyboardInterrupt), one_blas_thread:
        pass
    assert Controller.made.restored == 2
