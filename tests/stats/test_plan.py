"""Power and sample size: closed forms by hand, the simulated tests against the real ones, forecasts that come true."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import multivariate_normal, norm
from trials import pvalues, trials, worse

import relfit
from relfit.api import plan
from relfit.cli import main
from relfit.paper.problems import draw, mean_shift
from relfit.report.checks import rows_advice
from relfit.results.words import about
from relfit.stats.decision import Covariances, adjust, difference_errors, gaps_to
from relfit.stats.joint import JointEstimate
from relfit.stats.maxt import Maxima
from relfit.stats.planning import Assumed, Plain, _Simulated, estimate_law, signal_needed, simulation
from relfit.stats.tests import as_test
from relfit.stats.tests.base import Criteria, Noise
from relfit.stats.tests.best_set import BestSet, best_set
from relfit.stats.tests.carve import Carve, Selection, carve
from relfit.stats.tests.relmulti import RelMulti
from relfit.stats.tests.relpsi import RelPSI
from relfit.util.errors import InputError
from studies.problems import true_mmd

TESTS = ("best-set", "relpsi", "relmulti", "carve")
ALPHA = 0.05


@pytest.fixture
def ten(rng):
    """Ten models, correlated, at 0, 0, 0, then ever worse; s.e. of 100 rows."""
    root = rng.normal(size=(10, 14))
    covariance = 1e-4 * (root @ root.T / 14 + 0.5)
    values = np.array([0, 0, 0, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.06])
    return JointEstimate(tuple(f"m{k}" for k in range(10)), values, covariance, (100,))


def _own_covariances(joint, count, rng):
    """A covariance for every trial: half of V, and the rest with every model scaled by a factor of its own."""
    scale = rng.uniform(0.5, 2.0, size=(count, len(joint.names)))
    half = joint.covariance / 2
    return Covariances(half, half, scale), half + half * scale[:, :, None] * scale[:, None, :]


def _dense(covariances):
    """V of every trial, (trials, l, l)."""
    return covariances.rows(list(range(len(covariances.constant))))


# --- two models: closed forms -------------------------------------------------------------------------------------


def test_relpsi_by_hand():
    """Power .8 at α = .05: r = z_.975 + z_.8 = 1.959964 + .841621, so n = n₀ (2.801585 s/μ)²; s = √2 · .02, μ = .01."""
    made = plan(Assumed(0.01, standard_error=0.02, n=500), tests="relpsi")
    assert made.needed("m1", "relpsi") == math.ceil(500 * 2 * (2.801585 * 2) ** 2)
    assert made.forecasts[0].power == pytest.approx(ndtr(0.01 / (0.02 * 2**0.5) - 1.959964), abs=1e-6)
    assert made.forecasts[0].detectable_gap == pytest.approx(2.801585 * 0.02 * 2**0.5, rel=1e-6)
    assert made.method == "closed forms"


def test_best_set_and_correlation_by_hand():
    """r = 1.959964 + .841621 = 2.801585, unadjusted 1.644854 + .841621; correlation ½ halves the variance."""
    pilot = Assumed({"a": 0, "b": 0.01}, 0.02, correlation=0.5, n=500)
    for correction, r in ((None, 2.801585), ("none", 2.486475)):
        made = plan(pilot, tests="best-set", correction=correction)
        assert made.best == "a"
        assert made.needed("b", "best-set") == math.ceil(500 * (r * 2) ** 2)


def test_relmulti_by_hand():
    """The two factors multiply: selection with a quarter of the rows, one-sided z on the rest."""
    expected = norm.cdf(math.sqrt(0.75) * 3 - norm.ppf(0.95)) * norm.cdf(math.sqrt(0.25) * 3)
    assert RelMulti(0.25).two_model_power(3.0, ALPHA, "by") == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("signal", [0.0, 1.0, 2.5, 4.0, 30.0])
def test_carving_is_a_bivariate_normal_probability(signal):
    """P(X ≥ c, X + W ≥ 0), X ~ N(r, 1), W ~ N(0, 1) independent: (X, X + W) has variances 1, 2 and covariance 1."""
    cut = norm.ppf(math.sqrt(0.95))
    expected = multivariate_normal([-signal, -signal], [[1, 1], [1, 2]]).cdf([-cut, 0.0])
    assert Carve().two_model_power(signal, ALPHA, "none") == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("gap", [0.5, 2.0, 3.5])
def test_simulation_agrees_with_the_closed_forms(test, gap):
    joint = JointEstimate(("a", "b"), [0.0, gap], [[0.7, 0.2], [0.2, 0.7]], (100,))
    value = as_test(test)
    simulated = simulation(joint.names, estimate_law(joint, 100), ALPHA, 8000, 400, 1, joint.values[None, :])
    for n in (50, 200):
        expected = value.two_model_power(gap * math.sqrt(n / 100), ALPHA, value.default_correction)
        error = math.sqrt(expected * (1 - expected) / 8000) + 1e-3
        power = simulated.power(value, value.default_correction, n, [1])[0, 0]
        # Carving with few fresh draws adds a little noise to the p-value.
        assert abs(power - expected) < 4 * error + (0.005 if test == "carve" else 0.0)


# --- many models: the simulated tests are the tests ----------------------------------------------------------------


@pytest.mark.parametrize("alike", [True, False])
def test_relpsi_and_relmulti_are_those_of_single_decisions(ten, rng, alike):
    x, y = ten.values + rng.multivariate_normal(np.zeros(10), ten.covariance, size=(2, 60))
    covariances, each = (Covariances(ten.covariance), None) if alike else _own_covariances(ten, 60, rng)
    best, p = pvalues(RelPSI(), trials(x, covariances))
    multi_best, multi = pvalues(RelMulti(), trials(x, covariances, selection=y))
    verdicts = worse(multi_best, multi, "by")
    for k in range(60):
        tested, selecting = (JointEstimate(ten.names, row[k], ten.covariance if alike else each[k]) for row in (x, y))
        expected = RelPSI().decide(tested, Criteria(ALPHA))
        assert best[k] == expected.best
        np.testing.assert_allclose(p[k], np.exp(expected.log_pvalue), rtol=1e-8)
        decision = RelMulti().decide(tested, Criteria(ALPHA, "by"), selecting)
        assert multi_best[k] == decision.best
        np.testing.assert_allclose(multi[k], np.exp(decision.log_pvalue), rtol=1e-8)
        np.testing.assert_array_equal(verdicts[k], decision.worse)


def test_constant_differences_and_ties_are_those_of_single_decisions(rng):
    """Copies, a model plus a constant, and exact ties, in trials and one by one."""
    covariance = 0.01 * np.array([[1, 1, 0, 1], [1, 1, 0, 1], [0, 0, 1, 0], [1, 1, 0, 1]], dtype=float)
    means = np.array([0.0, 0.5, 0.6, 0.0])
    x = np.round(rng.normal(size=(40, 1)) + means, 1) + 0.1 * rng.normal(size=(40, 1)) * [1, 1, 0, 1]
    psi_best, psi = pvalues(RelPSI(), trials(x, covariance))
    multi_best, multi = pvalues(RelMulti(), trials(x, covariance, selection=x[::-1]))
    law = Maxima(0.1 * rng.normal(size=(1, 20_000)).repeat(4, axis=0), difference_errors(covariance))
    law.draws[2] = 0.1 * rng.normal(size=20_000)
    everything, best_set_p = pvalues(BestSet(), trials(x, covariance, maxima=law))
    for k in range(40):
        estimate, other = (JointEstimate(tuple("abcd"), row, covariance, (100,)) for row in (x[k], x[::-1][k]))
        single, split = (
            RelPSI().decide(estimate, Criteria(ALPHA)),
            RelMulti().decide(estimate, Criteria(ALPHA, "none"), other),
        )
        assert (psi_best[k], multi_best[k]) == (single.best, split.best)
        # A constant difference has p = 1/(n + 1); trials, which only count verdicts, have 0.
        for trial, decision in ((psi[k], single), (multi[k], split)):
            np.testing.assert_allclose(np.where(trial == 0.0, 1 / 101, trial), np.exp(decision.log_pvalue), rtol=1e-8)
        decision = best_set(estimate, ALPHA, rng=rng)
        assert everything[k] == decision.best
        constant = np.isclose(decision.log_pvalue, -np.log(101.0), rtol=1e-12)
        np.testing.assert_array_equal(best_set_p[k] == 0.0, constant)


@pytest.mark.parametrize("test", TESTS)
def test_simulated_verdicts_are_corrected_as_single_ones(ten, test):
    """The same numbers decided one by one: fractions of the verdicts on the p-values of all models."""
    value, asked = as_test(test), []

    class Spy(type(value)):
        def log_pvalues(self, simulated, models, alpha, *, exact):
            asked.append((exact, *super().log_pvalues(simulated, models, alpha, exact=exact)))
            return asked[-1][1:]

    simulated = simulation(ten.names, estimate_law(ten, 100), ALPHA, 100, 50, 3, ten.values[None])
    power = simulated.power(Spy(), "holm", 300, [3, 8])[0]
    ((exact, best, log_p),) = asked
    verdicts = adjust(np.exp(log_p), "holm") <= ALPHA if value.tests_best else worse(best, np.exp(log_p), "holm")
    assert exact
    np.testing.assert_allclose(power, verdicts[:, [3, 8]].mean(axis=0))


def test_best_set_is_that_of_single_decisions(ten, rng):
    """Different draws of the maxima: the p-values agree to their Monte-Carlo error, on both paths."""
    x = ten.values + rng.multivariate_normal(np.zeros(10), ten.covariance, size=40)
    g = rng.multivariate_normal(np.zeros(10), ten.covariance, size=20_000).T
    simulated = trials(x, ten.covariance, maxima=Maxima(g, difference_errors(ten.covariance)))
    _, p = pvalues(BestSet(), simulated)
    _, quick = BestSet().log_pvalues(simulated, list(range(10)), ALPHA, exact=False)
    np.testing.assert_array_equal(quick <= np.log(ALPHA), p <= ALPHA)
    for k in range(40):
        decision = best_set(JointEstimate(ten.names, x[k], ten.covariance, (100,)), ALPHA, rng=rng)
        expected = np.exp(decision.log_pvalue)
        below = expected <= ALPHA
        np.testing.assert_allclose(p[k][below & (p[k] < 1)], expected[below & (p[k] < 1)], atol=0.008)
        assert (expected[p[k] == 1.0] > ALPHA - 0.008).all()


@pytest.mark.parametrize("alike", [True, False])
def test_carving_is_that_of_single_decisions(ten, rng, alike):
    """Given the same noise, the p-values are the same, where they are not above α in any case."""
    x = ten.values * 3 + rng.multivariate_normal(np.zeros(10), ten.covariance, size=24)
    realised = rng.multivariate_normal(np.zeros(10), ten.covariance, size=24)
    constant, scaled = rng.multivariate_normal(np.zeros(10), ten.covariance, size=(2, 8, 50))
    scale = None if alike else rng.uniform(-1.0, 1.0, size=(24, 10))
    covariances, each = (Covariances(ten.covariance), None) if alike else _own_covariances(ten, 24, rng)
    best, p = pvalues(Carve(), trials(x, covariances, noise=Noise(realised, constant, scaled, scale)))
    for k in range(24):
        fresh = constant[k % 8] if scale is None else constant[k % 8] + scale[k] * scaled[k % 8]
        noise, j = np.vstack([realised[k], fresh]).T, int(best[k])
        assert j == np.argmin(x[k] + realised[k])
        gaps = gaps_to(JointEstimate(ten.names, x[k], ten.covariance if alike else each[k]), j)
        selection = Selection(j, gaps, gaps.gap[0][:, None] + noise - noise[j])
        expected = np.ones(10)
        for i in selection.tested:
            expected[i] = np.exp(selection.law(i).log_pvalue(np.zeros(1))[0])
        skipped = (p[k] == 1.0) & (expected < 1.0)
        assert (expected[skipped] > ALPHA).all()
        np.testing.assert_allclose(p[k][~skipped], expected[~skipped], rtol=1e-6, atol=1e-12)


# --- squared lengths -----------------------------------------------------------------------------------------------


@pytest.fixture
def squared(rng):
    """Three squared lengths with 100 rows: A = 4Λ√θθ', B = 2Λ² + R, and V = A + 2B as the tests are given it."""
    values = np.array([0.04, 0.09, 0.25])
    along = 1e-3 * np.array([[1.0, 0.4, 0.2], [0.4, 1.5, 0.3], [0.2, 0.3, 0.8]])
    rest = 1e-6 * np.array([[4.0, 1.0, 1.0], [1.0, 5.0, 1.0], [1.0, 1.0, 6.0]])
    first, second = 4 * along * np.sqrt(np.outer(values, values)), 2 * along**2 + rest
    joint = JointEstimate(("a", "b", "c"), values, first + 2 * second, (100,), second_order=second)
    return joint, first, second, along, rest


