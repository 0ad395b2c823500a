"""A density whose score contradicts its own log density is named by every comparison; no other is."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import relfit
from relfit.data.check_score import check_score, score_warnings
from relfit.data.models import Density
from relfit.kernels.standard import IMQ, Gaussian

SAID = "the score is -1 times the gradient of log_prob"


def normal_log_prob(x):
    return -0.5 * (x**2).sum(axis=1)


RIGHT = Density(score=lambda x: -x, log_prob=normal_log_prob)
WRONG = Density(score=lambda x: x, log_prob=normal_log_prob)
OTHER = Density(score=lambda x: 0.5 - x)


@pytest.fixture
def x(rng):
    return rng.normal(size=(120, 2))


def said(result):
    return [note for note in result.warnings if "gradient of log_prob" in note]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"test": "relmulti"},
        {"estimator": "linear"},
        {"discrepancy": "fssd"},
        {"kernel": [Gaussian(1.0), IMQ(1.0)]},
        {"groups": np.repeat(np.arange(40), 3)},
        {"compute": relfit.Compute(memory="2GB")},
        {"executor": ThreadPoolExecutor},
    ],
    ids=lambda options: next(iter(options), "plain"),
)
def test_every_comparison_says_it_once(x, options):
    with ThreadPoolExecutor(1) as threads:
        options = {"compute": relfit.Compute(executor=threads)} if "executor" in options else options
        result = relfit.compare(x, {"true": WRONG, "off": OTHER, "right": RIGHT}, rng=0, **options)
    (note,) = said(result)
    assert note.startswith(f"'true': {SAID}; ")
    assert SAID in check_score(WRONG, x).messages


@pytest.mark.parametrize("d", [2, 500])
def test_one_wrong_column_is_found(rng, d):
    def score(x):
        return -x * np.where(np.arange(d) == d - 1, 0.5, 1.0)

    (note,) = score_warnings({"p": Density(score, normal_log_prob)}, rng.normal(size=(100, d)))
    assert note.startswith("p: the score is not the gradient of log_prob at 20 of 20 rows checked: off by up to ")


@pytest.mark.parametrize("shift", [0.0, 1e3, 1e7])
@pytest.mark.parametrize(
    ("name", "score", "log_prob", "draw"),
    [
        ("normal", lambda x: -x, normal_log_prob, lambda rng, size: rng.normal(size=size)),
        ("Laplace", lambda x: -np.sign(x), lambda x: -np.abs(x).sum(axis=1), lambda rng, size: rng.laplace(size=size)),
        (
            "Cauchy",
            lambda x: -2.0 * x / (1.0 + x**2),
            lambda x: -np.log1p(x**2).sum(axis=1),
            lambda rng, size: rng.standard_cauchy(size=size),
        ),
        (
            "beta(2, 2), NaN outside",
            lambda x: 1.0 / x - 1.0 / (1.0 - x),
            lambda x: np.log(x * (1.0 - x)).sum(axis=1),
            lambda rng, size: rng.beta(2.0, 2.0, size=size),
        ),
        (
            "gamma(0.3), most rows beside the edge",
            lambda x: -0.7 / x - 1.0,
            lambda x: (-0.7 * np.log(x) - x).sum(axis=1),
            lambda rng, size: rng.gamma(0.3, size=size) + 1e-9,
        ),
        ("float32", lambda x: -x, lambda x: normal_log_prob(x.astype("f4")), lambda rng, size: rng.normal(size=size)),
        ("float16 scores", lambda x: -x.astype("f2"), normal_log_prob, lambda rng, size: rng.normal(size=size)),
    ],
)
def test_right_scores_are_left_alone(rng, name, score, log_prob, draw, shift):
    for d in (1, 3, 40):
        moved = Density(lambda x: score(x - shift), lambda x: log_prob(x - shift))
        assert score_warnings({name: moved}, draw(rng, (90, d)) + shift) == ()


def _raises(x):
    raise RuntimeError("not today")


@pytest.mark.parametrize(
    "log_prob",
    [
        _raises,
        lambda x: "text",
        lambda x: np.full(len(x), -np.inf),
        lambda x: np.full(len(x), np.nan),
        lambda x: normal_log_prob(x)[:1],
        lambda x: normal_log_prob(x) + np.random.default_rng().normal(size=len(x)),
    ],
)
def test_what_cannot_be_judged_is_passed_over(x, log_prob):
    assert score_warnings({"p": Density(lambda x: x, log_prob)}, x) == ()


def test_it_takes_few_evaluations(rng):
    """Of 10,000 rows of 300 columns: 20 rows, ten numbers each for a right score, thirty for a wrong one."""
    for sign, most in ((-1.0, 20 * 10), (1.0, 20 * 27)):
        asked = []

        def log_prob(x, asked=asked):
            asked.append(len(x))
            return normal_log_prob(x)

        found = score_warnings({"p": Density(lambda x, sign=sign: sign * x, log_prob)}, rng.normal(size=(10_000, 300)))
        assert len(found) == (sign > 0)
        assert sum(asked) <= most
