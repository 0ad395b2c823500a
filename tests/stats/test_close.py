"""The law of models close to the data, and the best set that uses it."""

import math

import numpy as np
import pytest
from refusals import refused

import relfit
from relfit.stats.close import CloseLaw

SECOND_ORDER = relfit.Complete(variance="second-order")


def shifted(rng, shifts, n=200, d=10):
    """A reference and samples whose first coordinate is shifted."""
    models = {f"m{i}": rng.normal(size=(n, d)) + shift * np.eye(d)[0] for i, shift in enumerate(shifts)}
    return rng.normal(size=(n, d)), models


def law(second_order, draws=200_000, **parts):
    """A law without features: the second-order parts are normal."""
    rng, count = np.random.default_rng(0), len(second_order)
    second = np.sqrt(np.diag(second_order))[:, None] * rng.standard_normal((count, draws))
    normal, first = rng.standard_normal((count, draws)), np.zeros((count, count))
    return CloseLaw(first, parts.get("along", np.ones(count)), second_order, second, normal, np.ones(draws))


def test_two_models_at_the_data_have_the_z_test_of_the_second_order_part():
    """D_0 = 0: the first-order part vanishes, and p = Φ(−gap/√(S2_11 + S2_22))."""
    values = np.array([-0.03, 0.02])
    log_p, ratio = law(np.diag([4e-4, 5e-4])).test(values, 0.0, -3.0)
    assert ratio[1, 0] == pytest.approx(0.05 / 0.03, rel=0.01)
    assert math.exp(log_p[1]) == pytest.approx(0.0478, abs=0.002)


def test_the_variance_of_a_model_far_off_is_that_of_the_tie():
    """At the tie D_0 = (0.1 + 0.3)/2 both have variance D_0 w, whatever their own estimates are."""
    _, ratio = law(1e-12 * np.eye(2), along=np.array([0.01, 0.02])).test(np.array([0.1, 0.3]), 0.0, -5.0)
    assert ratio[1, 0] == pytest.approx(0.2 / math.sqrt(0.2 * 0.03), rel=0.01)


def test_a_margin_moves_the_tie():
    """With δ = 0.1 the tie is D_1 = D_0 + 0.1 at D_0 = (0.1 + 0.2)/2."""
    _, ratio = law(1e-12 * np.eye(2), along=np.array([0.01, 0.02])).test(np.array([0.1, 0.3]), 0.1, -5.0)
    assert ratio[1, 0] == pytest.approx(0.1 / math.sqrt(0.15 * 0.01 + 0.25 * 0.02), rel=0.01)


def test_some_of_the_models_have_their_part_of_the_law():
    whole = law(np.diag([1e-4, 2e-4, 3e-4]), draws=50)
    part = whole.at([2, 0])
    np.testing.assert_array_equal(part.second, whole.second[[2, 0]])
    np.testing.assert_array_equal(np.diag(part.second_order), [3e-4, 1e-4])


def test_the_covariance_is_that_of_the_estimates(rng):
    """Models at the data, where V counts twice what the law counts once."""
    gaps, variances = [], {"projection": [], "second-order": []}
    for seed in range(80):
        reference, models = shifted(rng, [0.0, 0.0], n=60, d=3)
        for variance, found in variances.items():
            estimator = relfit.Complete(variance=variance)
            joint = relfit.estimate(reference, models, estimator=estimator, kernel=relfit.Gaussian(2.0), rng=seed)
            found.append(joint.covariance[0, 0] + joint.covariance[1, 1] - 2.0 * joint.covariance[0, 1])
        gaps.append(joint.values[0] - joint.values[1])
    true, means = np.var(gaps), {name: np.mean(found) for name, found in variances.items()}
    # The variance of 80 differences is known to ± 16% (one standard error).
    assert 0.65 * true < means["second-order"] < 1.8 * true
    assert means["projection"] > 1.15 * means["second-order"]


def test_it_finds_what_the_projection_misses(rng):
    found, wrong = {"projection": 0, "second-order": 0}, 0
    for seed in range(30):
        reference, models = shifted(rng, [0.1] * 5 + [0.4])
        for variance in found:
            result = relfit.compare(reference, models, estimator=relfit.Complete(variance=variance), rng=seed)
            found[variance] += bool(result.worse[-1])
            wrong += int(result.worse[:-1].sum()) if variance == "second-order" else 0
    assert found["second-order"] >= found["projection"] + 4
    # 150 hypotheses at level .05, of which those of one trial are dependent.
    assert wrong <= 20


