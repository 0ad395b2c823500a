"""The fused kernels in the interpreter of Triton, or on a CUDA device where there is one, against dense float64."""

import numpy as np
import pytest
from oracle import dense

from relfit.compute.backend import Job, NumpyBackend
from relfit.compute.reduce import Runtime, kernel_products
from relfit.kernels.standard import IMQ, Gaussian, Matern, Polynomial, RationalQuadratic

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from relfit.compute import triton_backend  # noqa: E402
from relfit.compute.triton_backend import TritonBackend  # noqa: E402

CUDA = torch.cuda.is_available()
DEVICES = [
    pytest.param("cpu", marks=pytest.mark.skipif(CUDA, reason="the CUDA device runs them")),
    pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not CUDA, reason="no CUDA device")]),
]
KERNELS = {
    "gaussian": Gaussian(2.0),
    "imq": IMQ(1.3),
    "imq of another power": IMQ(1.3, -0.8),
    "rational quadratic": RationalQuadratic(1.5, 1.0),
    "linear": Polynomial(1, scale=0.3),
    "quadratic": Polynomial(2, scale=0.3),
    "cubic": Polynomial(scale=0.3),
    "quartic": Polynomial(4, scale=0.3),
}
# The largest error allowed, relative to the largest sum.
TOLERANCE = 1e-6
# What is_usable_for answered in this test.
ANSWERS = []


@pytest.fixture(params=DEVICES)
def backend(request, monkeypatch):
    if request.param == "cpu":
        # Small tiles, so that small matrices have clear tiles, diagonal ones and ragged edges.
        monkeypatch.setattr(triton_backend, "SUMS", (16, 32, 4))
        monkeypatch.setattr(triton_backend, "DEEP", (32, 16, 4))
        monkeypatch.setattr(triton_backend, "PRODUCTS", (16, 32, 4))
        monkeypatch.setattr(triton_backend, "FLUSHED", 64)
    asked = triton_backend.is_usable_for
    ANSWERS.clear()
    monkeypatch.setattr(triton_backend, "is_usable_for", lambda block: ANSWERS.append(asked(block)) or ANSWERS[-1])
    return TritonBackend(request.param)


def job_of(backend, kernel, x, y, right, left, **options):
    points = [None if rows is None else backend.points(kernel, rows) for rows in (x, y)]
    return Job(kernel, *points, right, left, **options)


def check(backend, kernel, x, y=None, columns=0, weights=("phi",), **options):
    """Every product of the fused kernels, compared with dense arithmetic, and that they did not decline."""
    rng = np.random.default_rng(2)
    m = len(x) if y is None else len(y)
    right, left = (
        {w: rng.normal(size=(rows, columns)) if columns else np.ones(rows) for w in weights} for rows in (m, len(x))
    )
    job = job_of(backend, kernel, x, y, right, left if y is not None else {}, squares="phi" in weights, **options)
    got = kernel_products([job], Runtime(backend))[0]
    assert all(ANSWERS)
    r2 = ((x[:, None] - (x if y is None else y)[None]) ** 2).sum(2)
    matrices = [dense.gram(kernel, x, x if y is None else y)] if len(weights) == 1 else kernel.weights(r2, weights)
    for w, matrix in zip(weights, matrices, strict=True):
        if y is None or not options.get("diagonal", True):
            np.fill_diagonal(matrix, 0.0)
        close(got.rows[w], matrix @ right[w])
        if y is not None:
            close(got.columns[w], matrix.T @ left[w])
        if w == "phi":
            assert got.squares == pytest.approx((matrix**2).sum(), rel=10 * TOLERANCE)


def close(got, wanted):
    np.testing.assert_allclose(got, wanted, rtol=0, atol=TOLERANCE * np.abs(wanted).max() + 1e-300)


@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel(backend, name, rng):
    x, y = rng.normal(size=(70, 3)), rng.normal(size=(45, 3))
    check(backend, KERNELS[name], x)
    check(backend, KERNELS[name], x, y)
    check(backend, KERNELS[name], x, y, columns=2)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (2, 33), (16, 32), (17, 31), (48, 64), (65, 3)])
def test_odd_shapes(backend, n, m, rng):
    x, y = rng.normal(size=(n, 2)), rng.normal(size=(m, 2))
    check(backend, Gaussian(1.0), x, y)
    check(backend, Gaussian(1.0), x, y, columns=1)
    if n > 1:
        check(backend, Gaussian(1.0), x)


