"""check_score: what it finds wrong, in words, and what it lets pass."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from refusals import refused
from scipy import stats

import relfit
from relfit.data.check_score import ScoreCheck, check_score, score_warnings
from relfit.data.models import Density
from relfit.kernels.standard import IMQ, Gaussian


@pytest.fixture
def x(rng):
    return rng.normal(size=(300, 2))


def normal_log_prob(x):
    return -0.5 * (x**2).sum(axis=1)


def found(check, *parts):
    return [message for message in check.messages if all(part in message for part in parts)]


def test_a_right_score_passes_also_in_low_precision(x):
    check = check_score(Density(score=lambda x: -x, log_prob=normal_log_prob), x)
    assert check.ok
    assert check.largest_error < 1e-8
    assert (check.n_rows, check.n_bad_rows) == (300, 0)
    assert found(check, "the score is the gradient of log_prob")
    assert str(check).startswith("score check: nothing wrong found\n- the score")
    assert isinstance(check, ScoreCheck)

    def log_prob(x):
        return (-0.5 * (x.astype(np.float32) ** 2)).sum(axis=1)

    assert check_score(Density(score=lambda x: -x.astype(np.float32), log_prob=log_prob), x).ok
    assert not check_score(Density(score=lambda x: x.astype(np.float32), log_prob=log_prob), x).ok


def test_a_wrong_factor_is_named(x):
    for factor in (-1.0, 2.0, 0.5, 1.01):
        check = check_score(Density(score=lambda x, f=factor: -f * x, log_prob=normal_log_prob), x)
        assert not check.ok
        assert found(check, f"the score is {factor:.4g} times the gradient of log_prob")
        np.testing.assert_allclose(check.largest_error, abs(factor - 1.0), rtol=1e-6)


def test_what_is_wrong_in_some_columns_or_rows_is_named(x):
    check = check_score(
        Density(score=lambda x: np.stack([-x[:, 0], -x[:, 1] + 0.1], axis=1), log_prob=normal_log_prob), x
    )
    assert not check.ok
    assert found(check, "is not the gradient of log_prob at 150 of 150 rows", "columns 1,")
    score = Density(score=lambda x: np.where(x > 1.5, 0.0, -x), log_prob=normal_log_prob)
    wrong = int((x[::2] > 1.5).any(axis=1).sum())
    assert found(check_score(score, x), f"at {wrong} of 150 rows checked")
    check = check_score(Density(score=lambda x: np.where(x > 2.0, np.nan, -x), log_prob=normal_log_prob), x)
    bad = int((x > 2.0).any(axis=1).sum())
    assert not check.ok
    assert check.n_bad_rows == bad > 0
    assert found(check, f"the score is NaN or infinite at {bad} of 300 rows")
    assert found(check, "the score is the gradient of log_prob")


def test_data_outside_the_support_are_counted(rng):
    x = rng.normal(size=(200, 1)) + 2.0
    check = check_score(stats.gamma(3.0), x)
    outside = int((x <= 0.0).sum())
    assert not check.ok
    assert check.n_bad_rows == outside > 0
    assert found(check, "the support does not cover the data", f"at {outside} of 200 rows")
    # The boundary term is that of the data's own density at the edge.
    x = rng.gamma(4.0, size=(300, 1)) + 1.0
    check = check_score(stats.uniform(-0.5, 30.0), x)
    assert check.ok
    assert found(check, "the support ends at -0.5 in column 0", "KSD allows as long as no data are near")


@pytest.mark.parametrize(
    ("frozen", "places", "vanishes"),
    [
        (stats.expon(), ["0 in column 0"], False),
        (stats.uniform(-0.5, 30.0), ["-0.5 in column 0", "29.5 in column 0"], False),
        (stats.gamma(3.0), ["0 in column 0"], True),
        (stats.beta(3.0, 4.0, scale=20.0), ["0 in column 0", "20 in column 0"], True),
        (stats.beta(3.0, 1.0, scale=20.0), ["0 in column 0", "20 in column 0"], False),
        (stats.norm(3.0), [], True),
        (stats.t(2.0), [], True),
    ],
    ids=["exponential", "uniform", "gamma", "beta", "beta with one open end", "normal", "t"],
)
def test_edges_are_flagged_if_the_density_does_not_vanish_there(rng, frozen, places, vanishes):
    """KSD's expectation under the model itself is 0 only if p vanishes at the edges (integration by parts)."""
    x = frozen.rvs(size=(300, 1), random_state=rng)
    check = check_score(frozen, x)
    assert check.ok is vanishes
    edges = " ".join(found(check, "the support ends at"))
    assert all(place in edges for place in places)
    assert bool(edges) == bool(places)


def test_a_score_without_log_prob_is_a_gradient_if_its_jacobian_is_symmetric(x):
    turning = np.array([[0.0, 0.2], [-0.2, 0.0]])
    assert check_score(Density(score=lambda x: -(x**3)), x).ok
    check = check_score(Density(score=lambda x: -x + x @ turning), x)
    assert not check.ok
    assert found(check, "Jacobian of the score is not symmetric", "not the gradient of any log density")
    check = check_score(Density(score=lambda x: -x), x[:, :1])
    assert check.ok
    assert found(check, "in one dimension any score is a gradient")


def test_what_is_no_density_is_refused(x):
    refused(lambda: check_score(lambda x: -x, x), "density: expected a Density", "Density(score=...)")
    refused(lambda: check_score(x, x), "density: expected a Density", "ndarray")
    refused(lambda: check_score(stats.norm(), x), "expected dimension 2 like the data, got 1")
    refused(lambda: check_score(stats.norm(), [np.nan]), "x: expected finite numbers")
    refused(lambda: check_score(Density(score=lambda x: x[:, 0]), x), "score: expected shape (300, 2), got (300,)")


# --- comparisons name a density whose score contradicts its own log density, and no other

SAID = "the score is -1 times the gradient of log_prob"


RIGHT = Density(score=lambda x: -x, log_prob=normal_log_prob)
WRONG = Density(score=lambda x: x, log_prob=normal_log_prob)
OTHER = Density(score=lambda x: 0.5 - x)


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
    x = x[:120]
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
