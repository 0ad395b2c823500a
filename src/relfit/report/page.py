"""The result as one HTML file that needs nothing else, and as a small table for notebooks.

`render_report` gathers everything the template shows as plain data. The data that were
compared are loaded at most once, by `recall`, and every panel takes what it returns.
"""

from __future__ import annotations

import base64
import hashlib
import os
from datetime import datetime
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from relfit.checks.robustness import Sensitivity
from relfit.data.encode import Encoding
from relfit.estimators import ESTIMATORS
from relfit.estimators.base import Complete, Estimator
from relfit.kernels.base import Kernel, Sum
from relfit.kernels.composite import Collection
from relfit.kernels.standard import Gaussian
from relfit.report.checks import bandwidth_sensitivity, changed_verdicts, checks, rows_advice
from relfit.report.columns import column_panel
from relfit.report.figures import (
    difference_forest,
    discrepancy_forest,
    signed,
    signs,
    who_beats_whom,
)
from relfit.report.gate import Gate
from relfit.report.items import (
    check_items,
    contrasts,
    example_rows,
    heat_map,
    recall_scores,
    table_items,
)
from relfit.report.recall import recall
from relfit.report.witness import where
from relfit.results import words
from relfit.results.comparison import Comparison
from relfit.results.formats import methods_text
from relfit.results.scale import KINDS, kind_of
from relfit.results.table import Display, short_names
from relfit.results.text import display, table
from relfit.settings import Settings
from relfit.stats.tests import TESTS
from relfit.stats.tests.base import Test
from relfit.util.errors import InputError
from relfit.util.files import write_text_atomic
from relfit.util.text import plain_number, visible

# The page can hold longer names than a terminal; it wraps them.
LONGEST_NAME = 200
LONGEST_LABEL = 36
# Beyond so many models the grid of pairs is drawn small, and beyond so many it shows the first
# of them.
MANY = 14
MOST_PAIRED = 60

# Results whose rows have no pictures or texts.
_NO_ITEMS = {
    "loglik": "a likelihood has no most typical rows to show; leave them out",
    "loss": "belongs to features of images or texts, and this result is of losses; leave it out",
}
# A notebook wraps, so that longer names have room.
_LONGEST_NAME = 80


