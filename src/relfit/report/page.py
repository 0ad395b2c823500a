"""Everything the page shows, as plain data."""

from __future__ import annotations

from typing import Any

from relfit.errors import InputError
from relfit.evidence import Recalled, Sensitivity, bandwidth_sensitivity, recall
from relfit.gate import Gate
from relfit.report import plain, words
from relfit.report.advice import rows_advice
from relfit.report.checks import checks
from relfit.report.examples import check_items, strips
from relfit.report.forest import difference_forest, discrepancy_forest, kind_of
from relfit.report.gate import gate_sentence
from relfit.report.methods import methods_text
from relfit.report.pairs import who_beats_whom
from relfit.report.repeat import python_call, settings
from relfit.report.table import short_names, table
from relfit.report.where import Where, where
from relfit.result import Comparison

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
        "in_other_words": plain.in_other_words(comparison),
        "caveats": plain.not_said(comparison),
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
        "notes": [words.visible(note) for note in comparison.warnings],
    }


def _gate(comparison: Comparison, gate: Any) -> dict[str, Any] | None:
    """The gate's sentence, and whether it asks another question than the table."""
    if gate is None:
        return None
    if not isinstance(gate, Gate) or not {gate.name, gate.against} <= set(comparison.names):
        came = "that of another result" if isinstance(gate, Gate) else type(gate).__name__
        raise InputError(f"gate: expected what relfit.gate.judge answered for this result, got {came}")
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
