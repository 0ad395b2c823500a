"""The navigation is short, its pages are short and plainly worded, and figures of the summary are those of the reports.

Words are counted as a reader meets them, examples, tables and printed output included; reference pages may be longer.
"""

import re
from pathlib import Path

import pytest

from scripts.options import HEADING, every_option

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
REFERENCE = {"command-line", "api/index", "api/models", "api/results"}
# Wordings that the project decided against, and sentences that new users found hard to read.
WORN = (
    "mend it",
    "choose the columns of numbers",
    "How many.",
    "not a ranking by noise",
    "One word away",
    "put right",
    "turn accuracies round",
    "says whether all is well",
    "Is all well",
    "are said with",
    "say so with",
    "is called what its file is",
    "It is another question than",
    "hold all together, a model can be worse without",
    "hangs on the bandwidth",
    "it is no way to choose one",
    "the same bits for any number of workers, and for none",
    "noise chosen for looking like a difference",
    "selection hung by a thread",
    "Turned round",
    "Turn the question round",
    "close kin",
    "what to mind",
    "gpt",
    "claude",
    "llama",
)
FIGURE = re.compile(r"\d+\.\d+(?: ± \d+\.\d+)?")


def _text(name):
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


def _navigation():
    """The pages of all toctrees, which only the first page has."""
    entries = []
    for body in re.findall(r"^```\{toctree\}\n(.*?)^```$", _text("index"), flags=re.MULTILINE | re.DOTALL):
        lines = [line for line in body.splitlines() if line and not line.startswith(":")]
        entries += [re.sub(r".*<(.*)>", r"\1", line) for line in lines]
    return entries


NAVIGATION = _navigation()


def _words(text):
    return sum(any(letter.isalnum() for letter in word) for word in text.split())


def test_the_navigation_has_at_most_25_pages():
    assert len(set(NAVIGATION)) == len(NAVIGATION) <= 25
    assert "{toctree}" not in "".join(_text(name) for name in NAVIGATION)


@pytest.mark.parametrize("name", ["index", *NAVIGATION, "design"])
def test_a_page_has_at_most_1500_words_and_no_worn_sentence(name):
    text = _text(name)
    # The method has every formula and guarantee.
    assert name in {*REFERENCE, "design", "method"} or _words(text) <= 1500
    assert [words for words in WORN if words in " ".join(text.split())] == []


def test_figures_of_the_summary_are_in_the_reports_it_links_to():
    rows = re.findall(r"^\| .* \|$", _text("evidence/index"), flags=re.MULTILINE)
    checked = 0
    for row in rows:
        pages = re.findall(r"\]\(([\w/-]+\.md)", row)
        reports = "".join((DOCS / "evidence" / page).read_text(encoding="utf-8") for page in pages)
        for figure in FIGURE.findall(row.split("|")[2]) if pages else []:
            assert figure in reports or float(figure.split(" ")[0]) == 0.05, (figure, pages)
            checked += 1
    assert checked >= 40


def test_rates_on_the_pages_are_those_of_the_reports():
    pages = set((DOCS / "evidence").rglob("*.md")) - {DOCS / "evidence" / "index.md"}
    reports = "".join(page.read_text(encoding="utf-8") for page in pages)
    texts = {name: _text(name) for name in NAVIGATION} | {"README": (ROOT / "README.md").read_text(encoding="utf-8")}
    prose = {name: re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL) for name, text in texts.items()}
    rates = {(name, rate) for name, text in prose.items() for rate in re.findall(r"\d\.\d+ ± \d\.\d+", text)}
    assert len({name for name, _ in rates}) >= 5
    assert {(name, rate) for name, rate in rates if rate not in reports} == set()


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.relative_to(DOCS).as_posix())
def test_links_lead_to_files(page):
    targets = re.findall(r"\]\((?!https?:|mailto:)([^)#\s]+)", page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_pages_that_moved_or_were_written_by_a_script_are_there():
    settings = {}
    exec(_settings(), settings)
    assert len(settings["MOVED"]) >= 30
    for old, new in settings["MOVED"].items():
        assert not (DOCS / f"{old}.md").exists()
        assert (DOCS / f"{new.partition('#')[0]}.md").exists()
    assert _text("command-line").endswith(every_option().partition(HEADING)[2])


def _settings():
    text = (DOCS / "conf.py").read_text(encoding="utf-8")
    return text[text.index("MOVED = ") : text.index("REDIRECT = ")]


def test_the_examples_of_decisions_md_run(capsys):
    blocks, names = re.findall(r"^```python\n(.*?)^```", _text("decisions"), flags=re.S | re.M), {}
    assert len(blocks) >= 6
    for block in blocks:
        exec(compile(block, "decisions.md", "exec"), names)
    said = capsys.readouterr().out
    assert "'d': 'significantly worse by more than 0.05'" in said
    assert "equivalent within 0.05" in said
    assert "(100, 100, 100, 100, 100)" in said
    assert "95% simultaneous confidence sets for the ranks." in said
    assert "Holm adjustment" in said
