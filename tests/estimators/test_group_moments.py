"""The second-order part of estimates from rows in groups."""

import numpy as np
import pytest

import relfit

KERNEL = relfit.Gaussian(1.5)


def samples(rng, n, shift=0.2):
    return rng.normal(size=(n, 3)), {"a": rng.normal(size=(n, 3)), "b": rng.normal(size=(n, 3)) + shift}


@pytest.mark.parametrize("dependence", ["independent", "shared", "paired"])
def test_groups_of_one_row_are_rows(rng, dependence):
    """S2, tr C and K of 200 groups are those of all 300 rows, to 20%."""
    data, models = samples(rng, 300)
    options = {"kernel": KERNEL, "rng": 0, "dependence": dependence, "progress": False}
    plain = relfit.estimate(data, models, **options).close
    groups = dict.fromkeys(("reference", *models), np.arange(300))
    grouped = relfit.estimate(data, models, groups=groups, **options).close
    np.testing.assert_allclose(np.diag(grouped.second), np.diag(plain.second), rtol=0.2)
    np.testing.assert_allclose(grouped.second[0, 1], plain.second[0, 1], rtol=0.35)
    np.testing.assert_allclose(grouped.trace, plain.trace, rtol=0.1)
    assert grouped.components == pytest.approx(plain.components, rel=0.3)


def test_groups_of_one_row_of_densities_are_rows(rng):
    data = rng.normal(size=(300, 2))
    models = {str(s): relfit.Density(score=lambda x, s=s: s - x, dim=2) for s in (0.0, 0.2)}
    plain = relfit.estimate(data, models, kernel=KERNEL, rng=0).close
    grouped = relfit.estimate(data, models, kernel=KERNEL, rng=0, groups=np.arange(300)).close
    np.testing.assert_allclose(grouped.second, plain.second, rtol=0.2)
    np.testing.assert_allclose(grouped.trace, plain.trace, rtol=0.1)


@pytest.mark.parametrize("dependence", ["independent", "paired"])
def test_it_is_the_variance_of_models_equal_to_the_data(dependence):
    """40 groups of 1 to 7 rows with a correlation of .7: the variance of D over 200 samples, which S2 estimates."""
    groups = np.repeat(np.arange(40), 1 + np.arange(40) % 7)
    values = []
    second = []
    for seed in range(200):
        rng = np.random.default_rng([4, seed])

        def rows(rng=rng):
            return np.sqrt(0.7) * rng.normal(size=(40, 2))[groups] + np.sqrt(0.3) * rng.normal(size=(len(groups), 2))

        joint = relfit.estimate(
            rows(),
            {"a": rows(), "b": rows()},
            kernel=KERNEL,
            rng=0,
            groups=dict.fromkeys(("reference", "a", "b"), groups),
            dependence=dependence,
            progress=False,
        )
        values.append(joint.values)
        second.append(joint.close.second)
    observed = np.var(values, axis=0)
    # The variance of 200 numbers that are skewed is known to about 15%.
    np.testing.assert_allclose(np.diag(np.mean(second, axis=0)), observed, rtol=0.4)
    gap = np.var(np.diff(values, axis=1))
    mean = np.mean(second, axis=0)
    assert mean[0, 0] + mean[1, 1] - 2.0 * mean[0, 1] == pytest.approx(gap, rel=0.4)


def test_a_comparison_of_groups_has_both_parts(rng):
    data, models = samples(rng, 120, 1.0)
    groups = dict.fromkeys(("reference", *models), np.repeat(np.arange(30), 4))
    result = relfit.compare(data, models, kernel=KERNEL, groups=groups, rng=0)
    assert result.variance == "second-order"
    assert result.worse.tolist() == [False, True]
    turned = relfit.compare(data, dict(reversed(models.items())), kernel=KERNEL, groups=groups, rng=0)
    np.testing.assert_allclose(turned.pvalue[::-1], result.pvalue, rtol=1e-6)