def test_the_order_of_the_models_changes_nothing(rng):
    reference, models = shifted(rng, [0.0, 0.2, 0.5])
    result = relfit.compare(reference, models, estimator=SECOND_ORDER, rng=0)
    turned = relfit.compare(reference, dict(reversed(models.items())), estimator=SECOND_ORDER, rng=0)
    np.testing.assert_allclose(turned.pvalue[::-1], result.pvalue, rtol=1e-9)
    np.testing.assert_allclose(turned.standard_error[::-1], result.standard_error, rtol=1e-9)


def test_the_result_is_written_decided_and_shown_again(rng, tmp_path):
    reference, models = shifted(rng, [0.0, 0.2, 0.5])
    result = relfit.compare(reference, models, estimator=SECOND_ORDER, rng=0)
    assert result.variance == "second-order"
    assert not any("so well" in note for note in result.warnings)
    assert relfit.Comparison.from_json(result.to_json()).to_json() == result.to_json()
    joint = relfit.estimate(reference, models, estimator=SECOND_ORDER, rng=0)
    np.testing.assert_array_equal(relfit.decide(joint, rng=0).pvalue, result.pvalue)
    result.report(tmp_path / "page.html", (reference, models))
    page = (tmp_path / "page.html").read_text(encoding="utf-8").replace("&#39;", "'").replace("&#34;", '"')
    assert "variance='second-order'" in page
    assert "first- and second-order parts" in result.methods_text()


def test_tensors_have_the_same_law(rng):
    torch = pytest.importorskip("torch")
    reference, models = shifted(rng, [0.0, 0.3], n=80)
    plain = relfit.compare(reference, models, estimator=SECOND_ORDER, rng=0)
    tensors = {name: torch.as_tensor(rows) for name, rows in models.items()}
    other = relfit.compare(torch.as_tensor(reference), tensors, estimator=SECOND_ORDER, rng=0)
    np.testing.assert_allclose(other.pvalue, plain.pvalue, rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "came"),
    [
        ({"test": "relpsi"}, 'test="relpsi"'),
        ({"dependence": "shared"}, 'dependence="shared"'),
        ({"groups": {"reference": np.arange(60), "a": np.arange(60), "b": np.arange(60)}}, "groups"),
        ({"kernel": [relfit.Gaussian(1.0), relfit.Gaussian(2.0)]}, "several kernels"),
        ({"compute": relfit.Compute(memory="1GB")}, "memory"),
    ],
)
def test_what_it_is_not_known_for_is_refused(rng, options, came):
    reference, models = shifted(rng, [0.0, 0.0], n=60)
    call = lambda: relfit.compare(reference, models, estimator=SECOND_ORDER, **options)  # noqa: E731
    refused(call, 'variance="second-order"', f"got {came}")


def test_densities_are_refused(rng):
    densities = {name: relfit.Density(score=lambda x: -x, dim=2) for name in "ab"}
    call = lambda: relfit.compare(rng.normal(size=(60, 2)), densities, estimator=SECOND_ORDER)  # noqa: E731
    refused(call, 'variance="second-order"', "KSD")


def test_what_does_not_know_the_law_refuses_it(rng):
    reference, models = shifted(rng, [0.0, 0.2], n=60)
    result = relfit.compare(reference, models, estimator=SECOND_ORDER, rng=0)
    joint = relfit.estimate(reference, models, estimator=SECOND_ORDER, rng=0)
    refused(lambda: relfit.decide(joint, test="relpsi"), 'test="relpsi"', "second-order")
    refused(lambda: relfit.compare_pair(reference, *models.values(), estimator=SECOND_ORDER), "a fixed pair")
    refused(lambda: relfit.plan(joint), "pilot: ", "second-order")
    refused(lambda: relfit.plan(result), "pilot: ", "second-order")
    refused(result.plot_power, "second-order")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("rows", ["constant", "far apart", "equal to the data"])
def test_rows_without_variance_have_no_law(rng, rows):
    """No division by a variance of 0, and the verdicts of the default variance."""
    reference, models = shifted(rng, [0.0, 1.0], n=60, d=2)
    options = {"rng": 0}
    if rows == "constant":
        reference, models["m0"] = np.ones((60, 2)), np.ones((60, 2))
    elif rows == "far apart":
        options["kernel"] = relfit.Gaussian(1e-6)
    else:
        models["m0"] = reference[::-1].copy()
    result = relfit.compare(reference, models, estimator=SECOND_ORDER, **options)
    np.testing.assert_array_equal(result.worse, relfit.compare(reference, models, **options).worse)
    assert np.isfinite(result.standard_error).all()
    assert np.isfinite(result.pvalue).all()
