"""Degenerate and hard cases: never a NaN, never a Python warning, never a verdict without its reason."""

from functools import partial

import numpy as np
import pytest
from refusals import refused

import relfit
from relfit.api import compare, compare_pair, decide, estimate
from relfit.compute import reduce
from relfit.data.models import Density
from relfit.estimators.base import KSD, MMD
from relfit.kernels.standard import IMQ, Gaussian
from relfit.stats.joint import JointEstimate

pytestmark = pytest.mark.filterwarnings("error")

TESTS = ["best-set", "relpsi", "relmulti"]
ARRAYS = ("discrepancy", "standard_error", "difference", "difference_standard_error", "pvalue", "log_pvalue")


psi = partial(decide, test="relpsi")


def checked(result):
    """The result, after what must hold of every result."""
    for name in result.described():
        value = getattr(result, name)
        if isinstance(value, np.ndarray):
            assert not np.isnan(value.astype(float)).any(), name
    assert ((result.pvalue >= 0.0) & (result.pvalue <= 1.0)).all()
    assert (result.adjusted_pvalue >= result.pvalue).all()
    assert not result.worse[result.best_index]
    np.testing.assert_array_equal(
        result.worse, (result.adjusted_pvalue <= result.alpha) & (np.arange(len(result.names)) != result.best_index)
    )
    assert result.names[result.best_index] == result.best
    assert not np.isnan(result.lower_bound()).any()
    assert not np.isnan(result.confidence_interval()).any()
    assert not np.isnan(result.threshold).any()
    assert result.from_json(result.to_json()).rows() == result.rows()
    return result


def said(result, *parts):
    return [note for note in result.warnings if all(part in note for part in parts)]


def status(result):
    return dict(zip(result.names, result.status, strict=True))


def normals(rng, n, /, columns=2, **means):
    """Samples of N(mean·e₁, I), one for each name."""
    return {name: rng.normal(size=(n, columns)) + np.eye(1, columns) * mean for name, mean in means.items()}


def shifted(mean, scale=1.0, unit=1.0):
    """The score of N(mean·unit, scale²·unit²)."""
    return Density(score=lambda x: (mean * unit - x) / (scale * unit) ** 2)


DENSITIES = {"good": shifted(0.2), "worse": shifted(1.5), "between": shifted(0.6)}


# --- ties


def test_exact_tie_takes_the_lowest_index_and_says_so():
    """D = (1, 0, 0, 2), V = I: J = 1. Model 2 has gap 0 and d = ½ for every i, so V⁻ = t and p = 1 for all.

    For i = 3: η = e₃ − e₁, s² = 2, c = η/2, d₂ = c₂ − c₁ = ½ > 0, so V⁻ = t − 0/½ = t and p = P(T > t | T ≥ t) = 1.
    """
    result = checked(psi(JointEstimate(tuple("abcd"), [1.0, 0.0, 0.0, 2.0], np.eye(4))))
    assert (result.best, result.best_index) == ("b", 1)
    assert result.pvalue.tolist() == [1.0, 1.0, 1.0, 1.0]
    assert "tie" in status(result)["b"]
    assert "tie" in status(result)["c"]
    assert "tie" not in status(result)["a"] + status(result)["d"]


