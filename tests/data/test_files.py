"""read_rows and name_of: every file is read right or refused in one line; nothing is ever unpickled."""

import gzip
import io
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from refusals import refused

from relfit.data.arrays import as_rows
from relfit.data.files import name_of, read_rows
from relfit.util.errors import InputError

pytestmark = pytest.mark.filterwarnings("error")

ROWS = np.array([[1.0, 2.5], [-3.0, 4e-7], [5.0, 6e12]])
CSV = "1,2.5\n-3,4e-7\n5,6e12\n"


@pytest.fixture
def write(tmp_path):
    def write_file(name: str, content: bytes | str) -> Path:
        path = tmp_path / name
        data = content.encode() if isinstance(content, str) else content
        path.write_bytes(gzip.compress(data) if name.lower().endswith(".gz") else data)
        return path

    return write_file


def _npy(array, **options):
    buffer = io.BytesIO()
    np.save(buffer, array, **options)
    return buffer.getvalue()


def _npz(saver=np.savez, **arrays):
    buffer = io.BytesIO()
    saver(buffer, **arrays)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.npy", _npy(ROWS)),
        ("A.NPY", _npy(ROWS)),
        ("fortran.npy", _npy(np.asfortranarray(ROWS))),
        ("swapped.npy", _npy(ROWS.astype(">f8"))),
        ("a.npz", _npz(x=ROWS)),
        ("a.Npz", _npz(np.savez_compressed, x=ROWS)),
        ("a.csv", CSV),
        ("A.CSV", CSV),
        ("a.csv.gz", CSV),
        ("A.CSV.GZ", CSV),
        ("header.csv", "x,y\n" + CSV),
        ("quoted.csv", '"x","y"\n"1","2.5"\n"-3","4e-7"\n"5","6e12"\n'),
        ("comma in name.csv", '"x, first",y\n' + CSV),
        ("line in name.csv", '"x\nfirst",y\n' + CSV),
        ("hash.csv", "#x,#y\n" + CSV),
        ("bom.csv", "\ufeff" + CSV),
        ("bom and header.csv", "\ufeffx,y\n" + CSV),
        ("crlf.csv", CSV.replace("\n", "\r\n")),
        ("crlf and header.csv", ("x,y\n" + CSV).replace("\n", "\r\n")),
        ("cr.csv", CSV.replace("\n", "\r")),
        ("blank lines.csv", "x,y\n\n" + CSV.replace("\n", "\n\n")),
        ("no newline at the end.csv", CSV.rstrip()),
        ("spaces.csv", CSV.replace(",", " ,  ")),
        ("dots.in.name.csv", CSV),
        ("a.tsv", CSV.replace(",", "\t")),
        ("A.TSV", "x\ty\n" + CSV.replace(",", "\t")),
        ("a.tsv.gz", CSV.replace(",", "\t")),
        ("comma in a tab-separated name.tsv", "x, first\ty\n" + CSV.replace(",", "\t")),
        ("über 😀.csv", CSV),
    ],
    ids=lambda value: value if isinstance(value, str) and "." in value and "\n" not in value else "",
)
def test_readable_files(write, name, content):
    path = write(name, content)
    for source in (path, str(path)):
        np.testing.assert_array_equal(read_rows(source), ROWS)
    assert as_rows("reference", path).shape == (3, 2)


def test_an_npy_file_is_mapped_and_never_copied(write):
    """A float64 file in C order goes from the disk to the kernel without a copy, and cannot be written to."""
    mapped = read_rows(write("a.npy", _npy(ROWS)))
    assert isinstance(mapped, np.memmap)
    rows = as_rows("reference", mapped)
    assert np.shares_memory(rows, mapped)
    assert not rows.flags.writeable
    for other in (ROWS.astype(np.float32), np.asfortranarray(ROWS)):
        assert not np.shares_memory(as_rows("reference", read_rows(write("b.npy", _npy(other)))), mapped)


