"""Patches: the same sums however a kernel matrix is cut, and the same bits whoever computes them."""

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest

import relfit
from relfit.compute import patches
from relfit.compute import schedulers as processes
from relfit.compute.choice import LocalBackend
from relfit.compute.rows import mapped_rows, written_rows
from relfit.kernels.standard import Gaussian
from relfit.util.libraries import has_cuda

N = 700


@pytest.fixture
def small_patches(monkeypatch):
    """Patches of 200 rows, so that small samples have several."""
    monkeypatch.setattr(patches, "PATCH_ROWS", 200)
    monkeypatch.setattr(patches, "BLOCK_ROWS", 200)


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


KERNELS = [Gaussian(1.5), relfit.IMQ(), relfit.Gaussian(1.0) + relfit.IMQ(), relfit.Tilted(relfit.IMQ())]


def both(reference, models, kernel, **how):
    """MMD of samples and KSD of densities, computed with these options of `Compute`."""
    with relfit.computing(**how):
        return tuple(relfit.estimate(reference, each, kernel=kernel, rng=0) for each in (models, densities()))


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.describe())
def test_cutting_into_patches_changes_rounding_only(kernel, samples, monkeypatch):
    whole = both(*samples, kernel)
    monkeypatch.setattr(patches, "PATCH_ROWS", 200)
    monkeypatch.setattr(patches, "BLOCK_ROWS", 200)
    cut = both(*samples, kernel)
    for one, other in zip(whole, cut, strict=True):
        np.testing.assert_allclose(other.values, one.values, rtol=1e-10, atol=1e-13)
        np.testing.assert_allclose(other.covariance, one.covariance, rtol=1e-9, atol=1e-16)
        np.testing.assert_allclose(other.second_order, one.second_order, rtol=1e-9, atol=1e-18)


def test_paired_rows_are_left_out_in_every_patch(samples, monkeypatch):
    reference, models = samples
    pairs = {name: np.resize(x, reference.shape) for name, x in models.items()}
    whole = relfit.estimate(reference, pairs, dependence="paired", rng=0)
    monkeypatch.setattr(patches, "PATCH_ROWS", 200)
    monkeypatch.setattr(patches, "BLOCK_ROWS", 200)
    cut = relfit.estimate(reference, pairs, dependence="paired", rng=0)
    np.testing.assert_allclose(cut.values, whole.values, rtol=1e-10)
    np.testing.assert_allclose(cut.covariance, whole.covariance, rtol=1e-9)


@pytest.mark.usefixtures("small_patches")
@pytest.mark.parametrize(
    ("kernel", "workers"),
    [(Gaussian(1.5), 2), (Gaussian(1.5), 4), (relfit.Tilted(relfit.IMQ()), 1)],
    ids=lambda part: part if isinstance(part, int) else part.describe(),
)
def test_same_bits_whoever_computes(kernel, workers, samples):
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
    monkeypatch.setattr(processes, "written_rows", lambda *given: written.append(1) or written_rows(*given))
    np.save(tmp_path / "r.npy", reference)
    with ProcessPoolExecutor(1, get_context("spawn")) as workers:
        found = relfit.estimate(
            str(tmp_path / "r.npy"), models, rng=0, compute=relfit.Compute(executor=workers, backend="numpy")
        )
    np.testing.assert_array_equal(found.values, relfit.estimate(reference, models, rng=0).values)
    assert len(written) == len(models)


def test_mapped_rows_are_those_of_the_array(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.arange(8000.0).reshape(2000, 4))
    mapped = np.load(path, mmap_mode="r")
    part = mapped[1000:1500][7:]
    np.testing.assert_array_equal(mapped_rows(part)[:], part)
    np.testing.assert_array_equal(mapped_rows(np.asarray(mapped))[5:9], mapped[5:9])
    for other in (np.array(mapped), mapped[:, :2], mapped[::2], mapped.astype(np.float32), mapped[:, 0], [[1.0]]):
        assert mapped_rows(other) is None
    np.save(tmp_path / "y.npy", np.zeros((2000, 4)))
    (tmp_path / "y.npy").replace(path)
    assert mapped_rows(part) is None  # another file has taken its place


@pytest.mark.usefixtures("small_patches")
def test_progress_counts_every_pair_once(samples):
    seen = []
    relfit.estimate(*samples, kernel=Gaussian(1.0), rng=0, progress=lambda done, total: seen.append((done, total)))
    n, (a, b) = N, (500, N)
    pairs = sum(m * (m - 1) // 2 for m in (n, a, b)) + n * (a + b)
    assert seen[-1] == (pairs, pairs)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_patches_cover_every_pair_once():
    sizes = {0: 1000, 1: 450}
    own = patches._patches(0, 0, sizes, 300)
    across = patches._patches(1, 0, sizes, 300)
    assert sum(patch.pairs for patch in own) == 1000 * 999 // 2
    assert sum(patch.pairs for patch in across) == 450 * 1000
    assert len(own) == 4 * 5 // 2
    assert len(across) == 2 * 4


def test_patches_shrink_where_each_pair_is_expensive():
    easy, hard = (patches.patch_rows(width, relfit.compute.tiles.NUMPY) for width in (11, 2048))
    assert easy == patches.PATCH_ROWS
    # A quarter of the side would be √(2048/256) = 2.8 times less: whole blocks, rounded up.
    assert hard == 7 * patches.BLOCK_ROWS


def test_kernels_of_functions_are_refused_by_processes(samples):
    kernel = relfit.Radial(lambda t: np.exp(-t), lambda t: -np.exp(-t), lambda t: np.exp(-t))
    with (
        ProcessPoolExecutor(1, get_context("spawn")) as processes,
        pytest.raises(relfit.InputError, match="cannot be sent to other processes"),
    ):
        relfit.estimate(*samples, kernel=kernel, compute=relfit.Compute(executor=processes))


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
        # Another library adds in another order: the same bits would be NumPy's.
        assert not np.array_equal(other.covariance, one.covariance)


def _place(precision):
    """The backend of a worker, as it names itself."""
    return LocalBackend(precision, fused=precision == "single").there.name
