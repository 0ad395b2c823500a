"""The pytest plugin, in a pytest of its own."""

from __future__ import annotations

from xml.etree import ElementTree

pytest_plugins = ["pytester"]

TESTS = """
import numpy as np
import pytest
import relfit

RNG = np.random.default_rng(1)
DATA = RNG.normal(size=(100, 2))
MODELS = {"production": RNG.normal(size=(100, 2)), "far": RNG.normal(1, 1, (100, 2))}
MODELS["close"] = RNG.normal(size=(100, 2))
RESULT = relfit.compare(DATA, MODELS, rng=0)

def test_good(relfit_gate):
    relfit_gate(RESULT, "production", against="far")

@pytest.mark.parametrize("name", ["far"])
def test_bad(relfit_gate, name):
    relfit_gate(RESULT, name, against="production", data=(DATA, MODELS))

def test_unclear(relfit_gate):
    relfit_gate(RESULT, "production", against="close")

def test_unclear_where_more_is_required(relfit_gate):
    relfit_gate(RESULT, "production", against="close", require="non-inferior")

def test_plain():
    relfit.assert_not_worse(RESULT, "far")
"""


def test_the_fixture_fails_and_passes_where_it_should(pytester):
    pytester.makepyfile(TESTS)
    done = pytester.runpytest_subprocess("--junit-xml=out.xml", "--relfit-reports=pages", "-p", "no:cacheprovider")
    done.assert_outcomes(passed=2, failed=3)
    assert done.ret == 1
    out = done.stdout.str()
    assert "Gate failed: far is significantly worse than production" in out
    assert "What to do:" in out
    assert "If a difference of" in out
    # The traceback ends in the user's line.
    assert "gate.py" not in out
    pages = sorted(path.name for path in (pytester.path / "pages").iterdir())
    assert len(pages) == 4
    assert "test_bad-far" in pages[0]
    assert "Gate failed" in (pytester.path / "pages" / pages[0]).read_text(encoding="utf-8")
    cases = ElementTree.parse(pytester.path / "out.xml").findall(".//testcase")
    said = {case.get("name"): [each.get("value") for each in case.iter("property")] for case in cases}
    assert said["test_good"][0].startswith("Gate passed:")
    assert said["test_unclear"][0].startswith("Gate inconclusive:")
    assert said["test_bad[far]"][0].startswith("Gate failed:")


def test_warnings_as_errors_do_not_fail_the_fixture(pytester):
    """N7: the fixture record_property warns under xunit2, pytest's default, and -W error made every gate an error."""
    pytester.makepyfile(TESTS)
    done = pytester.runpytest_subprocess("-W", "error", "--junit-xml=out.xml", "-p", "no:cacheprovider", "-k", "good")
    done.assert_outcomes(passed=1)
    found = ElementTree.parse(pytester.path / "out.xml").find(".//property")
    assert found.get("value") == "Gate passed: production is non-inferior to far."


def test_every_test_has_a_page_of_its_own(pytester):
    """Names that differ only in what a file name cannot hold were one page; a name of 100 letters was too long."""
    names = ["a/b", "a-b", "a b", "A b", "長" * 100]
    source = TESTS.partition("def test_good")[0]
    source += f"""
@pytest.mark.parametrize("which", {names!r}, ids=lambda name: name)
def test_page(relfit_gate, which):
    relfit_gate(RESULT, "production")
    relfit_gate(RESULT, "production", against="far")
"""
    pytester.makepyfile(source)
    pytester.makeini("[pytest]\ndisable_test_id_escaping_and_forfeit_all_rights_to_community_support = true")
    done = pytester.runpytest_subprocess("--relfit-reports=pages", "-p", "no:cacheprovider")
    done.assert_outcomes(passed=len(names))
    pages = [path.name for path in (pytester.path / "pages").iterdir()]
    assert len({page.lower() for page in pages}) == 2 * len(names)
    assert max(len(page.encode()) for page in pages) < 130


def test_a_run_without_relfit_does_not_import_it(pytester):
    # numpy may be there already: other plugins import it.
    pytester.makepyfile(
        """
        import sys
        def test_quick():
            loaded = {name for name in sys.modules if name.startswith("relfit.")}
            assert "relfit.report.pytest_plugin" in loaded
            assert not loaded - {"relfit.report", "relfit.report.pytest_plugin", "relfit.util"}
        """
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)
