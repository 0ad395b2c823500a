"""The fused tiles of Numba against NumPy's, which are the reference."""

import math
import os
import re
import signal
import subprocess
import sys

import mpmath
import numpy as np
import pytest

import relfit
from relfit.compute.backend import Job, NumbaBackend, NumpyBackend
from relfit.compute.reduce import Runtime, kernel_products
from relfit.kernels.composite import Squared
from relfit.kernels.custom import Radial
from relfit.kernels.standard import IMQ, Gaussian, Matern, RationalQuadratic

numba = pytest.importorskip("numba")
from relfit.compute import numba_tiles  # noqa: E402

KERNELS = {
    "Gaussian": Gaussian(1.7),
    "squared Gaussian": Squared(Gaussian(1.7)),
    "MultiScale": relfit.MultiScale((0.5, 1.0, 2.0), 1.3),
    "IMQ": IMQ(1.2),
    "IMQ −1": IMQ(0.8, -1.0),
    "IMQ −0.3": IMQ(2.0, -0.3),
    "RationalQuadratic": RationalQuadratic(1.5),
    "RationalQuadratic 2.5": RationalQuadratic(1.5, 2.5),
    "Matern 0.5": Matern(0.5, 1.6),
    "Matern 1.5": Matern(1.5, 1.6),
    "Matern 2.5": Matern(2.5, 1.6),
    "sum": Gaussian(0.9) + IMQ(1.1) + Matern(2.5, 2.0),
    "squared sum": Squared(Gaussian(0.9) + Matern(1.5, 2.0)),
}


def jobs(backend, kernel, x, y, seed=0):
    """Every form that a reduction asks for: symmetric, across, row sums only, without the diagonal, many columns."""
    draw = np.random.default_rng(seed).random
    n, m = len(x), len(y)
    a, b, least = backend.points(kernel, x), backend.points(kernel, y), min(n, m)
    yield Job(kernel, a, None, {"phi": draw(n)}, squares=True)
    yield Job(kernel, a, b, {"phi": draw(m)}, {"phi": draw(n)}, squares=True)
    yield Job(kernel, a, b, {"phi": draw(m)})
    yield Job(kernel, a[:least], b[:least], {"phi": draw(least)}, {"phi": draw(least)}, diagonal=False, squares=True)
    which = ("phi",) if kernel.unit_rate is not None or not kernel.smooth else ("phi", "dphi", "r2ddphi")
    which = ("phi",) if isinstance(kernel, Squared) else which
    for columns in (2, 20):
        yield Job(kernel, a, None, {w: draw((n, columns)) for w in which})
        yield Job(kernel, a, b, {w: draw((m, columns)) for w in which}, {w: draw((n, columns)) for w in which})


def flat(products):
    parts = [part.ravel() for each in (products.rows, products.columns) for part in each.values()]
    return [*parts, np.array([products.squares])]


def both(kernel, x, y, precision="double", **runtime):
    """All sums by NumPy in double precision, and by Numba."""
    for backend in (NumpyBackend(), NumbaBackend(precision)):
        asked = list(jobs(backend, kernel, x, y))
        with np.errstate(all="ignore"):
            yield [part for products in kernel_products(asked, Runtime(backend, **runtime)) for part in flat(products)]


def check(kernel, x, y, precision="double"):
    for expected, found in zip(*both(kernel, x, y, precision), strict=True):
        if precision == "double":
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-290)
        else:
            np.testing.assert_allclose(found, expected, rtol=0.0, atol=3e-6 * np.abs(expected).max())


@pytest.mark.parametrize("precision", ["double", "single"])
@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_and_form_is_numpys(name, precision, rng):
    for n, m, d in ((1, 1, 1), (2, 3, 1), (7, 5, 2), (449, 63, 3), (450, 1000, 10)):
        check(KERNELS[name], rng.normal(size=(n, d)), rng.normal(0.3, 1.0, size=(m, d)), precision)


def test_every_radial_kernel_in_range_has_terms_but_those_of_functions():
    for name, kernel in KERNELS.items():
        plain = kernel.kernel if isinstance(kernel, Squared) else kernel
        assert numba_tiles.terms_of(plain, np.float64), name
    assert numba_tiles.terms_of(Radial(lambda u: np.exp(-u)), np.float64) is None
    assert numba_tiles.terms_of(relfit.Polynomial(2, scale=1.0), np.float64) is None
    for kernel in (IMQ(1e-160), IMQ(1e-3, -200.0), Gaussian(1e-180) + IMQ(), RationalQuadratic(1e170)):
        assert numba_tiles.terms_of(kernel, np.float64) is None


@pytest.mark.parametrize("kernel", [Radial(lambda u: 1.0 / (1.0 + u)), relfit.Polynomial(3, scale=0.5)])
def test_what_has_no_terms_is_left_to_numpy(kernel, rng):
    check(kernel, rng.normal(size=(50, 3)), rng.normal(size=(40, 3)))


@pytest.mark.parametrize("name", KERNELS)
def test_rows_that_are_far_apart(name, rng):
    """Kernel values that underflow, rows by differences, and all magnitudes of r² in one block."""
    x = rng.normal(size=(300, 2))
    for far in (30.0, 60.0, 1e4, 1e9):
        y = x[:200] + far * rng.random((200, 1))
        check(KERNELS[name], x, y)
        check(KERNELS[name], np.vstack([x, y]), y)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("value", [math.nan, math.inf, 1e200])