def test_the_law_is_found_again_from_the_pilot(squared):
    joint, _, _, along, rest = squared
    law = estimate_law(joint, 100)
    np.testing.assert_allclose(law.along, along, rtol=1e-9)
    np.testing.assert_allclose(law.rest, rest, rtol=1e-6, atol=1e-13)
    assert isinstance(estimate_law(JointEstimate(joint.names, joint.values, joint.covariance), 100), Plain)


@pytest.mark.parametrize("n", [40, 400])
def test_estimates_have_the_variance_of_both_orders_and_tests_are_given_the_second_twice(squared, rng, n):
    """At n rows Cov(D) = A n₀/n + B (n₀/n)², and the mean V that is given = A n₀/n + 2B (n₀/n)²."""
    joint, first, second, _, _ = squared
    law, count, r = estimate_law(joint, 100), 200_000, 100 / n
    values, covariances = law.drawn(np.tile(joint.values, (count, 1)), n, rng.standard_normal((2, count, 3)))
    expected = first * r + second * r**2
    np.testing.assert_allclose(values.mean(axis=0), joint.values, atol=4 * np.sqrt(expected.max() / count))
    np.testing.assert_allclose(np.cov(values.T), expected, rtol=0.03, atol=0.01 * expected.max())
    given = first * r + 2 * second * r**2
    np.testing.assert_allclose(_dense(covariances).mean(axis=0), given, rtol=0.02, atol=0.01 * given.max())
    np.testing.assert_allclose(law.mean_covariance(joint.values, n), given, rtol=1e-9)


