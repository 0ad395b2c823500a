"""Laws that every comparison obeys, over random joint estimates and data."""

import json
import math
from functools import partial

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from refusals import refused

from relfit.api import decide, estimate
from relfit.data.models import Density
from relfit.estimators.losses import from_losses
from relfit.kernels.standard import Gaussian
from relfit.results.comparison import Comparison
from relfit.stats.joint import JointEstimate
from relfit.stats.tests import TESTS
from relfit.stats.tests.base import Criteria

pytestmark = pytest.mark.filterwarnings("error")

laws = settings(max_examples=100, deadline=None, database=None)
few = settings(laws, max_examples=12)

psi = partial(decide, test="relpsi")

ARRAYS = ("discrepancy", "standard_error", "difference", "difference_standard_error", "pvalue", "log_pvalue")


@st.composite
def joints(draw, fewest=2, most=6):
    """Joint estimates: full or low rank, any scale, values from a coarse grid (ties) or anywhere, gaps of any size."""
    count = draw(st.integers(fewest, most))
    rank = draw(st.integers(1, count + 1))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    root = rng.normal(size=(count, rank)) * 10.0 ** rng.uniform(-1, 1, (count, 1))
    values = draw(st.sampled_from([0.3, 1.0, 5.0])) * root @ rng.normal(size=rank) + rng.normal(size=count)
    if draw(st.booleans()):
        values = np.round(values)
    scale = 10.0 ** draw(st.integers(-12, 12))
    return JointEstimate(tuple(f"m{k}" for k in range(count)), values * scale, root @ root.T * scale**2)


levels = st.sampled_from([0.001, 0.01, 0.05, 0.2, 0.5])
corrections = st.sampled_from(["none", "by", "bh", "holm", "bonferroni", "auto"])


def clear_of(p, alpha):
    """True where p differs from alpha by more than rounding."""
    return np.abs(p - alpha) > 1e-9 * max(alpha, 1e-3)


@laws
@given(joints(), levels, corrections)
def test_pvalues_are_probabilities_and_verdicts_follow_from_them(joint, alpha, correction):
    result = psi(joint, alpha=alpha, correction=correction)
    assert ((result.pvalue >= 0.0) & (result.pvalue <= 1.0)).all()
    assert (result.log_pvalue <= 0.0).all()
    np.testing.assert_array_equal(result.pvalue, np.exp(result.log_pvalue))
    assert ((result.adjusted_pvalue >= result.pvalue) & (result.adjusted_pvalue <= 1.0)).all()
    others = np.arange(len(joint.names)) != result.best_index
    np.testing.assert_array_equal(result.worse, (result.adjusted_pvalue <= alpha) & others)
    assert result.pvalue[result.best_index] == 1.0
    assert result.difference.min() == 0.0
    assert (result.truncation[:, 0] <= result.truncation[:, 1]).all()
    tested = result.difference_standard_error > 0.0
    assert (result.truncation[tested, 0] >= 0.0).all()
    assert (result.truncation[tested, 0] <= result.difference[tested]).all()
    assert (result.difference[tested] <= result.truncation[tested, 1]).all()


@laws
@given(joints(), st.randoms(use_true_random=False))
def test_permuting_the_models_permutes_every_array(joint, random):
    assume(len(set(joint.values.tolist())) == len(joint.values))
    order = list(range(len(joint.names)))
    random.shuffle(order)
    first = psi(joint, correction="by")
    second = psi(_taken(joint, order), correction="by")
    assert second.best == first.best
    for key in (*ARRAYS, "adjusted_pvalue", "worse", "truncation"):
        np.testing.assert_allclose(getattr(second, key), getattr(first, key)[order], rtol=1e-6, atol=0, err_msg=key)
    assert list(second.status) == [first.status[k] for k in order]


def _taken(joint, index):
    names = tuple(joint.names[k] for k in index)
    return JointEstimate(names, joint.values[index], joint.covariance[np.ix_(index, index)])


@laws
@given(joints(), st.integers(-1000, 1000), st.integers(-30, 30))
def test_adding_a_constant_or_changing_the_unit_changes_no_pvalue(joint, constant, exponent):
    """On a grid of 2⁻²⁰ both are exact in float64, so the p-values stay the same to the last bit."""
    scale = max(float(np.abs(joint.values).max()), float(joint.standard_error.max()), 1e-300)
    values = np.round(joint.values / scale * 2**20) / 2**20
    covariance = joint.covariance / scale**2
    plain = psi(JointEstimate(joint.names, values, covariance))
    moved = psi(JointEstimate(joint.names, values + constant, covariance))
    unit = 2.0**exponent
    scaled = psi(JointEstimate(joint.names, values * unit, covariance * unit**2))
    for other in (moved, scaled):
        assert other.best == plain.best
        assert other.status == plain.status
        np.testing.assert_array_equal(other.log_pvalue, plain.log_pvalue)


