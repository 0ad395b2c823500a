"""What all studies share: missing trials are run, pages are made from templates and stored trials, none by hand."""

import re
from pathlib import Path
from string import Template

import pytest

from relfit.paper.reproduce import CATALOGUE, template
from studies import study
from studies.study import Part, Study


def _trial(setting, seed):
    return {"value": setting["n"] + seed}


def _cells():
    return [{"n": 10}, {"n": 20}]


@pytest.fixture
def example(tmp_path, monkeypatch):
    """A study whose template is in a temporary folder, and a list of what its `write` was given."""
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / "page.md").write_text("# $title\n\n$$ costs {1}\n\n$values\n")
    monkeypatch.setattr(study, "ROOT", tmp_path)
    written = []

    def write(docs, results):
        written.append(results)
        values = [len(trials) for _, trials in results["main"]]
        study.write_page(docs, "page.md", title="Example", values=values)
        return len(values) == 2

    parts = {"main": Part("stored-name", _cells, _trial, 40), "small": Part("other", _cells, _trial, 4)}
    return Study(parts, "example.sqlite", "7", write, timed=True), written


def run(example, *arguments):
    with pytest.raises(SystemExit) as ended:
        study.main(example[0], "Example.", arguments)
    return ended.value.code


def test_parts_are_run_in_proportion_and_the_page_is_written(example, tmp_path):
    assert run(example, "--trials", "20") == 0
    results = example[1][0]
    assert [len(trials) for _, trials in results["main"]] == [20, 20]
    assert [len(trials) for _, trials in results["small"]] == [2, 2]
    assert results["main"][1][1][:3] == [{"value": 20}, {"value": 21}, {"value": 22}]
    assert (tmp_path / "docs" / "evidence" / "page.md").read_text() == "# Example\n\n$ costs {1}\n\n[20, 20]\n"
    with study.Store(tmp_path / "example.sqlite", version="7") as store:
        assert set(store.by_seed("stored-name", {"n": 10})) == set(range(20))


def test_stored_runs_nothing_and_the_status_tells_what_does_not_hold(example, tmp_path):
    with study.Store(tmp_path / "example.sqlite", version="7") as store:
        store.put_many("stored-name", {"n": 10}, [(0, {"value": 10})])
    assert run(example, "--stored", "--docs", str(tmp_path / "pages")) == 1
    assert [setting for setting, _ in example[1][0]["main"]] == [{"n": 10}]
    assert (tmp_path / "pages" / "page.md").exists()


def test_every_study_is_in_the_readme():
    folder = Path(study.__file__).parent
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__", "study", "problems"}
    modules |= {path.parent.name for path in folder.glob("*/__main__.py")}
    readme = (folder / "README.md").read_text(encoding="utf-8")
    assert {name for name in modules if f"python -m studies.{name}" not in readme} == set()


ROOT = Path(__file__).parents[2]
STUDIES = ROOT / "studies"
TEMPLATES = sorted(str(path.relative_to(STUDIES)) for path in STUDIES.rglob("*.md") if path.name != "README.md")


def disagreement(template, page):
    """The first piece of a template that does not follow in the page, or None if the page was made from it."""
    pieces, end = [""], 0
    for hole in Template.pattern.finditer(template):
        pieces[-1] += template[end : hole.start()] + ("$" if hole["escaped"] else "")
        if not hole["escaped"]:
            pieces.append("")
        end = hole.end()
    pieces[-1] += template[end:]
    pattern = ""
    for k, piece in enumerate(pieces):
        pattern += ("(?s:.*?)" if k else "") + re.escape(piece)
        if not re.match(pattern, page):
            return piece
    return None if re.fullmatch(pattern, page) else pieces[-1]


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_page_is_what_its_template_says(name):
    text = (STUDIES / name).read_text(encoding="utf-8")
    assert disagreement(text, (ROOT / "docs" / "evidence" / name).read_text(encoding="utf-8")) is None


def test_pages_are_what_their_templates_say_and_a_changed_word_is_seen():
    head, sections = template()
    assert list(sections) == list(CATALOGUE)
    page = (ROOT / "docs" / "evidence" / "reproduction.md").read_text(encoding="utf-8")
    shown = [section for name, section in sections.items() if f"\n## {name}\n" in page]
    assert len(shown) >= 10
    assert disagreement("\n".join([head, *shown]), page) is None
    assert disagreement("A $x b.\n", "A 1 b.\n") is None
    assert disagreement("A $x b.\n", "A 1 c.\n") == " b.\n"
    assert disagreement("$$ a $x\nend\n", "$ a 1\n2\nend\n") is None
    assert disagreement("a $x\nend\n", "a 1\nend\nmore\n") == "\nend\n"