# --- the plan ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def five():
    """Five models, one tied with the best; s.e. .01 and correlation ½ with 200 rows."""
    values = np.array([0.1, 0.1, 0.12, 0.15, 0.3])
    covariance = 1e-4 * (0.5 * np.eye(5) + 0.5)
    return JointEstimate(("a", "b", "c", "d", "e"), values, covariance, (200,))


@pytest.fixture(scope="module")
def made(five):
    return plan(five, rng=0, trials=1000, tests=TESTS)


def test_no_answer_is_below_the_fewest_rows(made):
    """e is found with 20 rows; relmulti needs 20 for testing (27 · ¾) and 5 for selection (20 · ¼)."""
    assert dict(zip(made.tests, made.fewest, strict=True)) == {
        "relpsi": 20,
        "relmulti": 27,
        "best-set": 20,
        "carve": 20,
    }
    assert made.needed("e", "best-set") == 20
    assert made.needed("e", "relmulti") >= 27


def test_the_range_goes_with_the_pilots_uncertainty(made):
    for cell in made.forecasts:
        low, high = cell.n_range
        assert low <= high
        if math.isfinite(cell.n_needed):
            assert low <= 1.15 * cell.n_needed
            assert high >= 0.85 * cell.n_needed
    b = next(cell for cell in made.forecasts if cell.name == "b")
    assert b.n_range[1] == math.inf
    assert any("no clear gap" in note and note.startswith("b:") for note in made.notes)
    assert re.search(r"^b .*more than 1000000", str(made), re.MULTILINE)


