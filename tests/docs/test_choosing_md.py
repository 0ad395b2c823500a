"""docs/choosing.md and the README: the rates they quote stand in docs/evidence/, and links lead somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EVIDENCE = ROOT / "docs" / "evidence"
PAGES = [ROOT / "docs" / "choosing.md", ROOT / "README.md", *sorted((EVIDENCE / "calibration").glob("*.md"))]
RATE = re.compile(r"\d\.\d{3} ± \d\.\d{3}")


@pytest.mark.parametrize("page", PAGES[:2], ids=lambda page: page.name)
def test_rates_are_quoted_from_the_simulations(page):
    sources = [*(EVIDENCE / "calibration").glob("*.md"), EVIDENCE / "peers.md"]
    simulated = "".join(path.read_text("utf-8") for path in sources)
    quoted = RATE.findall(page.read_text("utf-8"))
    assert quoted
    assert [rate for rate in quoted if rate not in simulated] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page):
    targets = re.findall(r"\]\(([^)#]+)", page.read_text("utf-8"))
    assert [t for t in targets if "://" not in t and not (page.parent / t).exists()] == []