@laws
@given(joints(), st.floats(0.0, 3.0))
def test_a_model_that_moves_away_gets_no_larger_pvalue(joint, step):
    """t and the limits that other models set move up together, and log-concavity makes P(T > t | limits) fall."""
    before = psi(joint)
    for i in range(len(joint.names)):
        s = before.difference_standard_error[i]
        if i == before.best_index or s == 0.0 or "tie" in before.status[i]:
            continue
        values = joint.values.copy()
        values[i] += step * s
        after = psi(JointEstimate(joint.names, values, joint.covariance))
        assert after.log_pvalue[i] <= before.log_pvalue[i] + 1e-6 * (1.0 - before.log_pvalue[i])


@laws
@given(joints(), st.floats(0.001, 5.0))
def test_a_worse_model_far_away_does_not_matter(joint, spread):
    """A model a thousand standard errors behind the others cannot have been selected: it changes no p-value."""
    scale = float(joint.standard_error.max())
    far = float(joint.values.max()) + 1e4 * scale
    covariance = np.zeros((len(joint.names) + 1,) * 2)
    covariance[:-1, :-1] = joint.covariance
    covariance[-1, -1] = (spread * scale) ** 2
    plain = psi(joint)
    more = psi(JointEstimate((*joint.names, "far"), [*joint.values, far], covariance))
    assert more.best == plain.best
    np.testing.assert_allclose(more.pvalue[:-1], plain.pvalue, rtol=1e-9)
    assert more.worse[-1] or "tie" in {word for words in more.status for word in words} or _masked(more)


def _masked(result):
    return result.truncation[-1, 0] > 0.0


@laws
@given(joints(), levels)
def test_the_lower_bound_and_the_pvalue_are_one_decision(joint, alpha):
    result = psi(joint, alpha=alpha)
    others = np.arange(len(joint.names)) != result.best_index
    sure = others & clear_of(result.pvalue, alpha)
    np.testing.assert_array_equal((result.lower_bound(1.0 - alpha) > 0.0)[sure], (result.pvalue < alpha)[sure])


# --- from data


def _data(seed, n=30, d=2):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), [rng.normal(k / 3.0, 1.0, (n + 5 * k, d)) for k in range(3)]


@few
@given(st.integers(0, 2**32), st.floats(-40, 40), st.sampled_from(["complete", "linear"]))
def test_scaling_data_and_bandwidth_together_leaves_mmd_alone(seed, exponent, estimator):
    reference, models = _data(seed, n=40)
    models = [model[:40] for model in models]
    unit = 10.0**exponent
    plain = estimate(reference, models, kernel=Gaussian(1.5), estimator=estimator, rng=0)
    scaled = estimate(
        reference * unit, [x * unit for x in models], kernel=Gaussian(1.5 * unit), estimator=estimator, rng=0
    )
    np.testing.assert_allclose(scaled.values, plain.values, rtol=1e-9, atol=1e-13)
    np.testing.assert_allclose(scaled.covariance, plain.covariance, rtol=1e-8, atol=1e-15)


