"""The law of squared distances with both its parts, and the best set that uses it."""

import math

import numpy as np
import pytest

import relfit
from relfit.stats import close
from relfit.stats.close import CloseLaw, Noise, noise_batches
from relfit.stats.distribution import SecondOrder, alone, step_down
from relfit.stats.joint import Psi

PROJECTION = relfit.Complete(variance="projection")


def shifted(rng, shifts, n=200, d=10):
    """A reference and samples whose first coordinate is shifted."""
    models = {f"m{i}": rng.normal(size=(n, d)) + shift * np.eye(d)[0] for i, shift in enumerate(shifts)}
    return rng.normal(size=(n, d)), models


def law(first, second, *, trace=1.0, components=1e6, third=0.0, spread=1.0):
    """A law whose second-order parts are nearly normal."""
    count = len(first)
    return CloseLaw(
        first=np.asarray(first),
        second=np.asarray(second),
        trace=np.full(count, trace),
        components=components,
        third=np.full((count, count), third),
        spread=np.broadcast_to(spread, (count,)),
    )


def distribution(law, values, margin=0.0, seed=7):
    """The distribution of these estimates, with so many degrees of freedom that standard errors are known."""
    count = len(values)
    generators = [np.random.default_rng([seed, k]) for k in range(count + 1)]
    (noise,) = noise_batches(generators[1:], generators[0], law.drawn, np.eye(1))
    apart = ~np.eye(count, dtype=bool)
    return SecondOrder(law, np.asarray(values), apart, margin, -5.0, np.full(count, math.inf), noise)


def outcome(law, values, margin=0.0):
    """p-values and ratios of every model by itself."""
    families, tails = alone([distribution(law, values, margin)], range(len(values)))
    ratios = np.stack([family.parts[0].tied.row(i) for i, family in enumerate(families)])
    return np.exp([tail.log_p for tail in tails]), ratios


def test_two_models_at_the_data_have_the_z_test_of_the_second_order_part():
    """D_0 = 0 and V − 2·S2 = 0: the first-order part vanishes, and p = Φ(−gap/√(S2_11 + S2_22))."""
    p, ratio = outcome(law(np.zeros((2, 2)), np.diag([4e-4, 5e-4])), [-0.03, 0.02])
    assert ratio[1, 0] == pytest.approx(0.05 / 0.03)
    # 4000 draws: one standard error is 0.0034.
    assert p[1] == pytest.approx(0.0478, abs=0.012)


def test_the_variance_of_a_model_far_off_is_that_of_the_tie():
    """At the tie D_0 = (0.1 + 0.3)/2 both have variance D_0 w, w = V/D, whatever their own estimates are."""
    _, ratio = outcome(law(np.diag([0.1 * 0.02, 0.3 * 0.01]), 1e-12 * np.eye(2)), [0.1, 0.3])
    assert ratio[1, 0] == pytest.approx(0.2 / math.sqrt(0.2 * 0.03), rel=1e-3)


def test_no_difference_has_less_than_the_pooled_variance():
    """ω = (0.001 + 0.006)/(0.1 + 0.3): at D_0 = 0.2 the difference has 2 ω D_0 = 0.007, and its own 0.006."""
    _, ratio = outcome(law(np.diag([0.1 * 0.01, 0.3 * 0.02]), 1e-12 * np.eye(2)), [0.1, 0.3])
    assert ratio[1, 0] == pytest.approx(0.2 / math.sqrt(0.007), rel=1e-3)


def test_the_variance_along_a_direction_is_limited():
    """V − 2·S2 = 0.1 at D_0 = 0.01 would mean ω = 10; with ω = 4 the variance is 4 (0.01 + 0.01) + 0.05 + 0.05."""
    noisy = law(0.1 * np.eye(2), 0.05 * np.eye(2), components=2.0)
    _, ratio = outcome(noisy, [0.0, 0.02])
    assert ratio[1, 0] == pytest.approx(0.02 / math.sqrt(0.18), rel=1e-3)


