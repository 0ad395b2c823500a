"""The result as one HTML file that needs nothing else, and as a small table for notebooks."""

from __future__ import annotations

import inspect
import os
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from numpy.typing import NDArray

from relfit.api import compare
from relfit.kernels.base import Kernel, Sum
from relfit.kernels.standard import Gaussian
from relfit.report import words
from relfit.report.checks import checks, rows_advice
from relfit.report.examples import check_items, strips
from relfit.report.forest import difference_forest, discrepancy_forest, kind_of
from relfit.report.gate import Gate, gate_sentence
from relfit.report.landscape import Where, where
from relfit.report.methods import methods_text
from relfit.report.recall import Recalled, preset_of, recall
from relfit.report.sensitivity import Sensitivity, bandwidth_sensitivity
from relfit.report.text import short_names, table
from relfit.results.comparison import Comparison
from relfit.util.errors import InputError
from relfit.util.files import write_text_atomic
from relfit.util.text import visible


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
        gate: what `relfit.report.gate.judge` answered, to be shown above everything else.

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


# --------------------
# Everything the page shows, as plain data.

# The page can hold longer names than a terminal; it wraps them.
LONGEST_NAME, LONGEST_LABEL = 200, 36
# Beyond so many models the grid of pairs is drawn small, and beyond so many it shows the first of them.
MANY, MOST_PAIRED = 14, 60


def page(
    comparison: Comparison, data: Any = None, items: Any = None, command: str | None = None, gate: Any = None
) -> dict[str, Any]:
    """What the template is filled with. `data`, `items` and `gate` as in `Comparison.report`."""
    told = _gate(comparison, gate)
    recalled = None if data is None else recall(comparison, data)
    sensitivity = None if recalled is None else bandwidth_sensitivity(comparison, recalled)
    differ, examples = _where(comparison, recalled, items)
    names = [row["name"] for row in comparison.rows()]
    return {
        **common(comparison),
        "gate": told,
        "header": words.header(comparison),
        "tally": _tally(comparison),
        "names": dict(zip(names, short_names(names, LONGEST_LABEL), strict=True)),
        "forests": (discrepancy_forest(comparison), difference_forest(comparison)),
        "pairs": who_beats_whom(comparison).first(MOST_PAIRED),
        "unpaired": max(0, len(names) - MOST_PAIRED),
        "many": len(names) > MANY,
        "measure": words.measure_name(comparison),
        "level": f"{100 * (1.0 - comparison.alpha):g}%",
        "share": f"{100 * comparison.alpha:g}%",
        "corrected": comparison.correction != "none",
        "test": comparison.test,
        "margin": f"{comparison.margin:g}",
        "question": words.question(comparison),
        "error": words.error_words(comparison),
        "in_other_words": words.in_other_words(comparison),
        "caveats": words.not_said(comparison),
        "checks": checks(comparison, recalled, sensitivity),
        "sensitivity": None if sensitivity is None else _sensitivity_rows(sensitivity, names),
        "advice": rows_advice(comparison),
        "where": differ,
        "examples": examples,
        "settings": settings(comparison),
        "command": command,
        "call": python_call(comparison),
        "methods": methods_text(comparison),
    }


def common(comparison: Comparison) -> dict[str, Any]:
    """What the page and the notebook's table share."""
    cells = table(comparison, LONGEST_NAME)
    return {
        "summary": words.summary(comparison),
        "titles": cells.titles,
        "rows": [(kind, (row[0], *map(_minus, row[1:]))) for kind, row in zip(cells.kinds, cells.rows, strict=True)],
        "notes": [visible(note) for note in comparison.warnings],
    }


def _gate(comparison: Comparison, gate: Any) -> dict[str, Any] | None:
    """The gate's sentence, and whether it asks another question than the table."""
    if gate is None:
        return None
    if not isinstance(gate, Gate) or not {gate.name, gate.against} <= set(comparison.names):
        came = "that of another result" if isinstance(gate, Gate) else type(gate).__name__
        raise InputError(f"gate: expected what relfit.report.gate.judge answered for this result, got {came}")
    kind = "worse" if gate.failed else "best"
    return {"kind": kind, "sentence": gate_sentence(comparison, gate), "fixed": gate.fixed}


def _tally(comparison: Comparison) -> list[tuple[str, str]]:
    """How many models have each verdict, in the order of the table."""
    counts: dict[tuple[str, str], int] = {}
    for row in comparison.rows():
        key = kind_of(row), row["verdict"]
        counts[key] = counts.get(key, 0) + 1
    return [(kind, f"{count} {verdict}") for (kind, verdict), count in counts.items()]


def _where(comparison: Comparison, recalled: Recalled | None, items: Any) -> tuple[Where | None, list[tuple[str, Any]]]:
    if recalled is None:
        return None, []
    panel, found = where(comparison, recalled)
    if items is None:
        return panel, []
    checked = check_items(items, recalled)
    return panel, [(each.name, made) for each in found if (made := strips(each, checked))]


def _sensitivity_rows(found: Sensitivity, names: list[str]) -> dict[str, Any]:
    return {
        "columns": [
            (f"{factor:g}×", f"{length:.3g}") for factor, length in zip(found.factors, found.lengths, strict=True)
        ],
        "rows": [(name, found.kinds(name)) for name in names],
        "count": found.rows,
        "complete": found.complete,
    }


def _minus(cell: str) -> str:
    """A minus sign as wide as a digit, where the cell is a negative number."""
    return cell.replace("-", "−", 1) if cell.startswith("-") else cell


# --------------------
# Who beats whom: every model against every other.

