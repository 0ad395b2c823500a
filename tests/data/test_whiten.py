"""Densities in other units: scores against finite differences, the spread of rows, the same verdicts in any unit."""

import json

import numpy as np
import pytest
from refusals import refused
from scipy import stats
from slopes import slopes

import relfit
from relfit.data.adapters import adapt
from relfit.data.encode import Column, Encoding, density_encoding, encoded_density, spread

ROOT = ((1.0, 0.0), (-0.8, 0.6))
ENCODING = Encoding("whiten", (Column("a", scale=100.0), Column("b", scale=0.5)), root=ROOT)
# x = Lz
L = np.diag([100.0, 0.5]) @ np.array(ROOT)


class HasLogProb:
    """Any object with log_prob(x), differentiated by finite differences."""

    @staticmethod
    def log_prob(x):
        return -np.logaddexp(0.0, (x / [100.0, 0.5]) ** 2).sum(axis=1)


OBJECTS = {
    "scipy normal": stats.multivariate_normal(np.zeros(2), L @ L.T),
    "scipy kde": stats.gaussian_kde(L @ np.random.default_rng(0).normal(size=(2, 60))),
    "finite differences": HasLogProb(),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_scores_and_log_densities_of_encoded_rows(name, rng):
    """The score of z is the slope of log p(Lz), and Lᵀ times the score at Lz; a check of the score finds nothing."""
    density = adapt(OBJECTS[name], dim=2)
    inner, z = encoded_density(density, ENCODING), rng.normal(size=(40, 2))
    np.testing.assert_allclose(inner.log_probs(z), density.log_probs(z @ L.T))
    np.testing.assert_allclose(inner.scores(z), slopes(lambda z: density.log_probs(z @ L.T), z), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(inner.scores(z), density.scores(z @ L.T) @ L, rtol=1e-5, atol=1e-5)
    assert inner.by_finite_differences == density.by_finite_differences
    assert relfit.check_score(inner, z).ok


def test_the_spread_of_rows_with_constants_atoms_and_outliers(rng):
    x = rng.normal(size=(500, 3)) @ rng.normal(size=(3, 3)) * [1e8, 1.0, 1e-8] + [1e9, 0.0, 0.0]
    scales, correlation = spread(x)
    np.testing.assert_allclose(np.outer(scales, scales) * correlation, np.cov(x.T, ddof=0), rtol=1e-9)
    # A constant column keeps its unit, and a column that is 0 in most rows gets a spread.
    x = np.column_stack([rng.normal(size=300), np.full(300, 7.0), np.where(rng.random(300) < 0.8, 0.0, 5.0)])
    scales, correlation = spread(x)
    assert scales[1] == 1.0
    assert scales[2] > 0.5
    np.testing.assert_allclose(np.diag(correlation), 1.0)
    # A row counts for at most 20 median(r²)/n = 20·1.39/1000 = 0.028 of a variance, however far out it is.
    # So one that is a million spreads out moves a standard deviation by less than 1.4%. Cauchy rows, round in law, look
    # round.
    x = rng.normal(size=(1000, 2))
    plain, _ = spread(x)
    scales, correlation = spread(np.concatenate([x, [[1e6, -1e6]]]))
    assert np.abs(scales / plain - 1.0).max() < 0.014
    assert abs(correlation[0, 1] - np.corrcoef(x.T)[0, 1]) < 0.028
    scales, correlation = spread(rng.normal(size=(20_000, 2)) / np.abs(rng.normal(size=(20_000, 1))))
    assert 0.9 < scales[0] / scales[1] < 1.1
    assert abs(correlation[0, 1]) < 0.1


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        (np.random.default_rng(0).normal(size=(90, 10)), "90 rows are too few to whiten 10 columns"),
        (np.random.default_rng(0).normal(size=(300, 1)) * [1.0, -2.0], "combinations of others"),
        (np.random.default_rng(0).normal(size=(2600, 257)), "257 columns are too many"),
    ],
    ids=["few rows", "collinear", "many columns"],
)
def test_where_whitening_is_impossible_columns_are_scaled(rows, why):
    encoding, note = density_encoding([rows], "whiten", None)
    assert why in note
    assert encoding.root is None
    # The median absolute deviation of 90 normal rows has a standard error of 1.17/√90 = 12%.
    np.testing.assert_allclose(encoding.apply(rows).std(axis=0), 1.0, rtol=4 * 0.123)


def correlated(rng, n=200, correlation=0.95, unit=1.0):
    """A normal target, and samplers of three spreads, in this unit of the columns."""
    root = np.linalg.cholesky([[1.0, correlation], [correlation, 1.0]])
    precision = np.linalg.inv(root @ root.T) / np.multiply.outer(unit, unit)
    target = relfit.Density(lambda x: -x @ precision, lambda x: -0.5 * ((x @ precision) * x).sum(axis=1), 2)
    scales = zip("abc", (1, 1.2, 0.6), strict=True)
    return target, {name: scale * rng.normal(size=(n, 2)) @ root.T * unit for name, scale in scales}


