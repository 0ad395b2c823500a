"""read_rows and name_of: every file is read right or refused in one line; nothing is ever unpickled."""

import gzip
import io
import pickle
from pathlib import Path

import numpy as np
import pytest
from hostile import Trap, saved
from refusals import refused

from relfit.data.arrays import as_rows
from relfit.data.files import name_of, read_rows
from relfit.data.files import text as text_files
from relfit.data.files.base import Selection

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


def _npz(saver=np.savez, **arrays):
    buffer = io.BytesIO()
    saver(buffer, **arrays)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.npy", saved(ROWS)),
        ("A.NPY", saved(ROWS)),
        ("fortran.npy", saved(np.asfortranarray(ROWS))),
        ("swapped.npy", saved(ROWS.astype(">f8"))),
        ("a.npz", _npz(x=ROWS)),
        ("a.Npz", _npz(np.savez_compressed, x=ROWS)),
        ("a.csv", CSV),
        ("a.csv.gz", CSV),
        ("quoted.csv", '"x","y"\n"1","2.5"\n"-3","4e-7"\n"5","6e12"\n'),
        ("comma in name.csv", '"x, first",y\n' + CSV),
        ("line in name.csv", '"x\nfirst",y\n' + CSV),
        ("hash.csv", "#x,#y\n" + CSV),
        ("bom and header.csv", "\ufeffx,y\n" + CSV),
        ("crlf and header.csv", ("x,y\n" + CSV).replace("\n", "\r\n")),
        ("cr.csv", CSV.replace("\n", "\r")),
        ("blank lines.csv", "x,y\n\n" + CSV.replace("\n", "\n\n")),
        ("no newline at the end.csv", CSV.rstrip()),
        ("spaces.csv", CSV.replace(",", " ,  ")),
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
    mapped = read_rows(write("a.npy", saved(ROWS)))
    assert isinstance(mapped, np.memmap)
    rows = as_rows("reference", mapped)
    assert np.shares_memory(rows, mapped)
    assert not rows.flags.writeable
    for other in (ROWS.astype(np.float32), np.asfortranarray(ROWS)):
        assert not np.shares_memory(as_rows("reference", read_rows(write("b.npy", saved(other)))), mapped)


@pytest.mark.parametrize(
    ("name", "content", "parts"),
    [
        ("empty.csv", "", ("empty file",)),
        ("blank first.csv", "\n1,2\n", ("empty file or first line",)),
        ("header and blanks.csv", "x,y\n\n \n", ("header only",)),
        ("ragged.csv", "1,2\n3\n", ("expected 2 fields like the first line, got 1 in row 1",)),
        ("long header.csv", "x,y,z\n1,2\n", ("3 fields like the first line, got 2 in row 0",)),
        ("text below a name.csv", "x,y\n1,2\n3,four\n", ("got 'four' in row 1, column 'y'",)),
        ("missing inside.csv", "1,2\n3,\n", ("got a missing value in row 1, column 1",)),
        ("missing in one column.csv", "1\n\n3\n", ("a blank line before row 1",)),
        ("missing in one quoted column.csv", '1\n""\n3\n', ("a missing value in row 1, column 0",)),
        ("underscores.csv", "1,2\n3,1_234\n", ("got '1_234' in row 1",)),
        ("command.csv", "x,y\n=cmd|'/c calc'!A0,2\n", ("got \"=cmd|'/c calc'!A0\" in row 0, column 'x'",)),
        ("space in a number.csv", "x,y\n1 000,2\n", ("got '1 000' in row 0",)),
        ("NA.csv", "1,NA\n2,3\n", ("got 'NA' among other fields",)),
        ("two bytes a letter.csv", "x,y\n1,2\n".encode("utf-16"), ("expected UTF-8 text",)),
        ("byte 0.csv", "1,2\n3\x00,4\n", ("got '3\\x00' in row 1, column 0",)),
        ("text after a quote.csv", '1,2\n3,"4"5\n', ("cannot be read",)),
        ("column numbers on top.csv", "0,1,2\n1.5,2.5,3.5\n", ("counts 0, 1, 2", "save without a header")),
        ("missing in the first row.csv", "1,\n3,4\n", ("names only or of numbers only", "''")),
        ("row index.csv", ",x,y\n0,1,2\n1,3,4\n", ("got none over the first; are these row numbers?",)),
        ("semicolons.csv", "1;2\n3;4\n", ("got '3;4' in row 0, column '1;2'",)),
        ("decimal commas.csv", "1,5;2,5\n3,5;4,5\n", ("names only or of numbers only",)),
        ("latin.csv", "für,y\n1,2\n".encode("latin-1"), ("expected UTF-8 text",)),
        ("one long field.csv", "x" * 200_000, ("cannot be read",)),
        ("quote never closed.csv", 'x,y\n"1,2\n3,4\n', ("cannot be read",)),
        ("empty.npy", b"", ("cannot be read",)),
        ("text.npy", "1,2\n", ("is not a NumPy file",)),
        ("zip.npy", _npz(x=ROWS), ("expected one array, got an archive", "rename it to .npz")),
        ("array.npz", saved(ROWS), ("expected an archive, got one array", "rename it to .npy")),
        ("none.npz", _npz(), ("expected one array, got 0",)),
        ("several.npz", _npz(x=ROWS, y=ROWS), ("expected one array, got 2 (x and y)", "several.npz:NAME")),
        ("no ending", CSV, ("expected a file ending in", "got no ending")),
        ("a.npy.csv.pkl", CSV, ("expected a file ending in", "'.pkl'")),
    ],
    ids=lambda value: value if isinstance(value, str) and "." in value and len(value) < 40 else "",
)
def test_refused_files(write, name, content, parts):
    path = write(name, content)
    refused(lambda: read_rows(path), str(path), *parts)


