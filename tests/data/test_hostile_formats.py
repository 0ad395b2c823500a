"""Hostile files of other libraries' formats: tensors, Parquet, Zarr. Refused in one line, with little memory."""

import base64
import io
import json
import struct
import zipfile
import zlib

import numpy as np
import pytest
from hostile import peak, resource, zipped
from refusals import refused

from relfit.compute.memory import Budget
from relfit.data.arrays import spilled_rows
from relfit.data.files import read_rows
from relfit.data.tables import split_labels

pytestmark = pytest.mark.filterwarnings("error")

ROWS = np.arange(6.0).reshape(3, 2)


# --- pickles that make much of little


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def _pt(pickled, **options):
    records = {"a/data/0": bytes(96), "a/data/1": bytes(64)}
    return zipped({"a/data.pkl": pickled, "a/byteorder": b"little", **records, "a/version": b"3\n"}, **options)


@pytest.mark.parametrize(
    "pickled",
    [
        b"\x80\x02cbuiltins\nbytearray\nJ\xff\xff\xff\x7f\x85R.",
        b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x06\x00\x00\x00latin1\x86R.",
        b"\x80\x02ctorch\nTensor\nJ\xff\xff\xff\x7f\x85R.",
        b"\x80\x02cposix\nsystem\nX\x04\x00\x00\x00true\x85R.",
        b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x04true\x85R.",
        b"(S'true'\niposix\nsystem\n.",
    ],
    ids=["bytearray", "encode", "Tensor", "system", "by the stack", "by a mark"],
)
def test_calls_that_no_tensor_needs(torch, tmp_path, pickled):
    (tmp_path / "a.pt").write_bytes(_pt(pickled))
    before = peak()
    refused(lambda: read_rows(tmp_path / "a.pt"), "a.pt: holds Python objects or code")
    assert peak() - before < 100_000, "kB"


def test_positions_outside_a_sparse_tensor(torch, tmp_path):
    """Followed unchecked they end the process: found by fuzzing."""
    whole = io.BytesIO()
    torch.save(torch.from_numpy(ROWS).to_sparse(), whole)
    with zipfile.ZipFile(whole) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    indices = next(name for name, data in members.items() if len(data) == 80)
    members[indices] = struct.pack("<10q", *range(10**12, 10**12 + 10))
    (tmp_path / "a.pt").write_bytes(zipped(members))
    refused(lambda: read_rows(tmp_path / "a.pt"), "a.pt: cannot be read")


@pytest.mark.parametrize("make", ["expanded", "sparse"])
def test_tensors_larger_than_what_they_hold(torch, tmp_path, cramped, make):
    one = torch.ones(1, dtype=torch.float64)
    tensor = one.expand(10**6) if make == "expanded" else torch.sparse_coo_tensor([[0]], one, (10**6,))
    torch.save(tensor, tmp_path / "a.pt")
    assert (tmp_path / "a.pt").stat().st_size < 5000
    refused(lambda: read_rows(tmp_path / "a.pt"), "expected what fits into memory")


# --- safetensors: a length, a header that says where each tensor lies, the numbers


