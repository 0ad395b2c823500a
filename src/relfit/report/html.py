"""The result as one HTML file that needs nothing else, and as a small table for notebooks."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from relfit.files import write_text_atomic
from relfit.report.page import common, page
from relfit.result import Comparison


def write_report(
    comparison: Comparison,
    path: str | os.PathLike[str],
    data: Any = None,
    *,
    items: Any = None,
    command: str | None = None,
    gate: Any = None,
) -> None:
    """Write a self-contained report to `path`: the old file or the new one is there, never half of it.

    Args:
        comparison: the result.
        path: the .html file.
        data: the pair (reference, models) that was compared, for the panels that need the rows.
        items: for features of images or texts, name of a model (or "reference") → one file, image or text per row.
        command: the command line that made the result, to be shown.
        gate: what `relfit.gate.judge` answered, to be shown above everything else.

    >>> import tempfile, pathlib
    >>> from relfit import JointEstimate, decide
    >>> result = decide(JointEstimate(("a", "b"), [0.1, 0.9], [[0.01, 0.0], [0.0, 0.01]]), test="relpsi")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_report(result, f"{folder}/report.html")
    ...     "b is significantly worse" in pathlib.Path(folder, "report.html").read_text(encoding="utf-8")
    True
    """
    write_text_atomic(path, render_report(comparison, data, items=items, command=command, gate=gate))


def render_report(
    comparison: Comparison, data: Any = None, *, items: Any = None, command: str | None = None, gate: Any = None
) -> str:
    """The report as text; the same comparison and data give the same text."""
    return _environment().get_template("report.html.j2").render(**page(comparison, data, items, command, gate))


def notebook_table(comparison: Comparison) -> str:
    """A small HTML table with the summary sentence, for ``_repr_html_``."""
    return _environment().get_template("notebook.html.j2").render(**common(comparison))


@cache
def _environment() -> Environment:
    loader = PackageLoader("relfit", "report/templates")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
