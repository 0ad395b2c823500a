"""Columns by name, number and range, in files with names and without."""

import numpy as np
import pytest
from refusals import refused

from relfit.data.files import read_rows

pytestmark = pytest.mark.filterwarnings("error")

ROWS = np.arange(24.0).reshape(2, 12) + 0.5
NAMED = "id,x,y,1-2\nfirst,1,2,3\nsecond,4,5,6\n"


@pytest.fixture
def numbered(tmp_path):
    np.save(tmp_path / "a.npy", ROWS)
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
    np.testing.assert_array_equal(taken, ROWS[:, places])
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


def test_numbers_are_never_taken_for_the_names_of_a_line_of_numbers(tmp_path):
    """The first row holds a 1: --columns 1 is the second column all the same, and that row is data."""
    path = tmp_path / "a.csv"
    path.write_text("1,2,0\n3,4,5\n")
    np.testing.assert_array_equal(read_rows(path, columns="1"), [[2], [4]])
    np.testing.assert_array_equal(read_rows(path, columns="2,0-1"), [[0, 1, 2], [5, 3, 4]])
    refused(lambda: read_rows(path, columns="x"), "its columns have no names; give numbers from 0 to 2 instead of 'x'")


def test_a_first_line_of_names_and_numbers_is_a_header_only_if_a_name_says_so(tmp_path):
    """With years on top and countries beside them, --columns 1-2 could mean either; 1990 can only be a name."""
    path = tmp_path / "a.csv"
    path.write_text("country,1990,1991\n'the one, the other',5,6\nb,7,8\n".replace("'", '"'))
    np.testing.assert_array_equal(read_rows(path, columns="1990,1991"), [[5, 6], [7, 8]])
    np.testing.assert_array_equal(read_rows(path, columns="2,1990"), [[6, 5], [8, 7]])
    refused(lambda: read_rows(path, columns="1-2"), "names only or of numbers only", "select columns by name")
    refused(lambda: read_rows(path, columns=[1, 2]), "names only or of numbers only", "select columns by name")
    refused(lambda: read_rows(path, columns="country"), "got 'the one, the other' in row 0, column 'country'")


def test_a_name_with_a_comma_is_quoted(tmp_path):
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


@pytest.mark.parametrize("columns", ["", " ", "x,,y", ",", [], (), [None], [1.5], [True], True, 1.5, {}, '"x', [b"x"]])
def test_what_is_no_choice_is_refused(named, columns):
    refused(lambda: read_rows(named, columns=columns), "columns: expected names, numbers or ranges")
