"""D5: a verdict that changes at half or twice the bandwidth is marked wherever it is shown."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

import relfit
from relfit.checks.robustness import near_estimates, scaled, with_scores_kept
from relfit.cli import main
from relfit.compute.backend import Job, NearbyBackend, Together
from relfit.estimators import joint_estimate
from relfit.report.gate import gate_markdown, judge, judge_pair, junit_xml
from relfit.settings import Settings
from relfit.settings.resolve import resolved

MARK = "depends on the bandwidth"


@pytest.fixture(scope="module")
def blobs():
    """Nine clusters: the width of the clusters shows at half the bandwidth of 2.5, not at the bandwidth itself."""
    rng = np.random.default_rng(3)
    centres = 6.0 * np.array([(i, j) for i in range(3) for j in range(3)])

    def drawn(width):
        return centres[rng.integers(9, size=300)] + width * rng.normal(size=(300, 2))

    data = drawn(0.3)
    models = {"good": drawn(0.3), "smeared": drawn(1.2), "other": rng.normal(6.0, 6.0, (300, 2))}
    return data, models


@pytest.fixture(scope="module")
def result(blobs):
    return relfit.compare(*blobs, kernel=relfit.Gaussian(2.5), rng=0, progress=False)


def test_the_field_and_the_report_are_what_comparisons_at_these_bandwidths_say(blobs, result, tmp_path):
    """D5."""
    worse = [result.worse]
    for factor in (0.5, 2.0):
        near = relfit.compare(*blobs, kernel=relfit.Gaussian(2.5 * factor), rng=0, progress=False)
        worse.append(near.worse)
    expected = tuple((np.array(worse) == worse[0]).all(axis=0).tolist())
    assert result.robust_to_bandwidth == expected == (True, False, True)
    # D5: with the data it says what the verdict becomes, without them that it depends on the bandwidth.
    result.report(tmp_path / "with.html", blobs)
    result.report(tmp_path / "without.html")
    assert "significantly worse at half the bandwidth</span>" in (tmp_path / "with.html").read_text()
    assert f"{MARK}</span>" in (tmp_path / "without.html").read_text()


def test_every_output_marks_the_verdict(blobs, result):
    """D5: terminal, JSON, Markdown, LaTeX, CSV, JUnit, the gate's sentence and the note."""
    line = next(line for line in str(result).splitlines() if line.startswith("smeared"))
    assert line.endswith(f"({MARK})")
    assert str(result).count(f"({MARK})") == 1
    assert result.to_dict()["robust_to_bandwidth"] == [True, False, True]
    assert relfit.Comparison.from_json(result.to_json()).robust_to_bandwidth == (True, False, True)
    assert [row["robust_to_bandwidth"] for row in result.rows()] == [True, False, True]
    for text in (result.to_markdown(), result.to_latex(), result._repr_html_()):
        assert text.count(MARK) == 1
    gate = judge(result, "smeared")
    assert gate.sentence.endswith(f"the verdict on smeared {MARK}.")
    assert MARK not in judge(result, "other").sentence
    assert f"the verdict on smeared {MARK}" in judge(result, "other", "smeared").sentence
    assert MARK in gate_markdown(result, gate).splitlines()[0]
    cases = {case.get("name"): case for case in ElementTree.fromstring(junit_xml(result)).iter("testcase")}
    assert MARK in cases["smeared"].findtext("system-out")
    assert MARK not in cases["good"].findtext("system-out")
    notes = [
        note for note in result.warnings if note.startswith("smeared is significantly worse at half the bandwidth")
    ]
    assert len(notes) == 1
    assert result.doubts == ()
    data, models = blobs
    pair = relfit.compare_pair(data, models["smeared"], models["good"], kernel=relfit.Gaussian(2.5), rng=0)
    assert pair.robust_to_bandwidth is False
    assert judge_pair(pair).sentence.endswith(f"this verdict {MARK}.")


