"""The examples of the pages and of the README run, and print what the pages show."""

import doctest
import importlib.util
import re
import shlex
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import relfit
from relfit.cli import main

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# Pages whose examples have a test of their own, which knows more about them.
ELSEWHERE = {
    "api/models.md": "docs/test_pages.py",
    "decisions.md": "docs/test_navigation.py",
    "features.md": "features/test_docs_page.py",
    "files.md": "data/test_files_docs.py",
    "gate.md": "docs/test_pages.py",
    "kernels.md": "docs/test_pages.py",
    "report.md": "docs/test_pages.py",
}


def _with_python(page):
    return "```python" in page.read_text(encoding="utf-8")


PAGES = [
    page
    for page in (ROOT / "README.md", *sorted(DOCS.rglob("*.md")))
    if _with_python(page) and not (page.is_relative_to(DOCS) and page.relative_to(DOCS).as_posix() in ELSEWHERE)
]


@pytest.fixture(scope="module")
def runner():
    spec = importlib.util.spec_from_file_location("run_pages", ROOT / "scripts" / "run_pages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _words(text):
    """The text without its numbers and spaces: other versions of a library may round or align otherwise."""
    return re.sub(r"[-+]?<?\d[\d.e-]*|\s+", " ", text).split()


def _missing(page):
    names = re.findall(r"^(?:import|from) (\w+)", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return sorted({name for name in names if importlib.util.find_spec(name) is None})


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_the_examples_run_and_print_what_the_page_shows(page, runner, tmp_path, monkeypatch):
    missing = _missing(page)
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    monkeypatch.chdir(tmp_path)
    text = page.read_text(encoding="utf-8")
    again = runner.run_page(text)
    if "import torch" in text:  # a network is not trained to the same weights on every machine
        return
    assert _words(again) == _words(text)


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_no_output_is_missing(page):
    assert "```text\n```" not in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(("page", "test"), ELSEWHERE.items(), ids=list(ELSEWHERE))
def test_the_other_pages_are_tested_where_this_file_says(page, test):
    assert _with_python(DOCS / page)
    assert Path(page).name in (ROOT / "tests" / test).read_text(encoding="utf-8")


def test_pictures_of_the_guides_are_there():
    for page in (DOCS / "guides").glob("*.md"):
        text = page.read_text(encoding="utf-8")
        saved = re.findall(r'savefig\("([\w-]+\.png)"', text)
        assert saved
        for name in saved:
            assert f"](../images/pages/{name})" in text
            assert (DOCS / "images" / "pages" / name).stat().st_size > 5_000


def test_every_public_name_is_in_the_reference():
    pages = "".join(page.read_text(encoding="utf-8") for page in (DOCS / "api").glob("*.md"))
    documented = set(re.findall(r"^\.\. auto\w+:: (\w+)", pages, flags=re.MULTILINE))
    assert set(relfit.__all__) - {"__version__"} <= documented


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_of_the_pages_outside_docs_lead_somewhere(name):
    links = re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / name).read_text(encoding="utf-8"))
    assert [link for link in links if not (ROOT / link).exists()] == []


# --- pages whose examples have a test that knows more about them


def _blocks(page, language="python"):
    return re.findall(rf"^```{language}\n(.*?)^```", (DOCS / page).read_text(encoding="utf-8"), flags=re.S | re.M)


@pytest.mark.parametrize(("page", "count"), [("report.md", 1), ("gate.md", 3)])
def test_python_examples_run(page, count, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks, names = _blocks(page), {}
    assert len(blocks) == count
    for block in blocks:
        exec(compile(block, page, "exec"), names)
    assert (tmp_path / "report.html").exists() == (page == "report.md")


@pytest.mark.parametrize("block", _blocks("kernels.md"))
def test_examples_of_kernels_md_run(block, rng):
    rows = rng.normal(size=(300, 2))
    names = {"relfit": relfit, "np": np, "data": rows[:100], "models": {"a": rows[100:200], "b": rows[200:]}}
    names["matrix"] = relfit.IMQ().phi(np.square(rows[:, None] - rows).sum(axis=2))
    names |= {"rows_of_a": np.arange(100, 200), "rows_of_b": np.arange(200, 300)}
    exec(block, names)


@pytest.mark.parametrize(("shift", "status"), [(0.0, 0), (1.0, 1)])
def test_pipelines_of_gate_md_stop_what_is_worse(shift, status, tmp_path, monkeypatch, capsys):
    """The relfit command of the pipeline, whose folded lines are one command."""
    monkeypatch.chdir(tmp_path)
    joined = re.sub(r"\n +(?=--|relfit)", " ", "".join(_blocks("gate.md", "yaml")))
    (command,) = [shlex.split(found)[1:] for found in re.findall(r"(relfit compare [^\n]+)", joined)]
    rng = np.random.default_rng(1)
    for name, own in (("reference", 0.0), ("production", 0.0), ("new", shift)):
        np.save(f"{name}.npy", rng.normal(own, 1, (100, 2)))
    assert main(command) == status
    assert {"report.html", "result.json", "gate.xml"} <= {path.name for path in tmp_path.iterdir()}
    said = capsys.readouterr().err
    assert said.startswith("relfit: gate: new is significantly worse than production") == (status == 1)


@pytest.mark.parametrize(("name", "block", "library"), [("forecasts", 0, "arch"), ("bayesian", 1, "arviz_stats")])
def test_a_session_prints_what_the_guide_shows(name, block, library, tmp_path, monkeypatch):
    pytest.importorskip(library, reason=f"{library} is not installed")
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(_blocks(f"guides/{name}.md")[block], names)
    (session,) = _blocks(f"guides/{name}.md", "pycon")
    test = doctest.DocTestParser().get_doctest(session, names, name, None, None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = doctest.DocTestRunner().run(test)
    assert (result.attempted, result.failed) == (4, 0)


EXAMPLES = _blocks("api/models.md")


@pytest.mark.parametrize("block", EXAMPLES, ids=range(len(EXAMPLES)))
def test_an_example_of_models_md_runs_in_a_process_of_its_own(block, tmp_path):
    assert len(EXAMPLES) >= 7
    imported = {name.split(".")[0] for name in re.findall(r"^(?:import|from) ([\w.]+)", block, flags=re.MULTILINE)}
    missing = sorted(name for name in imported if importlib.util.find_spec(name) is None)
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    if "stan" in imported and shutil.which("g++") is None:
        pytest.skip("pystan compiles models with g++, which is not here")
    script = tmp_path / "example.py"
    script.write_text(block, encoding="utf-8")
    done = subprocess.run([sys.executable, "-W", "ignore", str(script)], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
