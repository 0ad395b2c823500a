"""Every generated page agrees with its template outside of the placeholders: pages are not edited by hand."""

import re
from pathlib import Path
from string import Template

import pytest

from relfit.paper.reproduce import CATALOGUE, template

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


def test_the_page_of_the_reproduction_is_what_its_template_says():
    head, sections = template()
    assert list(sections) == list(CATALOGUE)
    page = (ROOT / "docs" / "evidence" / "reproduction.md").read_text(encoding="utf-8")
    shown = [section for name, section in sections.items() if f"\n## {name}\n" in page]
    assert len(shown) >= 10
    assert disagreement("\n".join([head, *shown]), page) is None


def test_a_changed_word_is_seen():
    assert disagreement("A $x b.\n", "A 1 b.\n") is None
    assert disagreement("A $x b.\n", "A 1 c.\n") == " b.\n"
    assert disagreement("$$ a $x\nend\n", "$ a 1\n2\nend\n") is None
    assert disagreement("a $x\nend\n", "a 1\nend\nmore\n") == "\nend\n"
