"""Rates over trials with their Monte-Carlo error, and tables of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from relfit.errors import InputError


def rate(values: Iterable[float]) -> tuple[float, float]:
    """Mean over trials and its standard error √(Σ(v−v̄)²/(n(n−1))); for 0/1 values √(p(1−p)/(n−1)).

    The standard error is inf for a single value.

    >>> rate([0, 1] * 13)
    (0.5, 0.1)
    """
    numbers = [float(value) for value in values]
    if not numbers:
        raise InputError("values: expected one value per trial; got none")
    n = len(numbers)
    mean = math.fsum(numbers) / n
    if n == 1:
        return mean, math.inf
    return mean, math.sqrt(math.fsum((value - mean) ** 2 for value in numbers) / (n * (n - 1)))


def markdown_table(rows: Sequence[Mapping[str, object]]) -> str:
    """A Markdown table of mappings with the same keys; floats have three decimals, pairs are mean ± s.e.

    >>> print(markdown_table([{"test": "relpsi", "FPR": (0.04, 0.011)}]), end="")
    | test   | FPR           |
    | ------ | ------------- |
    | relpsi | 0.040 ± 0.011 |
    """
    if not rows:
        raise InputError("rows: expected one row or more; got none")
    header = list(rows[0])
    if any(list(row) != header for row in rows):
        raise InputError(f"rows: expected the columns {', '.join(header)} in every row; give all rows the same keys")
    cells = [header, *([_cell(value) for value in row.values()] for row in rows)]
    widths = [max(3, *(len(line[column]) for line in cells)) for column in range(len(header))]
    lines = [[text.ljust(width) for text, width in zip(line, widths, strict=True)] for line in cells]
    lines.insert(1, ["-" * width for width in widths])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(value: object) -> str:
    if isinstance(value, tuple):
        return " ± ".join(_cell(part) for part in value)
    if isinstance(value, float):
        return f"{value:.3f}"
    return str(value).replace("|", "\\|").replace("\n", " ")