@pytest.mark.parametrize(
    ("name", "content", "parts"),
    [
        ("empty.csv", "", ("empty file",)),
        ("empty.csv.gz", "", ("empty file",)),
        ("blank first.csv", "\n1,2\n", ("empty file or first line",)),
        ("header only.csv", "x,y\n", ("header only",)),
        ("header and blanks.csv", "x,y\n\n \n", ("header only",)),
        ("ragged.csv", "1,2\n3\n", ("expected 2 fields like the first line, got 1 in row 1",)),
        ("short header.csv", "x\n1,2\n", ("1 fields like the first line, got 2",)),
        ("long header.csv", "x,y,z\n1,2\n", ("3 fields like the first line, got 2 in row 0",)),
        ("text inside.csv", "1,2\n3,four\n", ("got 'four' in row 1, column 1",)),
        ("text below a name.csv", "x,y\n1,2\n3,four\n", ("got 'four' in row 1, column 'y'",)),
        ("missing inside.csv", "1,2\n3,\n", ("got a missing value in row 1, column 1",)),
        ("missing in one column.csv", "1\n\n3\n", ("a blank line before row 1",)),
        ("missing in one quoted column.csv", '1\n""\n3\n', ("a missing value in row 1, column 0",)),
        ("thousands.csv", '1,2\n3,"1,234"\n', ("got '1,234' in row 1",)),
        ("underscores.csv", "1,2\n3,1_234\n", ("got '1_234' in row 1",)),
        ("formula.csv", "1,2\n3,=1+1\n", ("got '=1+1' in row 1",)),
        ("command.csv", "x,y\n=cmd|'/c calc'!A0,2\n", ("got \"=cmd|'/c calc'!A0\" in row 0, column 'x'",)),
        ("formula first.csv", "=1+1,2\n3,4\n", ("got '=1+1' among other fields",)),
        ("space in a number.csv", "x,y\n1 000,2\n", ("got '1 000' in row 0",)),
        ("hexadecimal.csv", "x,y\n0x10,1\n", ("got '0x10' in row 0",)),
        ("NA.csv", "1,NA\n2,3\n", ("got 'NA' among other fields",)),
        ("two bytes a letter.csv", "x,y\n1,2\n".encode("utf-16"), ("expected UTF-8 text",)),
        ("two bytes, unmarked.csv", "x,y\n1,2\n".encode("utf-16-le"), ("expected 2 fields",)),
        ("byte 0.csv", "1,2\n3\x00,4\n", ("got '3\\x00' in row 1, column 0",)),
        ("text after a quote.csv", '1,2\n3,"4"5\n', ("cannot be read",)),
        ("column numbers on top.csv", "0,1,2\n1.5,2.5,3.5\n", ("counts 0, 1, 2", "save without a header")),
        ("missing in the first row.csv", "1,\n3,4\n", ("names only or of numbers only", "''")),
        ("text in the first row.csv", "1,two\n3,4\n", ("names only or of numbers only", "'two'")),
        ("row index.csv", ",x,y\n0,1,2\n1,3,4\n", ("got none over the first; are these row numbers?",)),
        ("semicolons.csv", "1;2\n3;4\n", ("got '3;4' in row 0, column '1;2'",)),
        ("decimal commas.csv", "1,5;2,5\n3,5;4,5\n", ("names only or of numbers only",)),
        ("latin.csv", "für,y\n1,2\n".encode("latin-1"), ("expected UTF-8 text",)),
        ("binary.csv", bytes(range(256)), ("expected UTF-8 text",)),
        ("one long field.csv", "x" * 200_000, ("cannot be read",)),
        ("quote never closed.csv", 'x,y\n"1,2\n3,4\n', ("cannot be read",)),
        ("empty.npy", b"", ("cannot be read",)),
        ("empty.npz", b"", ("cannot be read",)),
        ("text.npy", "1,2\n", ("is not a NumPy file",)),
        ("zip.npy", _npz(x=ROWS), ("expected one array, got an archive", "rename it to .npz")),
        ("array.npz", _npy(ROWS), ("expected an archive, got one array", "rename it to .npy")),
        ("none.npz", _npz(), ("expected one array, got 0",)),
        ("several.npz", _npz(x=ROWS, y=ROWS), ("expected one array, got 2 (x and y)", "several.npz:NAME")),
        ("a.txt", CSV, ("ending in .npy, .npz, .csv, .csv.gz", "'.txt'")),
        ("a.gz", CSV, ("expected a file ending in", "'.gz'")),
        ("no ending", CSV, ("expected a file ending in", "got no ending")),
        ("a.npy.csv.pkl", CSV, ("expected a file ending in", "'.pkl'")),
    ],
    ids=lambda value: value if isinstance(value, str) and "." in value and len(value) < 40 else "",
)
def test_refused_files(write, name, content, parts):
    path = write(name, content)
    refused(lambda: read_rows(path), str(path), *parts)


