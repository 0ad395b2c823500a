"""The example that sets the best set beside arch's model confidence set runs, and keeps what the page shows."""

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("arch", reason="arch is not installed")
pytest.importorskip("sklearn", reason="scikit-learn is not installed")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def shown():
    spec = importlib.util.spec_from_file_location("losses_mcs", ROOT / "examples" / "losses_mcs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.example()


def test_the_example_keeps_the_models_that_mcs_keeps(shown):
    *_, ours, theirs = shown.splitlines()
    assert ours.split(":")[1].strip() == "logistic, forest"
    assert theirs.split(":")[1].strip() == "logistic, forest"


def test_the_page_shows_what_the_example_prints(shown):
    assert shown in (ROOT / "docs" / "evidence" / "losses.md").read_text(encoding="utf-8")
