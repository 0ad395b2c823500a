"""A discrepancy of one's own: contributions, resampling, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

import relfit
from relfit import Discrepancy, InputError


def mean_gap(reference, model):
    """Squared distance of the means, the biased MMD² of the linear kernel."""
    return float(np.square(reference.mean(axis=0) - model.mean(axis=0)).sum())


def mean_gap_with_contributions(reference, model):
    gap = reference.mean(axis=0) - model.mean(axis=0)
    return float(gap @ gap), 2.0 * reference @ gap, -2.0 * model @ gap


def samples(n=80, m=80, shifts=(0.3, 0.6, 1.2), seed=0):
    rng = np.random.default_rng(seed)
    data = rng.normal(size=(n, 2))
    return data, {f"m{k}": rng.normal(shift, 1, (m, 2)) for k, shift in enumerate(shifts)}


def test_the_jackknife_is_that_of_the_textbook():
    data, models = samples(n=30, m=25)
    joint = relfit.estimate(data, models, discrepancy=mean_gap)
    expected = np.zeros((3, 3))
    without = np.array([[mean_gap(np.delete(data, a, axis=0), x) for x in models.values()] for a in range(30)])
    deviations = without - without.mean(axis=0)
    expected += 29 / 30 * deviations.T @ deviations
    for i, x in enumerate(models.values()):
        own = np.array([mean_gap(data, np.delete(x, a, axis=0)) for a in range(25)])
        expected[i, i] += 24 / 25 * np.square(own - own.mean()).sum()
    np.testing.assert_allclose(joint.covariance, expected, rtol=1e-10)
    np.testing.assert_allclose(joint.values, [mean_gap(data, x) for x in models.values()])
    assert joint.measure == "mean gap"


@pytest.mark.parametrize("dependence", ["independent", "shared", "paired"])
def test_contributions_jackknife_and_bootstrap_agree(dependence):
    data, models = samples(n=120, m=120, shifts=(0.8, 1.0, 1.5))
    if dependence != "independent":
        common = np.random.default_rng(5).normal(size=(120, 2))
        models = {name: 0.5 * rows + common for name, rows in models.items()}
    if dependence == "paired":
        data = data + common

    def covariance(function, **options):
        own = Discrepancy(function, **options)
        return relfit.estimate(data, models, discrepancy=own, dependence=dependence, rng=0).covariance

    given = covariance(mean_gap_with_contributions)
    jackknife = covariance(mean_gap)
    np.testing.assert_allclose(given, jackknife, rtol=0.05, atol=0.02 * given.max())
    drawn = covariance(mean_gap, resampling="bootstrap", replicates=2000)
    # A variance from 2000 draws has a relative standard error of √(2/2000) = 3%.
    np.testing.assert_allclose(drawn, given, rtol=0.15, atol=0.15 * given.max())


def test_blocks_of_larger_samples_estimate_the_same_variance():
    data, models = samples(n=600, m=500, shifts=(0.8, 1.0))
    rows = relfit.estimate(data, models, discrepancy=Discrepancy(mean_gap, replicates=600))
    blocks = relfit.estimate(data, models, discrepancy=Discrepancy(mean_gap), rng=0)
    # 200 blocks: a relative standard error of √(2/200) = 10% of the variance, 5% of its root.
    np.testing.assert_allclose(blocks.standard_error, rows.standard_error, rtol=0.2)


@pytest.mark.parametrize("test", ["best-set", "relpsi", "relmulti", "carve"])
def test_every_test_takes_it(test):
    data, models = samples(n=200, m=200, shifts=(0.0, 0.1, 1.0))
    result = relfit.compare(data, models, discrepancy=mean_gap_with_contributions, test=test, rng=1)
    assert result.worse.tolist()[2]
    assert result.measure == "mean gap with contributions"
    assert result.kernel is None
    again = type(result).from_json(result.to_json())
    assert str(again) == str(result)


def test_the_plan_the_page_and_the_gate_take_it(tmp_path):
    data, models = samples(n=200, m=200, shifts=(0.0, 1.0))
    result = relfit.compare(data, models, discrepancy=mean_gap, rng=1)
    assert relfit.plan(result, rng=0).needed("m1", "best-set") < 200
    page = tmp_path / "page.html"
    result.report(page)
    assert "mean gap" in page.read_text()
    with pytest.raises(AssertionError, match="m1"):
        relfit.assert_not_worse(result, "m1")


def test_beside_another_discrepancy():
    data, models = samples(n=100, m=100, shifts=(0.0, 1.0))
    result = relfit.compare(data, models, discrepancy=["mmd", mean_gap], rng=1)
    assert [each.measure for each in (result, *result.also)] == ["mmd", "mean gap"]


def test_the_order_and_the_names_of_the_models_change_nothing():
    data, models = samples(n=60, m=60)
    own = Discrepancy(mean_gap, resampling="bootstrap", replicates=100)
    joint = relfit.estimate(data, models, discrepancy=own, rng=3)
    turned = {f"other {name}": models[name] for name in reversed(models)}
    permuted = relfit.estimate(data, turned, discrepancy=own, rng=3)
    np.testing.assert_array_equal(permuted.covariance[::-1, ::-1], joint.covariance)


def test_progress_counts_evaluations():
    data, models = samples(n=30, m=40)
    seen = []
    relfit.estimate(data, models, discrepancy=mean_gap, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (3 * 30 + 3 * 40, 3 * 30 + 3 * 40)


WRONG = {
    "a number above everything": (lambda x, y: np.inf, "expected a finite number, got inf"),
    "text": (lambda x, y: "near", "expected a number, got str"),
    "two values": (lambda x, y: (1.0, x[:, 0]), "got a tuple of 2"),
    "contributions of another shape": (
        lambda x, y: (1.0, x, y),
        "expected 60 contributions, one for each row, got shape (60, 2)",
    ),
    "a contribution that is NaN": (
        lambda x, y: (1.0, x[:, 0] * np.nan, y[:, 0]),
        "expected finite contributions",
    ),
}


@pytest.mark.parametrize(("function", "message"), WRONG.values(), ids=WRONG)
def test_wrong_answers_get_one_line(function, message):
    data, models = samples(n=60, m=60)
    with pytest.raises(InputError) as error:
        relfit.compare(data, models, discrepancy=Discrepancy(function, name="mine"), rng=0)
    assert message in str(error.value)
    assert "mine of model 'm0'" in str(error.value)
    assert "\n" not in str(error.value)


def test_contributions_of_some_models_only():
    data, models = samples(n=60, m=60)

    def changing(reference, model):
        answer = mean_gap_with_contributions(reference, model)
        return answer if model is not None and answer[0] > 1.0 else answer[0]

    with pytest.raises(InputError, match="returned contributions for some models only"):
        relfit.compare(data, models, discrepancy=changing, rng=0)


REFUSED = {
    "kernel": {"kernel": "imq"},
    "preset": {"preset": "kid"},
    "estimator": {"estimator": "linear"},
    "groups": {"groups": {"reference": [0] * 60}},
    "memory": {"compute": relfit.Compute(memory="1GB")},
}


@pytest.mark.parametrize("options", REFUSED.values(), ids=REFUSED)
def test_options_that_it_has_no_use_for(options):
    data, models = samples(n=60, m=60)
    with pytest.raises(InputError, match="discrepancy of your own"):
        relfit.compare(data, models, discrepancy=mean_gap, rng=0, **options)


def test_densities_must_be_drawn_from_first():
    data, _ = samples(n=60)
    density = relfit.Density(score=lambda x: -x)
    other = relfit.Density(score=lambda x: 1 - x)
    with pytest.raises(InputError, match="expected something to draw from, got a density"):
        relfit.compare(data, {"a": density, "b": other}, discrepancy=mean_gap, rng=0)


def test_what_is_no_function_is_refused():
    with pytest.raises(InputError, match="function: expected a function of two samples, got int"):
        Discrepancy(3)
    with pytest.raises(InputError, match="resampling"):
        Discrepancy(mean_gap, resampling="none")


# ── a split of one's own: Algorithm 2 for any estimate ────────────────────────────────────────


def halves():
    data, models = samples(n=400, m=400, shifts=(0.1, 0.2, 1.0))
    return [
        relfit.estimate(
            data[rows],
            {name: x[rows] for name, x in models.items()},
            discrepancy=mean_gap_with_contributions,
        )
        for rows in (slice(0, 100), slice(100, None))
    ]


def test_relmulti_of_two_estimates_is_a_z_test_against_the_selected_model():
    selecting, testing = halves()
    result = relfit.decide(testing, selection=selecting, test="relmulti", correction="none")
    best = int(np.argmin(selecting.values))
    assert result.best == testing.names[best]
    gaps = testing.values - testing.values[best]
    v = testing.covariance
    errors = np.sqrt(np.diag(v) + v[best, best] - 2 * v[best])
    others = np.arange(3) != best
    z = gaps[others] / errors[others]
    np.testing.assert_allclose(result.pvalue[others], norm.sf(z), rtol=1e-9)
    assert "25% of the rows" in str(result)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"test": "relmulti"}, "expected selection="),
        ({"test": "best-set", "selection": "both"}, "selects and tests by the same rows"),
        ({"test": "relmulti", "selection": "other names"}, "selection: expected the models m0"),
        ({"test": "relmulti", "selection": 3}, "selection: expected a JointEstimate, got int"),
    ],
)
def test_selections_that_are_refused(options, message):
    selecting, testing = halves()
    renamed = replace(selecting, names=("a", "b", "c"))
    known = {"both": selecting, "other names": renamed}
    if "selection" in options:
        options = {**options, "selection": known.get(options["selection"], options["selection"])}
    with pytest.raises(InputError, match=message):
        relfit.decide(testing, **options)


@pytest.mark.parametrize("size", [1e-170, 1e150])
def test_values_whose_squares_leave_float64_are_refused(size):
    """A variance that underflows to 0 would be a certain verdict."""
    data, models = samples(n=60, m=60, shifts=(0.1, 0.15))

    def scaled_gap(reference, model):
        return size * mean_gap(reference, model)

    with pytest.raises(InputError, match=r"scaled gap: expected contributions between .*; multiply"):
        relfit.compare(data, models, discrepancy=scaled_gap, rng=0)


def test_a_pair_and_data_that_the_report_cannot_use():
    data, models = samples(n=60, m=60, shifts=(0.1, 1.0))
    pair = relfit.compare_pair(data, models["m1"], models["m0"], discrepancy=mean_gap, rng=0)
    assert str(pair).startswith("pair test · mean gap")
    result = relfit.compare(data, models, discrepancy=mean_gap, rng=0)
    with pytest.raises(InputError, match="a discrepancy of your own and has no kernel; leave data out"):
        result.report("page.html", (data, models))