@pytest.mark.parametrize("kind", ["npy", "npz", "renamed", "renamed to npz"])
def test_a_pickle_is_refused_and_nothing_in_it_runs(tmp_path, kind):
    trap = Trap(tmp_path / "sprung")
    objects = np.array([trap, 1.0], dtype=object)
    content = {"npy": saved(objects), "npz": _npz(x=objects)}.get(kind, pickle.dumps(trap))
    path = tmp_path / ("a.npz" if "npz" in kind else "a.npy")
    path.write_bytes(content)
    refused(lambda: read_rows(path), str(path), "pickle", "never loads")
    assert trap.stayed_shut()


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
    refused(lambda: read_rows(f"{write('a.npy', saved(ROWS))}:x"), "no such file")


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


# --- first lines of numbers: column numbers and years above data


def lines(rows, digits=6):
    return "".join(",".join(f"{value:.{digits}f}" for value in row) + "\n" for row in rows)


@pytest.fixture
def path(tmp_path, monkeypatch):
    # Parts of a few rows: the line is found out in a later part than its own.
    monkeypatch.setattr(text_files, "_BLOCK_FIELDS", 50)
    return tmp_path / "a.csv"


def parts_of(path):
    return list(text_files.TEXT.parts(Selection(path), 10**9))


@pytest.mark.parametrize("header", ["0,1", "1,2", "1,2,3", "2019,2020,2021", '"1","2"', "7,8", " 1, 2"])
@pytest.mark.parametrize("count", [10, 300])
def test_a_header_of_numbers(path, rng, header, count):
    rows = rng.normal(size=(count, header.count(",") + 1))
    path.write_text(header + "\n" + lines(rows))
    start = header.strip(' "').partition(",")[0].strip('"')
    parts = (f"its first line counts {start}, ", "delete that line, or save without a header", f"write {start}.0")
    refused(lambda: read_rows(path), *parts)
    refused(lambda: parts_of(path), *parts)
    with gzip.open(path.with_suffix(".csv.gz"), "wt") as file:
        file.write(path.read_text())
    refused(lambda: read_rows(path.with_suffix(".csv.gz")), *parts)


@pytest.mark.parametrize(
    "text",
    [
        "1,2\n" + lines([[3, 5], [8, 1]] * 50, 0),  # counts of something
        "0,1\n1,0\n" * 60,  # labels
        "1,2\n" + lines([[1.5, 2.5]] * 40, 1) + "4,7\n" + lines([[1.5, 2.5]] * 40, 1),  # written without ".0"
        "1.0,2.0\n" + lines([[1.5, 2.5]] * 40, 1),  # what the refusal advises
        "2,1\n" + lines([[1.5, 2.5]] * 40, 1),  # does not count
        "1,3\n" + lines([[1.5, 2.5]] * 40, 1),
        "0\n" + lines([[1.5]] * 40, 1),  # a chain that starts at 0
        "1,2\n" + lines([[1.5, 2.5]] * 9, 1),  # too few rows to tell
        "1,2\n",
        f"{10**30},{10**30 + 1}\n" + lines([[1.5, 2.5]] * 40, 1),
    ],
)
def test_rows_that_count_are_rows(path, text):
    path.write_text(text)
    wanted = np.array([[float(field) for field in line.split(",")] for line in text.splitlines()])
    np.testing.assert_array_equal(read_rows(path), wanted)
    np.testing.assert_array_equal(np.concatenate(parts_of(path)), wanted)


# --- columns by name, number and range, in files with names and without

WIDE = np.arange(24.0).reshape(2, 12) + 0.5
NAMED = "id,x,y,1-2\nfirst,1,2,3\nsecond,4,5,6\n"


