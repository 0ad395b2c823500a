"""First lines of numbers: column numbers and years above data are refused, rows that only look like them are read."""

import gzip

import numpy as np
import pytest
from refusals import refused

from relfit.data.files import read_rows
from relfit.data.files import text as text_files
from relfit.data.files.base import Selection


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
