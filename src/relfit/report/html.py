"""The result as one HTML file that needs nothing else, and as a small table for notebooks."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from relfit.files import write_text_atomic
from relfit.report import words
from relfit.report.plot import forest_svg
from relfit.report.table import table
from relfit.result import Comparison

# The page can hold longer names than a terminal; it wraps them.
LONGEST_NAME = 200


def write_report(comparison: Comparison, path: str | os.PathLike[str]) -> None:
    """Write a self-contained report to `path`: the old file or the new one is there, never half of it.

    >>> import tempfile, pathlib
    >>> from relfit import JointEstimate, decide
    >>> result = decide(JointEstimate(("a", "b"), [0.1, 0.9], [[0.01, 0.0], [0.0, 0.01]]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_report(result, f"{folder}/report.html")
    ...     "b is significantly worse" in pathlib.Path(folder, "report.html").read_text(encoding="utf-8")
    True
    """
    write_text_atomic(path, render_report(comparison))


def render_report(comparison: Comparison) -> str:
    """The report as text; the same comparison gives the same text."""
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            **_common(comparison),
            header=words.header(comparison),
            plot=Markup(forest_svg(comparison)),  # noqa: S704  (made by matplotlib, which escapes the names)
            measure=words.measure_name(comparison),
            question=words.question(comparison),
            error=words.error_words(comparison),
            caveats=words.caveats(comparison),
            settings=_settings(comparison),
        )
    )


def notebook_table(comparison: Comparison) -> str:
    """A small HTML table with the summary sentence, for ``_repr_html_``."""
    return _environment().get_template("notebook.html.j2").render(**_common(comparison))


@cache
def _environment() -> Environment:
    loader = PackageLoader("relfit", "report/templates")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


def _common(comparison: Comparison) -> dict[str, Any]:
    cells = table(comparison, LONGEST_NAME)
    return {
        "summary": words.summary(comparison),
        "titles": cells.titles,
        "rows": [(kind, (row[0], *map(_minus, row[1:]))) for kind, row in zip(cells.kinds, cells.rows, strict=True)],
        "notes": [words.visible(note) for note in comparison.warnings],
    }


def _minus(cell: str) -> str:
    """A minus sign as wide as a digit, where the cell is a negative number."""
    return cell.replace("-", "−", 1) if cell.startswith("-") else cell


def _settings(comparison: Comparison) -> list[tuple[str, str]]:
    share = comparison.select_fraction
    found = {
        "test": words.TEST_NAMES.get(comparison.test, comparison.test),
        "level α": f"{comparison.alpha:g}",
        "correction": words.CORRECTION_NAMES.get(comparison.correction, comparison.correction),
        "share of rows for selection": None if share is None else f"{share:g}",
        "kernel": words.kernel_words(comparison),
        "estimator": comparison.estimator,
        "dependence": words.DEPENDENCE_NAMES.get(comparison.dependence or "", comparison.dependence),
        "rows": words.size_words(comparison),
        "models": str(len(comparison.names)),
        "seed": None if comparison.seed is None else str(comparison.seed),
        "backend": comparison.backend,
        "versions": ", ".join(f"{name} {number}" for name, number in comparison.versions.items()),
    }
    return [(name, value) for name, value in found.items() if value]
