"""Tables, sentences and figures that are read once: factors of numbers, names, notes, p-values."""

from __future__ import annotations

import re

import numpy as np
import pytest

import relfit
from relfit.report.figures import difference_forest, discrepancy_forest
from relfit.report.page import render_report
from relfit.report.plots import forest
from relfit.results.table import common_power, scaled_format

RNG = np.random.default_rng(3)
ROWS = RNG.normal(size=(60, 3))
MODELS = {"near": RNG.normal(size=(60, 3)), "far": RNG.normal(1.0, 1.0, (60, 3))}
TINY = relfit.JointEstimate(("a", "b"), [-5e-6, 1.6e-4], 2.56e-10 * np.eye(2), (100,))


def test_the_noise_of_halves_is_shown_where_a_margin_is_chosen():
    """D14: under a table it reads as noise in the differences above; with a margin the page has it, and JSON always."""
    plain = relfit.compare(ROWS, MODELS, rng=0)
    within = relfit.compare(ROWS, MODELS, rng=0, margin=0.1)
    assert "random halves" not in str(plain)
    page = render_report(within)
    assert "Two random halves of the data (30 rows each) differ by about" in page
    assert "before bias correction. The margin is" in page
    assert plain.to_dict()["yardstick"] > 0.0
    pair = relfit.compare_pair(ROWS, *MODELS.values())
    for result in (within, pair, plain._repr_html_(), render_report(plain)):
        assert "random halves" not in str(result)


@pytest.mark.parametrize(("preset", "name"), [("kid", "KID"), ("cmmd", "CMMD/1000")])
def test_a_preset_is_called_by_its_name(preset, name):
    """D37: in the header, the table, every file and the figure. The published CMMD is multiplied by 1000."""
    result = relfit.compare(ROWS, MODELS, preset=preset, rng=0)
    assert str(result).splitlines()[0].startswith(f"best set · {name} · ")
    assert f"near has the smallest {name}." in str(result)
    assert f"| {name} |" in re.sub(r" \(×10⁻\d\)", "", result.to_markdown())
    assert f"& {name} " in result.to_latex()
    assert forest(result).get_xlabel().startswith(f"{name} (")
    assert f'<th scope="col" role="columnheader">{name}' in render_report(result)
    assert "MMD²" not in str(result)
    assert result.measure == "mmd"


def test_tiny_numbers_share_a_factor_in_every_output_but_json_and_csv():
    """D49: -0.000005 ± 0.000016 was eleven characters for two digits. The factor stands in the titles."""
    result = relfit.decide(TINY)
    titles, best, other = str(result).splitlines()[1:4]
    last = ["95% bounds (×10⁻⁶)", "p-value", "adjusted p", "verdict"]
    assert titles.split("  ") == ["model", "score (×10⁻⁶)", "s.e. (×10⁻⁶)", "Δ to best (×10⁻⁶)", *last]
    assert re.split(r"\s{2,}", best)[:3] == ["a", "-5", "16"]
    assert re.split(r"\s{2,}", other)[:4] == ["b", "160", "16", "165"]
    assert "| model | score (×10⁻⁶) | s.e. (×10⁻⁶) |" in result.to_markdown()
    assert r"score ($\times 10^{-6}$) & s.e. ($\times 10^{-6}$)" in result.to_latex()
    page = render_report(result)
    for title in ("score (×10⁻⁶)", "s.e. (×10⁻⁶)", "difference to the best (×10⁻⁶)"):
        assert f">{title}</th>" in page
    for drawn in (discrepancy_forest(result), difference_forest(result)):
        assert all("e-" not in label for _, label in drawn.scale.labels(power=drawn.power))
        assert drawn.factor == " (×10⁻⁶)"
    shown = discrepancy_forest(result)
    assert shown.shown(shown.bars[0]) == "−36 to 26"  # −5 ± 1.96 · 16
    # D49: what programs read has no factor.
    result = relfit.decide(TINY)
    assert result.to_dict()["discrepancy"] == [-5e-6, 1.6e-4]
    assert "a,-5e-06," in result.to_csv()


@pytest.mark.parametrize(
    ("errors", "values", "power"),
    [
        ([0.016], [-0.005, 3.0], 0),
        ([0.0016], [0.021], 0),
        ([0.000016], [0.021], -3),
        ([0.000016], [0.5], 0),  # a probability stays one
        ([1e5], [2.5e7], 6),
        ([0.01], [2.5e7], 3),
        ([0.0], [1e-9], 0),
        ([1e-310], [1e-309], 0),
    ],
)
def test_only_numbers_that_need_it_have_a_factor(errors, values, power):
    """D49: a multiple of 3, so that few factors have to be known; ordinary numbers stay as they are."""
    assert common_power(errors, values) == power
    factor, number = scaled_format(errors, values)
    assert bool(factor) == bool(power)
    assert "e" not in number(values[0]) or not power


def test_the_page_says_which_direction_is_better_and_why():
    """D2: an accuracy was taken for a loss; the page says what was taken, and what told it."""
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    rows = [{"item": i, "model": m, "accuracy": rng.normal(50 + 9 * (m == "b"), 5)} for i in range(40) for m in "ab"]
    result = relfit.compare_losses(pandas.DataFrame(rows), item="item", model="model", score="accuracy", rng=0)
    assert result.best == "b"
    page = render_report(result)
    assert "accuracy: higher is better, by its name" in page
    assert "b has the largest mean score (larger is better). Significantly worse: a." in page


def test_the_best_has_no_pvalue():
    """D50: it was "—" or 0.89, by a rule that stood on one page only. JSON keeps the number."""
    far = relfit.decide(relfit.JointEstimate(("a", "b"), [0.1, 0.12], 0.01 * np.eye(2)))
    assert far.pvalue[0] < 1.0
    assert re.split(r"\s{2,}", str(far).splitlines()[2])[5:7] == ["—", "—"]
    assert far.to_markdown().splitlines()[2].split(" | ")[5:7] == ["—", "—"]
    assert far.to_dict()["pvalue"][0] == far.pvalue[0]
