"""The notebooks run, show what is kept in them, and are small, neutral and readable; the site shows them all."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
OTHERS = re.compile(r"gpt|claude|llama|gemini|gemma|mistral|qwen|phi-", flags=re.IGNORECASE)
MACHINE = re.compile(r"/(?:home|root|tmp|work|usr|Users|opt|var)/|[A-Z]:\\")
every = pytest.mark.parametrize("path", NOTEBOOKS, ids=[path.stem for path in NOTEBOOKS])


def _runner():
    spec = importlib.util.spec_from_file_location("notebooks", ROOT / "scripts" / "notebooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


runner = _runner()


def _code(notebook):
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def _words(notebook):
    """What is shown, without tags, numbers and spaces: other versions of a library may round or align otherwise."""
    shown = [output for cell in _code(notebook) for output in cell["outputs"]]
    forms = [
        [output.get("text", ""), *map(output.get("data", {}).get, ("text/plain", "text/html"))] for output in shown
    ]
    texts = ["".join(form or "") for held in forms for form in held]
    return [
        re.sub(r"<style.*?</style>|<[^<>]*>|[-+−]?(?:&lt;|<)?\d[\d.e-]*|\s+", " ", text, flags=re.DOTALL).split()
        for text in texts
    ]


def _ready(path, monkeypatch, tmp_path):
    notebook = runner.read(path)
    code = "\n".join(map(runner.source, _code(notebook)))
    names = set(re.findall(r"^(?:import|from) (\w+)", code, flags=re.MULTILINE))
    missing = sorted(name for name in names if importlib.util.find_spec(name) is None)
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    monkeypatch.chdir(tmp_path)
    return notebook


@every
def test_a_notebook_runs_and_shows_what_it_keeps(path, monkeypatch, tmp_path):
    """And every one of them has a model that is worse, and one of which that is open."""
    notebook, names = _ready(path, monkeypatch, tmp_path), {}
    again = runner.run(notebook, names)
    assert not [output for cell in _code(again) for output in cell["outputs"] if output.get("name") == "stderr"]
    assert _words(again) == _words(notebook)
    result = names["result"]
    undecided = [row["name"] for row in result.rows() if not row["best"] and not row["worse"]]
    assert undecided
    assert result.worse.any()
    (page,) = tmp_path.glob("*-report.html")
    assert all(name in page.read_text(encoding="utf-8") for name in undecided)


@every
def test_a_notebook_opens_in_jupyter(path):
    """The fields that nbformat's schema 4.5 asks for, in the form in which Jupyter saves them."""
    notebook = runner.read(path)
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert set(notebook) == {"cells", "metadata", "nbformat", "nbformat_minor"}
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", each) for each in ids)
    for cell in notebook["cells"]:
        assert all(line.endswith("\n") for line in cell["source"][:-1])
        wanted = {"cell_type", "id", "metadata", "source"}
        assert set(cell) == wanted | ({"execution_count", "outputs"} if cell["cell_type"] == "code" else set())
    assert [cell["execution_count"] for cell in _code(notebook)] == list(range(1, len(_code(notebook)) + 1))
    assert path.read_text(encoding="utf-8") == runner.written(notebook)


@every
def test_a_notebook_is_short_and_says_what_the_verdict_means(path):
    notebook, text = runner.read(path), path.read_text(encoding="utf-8")
    assert 5 <= len(_code(notebook)) <= 10
    assert len(text) < 120_000
    assert not MACHINE.search(text)
    assert not OTHERS.search("".join(map(runner.source, notebook["cells"])))
    prose = [runner.source(cell) for cell in notebook["cells"] if cell["cell_type"] == "markdown"]
    assert prose[0].startswith("# ")
    assert "?" in prose[0]
    assert prose[-1].startswith("## What the verdict means, and what it does not")
    kinds = {kind for cell in _code(notebook) for output in cell["outputs"] for kind in output.get("data", ())}
    assert {"text/html", "image/png"} <= kinds
    assert ".report(" in "".join(map(runner.source, _code(notebook)))


@every
def test_the_site_has_a_page_for_it(path):
    page = (ROOT / "docs" / "notebooks" / f"{path.stem}.md").read_text(encoding="utf-8")
    assert f"](../../examples/{path.name})" in page
    index = (ROOT / "docs" / "notebooks.md").read_text(encoding="utf-8")
    assert f"](notebooks/{path.stem}.md)" in index
    assert f"](../examples/{path.name})" in index
    shown = runner.as_markdown(runner.read(path))
    tables = re.findall(r"^<div>\n(?:.+\n)*?</div>$", shown, flags=re.MULTILINE)
    html = [
        output
        for cell in _code(runner.read(path))
        for output in cell["outputs"]
        if "text/html" in output.get("data", ())
    ]
    assert len(tables) == len(html)
    assert shown.count('<img alt="') == path.read_text(encoding="utf-8").count('"image/png"')
