"""Zarr arrays in folders and .zip files; a codec that could run code never does."""

import json
import pickle
import sys

import numpy as np
import pytest
from hostile import Trap
from refusals import refused

import relfit
from relfit.data.arrays import as_rows
from relfit.data.files import name_of, read_rows
from relfit.data.files.arrays import _codec_names

zarr = pytest.importorskip("zarr", minversion="3", reason="zarr reads Zarr arrays")
numcodecs = pytest.importorskip("numcodecs")

pytestmark = pytest.mark.filterwarnings("error")

ROWS = np.arange(40.0).reshape(10, 4) / 7


def _create(store, array=ROWS, **options):
    made = zarr.create_array(store, shape=array.shape, dtype=array.dtype, chunks=(3,) * array.ndim, **options)
    made[...] = array
    return made


@pytest.fixture(params=["a.zarr", "folder", "a.zip", "a.zarr.zip"])
def path(request, tmp_path):
    return tmp_path / request.param


def _store(path):
    zipped = path.name.endswith(".zip")
    return zarr.storage.ZipStore(path, mode="w") if zipped else zarr.storage.LocalStore(path)


@pytest.mark.parametrize("version", [2, 3])
def test_round_trip(path, version):
    with _store(path) as store:
        _create(store, zarr_format=version)
    np.testing.assert_array_equal(as_rows("reference", path), ROWS)
    np.testing.assert_array_equal(read_rows(path, columns="3,0-1"), ROWS[:, [3, 0, 1]])
    refused(lambda: read_rows(path, columns="4"), str(path), "expected columns from 0 to 3, got 4")
    refused(lambda: read_rows(f"{path}:x") if path.suffix else read_rows(path, columns="x"), str(path))
    assert name_of(path) == path.name.split(".")[0]


@pytest.mark.parametrize("kind", ["float32", "float16", "int8", "uint64", "bool", ">f8"])
def test_numbers_of_every_kind(tmp_path, kind):
    array = (ROWS[:, :2] > 2).astype(kind)
    _create(tmp_path / "a.zarr", array)
    np.testing.assert_array_equal(as_rows("reference", tmp_path / "a.zarr"), array)


def test_one_array_of_a_group(path):
    with _store(path) as store:
        group = zarr.open_group(store, mode="w")
        made = group.create_array("deep/x", shape=ROWS.shape, dtype="f8")
        made[:] = ROWS
    np.testing.assert_array_equal(read_rows(path), ROWS)
    if path.suffix:
        np.testing.assert_array_equal(read_rows(f"{path}:deep/x"), ROWS)
        refused(lambda: read_rows(f"{path}:deep"), "expected an array called 'deep', got deep/x")


def test_several_arrays_are_told_apart_by_name(tmp_path):
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    for name in ("x", "y"):
        group.create_array(name, shape=(3, 2), dtype="f8")[:] = len(name)
    refused(lambda: read_rows(tmp_path / "a.zarr"), "expected one array, got 2 (", "select one as a.zarr:NAME")
    assert name_of(f"{tmp_path / 'a.zarr'}:y") == "a:y"
    # A folder of another name: what the refusal says is what works.
    group = zarr.open_group(tmp_path / "store", mode="w")
    for name in ("x", "deep/y"):
        group.create_array(name, shape=(3, 2), dtype="f8")[:] = len(name)
    refused(lambda: read_rows(tmp_path / "store"), "select one as store/NAME")
    assert (read_rows(tmp_path / "store/deep/y") == 6).all()


@pytest.mark.parametrize("memory", [None, "4GB"])
def test_arrays_of_a_group_are_compared_like_arrays_in_memory(tmp_path, memory, rng):
    samples = {name: rng.normal(shift, 1, (90, 3)) for name, shift in {"data": 0.0, "a": 0.0, "b": 0.8}.items()}
    group = zarr.open_group(tmp_path / "all.zarr", mode="w")
    for name, rows in samples.items():
        group.create_array(f"runs/{name}", shape=rows.shape, chunks=(20, 2), dtype="f8")[:] = rows
    files = {name: f"{tmp_path}/all.zarr:runs/{name}" for name in samples}
    compute = relfit.Compute(memory=memory)
    expected, found = (relfit.compare(each.pop("data"), each, rng=0, compute=compute) for each in (samples, files))
    np.testing.assert_allclose(found.estimates, expected.estimates, rtol=0, atol=1e-12)
    assert found.inputs == expected.inputs