def test_the_tie_of_different_sizes_is_the_weighted_mean():
    """Spreads 4 and 1: D_0 = (0.1/4 + 0.3/1)/(1/4 + 1) = 0.26."""
    tie = law(np.diag([0.1 * 0.08, 0.3 * 0.01]), 1e-12 * np.eye(2), spread=[4.0, 1.0])
    _, ratio = outcome(tie, [0.1, 0.3])
    assert ratio[1, 0] == pytest.approx(0.2 / math.sqrt(0.26 * 0.09), rel=1e-3)


def test_models_of_very_different_sizes_keep_the_level():
    """60 and 2,000 rows, both shifted by 0.3: pooling that ignored the sizes found the large one worse in .15."""
    trials = 150
    found = 0
    for seed in range(trials):
        rng = np.random.default_rng([31, seed])
        data = rng.normal(size=(500, 5))
        small = rng.normal(size=(60, 5)) + 0.3 * np.eye(5)[0]
        large = rng.normal(size=(2000, 5)) + 0.3 * np.eye(5)[1]
        result = relfit.compare(data, {"small": small, "large": large}, kernel=relfit.Gaussian(3.0), rng=seed)
        found += result.pvalue[1] <= 0.05
    assert found / trials <= 0.05 + 3.0 * math.sqrt(0.05 * 0.95 / trials)


def stepped(law, values):
    """Adjusted p-values of all models."""
    return np.exp(step_down([distribution(law, values)], np.ones(len(values), dtype=bool), 0.05).log_p)


def test_more_draws_are_made_near_alpha():
    """p over eight seeds at α = p, where 50 batches are drawn, has at most a third of the spread of one batch."""
    three = law(np.zeros((3, 3)), 4e-4 * np.eye(3))

    def pvalues(alpha):
        each = [distribution(three, [0.0, 0.0, 0.05], seed=seed) for seed in range(8)]
        return np.array([math.exp(alone([one], [2], alpha)[1][0].log_p) for one in each])

    few = pvalues(None)
    assert np.std(pvalues(np.mean(few))) < 0.6 * np.std(few)


def test_two_models_together_have_both_tails():
    """At the data the difference is normal with s = 0.03: p = 2Φ(−0.05/0.03) = 0.0956, and 1 for the better model."""
    adjusted = stepped(law(np.zeros((2, 2)), np.diag([4e-4, 5e-4])), [-0.03, 0.02])
    assert adjusted[1] == pytest.approx(0.0956, abs=0.016)  # 4,000 draws: one standard error is 0.0047
    assert adjusted[0] == 1.0


def test_steps_leave_the_worst_model_out():
    """Of 0, 0.02 and 1 with s.d. 0.02 each, the last one leaves first; the other two are then two models."""
    three = stepped(law(np.zeros((3, 3)), 4e-4 * np.eye(3)), [0.0, 0.02, 1.0])
    two = stepped(law(np.zeros((2, 2)), 4e-4 * np.eye(2)), [0.0, 0.02])
    assert three[2] < 1e-6
    np.testing.assert_allclose(three[:2], two, atol=0.03)


def test_step_down_finds_a_worse_model_among_models_close_to_the_data():
    """Five at .1, one at .4 (n = 200): with first-order variances it was found in .03 of 60 trials, now in .30."""
    found = 0
    lost = 0
    trials = 60
    for seed in range(trials):
        rng = np.random.default_rng([33, seed])
        shifts = np.array([0.1] * 5 + [0.4])
        data = rng.normal(size=(200, 6))
        models = {f"m{k}": rng.normal(size=(200, 6)) + shift * np.eye(6)[k] for k, shift in enumerate(shifts)}
        worse = relfit.compare(data, models, correction="stepdown", rng=seed).worse
        found += worse[5]
        lost += worse[:5].any()
    assert found / trials >= 0.15
    assert lost / trials <= 0.05 + 3.0 * math.sqrt(0.05 * 0.95 / trials)


