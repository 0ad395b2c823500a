"""Rates and tables against values worked out by hand."""

from __future__ import annotations

import math

import pytest

from relfit.paper.experiment import markdown_table, rate
from relfit.util.errors import InputError


def test_rate_by_hand():
    """Values 0, ½, 1: mean ½, Σ(v−½)² = ½, standard error √(½/(3·2)) = √(1/12)."""
    mean, error = rate([0, 0.5, 1])
    assert mean == 0.5
    assert error == pytest.approx(math.sqrt(1 / 12))


def test_markdown_table():
    rows = [{"test": "a|b", "TPR": (0.5, 0.25), "n": 10}, {"test": "c", "TPR": 1.0, "n": None}]
    assert markdown_table(rows) == (
        "| test | TPR           | n    |\n"
        "| ---- | ------------- | ---- |\n"
        "| a\\|b | 0.500 ± 0.250 | 10   |\n"
        "| c    | 1.000         | None |\n"
    )


@pytest.mark.parametrize("rows", [[], [{"a": 1}, {"b": 2}]])
def test_markdown_table_refusals(rows):
    with pytest.raises(InputError, match="rows"):
        markdown_table(rows)
