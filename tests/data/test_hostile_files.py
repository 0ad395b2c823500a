"""Files that somebody made to do harm, or that were harmed: refused in one line, soon, and with little memory."""

import gzip
import io
import os
import struct
import threading
import warnings
import zipfile

import numpy as np
import pytest
from hostile import peak, zipped
from refusals import refused

from relfit.cli.report import read_result
from relfit.compute.memory import Budget
from relfit.data.arrays import as_rows, spilled_rows
from relfit.data.files import read_rows
from relfit.data.tables import read_labels, split_labels
from relfit.features.sources import list_items
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
        _npy(_header(shape="(1000000000000000000,)")),
        _npy(_header(shape="(4294967296, 4294967296)")),
        _npy(_header(shape="(-3, 2)")),
        _npy(_header(shape="(-3, -2)")),
        _npy(_header(shape="(3.0, 2)")),
        _npy(_header(shape="(True, 2)")),
        _npy(_header(shape="[3, 2]")),
        _npy(_header(shape="(" * 90 + ")" * 90)),
        _npy(_header(descr="'|O'")),
        _npy(_header(descr="[('a', '|O')]")),
        _npy(_header(descr="('<f8', (1000000000,))")),
        _npy(_header(descr="[('a', '<f8', (3, 2))]", shape="(1,)")),
        _npy(_header(descr="[('é', '<f8')]", shape="(6,)"), version=(3, 0)),
        _npy(_header(descr="'|V0'")),
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
        path.write_bytes(_saved(array) if ending == ".npy" else zipped({"x.npy": _saved(array)}))
        refused(lambda path=path: spilled_rows("rows", str(path), Budget(10**9, tmp_path)), "expected numbers")


# --- bombs: small files that unpack to large ones


def _saved(array):
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def test_an_archive_that_unpacks_to_more_than_there_is(tmp_path, cramped):
    bomb = zipped({"x.npy": _saved(np.zeros(10**6))}, compression=zipfile.ZIP_DEFLATED)
    assert len(bomb) < 10_000
    (tmp_path / "a.npz").write_bytes(bomb)
    refused(lambda: read_rows(tmp_path / "a.npz"), "a.npz: expected what fits into memory", "got 0.008 GB")


def test_an_archive_that_hides_its_size(tmp_path, cramped):
    """The directory says 1,000 bytes; what follows is never unpacked further than that."""
    bomb = bytearray(zipped({"x.npy": _saved(np.zeros(10**6))}, compression=zipfile.ZIP_DEFLATED))
    entry = bomb.rindex(b"PK\x01\x02")
    bomb[entry + 24 : entry + 28] = struct.pack("<I", 1000)
    (tmp_path / "a.npz").write_bytes(bomb)
    refused(lambda: read_rows(tmp_path / "a.npz"), "a.npz: cannot be read")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_an_archive_packed_by_what_numpy_never_uses(tmp_path, method):
    (tmp_path / "a.npz").write_bytes(zipped({"x.npy": _saved(ROWS)}, compression=method))
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


def test_a_result_that_is_too_large(tmp_path, cramped):
    (tmp_path / "a.json").write_text("[" * 200_000)
    refused(lambda: read_result(str(tmp_path / "a.json")), "expected what fits into memory")


# --- tables as tired people save them


@pytest.mark.parametrize(
    "content", [b"\xef\xbb\xbf0,1\r2,3\n4,5\r\n", b"=x,+y\n0,1\n2,3\n4,5", b'"0","1"\n2,3\n\n4, 5\n']
)
def test_tables_that_are_right_nevertheless(tmp_path, content):
    (tmp_path / "a.csv").write_bytes(content)
    np.testing.assert_array_equal(read_rows(tmp_path / "a.csv"), ROWS)


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
    path.write_bytes({".csv": data, ".csv.gz": gzip.compress(data), ".npz": zipped({"x.npy": _saved(rows)})}[ending])
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
    out = io.BytesIO()
    np.save(out, np.ones((3, 2)))
    (tmp_path / "a.npy").write_bytes(out.getvalue().replace(b"(3, 2), ", b"(3L, 2),"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(read_rows(tmp_path / "a.npy"), np.ones((3, 2)))


def test_a_signalling_nan_is_refused_without_a_warning():
    bad = np.array([0x7F800001, 0], dtype=np.uint32).view(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        refused(lambda: as_rows("x", bad), "x: expected finite numbers", "1 of 2 rows")
