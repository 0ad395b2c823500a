"""Checks of options, seeds and random streams."""

import numpy as np
import pytest
from refusals import refused

import relfit
from relfit.util.checks import check_alpha, check_choice, check_level, check_margin
from relfit.util.random import make_seed

pytestmark = pytest.mark.filterwarnings("error")

ODD_VALUES = [None, "a\nb", b"0.5", [0.5], np.eye(40), {"a": 1}, 1j, object(), True]


def test_a_level_inside_the_unit_interval_is_a_float():
    for value in (0.05, 0.5, np.float32(0.5), np.float64(1e-300), 1 - 1e-16):
        for check in (check_level, *((check_alpha,) if value <= 0.5 else ())):
            assert check(value) == float(value)
            assert type(check(value)) is float


@pytest.mark.parametrize("value", [*ODD_VALUES, 0, 1, 0.0, 1.0, -0.5, 2, np.nan, np.inf, -np.inf, 10**400])
def test_anything_else_is_refused_by_the_name_of_its_argument(value):
    refused(lambda: check_alpha(value), "alpha: expected a number between 0 and 1, got ")
    refused(lambda: relfit.RelMulti(value), "select_fraction: expected a number between 0 and 1, got ")
    message = refused(lambda: check_level(value), "level: expected a number between 0 and 1, got ")
    assert len(message) < 120


def test_a_confidence_level_is_no_error_rate():
    """D10: 0.95 for alpha was meant as the confidence: nearly every model would be called worse."""
    said = "alpha: expected the error rate, at most 0.5, got 0.95; did you mean 0.05?"
    assert refused(lambda: check_alpha(0.95)) == said
    rng = np.random.default_rng(0)
    data, models = rng.normal(size=(20, 1)), [rng.normal(size=(20, 1)) for _ in range(2)]
    losses = {"a": rng.random(20), "b": rng.random(20)}
    pilot = relfit.Assumed(0.1, standard_error=0.1, n=50)
    for call in (
        lambda: relfit.compare(data, models, alpha=0.95),
        lambda: relfit.compare_pair(data, *models, alpha=0.95),
        lambda: relfit.compare_losses(losses, higher_is_better=False, alpha=0.95),
        lambda: relfit.plan(pilot, alpha=0.95),
        lambda: relfit.Monitor(["a", "b"], path=":memory:", alpha=0.95, higher_is_better=False),
    ):
        assert refused(call) == said


@pytest.mark.parametrize("value", [*ODD_VALUES, -1, -1e-9, np.nan, np.inf, 10**400])
def test_a_margin_is_a_finite_number_of_at_least_0(value):
    """A whole number may be too large for a float."""
    refused(lambda: check_margin(value), "margin: expected a number of at least 0, in the units of the discrepancy")
    assert check_margin(0) == 0.0
    assert check_margin(np.float32(0.5)) == 0.5


def test_a_choice_is_one_of_the_words():
    words = ("relpsi", "relmulti")
    for value in (*ODD_VALUES, "", "RelPSI", "relpsi ", 5):
        said = refused(lambda value=value: check_choice("test", value, words), "test: expected one of relpsi, relm")
        assert len(said) < 120
    assert check_choice("test", "relmulti", words) == "relmulti"


def test_seeds_are_whole_numbers_that_json_keeps():
    assert make_seed(7) == 7
    assert make_seed(0) == 0
    assert type(make_seed(np.int64(7))) is int
    assert make_seed(2**200) == 2**200
    drawn = [make_seed(None) for _ in range(200)]
    assert len(set(drawn)) == 200
    assert all(type(seed) is int and 0 <= seed < 2**53 for seed in drawn)
    assert max(drawn) > 2**51
    for value in (-1, 1.0, "7", True, np.float64(3), [1], np.eye(40), np.random.RandomState(0)):
        said = "rng: expected a non-negative whole number, a numpy Generator or None"
        assert len(refused(lambda value=value: make_seed(value), said)) < 140