CORRECTION = "holm"


@dataclass(frozen=True)
class Pairs:
    """Models in the order of the table. `worse[i, j]`: i is significantly worse than j."""

    names: tuple[str, ...]
    worse: NDArray[np.bool_]

    def first(self, count: int) -> Pairs:
        """The grid of the first models of the table."""
        return Pairs(self.names[:count], self.worse[:count, :count])

    def cell(self, i: int, j: int) -> str:
        """What row i is to column j: "worse", "better", "open" or "same"."""
        if i == j:
            return "same"
        return "worse" if self.worse[i, j] else "better" if self.worse[j, i] else "open"


def who_beats_whom(comparison: Comparison) -> Pairs:
    """`Comparison.pairs` in the order of the table, adjusted together by Holm: no error with probability 1 − α.

    >>> from relfit import JointEstimate, decide
    >>> grid = who_beats_whom(decide(JointEstimate(("a", "b"), [0.1, 0.9], [[0.01, 0.0], [0.0, 0.01]]), test="relpsi"))
    >>> grid.cell(0, 1), grid.cell(1, 0)
    ('better', 'worse')
    """
    found = comparison.pairs(CORRECTION)
    names = tuple(row["name"] for row in comparison.rows())
    at = [found.names.index(name) for name in names]
    return Pairs(names, found.worse[np.ix_(at, at)])


# --------------------
# The call that gives this answer again, and the settings as they were.

# Fields that are results or are shown under another name.
_NOT_SETTINGS = {
    *("names", "best", "best_index", "discrepancy", "standard_error", "covariance", "difference"),
    *("difference_standard_error", "pvalue", "log_pvalue", "adjusted_pvalue", "worse", "status", "truncation"),
    *("beaten_by", "confidence_set", "randomised", "near_degeneracy", "warnings", "measure", "bandwidth_rule"),
    *("equivalent", "groups", "locations", "command", "second_order"),
}
_LABELS = {
    "alpha": "level α",
    "select_fraction": "share of rows for selection",
    "sizes": "rows",
    "pair_count": "pairs of rows",
    "block_count": "blocks",
    "inputs": "digests of the data",
}


def settings(comparison: Comparison) -> list[tuple[str, str]]:
    """Every setting the result records, in words; those that do not apply are left out."""
    shown = {"discrepancy": words.measure_name(comparison), "models": str(len(comparison.names))}
    for item in fields(comparison):
        value = getattr(comparison, item.name)
        if item.name not in _NOT_SETTINGS and value is not None and not (item.name == "margin" and value == 0.0):
            shown[_LABELS.get(item.name, item.name.replace("_", " "))] = _words(comparison, item.name, value)
    return [(label, text) for label, text in shown.items() if text]


def python_call(comparison: Comparison) -> str | None:
    """The call of `relfit.compare` with every option that is not the default; None where the result does not say all.

    >>> from relfit import JointEstimate, decide
    >>> python_call(decide(JointEstimate(("a", "b"), [0.1, 0.9], [[0.01, 0.0], [0.0, 0.01]]))) is None
    True
    """
    if comparison.measure not in ("mmd", "ksd") or comparison.kernel is None or comparison.bandwidth_rule == "selected":
        return None
    preset = preset_of(comparison)
    options: dict[str, Any] = {
        name: getattr(comparison, name)
        for name, parameter in inspect.signature(compare).parameters.items()
        if name in _RECORDED and getattr(comparison, name, None) not in (None, parameter.default)
    }
    if options.get("correction") == ("by" if comparison.test == "relmulti" else "none"):
        del options["correction"]
    counts = {"pairs": comparison.pair_count, "blocks": comparison.block_count}
    options |= {name: count for name, count in counts.items() if count is not None}
    if preset is None and not _default_kernel(comparison):
        options["kernel"] = _Raw(_kernel_code(comparison.kernel))
    if preset is not None:
        options["preset"] = preset
    if comparison.groups is not None:
        options["groups"] = _Raw("groups")
    options["rng"] = comparison.seed
    return f"relfit.compare(reference, models, {', '.join(f'{key}={value!r}' for key, value in options.items())})"


_RECORDED = (
    *("test", "estimator", "alpha", "select_fraction", "correction", "dependence"),
    *("variance", "margin", "precision"),
)


class _Raw(str):
    """Text that stands in code as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _default_kernel(comparison: Comparison) -> bool:
    return isinstance(comparison.kernel, Gaussian) and comparison.bandwidth_rule == "median"


def _kernel_code(kernel: Kernel) -> str:
    """The kernel as Python; one that was made of functions or matrices is only named."""
    if isinstance(kernel, Sum):
        return " + ".join(map(_kernel_code, kernel.terms))
    return f"relfit.{kernel!r}" if kernel.plain and kernel.writable else "kernel"


def _words(comparison: Comparison, name: str, value: Any) -> str:
    spoken = {
        "test": words.TEST_NAMES,
        "correction": words.CORRECTION_NAMES,
        "dependence": words.DEPENDENCE_NAMES,
    }
    if name in spoken:
        return spoken[name].get(value, str(value))
    if name == "kernel":
        return words.kernel_words(comparison) or ""
    if name == "sizes":
        return words.size_words(comparison) or ""
    if name == "inputs":
        digests = {"reference": value["reference"], **(value["models"] or {})}
        return ", ".join(f"{visible(key)} {text[:12]}" for key, text in digests.items() if text)
    if isinstance(value, dict):
        return ", ".join(f"{key} {number}" for key, number in value.items())
    return f"{value:g}" if isinstance(value, float) else visible(str(value))
