"""The log-likelihood as a discrepancy: values by hand, rows of density 0, covariates, and what KSD does not see."""

import json

import numpy as np
import pytest
from refusals import refused
from scipy import stats

import relfit
from relfit.data.adapters.scipy_sklearn import gaussian_mixture
from relfit.data.densities import unseen_heights

FIXED = {"discrepancy": "loglik", "rng": 0}
NORMALS = {"a": stats.norm(), "b": stats.norm(0.5), "c": stats.norm(0, 2)}


@pytest.fixture
def x(rng):
    return rng.normal(size=120)


def modes(*weights, at=4.0):
    means = np.array([[-at], [at]])
    return {f"{w}": gaussian_mixture(np.array([w, 1.0 - w]), means, np.ones((2, 1, 1))) for w in weights}


def two_modes(rng, n, at=4.0):
    return rng.normal(size=(n, 1)) + np.where(rng.random((n, 1)) < 0.5, -at, at)


def test_by_hand():
    """Uniform on (0, 4) against exponential, at rows 1 and 3, ten times each.

    −log p is log 4 at every row, and the row itself: D = (log 4, 2). The second losses are 1 and 3, ten each: their
    variance with n − 1 is 20/19, and V₂₂ = 20/(19·20) = 1/19; the first does not vary.
    """
    rows = np.repeat([1.0, 3.0], 10)
    joint = relfit.estimate(rows, {"u": stats.uniform(0, 4), "e": stats.expon()}, **FIXED)
    np.testing.assert_allclose(joint.values, [np.log(4.0), 2.0], rtol=1e-15)
    np.testing.assert_allclose(joint.covariance, [[0.0, 0.0], [0.0, 1.0 / 19.0]], atol=1e-17)
    assert joint.measure == "loglik"
    assert joint.sizes == (20,)


def test_it_is_the_losses_of_the_same_rows(x):
    """`compare_losses` with −log p as losses: another way to the same numbers, for every test that does not split."""
    losses = {name: -model.logpdf(x) for name, model in NORMALS.items()}
    for test in ("best-set", "relpsi", "carve"):
        ours = relfit.compare(x, NORMALS, test=test, **FIXED)
        theirs = relfit.compare_losses(losses, test=test, correction="none", higher_is_better=False, rng=0)
        np.testing.assert_allclose(ours.discrepancy, theirs.discrepancy, rtol=1e-13)
        np.testing.assert_allclose(ours.covariance, theirs.covariance, rtol=1e-10)
        np.testing.assert_allclose(ours.pvalue, theirs.pvalue, rtol=1e-6, atol=1e-12)
        assert ours.measure == "loglik"
        assert ours.kernel is None


def test_relmulti_splits_rows_and_covariates_together(rng):
    """Were y and x split apart, the right model would lose to the one without covariates."""
    covariates = rng.normal(size=(300, 2))
    y = covariates @ [3.0, -2.0] + rng.normal(size=300)
    models = {
        "right": relfit.Density(log_prob=lambda y, x: stats.norm.logpdf(y[:, 0], x @ [3.0, -2.0]), normalised=True),
        "no covariates": stats.norm(0.0, 14.0**0.5),
    }
    for test in ("relmulti", "best-set"):
        result = relfit.compare(y, models, given=covariates, test=test, **FIXED)
        assert result.best == "right"
        assert result.worse.tolist() == [False, True]
        assert result.design == "given 2 covariates"
    expected = -stats.norm.logpdf(y, covariates @ [3.0, -2.0]).mean()
    assert result.discrepancy[0] == pytest.approx(expected, rel=1e-13)