def test_a_margin_moves_the_tie():
    """With δ = 0.1 the tie is D_1 = D_0 + 0.1 at D_0 = (0.1 + 0.2)/2."""
    _, ratio = outcome(law(np.diag([0.1 * 0.02, 0.3 * 0.01]), 1e-12 * np.eye(2)), [0.1, 0.3], margin=0.1)
    assert ratio[1, 0] == pytest.approx(0.1 / math.sqrt(0.15 * 0.02 + 0.25 * 0.01), rel=1e-3)


def test_near_copies_keep_the_variance_of_their_difference():
    """Two models that err together: V − 2·S2 of the difference is far above its noise, though both D are not."""
    first = np.array([[1.0, 0.98], [0.98, 1.0]]) * 1e-4
    second = np.array([[1.0, 0.9999], [0.9999, 1.0]]) * 1e-4
    _, ratio = outcome(law(first, second, components=4.0), [0.004, 0.007])
    assert ratio[1, 0] == pytest.approx(0.003 / math.sqrt(4e-6 + 2e-8), rel=0.05)


def test_second_order_draws_have_the_covariance_and_skewness_of_their_components(rng):
    """Three components: a sum of three squares of normal numbers has skewness √(8/3)."""
    second = np.array([[4.0, 1.0], [1.0, 1.0]])
    three = law(np.zeros((2, 2)), second, components=3.0)
    draws = np.concatenate(
        [three.second_order(Noise.drawn([rng, rng], rng, three.drawn), 1.0) for _ in range(20)], axis=1
    )
    np.testing.assert_allclose(np.cov(draws), second, rtol=0.1)
    skewness = np.mean(draws[0] ** 3) / np.mean(draws[0] ** 2) ** 1.5
    assert skewness == pytest.approx(math.sqrt(8.0 / 3.0), rel=0.1)
    nearly_normal = law(np.zeros((2, 2)), second, components=1e6)
    many = nearly_normal.second_order(Noise.drawn([rng, rng], rng, nearly_normal.drawn), 1.0)
    assert abs(np.mean(many[0] ** 3) / np.mean(many[0] ** 2) ** 1.5) < 0.25


@pytest.mark.parametrize("cores", [1, 3])
def test_threads_draw_every_models_own_numbers(cores, monkeypatch):
    """The numbers of a model are those of its stream, in order, whatever draws them and whoever else is there."""
    monkeypatch.setattr(close, "usable_cores", lambda: cores)
    generators = [np.random.default_rng(k) for k in range(5)]
    noise = Noise.drawn(generators[1:], generators[0], 20)
    own = np.random.default_rng(3).standard_normal((22, close.DRAWS), dtype=np.float32)
    np.testing.assert_array_equal(np.stack([noise.normal[2], noise.rest[2], *(z[2] for z in noise.components)]), own)
    np.testing.assert_array_equal(noise.quantiles, np.random.default_rng(0).uniform(size=close.DRAWS))


def test_components_of_equal_eigenvalues_are_counted(rng):
    """Rows whose linear kernel has K equal eigenvalues: C = I_K, so tr C² = tr C³ = K and (tr C²)³/(tr C³)² = K."""
    from relfit.estimators.base import components

    rows = rng.normal(size=(400, 5))
    matrix = rows @ rows.T
    np.fill_diagonal(matrix, 0.0)
    assert components(matrix[None]) == pytest.approx(5.0, rel=0.2)
    assert components(1e150 * matrix[None]) == pytest.approx(components(matrix[None]), rel=1e-9)


