"""Covariances and degrees of freedom of means over clusters and series, from their definitions."""

import math

import numpy as np
import pytest
from scipy.signal import lfilter

import relfit
from relfit.stats.dependence import autocorrelation, cluster_freedom, series_law
from relfit.stats.joint import gram

# ── clusters ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def clustered(rng, sizes, count=3):
    members = np.repeat(np.arange(len(sizes)), sizes)
    return rng.normal(size=(len(sizes), count))[members] + rng.normal(size=(len(members), count)), members


def totals(losses, members):
    sums = np.zeros((members.max() + 1, losses.shape[1]))
    np.add.at(sums, members, losses - losses.mean(axis=0))
    return sums / len(losses)


def test_clusters_of_one_size(rng):
    """CR2 is G/(G − 1) Σ U_g U_gᵀ, with G − 1 degrees of freedom: h_g = 1/G for all."""
    losses, members = clustered(rng, [5] * 8)
    joint = relfit.from_losses(losses, groups=members)
    sums = totals(losses, members)
    np.testing.assert_allclose(joint.covariance, 8 / 7 * sums.T @ sums, rtol=1e-12)
    np.testing.assert_allclose(joint.freedom, 7.0, rtol=1e-9)


def test_clusters_of_one_item_are_items(rng):
    losses = rng.exponential(size=(30, 3))
    joint = relfit.from_losses(losses, groups=np.arange(30))
    np.testing.assert_allclose(joint.covariance, relfit.from_losses(losses).covariance, rtol=1e-12)
    np.testing.assert_allclose(joint.freedom, 29.0, rtol=1e-9)


def test_clusters_by_whole_matrices(rng):
    """The residuals of a cluster are multiplied by (I − H_gg)^−½, H = 11ᵀ/n; ν = tr(B)²/tr(B²) with B = LΣLᵀ."""
    sizes = np.array([1, 2, 3, 5, 8, 13])
    losses, members = clustered(rng, sizes)
    n, count = len(losses), len(sizes)
    centring = np.eye(n) - 1.0 / n
    linear = np.zeros((count, n))
    for g in range(count):
        there = np.flatnonzero(members == g)
        values, vectors = np.linalg.eigh(np.eye(len(there)) - 1.0 / n)
        linear[g] = ((vectors / np.sqrt(values)) @ vectors.T).sum(axis=0) @ centring[there] / n
    joint = relfit.from_losses(losses, groups=members)
    np.testing.assert_allclose(joint.covariance, (linear @ losses).T @ (linear @ losses), rtol=1e-9)
    difference = losses[:, 0] - losses[:, 2]
    means = np.array([difference[members == g].mean() for g in range(count)])
    within = np.square(difference - means[members]).sum() / (n - count)
    among = (sizes * np.square(means - difference.mean())).sum() / (count - 1)
    between = max(0.0, among - within) / ((n - (sizes**2).sum() / n) / (count - 1))
    covariance = within * np.eye(n) + between * (members[:, None] == members)
    b = linear @ covariance @ linear.T
    assert joint.freedom[0, 2] == pytest.approx(np.trace(b) ** 2 / (b * b).sum(), rel=1e-9)


def test_laws_of_clusters(rng):
    """Scores in other units and models in another order have the same degrees of freedom."""
    losses, members = clustered(rng, [2, 4, 9, 3, 20, 6])
    joint = relfit.from_losses(losses, groups=members)
    order = [2, 0, 1]
    other = relfit.from_losses(1e3 * losses[:, order] + 5.0, groups=members)
    np.testing.assert_allclose(other.freedom, joint.freedom[np.ix_(order, order)], rtol=1e-8)
    np.testing.assert_allclose(other.covariance, 1e6 * joint.covariance[np.ix_(order, order)], rtol=1e-8)
    assert (joint.freedom < 5.0).all()
    same = np.repeat(losses[:, :1], 2, axis=1)
    assert cluster_freedom(same - same.mean(axis=0), members)[0, 1] == 5.0


def test_a_stratum_of_one_cluster_has_no_variance(rng):
    strata = np.repeat([0, 1], 30)
    groups = np.r_[np.zeros(30), np.arange(30)]
    with pytest.raises(relfit.InputError, match="at least 2 items"):
        relfit.from_losses(rng.normal(size=(60, 2)), strata=strata, groups=groups)


@pytest.mark.parametrize(("count", "noted"), [(6, True), (12, True), (25, False)])
def test_few_clusters_are_noted(rng, count, noted):
    losses, members = clustered(rng, [5] * count)
    shown = relfit.compare_losses(losses, groups=members, higher_is_better=False, rng=0).warnings
    assert any(f"{count} groups of items leave about {count - 1} degrees" in note for note in shown) == noted