def test_covariates_in_torch_and_jax(rng):
    covariates, y = rng.normal(size=(2, 60))
    expected = -stats.norm.logpdf(y, covariates).mean()
    torch = pytest.importorskip("torch", reason="torch is not installed")
    jax = pytest.importorskip("jax", reason="JAX is not installed")

    def by_torch(y, x):
        return torch.distributions.Normal(x[:, 0], 1.0).log_prob(y[:, 0])

    def by_jax(y, x):
        return jax.scipy.stats.norm.logpdf(y[0], x[0])  # of a single row

    models = {
        "torch": relfit.Density(log_prob=by_torch, autodiff="torch", normalised=True),
        "jax": relfit.Density(log_prob=by_jax, autodiff="jax", normalised=True),
    }
    values = [relfit.estimate(y, {k: m}, given=covariates, **FIXED).values[0] for k, m in models.items()]
    np.testing.assert_allclose(values, expected, rtol=1e-6)


def likely(models=NORMALS, reference=None, **options):
    reference = np.linspace(-2.0, 2.0, 120) if reference is None else reference
    return lambda: relfit.compare(reference, models, **{**FIXED, **options})


CONDITIONAL = {"it": relfit.Density(log_prob=lambda y, x: -y[:, 0], normalised=True), "b": stats.norm()}
SAMPLES = {"a": np.linspace(-1.0, 3.0, 120), "b": np.linspace(0.0, 4.0, 120)}


@pytest.mark.parametrize(
    ("call", "parts"),
    [
        (likely(CONDITIONAL), ["'it'", "given="]),
        (likely(CONDITIONAL, discrepancy="auto"), ["'it'", "given=", "loglik"]),
        (likely(given=np.zeros(120), discrepancy="auto"), ["given", "loglik"]),
        (likely(given=np.zeros(119)), ["given", "120 rows", "119"]),
        (likely(given=np.zeros(120), compute=relfit.Compute(memory="2GB")), ["given"]),
        (likely(SAMPLES), ["loglik", "densities", "mmd"]),
        (likely(SAMPLES, stats.norm()), ["loglik", "densities"]),
        (likely(kernel="imq"), ["kernel", "loglik"]),
        (likely(estimator="linear"), ["estimator", "loglik"]),
        (likely(dependence="paired"), ["dependence", "loglik"]),
        (likely(preset="kid"), ["preset", "loglik"]),
        (likely(compute=relfit.Compute(precision="single")), ["precision", "loglik"]),
        (likely(discrepancy=[]), ["discrepancy"]),
        (likely(discrepancy=["ksd", "auto"]), ["'ksd' twice"]),
        (likely(discrepancy=["ksd", "loglik"], margin=0.1), ["margin"]),
    ],
)
def test_refusals(call, parts):
    refused(call, *parts)


@pytest.mark.parametrize("names", [None, ["height", "pay"]])
def test_units_add_one_number_to_all_models_and_change_no_difference(rng, names):
    """p'(x') = p(x)·Π s for x' = x/s: −log p' is −log p − Σ log s; a scale is that change, and so is left to KSD."""
    scales = np.array([2.0, 3e4])
    rows = rng.normal(size=(300, 2)) * scales
    frames = [rows, rows / scales]
    if names is not None:
        pandas = pytest.importorskip("pandas")
        frames = [pandas.DataFrame(each, columns=names) for each in frames]

    def normal(mean, unit):
        return stats.multivariate_normal(mean * scales / unit, np.diag((scales / unit) ** 2))

    means = {"right": 0.0, "off": 0.2}
    plain, scaled = (
        relfit.compare(frame, {k: normal(mean, unit) for k, mean in means.items()}, discrepancy="loglik", rng=0)
        for frame, unit in zip(frames, (np.ones(2), scales), strict=True)
    )
    np.testing.assert_allclose(plain.discrepancy - scaled.discrepancy, np.log(scales).sum(), rtol=1e-12)
    np.testing.assert_allclose(plain.difference, scaled.difference, atol=1e-12)
    np.testing.assert_allclose(plain.pvalue, scaled.pvalue, rtol=1e-9)
    models = {k: normal(mean, np.ones(2)) for k, mean in means.items()}
    for scale in ("auto", "robust", "whiten", {(names or ["column 0"])[0]: 7.0}):
        both = relfit.compare(frames[0], models, discrepancy=["ksd", "loglik"], scale=scale, rng=0)
        assert both.encoding.scale != "none"
        assert both.also[0].discrepancy.tolist() == plain.discrepancy.tolist()
        alone = relfit.compare(frames[0], models, discrepancy="loglik", scale=scale, rng=0)
        assert alone.discrepancy.tolist() == plain.discrepancy.tolist()
    refused(
        lambda: relfit.compare(frames[0], models, discrepancy="loglik", encode=relfit.Encode(missing="drop")),
        "encode: says what the columns of tables mean where all models are samples",
    )