def test_a_negative_estimate_of_a_variance_leaves_the_difference_alone():
    """Models that err together keep V − 2·S2. Noise can make it negative for a model, not for a difference."""
    together = law([[-0.05, 0.4], [0.4, 4.0]], 0.2 * np.ones((2, 2)))
    covariance = together.covariance(np.array([0.1, 3.0]))
    assert covariance[0, 0] >= 0.2
    # −0.05 + 4 − 2·0.4 = 3.15, and the second-order parts are equal. Without its negative eigenvalue it is a bit more.
    assert covariance[0, 0] + covariance[1, 1] - 2.0 * covariance[0, 1] == pytest.approx(3.15, rel=0.12)


def test_hall_only_lowers_and_is_inverted():
    ratio, skewness = np.array([2.5, 2.5, -1.0, -math.inf]), np.array([-0.4, 0.4, -0.4, -0.4])
    corrected = close.skewed(ratio, skewness)
    assert corrected[0] < 2.0
    assert corrected[1] == 2.5
    assert corrected[3] == -math.inf
    np.testing.assert_allclose(close.reach(corrected[:1], skewness[:1]), ratio[:1], rtol=1e-9)
    np.testing.assert_array_equal(close.reach(np.array([2.0]), np.array([0.3])), [2.0])


@pytest.mark.parametrize("n", [50, 40_000])
def test_cumulants_are_those_of_the_differences(n, rng):
    """κ₃ of D_i − D_j is own_i − own_j − 3(κ_iij − κ_jji); here from the rows themselves, in one block and in many."""
    rows, models = rng.exponential(size=(n, 2)), (rng.exponential(size=30), rng.exponential(size=40))
    rows, models = rows - rows.mean(axis=0), tuple(x - x.mean() for x in models)
    psi = Psi(rows, models)
    third, gap = psi.third(), rows[:, 0] - rows[:, 1]
    direct = (gap**3).sum() / n**3 + (models[0] ** 3).sum() / 30**3 - (models[1] ** 3).sum() / 40**3
    assert third[0, 0] - third[1, 1] - 3.0 * (third[0, 1] - third[1, 0]) == pytest.approx(direct)
    own = [(x @ x) / (len(x) * (len(x) - 1)) for x in models]
    np.testing.assert_allclose(psi.covariance(), np.cov(rows.T) / n + np.diag(own), rtol=1e-12)


def test_some_of_the_models_have_their_part_of_the_law():
    whole = law(np.diag([1.0, 2.0, 3.0]), np.diag([1e-4, 2e-4, 3e-4]))
    part = whole.at([2, 0])
    np.testing.assert_array_equal(np.diag(part.second), [3e-4, 1e-4])
    np.testing.assert_array_equal(np.diag(part.first), [3.0, 1.0])


def test_the_covariance_is_that_of_the_estimates(rng):
    """Models at the data, where V counts twice what the law counts once."""
    gaps, plain, both = [], [], []
    for seed in range(80):
        reference, models = shifted(rng, [0.0, 0.0], n=60, d=3)
        joint = relfit.estimate(reference, models, kernel=relfit.Gaussian(2.0), rng=seed)
        for covariance, variances in ((joint.covariance, plain), (joint.close.covariance(joint.values), both)):
            variances.append(covariance[0, 0] + covariance[1, 1] - 2.0 * covariance[0, 1])
        gaps.append(joint.values[0] - joint.values[1])
    # The variance of 80 differences is known to ± 16% (one standard error).
    assert 0.65 * np.var(gaps) < np.mean(both) < 1.8 * np.var(gaps)
    assert np.mean(plain) > 1.15 * np.mean(both)


def densities(shifts):
    """Normal densities with these shifts of the first coordinate."""
    means = [np.array([shift, 0.0]) for shift in shifts]
    return {f"m{i}": relfit.Density(score=lambda x, mean=mean: mean - x, dim=2) for i, mean in enumerate(means)}


