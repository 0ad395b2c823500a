"""The example that sets the best set beside arch's model confidence set runs, and the two agree where it is clear."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("arch", reason="arch is not installed")
pytest.importorskip("sklearn", reason="scikit-learn is not installed")
PATH = Path(__file__).parents[2] / "examples" / "losses_mcs.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("losses_mcs", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def shown(script):
    return script.example()


def test_the_example_keeps_the_models_that_mcs_keeps(shown):
    *_, ours, theirs = shown.splitlines()
    assert ours.split(":")[1].strip() == theirs.split(":")[1].strip() == "logistic, forest"


CASES = ["independent", "hard and easy items", "skewed, unequal scales", "rare wrong answers", "one very skewed model"]


@pytest.mark.parametrize("case", CASES)
def test_both_find_what_nobody_can_miss(script, case):
    assert case in script.CASES
    losses, best = script.drawn_losses(case, 400, np.random.default_rng(1))
    losses[:, ~best] += 3.0
    for kept in script.kept_models(losses, seed=2).values():
        assert kept[best].sum() >= 3
        assert not kept[~best].any()


def test_the_page_is_what_the_script_writes(script, shown):
    page = (PATH.parents[1] / "docs" / "losses.md").read_text(encoding="utf-8")
    assert shown in page
    start = script.PAGE.index("## Levels and power")
    assert script.PAGE[: start - 200].split("{")[0] in page
