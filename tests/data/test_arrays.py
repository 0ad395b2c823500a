"""as_rows: every array-like, of any library, becomes float64 rows or is refused in one line."""

import datetime
import decimal
import subprocess
import sys

import numpy as np
import pytest
from refusals import refused

import relfit
from relfit.data.arrays import LARGEST_VALUE, as_rows

pytestmark = pytest.mark.filterwarnings("error")

ROWS = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])


def _same(value, expected=ROWS):
    rows = as_rows("reference", value)
    assert type(rows) is np.ndarray
    assert rows.dtype == np.float64
    assert rows.flags.c_contiguous
    np.testing.assert_array_equal(rows, expected)


@pytest.mark.parametrize(
    "value",
    [
        ROWS,
        ROWS.tolist(),
        tuple(map(tuple, ROWS.tolist())),
        [np.array([1, 2]), np.array([3, 4]), np.array([5, 6])],
        ROWS.astype(np.float32),
        ROWS.astype(np.float16),
        ROWS.astype(np.longdouble),
        ROWS.astype(">f8"),
        ROWS.astype(np.int8),
        ROWS.astype(np.uint64),
        np.asfortranarray(ROWS),
        np.repeat(ROWS, 2, axis=0)[::2],
        np.flip(np.flip(ROWS, 0).copy(), 0),
        ROWS.T.copy().T,
        np.ma.masked_array(ROWS, mask=False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_numbers_in_any_form_become_float64_rows(value):
    _same(value, ROWS)


@pytest.mark.parametrize(
    ("value", "came"),
    [
        (np.array([[1.0, object()]], dtype=object), "Python objects"),
        ([[decimal.Decimal(1)]], "Python objects"),
        ([10**30], "Python objects"),
        ({"a": [1.0]}, "Python objects"),
        (iter([1.0]), "Python objects"),
        (None, "Python objects"),
        ([[1 + 2j]], "complex numbers"),
        ([["1.0"]], "text"),
        ([b"1.0"], "text"),
        (b"1.0", "text"),
        (np.array(["2020-01-01"], dtype="M8[D]"), "dates"),
        ([datetime.date(2020, 1, 1)], "Python objects"),
        (np.array([1], dtype="m8[s]"), "durations"),
        (np.array([(1.0, 2.0)], dtype=[("a", float), ("b", float)]), "records"),
    ],
)
def test_what_is_not_a_number_is_refused_by_kind(value, came):
    refused(lambda: as_rows("model 'x'", value), "model 'x': expected numbers, got ", came, "convert to float")


def test_other_numbers_of_axes_are_refused_with_the_shape():
    for shape in ((2, 3, 4), (1, 1, 1, 1), ()):
        array = np.ones(shape)
        refused(lambda x=array: as_rows("reference", x), "reference: expected rows and columns", str(shape), "flatten")


def test_what_is_no_complete_finite_row_is_counted():
    masked = np.ma.masked_array(ROWS, mask=[[1, 0], [0, 0], [1, 0]])
    refused(lambda: as_rows("reference", masked), "reference: expected complete rows, got 2 masked values")
    # (2e152)² overflows next to a kernel length of 1e-152, so values from 1e152 on are refused and not clipped.
    assert LARGEST_VALUE == 1e152
    given = np.ones((5, 2))
    given[3, 1] = -1e300
    refused(lambda: as_rows("reference", given), "below 1e+152", "1 of 5 rows", "row 3", "rescale")
    given[3, 1] = 9.9e151
    assert as_rows("reference", given)[3, 1] == 9.9e151


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_non_finite_rows_are_counted_and_the_first_is_named(dtype):
    given = np.ones((10, 3), dtype=dtype)
    for bad in (np.nan, np.inf, -np.inf):
        given[4, 2] = given[7, 0] = given[7, 1] = bad
        said = ("model 'x': expected finite numbers", "2 of 10 rows", "first: row 4)")
        refused(lambda: as_rows("model 'x'", given), *said)


# --- torch


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch", reason="torch is not installed")


@pytest.mark.parametrize("kind", ["float64", "float32", "float16", "bfloat16", "int64", "uint8"])
def test_torch_tensors(torch, kind):
    _same(torch.tensor(ROWS).to(getattr(torch, kind)))


def test_torch_tensors_in_every_state(torch):
    tensor = torch.tensor(ROWS, requires_grad=True)
    _same(tensor)
    _same(tensor * 1.0)
    _same(torch.nn.Parameter(torch.tensor(ROWS)))
    _same(torch.tensor(ROWS).T.contiguous().T)
    _same(torch.tensor(ROWS).to_sparse())
    _same(torch.tensor(ROWS)[:, 0], ROWS[:, :1])
    _same(list(torch.tensor(ROWS)))
    _same(torch.tensor([[True, False]]), [[1.0, 0.0]])
    refused(lambda: as_rows("model 'x'", torch.ones(2, 2, 2)), "model 'x': expected rows and columns", "(2, 2, 2)")
    refused(lambda: as_rows("model 'x'", torch.ones(2, 2, device="meta")), "model 'x': expected an array, got a Tensor")
    refused(lambda: as_rows("model 'x'", torch.ones(2, dtype=torch.complex64)), "model 'x': ", "complex numbers")
    refused(lambda: as_rows("model 'x'", torch.tensor([1.0, float("nan")])), "1 of 2 rows (first: row 1)")


@pytest.mark.gpu
def test_torch_tensors_on_a_gpu(torch):
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    _same(torch.tensor(ROWS, device="cuda", requires_grad=True))
    _same(torch.tensor(ROWS, device="cuda").bfloat16())


@pytest.mark.gpu
def test_cupy_arrays():
    cupy = pytest.importorskip("cupy", reason="cupy is not installed")
    if not cupy.cuda.is_available():
        pytest.skip("no CUDA device")
    _same(cupy.asarray(ROWS))


# --- JAX


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "float16", "int32", "float8_e5m2"])
def test_jax_arrays(kind):
    jnp = pytest.importorskip("jax.numpy", reason="jax is not installed")
    _same(jnp.asarray(ROWS, dtype=getattr(jnp, kind)))


# --- frames


@pytest.fixture(scope="module")
def pandas():
    return pytest.importorskip("pandas", reason="pandas is not installed")


def test_pandas(pandas):
    _same(pandas.DataFrame(ROWS, columns=["a", "b"], index=[7, 7, 9]))
    _same(pandas.DataFrame({"a": [1, 3, 5], "b": [2.0, 4.0, 6.0]}))
    _same(pandas.DataFrame(ROWS, columns=["a", "a"]))
    _same(pandas.DataFrame({"a": [1, 3, 5], "b": [2, 4, 6]}).astype({"a": "Int64", "b": "Float32"}))
    _same(pandas.DataFrame({"a": [True, False], "b": [0.5, 1.0]}), [[1.0, 0.5], [0.0, 1.0]])
    _same(pandas.Series([1.0, 2.0]), [[1.0], [2.0]])
    _same(pandas.DataFrame({"a": pandas.arrays.SparseArray([0.0, 2.0])}), [[0.0], [2.0]])
    frame = pandas.DataFrame({"id": ["x", "y"], "x": [1.0, 2.0], "when": pandas.to_datetime(["2020", "2021"])})
    frame["kind"], frame["c"] = pandas.Categorical([1, 2]), [1j, 2j]
    message = refused(lambda: as_rows("reference", frame), "reference: expected columns of numbers, got 'id' (")
    assert "'x'" not in message
    for part in ("'when' (Datetime(", "'kind' (Categorical)", "'c' (Unknown)", "drop or convert them"):
        assert part in message
    refused(lambda: as_rows("reference", pandas.Series(["x"], name="s")), "'s' (")
    refused(lambda: as_rows("reference", pandas.DataFrame({"a": [1.0, None]})), "1 of 2 rows", "row 1")
    refused(lambda: as_rows("reference", pandas.DataFrame({"a": [None, 1]}, dtype="Int64")), "1 of 2 rows", "row 0")


@pytest.fixture(scope="module")
def polars():
    return pytest.importorskip("polars", reason="polars is not installed")


def test_polars(polars):
    frame = polars.DataFrame({"a": [1, 3, 5], "b": [2.0, 4.0, 6.0]})
    _same(frame)
    _same(frame.lazy())
    _same(frame["b"], ROWS[:, 1:])
    _same(frame.cast(polars.Float32))
    _same(frame.cast(polars.Decimal(10, 2)))
    _same(polars.DataFrame({"a": [True, False], "b": [0.5, 1.0]}), [[1.0, 0.5], [0.0, 1.0]])
    frame = polars.DataFrame({"id": ["x", "y"], "x": [1.0, 2.0], "e": [[1.0], [2.0]]})
    refused(lambda: as_rows("reference", frame), "got 'id' (String) and 'e' (List(Float64)); drop or convert them")
    refused(lambda: as_rows("reference", frame.lazy()), "got 'id' (String)")
    missing = polars.DataFrame({"x": [1.0, None, None], "y": [1, 2, 3]})
    refused(lambda: as_rows("reference", missing), "reference: expected finite numbers", "2 of 3 rows (first: row 1)")
    refused(lambda: as_rows("reference", polars.DataFrame({"x": [1.0, float("nan")]})), "1 of 2 rows")
    refused(lambda: as_rows("reference", polars.DataFrame()), "at least one row and one column")


def test_arrow_tables():
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    table = pa.table({"a": ROWS[:, 0], "b": ROWS[:, 1]})
    _same(table)
    _same(table.to_batches()[0])
    _same(pa.table([ROWS[:, 0], ROWS[:, 1]], names=["a", "a"]))
    _same(pa.table({"e": [[1, 2], [3, 4], [5, 6]]}))
    refused(lambda: as_rows("reference", pa.table({"a": [1.0], "id": ["x"]})), "'id' (string)", "drop or convert")
    refused(lambda: as_rows("reference", pa.table({"a": [1.0, None]})), "got nulls: 1 in 'a'")


def test_duckdb_relations():
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    relation = duckdb.sql("SELECT * FROM (VALUES (1.0::DOUBLE, 2.0::DOUBLE), (3.0, 4.0), (5.0, 6.0)) AS t(a, b)")
    _same(relation)


# --- dask


def test_dask_arrays_are_computed():
    da = pytest.importorskip("dask.array", reason="dask[array] is not installed")
    _same(da.from_array(ROWS, chunks=(2, 1)))
    _same(da.from_array(ROWS, chunks=2).astype("f4") * 1)
    refused(lambda: as_rows("reference", da.ones((2, 2, 2))), "reference: expected rows and columns", "(2, 2, 2)")

    def fail(block):
        raise OSError("disk\ngone")

    broken = da.from_array(ROWS).map_blocks(fail, dtype=float)
    refused(lambda: as_rows("reference", broken), "reference: the dask Array cannot be computed (OSError: disk gone)")


# --- protocols


class Exchanged:
    """An array known by the exchange protocol only."""

    def __init__(self, array, device=(1, 0)):
        self.array, self.device = array, device

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.device


class Old(Exchanged):
    """The first version of the protocol had no options but the stream."""

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()


class Convertible:
    def __array__(self, dtype=None, copy=None):
        return ROWS


def test_one_dimension_is_a_column_and_objects_come_by_protocol():
    _same(Convertible())
    _same(Exchanged(ROWS.copy()))
    _same(Exchanged(ROWS.astype(np.float32)))
    _same(Old(ROWS.copy()))
    _same([1, 2, 3], [[1.0], [2.0], [3.0]])
    _same(np.arange(6)[::2], [[0.0], [2.0], [4.0]])


# --- the whole way


def test_a_comparison_of_mixed_libraries(torch, pandas, polars, rng):
    da = pytest.importorskip("dask.array", reason="dask[array] is not installed")
    jnp = pytest.importorskip("jax.numpy", reason="jax is not installed")
    samples = rng.normal(size=(4, 60, 2)).astype(np.float32)
    given = {"t": torch.tensor(samples[0]), "j": jnp.asarray(samples[1]), "p": polars.DataFrame(samples[2])}
    plain = dict(zip("tjp", samples[:3], strict=True))
    mixed = relfit.compare(pandas.DataFrame(samples[3]), given, rng=0)
    # A frame as the reference is a table: its columns are scaled, and those of every model with them.
    scaled = relfit.compare(samples[3], plain, scale="auto", rng=0)
    np.testing.assert_allclose(mixed.discrepancy, scaled.discrepancy, rtol=1e-12)
    expected = relfit.compare(samples[3], plain, rng=0).to_json()
    assert relfit.compare(da.from_array(samples[3]), given, rng=0).to_json() == expected


def test_no_library_is_imported_for_an_array():
    libraries = ["torch", "jax", "pandas", "polars", "dask", "pyarrow", "safetensors", "zarr", "numcodecs", "cupy"]
    code = (
        "import sys, numpy, relfit, relfit.cli\n"
        "x = numpy.random.default_rng(0).normal(size=(3, 40, 2))\n"
        "relfit.compare(x[0], list(x[1:].tolist()), rng=0)\n"
        f"print(sorted(set({libraries!r}) & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