@pytest.mark.parametrize("kind", ["mmd", "ksd", "target", "tilted"])
@pytest.mark.parametrize("test", ["best-set", "relpsi", "carve", "relmulti"])
def test_other_order_same_answer(kind, test):
    rng = np.random.default_rng(5)
    data = rng.normal(size=(120, 2))
    shifts = {"a": 0.0, "b": 0.25, "c": 0.35, "d": 1.0}
    options = {"test": test, "rng": 2, "progress": False}
    if kind == "ksd":
        models = {k: relfit.Density(score=lambda x, m=m: m - x) for k, m in shifts.items()}
    else:
        models = {k: rng.normal(m, 1.0, (120, 2)) for k, m in shifts.items()}
    if kind == "target":
        data = relfit.Density(score=lambda x: -x, dim=2)
    if kind == "tilted":
        options["kernel"] = relfit.Tilted(relfit.Gaussian(), relfit.Decay())
    first = relfit.compare(data, models, **options)
    again = relfit.compare(data, models, **options)
    turned = relfit.compare(data, dict(reversed(models.items())), **options)
    assert first.robust_to_bandwidth is not None
    assert first.robust_to_bandwidth == again.robust_to_bandwidth == turned.robust_to_bandwidth[::-1]


def test_what_has_no_other_bandwidth_is_not_computed(blobs):
    data, models = blobs
    options = {"rng": 0, "progress": False}
    for more in (
        {"kernel": relfit.Polynomial()},
        {"estimator": "linear"},
        {"discrepancy": "ume"},
        {"kernel": [relfit.Gaussian(1.0), relfit.Gaussian(2.0)]},
    ):
        found = relfit.compare(data, models, **options, **more)
        assert found.robust_to_bandwidth is None
        assert MARK not in str(found)
    losses = np.random.default_rng(0).normal(size=(60, 2))
    assert relfit.compare_losses(losses, names=["a", "b"], higher_is_better=False).robust_to_bandwidth is None


def test_what_the_page_says_the_terminal_says_too(blobs, tmp_path, monkeypatch, capsys):
    """Where all rows would take long, a command with a page tells what the page's rows show."""
    monkeypatch.setattr("relfit.checks.robustness.LONGEST", 1e-9)
    monkeypatch.chdir(tmp_path)
    data, models = blobs
    for name, rows in {"data": data, **models}.items():
        np.save(f"{name}.npy", rows)
    command = ["compare", "data.npy", "good.npy", "smeared.npy", "other.npy", "--bandwidth", "2.5", "--gate", "smeared"]
    assert main([*command, "--json", "without.json"]) == 0
    assert MARK not in capsys.readouterr().out
    for most, said in ((1000, "Note: smeared is"), (280, "Note: by 280 rows of each sample, smeared is")):
        monkeypatch.setattr("relfit.report.recall.MOST_ROWS", most)
        assert main([*command, "--json", "with.json", "--html", "page.html"]) == 0
        out = capsys.readouterr().out
        assert f"({MARK})" in out
        assert said in out
        assert f"the verdict on smeared {MARK}." in out
        assert relfit.Comparison.from_json("with.json").robust_to_bandwidth == (True, False, True)
    assert relfit.Comparison.from_json("without.json").robust_to_bandwidth is None


def drawn(rng, shifts, sizes):
    """Samples in three columns."""
    return {name: rng.normal(shift, 1.0, (n, 3)) for (name, shift), n in zip(shifts.items(), sizes, strict=True)}