@pytest.mark.parametrize("d", [1, 3, 4, 9, 14, 15, 20, 30, 84])
def test_every_layout_of_columns(backend, d, rng):
    """Operands of 16 to 272 columns, with and without a tail."""
    x = rng.normal(size=(40, d))
    check(backend, Gaussian(np.sqrt(2.0 * d)), x)
    if d < 84:
        check(backend, Gaussian(np.sqrt(2.0 * d)), x, columns=3)


@pytest.mark.parametrize("kernel", [Gaussian(18.0), IMQ(9.0), Polynomial(scale=1 / 150)], ids=["g", "imq", "poly"])
def test_rows_too_long_to_be_held(backend, kernel, rng):
    x, y = rng.normal(size=(70, 150)), rng.normal(size=(40, 150))
    check(backend, kernel, x)
    check(backend, kernel, x, y)
    check(backend, kernel, x[:40], y, diagonal=False)


@pytest.mark.parametrize("columns", [1, 16, 17, 34, 50, 66, 130, 140])
def test_any_number_of_right_hand_sides(backend, columns, rng):
    check(backend, Gaussian(1.5), rng.normal(size=(50, 2)), rng.normal(size=(70, 2)), columns=columns)


@pytest.mark.parametrize("exponent", [-0.5, -1.5, -0.3])
def test_the_derivatives_that_ksd_needs(backend, exponent, rng):
    x = rng.normal(size=(70, 3))
    for columns in (0, 2):
        check(backend, IMQ(1.2, exponent), x, columns=columns, weights=("phi", "dphi", "r2ddphi"))


@pytest.mark.parametrize("symmetric", [True, False])
def test_masks_for_all_units_change_nothing(backend, symmetric, monkeypatch, rng):
    """Small matrices are computed by one launch, with masks; larger ones by two."""
    monkeypatch.setattr(triton_backend, "SUMS", (16, 32, 4))
    x, y = rng.normal(size=(2, 75, 3))
    found = []
    for few in (0, 10_000):
        monkeypatch.setattr(triton_backend, "FEW_UNITS", few)
        triton_backend._units_on.cache_clear()
        ones = {"phi": np.ones(75)}
        job = job_of(backend, Gaussian(1.0), x, None if symmetric else y, ones, {} if symmetric else ones, squares=True)
        found.append(kernel_products([job], Runtime(backend))[0])
    triton_backend._units_on.cache_clear()
    np.testing.assert_array_equal(found[0].rows["phi"], found[1].rows["phi"])
    assert found[0].squares == pytest.approx(found[1].squares, rel=1e-12)


def test_paired_sums_leave_out_equal_rows(backend, rng):
    x, y = rng.normal(size=(2, 75, 2))
    check(backend, Gaussian(1.0), x, y, diagonal=False)
    check(backend, Gaussian(1.0), x, y, columns=2, diagonal=False)


@pytest.mark.parametrize(
    ("kernel", "stretch", "columns"),
    [
        (Matern(1.5, 1.0), 1.0, 0),
        (Gaussian(1.0) + IMQ(), 1.0, 0),
        (Gaussian(0.02), 1.0, 0),
        (IMQ(0.02), 1.0, 0),
        (Polynomial(5, scale=0.2), 1.0, 0),
        (Gaussian(30.0), 1.0, 2),
    ],
    ids=["matern", "sum", "far rows", "far rows, imq", "fifth power", "long rows, right-hand sides"],
)
def test_what_does_not_fit_is_left_to_torch(backend, kernel, stretch, columns, rng):
    x = rng.normal(size=(60, 100 if columns else 2)) * stretch
    side = rng.normal(size=(60, columns)) if columns else np.ones(60)
    job = job_of(backend, kernel, x, None, {"phi": side}, {}, squares=True)
    got = kernel_products([job], Runtime(backend))[0]
    assert ANSWERS == [False]
    plain = kernel_products([job_of(NumpyBackend(), kernel, x, None, {"phi": side}, {}, squares=True)], Runtime())[0]
    np.testing.assert_allclose(got.rows["phi"], plain.rows["phi"], rtol=1e-10)
    assert got.squares == pytest.approx(plain.squares, rel=1e-10)


def test_the_same_bits_every_time(backend, rng):
    """Sums leave the programs in fixed point, so that their order changes nothing."""
    x = rng.normal(size=(110 if backend.device == "cpu" else 20_000, 3))
    kernel = Gaussian(1.0)
    first, second = (
        kernel_products(
            [job_of(backend, kernel, x, None, {"phi": np.ones(len(x))}, {}, squares=True)], Runtime(backend)
        )[0]
        for _ in range(2)
    )
    np.testing.assert_array_equal(first.rows["phi"], second.rows["phi"])
    assert first.squares == second.squares