def test_a_range_of_two_models_by_hand():
    """The gap is 2 s.e.; at the 16% and 84% points it is 2 ± .994458: n ∝ 1/gap²."""
    joint = JointEstimate(("a", "b"), [0.0, 2.0], [[0.5, 0.0], [0.0, 0.5]], (100,))
    cell = plan(joint, tests="best-set").forecasts[0]
    base = 100 * 2.801585**2
    assert cell.n_range == (math.ceil(base / 2.994458**2), math.ceil(base / 1.005542**2))
    assert cell.n_needed == math.ceil(base / 4)
    assert plan(Assumed(2.0, 1.0, n=100), tests="best-set").forecasts[0].n_range is None


def _realised(joint, n, test, index, trials, seed):
    """The share of Gaussian (D, V·n₀/n) in which the real procedure finds the model."""
    rng = np.random.default_rng(seed)
    scaled = joint.covariance * joint.sizes[0] / n
    found = 0
    for _ in range(trials):
        values = rng.multivariate_normal(joint.values, scaled)
        own = JointEstimate(joint.names, values, scaled, (n,))
        if test == "relmulti":
            halves = [
                JointEstimate(joint.names, rng.multivariate_normal(joint.values, scaled / share), scaled / share, (n,))
                for share in (0.25, 0.75)
            ]
            found += RelMulti().decide(halves[1], Criteria(ALPHA, "by"), halves[0]).worse[index]
        elif test == "best-set":
            found += best_set(own, ALPHA, "stepdown", rng=rng, draws=2000).worse[index]
        elif test == "carve":
            found += carve(own, ALPHA, rng=rng, draws=100).worse[index]
        else:
            found += RelPSI().decide(own, Criteria(ALPHA)).worse[index]
    return found / trials


