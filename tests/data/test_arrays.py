"""as_rows: every array-like either becomes float64 rows or is refused in one line."""

import datetime
import decimal

import numpy as np
import pytest
from refusals import refused

from relfit.data.arrays import LARGEST_VALUE, as_rows

pytestmark = pytest.mark.filterwarnings("error")

ROWS = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])


def _same(value, expected):
    rows = as_rows("reference", value)
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


def test_one_dimension_is_a_column():
    _same([1, 2, 3], [[1.0], [2.0], [3.0]])
    _same(np.arange(6)[::2], [[0.0], [2.0], [4.0]])


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


@pytest.mark.parametrize("shape", [(2, 3, 4), (1, 1, 1, 1), ()])
def test_other_numbers_of_axes_are_refused_with_the_shape(shape):
    refused(lambda: as_rows("reference", np.ones(shape)), "reference: expected rows and columns", str(shape), "flatten")


def test_masked_values_are_counted():
    masked = np.ma.masked_array(ROWS, mask=[[1, 0], [0, 0], [1, 0]])
    refused(lambda: as_rows("reference", masked), "reference: expected complete rows, got 2 masked values")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_non_finite_rows_are_counted_and_the_first_is_named(bad, dtype):
    given = np.ones((10, 3), dtype=dtype)
    given[4, 2] = given[7, 0] = given[7, 1] = bad
    refused(lambda: as_rows("model 'x'", given), "model 'x': expected finite numbers", "2 of 10 rows", "first: row 4)")


def test_sizes_that_no_squared_distance_can_hold_are_refused():
    """(2e152)² overflows next to a kernel length of 1e-152, so values from 1e152 on are refused and not clipped."""
    assert LARGEST_VALUE == 1e152
    given = np.ones((5, 2))
    given[3, 1] = -1e300
    refused(lambda: as_rows("reference", given), "below 1e+152", "1 of 5 rows", "row 3", "rescale")
    given[3, 1] = 9.9e151
    assert as_rows("reference", given)[3, 1] == 9.9e151
