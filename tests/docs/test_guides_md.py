"""Sessions with other libraries in the guides print what the pages show, where the library is installed."""

import doctest
import re
import warnings
from pathlib import Path

import pytest

GUIDES = Path(__file__).parents[2] / "docs" / "guides"


def _blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    ("name", "block", "library"),
    [("forecasts.md", 0, "arch"), ("bayesian.md", 1, "arviz_stats")],
    ids=["forecasts", "loo"],
)
def test_a_session_prints_what_the_page_shows(name, block, library, tmp_path, monkeypatch):
    pytest.importorskip(library, reason=f"{library} is not installed")
    monkeypatch.chdir(tmp_path)
    page = (GUIDES / name).read_text(encoding="utf-8")
    names = {}
    exec(_blocks(page, "python")[block], names)
    (session,) = _blocks(page, "pycon")
    test = doctest.DocTestParser().get_doctest(session, names, name, None, None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = doctest.DocTestRunner().run(test)
    assert (result.attempted, result.failed) == (4, 0)
