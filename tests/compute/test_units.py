import numpy as np
import pytest

from relfit.compute import triton_backend as units
from relfit.compute.triton_backend import Matrix, units_of

SHAPES = [(64, 128), (128, 64), (16, 32), (64, 64)]


def counted(matrix):
    """How often every pair is evaluated, and that clear tiles lie wholly inside the matrix."""
    seen = np.zeros((matrix.rows, matrix.columns), dtype=int)
    row, column = np.ogrid[: matrix.rows, : matrix.columns]
    allowed = row < column if matrix.symmetric else row != column if matrix.paired else np.ones_like(seen, dtype=bool)
    for found, masked in zip(units_of(matrix), (False, True), strict=True):
        for j, first, last in found:
            assert first < last
            for i in range(first, last):
                tile = np.s_[i * matrix.height : (i + 1) * matrix.height, j * matrix.width : (j + 1) * matrix.width]
                if not masked:
                    assert (i + 1) * matrix.height <= matrix.rows
                    assert (j + 1) * matrix.width <= matrix.columns
                seen[tile] += allowed[tile] if masked else 1
    return seen, allowed


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["symmetric", "paired", "cross"])
def test_every_pair_once(shape, kind, rng):
    for _ in range(12):
        n, m = (int(size) for size in rng.integers(1, 500, size=2))
        matrix = Matrix(n, m if kind == "cross" else n, kind == "symmetric", kind == "paired", *shape)
        seen, allowed = counted(matrix)
        np.testing.assert_array_equal(seen, allowed.astype(int))


@pytest.mark.parametrize("longest", [1, 3, 256])
def test_the_length_of_a_run_changes_nothing(longest, monkeypatch):
    monkeypatch.setattr(units, "SHORTEST_RUN", longest)
    monkeypatch.setattr(units, "LONGEST_RUN", longest)
    seen, allowed = counted(Matrix(700, 700, True, False, 16, 32))
    np.testing.assert_array_equal(seen, allowed.astype(int))


def test_units_are_few_and_even_for_large_matrices():
    clear, masked = units_of(Matrix(200_000, 200_000, True, False, 64, 128))
    lengths = clear[:, 2] - clear[:, 1]
    assert lengths.max() <= units.LONGEST_RUN
    assert units.WANTED_UNITS <= len(clear) < 3 * units.WANTED_UNITS
    assert (masked[:, 2] - masked[:, 1]).sum() < 0.01 * lengths.sum()