SHIFTS = {"a": 0.0, "b": 0.1, "c": 0.3}
CASES = {
    "gaussian": {},
    "imq": {"kernel": relfit.IMQ("median")},
    "multiscale": {"kernel": relfit.MultiScale()},
    "paired": {"dependence": "paired"},
    "shared": {"dependence": "shared"},
    "sizes": {"sizes": (150, 90, 210)},
    "groups": {"groups": 30},
    "memory": {"compute": relfit.Compute(memory="4GB")},
    "outlier": {"outlier": 1e4},
    "ksd": {"kind": "ksd"},
    "ksd imq": {"kind": "ksd", "kernel": relfit.IMQ("median")},
    "ksd groups": {"kind": "ksd", "groups": 30},
    "ksd memory": {"kind": "ksd", "compute": relfit.Compute(memory="4GB")},
    "ksd outlier": {"kind": "ksd", "outlier": 1e2},
    "target": {"kind": "target"},
    "target sizes": {"kind": "target", "sizes": (150, 90, 210)},
    "target shared": {"kind": "target", "dependence": "shared"},
    "target chain": {"kind": "target", "dependence": "chain"},
    "target imq": {"kind": "target", "kernel": relfit.IMQ("median")},
}


def case(name):
    """The reference, the models and the options of a case."""
    options = dict(CASES[name])
    rng = np.random.default_rng(1)
    kind = options.pop("kind", "mmd")
    outlier = options.pop("outlier", None)
    models = drawn(rng, SHIFTS, options.pop("sizes", (150, 150, 150)))
    data = rng.normal(size=(150, 3))
    groups = options.pop("groups", None)
    if groups is not None:
        codes = np.arange(150) % groups
        options["groups"] = codes if kind == "ksd" else {"reference": codes} | dict.fromkeys(models, codes)
    if outlier is not None:
        data[0] = models["a"][0] = outlier
    if kind == "ksd":
        models = {name: relfit.Density(score=lambda x, m=m: m - x) for name, m in SHIFTS.items()}
    if kind == "target":
        data = relfit.Density(score=lambda x: -x, dim=3)
    return data, models, {**options, "rng": 0, "progress": False}


@pytest.mark.parametrize("name", CASES)
def test_estimates_are_those_of_separate_comparisons(name):
    """In single precision, to 1e-4 of the standard errors; what is far out is computed in double precision."""
    data, models, options = case(name)
    with resolved(data, models, Settings.of("compare", options), "") as plan:
        kept = with_scores_kept(plan)
        main = joint_estimate(kept.data, kept.estimate)
        near = near_estimates(kept)
        kernels = [scaled(plan.estimate.kernel, factor) for factor in (0.5, 2.0)]
        same, *exact = [
            joint_estimate(plan.data, replace(plan.estimate, kernel=kernel))
            for kernel in (plan.estimate.kernel, *kernels)
        ]
    for one, other in zip(near, exact, strict=True):
        np.testing.assert_allclose(one.values, other.values, atol=1e-4 * other.standard_error.min())
        np.testing.assert_allclose(one.covariance, other.covariance, rtol=1e-4, atol=1e-4 * other.covariance.max())
        assert (one.close is None) == (other.close is None)
        if one.close is not None:
            np.testing.assert_allclose(one.close.second, other.close.second, rtol=1e-3)
    np.testing.assert_array_equal(main.values, same.values)
    np.testing.assert_array_equal(main.covariance, same.covariance)


def test_sums_by_hand():
    """Rows 0, 1 and 3 on a line with the lengths 2 and ½: exp(−r²/8) and its 16th power."""
    kernels = relfit.Gaussian(2.0), relfit.Gaussian(0.5)
    rows = np.array([[0.0], [1.0], [3.0]])
    for precision in ("double", "single"):
        backend = NearbyBackend(precision)
        together = Together(kernels)
        right = dict.fromkeys(together.names, np.ones(3))
        products = backend.block_sums(Job(together, backend.points(together, rows), None, right, squares=True))
        for k, kernel in enumerate(kernels):
            phi = kernel.phi(np.square(rows - rows.T)) - np.eye(3)
            np.testing.assert_allclose(products.rows[k, "phi"], phi.sum(axis=1), rtol=1e-6)
            assert products.squares[k] == pytest.approx(np.square(phi).sum(), rel=1e-6)