@cache
def environment() -> Environment:
    """The templates of all pages; text is escaped."""
    made = Environment(
        loader=PackageLoader("relfit", "report/templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["plain_number"] = plain_number
    folder = resources.files("relfit").joinpath("report/templates")
    style, script = (
        folder.joinpath(name).read_text(encoding="utf-8") for name in ("style.css", "page.js")
    )
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    made.globals |= {"style": style, "script": script, "digest": digest}
    return made


def render_report(
    comparison: Comparison,
    data: Any = None,
    *,
    items: Any = None,
    command: str | None = None,
    gate: Any = None,
    title: str | None = None,
    date: str | None = None,
) -> str:
    """The report, for which `Comparison.report` describes the arguments; the same ones give
    the same text.

    `data` may also be what `relfit.data.load.load` returned, which is then not loaded again.
    `date` is today's unless given.

    >>> from relfit import JointEstimate, decide
    >>> result = decide(
    ...     JointEstimate(("a", "b"), [0.1, 0.9], [[0.01, 0.0], [0.0, 0.01]]), test="relpsi"
    ... )
    >>> "a has the smallest score (smaller is better). Significantly worse: b." in render_report(
    ...     result
    ... )
    True
    """
    names = [row["name"] for row in comparison.rows()]
    test = TESTS[comparison.test]
    level = f"{100 * (1.0 - comparison.alpha):g}%"
    several = isinstance(comparison.kernel, Collection)
    if gate is not None:
        _check_gate(comparison, gate)
    panels = _panels(comparison, data, items, gate)
    template = environment().get_template("report.html.j2")
    # Only one test compares every model with every other.
    paired = len(names) == 2 or (test.tests_best and not several)
    cells = [row[:MOST_PAIRED] for row in who_beats_whom(comparison)] if paired else []
    sensitivity = panels["sensitivity"]
    return template.render(
        **_table(comparison),
        gate=gate,
        **panels,
        title=None if title is None else visible(title),
        date=date or datetime.now().astimezone().strftime("%Y-%m-%d"),
        reference=words.reference_words(comparison),
        headline=words.headline(comparison),
        counts=words.counts(comparison),
        scale=words.scale_words(comparison),
        signs=signs(comparison),
        marks={kind: verdict.mark for kind, verdict in KINDS.items()},
        verdict_names=words.verdict_names(comparison),
        keys=[_sort_keys(row) for row in comparison.rows()],
        flags=_flags(comparison, sensitivity),
        details=_details(comparison, command),
        several=several,
        worse=comparison.wording.worse.shown.format(**comparison.facts()),
        worse_kind=comparison.wording.worse.kind,
        adjusted=comparison.correction != "none",
        correction=words.CORRECTION_NAMES.get(comparison.correction),
        header=words.header(comparison),
        places={name: k for k, name in enumerate(names)},
        names=dict(zip(names, short_names(names, LONGEST_LABEL), strict=True)),
        forests=(discrepancy_forest(comparison), difference_forest(comparison)),
        undrawn=", ".join(map(visible, comparison.impossible)),
        intervals=words.fill(test.words.intervals, comparison),
        test=test.words.name,
        line=f"the margin of {comparison.margin:g} (the dashed line)"
        if comparison.margin
        else "0",
        pairs=list(zip(names[:MOST_PAIRED], cells, strict=False)) if paired else None,
        unpaired=max(0, len(names) - MOST_PAIRED),
        many=len(names) > MANY,
        measure=words.measure_of(comparison).name,
        better=words.measure_of(comparison).better,
        level=level,
        alpha=f"{100 * comparison.alpha:g}%",
        question=words.question(comparison),
        error=words.error_words(comparison),
        in_other_words=words.in_other_words(comparison),
        caveats=words.caveats(comparison),
        advice=rows_advice(comparison),
        settings=settings(comparison),
        command=command,
        call=python_call(comparison),
        methods="\n\n".join(methods_text(each) for each in (comparison, *comparison.also)),
        others=[
            {**_table(other), "header": words.header(other), "disagreement": sentence}
            for other, sentence in zip(
                comparison.also, words.disagreement(comparison), strict=True
            )
        ],
    )


def write_report(
    comparison: Comparison,
    path: str | os.PathLike[str],
    data: Any = None,
    *,
    items: Any = None,
    command: str | None = None,
    gate: Any = None,
    title: str | None = None,
) -> None:
    """Write the report to a file, as `Comparison.report` says."""
    page = render_report(comparison, data, items=items, command=command, gate=gate, title=title)
    write_text_atomic(path, page)


def _flags(comparison: Comparison, sensitivity: Sensitivity | None) -> dict[str, str]:
    """What is said beside each verdict that changes with the bandwidth: what it becomes,
    where the data tell.
    """
    changing = changed_verdicts(comparison, sensitivity) or []
    remarks = {
        name: None if sensitivity is None else sensitivity.remark(name) for name in changing
    }
    return {name: text or "depends on the bandwidth" for name, text in remarks.items()}


def _sort_keys(row: dict[str, Any]) -> tuple[float | str, ...]:
    """What the columns of the table are sorted by: the name, numbers, and the place of the
    verdict on the scale.
    """
    numbers = (row[key] for key in ("discrepancy", "standard_error", "difference"))
    return row["name"], *numbers, list(KINDS).index(kind_of(row["verdict"]))


def _details(comparison: Comparison, command: str | None) -> str:
    """Everything that says how the result was made, as text to be copied."""
    call = python_call(comparison)
    made = settings(comparison)
    width = max(len(name) for name, _ in made)
    lines = [words.header(comparison), *(f"{name:<{width}}  {value}" for name, value in made)]
    return "\n".join([*lines, *(text for text in (command, call) if text)])


def _panels(comparison: Comparison, data: Any, items: Any, gate: Any) -> dict[str, Any]:
    """What needs the data: loaded here, and nowhere else."""
    panels: dict[str, Any] = {
        "sensitivity": None,
        "where": None,
        "heat": None,
        "contrasts": [],
        "columns": None,
    }
    recalled = None
    measure = comparison.measure
    if data is not None and items is not None and measure in _NO_ITEMS:
        raise InputError(f"items: {_NO_ITEMS[measure]}")
    if data is not None and measure == "loss":
        scores = recall_scores(comparison, data)
        panels["heat"] = heat_map(comparison, scores)
        panels["part"] = scores.part
        panels["contrasts"] = contrasts(comparison, scores, gate and gate.name)
    elif data is not None and measure != "loglik":
        recalled = recall(comparison, data)
        panel, differing = where(comparison, recalled)
        examples = []
        if items is not None or recalled.data.encoding is not None:
            shown = table_items(recalled) if items is None else check_items(items, recalled)
            examples = [(each.name, example_rows(each, shown)) for each in differing]
        panels |= {
            "sensitivity": recalled.others or bandwidth_sensitivity(comparison, recalled),
            "where": panel,
            "columns": column_panel(comparison, recalled),
            # The number of rows that were used of each sample, unless it is all of them.
            "fewer_rows": None if recalled.complete else recalled.most_rows,
            "examples": [(name, found) for name, found in examples if found],
        }
    return {**panels, "checks": checks(comparison, recalled, panels["sensitivity"])}


def _table(comparison: Comparison) -> dict[str, Any]:
    """The cells of the table, the sentence and the notes."""
    cells = table(comparison, LONGEST_NAME)
    labels = dict(
        zip(comparison.names, short_names(comparison.names, LONGEST_LABEL), strict=True)
    )
    return {
        "summary": words.summary(comparison, labels),
        "below": words.below(comparison)[1:],
        "titles": cells.titles,
        "verdicts": cells.verdicts,
        "rows": [
            (kind, (row[0], *map(signed, row[1:])))
            for kind, row in zip(cells.kinds, cells.rows, strict=True)
        ],
        "yardstick": words.yardstick(comparison) if comparison.margin else None,
        "notes": [visible(note) for note in comparison.warnings],
    }


def _check_gate(comparison: Comparison, gate: Any) -> None:
    """Refuse a gate that does not speak of this result."""
    if isinstance(gate, Gate) and {gate.name, gate.against} <= set(comparison.names):
        return
    came = "that of another result" if isinstance(gate, Gate) else type(gate).__name__
    raise InputError(
        f"gate: expected what relfit.report.gate.judge answered for this result, got {came}"
    )


def settings(comparison: Comparison) -> list[tuple[str, str]]:
    """Every setting the result records, in words; those that do not apply are left out."""
    shown = {
        "discrepancy": words.measure_of(comparison).measured,
        "models": str(len(comparison.names)),
    }
    values = comparison.held()
    told = comparison.described()
    for name in sorted(told, key=lambda name: not told[name].get("first")):
        label = told[name].get("label")
        value = values[name]
        if label is not None and value is not None and not (name == "margin" and value == 0.0):
            shown[label] = _setting(comparison, name, value)
    return [(label, text) for label, text in shown.items() if text]


def _setting(comparison: Comparison, name: str, value: Any) -> str:
    if name == "inputs":
        digests = {"reference": value["reference"], **(value["models"] or {})}
        return ", ".join(f"{visible(key)} {text[:12]}" for key, text in digests.items() if text)
    if name == "kernel":
        return words.kernel_words(comparison) or ""
    if name == "sizes":
        return words.size_words(comparison) or ""
    if name == "test":
        return words.name_of_test(value)
    if isinstance(value, dict):
        return ", ".join(f"{key.replace('_', ' ')} {number}" for key, number in value.items())
    known = {"correction": words.CORRECTION_NAMES, "dependence": words.DEPENDENCE_NAMES}
    if name in known:
        return known[name].get(value, str(value))
    return f"{value:g}" if isinstance(value, float) else visible(str(value))


def python_call(comparison: Comparison) -> str | None:
    """The call of `relfit.compare` with every option that is not the default; None where the
    result does not say all.

    >>> from relfit import JointEstimate, decide
    >>> python_call(
    ...     decide(JointEstimate(("a", "b"), [0.1, 0.9], [[0.01, 0.0], [0.0, 0.01]]))
    ... ) is None
    True
    """
    measure = words.measure_of(comparison)
    likelihood = comparison.measure == "loglik" and comparison.inputs is not None
    of_pairs = measure.pairs and comparison.kernel is not None
    if not (of_pairs or likelihood) or comparison.bandwidth_rule == "selected":
        return None
    test = words.used_test(comparison)
    default = Settings()
    estimator = ESTIMATORS[comparison.estimator or Complete.name].of_record(comparison)
    options = {}
    for name in ("alpha", "margin", "dependence", "preset"):
        value = getattr(comparison, name)
        if value not in (None, getattr(default, name)):
            options[name] = repr(value)
    if test != default.test:
        options["test"] = _value_code(test)
    if comparison.correction != test.default_correction:
        options["correction"] = repr(comparison.correction)
    if estimator != default.estimator:
        options["estimator"] = _value_code(estimator)
    kernel = comparison.kernel
    median = isinstance(kernel, Gaussian) and comparison.bandwidth_rule == "median"
    if kernel is not None and comparison.preset is None and not median:
        options["kernel"] = _kernel_code(kernel)
    if likelihood:
        options["discrepancy"] = repr("loglik")
        if comparison.design is not None:
            options["given"] = "covariates"
    if comparison.measure == "mmd" and comparison.preset is None:
        # The models may have been densities that were drawn from: without this, they would be
        # compared by KSD.
        options["discrepancy"] = repr("mmd")
    if comparison.also:
        options["discrepancy"] = repr([each.measure for each in (comparison, *comparison.also)])
    if comparison.groups is not None:
        options["groups"] = "groups"
    if comparison.encoding is not None:
        options |= _encoding_code(comparison.encoding)
    elif measure.kind == "densities" and (comparison.sizes or (1,))[0] == 0:
        # Draws against a density would be whitened.
        options["scale"] = repr("none")
    options["rng"] = repr(comparison.seed)
    code = ", ".join(f"{name}={value}" for name, value in options.items())
    return f"relfit.compare(reference, models, {code})"


def _encoding_code(encoding: Encoding) -> dict[str, str]:
    """The options that make this encoding, as Python."""
    given = {column.name: column.scale for column in encoding.columns}
    code = {"scale": repr(given if encoding.scale == "given" else encoding.scale)}
    categorical = [column.name for column in encoding.columns if column.kind == "category"]
    chosen = {"categorical": categorical, "drop": list(encoding.left_out)}
    parts = [f"{name}={names!r}" for name, names in chosen.items() if names]
    parts += [f"missing={encoding.missing!r}"] if encoding.missing != "flag" else []
    return code if not parts else {**code, "encode": f"relfit.Encode({', '.join(parts)})"}


def _value_code(value: Test | Estimator) -> str:
    """A test or an estimator as Python: its name, or the value where it has options."""
    return repr(value.name) if value == type(value)() else f"relfit.{value!r}"


def _kernel_code(kernel: Kernel) -> str:
    """The kernel as Python; one that was made of functions or matrices is only named."""
    if isinstance(kernel, Sum):
        return " + ".join(map(_kernel_code, kernel.terms))
    return f"relfit.{kernel!r}" if kernel.plain and kernel.writable else "kernel"


def notebook_table(result: Any) -> str:
    """The whole result as HTML for ``_repr_html_``: styles are inline, and all text is
    escaped.
    """
    shown = display(result, _LONGEST_NAME)
    return (
        environment()
        .get_template("notebook.html.j2")
        .render(blocks=[_block(each) for each in (shown, *shown.also)])
    )


def _tint(kind: str | None) -> str:
    """The background behind a verdict of this kind."""
    return KINDS[kind].tint if kind in KINDS else ""


def _block(shown: Display) -> dict[str, Any]:
    """One table with the cells' styles: numbers to the right, a tint behind verdicts."""
    cells = shown.table
    start = len(cells.titles) - cells.verdicts
    kinds = {(i, start): kind for i, kind in enumerate(cells.kinds)} | dict(cells.marked)
    sides = []
    for j in range(len(cells.titles)):
        side = "left" if j in cells.words else "right"
        sides.append("left" if j >= start else f"{side};white-space:nowrap")
    rows = []
    for i, row in enumerate(cells.rows):
        texts = [cell if j in cells.words else signed(cell) for j, cell in enumerate(row)]
        tints = [_tint(kinds.get((i, j))) for j in range(len(row))]
        rows.append(list(zip(texts, sides, tints, strict=True)))
    return {
        "header": shown.header,
        "heads": list(zip(cells.titles, sides, strict=True)),
        "rows": rows,
        "lines": [line for line in shown.lines if line[1]],
    }
