"""Parquet, Feather and Arrow files by pyarrow, and what is said without it."""

import sys

import numpy as np
import pytest
from refusals import refused

from relfit.data.arrays import as_rows
from relfit.data.files import read_rows

pa = pytest.importorskip("pyarrow", reason="pyarrow reads Parquet, Feather and Arrow files")
feather = pytest.importorskip("pyarrow.feather")
parquet = pytest.importorskip("pyarrow.parquet")

pytestmark = pytest.mark.filterwarnings("error")

ROWS = np.array([[1.0, 2.5], [-3.0, 4e-7], [5.0, 6e12]])


def _write_stream(table, path):
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


def _write_file(table, path):
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)


WRITERS = {
    "a.parquet": parquet.write_table,
    "groups.parquet": lambda table, path: parquet.write_table(table, path, row_group_size=2),
    "a.feather": feather.write_feather,
    "plain.feather": lambda table, path: feather.write_feather(table, path, compression="uncompressed"),
    "file.arrow": _write_file,
    "stream.arrow": _write_stream,
}


@pytest.fixture(params=WRITERS)
def save(request, tmp_path):
    def write(table):
        path = tmp_path / request.param
        WRITERS[request.param](table if isinstance(table, pa.Table) else pa.table(table), path)
        return path

    return write


@pytest.mark.parametrize(
    "column",
    [
        *(np.array([1, 0, 1], kind) for kind in ("int8", "uint64", "float16", "float32", "bool")),
        pa.array([1, 0, 1]).cast(pa.decimal128(25, 2)),
        pa.array([1, 0, 1]).cast(pa.decimal256(60, 2)),
    ],
    ids=lambda column: str(getattr(column, "dtype", getattr(column, "type", ""))),
)
def test_numbers_of_every_kind(save, column):
    np.testing.assert_array_equal(read_rows(save({"x": column, "y": [1, 2, 3]})), [[1, 1], [0, 2], [1, 3]])


def test_columns_by_name_leave_the_others_unread(save):
    path = save({"id": ["a", "b", "c"], "x": ROWS[:, 0], "y": ROWS[:, 1], "z": [None, 1.0, 2.0]})
    np.testing.assert_array_equal(read_rows(path, columns="y,x"), ROWS[:, ::-1])
    np.testing.assert_array_equal(read_rows(path, columns="1-2"), ROWS)

    refused(lambda: read_rows(path), "expected columns of numbers, got 'id' (string)", "select numeric columns (colum")
    refused(lambda: read_rows(path, columns="w"), "expected a column called 'w', got 'id', 'x', 'y' and 'z'")
    assert as_rows("reference", save({"x": [1, 2]})).dtype == np.float64


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"x": [None, 1.0, None], "y": [1.0] * 3, "z": [1, 2, None]}, "got nulls: 2 in 'x' and 1 in 'z'; fill or drop"),
        ({"e": [[1.0, None], [2.0, 3.0]]}, "got nulls: 1 in 'e'"),
        ({"e": [[1.0, 2.0], None]}, "got nulls: 1 in 'e'"),
    ],
)
def test_nulls_are_counted_by_column_over_the_whole_file(save, table, said):
    refused(lambda: read_rows(save(table)), said)


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.float32()), pa.large_list(pa.float64()), pa.list_(pa.int16(), 2)], ids=str
)
def test_lists_of_one_length_are_columns(save, kind):
    """Embeddings are stored as one column of lists."""
    table = {"e": pa.array([[1, 2], [3, 4], [5, 6]], kind), "x": [7, 8, 9]}
    np.testing.assert_array_equal(read_rows(save(table)), [[1, 2, 7], [3, 4, 8], [5, 6, 9]])
    np.testing.assert_array_equal(read_rows(save(table), columns="e"), [[1, 2], [3, 4], [5, 6]])


def test_many_rows_in_many_groups(tmp_path, rng):
    rows = rng.normal(size=(200_000, 3))
    table = pa.table({name: rows[:, k] for k, name in enumerate("abc")})
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=7_001)
    np.testing.assert_array_equal(read_rows(tmp_path / "a.parquet", columns="c,a"), rows[:, [2, 0]])


def test_without_pyarrow_or_with_an_old_one_one_line_says_what_to_install(tmp_path, monkeypatch):
    paths = [tmp_path / name for name in ("a.parquet", "a.feather", "a.arrow")]
    for path in paths:
        path.write_bytes(b"x")
    # Older ones unpickle.
    with monkeypatch.context() as patched:
        patched.setattr(pa, "__version__", "14.0.0")
        refused(lambda: read_rows(paths[0]), "needs pyarrow 14.0.1 or newer, got 14.0.0", "-U pyarrow")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for path in paths:
        refused(lambda p=path: read_rows(p), path.name, "needs pyarrow; install it with  pip install pyarrow")
