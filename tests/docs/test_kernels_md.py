"""docs/kernels.md: its examples run. docs/evidence/kernels.md: its tables are there, and say what the page says."""

import re
from pathlib import Path

import numpy as np
import pytest

import relfit

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "kernels.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_examples_run(number, rng):
    rows = rng.normal(size=(300, 2))
    names = {
        "relfit": relfit,
        "np": np,
        "data": rows[:100],
        "models": {"a": rows[100:200], "b": rows[200:]},
        "matrix": relfit.IMQ().phi(np.square(rows[:, None] - rows).sum(axis=2)),
        "rows_of_a": np.arange(100, 200),
        "rows_of_b": np.arange(200, 300),
    }
    exec(EXAMPLES[number], names)
