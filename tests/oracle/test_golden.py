"""relfit against the values that the authors' published code prints; `published_values.json` states its conventions."""

import numpy as np
import pytest

import relfit

KERNELS = {"gauss": relfit.Gaussian(np.sqrt(2.0)), "imq": relfit.IMQ()}


@pytest.fixture(params=KERNELS)
def case(request, golden):
    values = {k: np.array(v) if isinstance(v, list) else v for k, v in golden[request.param].items()}
    data = golden["data"]
    means = [np.array(mean) for mean in data["means"]]
    return {
        "published": values,
        "kernel": KERNELS[request.param],
        "reference": np.array(data["reference"]),
        "samples": [np.array(x) for x in data["models"]],
        "densities": [relfit.Density(score=lambda x, m=mean: m - x, dim=3) for mean in means],
    }


@pytest.mark.parametrize(("name", "models"), [("mmd_linear", "samples"), ("ksd_linear", "densities")])
def test_linear(case, name, models):
    linear = relfit.Linear(shuffle=False)
    joint = relfit.estimate(case["reference"], case[models], kernel=case["kernel"], estimator=linear)
    np.testing.assert_allclose(joint.values, case["published"][name], rtol=0, atol=1e-9)
    np.testing.assert_allclose(joint.covariance, case["published"][f"{name}_cov"], rtol=0, atol=1e-9)


def test_complete_up_to_the_covariance_convention(case):
    """Published: (n−2)/n times the projection form; ours: ((n−1)/(n−2))² times it (the jackknife). MMD is paired."""
    paired = relfit.estimate(case["reference"], case["samples"], kernel=case["kernel"], dependence="paired")
    np.testing.assert_allclose(paired.values, case["published"]["mmd_complete_paired"], rtol=0, atol=1e-9)
    joint = relfit.estimate(case["reference"], case["densities"], kernel=case["kernel"])
    n = len(case["reference"])
    np.testing.assert_allclose(joint.values, case["published"]["ksd_complete"], rtol=0, atol=1e-9)
    projection = joint.covariance * ((n - 2) / (n - 1)) ** 2
    np.testing.assert_allclose(projection * (n - 2) / n, case["published"]["ksd_complete_cov"], rtol=0, atol=1e-9)


def test_relpsi_on_the_published_estimates(case):
    published = case["published"]
    joint = relfit.JointEstimate(("p1", "p2", "p3", "p4"), published["ksd_complete"], published["ksd_complete_cov"])
    result = relfit.decide(joint, test="relpsi")
    assert result.best_index == published["relpsi_ksd_selected"]
    np.testing.assert_allclose(result.pvalue, published["relpsi_ksd_pvalues"], rtol=1e-9)
