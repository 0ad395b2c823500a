"""Files that somebody made to do harm, or that were harmed: refused in one line, soon, and with little memory."""

import base64
import gzip
import io
import json
import os
import struct
import threading
import warnings
import zipfile
import zlib

import numpy as np
import pytest
from hostile import peak, resource, saved, zipped
from refusals import refused

from relfit.cli.report import read_result
from relfit.compute.memory import Budget
from relfit.data.arrays import as_rows, spilled_rows
from relfit.data.files import read_rows
from relfit.data.tables import read_labels, split_labels
from relfit.features.run import list_items
from relfit.paper.chicago import read_file

pytestmark = pytest.mark.filterwarnings("error")

ROWS = np.arange(6.0).reshape(3, 2)


# --- .npy: a header is text, and may claim anything


def _npy(header, *, version=(1, 0), data=bytes(48)):
    text = header if isinstance(header, bytes) else header.encode("utf-8" if version == (3, 0) else "latin-1")
    length = struct.pack("<H" if version == (1, 0) else "<I", len(text))
    return b"\x93NUMPY" + bytes(version) + length + text + data


def _header(shape="(3, 2)", descr="'<f8'", order="False"):
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n"


@pytest.mark.parametrize(
    "content",
    [
        _npy(_header(shape="(10**18,)")),
        _npy(_header(shape="(4294967296, 4294967296)")),
        _npy(_header(shape="(-3, 2)")),
        _npy(_header(shape="(True, 2)")),
        _npy(_header(shape="[3, 2]")),
        _npy(_header(shape="(" * 90 + ")" * 90)),
        _npy(_header(descr="'|O'")),
        _npy(_header(descr="[('a', '|O')]")),
        _npy(_header(descr="('<f8', (1000000000,))")),
        _npy(_header(descr="[('a', '<f8', (3, 2))]", shape="(1,)")),
        _npy(_header(descr="[('é', '<f8')]", shape="(6,)"), version=(3, 0)),
        _npy(_header(descr="'<U1000000000'")),
        _npy(_header(descr="__import__('os').system('true')")),
        _npy(_header(order="__import__('os')")),
        _npy(b"\xff" * 60, version=(3, 0)),
        _npy("{" * 400),
        _npy(_header() + " " * 20_000, version=(2, 0)),
        b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + b"{}",
        b"\x93NUMPY\x09\x00\x10\x00" + b"{}" * 8,
        b"\x93NUMPY",
    ],
)
@pytest.mark.parametrize("ending", [".npy", ".npz"])
def test_headers_that_claim_the_absurd(tmp_path, content, ending):
    path = tmp_path / f"a{ending}"
    path.write_bytes(content if ending == ".npy" else zipped({"x.npy": content}))
    before = peak()
    refused(lambda: as_rows("rows", path))
    assert peak() - before < 100_000, "kB"


@pytest.mark.parametrize("ending", [".npy", ".npz"])
def test_text_and_records_under_a_budget(tmp_path, ending):
    """Found by fuzzing: what is no number was cast when its first part was read."""
    for array in (np.array(["a", "b"]), np.zeros(2, dtype=[("a", "f8"), ("b", "i4", (2,))])):
        path = tmp_path / f"a{ending}"
        path.write_bytes(saved(array) if ending == ".npy" else zipped({"x.npy": saved(array)}))
        refused(lambda path=path: spilled_rows("rows", str(path), Budget(10**9, tmp_path)), "expected numbers")


# --- bombs: small files that unpack to large ones


def test_archives_and_results_that_are_too_large_are_refused(tmp_path, cramped):
    bomb = zipped({"x.npy": saved(np.zeros(10**6))}, compression=zipfile.ZIP_DEFLATED)
    assert len(bomb) < 10_000
    (tmp_path / "a.npz").write_bytes(bomb)
    refused(lambda: read_rows(tmp_path / "a.npz"), "a.npz: expected what fits into memory", "got 0.008 GB")
    # The directory says 1,000 bytes; what follows is never unpacked further than that.
    bomb = bytearray(zipped({"x.npy": saved(np.zeros(10**6))}, compression=zipfile.ZIP_DEFLATED))
    entry = bomb.rindex(b"PK\x01\x02")
    bomb[entry + 24 : entry + 28] = struct.pack("<I", 1000)
    (tmp_path / "a.npz").write_bytes(bomb)
    refused(lambda: read_rows(tmp_path / "a.npz"), "a.npz: cannot be read")
    (tmp_path / "a.json").write_text("[" * 200_000)
    refused(lambda: read_result(str(tmp_path / "a.json")), "expected what fits into memory")