@pytest.mark.parametrize("test", TESTS)
def test_the_power_comes_true_with_the_rows_needed(test, five, made, ten):
    """Within .05 of what was forecast, three Monte-Carlo errors allowed, at l = 5 and l = 10."""
    n = int(made.needed("d", test))
    trials = 250
    allowed = 0.05 + 3 * math.sqrt(0.8 * 0.2 / trials)
    assert abs(_realised(five, n, test, 3, trials, 1) - 0.8) < allowed
    other = plan(ten, tests=test, n=150, rng=1, trials=1000)
    cell = next(cell for cell in other.forecasts if cell.name == "m8")
    assert abs(_realised(ten, 150, test, 8, trials, 2) - cell.power) < allowed


def test_the_power_comes_true_on_data():
    """Three Gaussians, MMD: the forecast from a large sample's (D, V) beside fresh samples of 320 rows."""
    problem = mean_shift(np.array([[0.5, 0.0], [0.0, 0.5], [0.75, 0.0]]))
    kernel = relfit.Gaussian(1.5)
    reference, models = draw(problem, 2000, seed=10**9)
    large = relfit.estimate(reference, models, kernel=kernel, rng=0)
    second = {"second_order": large.second_order}
    pilot = JointEstimate(tuple(problem.models), true_mmd(problem, 1.5), large.covariance, (2000,), **second)
    made = plan(pilot, n=320, rng=0, tests=("relpsi", "best-set"), correction="none")
    trials = 150
    found = dict.fromkeys(made.tests, 0)
    for seed in range(trials):
        reference, models = draw(problem, 320, seed)
        joint = relfit.estimate(reference, models, kernel=kernel, rng=0)
        for test in made.tests:
            found[test] += bool(relfit.decide(joint, test=test, correction="none", rng=seed).worse[2])
    for cell in made.forecasts:
        if cell.name == "P3":
            assert 0.2 < cell.power < 0.98
            assert abs(found[cell.test] / trials - cell.power) < 0.05 + 3 * math.sqrt(0.25 / trials)