@few
@given(st.integers(0, 2**32), st.floats(-5, 5), st.floats(-3, 3))
def test_scaling_and_moving_everything_scales_ksd(seed, exponent, centre):
    """x → u(x + c) turns a score s into s/u at the moved point, and KSD² into KSD²/u²."""
    reference, _ = _data(seed)
    unit = 10.0**exponent

    def models(u, c):
        return [Density(score=lambda x, m=m: (m - (x / u - c)) / u) for m in (0.0, 0.4, 1.1)]

    plain = estimate(reference, models(1.0, 0.0), kernel=Gaussian(1.5), rng=0)
    scaled = estimate((reference + centre) * unit, models(unit, centre), kernel=Gaussian(1.5 * unit), rng=0)
    np.testing.assert_allclose(scaled.values * unit**2, plain.values, rtol=1e-7, atol=1e-11)
    np.testing.assert_allclose(scaled.covariance * unit**4, plain.covariance, rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("name", TESTS)
def test_every_test_of_models_follows_its_models_and_knows_no_unit(name, rng):
    """Permuting the models permutes the answer; scaling every discrepancy or renaming the models leaves it alone."""
    test, root = TESTS[name](), rng.normal(size=(4, 6))
    values, selecting, covariance = np.array([0.3, 0.0, 4.0, 9.0]), np.array([0.5, 0.1, 3.0, 8.0]), root @ root.T

    def decided(order, unit, names="abcd"):
        def joint(numbers):
            at = [names[k] for k in order]
            return JointEstimate(at, unit * numbers[order], unit**2 * covariance[np.ix_(order, order)], (400,))

        selection = None if test.split is None else joint(selecting)
        return test.decide(joint(values), Criteria(0.05, test.default_correction, seed=3), selection)

    first = decided([0, 1, 2, 3], 1.0)
    for order, unit, names in (
        ([2, 0, 3, 1], 1.0, "abcd"),
        ([0, 1, 2, 3], 2.0**40, "abcd"),
        ([0, 1, 2, 3], 1.0, "wzxy"),
    ):
        other = decided(order, unit, names)
        assert order[other.best] == first.best
        np.testing.assert_allclose(other.log_pvalue, first.log_pvalue[order], rtol=1e-6, atol=1e-9)
        np.testing.assert_array_equal(other.worse, first.worse[order])


# --- dictionaries and JSON


texts = st.text(st.characters(codec="utf-8"), max_size=8)


@settings(laws, max_examples=50)
@given(joints(), st.data())
def test_a_result_survives_its_dictionary_and_its_json(joint, data):
    drawn = data.draw(st.lists(texts, min_size=len(joint.names), max_size=len(joint.names), unique=True))
    names = [f"{name}\n🦙{k}" for k, name in enumerate(drawn)]
    result = psi(JointEstimate(names, joint.values, joint.covariance, sizes=(50,)), rng=2**53 - 1)
    text = result.to_json()
    json.loads(text, parse_constant=pytest.fail)  # RFC 8259 has no NaN and no Infinity
    for back in (Comparison.from_dict(result.to_dict()), Comparison.from_json(text)):
        assert back.to_dict() == result.to_dict()
        assert back.rows() == result.rows()
        assert back.names == tuple(names)
        assert back.truncation.dtype == float
        np.testing.assert_array_equal(back.truncation, result.truncation)
        np.testing.assert_array_equal(back.threshold, result.threshold)
        assert back.worse.dtype == bool
    assert Comparison.from_dict(json.loads(text)).to_json() == text


@pytest.fixture
def text():
    return psi(JointEstimate(("a", "b\n😀", "c"), [0.0, 1.0, 2.0], np.eye(3))).to_json()


def test_text_that_is_cut_off_or_lacks_a_field_is_refused(text):
    for length in range(len(text)):
        refused(lambda length=length: Comparison.from_json(text[:length]), "text: expected JSON written by to_json")
    assert Comparison.from_json(text).names == ("a", "b\n😀", "c")
    data = json.loads(text)
    assert Comparison.from_dict({**data, "a field of a later version": 1}).to_dict() == data
    for key in ("names", "best", "discrepancy", "pvalue", "simultaneous_pvalue", "worse", "status", "alpha", "test"):
        less = {k: v for k, v in data.items() if k != key}
        refused(lambda less=less: Comparison.from_dict(less), "data: not a complete relfit.Comparison", key)


def test_what_is_not_a_comparison_is_refused():
    for text in (None, 5, "", "null", "[]", "3", '"text"', "{}", "[" * 100_000, b"\xff"):
        refused(lambda text=text: Comparison.from_json(text), "expected")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("schema", 1),
        ("type", "relfit.PairComparison"),
        ("names", ["a", "b"]),
        ("best", "nobody"),
        ("discrepancy", [0.0]),
        ("worse", None),
        ("status", [[]]),
        ("kernel", {"type": "Pickle"}),
        ("kernel", {"type": "Gaussian", "bandwidth": -1}),
    ],
)
def test_another_schema_or_a_damaged_field_is_refused(text, key, value):
    data = json.loads(text)
    data[key] = value
    refused(lambda: Comparison.from_dict(data), "data: ")
    refused(lambda: Comparison.from_json(json.dumps(data)), "data: ")


@st.composite
def scores(draw):
    """Skewed scores of four models on 60 items, of which some are tied; or 0 and 1; no number below 1e-6 but 0."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    x = rng.gamma(0.3, size=(60, 4)).round(6) + draw(st.sampled_from([0.0, 0.1])) * np.arange(4)
    return np.where(x > 0.1, 1.0, 0.0) if draw(st.booleans()) else x


@laws
@given(scores(), st.integers(-995, 1015), st.sampled_from(["best-set", "relpsi", "carve"]), st.booleans())
def test_scores_times_a_power_of_2_have_the_same_verdicts(x, k, test, larger):
    """N2: squares and cubes of 1e-170 or 1e200 do not fit into float64: the standard error was 0 and p = 0."""
    margin = 0.05 if test == "best-set" else 0.0
    decided = partial(decide, test=test, rng=0)
    first = decided(from_losses(x, higher_is_better=larger), margin=margin)
    scaled = decided(from_losses(np.ldexp(x, k), higher_is_better=larger), margin=math.ldexp(margin, k))
    again = Comparison.from_json(scaled.to_json())
    factor = math.ldexp(again.unit, -k)
    for name in ("log_pvalue", "adjusted_pvalue", "simultaneous_pvalue"):
        np.testing.assert_array_equal(getattr(again, name), getattr(first, name))
    # The words have the margin, in units of the scores.
    assert again.kinds == first.kinds
    np.testing.assert_array_equal(factor * again.discrepancy, first.discrepancy)
    np.testing.assert_allclose(factor * again.confidence_interval(), first.confidence_interval(), rtol=1e-12)
    assert ("units of 2^" in " ".join(again.warnings)) == (again.unit != 1.0)