@pytest.mark.parametrize("unit", [(1.0, 1.0), (1e-3, 1e-3 / 2.54), (1e-9, 1e9)])
def test_a_posterior_with_unlike_units_in_any_unit(unit):
    """The mean-field approximation, the normal law of the same precisions without correlations, is found.

    Its spread is √(1 − .998²) = 6% of that of the posterior. Every number is the same in every unit.
    """

    def compared(unit):
        rng = np.random.default_rng(0)
        target, models = correlated(rng, 500, 0.998, np.array(unit))
        narrow = np.sqrt(1.0 - 0.998**2) * rng.normal(size=(500, 2)) * unit
        exact = correlated(rng, 500, 0.998, np.array(unit))[1]["a"]
        return relfit.compare(target, {"exact": models["a"], "exact too": exact, "mean field": narrow}, rng=0)

    expected = compared((1.0, 1.0))
    assert expected.worse.tolist() == [False, False, True]
    assert expected.pvalue[2] < 1e-12
    result = compared(unit)
    for name in ("discrepancy", "standard_error", "pvalue"):
        np.testing.assert_allclose(getattr(result, name), getattr(expected, name), rtol=1e-6, atol=1e-9)
    assert "2 columns whitened by the pooled draws" in str(result)


def test_it_is_the_comparison_of_transformed_rows_and_densities(rng):
    """Every number is that of rows and scores which are transformed by hand, with no scale."""
    target, models = correlated(rng)
    result = relfit.compare(target, models, rng=0)
    encoding = result.encoding
    matrix = encoding.scales[:, None] * np.array(encoding.root)
    by_hand = relfit.Density(lambda z: target.scores(z @ matrix.T) @ matrix)
    moved = {name: np.linalg.solve(matrix, x.T).T for name, x in models.items()}
    other = relfit.compare(by_hand, moved, scale="none", rng=0)
    np.testing.assert_allclose(result.discrepancy, other.discrepancy, rtol=1e-9)
    np.testing.assert_allclose(result.covariance, other.covariance, rtol=1e-9)
    # The covariance of the pooled draws is the square of the matrix.
    np.testing.assert_allclose(matrix @ matrix.T, np.cov(np.concatenate(list(models.values())).T, ddof=0), rtol=1e-9)


@pytest.mark.parametrize(
    ("options", "scale"),
    [
        *(({"kernel": kernel}, "whiten") for kernel in (None, "imq", "select")),
        *(({"kernel": kernel}, None) for kernel in (relfit.Gaussian(1.0), relfit.IMQ(2.0))),
        ({"kernel": relfit.Gaussian(1.0), "scale": "auto"}, "whiten"),
        *(({"scale": word}, kind) for word, kind in (("none", None), ("robust", "robust"))),
        ({"scale": {"column 0": 3.0}}, "given"),
        *(({name: word}, "whiten") for name, word in (("estimator", "incomplete"), ("dependence", "chain"))),
        *(({"test": "relmulti"}, "whiten"), ({"compute": relfit.Compute(memory="8GB")}, "whiten")),
    ],
    ids=str,
)
def test_which_scale(options, scale, rng):
    """A bandwidth that was given is in the data's units, which are then left alone."""
    result = relfit.compare(*correlated(rng), rng=0, progress=False, **options)
    assert (None if result.encoding is None else result.encoding.scale) == scale


def test_densities_as_models(rng):
    """By default as they are; whitened by the reference on request, in any unit."""
    unit = np.array([1e5, 1e-3])
    target, models = correlated(rng)
    flat = relfit.Density(score=lambda x: -x)
    in_unit = {
        name: relfit.Density(score=lambda x, d=d: d.scores(x / unit) / unit)
        for name, d in (("right", target), ("flat", flat))
    }
    plain = {"right": target, "flat": flat}
    assert relfit.compare(models["a"], plain, rng=0).encoding is None
    results = [
        relfit.compare(models["a"] * by, densities, scale="whiten", rng=0, **options)
        for by, densities, options in ((1.0, plain, {}), (unit, in_unit, {}), (unit, in_unit, {"discrepancy": "ksd"}))
    ]
    assert "2 columns whitened by the reference" in str(results[0])
    for result in results:
        assert result.worse.tolist() == [False, True]
        np.testing.assert_allclose(result.discrepancy, results[0].discrepancy, rtol=1e-7)


def test_the_record(rng, tmp_path):
    """JSON there and back, the page's pictures and checks, and its code."""
    data = correlated(rng)
    result = relfit.compare(*data, rng=0)
    again = relfit.Comparison.from_json(result.to_json())
    assert again.encoding == result.encoding
    again.report(tmp_path / "page.html", data)
    page = (tmp_path / "page.html").read_text()
    assert "column 0" in page
    assert "column 0, standardised" not in page
    assert "scale=&#39;whiten&#39;" in page
    assert "whitened by a robust covariance of the pooled draws" in result.methods_text()


def test_checkpoints_of_another_scale_and_damaged_roots_are_refused(rng, tmp_path):
    data, compute = correlated(rng), relfit.Compute(checkpoint=tmp_path / "parts")
    kernel = relfit.Gaussian(1.0)
    relfit.compare(*data, kernel=kernel, compute=compute, rng=0)
    refused(lambda: relfit.compare(*data, kernel=kernel, scale="whiten", compute=compute, rng=0), "scale")
    record = json.loads(relfit.compare(*data, rng=0).to_json())
    for root in ([[1.0, 0.5], [0.0, 1.0]], [[1.0]], [[0.0, 0.0], [0.5, 1.0]], [["inf", 0], [0, 1]]):
        record["encoding"]["root"] = root
        refused(lambda: relfit.Comparison.from_dict(record), "encoding")
