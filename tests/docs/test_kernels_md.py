"""docs/kernels.md: its examples run. docs/evidence/kernels.md: its tables are there, and say what the page says."""

import re
from pathlib import Path

import numpy as np
import pytest

import relfit

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "kernels.md").read_text(encoding="utf-8")
EVIDENCE = (DOCS / "evidence" / "kernels.md").read_text(encoding="utf-8")
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


def test_blobs_are_seen_by_multiscale_and_by_select_and_not_by_the_median():
    """The figures the page promises: the median bandwidth finds at most .15, the other two at least .8."""
    table = re.search(r"<!-- blobs -->\n(.*?)<!-- end of blobs -->", EVIDENCE, flags=re.DOTALL)[1]
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    header = lines[0]
    test, kernel, found = (header.index(title) for title in ("test", "kernel", "TPR"))
    shown = {(line[test], line[kernel]): line[found] for line in lines[2:]}
    for name in ("median", "MultiScale", "select"):
        assert shown["best-set", name] in PAGE
    rates = {key: float(rate.split(" ")[0]) for key, rate in shown.items()}
    assert rates["relpsi", "median"] <= 0.15
    assert rates["relpsi", "MultiScale"] >= 0.8
    assert rates["relpsi", "select"] >= 0.8
