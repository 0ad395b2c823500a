"""Rows in groups: against loops over pairs, against the ungrouped estimates, and against the truth by simulation."""

import numpy as np
import pytest
from refusals import refused

import relfit
from relfit.estimators.sums import same_group

KERNEL = relfit.Gaussian(1.3)
NAMES = ("a", "b")


def k(x, y):
    return float(np.exp(-np.sum((x - y) ** 2) / (2 * 1.3**2)))


def looped(x, y, labels_x, labels_y, value=k):
    """Mean of k over pairs with different labels (None: all pairs), and each row's share in the deviation from it."""
    total, pairs = 0.0, 0
    sums, counts = np.zeros(len(x)), np.zeros(len(x))
    for i in range(len(x)):
        for j in range(len(y)):
            if labels_x is None or labels_x[i] != labels_y[j]:
                sums[i] += value(x[i], y[j])
                counts[i] += 1
    total, pairs = sums.sum(), counts.sum()
    return total / pairs, (sums - counts * total / pairs) / pairs


def by_label(parts, labels, order):
    return np.array([parts[labels == label].sum(axis=0) for label in order])


def covariance(sums):
    return sums.T @ sums * len(sums) / (len(sums) - 1)


def grouped_rows(seed, groups, most, d=2):
    """Rows in `groups` groups of 1 to `most` rows, in random order, with their labels."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(groups), rng.integers(1, most + 1, groups))
    rows = rng.normal(size=(groups, d))[labels] + 0.3 * rng.normal(size=(len(labels), d))
    order = rng.permutation(len(labels))
    return rows[order], labels[order]


@pytest.mark.parametrize("dependence", ["independent", "shared", "paired"])
def test_mmd_against_loops_over_pairs(dependence):
    r, lr = grouped_rows(0, 22, 3)
    samples = {name: grouped_rows(seed, 22, 4) for seed, name in enumerate(NAMES, 1)}
    models = {name: x + 0.2 for name, (x, _) in samples.items()}
    labels = {"reference": lr, **{name: own for name, (_, own) in samples.items()}}
    joint = relfit.estimate(r, models, kernel=KERNEL, dependence=dependence, groups=labels, rng=0)
    paired = dependence == "paired"
    within_r, parts_r = looped(r, r, lr, lr)
    groups = np.unique(lr)
    reference, own, values = [], [], []
    for name in NAMES:
        x, lx = models[name], labels[name]
        within, parts = looped(x, x, lx, lx)
        across, parts_x = looped(x, r, lx if paired else None, lr)
        _, cross_r = looped(r, x, lr if paired else None, lx)
        values.append(within + within_r - 2 * across)
        reference.append(by_label(2 * parts_r - 2 * cross_r, lr, groups))
        own.append(by_label(2 * parts - 2 * parts_x, lx, groups))
    reference, own = np.stack(reference, axis=1), np.stack(own, axis=1)
    if paired:
        expected = covariance(reference + own) * (21 / 20) ** 2  # the jackknife's, with 22 groups
    elif dependence == "shared":
        expected = covariance(reference) + covariance(own)
    else:
        expected = covariance(reference) + np.diag(np.diag(covariance(own)))
    np.testing.assert_allclose(joint.values, values, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(joint.covariance, expected, rtol=1e-9)
    assert joint.groups == (22, 22, 22)


def stein(mean):
    """u of N(mean, I) under the Gaussian kernel, written out."""

    def u(x, y):
        b2, gap, d = 1.3**2, x - y, len(x)
        s, t = mean - x, mean - y
        return k(x, y) * (s @ t + (s - t) @ gap / b2 + d / b2 - gap @ gap / b2**2)

    return u


def test_ksd_against_loops_over_pairs_and_of_samples_to_a_target():
    x, labels = grouped_rows(3, 25, 4)
    means = [np.zeros(2), np.array([0.5, 0.0])]
    models = {name: relfit.Density(score=lambda z, m=m: m - z, dim=2) for name, m in zip(NAMES, means, strict=True)}
    joint = relfit.estimate(x, models, kernel=KERNEL, groups=labels, rng=0)
    found = [looped(x, x, labels, labels, stein(mean)) for mean in means]
    sums = np.stack([by_label(2 * parts, labels, np.unique(labels)) for _, parts in found], axis=1)
    factor = (24 / 23) ** 2  # the jackknife's, with 25 groups
    np.testing.assert_allclose(joint.values, [value for value, _ in found], rtol=1e-9)
    np.testing.assert_allclose(joint.covariance, covariance(sums) * factor, rtol=1e-9)
    # As the KSD of one density to the sample, whatever way round it is asked; shared samples covary by label.
    (x, lx), (y, ly) = grouped_rows(4, 24, 3), grouped_rows(5, 24, 3)
    target = relfit.Density(score=lambda z: -z, dim=2)
    labels = {"a": lx, "b": ly}
    joint = relfit.estimate(target, {"a": x, "b": y}, kernel=KERNEL, groups=labels, rng=0)
    each = [relfit.estimate(z, {"p": target}, kernel=KERNEL, groups=own, rng=0) for z, own in ((x, lx), (y, ly))]
    np.testing.assert_allclose(joint.values, [e.values[0] for e in each], rtol=1e-10)
    np.testing.assert_allclose(joint.covariance, np.diag([e.covariance[0, 0] for e in each]), rtol=1e-9)
    shared = relfit.estimate(target, {"a": x, "b": y}, kernel=KERNEL, groups=labels, dependence="shared", rng=0)
    np.testing.assert_allclose(np.diag(shared.covariance), np.diag(joint.covariance), rtol=1e-9)
    assert shared.covariance[0, 1] != 0.0


@pytest.mark.parametrize("dependence", ["independent", "shared", "paired"])
def test_one_row_per_group_is_the_usual_estimate(dependence):
    rng = np.random.default_rng(6)
    r, models = rng.normal(size=(40, 2)), {name: rng.normal(0.3, 1, (40, 2)) for name in NAMES}
    labels = dict.fromkeys(("reference", *NAMES), rng.permutation(40))
    if dependence != "independent":
        labels = dict.fromkeys(("reference", *NAMES), np.arange(40))
    plain = relfit.estimate(r, models, kernel=KERNEL, dependence=dependence, rng=0)
    grouped = relfit.estimate(r, models, kernel=KERNEL, dependence=dependence, groups=labels, rng=0)
    np.testing.assert_allclose(grouped.values, plain.values, rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(grouped.covariance, plain.covariance, rtol=1e-10)


def test_same_group_is_every_pair_once_and_relmulti_splits_whole_groups():
    x, y = np.array([0, 2, 1, 0, 2]), np.array([2, 0, 0, 3])
    found = sorted((int(i), int(j)) for a, b in same_group(x, y) for i, j in zip(a, b, strict=True))
    assert found == [(i, j) for i in range(5) for j in range(4) if x[i] == y[j]]
    rng = np.random.default_rng(11)
    labels = np.repeat(np.arange(60), 3)
    r = rng.normal(size=(60, 2))[labels] + 0.01 * rng.normal(size=(180, 2))
    models = {"a": relfit.Density(score=lambda z: -z), "b": relfit.Density(score=lambda z: 1.5 - z)}
    result = relfit.compare(r, models, test="relmulti", groups=labels, rng=0)
    assert result.groups == (45,)
    assert result.sizes == (135,)
    assert "n = 135 in 45 groups for testing" in str(result)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (dict(groups=[0] * 60), "mapping"),
        (dict(groups={"reference": np.arange(59)}), "expected 60 labels"),
        (dict(groups={"nobody": np.arange(60)}), "names of samples"),
        (dict(groups={"a": np.zeros((60, 2))}), "one label per row"),
        (dict(groups={"a": 3}), "one label per row"),
        (dict(groups={"a": [None, *range(59)]}), "got none in row 0"),
        (dict(groups={"a": np.r_[np.nan, np.arange(59)]}), "got none in row 0"),
        (dict(groups={"a": np.arange(60) % 7}), "at least 20 groups in model 'a'"),
        (dict(groups={"a": np.arange(60)}, dependence="paired"), "labels for the reference too"),
        (dict(groups={"a": np.arange(60)}, estimator="linear"), "estimator"),
        (dict(groups={"a": np.arange(60)}, kernel="select"), "kernel"),
    ],
)
def test_refusals(options, words):
    rng = np.random.default_rng(0)
    data = {name: rng.normal(size=(60, 2)) for name in ("r", *NAMES)}
    refused(lambda: relfit.compare(data["r"], {"a": data["a"], "b": data["b"]}, rng=0, **options), words, "groups")
