"""One vocabulary of verdicts: other words for them stand in no output, no page and no text of the source."""

from __future__ import annotations

import ast
import json
import re
from html import unescape
from pathlib import Path

import numpy as np
import pytest

import relfit
from relfit.monitor.page import monitor_page
from relfit.report.gate import ask, gate_markdown, judge_monitor, judge_pair, junit_xml
from relfit.report.page import notebook_table, render_report

ROOT = Path(__file__).parents[2]
GONE = re.compile(
    r"clearly (worse|better)|taken alone|no evidence (that|either)|[\"“]no evidence|best of the sample"
    r"|without evidence|\bundecided|not shown to be (worse|the best|non-inferior)|shown to be no worse|told apart"
    r"|(can|could|may) be (the )?best|best so far|selected as best|the same as the best|who beats whom|family-wise",
    re.IGNORECASE,
)
VERDICT = re.compile(
    r"best observed|selected|(equivalent|non-inferior) within 0\.05|inconclusive"
    r"|significantly worse( by more than 0\.05)?|worse( by more than 0\.05)? \((unadjusted|FDR)\)"
)
# A name of a function in backticks is no word of a sentence.
CODE = re.compile(r"`[^`]*`")


def found(text):
    return [match.group() for match in GONE.finditer(CODE.sub("", text))]


def test_the_words_are_found():
    for text in ("b is clearly worse", "worse, taken alone", "Models that may be best", "Family-wise error"):
        assert found(text)
    assert found("significantly worse by more than 0.1; inconclusive; best observed") == []


# ── outputs ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def results():
    """Every test and correction, with and without a margin, and models of every verdict."""
    values = [0.0, 0.004, 0.09, 0.2, 0.6]
    joint = relfit.JointEstimate(tuple("abcde"), values, 1e-4 * np.eye(5), (400,), yardstick=0.02)
    for test in ("best-set", "relpsi", "carve"):
        for correction in ("none", "holm", "bh", *(["stepdown"] if test == "best-set" else [])):
            for margin in (0.0, 0.05):
                yield relfit.decide(joint, test=test, correction=correction, margin=margin, rng=0)
    rng = np.random.default_rng(0)
    data = rng.normal(size=(120, 2))
    models = {name: rng.normal(shift, 1, (120, 2)) for name, shift in (("a", 0.0), ("b", 0.1), ("c", 0.9))}
    yield relfit.compare(data, {**models, "a again": models["a"]}, test="relmulti", margin=0.05, rng=0)
    yield relfit.compare(data, models, kernel=relfit.Gaussian(1e9), rng=0)


def outputs(result):
    gates = [ask(result, name) for name in result.names] + [ask(result, result.names[0], result.names[-1])]
    return {
        "terminal": f"{result}\n{result.ranks()}\n{result.pairs()}",
        "page": unescape(re.sub(r"<[^>]+>", " ", render_report(result))),
        "notebook": unescape(notebook_table(result)),
        "Markdown": result.to_markdown(),
        "LaTeX": result.to_latex(),
        "CSV": result.to_csv(),
        "JSON": result.to_json(),
        "methods": result.methods_text(),
        "gate": "\n".join(gate.sentence for gate in gates),
        "JUnit": junit_xml(result, gates[0]),
        "job summary": gate_markdown(result, gates[0]),
        "plot": "\n".join(text.get_text() for text in result.plot().figure.findobj(match=_is_text)),
    }


def _is_text(artist):
    return hasattr(artist, "get_text")


def test_every_output_has_the_verdicts_and_no_other_words():
    for result in results():
        for verdict in result.verdicts:
            assert VERDICT.fullmatch(verdict), verdict
        assert json.loads(result.to_json())["verdicts"] == list(result.verdicts)
        for surface, text in outputs(result).items():
            assert found(text) == [], (surface, found(text))
            if surface in ("terminal", "page", "notebook", "Markdown", "LaTeX", "CSV", "JSON"):
                for verdict in result.verdicts:
                    assert verdict in text, (surface, verdict)


@pytest.mark.parametrize("margin", [0.0, 0.05])
def test_pairs_plans_and_monitors(margin):
    rng = np.random.default_rng(0)
    data, near, far = (rng.normal(shift, 1, (150, 2)) for shift in (0.0, 0.05, 0.9))
    texts = []
    for a, b in ((near, far), (far, near), (near, near), (near, near + 0.01)):
        pair = relfit.compare_pair(data, a, b, margin=margin, rng=0)
        texts += [str(pair), judge_pair(pair).sentence]
    assert "is significantly worse than b" in "".join(texts)
    pilot = relfit.compare(data, {"near": near, "far": far}, rng=0)
    texts.append(str(relfit.plan(pilot, rng=0, trials=100, progress=False)))
    wrong = (rng.random((300, 3)) < [0.20, 0.22, 0.60]).astype(float)
    with relfit.Monitor(["new", "old", "small"], path=":memory:", higher_is_better=False) as monitor:
        monitor.update(dict(zip(("new", "old", "small"), wrong.T, strict=True)), items=range(300))
        result = monitor.result()
    gates = [judge_monitor(result, name, margin=margin) for name in result.names]
    shown = [str(result), monitor_page([result], gates[0]), *(gate.sentence for gate in gates)]
    for verdict in ("best observed", "inconclusive", "significantly worse since item "):
        assert all(verdict in text for text in shown[:2])
    for text in (*texts, *shown):
        assert found(text) == [], text


# ── pages and source ─────────────────────────────────────────────────────────────────────────────────────────────────

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "studies").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages(page):
    assert found(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("notebook", sorted((ROOT / "examples").glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebooks(notebook):
    assert found(notebook.read_text(encoding="utf-8")) == []


def test_texts_of_the_source():
    wrong = {}
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and found(node.value):
                wrong[f"{path.relative_to(ROOT)}:{node.lineno}"] = found(node.value)
    for path in sorted((ROOT / "src").rglob("*.j2")):
        if found(path.read_text(encoding="utf-8")):
            wrong[str(path.relative_to(ROOT))] = found(path.read_text(encoding="utf-8"))
    assert wrong == {}