@pytest.mark.parametrize("kind", ["samples", "densities", "target", "shared", "paired"])
def test_the_order_of_the_models_changes_nothing(rng, kind):
    reference, models = shifted(rng, [0.0, 0.2, 0.5], d=2)
    options = {"dependence": kind} if kind in ("shared", "paired") else {}
    if kind == "densities":
        models = densities([0.0, 0.2, 0.5])
    if kind == "target":
        reference = relfit.Density(score=lambda x: -x, dim=2)
    result = relfit.compare(reference, models, rng=0, **options)
    assert result.variance == "second-order"
    turned = relfit.compare(reference, dict(reversed(models.items())), rng=0, **options)
    np.testing.assert_allclose(turned.pvalue[::-1], result.pvalue, rtol=1e-6)
    np.testing.assert_allclose(turned.standard_error[::-1], result.standard_error, rtol=1e-6)


def test_the_second_order_part_from_pairs_is_that_from_all_rows(rng):
    """For paired rows it comes from random pairs; with rows that are independent all the same both must agree."""
    reference, models = shifted(rng, [0.0, 0.3], n=300, d=2)
    options = {"kernel": relfit.Gaussian(1.5), "rng": 0}
    exact = relfit.estimate(reference, models, **options).close
    sampled = relfit.estimate(reference, models, dependence="paired", **options).close
    np.testing.assert_allclose(np.diag(sampled.second), np.diag(exact.second), rtol=0.15)
    np.testing.assert_allclose(sampled.trace, exact.trace, rtol=0.15)
    assert 0.4 < sampled.components / exact.components < 2.5


def test_the_result_is_written_decided_and_shown_again(rng, tmp_path):
    reference, models = shifted(rng, [0.0, 0.2, 0.5])
    result = relfit.compare(reference, models, rng=0)
    assert result.variance == "second-order"
    assert not any("so well" in note for note in result.warnings)
    again = relfit.Comparison.from_json(result.to_json())
    assert again.to_json() == result.to_json()
    np.testing.assert_array_equal(again.pair_intervals(), result.pair_intervals())
    joint = relfit.estimate(reference, models, rng=0)
    np.testing.assert_array_equal(relfit.decide(joint, rng=0).pvalue, result.pvalue)
    result.report(tmp_path / "page.html", (reference, models))
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "second-order noise dominates; the law used here allows for it" in page
    assert "first- and second-order parts" in result.methods_text()


def test_a_plan_from_a_result_starts_from_plain_variances(rng):
    """V of the plan holds the second-order part twice, from the result as from the estimate."""
    reference, models = shifted(rng, [0.0, 0.6], n=200, d=2)
    result, joint = relfit.compare(reference, models, rng=0), relfit.estimate(reference, models, rng=0)
    pilot = result.pilot()
    gap = pilot.covariance[0, 0] + pilot.covariance[1, 1] - 2.0 * pilot.covariance[0, 1]
    plain = joint.covariance[0, 0] + joint.covariance[1, 1] - 2.0 * joint.covariance[0, 1]
    assert gap == pytest.approx(plain, rel=0.1)
    assert relfit.plan(result, trials=100, rng=0).needed("m1", "best-set") > 0


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("rows", ["constant", "far apart", "equal to the data"])
def test_rows_without_variance_have_no_law(rng, rows):
    """No division by a variance of 0, and the verdicts of the projection."""
    reference, models = shifted(rng, [0.0, 1.0], n=60, d=2)
    options = {"rng": 0}
    if rows == "constant":
        reference, models["m0"] = np.ones((60, 2)), np.ones((60, 2))
    elif rows == "far apart":
        options["kernel"] = relfit.Gaussian(1e-6)
    else:
        models["m0"] = reference[::-1].copy()
    result = relfit.compare(reference, models, **options)
    np.testing.assert_array_equal(
        result.worse, relfit.compare(reference, models, estimator=PROJECTION, **options).worse
    )
    assert np.isfinite(result.standard_error).all()
    assert np.isfinite(result.pvalue).all()
