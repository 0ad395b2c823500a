"""Products of kernel matrices by a backend, and what dense arithmetic gives for them."""

import numpy as np

from oracle import dense
from relfit.compute.backend import Job
from relfit.compute.reduce import Runtime, kernel_products


def products(backend, kernel, x, y=None, columns=3, seed=0, diagonal=True, **runtime):
    """Row and column products of random right-hand sides (ones if there are no `columns`) and Σk², twice."""
    rng = np.random.default_rng(seed)
    other = x if y is None else y
    right, left = (rng.normal(size=(len(rows), columns)) if columns else np.ones(len(rows)) for rows in (other, x))
    points = [None if rows is None else backend.points(kernel, rows) for rows in (x, y)]
    sides = {"phi": right}, {} if y is None else {"phi": left}
    job = Job(kernel, *points, *sides, diagonal=diagonal, squares=True)
    matrix = dense.gram(kernel, x, other)
    if y is None or not diagonal:
        np.fill_diagonal(matrix, 0.0)
    return kernel_products([job], Runtime(backend, **runtime))[0], matrix @ right, matrix.T @ left, (matrix**2).sum()