def test_an_archive_packed_by_what_numpy_never_uses(tmp_path):
    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        (tmp_path / "a.npz").write_bytes(zipped({"x.npy": saved(ROWS)}, compression=method))
        refused(lambda: read_rows(tmp_path / "a.npz"), "compressed by another method")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"0," * 2**24, "expected lines of at most 16777216 characters, got a longer one"),
        (b"\n" * 200_000, "expected rows, got more than 100000 blank lines"),
        (b"\r\n" * 200_000, "expected rows, got more than 100000 blank lines"),
        (b"0,0\n" * 700_000, "expected what fits into memory"),
        (b'"' + b"a" * 200_000, "field larger than field limit"),
    ],
    ids=["one line", "blank lines", "blank lines of Windows", "rows", "one field"],
)
def test_packed_text_that_never_ends(tmp_path, cramped, line, said):
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"x,y\n1,2\n" + line))
    assert (tmp_path / "a.csv.gz").stat().st_size < 50_000
    refused(lambda: read_rows(tmp_path / "a.csv.gz"), said)


# --- not what they seem


def test_links_are_followed_to_files_only(tmp_path):
    np.save(tmp_path / "a.npy", ROWS)
    (tmp_path / "good.npy").symlink_to("a.npy")
    np.testing.assert_array_equal(read_rows(tmp_path / "good.npy"), ROWS)
    targets = {"dangling": "nothing", "itself": "itself.npy", "folder": ".", "zero": "/dev/zero"}
    for name, target in targets.items():
        (tmp_path / f"{name}.npy").symlink_to(target)
        refused(lambda name=name: read_rows(tmp_path / f"{name}.npy"), f"{name}.npy: ")


READERS = {
    "a.json": lambda path: read_result(str(path)),
    "a.txt": lambda path: list_items(path, "text"),
    "a.jsonl": lambda path: list_items(path, "text"),
    "a.csv": read_labels,
    "b.csv": lambda path: split_labels(path, "group"),
    "c.csv": read_file,
}


@pytest.mark.parametrize("name", READERS)
def test_pipes_and_devices_are_never_waited_for(tmp_path, name):
    os.mkfifo(tmp_path / name)
    call = (lambda: READERS[name](tmp_path / name), "device" if name == "c.csv" else "pipes cannot be read")
    waited = threading.Thread(target=refused, args=call, daemon=True)
    waited.start()
    waited.join(10.0)
    assert not waited.is_alive()
    (tmp_path / name).unlink()
    (tmp_path / name).symlink_to("/dev/zero")
    refused(lambda: READERS[name](tmp_path / name), "device")


@pytest.mark.parametrize("grows", [False, True])
@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".npz"])
def test_a_file_that_changes_while_it_is_read(tmp_path, monkeypatch, ending, grows):
    """Cut off at the end of a row, or made longer, once it is open: what is read would pass for a whole file."""
    rows = np.random.default_rng(0).normal(size=(5000, 2))
    path = tmp_path / f"a{ending}"
    data = "".join(f"{a!r},{b!r}\n" for a, b in rows.tolist()).encode()
    path.write_bytes({".csv": data, ".csv.gz": gzip.compress(data), ".npz": zipped({"x.npy": saved(rows)})}[ending])
    opened, plain = type(path).open, gzip.open

    def changed(stream):
        monkeypatch.undo()
        os.truncate(path, path.stat().st_size + 10 if grows else data.index(b"\n", 1000) + 1)
        return stream

    monkeypatch.setattr(type(path), "open", lambda *args, **options: changed(opened(*args, **options)))
    monkeypatch.setattr(gzip, "open", lambda *args, **options: changed(plain(*args, **options)))
    refused(lambda: read_rows(path), f"a{ending}: ")


def test_no_warning_of_a_parser_is_shown(tmp_path):
    """NumPy warns about headers that Python 2 wrote, with a long integer in the shape."""
    (tmp_path / "a.npy").write_bytes(saved(np.ones((3, 2))).replace(b"(3, 2), ", b"(3L, 2),"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(read_rows(tmp_path / "a.npy"), np.ones((3, 2)))
    bad = np.array([0x7F800001, 0], dtype=np.uint32).view(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        refused(lambda: as_rows("x", bad), "x: expected finite numbers", "1 of 2 rows")


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
        _tensors(_entry(), length=0),
        _tensors(_entry(offsets=(0, 480))),
        _tensors(_entry(offsets=(0, 24))),
        _tensors(_entry(offsets=(-8, 40))),
        _tensors(_entry(offsets=(2**63, 2**63 + 48))),
        _tensors(_entry(shape=(2**32, 2**32))),
        _tensors(_entry(dtype="O")),
        _tensors({**_entry(), "y": _entry()["x"]}),
        _tensors([]),
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