# --- rows of density 0


@pytest.fixture
def positive(x):
    return np.abs(x) + 1e-3


BOUNDED = {
    "narrow": stats.uniform(0, 1.5),
    "half": stats.halfnorm(),
    "exponential": stats.expon(),
    "again": stats.uniform(0, 1.5),
    "narrower": stats.uniform(0, 1.0),
}


@pytest.mark.parametrize("test", ["best-set", "relpsi", "carve", "relmulti"])
def test_impossible_rows_make_a_model_worse_and_change_nothing_else(positive, test):
    result = relfit.compare(positive, BOUNDED, test=test, **FIXED)
    alone = relfit.compare(positive, {k: BOUNDED[k] for k in ("half", "exponential")}, test=test, **FIXED)
    counts = {"narrow": int((positive > 1.5).sum()), "narrower": int((positive > 1.0).sum())}
    assert result.impossible == {**counts, "again": counts["narrow"]}
    assert result.best == alone.best
    assert result.worse[[0, 3, 4]].all()
    assert np.isposinf(result.discrepancy[[0, 3, 4]]).all()
    for name in ("discrepancy", "standard_error", "difference", "pvalue", "adjusted_pvalue", "worse"):
        np.testing.assert_array_equal(getattr(result, name)[[1, 2]], getattr(alone, name))
    assert result.status[0] == ("impossible rows",)
    assert result.status[3] == ("duplicate of narrow", "impossible rows")
    np.testing.assert_array_equal(result.confidence_interval()[[1, 2]], alone.confidence_interval())
    assert np.isposinf(result.confidence_interval()[[0, 3, 4]]).all()
    assert not any(
        np.isnan(value).any()
        for value in (getattr(result, name) for name in result.described())
        if isinstance(value, np.ndarray) and value.dtype.kind == "f"
    )
    assert "nan" not in str(result)
    assert "∞" in str(result)


def test_impossible_models_have_the_last_ranks_and_lose_every_pair_and_gate(positive):
    result = relfit.compare(positive, BOUNDED, **FIXED)
    ranks, pairs, intervals = result.ranks(), result.pairs(), result.pair_intervals()
    assert ranks.lower[[0, 3, 4]].tolist() == [3, 3, 3]
    assert ranks.upper[[0, 3, 4]].tolist() == [5, 5, 5]
    assert (ranks.lower <= ranks.upper).all()
    assert ranks.upper[[1, 2]].max() == 2
    assert pairs.worse[0].tolist() == [False, True, True, False, False]
    assert not pairs.worse[:, 0].any()
    assert np.isposinf(intervals[0, 1]).all()
    assert np.isneginf(intervals[1, 0]).all()
    assert intervals[0, 4].tolist() == [-np.inf, np.inf]
    from relfit.report.gate import judge, junit_xml

    result = relfit.compare(positive, BOUNDED, **FIXED)
    assert judge(result, "narrow").failed
    assert judge(result, "narrow", "half").failed
    assert not judge(result, "half", "narrow").failed
    assert not judge(result, "narrow", "narrower").failed
    assert "nan" not in junit_xml(result, judge(result, "narrow", "narrower")).lower()
    made = relfit.plan(result, trials=200, rng=0)
    assert set(made.names) == {"half", "exponential"}