def test_what_is_not_finite_is_so_where_numpys_is(name, value, rng):
    x, y = rng.normal(size=(50, 2)), rng.normal(size=(40, 2))
    x[3, 1] = value
    for expected, found in zip(*both(KERNELS[name], x, y), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-290)


@pytest.mark.parametrize("name", ["Gaussian", "IMQ"])
@pytest.mark.parametrize("precision", ["double", "single"])
def test_the_number_of_threads_changes_no_bit(name, precision, rng):
    x, y = rng.normal(size=(2500, 4)), rng.normal(size=(2100, 4))
    backend = NumbaBackend(precision)
    one, *others = (
        [
            part
            for p in kernel_products(list(jobs(backend, KERNELS[name], x, y)), Runtime(backend, threads=t))
            for part in flat(p)
        ]
        for t in (1, 2, 4)
    )
    for other in others:
        assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def exponentials(x):
    tile = x[None].copy()
    numba_tiles.exponentials(tile)
    return tile[0]


def test_the_exponential_is_exact_to_an_ulp_over_its_range(rng):
    mpmath.mp.dps = 40
    near = np.ldexp(rng.uniform(-1.0, 1.0, 2000), rng.integers(-60, 0, 2000))
    # Halves of ln 2 are where the reduced argument changes its sign.
    halves = (np.arange(-2040, 4) / 2.0 * math.log(2.0))[:, None] * (1.0 + 1e-15 * np.arange(-2, 3))
    x = np.concatenate([rng.uniform(-708.0, 2.0, 4000), rng.uniform(-40.0, 0.0, 4000), near, halves.ravel()])
    x = x[x >= -708.0]
    exact = [mpmath.exp(mpmath.mpf(float(value))) for value in x]
    errors = [
        abs(float(mpmath.mpf(float(found)) / value - 1)) for found, value in zip(exponentials(x), exact, strict=True)
    ]
    assert max(errors) < 2.5e-16
    assert exponentials(np.zeros(1))[0] == 1.0


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_exponential_at_its_ends(dtype):
    x = np.array([0.0, -0.0, -1e30, -np.inf, np.nan, -750.0], dtype)
    np.testing.assert_array_equal(exponentials(x), [1.0, 1.0, 0.0, 0.0, np.nan, 0.0])


def test_vectors_are_used():
    """Without them the tile is slower than NumPy's, and nothing else would show it."""
    tile, side = np.zeros((64, 64)), np.ones(64)
    options = {"nogil": True, "error_model": "numpy", "fastmath": {"contract", "reassoc", "nsz"}}
    compiled = numba.njit(**options)(numba_tiles.tile_sums.py_func)
    compiled(tile, None, side, side, np.zeros(64), np.zeros(64), False)
    ((_, llvm),) = compiled.inspect_llvm().items()
    # The shift that puts n into the exponent happens in vectors of 64-bit numbers.
    assert re.search(r"shl <\d+ x i64>", llvm)


SCRIPT = """
import sys
from numba.core import caching
caching.CompileResultCacheImpl._locator_classes = caching.CompileResultCacheImpl._locator_classes[: int(sys.argv[1])]
from relfit.compute import backend, numba_tiles
print(backend.numba_problem() or "works", sum(numba_tiles.tile_sums.stats.cache_hits.values()))
"""


@pytest.mark.parametrize(("writable", "found"), [(1, ["works 0", "works 1"]), (0, ["works 0", "works 0"])])
def test_compiled_tiles_are_kept_in_a_folder_if_one_can_be_written_to(tmp_path, writable, found):
    """Without one they are compiled again in every process, and nothing is said about it."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-W", "error", "-c", SCRIPT, str(writable)]
    runs = [subprocess.run(command, env=environment, capture_output=True, text=True) for _ in range(2)]
    assert [run.stderr for run in runs] == ["", ""]
    assert [run.stdout.strip() for run in runs] == found


def _run(folder, **options):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder)}
    command = [sys.executable, "-c", SCRIPT, "1"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, **options)
    assert done.stderr == ""
    return done.stdout.strip()


@pytest.mark.parametrize(("suffix", "content"), [("nbi", b""), ("nbc", np.random.default_rng(0).bytes(5000))])
def test_a_damaged_cache_is_replaced(tmp_path, suffix, content):
    """N9: a process that was killed while Numba wrote its cache must not stop all that follow."""
    assert _run(tmp_path) == "works 0"
    files = list(tmp_path.rglob(f"*.{suffix}"))
    assert files
    for file in files:
        file.write_bytes(content)
    assert [_run(tmp_path), _run(tmp_path)] == ["works 0", "works 1"]


@pytest.mark.skipif(sys.platform == "win32", reason="there are no limits of file sizes")
def test_a_cache_that_cannot_be_written_stops_nothing(tmp_path):
    """As on a disk that is full: the compiled functions are used and not kept."""

    def no_room():
        import resource

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))

    assert _run(tmp_path, preexec_fn=no_room) == "works 0"