def _complaint(path):
    try:
        read_rows(path)
    except InputError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_damaged_headers_never_end_in_another_error(tmp_path, name):
    """Each byte of the header (and of the archive's directory) is overwritten by ones that upset parsers."""
    whole = _npy(ROWS) if name.endswith("npy") else _npz(np.savez_compressed, x=ROWS)
    path = tmp_path / name
    for place in range(min(len(whole), 128) if name.endswith("npy") else len(whole)):
        for byte in (0x00, 0x28, 0xFF):
            path.write_bytes(whole[:place] + bytes([byte]) + whole[place + 1 :])
            assert len(_complaint(path).splitlines()) <= 1


class _Trap:
    """Unpickling this creates the file."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("kind", ["npy", "npz", "renamed", "renamed to npz"])
def test_a_pickle_is_refused_and_nothing_in_it_runs(tmp_path, kind):
    sprung = tmp_path / "sprung"
    objects = np.array([_Trap(sprung), 1.0], dtype=object)
    content = {"npy": _npy(objects), "npz": _npz(x=objects)}.get(kind, pickle.dumps(_Trap(sprung)))
    path = tmp_path / ("a.npz" if "npz" in kind else "a.npy")
    path.write_bytes(content)
    refused(lambda: read_rows(path), str(path), "pickle", "never loads")
    assert not sprung.exists()
    pickle.loads(pickle.dumps(_Trap(sprung)))
    assert sprung.exists(), "the trap itself does not work"


def test_folders_devices_and_missing_files(tmp_path):
    (tmp_path / "folder.npy").mkdir()
    refused(
        lambda: read_rows(tmp_path / "folder.npy"), "folder.npy: expected a file, or a folder of", "relfit features "
    )
    refused(lambda: read_rows(tmp_path / "gone.npy"), "gone.npy: no such file")
    refused(lambda: read_rows(tmp_path / "gone" / "a.npy"), "no such file")
    refused(lambda: read_rows(""), "expected a file")
    refused(lambda: read_rows("x" * 5000 + ".npy"), "no such file")
    refused(lambda: read_rows("a\0.npy"), "no such file")
    refused(lambda: read_rows(tmp_path / "two\nlines.npy"), "two lines.npy: no such file")


def test_one_array_of_several(write):
    path = write("several.npz", _npz(**{"x": ROWS, "y": 2 * ROWS, "a:b": 3 * ROWS}))
    np.testing.assert_array_equal(read_rows(f"{path}:y"), 2 * ROWS)
    np.testing.assert_array_equal(read_rows(f"{path}:a:b"), 3 * ROWS)
    refused(lambda: read_rows(f"{path}:z"), "expected an array called 'z', got x, y and a:b")
    refused(lambda: read_rows(f"{path}:"), "expected an array called ''")
    refused(lambda: read_rows(f"{write('a.npy', _npy(ROWS))}:x"), "no such file")


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("claude.npy", "claude"),
        ("runs/2024/gpt.csv.gz", "gpt"),
        (Path("runs") / "LLAMA.NPY", "LLAMA"),
        ("v1.2.npy", "v1.2"),
        ("all.npz", "all"),
        ("all.npz:gpt", "all:gpt"),
        ("runs/ALL.NPZ:a:b", "ALL:a:b"),
        ("run:1.csv", "run:1"),
        ("notes.txt", "notes.txt"),
        (".npy", ".npy"),
        ("über 😀.npy", "über 😀"),
        ("a.tsv.gz", "a"),
        ("a.parquet", "a"),
        ("a.zarr", "a"),
        ("runs/a.zarr.zip", "a"),
        ("a.zarr:inner/x", "a:inner/x"),
        ("a.pt:weight", "a:weight"),
        ("a.safetensors:h.0", "a:h.0"),
    ],
)
def test_names_from_files(source, name):
    assert name_of(source) == name