def _tensors(header, data=bytes(48), length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def _entry(dtype="F64", shape=(3, 2), offsets=(0, 48)):
    return {"x": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


@pytest.mark.parametrize(
    "content",
    [
        _tensors(_entry(), length=2**63),
        _tensors(_entry(), length=10**9),
        _tensors(_entry(), length=0),
        _tensors(_entry(offsets=(0, 480))),
        _tensors(_entry(offsets=(0, 24))),
        _tensors(_entry(offsets=(48, 0))),
        _tensors(_entry(offsets=(-8, 40))),
        _tensors(_entry(offsets=(2**63, 2**63 + 48))),
        _tensors(_entry(shape=(2**32, 2**32))),
        _tensors(_entry(shape=(-3, -2))),
        _tensors(_entry(dtype="O")),
        _tensors({**_entry(), "y": _entry()["x"]}),
        _tensors({"x": 5}),
        _tensors([]),
        _tensors(b"{" * 1000),
        _tensors(b"\xff" * 100),
        b"",
    ],
)
def test_safetensors_that_lie(tmp_path, content):
    pytest.importorskip("safetensors")
    (tmp_path / "a.safetensors").write_bytes(_tensors(_entry(), ROWS.tobytes()))
    np.testing.assert_array_equal(read_rows(tmp_path / "a.safetensors"), ROWS)
    (tmp_path / "a.safetensors").write_bytes(content)
    refused(lambda: read_rows(tmp_path / "a.safetensors"), "a.safetensors: ")


# --- Parquet and Arrow


# A Parquet file of 628 bytes, found by fuzzing, one page of which says that it has 792,548,551.
PAGE = """
eNoLcAwyFGUQrRCt0BHlATLYRNlkJDgYGBoq31+e6gRigQDHATEGDSyigoJAigmImbVAJA8zROKDPQNYCYsDTKHH+j2zPl2fZQfh
izjAjAJb3Xf51WcqWs1ApNUskjWmDBJsxckZqbmJoiwMpkwSjGWiTKJsPjZAhaYsEiw5mcUlokwMolyqTBLsqTmpual5JWBl5YSV
ibFLykjqqDHIiHJJqrIxSFowloEVwhSIMojxiH1jBCI1DhuSvC0pAwwsBqCFNppqbGySbiDfAzGyVeW4rPrHSBW7xN4wi7GpcQAp
Bg2FgsSiwtLUEt3kggLdxKKi/HKFstSi4sz8PAUjMz0DPUNJHRkGBiBiKGJkYAgApjcAlyt7ag==
"""


@pytest.mark.parametrize("in_parts", [False, True])
def test_a_parquet_page_that_claims_much(tmp_path, in_parts):
    pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    path.write_bytes(zlib.decompress(base64.b64decode(PAGE)))
    before = peak()
    read = (lambda: spilled_rows("rows", str(path), Budget(10**9, tmp_path))) if in_parts else (lambda: read_rows(path))
    refused(read, "a.parquet: cannot be read", "Page was smaller")
    assert peak() - before < 200_000, "kB"


# A Parquet file of 378 bytes, found by fuzzing, whose row group claims to have 175,798,096,380 rows.
ROW_GROUP = """
eNplkL9KA0EQh397XlYNhyTBWW7hiiu8JcIlGiEB4RpLJUUUX+ASzj+F5ryYaOFD+AJCSksbn8HWp7DxBWwEZ48EBYvZYZfv9zGzg4OT
Drm0SabPDQ2g+brzHVaPAQEgtceQQA3aiklSjUsGPTTF0BdpvY4Fv34IOHyRQqw4jG9QaHGUuC+EL6A4ZPtvaHV/GaqQq5MufDkZXWRX
KbkgL3L8ynkxnuYR+gFTBH4R91BSBzo2CMjTXciaXmDkKake1FyYI7P2d0Qd283IYQPP7yBhg9QGkqVWAx1JaFaXhlN1Zp5F8m9mzWBp
SbaXYfUu1Nfb48dTdf4S5mlxM81uW6M8b6VFMb4LZ1kxuRxfh3u99m67o2Newu7xyTXgX/8BllY4LQ==
"""


def test_a_row_group_that_claims_much(tmp_path):
    """Reading it at once would allocate 512 GB; read in batches, its labels are what the file holds."""
    pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    path.write_bytes(zlib.decompress(base64.b64decode(ROW_GROUP)))
    limits = resource.getrlimit(resource.RLIMIT_AS)
    before = peak()
    resource.setrlimit(resource.RLIMIT_AS, (2**37, limits[1]))  # so that a wrong reader fails, and harms nobody
    try:
        labels, others = split_labels(path, "group")
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    assert (labels.tolist(), others) == (["a", "b", "a"], [1])
    assert peak() - before < 100_000, "kB"


def test_equal_numbers_without_end(tmp_path, cramped):
    """Ten million equal numbers take a few kilobytes of a Parquet file."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    tables = {
        "numbers": arrow.table({"x": np.zeros(10**6)}),
        "lists": arrow.table({"x": arrow.FixedSizeListArray.from_arrays(np.zeros(10**6), 10)}),
    }
    for name, table in tables.items():
        path = tmp_path / f"{name}.parquet"
        parquet.write_table(table, path)
        assert path.stat().st_size < 50_000
        refused(lambda path=path: read_rows(path), "expected what fits into memory")


# --- Zarr: the description and the chunks are files of their own


def _zarr(folder, **changes):
    folder.mkdir()
    described = {
        **{"zarr_format": 2, "shape": [3, 2], "chunks": [3, 2], "dtype": "<f8", "compressor": None, "filters": None},
        **{"fill_value": 0.0, "order": "C", **changes},
    }
    (folder / ".zarray").write_text(json.dumps(described))
    (folder / "0.0").write_bytes(ROWS.tobytes())
    return folder


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"shape": [10**18, 2]}, "expected at most 1000000 chunks"),
        ({"shape": [10**6, 2]}, "expected what fits into memory"),
        ({"chunks": [10**6, 2]}, "expected what fits into memory"),
        ({"shape": [-3, 2]}, "a.zarr: "),
        ({"shape": [3, 2], "chunks": [0, 2]}, "a.zarr: "),
        ({"shape": [3, 2], "chunks": [3]}, "a.zarr: "),
        ({"dtype": "|O"}, "a.zarr: "),
        ({"dtype": "<f8" * 9}, "a.zarr: "),
        ({"chunks": [2, 2]}, "a.zarr: "),
    ],
)
def test_descriptions_that_lie(tmp_path, cramped, changes, said):
    pytest.importorskip("zarr")
    np.testing.assert_array_equal(read_rows(_zarr(tmp_path / "good.zarr")), ROWS)
    refused(lambda: read_rows(_zarr(tmp_path / "a.zarr", **changes)), said)


def test_groups_that_lead_back_to_themselves(tmp_path):
    pytest.importorskip("zarr")
    folder = tmp_path / "a.zarr"
    folder.mkdir()
    (folder / ".zgroup").write_text('{"zarr_format": 2}')
    for name in ("one", "two"):
        (folder / name).symlink_to(folder, target_is_directory=True)
    refused(lambda: read_rows(folder), "a.zarr: ")