def test_impossible_models_in_files(positive, tmp_path):
    """An infinite number is the text "inf"; a file that says otherwise is refused."""
    result = relfit.compare(positive, BOUNDED, **FIXED)
    text = result.to_json()
    data = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert data["discrepancy"][0] == data["difference"][0] == "inf"
    assert data["impossible"]["narrow"] > 0
    again = relfit.Comparison.from_json(text)
    assert again.to_json() == text
    assert again.ranks().to_json() == result.ranks().to_json()
    for change in ({"impossible": {}}, {"impossible": {"half": 1, **data["impossible"]}}, {"impossible": {"x": 1}}):
        refused(lambda change=change: relfit.Comparison.from_dict({**data, **change}), "data")
    result.report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "impossible rows" in page
    assert "Not drawn" in page
    assert "nan" not in page.lower().replace("finance", "").replace("isnan", "")
    assert r"$\infty$" in result.to_latex()
    assert "inf" in result.to_csv()
    assert result.plot() is not None


# --- several at once, and what KSD does not see


def test_two_discrepancies_at_once(rng, tmp_path):
    x, models = two_modes(rng, 1000), modes(0.5, 0.65)
    both = relfit.compare(x, models, discrepancy=["ksd", "loglik"], rng=0)
    ksd, loglik = (relfit.compare(x, models, discrepancy=each, rng=0) for each in ("ksd", "loglik"))
    (other,) = both.also
    assert other.to_json() == loglik.to_json()
    assert both.worse.tolist() == ksd.worse.tolist() == [False, False]
    assert other.worse.tolist() == [False, True]
    rows = {row["name"]: row for row in both.rows()}
    assert rows["0.65"]["verdict_loglik"] == "significantly worse"
    text = str(both)
    assert "'0.65' is worse by mean −log p only" in text
    assert "separated modes" in text
    assert relfit.Comparison.from_json(both.to_json()).to_json() == both.to_json()
    both.report(tmp_path / "page.html", (x, models))
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "by mean −log p" in page
    assert "worse by mean −log p only" in page
    assert "discrepancy=[&#39;ksd&#39;, &#39;loglik&#39;]" in page
    assert both.to_latex().count("&") == 8 * 3
    assert "| :--- | ---: | ---: | ---: | ---: | ---: | ---: | :--- | :--- |" in both.to_markdown()


def test_several_are_refused_where_they_make_no_sense(x):

    refused(lambda: relfit.estimate(x, NORMALS, discrepancy=["ksd", "loglik"]), "only compare")
    both = json.loads(relfit.compare(x, NORMALS, discrepancy=["ksd", "loglik"], rng=0).to_json())
    other = both["also"][0]
    for also in (3, [other, other], [{**other, "also": [other]}], [{**other, "names": ["a", "b", "d"]}]):
        refused(lambda also=also: relfit.Comparison.from_dict({**both, "also": also}), "data")


@pytest.mark.parametrize("at", [3.5, 4.0, 8.0])
def test_ksd_says_what_it_does_not_see(rng, at):
    (note,) = unseen_heights(modes(0.5, 0.65, at=at), two_modes(rng, 500, at))
    assert "'0.5' and '0.65'" in note
    assert "loglik" in note
    assert note in relfit.compare(two_modes(rng, 500, at), modes(0.5, 0.65, at=at), rng=0).warnings


ROWS = {
    "normal": lambda rng: rng.normal(size=1000),
    "heavy": lambda rng: rng.standard_t(2, size=1000),
    "cauchy": lambda rng: rng.standard_cauchy(size=1000),
    "skewed": lambda rng: rng.lognormal(0.0, 1.5, size=1000),
    "modes": lambda rng: two_modes(rng, 1000, 5.0)[:, 0],
}


@pytest.mark.parametrize("rows", ROWS)
def test_it_says_nothing_of_differences_that_slopes_show(rng, rows):
    from relfit.data.adapters import adapt

    given = [stats.norm(0, 1), stats.norm(0.3), stats.norm(0, 3), stats.t(3), stats.laplace(), stats.logistic(0, 2)]
    models = {f"{k}": adapt(model, 1) for k, model in enumerate(given)}
    assert unseen_heights(models, ROWS[rows](rng)[:, None]) == ()
    assert unseen_heights(modes(0.5, 0.65, at=1.0), two_modes(rng, 1000, 1.0)) == ()