def test_constant_differences_need_no_rows():
    """A model that is another plus a constant is found for certain; an exact copy never is."""
    covariance = 0.01 * np.array([[1, 1, 0, 1], [1, 1, 0, 1], [0, 0, 1, 0], [1, 1, 0, 1]], dtype=float)
    joint = JointEstimate(("a", "plus", "c", "copy"), [0.0, 0.5, 0.6, 0.0], covariance, (100,))
    made = plan(joint, rng=0, trials=200, tests=("relpsi", "best-set", "carve"))
    for test in made.tests:
        assert made.needed("plus", test) < 60
        assert made.needed("copy", test) == math.inf


def test_json_and_plot(made):
    data = json.loads(made.to_json())
    assert data["type"] == "relfit.Plan"
    assert [row["name"] for row in data["rows"][:4]] == ["b"] * 4
    assert data["rows"][0]["n_needed"] == "inf"
    assert len(data["curve"]) == 4 * 4 * len(made.sizes)
    ax = made.plot()
    assert len(ax.get_legend().get_texts()) == 16
    assert ax.get_xscale() == "log"
    assert ax._repr_png_().startswith(b"\x89PNG")


def test_the_answer_comes_first_in_one_sentence():
    """b and c have closed answers by hand in other tests; d has a gap of half its standard error, which may be none."""
    values, error = [0.0, 0.6, 0.4, 0.05], 0.1
    joint = JointEstimate(tuple("abcd"), values, error**2 / 2.0 * np.eye(4), (200,))
    made = plan(joint, trials=200, rng=0)
    needed = {name: about(made.needed(name, "best-set")) for name in "bc"}
    first = str(made).splitlines()[0]
    assert first == (
        f"About {needed['b']} rows tell b from a, about {needed['c']} tell c from it; d may never be separable from it."
    )
    many = Assumed({f"m{k}": 0.01 * k for k in range(1, 6)}, 0.01, n=100)
    sentence = str(plan(many, trials=100, rng=0)).splitlines()[0]
    assert re.fullmatch(r"About \d+ rows tell m5 from best, about [\d,]+ tell all of the 5 models from it .*", sentence)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"power": 1.0}, r"^power: expected a number between alpha \(0.05\) and 1, got 1.0$"),
        ({"power": 0.01}, "^power: "),
        ({"alpha": 2}, "^alpha: "),
        ({"tests": ["z"]}, "^tests: expected one of auto, best-set, relpsi, relmulti, carve, got 'z'"),
        ({"tests": [RelMulti(0.25), RelMulti(0.5)]}, "^tests: expected each test once, got relmulti twice"),
        ({"tests": []}, "^tests: .*got none"),
        ({"n": 10, "tests": TESTS}, "^n: expected a whole number of at least 27"),
        ({"trials": 5}, "^trials: "),
        ({"correction": "fdr"}, "^correction: "),
    ],
)
def test_refusals(options, words):
    with pytest.raises(InputError, match=words) as caught:
        plan(Assumed(0.1, 0.1, n=100), **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("pilot", "words"),
    [
        (0.1, "^pilot: expected a JointEstimate"),
        (JointEstimate(("a",), [0.1], [[1.0]], (50,)), "^pilot: expected at least 2 models"),
        (JointEstimate(("a", "b"), [0.1, 0.2], np.eye(2)), "^pilot: expected an estimate with its sizes"),
        (Assumed(-0.1, 0.1, n=10), "^gap of 'm1': "),
        (Assumed({"best": 0.1}, 0.1, n=10), "^gaps: expected 0 for the model called 'best'"),
        (Assumed(0.1, 0.0, n=10), "^standard_error: "),
        (Assumed(0.1, 0.1, correlation=1.0, n=10), "^correlation: "),
        (Assumed(0.1, 0.1, n=0), "^n: "),
    ],
)
def test_pilots_that_are_refused(pilot, words):
    with pytest.raises(InputError, match=words):
        plan(pilot)


