"""Choosing the kernel on held-out rows: symmetric in the models, apart from the tested rows, and told to the reader."""

import json

import numpy as np
import pytest
from refusals import refused

import relfit
from relfit.cli import main
from relfit.data.load import load
from relfit.estimators.groups import split
from relfit.estimators.kernel import MOST_HELD
from relfit.kernels.composite import Select
from relfit.kernels.standard import IMQ, Gaussian
from relfit.paper.problems import blobs, draw

TESTS = ["relpsi", "relmulti", "best-set", "carve"]
CANDIDATES = (Gaussian(0.05), Gaussian(1.0), IMQ(5.0))


@pytest.fixture(scope="module")
def data():
    return draw(blobs(), 200, seed=3)


def densities():
    problem = blobs()
    return {name: relfit.Density(score=problem.models[name].score, dim=2) for name in problem.models}


def held_out(reference, models, dependence="independent"):
    """The rows that choose the kernel, and those that are left for the test."""
    return split(load(reference, models, seed=5), 0.2, dependence, 5, "kernel", most=MOST_HELD)


@pytest.mark.parametrize("kind", ["samples", "densities"])
@pytest.mark.parametrize("test", TESTS)
def test_the_order_of_the_models_and_copies_change_nothing(data, kind, test):
    reference, models = data
    models = {**models, "P3": models["P2"] + 0.3} if kind == "samples" else densities()
    first = relfit.compare(reference, models, kernel="select", test=test, rng=5)
    turned = {name: models[name] for name in reversed(models)}
    second = relfit.compare(reference, {**turned, "copy": models["P1"]}, kernel="select", test=test, rng=5)
    assert second.kernel == first.kernel
    assert second.warnings[0] == first.warnings[0]
    index = [second.names.index(name) for name in first.names]
    np.testing.assert_allclose(second.discrepancy[index], first.discrepancy, rtol=1e-9)
    np.testing.assert_array_equal(second.worse[index], first.worse)


@pytest.mark.parametrize("dependence", ["independent", "shared", "paired"])
def test_the_test_sees_only_the_rows_that_are_left(data, dependence):
    reference, models = data
    held, rest = held_out(reference, models, dependence)
    assert len(held.reference) == 40
    for key in models:
        rows = np.concatenate([held.models[key], rest.models[key]])
        assert {tuple(row) for row in rows} == {tuple(row) for row in models[key]}
    selected = relfit.compare(reference, models, kernel=Select(CANDIDATES), dependence=dependence, rng=5)
    given = relfit.compare(rest.reference, rest.models, kernel=selected.kernel, dependence=dependence, rng=5)
    np.testing.assert_allclose(selected.discrepancy, given.discrepancy, rtol=1e-12)
    np.testing.assert_allclose(selected.pvalue, given.pvalue, rtol=1e-9)
    assert selected.sizes == (160, 160, 160)


def test_relmulti_chooses_on_its_selection_rows(data):
    reference, models = data
    selection, testing = split(load(reference, models, seed=5), 0.25, "independent", 5)
    result = relfit.compare(reference, models, kernel=Select(CANDIDATES), test="relmulti", rng=5)
    assert result.sizes == (150, 150, 150)
    given = relfit.estimate(testing.reference, testing.models, kernel=result.kernel, rng=5)
    np.testing.assert_allclose(result.discrepancy, given.values, rtol=1e-12)
    ratios = []
    for kernel in CANDIDATES:
        joint = relfit.estimate(selection.reference, selection.models, kernel=kernel, rng=5)
        contrast = np.array([1.0, -1.0])
        ratios.append(abs(contrast @ joint.values) / np.sqrt(contrast @ joint.covariance @ contrast))
    assert result.kernel == CANDIDATES[int(np.argmax(ratios))]
    assert f"{max(ratios):.2f}, against {min(ratios):.2f}" in result.warnings[0]


def test_the_reader_is_told(data, tmp_path):
    reference, models = data
    result = relfit.compare(reference, models, kernel="select", rng=5)
    text = str(result)
    assert result.bandwidth_rule == "selected"
    assert f"bandwidth {result.kernel.bandwidth:.3g} (selected) · n = 160" in text
    assert "chosen among 5 candidates" in text
    assert "on 40 rows of each sample that were held out from the test" in text
    assert "the kernel also decides which model counts as best" in text
    again = relfit.Comparison.from_json(result.to_json())
    assert again.kernel == result.kernel
    again.report(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "(selected)" in page
    assert "which model counts as best" in page
    assert "on 50 rows of each sample that also selected the best model" in str(
        relfit.compare(reference, models, kernel="select", test="relmulti", rng=5)
    )
    assert "on 40 rows that were held out" in str(relfit.compare(reference, densities(), kernel="select", rng=5))


def test_refusals(data):
    reference, models = data
    refused(lambda: Select((Gaussian(),)), "candidates of Select", "two kernels", "got 1")
    refused(lambda: Select((Gaussian(), "imq")), "candidates of Select", "str")
    refused(lambda: Select((Gaussian(), Gaussian())), "candidates of Select", "twice")
    for fraction in (0.0, 1.0, "half", True):
        refused(lambda fraction=fraction: Select(fraction=fraction), "fraction of Select")
    refused(lambda: relfit.compare(reference, models, kernel="choose"), "kernel", '"select"', "got 'choose'")
    small = {name: x[:60] for name, x in models.items()}
    refused(lambda: relfit.compare(reference, small, kernel="select"), "'P1'", "at least 20", "held out", "got 12")
    one = {"P1": models["P1"]}
    refused(lambda: relfit.estimate(reference, one, kernel="select"), "at least 2 different models")
    rough = Select((Gaussian(), relfit.Matern(0.5)))
    refused(lambda: relfit.compare(reference, densities(), kernel=rough), "KSD needs")
    refused(lambda: relfit.compare(reference, models, kernel="select", preset="kid"), "kernel", "preset")


@pytest.fixture
def files(data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    reference, models = data
    for name, rows in {"data": reference, **models}.items():
        np.save(f"{name}.npy", rows)
    return ["data.npy", "P1.npy", "P2.npy"]


@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        ("matern12", relfit.Matern(0.5, 2.0)),
        ("matern32", relfit.Matern(1.5, 2.0)),
        ("matern52", relfit.Matern(2.5, 2.0)),
        ("rational-quadratic", relfit.RationalQuadratic(2.0)),
        ("multiscale", relfit.MultiScale(bandwidth=2.0)),
        ("imq", IMQ(2.0)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_kernels_of_the_command_line(files, capsys, data, name, kernel):
    assert main(["compare", *files, "--kernel", name, "--bandwidth", "2", "--json", "-"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["discrepancy"] == relfit.compare(*data, kernel=kernel, rng=0).discrepancy.tolist()