# ── series ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def ar(rng, n, count, rho):
    return lfilter([math.sqrt(1.0 - rho**2)], [1.0, -rho], rng.normal(size=(n + 200, count)), axis=0)[200:]


def test_autocorrelation_by_hand():
    """Σ x_t x_{t+1}/Σ x_t² = (1·1 + 1·(−1) + (−1)(−1))/4 = 1/4, and (1 + 3/4)/4 more."""
    rows = np.array([[1.0], [1.0], [-1.0], [-1.0]])
    assert autocorrelation(rows) == pytest.approx(0.25 + 1.75 / 4)
    assert autocorrelation(np.zeros((5, 2))) == 0.0


def test_the_covariance_is_no_smaller_than_that_of_prewhitened_rows(rng):
    psi = ar(rng, 80, 1, 0.5)
    psi -= psi.mean(axis=0)
    law = series_law(psi)
    rho = autocorrelation(psi)
    rows = (psi[1:] - rho * psi[:-1]) / (1.0 - rho)
    short = gram(rows - rows.mean(axis=0), 4)
    assert (law.lags, law.autocorrelation) == (4, rho)
    assert law.covariance[0, 0] == pytest.approx(max(short[0, 0], gram(psi, 19)[0, 0]))


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.8, -0.4])
def test_the_variance_of_an_ar1_is_known(rho):
    """n V tends to (1 + ρ)/(1 − ρ), that of white noise to 1."""
    psi = ar(np.random.default_rng(3), 20_000, 3, rho)
    law = series_law(psi - psi.mean(axis=0))
    np.testing.assert_allclose(20_000 * np.diag(law.covariance), (1.0 + rho) / (1.0 - rho), rtol=0.25)
    assert law.autocorrelation == pytest.approx(rho, abs=0.02)


def test_degrees_of_freedom_of_a_series(rng):
    """1/ν = (L + 1)/(1.5 n) + (1 + ρ)/((1 − ρ) n (l − 1)), or 1.5 n/(K + 1) if that is less: L = 4 and K = 14."""
    psi = ar(rng, 60, 6, 0.8)
    law = series_law(psi - psi.mean(axis=0))
    rho = law.autocorrelation
    own = 1.0 / (5 / 90 + (1.0 + rho) / (1.0 - rho) / (60 * 5))
    off = law.freedom[~np.eye(6, dtype=bool)]
    assert np.isclose(off, own).any()
    assert (np.isclose(off, own) | np.isclose(off, min(own, 6.0))).all()


def test_laws_of_series(rng):
    """Other units, models in another order, and what all models have in common change no difference."""
    losses = ar(rng, 100, 4, 0.6)
    joint = relfit.from_losses(losses, dependence="series")
    order = [3, 1, 0, 2]
    other = relfit.from_losses(1e3 * losses[:, order], dependence="series")
    np.testing.assert_allclose(other.covariance, 1e6 * joint.covariance[np.ix_(order, order)], rtol=1e-8)
    np.testing.assert_allclose(other.freedom, joint.freedom[np.ix_(order, order)], rtol=1e-8)
    assert np.linalg.eigvalsh(joint.covariance)[0] > 0.0
    again = series_law(losses - losses.mean(axis=0)).covariance
    np.testing.assert_allclose(joint.covariance, again, rtol=1e-12)


def test_constant_differences_of_a_series_stay_constant(rng):
    losses = ar(rng, 60, 2, 0.5)
    losses = np.column_stack([losses, losses[:, 0] + 3.0])
    result = relfit.compare_losses(losses, dependence="series", higher_is_better=False, rng=0)
    assert result.status[2] == ("deterministic",)
    assert bool(result.worse[2])


# ── levels ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("kind", "bound"), [("clusters", 0.065), ("series", 0.05)])
def test_few_clusters_and_short_series_keep_the_level(kind, bound):
    """20 clusters of 1 to 40 items lost a best one of five models in .11 of the trials, and AR(.8) of ten in .21."""
    trials = 200
    lost = 0
    for seed in range(trials):
        rng = np.random.default_rng([9, seed])
        if kind == "clusters":
            losses, members = clustered(rng, np.linspace(1, 40, 20).round().astype(int), 5)
            options = {"groups": members}
        else:
            losses, options = ar(rng, 60, 10, 0.8), {"dependence": "series"}
        lost += relfit.compare_losses(losses, higher_is_better=False, rng=seed, **options).worse.any()
    assert lost / trials <= bound + 3.0 * math.sqrt(bound * (1.0 - bound) / trials)