@pytest.fixture
def numbered(tmp_path):
    np.save(tmp_path / "a.npy", WIDE)
    return tmp_path / "a.npy"


@pytest.fixture
def named(tmp_path):
    (tmp_path / "a.csv").write_text(NAMED)
    return tmp_path / "a.csv"


@pytest.mark.parametrize(
    ("columns", "places"),
    [
        ("0", [0]),
        ("3-5", [3, 4, 5]),
        ("11,0, 2-3", [11, 0, 2, 3]),
        ("7-7", [7]),
        (5, [5]),
        ([1, 0], [1, 0]),
        (["1-2", np.int64(9)], [1, 2, 9]),
        (range(3), [0, 1, 2]),
        (np.array([4, 2]), [4, 2]),
        (None, list(range(12))),
    ],
    ids=str,
)
def test_numbers_and_ranges_with_both_ends(numbered, columns, places):
    taken = read_rows(numbered, columns=columns)
    np.testing.assert_array_equal(taken, WIDE[:, places])
    assert taken.flags.c_contiguous


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ("x", [[1], [4]]),
        ("y,x", [[2, 1], [5, 4]]),
        (" x , y ", [[1, 2], [4, 5]]),
        ("1", [[1], [4]]),
        ([1], [[1], [4]]),
        ("2-3", [[2, 3], [5, 6]]),
        # A text is a name before it is a range.
        ("1-2", [[3], [6]]),
        ("3,x", [[3, 1], [6, 4]]),
    ],
    ids=str,
)
def test_names_come_first_and_other_columns_may_hold_anything(named, columns, expected):
    np.testing.assert_array_equal(read_rows(named, columns=columns), expected)


def test_one_line_of_names_and_numbers(tmp_path):
    """The first row holds a 1: --columns 1 is the second column all the same, and that row is data."""
    path = tmp_path / "a.csv"
    path.write_text("1,2,0\n3,4,5\n")
    np.testing.assert_array_equal(read_rows(path, columns="1"), [[2], [4]])
    np.testing.assert_array_equal(read_rows(path, columns="2,0-1"), [[0, 1, 2], [5, 3, 4]])
    refused(lambda: read_rows(path, columns="x"), "its columns have no names; give numbers from 0 to 2 instead of 'x'")
    # With years on top and countries beside them, --columns 1-2 could mean either; 1990 can only be a name.
    path = tmp_path / "a.csv"
    path.write_text("country,1990,1991\n'the one, the other',5,6\nb,7,8\n".replace("'", '"'))
    np.testing.assert_array_equal(read_rows(path, columns="1990,1991"), [[5, 6], [7, 8]])
    np.testing.assert_array_equal(read_rows(path, columns="2,1990"), [[6, 5], [8, 7]])
    refused(lambda: read_rows(path, columns="1-2"), "names only or of numbers only", "select columns by name")
    refused(lambda: read_rows(path, columns=[1, 2]), "names only or of numbers only", "select columns by name")
    refused(lambda: read_rows(path, columns="country"), "got 'the one, the other' in row 0, column 'country'")
    path = tmp_path / "a.csv"
    path.write_text('"x, first",y\n1,2\n')
    np.testing.assert_array_equal(read_rows(path, columns='y,"x, first"'), [[2, 1]])
    np.testing.assert_array_equal(read_rows(path, columns=["x, first"]), [[1]])


@pytest.mark.parametrize(
    ("columns", "parts"),
    [
        ("z", ("expected a column called 'z', got 'id', 'x', 'y' and '1-2'",)),
        ("X", ("expected a column called 'X'",)),
        ("-1", ("expected a column called '-1'",)),
        ("1-", ("expected a column called '1-'",)),
        ("4", ("expected columns from 0 to 3, got 4",)),
        ("1-9", ("expected columns from 0 to 3, got 1-9",)),
        ("0-999999999", ("expected columns from 0 to 3",)),
        ("9" * 40, ("expected a column called",)),
        ("3-1", ("expected a range such as 1-3, got 3-1, which runs backwards",)),
        ("9-8", ("which runs backwards",)),
        ([-1], ("expected columns from 0 to 3, got -1",)),
        ("x,x", ("expected each column once, but 'x' is selected twice",)),
        ("x,0-2", ("expected each column once, but 'x' is selected twice",)),
        ("id", ("got 'first' in row 0, column 'id'",)),
    ],
    ids=str,
)
def test_refused_choices_name_the_file_and_what_it_has(named, columns, parts):
    refused(lambda: read_rows(named, columns=columns), str(named), *parts)


def test_what_is_no_choice_is_refused(named):
    for columns in ["", " ", "x,,y", ",", [], (), [None], [1.5], [True], True, 1.5, {}, '"x', [b"x"]]:
        refused(lambda c=columns: read_rows(named, columns=c), "columns: expected names, numbers or ranges")