# --- the command line ----------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path, monkeypatch):
    rng = np.random.default_rng(5)
    for name, shift in {"human": 0.0, "good": 0.1, "fair": 0.5, "poor": 1.0}.items():
        np.save(tmp_path / f"{name}.npy", rng.normal(shift, 1, (80, 2)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_command_on_files(files, capsys):
    args = ["plan", "human.npy", "good.npy", "fair.npy", "poor.npy", "--test", "best-set", "--trials", "300"]
    assert main([*args, "--plot", "power.svg", "--json", "plan.json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert re.search(r"^poor +best set ", out, re.MULTILINE)
    data = json.loads((files / "plan.json").read_text())
    models = {name: f"{name}.npy" for name in ("good", "fair", "poor")}
    joint = relfit.estimate("human.npy", models, rng=0)
    assert out == f"{plan(joint, trials=300, rng=0)}\nPlot: power.svg\nResult: plan.json\n"
    assert data["pilot_n"] == 80
    assert (files / "power.svg").read_bytes().startswith(b"<?xml")


def test_the_command_on_assumed_gaps(capsys):
    args = ["plan", "--gap", "0.01", "--standard-error", "0.02", "--pilot-rows", "500", "--json", "-"]
    assert main(args) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["test"] for row in rows] == ["best-set"]
    assert main([*args, "--all-tests"]) == 0
    every = json.loads(capsys.readouterr().out)["rows"]
    assert [row["test"] for row in every] == list(TESTS)
    assert rows[0]["n_needed"] == plan(Assumed(0.01, 0.02, n=500)).needed("m1", "best-set")


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--gap", "0.1"], "--standard-error: expected with --gap"),
        (["--gap", "x", "--standard-error", "1", "--pilot-rows", "9"], "--gap: expected a number"),
        (["human.npy", "good.npy"], "MODEL: expected a reference and at least two"),
        ([], "MODEL: expected a reference"),
        (["human.npy", "good.npy", "fair.npy", "--pilot-rows", "9"], "--pilot-rows: belongs to --gap"),
        (["human.npy", "--gap", "1", "--standard-error", "1", "--pilot-rows", "9"], "--gap: expected files or"),
        (["human.npy", "good.npy", "fair.npy", "--plot", "a.jpg"], "--plot: expected a file ending in"),
        (["human.npy", "good.npy", "fair.npy", "--power", "2"], "power: expected"),
        (["human.npy", "good.npy", "missing.npy"], "missing.npy"),
    ],
)
def test_the_command_refuses_in_one_line(files, capsys, args, words):
    assert main(["plan", *args]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err
    assert len(err.splitlines()) == 1


# --- groups and margins -------------------------------------------------------------------------------------------


def test_rows_in_groups_are_counted_as_rows(rng):
    """400 items in 40 groups of 10 whose losses are equal within a group: ten times the rows of one item a group."""
    own = rng.normal([0.0, 0.3], 1.0, (40, 2))
    grouped = relfit.from_losses(np.repeat(own, 10, axis=0), ["a", "b"], groups=np.repeat(np.arange(40), 10))
    single = relfit.from_losses(own, ["a", "b"])
    many, few = (plan(joint, tests=["best-set"]) for joint in (grouped, single))
    assert (many.pilot_n, few.pilot_n) == (400, 40)
    assert many.needed("b", "best-set") == pytest.approx(10 * few.needed("b", "best-set"), rel=0.02)
    assert "the pilot's 400 rows are in 40 groups: more rows means more groups" in str(many)


def test_a_margin_has_no_plan():
    joint = JointEstimate(("a", "b"), [0.0, 0.1], 0.01 * np.eye(2), (400,))
    result = relfit.decide(joint, margin=0.2, rng=0)
    with pytest.raises(InputError, match=r"pilot: expected a comparison without a margin, got a margin of 0\.2"):
        plan(result)
    with pytest.raises(InputError, match=r"margin: planning does not support a margin, got 0\.2"):
        result.plot_power()
    assert rows_advice(result) == ["No sample-size advice: planning does not support a margin."]


# --- the pieces ---------------------------------------------------------------------------------------------------


def test_the_error_of_the_rows_needed_by_the_delta_method():
    """Power Φ(√n/10 − 1) is .8 at √n = 10(z.8 + 1); there dn = 2√n d√n and d√n = 10 dp/φ(z.8)."""

    class Known:
        trials = 1000

        def power(self, _test, _correction, n, _models, _populations):
            return np.array([[ndtr(0.1 * math.sqrt(n) - 1.0)]])

    sizes = [100, 200, 400, 800]
    powers = np.array([ndtr(0.1 * math.sqrt(n) - 1.0) for n in sizes])
    rows, error = _Simulated(BestSet(), "none", Known()).rows_needed(sizes, powers, 0, 0.8)
    root, z = 10.0 * (norm.ppf(0.8) + 1.0), norm.ppf(0.8)
    assert rows == pytest.approx(root**2, rel=1e-6)
    assert error == pytest.approx(2 * root * 10.0 * math.sqrt(0.16 / 1000) / norm.pdf(z), rel=1e-3)


@pytest.mark.parametrize("estimator", ["complete", "linear"])
def test_a_comparison_is_as_good_a_pilot_as_its_estimate(rng, estimator):
    """It keeps the second-order part of the variance, and which estimator it was made with; also through its file."""
    data = rng.normal(size=(120, 2))
    models = {"a": rng.normal(0.1, 1, (120, 2)), "b": rng.normal(1.0, 1, (120, 2))}
    options = {"estimator": estimator, "kernel": relfit.Gaussian(1.5), "rng": 0}
    pilot = relfit.estimate(data, models, **options)
    result = relfit.compare(data, models, test="relpsi", **options)
    read = relfit.Comparison.from_json(result.to_json())
    plans = [plan(start, tests=["relpsi", "best-set"], trials=200, rng=0) for start in (pilot, result, read)]
    assert len({made.needed("b", "relpsi") for made in plans}) == 1
    assert len({made.fewest for made in plans}) == 1
    assert (pilot.second_order is None) == (estimator == "linear")


def test_signal_needed_inverts_the_power():
    for test in map(as_test, TESTS):
        for power in (0.3, 0.8, 0.99):
            r = signal_needed(test, power, ALPHA, "none")
            assert test.two_model_power(r, ALPHA, "none") == pytest.approx(power, abs=1e-9)


def test_more_rows_are_needed_for_smaller_gaps_and_curves_rise(made):
    for test in TESTS:
        needed = [made.needed(name, test) for name in "bcde"]
        assert needed[0] == math.inf
        assert needed[1] > needed[2] > needed[3] >= 20
    assert (np.diff(made.curves, axis=2) >= 0).all()
    assert (np.diff(made.sizes) > 0).all()


def test_the_noise_of_carving_has_the_covariance_that_is_given(squared, rng):
    joint = squared[0]
    law = estimate_law(joint, 100)
    _, covariances = law.drawn(joint.values[None], 50, rng.standard_normal((2, 1, 3)))
    scaled, constant = law.noise(rng.standard_normal((2, 200_000, 3)), 50)
    given = _dense(covariances)[0]
    noise = covariances.scale * scaled + constant
    np.testing.assert_allclose(np.cov(noise.T), given, rtol=0.03, atol=0.01 * given.max())