@pytest.mark.parametrize("gap", [0.0, 1e-17, 1e-12])
def test_a_tie_is_no_evidence_against_a_third_model(gap):
    """D = (0, gap, 0.001) with Cov(D_b − D_a, D_c − D_a) = V_bc − V_ab − V_ac + V_aa = −.3 − .9 − 0 + 1 = −.2 < 0.

    Taken literally b caps T at V⁺ = t + 10·gap, which would make p ≈ 0 for a t of a thousandth of its s.e.
    Without b, c is tested on [0, ∞): p = 2(1 − Φ(0.001/√2)) = 1 − erf(0.0005) = 0.99943581.
    """
    covariance = [[1.0, 0.9, 0.0], [0.9, 1.0, -0.3], [0.0, -0.3, 1.0]]
    result = checked(psi(JointEstimate(tuple("abc"), [0.0, gap, 1e-3], covariance)))
    assert result.pvalue[2] == pytest.approx(0.99943581, abs=1e-8)
    assert result.status == (("tie",), ("tie",), ())
    assert said(result, "a and b are tied to the last digit", 'test="best-set"')


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("n", [100, 120, 300])
def test_models_tied_on_atoms(rng, test, n):
    """Point masses at ±1 are equally far from a reference that is half at −1 and half at 1: D differs by rounding."""
    reference = np.repeat([-1.0, 1.0], n // 2)
    models = {"left": np.full(n, -1.0), "right": np.full(n, 1.0)}
    result = checked(compare(reference, models, kernel=Gaussian(1.0), test=test, rng=0))
    assert not result.worse.any()
    if test == "relpsi":
        assert result.difference.max() < 1e-14
        assert [words[0] for words in result.status] == ["tie", "tie"]


# --- copies


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("estimator", ["complete", "linear"])
@pytest.mark.parametrize("copied", ["good", "worse", "between"])
@pytest.mark.parametrize("name", ["a first", "z last"])
def test_adding_a_copy_of_a_sample_changes_nothing_else(rng, test, estimator, copied, name):
    models = normals(rng, 700, good=0.1, worse=1.5, between=0.6)
    settings = dict(test=test, estimator=estimator, rng=3)
    reference = rng.normal(size=(700, 2))
    alone = checked(compare(reference, models, **settings))
    for larger in ({**models, name: models[copied].copy()}, {name: models[copied].copy(), **models}):
        _same_but_for_the_copy(alone, checked(compare(reference, larger, **settings)), name, copied)


def _same_but_for_the_copy(alone, result, name, copied):
    assert result.correction == alone.correction
    assert result.kernel.length == pytest.approx(alone.kernel.length, rel=1e-12)
    own, copy = result.names.index(copied), result.names.index(name)
    first, second = (own, copy) if own < copy else (copy, own)
    assert f"duplicate of {result.names[first]}" in result.status[second]
    assert not any("duplicate" in word for word in result.status[first])
    kept = [result.names.index(model) for model in alone.names]
    assert [result.status[k] for k in kept if k != second] == [
        words for model, words in zip(alone.names, alone.status, strict=True) if result.names.index(model) != second
    ]
    for key in (*ARRAYS, "adjusted_pvalue"):
        np.testing.assert_allclose(getattr(result, key)[kept], getattr(alone, key), rtol=1e-9, atol=1e-13, err_msg=key)
        assert getattr(result, key)[own] == getattr(result, key)[copy], key
    np.testing.assert_array_equal(result.worse[kept], alone.worse)
    assert result.worse[own] == result.worse[copy]
    assert result.best in (alone.best, name)


@pytest.mark.parametrize("test", TESTS)
def test_nothing_but_copies(rng, test):
    reference, sample = rng.normal(size=(80, 2)), rng.normal(size=(80, 2))
    for models in ({"a": sample, "b": sample}, {"a": shifted(0.3), "b": shifted(0.3), "c": shifted(0.3)}):
        result = checked(compare(reference, models, test=test, rng=0))
        assert result.best == "a"
        assert result.pvalue.tolist() == [1.0] * len(models)
        assert all("duplicate of a" in words for words in result.status[1:])
        assert not result.difference.any()


@pytest.mark.parametrize("correction", ["by", "bh", "holm", "bonferroni"])
@pytest.mark.parametrize("test", TESTS)
def test_a_correction_counts_a_copy_once(rng, correction, test):
    models = normals(rng, 120, a=0.0, b=0.4, c=0.45, d=0.5)
    reference = rng.normal(size=(120, 2))
    alone = compare(reference, models, test=test, correction=correction, rng=1)
    crowd = {f"copy {k}": models["c"].copy() for k in range(4)}
    result = checked(compare(reference, {**models, **crowd}, test=test, correction=correction, rng=1))
    np.testing.assert_array_equal(result.adjusted_pvalue[:4], alone.adjusted_pvalue)
    assert (alone.adjusted_pvalue > alone.pvalue).any()


@pytest.mark.parametrize("test", TESTS)
def test_near_copies_are_warned_about(rng, test):
    models = normals(rng, 150, best=0.0, bad=1.0)
    reference = rng.normal(size=(150, 2))
    near = models["best"] + 1e-6 * rng.normal(size=(150, 2))
    result = checked(compare(reference, {**models, "near": near}, test=test, rng=0))
    assert said(result, "'best'", "'near'", "nearly the same rows", 'dependence="shared"')
    assert not said(result, "'bad'", "nearly the same rows")
    quiet = checked(compare(reference, {**models, "near": near}, test=test, rng=0, dependence="shared"))
    assert not said(quiet, "nearly the same rows")
    assert quiet.worse.tolist() == [False, True, False]


@pytest.mark.parametrize("dependence", ["independent", "shared"])
def test_a_reordered_copy_is_said_to_hide_the_others(rng, dependence):
    models = normals(rng, 100, a=0.0, c=1.0)
    result = compare(rng.normal(size=(100, 2)), {**models, "b": models["a"][::-1]}, dependence=dependence, rng=0)
    assert said(checked(result), "'b' holds the rows of 'a' in another order", "leave one out")


# --- differences without variance, by hand


def test_models_without_variance_of_their_difference():
    """V = all ones: s² = 1 + 1 − 2 = 0 for every pair, √(V_ii + V_jj) = √2.

    |gap| ≤ 1e-5·√2 = 1.41e-5 is the same model (b); a larger one is another model for certain (c).
    """
    result = checked(psi(JointEstimate(tuple("abc"), [0.0, 1.4e-5, 1.5e-5], np.ones((3, 3)))))
    assert result.status == ((), ("indistinguishable",), ("deterministic",))
    assert result.pvalue.tolist() == [1.0, 1.0, 0.0]
    assert result.log_pvalue.tolist() == [0.0, 0.0, -np.inf]
    assert result.worse.tolist() == [False, False, True]
    assert result.threshold.tolist() == [np.inf, np.inf, -np.inf]
    np.testing.assert_array_equal(result.lower_bound(), [0.0, 0.0, 1.5e-5])
    np.testing.assert_array_equal(result.confidence_interval(), [[0.0, 0.0], [0.0, 1.4e-5], [1.5e-5, 1.5e-5]])
    # V = 0: equal values are the same model, unequal ones are ordered for certain.
    result = checked(psi(JointEstimate(tuple("abcd"), [2.0, 1.0, 1.0, 1.0 + 1e-12], np.zeros((4, 4)))))
    assert result.best == "b"
    assert result.status == (("deterministic",), ("tie",), ("tie", "indistinguishable"), ("deterministic",))
    assert result.pvalue.tolist() == [0.0, 1.0, 1.0, 0.0]
    assert result.standard_error.tolist() == [0.0] * 4
    # D_b − D_a ~ N(0, 1.9e-10): gap and neglected s.e. are of like size, both near 1e-5√(V_aa + V_bb).
    # Calling every gap above that certain would reject three true nulls in ten.
    rng = np.random.default_rng(0)
    covariance = [[1.0, 1 - 0.95e-10], [1 - 0.95e-10, 1.0]]
    gaps = np.sqrt(1.9e-10) * rng.normal(size=400)
    assert (np.abs(gaps) > 1e-5 * np.sqrt(2.0)).mean() > 0.25
    assert not any(psi(JointEstimate(("a", "b"), [0.0, gap], covariance)).worse.any() for gap in gaps)


@pytest.mark.parametrize(
    ("r", "gap", "words", "pvalue"),
    [
        (1.9e-10, 1e-3, ("deterministic",), 0.0),
        (1.9e-10, 1e-4, ("indistinguishable",), 1.0),
        (2.1e-10, 1e-4, (), 5.1783e-12),
    ],
)
def test_the_edge_of_no_variance(r, gap, words, pvalue):
    """V_ab = 1 − r/2 gives s² = r. The edge is 1e-10(V_aa + V_bb) = 2e-10: r = 1.9e-10 is none, r = 2.1e-10 is some.

    Above it t is tested on [0, ∞): t/s = 1e-4/√2.1e-10 = 6.90066, p = 2(1 − Φ(6.90066)) = 5.178e-12. Below it
    1e-3 is 73 and 1e-4 is 7.3 of the s that was neglected: only the first is certain.
    """
    joint = JointEstimate(("a", "b"), [0.0, gap], [[1.0, 1 - r / 2], [1 - r / 2, 1.0]])
    result = checked(psi(joint))
    assert result.status[1] == words
    # 1 − r/2 is rounded to 1e-16, which moves s² by 1e-6 of itself and p by 50 times that.
    assert result.pvalue[1] == pytest.approx(pvalue, rel=1e-3)


def test_models_that_almost_move_with_the_best_leave_the_truncation():
    """V_ab = 1 − 1e-11, D = (0, 1e-12, 2): s_ab² = 2e-11 ≤ 2e-10, so b must leave the truncation of c.

    Left in, d_b = (1 − V_ab)/2 = 5e-12 would put V⁻ at 2 − 1e-12/5e-12 = 1.8. Without b, p = 2(1 − Φ(2/√2)) = 0.1573.
    """
    rho = 1.0 - 1e-11
    joint = JointEstimate(tuple("abc"), [0.0, 1e-12, 2.0], [[1.0, rho, 0.0], [rho, 1.0, 0.0], [0.0, 0.0, 1.0]])
    result = checked(psi(joint))
    assert result.pvalue[2] == pytest.approx(0.15729920705028513, rel=1e-9)
    assert result.truncation[2].tolist() == [0.0, np.inf]


def test_joint_estimates_that_make_no_sense_are_refused():
    good = dict(names=("a", "b"), values=[0.0, 1.0], covariance=np.eye(2))

    def refuse(*parts, **changes):
        refused(lambda: JointEstimate(**{**good, **changes}), *parts)

    refuse("names: expected different names, got 'a' more than once", names=("a", "a"))
    refuse("names: expected a sequence of text", names="ab")
    refuse("names: expected a sequence of text", names=5)
    refuse("names: expected a sequence of text", names=np.eye(20))
    refuse("names: expected at least one, got none", names=(), values=[], covariance=np.zeros((0, 0)))
    refuse("values: expected shape (2,), got (3,)", values=[1.0, 2.0, 3.0])
    refuse("values: expected finite numbers", values=[np.nan, 1.0])
    refuse("values: expected numbers of shape (2,), got ", values=["x", "y"])
    refuse("values: expected numbers of shape (2,), got ", values=np.array([1j, 1.0]))
    refuse("values: expected numbers of shape (2,), got ", values=[[1.0], [1.0, 2.0]])
    refuse("covariance: expected shape (2, 2), got (2,)", covariance=[1.0, 1.0])
    refuse("covariance: expected finite numbers", covariance=np.full((2, 2), np.inf))
    refuse("covariance: expected a symmetric matrix", covariance=[[1.0, 0.5], [0.4, 1.0]])
    refuse("covariance: expected a positive semi-definite", "-1", covariance=[[1.0, 2.0], [2.0, 1.0]])
    refuse("covariance: expected a positive semi-definite", covariance=-np.eye(2))
    for sizes in (5, (10.5,), (10, 20), (0,), ("x",), ()):
        refuse("sizes: expected the reference's number of rows", sizes=sizes)
    refuse("near_degeneracy: expected shape (2,)", near_degeneracy=[0.1])


def test_joint_estimates_are_values_of_their_own_and_decide_refuses_what_it_cannot_do():
    values, covariance = np.array([0.0, 1.0]), np.eye(2)
    joint = JointEstimate(iter(["a", "b"]), values, covariance, sizes=[np.int64(10), 5, 5])
    values[0] = covariance[0, 0] = 9.0
    assert joint.names == ("a", "b")
    assert joint.sizes == (10, 5, 5)
    assert joint.values[0] == 0.0
    assert joint.covariance[0, 0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        joint.covariance[0, 0] = 2.0
    joint = JointEstimate(("a", "b"), [0.0, 1.0], np.eye(2))
    refused(lambda: decide(joint, test="relmulti"), 'test="relmulti"', "split")
    refused(lambda: decide(joint, test="best"), "test: expected one of auto, best-set, relpsi", "got 'best'")
    refused(lambda: decide(joint, alpha=0), "alpha: expected a number between 0 and 1, got 0")
    refused(lambda: decide(joint, correction="fdr"), "correction: expected one of none, by, bh", "'fdr'")
    refused(lambda: decide({"a": 1}), "joint_estimate: expected a JointEstimate, got dict")
    refused(lambda: decide(JointEstimate(("a",), [0.0], [[1.0]])), "joint_estimate: expected at least 2 models, got 1")


# --- a model that is the data


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("dependence", ["independent", "shared", "paired"])
@pytest.mark.parametrize("estimator", ["complete", "linear"])
def test_a_model_that_is_the_data_is_best_and_reported(rng, test, dependence, estimator):
    reference = rng.normal(size=(120, 2))
    models = {**normals(rng, 120, off=1.5), "the data": reference}
    options = {"test": test, "dependence": dependence, "estimator": estimator, "correction": "none"}
    result = checked(compare(reference, models, **options, rng=0))
    assert said(result, "120 of 120 rows of 'the data' also occur in the reference")
    if estimator == "complete":
        assert result.best == "the data"
        assert result.worse.tolist() == [True, False]


def test_a_model_close_to_the_data_is_near_degenerate(rng):
    reference = rng.normal(size=(200, 2))
    plain = {"estimator": relfit.Complete(variance="projection"), "rng": 0}
    result = checked(compare(reference, normals(rng, 200, exact=0.0, off=1.5), **plain))
    assert "near-degenerate" in status(result)["exact"]
    assert "near-degenerate" not in status(result)["off"]
    assert said(result, "exact fits so well that real differences may be missed")
    assert not said(result, "off", "so well")
    ksd = checked(compare(reference, {"exact": shifted(0.0), "off": shifted(1.5)}, **plain))
    assert "near-degenerate" in status(ksd)["exact"]
    assert "near-degenerate" not in status(ksd)["off"]
    linear = checked(compare(reference, normals(rng, 200, exact=0.0, off=1.5), estimator="linear", rng=0))
    assert linear.near_degeneracy is None


# --- sizes


def test_many_models_for_few_rows_are_warned_about(rng):
    reference = rng.normal(size=(50, 2))
    models = [rng.normal(size=(50, 2)) for _ in range(11)]
    assert said(checked(compare(reference, models, rng=0)), "11 models are many for 50 reference rows")
    assert not said(compare(reference, models[:10], rng=0), "are many for")
    assert not said(compare(reference, [*models[:10], models[0]], rng=0), "are many for")
    joint = JointEstimate(tuple("abc"), [0.0, 1.0, 2.0], np.eye(3), sizes=(14,))
    assert said(decide(joint), "3 models are many for 14 rows")
    assert not decide(JointEstimate(tuple("abc"), [0.0, 1.0, 2.0], np.eye(3), sizes=(15,))).warnings


@pytest.mark.parametrize(("estimator", "fewest"), [("complete", 20), ("linear", 40)])
def test_samples_too_small_are_refused_by_name(rng, estimator, fewest):
    enough, few = rng.normal(size=(fewest, 2)), rng.normal(size=(fewest - 1, 2))
    why = f"expected at least {fewest} rows ({estimator} estimator), got {fewest - 1}"
    checked(compare(enough, [enough + 1, enough + 2], estimator=estimator, rng=0))
    checked(compare(enough, DENSITIES, estimator=estimator, rng=0))
    refused(lambda: compare(few, DENSITIES, estimator=estimator), f"reference: {why}")
    refused(lambda: estimate(few, [shifted(1.0)], estimator=estimator), f"reference: {why}")
    refused(lambda: compare_pair(few, shifted(1.0), shifted(0.0), estimator=estimator), f"reference: {why}")
    if estimator == "complete":
        refused(lambda: compare(enough, {"a": enough, "b": few}), f"model 'b': {why}")
        refused(lambda: compare(few, [enough, enough + 1]), f"reference: {why}")


def test_the_parts_of_relmulti_have_their_own_smallest_sizes(rng):
    """round(.25 · 26) = 6 and 20 are left to test with; of 25 rows 19 are left. 5 of 50 select, 4 of 49 are too few."""

    def run(n, fraction, **options):
        models = normals(np.random.default_rng(n), n, a=0.0, b=1.0)
        return compare(
            rng.normal(size=(n, 2)), models, test=relfit.RelMulti(select_fraction=fraction), rng=0, **options
        )

    checked(run(26, 0.25))
    refused(lambda: run(25, 0.25), "reference: expected at least 20 rows (testing rows, complete estimator), got 19")
    checked(run(50, 0.1))
    refused(lambda: run(44, 0.1), "reference: expected at least 5 rows (selecting rows, complete", "got 4")
    refused(lambda: run(60, 0.999), "reference: expected at least 20 rows (testing rows, complete estimator), got 0")
    refused(lambda: run(50, 0.25, estimator="linear"), "testing rows, linear estimator", "40 rows", "got 38")
    small = {"a": rng.normal(size=(100, 2)), "b": rng.normal(size=(22, 2))}
    refused(lambda: compare(rng.normal(size=(100, 2)), small, test="relmulti"), "model 'b': ", "testing rows", "16")


@pytest.mark.parametrize("test", TESTS)
def test_dependence_needs_equal_sizes_and_samples(rng, test):
    reference = rng.normal(size=(100, 2))
    models = {"a": rng.normal(size=(80, 2)), "b": rng.normal(size=(100, 2))}
    refused(lambda: compare(reference, models, dependence="shared", test=test), 'dependence="shared"', "[80, 100]")
    refused(lambda: compare(reference, models, dependence="paired", test=test), "have 100 rows like", "[80, 100]")
    equal = {"a": models["a"], "b": models["a"] + 1}
    refused(lambda: compare(reference, equal, dependence="paired", test=test), 'dependence="paired"', "got [80]")
    checked(compare(reference, equal, dependence="shared", test=test, rng=0))
    for word in ("shared", "paired"):
        refused(
            lambda word=word: compare(reference, DENSITIES, dependence=word, test=test), word, "densities have none"
        )
    refused(lambda: compare(reference, models, dependence="chained", test=test), "dependence: expected one of")


# --- what data can look like


def test_constant_columns_are_allowed_and_said(rng):
    models = normals(rng, 100, a=0.0, b=1.0)
    reference = rng.normal(size=(100, 2))
    plain = compare(reference, models, rng=0)

    def wider(rows):
        return np.insert(rows, 1, 7.25, axis=1)

    result = checked(compare(wider(reference), {name: wider(rows) for name, rows in models.items()}, rng=0))
    assert said(result, "1 of 3 columns is constant in the reference")
    np.testing.assert_allclose(result.pvalue, plain.pvalue, rtol=1e-9)


@pytest.mark.parametrize("kernel", [None, Gaussian(1.0), IMQ()])
def test_rows_that_all_coincide_are_refused_with_any_kernel(kernel):
    point = np.full((50, 2), 0.5)
    refused(lambda: compare(point, [point, point[:40]], kernel=kernel), "all pooled rows coincide")
    refused(lambda: compare(point, DENSITIES, kernel=kernel), "all pooled rows coincide")


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("share", [0.3, 0.9])
def test_atoms_with_a_median_distance_of_zero(rng, test, share):
    def draw(n, p):
        return (rng.random((n, 1)) < p).astype(float)

    models = {"same": draw(300, share), "other": draw(300, 1.0 - share), "always": np.ones((300, 1))}
    result = checked(compare(draw(300, share), models, test=test, rng=0))
    assert result.best in ("same", "always")
    assert result.worse[1]


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("estimator", ["complete", "linear"])
@pytest.mark.parametrize(
    ("unit", "offset"), [(1.0, 1e6), (1.0, 1e8), (1.0, -1e8), (1e-150, 0.0), (1e-20, 0.0), (1e20, 0.0), (1e150, 0.0)]
)
def test_neither_the_unit_nor_an_offset_changes_a_verdict(rng, test, estimator, unit, offset):
    """An offset of 1e8 leaves the data 8 digits, so numbers agree to about 1e-6."""
    models = normals(rng, 160, a=0.0, b=1.5, c=0.2)
    reference = rng.normal(size=(160, 2))
    settings = dict(test=test, estimator=estimator, rng=5)
    plain = checked(compare(reference, models, **settings))
    moved = {name: rows * unit + offset for name, rows in models.items()}
    result = checked(compare(reference * unit + offset, moved, **settings))
    np.testing.assert_array_equal(result.worse, plain.worse)
    assert result.best == plain.best
    near, nearly = ({"atol": 1e-6}, {"rtol": 1e-4}) if offset else ({"rtol": 1e-9, "atol": 1e-12}, {"rtol": 1e-6})
    np.testing.assert_allclose(result.discrepancy, plain.discrepancy, **near)
    np.testing.assert_allclose(result.pvalue, plain.pvalue, **nearly, atol=1e-300 if offset else 0.0)


@pytest.mark.parametrize("estimator", ["complete", "linear"])
def test_units_beyond_the_range_of_the_arithmetic_are_refused(rng, estimator):
    reference, sample = rng.normal(size=(60, 2)), rng.normal(size=(60, 2))

    def samples(unit):
        return compare(reference * unit, [sample * unit, (sample + 1) * unit], estimator=estimator, rng=0)

    def densities(unit):
        models = [Density(score=lambda x: -x / unit / unit), Density(score=lambda x: (unit - x) / unit / unit)]
        return compare(reference * unit, models, estimator=estimator, rng=0)

    for unit in (1e155, 1e300):
        refused(lambda unit=unit: samples(unit), "reference: expected numbers below 1e+152 in size", "rescale")
    for unit in (1e-155, 1e-300):
        refused(lambda unit=unit: samples(unit), "kernel: expected a bandwidth between 1e-152", "rescale the data")
    for unit in (1e60, 1e120):
        refused(lambda unit=unit: densities(unit), "rescale")
    for unit in (1e-60, 1e-120):
        refused(lambda unit=unit: densities(unit))


def test_one_far_outlier_moves_neither_the_bandwidth_nor_the_verdict(rng):
    models = normals(rng, 160, a=0.0, b=1.5)
    reference = rng.normal(size=(160, 2))
    plain = compare(reference, models, rng=5)
    for far in (1e10, 1e151):
        reference[7] = far
        result = checked(compare(reference, models, rng=5))
        assert result.kernel.length == pytest.approx(plain.kernel.length, rel=0.05)
        assert result.worse.tolist() == [False, True]


# --- kinds of models


def test_ksd_refuses_whole_numbers(rng):
    counts = rng.poisson(5.0, size=(60, 2))
    refused(lambda: compare(counts, DENSITIES), "reference: expected continuous data for KSD, got whole numbers only")
    refused(lambda: compare(counts.astype(float), DENSITIES, estimator="linear"), "whole numbers only", "MMD")
    checked(compare(counts, [rng.poisson(5.0, (60, 2)), rng.poisson(9.0, (60, 2))], rng=0))
    # From 2⁵² on every float64 is whole, which says nothing about the data.
    checked(compare(rng.normal(size=(60, 2)) * 1e20, [shifted(0.0, unit=1e20), shifted(1.0, unit=1e20)], rng=0))


def test_a_discrepancy_must_fit_the_models(rng):
    reference = rng.normal(size=(60, 2))
    samples = normals(rng, 60, a=0.0, b=1.0)
    for asked in ("ksd", KSD(), KSD(IMQ())):
        expected = "'ksd': expected a density", "got samples; use discrepancy='mmd'"
        refused(lambda asked=asked: compare(reference, samples, discrepancy=asked), *expected)
    for asked in ("mmd", MMD(), MMD(IMQ())):
        refused(lambda asked=asked: compare(reference, DENSITIES, discrepancy=asked), "cannot be sampled")
    for asked in ("MMD", MMD, None, 5):
        refused(lambda asked=asked: compare(reference, samples, discrepancy=asked), "discrepancy: expected one of auto")
    refused(lambda: compare(reference, samples, discrepancy=MMD(IMQ()), kernel=IMQ()), "kernel: expected it once")
    assert compare(reference, samples, discrepancy=MMD(), kernel=IMQ(), rng=0).kernel == IMQ()
    refused(lambda: compare(reference, {**samples, "c": shifted(0.0)}), "models: expected all samples or all densities")


@pytest.mark.parametrize("estimator", ["complete", "linear"])
@pytest.mark.parametrize("test", TESTS)
def test_a_density_that_fails_names_the_model_however_it_is_asked(rng, test, estimator):
    """One row in 600 is outside the support, and not among those the scores are first compared at."""
    reference = rng.normal(size=(600, 2))
    reference[301] = [9.25, 8.5]
    bounded = Density(score=lambda x: np.where(x > 9.0, np.inf, -x))
    models = {"fine": shifted(0.0), "bounded": bounded}
    run = lambda: compare(reference, models, test=test, estimator=estimator, rng=0)  # noqa: E731
    refused(run, "model 'bounded': score: expected finite values", " 1 of ", "at 9.25, 8.5)")


def test_other_options_are_refused_in_one_line(monkeypatch, rng):
    reference, models = rng.normal(size=(40, 2)), normals(rng, 40, a=0.0, b=1.0)
    wide = np.eye(30)
    both = [
        ({"kernel": "RBF"}, {}, "kernel: expected gaussian,", "got 'RBF'; here it is called gaussian"),
        ({"estimator": "fast"}, {}, "estimator: expected one of", "'fast'"),
        ({}, {"backend": "cuda"}, "backend: expected one of auto, numpy"),
        ({}, {"backend": wide}, "backend: expected one of auto, numpy"),
        ({}, {"executor": 4}, "executor: expected", "got int"),
        ({"progress": 3}, {}, "progress: expected None, True, False"),
        ({"rng": -1}, {}, "rng: expected a non-negative whole number"),
    ]
    for options, computing, *parts in both:
        for call in (compare, estimate):
            asked = partial(call, reference, models, **options)
            refused(lambda asked=asked, how=computing: asked(compute=relfit.Compute(**how)), *parts)
    for options, message in (
        ({"test": wide}, "test: expected one of auto, best-set, relpsi"),
        ({"alpha": wide}, "alpha: expected a number"),
        ({"correction": "fdr"}, "correction: expected one of"),
    ):
        refused(partial(compare, reference, models, **options), message)
    for level in (0, 1, 2.0, "95%"):
        result = compare(reference, models, rng=0)
        refused(lambda level=level, result=result: result.confidence_interval(level), "level: expected a number")
        refused(lambda level=level, result=result: result.lower_bound(level), "level: expected a number")
    monkeypatch.setattr(reduce, "_has", lambda library: False)
    with pytest.raises(relfit.BackendUnavailable, match="torch is not installed; install it with  pip install torch"):
        compare(reference, models, compute=relfit.Compute(backend="torch"))


# --- one model, two models


@pytest.mark.parametrize("test", ["z", "relpsi"])
def test_a_pair_of_copies(rng, test):
    reference, sample = rng.normal(size=(60, 2)), rng.normal(size=(60, 2))
    for a, b in ((sample, sample.copy()), (shifted(0.4), shifted(0.4))):
        result = compare_pair(reference, a, b, test=test, rng=0)
        assert result.status == ("indistinguishable",)
        assert (result.pvalue, result.statistic, result.difference) == (1.0, 0.0, 0.0)
        assert not result.worse