@pytest.mark.parametrize(
    "codecs",
    [
        dict(zarr_format=2, compressors=numcodecs.Blosc(), filters=[numcodecs.Delta("<f8")]),
        dict(zarr_format=2, compressors=numcodecs.Zlib(), filters=[numcodecs.Shuffle(8)]),
        dict(zarr_format=3, compressors=zarr.codecs.GzipCodec()),
        dict(zarr_format=3, compressors=[zarr.codecs.BloscCodec(), zarr.codecs.Crc32cCodec()]),
        dict(zarr_format=3, shards=(6, 6)),
        dict(zarr_format=3, compressors=None),
    ],
    ids=["delta and blosc", "shuffle and zlib", "gzip", "blosc and checksum", "shards", "none"],
)
def test_usual_compression_is_read(tmp_path, codecs):
    _create(tmp_path / "a.zarr", **codecs)
    np.testing.assert_array_equal(read_rows(tmp_path / "a.zarr"), ROWS)


@pytest.mark.parametrize(
    "changes",
    [
        {"compressor": {"id": "pickle"}, "filters": None},
        {"compressor": None, "filters": [{"id": "pickle"}]},
        {"compressor": None, "filters": [{"id": "delta", "dtype": "<f8"}, {"id": "pickle", "protocol": 5}]},
        {"compressor": None, "filters": [{"id": "pickle"}], "dtype": "|O", "fill_value": None},
    ],
    ids=str,
)
def test_a_pickle_in_a_chunk_is_never_opened(tmp_path, changes):
    """numcodecs has a codec that unpickles chunks, and a file names its own codecs.

    Recent numcodecs refuse by themselves; that relfit does so too is shown by the codec of the next test.
    """
    trap, folder = Trap(tmp_path / "sprung"), tmp_path / "a.zarr"
    _create(folder, zarr_format=2)
    described = {**json.loads((folder / ".zarray").read_text()), **changes}
    (folder / ".zarray").write_text(json.dumps(described))
    for chunk in folder.glob("[0-9]*"):
        chunk.write_bytes(pickle.dumps(trap))
    refused(lambda: read_rows(folder), str(folder))
    assert trap.stayed_shut()


def test_unknown_codecs_are_named_and_never_run_also_inside_shards(tmp_path):
    class Odd(numcodecs.abc.Codec):
        codec_id = "relfit-odd"

        def encode(self, buf):
            return buf

        def decode(self, buf, out=None):
            raise AssertionError("ran")

    numcodecs.register_codec(Odd)
    _create(tmp_path / "a.zarr", zarr_format=2, compressors=Odd())
    refused(lambda: read_rows(tmp_path / "a.zarr"), "got the codec 'relfit-odd', which relfit never runs")
    inside = {"codecs": [{"name": "bytes"}, {"name": "numcodecs.pickle"}], "index_codecs": [{"name": "crc32c"}]}
    assert set(_codec_names([{"name": "sharding_indexed", "configuration": inside}])) == {
        *("sharding_indexed", "bytes", "pickle", "crc32c")
    }
    assert set(_codec_names(None)) == set()
    assert list(_codec_names({"id": "Blosc"})) == ["blosc"]


def test_what_cannot_be_read_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "empty.zarr").mkdir()
    refused(lambda: read_rows(tmp_path / "empty.zarr"), "empty.zarr: cannot be read")
    (tmp_path / "plain").mkdir()
    refused(
        lambda: read_rows(tmp_path / "plain"),
        "plain: expected a file, or a folder of Parquet files",
        "got a folder with nothing in it",
    )
    for content in (b"", b"PK\x05\x06" + bytes(18), b"text"):
        (tmp_path / "a.zip").write_bytes(content)
        refused(lambda: read_rows(tmp_path / "a.zip"), "a.zip: cannot be read")
    (tmp_path / "a.zarr").mkdir()
    monkeypatch.setitem(sys.modules, "zarr", None)
    refused(lambda: read_rows(tmp_path / "a.zarr"), "needs zarr; install it with  pip install zarr")
