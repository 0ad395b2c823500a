"""The result as one HTML file that needs nothing else, and as a small table for notebooks.

`page` gathers everything the template shows as plain data. The data that were compared are loaded at most once, by
`recall`, and every panel takes what it returns.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from relfit.estimators.base import Estimator
from relfit.estimators.designs import ESTIMATORS, Complete
from relfit.kernels.base import Kernel, Sum
from relfit.kernels.standard import Gaussian
from relfit.report import words
from relfit.report.checks import checks, rows_advice
from relfit.report.examples import check_items, strips
from relfit.report.figures import difference_forest, discrepancy_forest, signed, who_beats_whom
from relfit.report.gate import Gate, gate_sentence
from relfit.report.landscape import where
from relfit.report.methods import methods_text
from relfit.report.recall import recall
from relfit.report.sensitivity import Sensitivity, bandwidth_sensitivity, used_test
from relfit.report.text import short_names, table
from relfit.results.comparison import Comparison
from relfit.settings import Settings
from relfit.stats.tests import TESTS
from relfit.util.errors import InputError
from relfit.util.files import write_text_atomic
from relfit.util.text import visible

# The page can hold longer names than a terminal; it wraps them.
LONGEST_NAME, LONGEST_LABEL = 200, 36
# Beyond so many models the grid of pairs is drawn small, and beyond so many it shows the first of them.
MANY, MOST_PAIRED = 14, 60
# Fields of a result that are no settings, or are shown under another name.
_NOT_SETTINGS = {
    *("names", "best", "best_index", "discrepancy", "standard_error", "covariance", "difference"),
    *("difference_standard_error", "pvalue", "log_pvalue", "adjusted_pvalue", "worse", "status", "truncation"),
    *("beaten_by", "confidence_set", "randomised", "near_degeneracy", "warnings", "measure", "bandwidth_rule"),
    *("equivalent", "groups", "locations", "command", "second_order", "copies", "shared_rows"),
}
_LABELS = {
    "alpha": "level α",
    "select_fraction": "fraction of rows for selection",
    "sizes": "rows",
    "pair_count": "pairs of rows",
    "block_count": "blocks",
    "inputs": "digests of the data",
    "plan": "order of sums",
}


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
        data: the pair (reference, models) that was compared, for the panels that need the rows; or these as loaded by
            `relfit.data.load.load`, which are then not loaded again.
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
    return _environment().get_template("notebook.html.j2").render(**_table(comparison))


@cache
def _environment() -> Environment:
    loader = PackageLoader("relfit", "report/templates")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


def page(
    comparison: Comparison, data: Any = None, items: Any = None, command: str | None = None, gate: Any = None
) -> dict[str, Any]:
    """What the template is filled with. Arguments as in `write_report`."""
    names = [row["name"] for row in comparison.rows()]
    test, margin = words.words_of(comparison), f"{comparison.margin:g}"
    shown = {
        **_table(comparison),
        "gate": _gate(comparison, gate),
        "header": words.header(comparison),
        "tally": _tally(comparison),
        "names": dict(zip(names, short_names(names, LONGEST_LABEL), strict=True)),
        "forests": (discrepancy_forest(comparison), difference_forest(comparison)),
        "intervals": words.fill(test.intervals, comparison),
        "bound": words.fill(test.bound, comparison),
        "line": f"the margin of {margin} (the dashed line)" if comparison.margin else "0",
        "pairs": who_beats_whom(comparison).first(MOST_PAIRED),
        "unpaired": max(0, len(names) - MOST_PAIRED),
        "many": len(names) > MANY,
        "measure": words.measure_of(comparison).name,
        "level": f"{100 * (1.0 - comparison.alpha):g}%",
        "alpha": f"{100 * comparison.alpha:g}%",
        "question": words.question(comparison),
        "error": words.error_words(comparison),
        "in_other_words": words.in_other_words(comparison),
        "caveats": words.caveats(comparison),
        "advice": rows_advice(comparison),
        "settings": settings(comparison),
        "command": command,
        "call": python_call(comparison),
        "methods": methods_text(comparison),
    }
    return {**shown, **_panels(comparison, data, items, names)}


def _panels(comparison: Comparison, data: Any, items: Any, names: list[str]) -> dict[str, Any]:
    """What needs the data: loaded here, and nowhere else."""
    if data is None:
        return {"checks": checks(comparison, None, None), "sensitivity": None, "where": None, "examples": []}
    recalled = recall(comparison, data)
    checked_items = {} if items is None else check_items(items, recalled)
    sensitivity = bandwidth_sensitivity(comparison, recalled)
    panel, differing = where(comparison, recalled)
    examples = [(each.name, strips(each, checked_items)) for each in differing]
    return {
        "checks": checks(comparison, recalled, sensitivity),
        "sensitivity": None if sensitivity is None else _verdicts(sensitivity, names),
        "where": panel,
        "examples": [(name, shown) for name, shown in examples if shown],
    }


def _table(comparison: Comparison) -> dict[str, Any]:
    """What the page and the notebook's table share."""
    cells = table(comparison, LONGEST_NAME)
    return {
        "summary": words.summary(comparison),
        "titles": cells.titles,
        "rows": [(kind, (row[0], *map(signed, row[1:]))) for kind, row in zip(cells.kinds, cells.rows, strict=True)],
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
    """The number of models with each verdict, in the order of the table."""
    counts: dict[tuple[str, str], int] = {}
    for row in comparison.rows():
        key = words.kind_of(row), row["verdict"]
        counts[key] = counts.get(key, 0) + 1
    return [(kind, f"{count} {verdict}") for (kind, verdict), count in counts.items()]


def _verdicts(sensitivity: Sensitivity, names: list[str]) -> dict[str, Any]:
    columns = zip(sensitivity.factors, sensitivity.lengths, strict=True)
    return {
        "columns": [(f"{factor:g}×", f"{length:.3g}", factor == 1.0) for factor, length in columns],
        "rows": [(name, sensitivity.kinds(name)) for name in names],
        "count": sensitivity.rows,
        "complete": sensitivity.complete,
    }


def settings(comparison: Comparison) -> list[tuple[str, str]]:
    """Every setting the result records, in words; those that do not apply are left out."""
    shown = {"discrepancy": words.measure_of(comparison).name, "models": str(len(comparison.names))}
    for item in fields(comparison):
        value = getattr(comparison, item.name)
        if item.name not in _NOT_SETTINGS and value is not None and not (item.name == "margin" and value == 0.0):
            shown[_LABELS.get(item.name, item.name.replace("_", " "))] = _setting(comparison, item.name, value)
    return [(label, text) for label, text in shown.items() if text]


def _setting(comparison: Comparison, name: str, value: Any) -> str:
    if name == "test":
        return words.name_of_test(value)
    if name in ("correction", "dependence"):
        known = words.CORRECTION_NAMES if name == "correction" else words.DEPENDENCE_NAMES
        return known.get(value, str(value))
    if name in ("kernel", "sizes"):
        return (words.kernel_words if name == "kernel" else words.size_words)(comparison) or ""
    if name == "inputs":
        digests = {"reference": value["reference"], **(value["models"] or {})}
        return ", ".join(f"{visible(key)} {text[:12]}" for key, text in digests.items() if text)
    if isinstance(value, dict):
        return ", ".join(f"{key.replace('_', ' ')} {number}" for key, number in value.items())
    return f"{value:g}" if isinstance(value, float) else visible(str(value))


def python_call(comparison: Comparison) -> str | None:
    """The call of `relfit.compare` with every option that is not the default; None where the result does not say all.

    >>> from relfit import JointEstimate, decide
    >>> python_call(decide(JointEstimate(("a", "b"), [0.1, 0.9], [[0.01, 0.0], [0.0, 0.01]]))) is None
    True
    """
    if not words.measure_of(comparison).pairs or comparison.kernel is None or comparison.bandwidth_rule == "selected":
        return None
    test, estimator, default = used_test(comparison), _used_estimator(comparison), Settings()
    options = {
        name: repr(getattr(comparison, name))
        for name in ("alpha", "margin", "dependence", "preset")
        if getattr(comparison, name) not in (None, getattr(default, name))
    }
    if test != default.test:
        options["test"] = _value_code(test, TESTS)
    if comparison.correction != test.default_correction:
        options["correction"] = repr(comparison.correction)
    if estimator != default.estimator:
        options["estimator"] = _value_code(estimator, ESTIMATORS)
    median_gaussian = isinstance(comparison.kernel, Gaussian) and comparison.bandwidth_rule == "median"
    if comparison.preset is None and not median_gaussian:
        options["kernel"] = _kernel_code(comparison.kernel)
    if comparison.measure == "mmd" and comparison.preset is None:
        # The models may have been densities that were drawn from: without this, they would be compared by KSD.
        options["discrepancy"] = repr("mmd")
    if comparison.groups is not None:
        options["groups"] = "groups"
    options["rng"] = repr(comparison.seed)
    return f"relfit.compare(reference, models, {', '.join(f'{name}={code}' for name, code in options.items())})"


def _used_estimator(comparison: Comparison) -> Estimator:
    """The estimator of a comparison, with the options that it records."""
    counts = {"pairs": comparison.pair_count, "blocks": comparison.block_count, "variance": comparison.variance}
    return ESTIMATORS[comparison.estimator or Complete.name](
        **{name: value for name, value in counts.items() if value is not None}
    )


def _value_code(value: Any, known: Mapping[str, Any]) -> str:
    """A test or an estimator as Python: its name, or the value where it has options."""
    return repr(value.name) if value == known[value.name]() else f"relfit.{value!r}"


def _kernel_code(kernel: Kernel) -> str:
    """The kernel as Python; one that was made of functions or matrices is only named."""
    if isinstance(kernel, Sum):
        return " + ".join(map(_kernel_code, kernel.terms))
    return f"relfit.{kernel!r}" if kernel.plain and kernel.writable else "kernel"
