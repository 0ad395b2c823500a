"""The simulations behind docs/evidence/calibration/: cases with known truth, shared estimates, rates and pages."""

import numpy as np
import pytest

from relfit import JointEstimate, compare
from relfit.stats.tests.carve import carve
from studies.calibration import levels, negative, order, pages, power, variants
from studies.calibration.cases import CASES, case
from studies.calibration.verdicts import CLAIMS, verdicts
from studies.study import ALPHA

COPIED = {"problem": "copy", "measure": "mmd", "estimator": "complete", "n": 40}


def small(problem, measure="mmd", estimator="complete", n=40):
    return {"problem": problem, "measure": measure, "estimator": estimator, "n": n}


@pytest.mark.parametrize(
    "setting",
    [small("meanshift-l10"), small("meanshift-l10", "ksd"), small("shared"), small("t₂", "ksd", "linear", 60), COPIED],
    ids=["mmd", "ksd", "shared", "linear", "copy"],
)
def test_verdicts_from_a_shared_estimate_are_those_of_compare(setting):
    own = case(setting["problem"])
    reference, models = own.candidates(setting["measure"], setting["n"], 3)
    found = verdicts(setting, 3)
    for label in CLAIMS:
        test, _, correction = label.partition(" ")
        options = {"correction": correction.lower()} if correction else {}
        result = compare(reference, models, test=test, estimator=setting["estimator"], rng=3, **own.options, **options)
        assert found[label] == [name for name, worse in zip(result.names, result.worse, strict=True) if worse], label


@pytest.mark.parametrize("name", sorted(CASES))
def test_every_case_names_its_models_truly(name):
    own = case(name)
    reference, models = own.candidates("mmd", 30, 0)
    assert own.best | own.worse == set(models)
    assert own.best
    assert not own.best & own.worse
    assert reference.shape == (30, own.dim)
    again = own.candidates("mmd", 30, 0)[1]
    assert all(np.array_equal(models[key], again[key]) for key in models)


def test_rates_by_hand():
    """meanshift-l10, four trials. Trial 1 declares one of nine tied models and the worse one: FPR 1/9, FDR ½.

    Trials 2 and 3 declare the worse one alone; trial 4 nothing. FPR = 1/36, FDR = 1/8, FWER = 1/4, TPR = 3/4.
    """
    found = [["P1", "P10"], ["P10"], ["P10"], []]
    results = [dict.fromkeys(CLAIMS, names) for names in found]
    row = next(row for row in levels.rows(small("meanshift-l10"), results) if row["test"] == "best-set")
    assert row["FPR"][0] == pytest.approx(1 / 36)
    assert row["FDR"][0] == pytest.approx(1 / 8)
    assert row["FWER"][0] == pytest.approx(1 / 4)
    assert row["TPR"][0] == pytest.approx(3 / 4)
    assert row["worst model"] == pytest.approx(1 / 4)
    assert row["error"] == row["FPR"]


def test_twice_the_median_pvalue():
    """Five carvings from one generator: p_(3) · 5/3 of the five p-values, 1 for the model selected most often."""
    joint = JointEstimate(("a", "b", "c"), [0.0, 0.4, 2.0], np.eye(3))
    rng = np.random.default_rng(18)
    single = [carve(joint, ALPHA, rng=rng, draws=100) for _ in range(5)]
    pvalues = variants.median_pvalues(joint, np.random.default_rng(18), repeats=5, draws=100)
    expected = np.minimum(np.median([np.exp(d.log_pvalue) for d in single], axis=0) * 5 / 3, 1.0)
    most_often = np.bincount([d.best for d in single], minlength=3).argmax()
    expected[most_often] = 1.0
    np.testing.assert_allclose(pvalues, expected, rtol=1e-12)


def test_pages_are_written_from_a_few_trials(tmp_path):
    def run(trial, cells):
        return [(cell, [trial(cell, seed) for seed in (0, 1)]) for cell in cells]

    copies = [small(p, m) for p in ("meanshift-l10", "copy", "near-copy") for m in ("mmd", "ksd")]
    graded = [small("graded", n=60), small("graded", "ksd", n=60)]
    results = {
        "levels": run(verdicts, [*copies, *graded]),
        "variance": [({"d": 2, "n": 30}, [{"difference": [0.1, -0.2], "variance": [0.02, 0.03]}])],
        "power": run(power.trial, graded),
        "order": run(order.trial, [small("meanshift-l10")]),
        "negative": run(negative.trial, [{"l": 3, "worse": 1}]),
        "averaging": run(variants.averaging_trial, [small("tied-l10")]),
    }
    pages.write(tmp_path, results)
    names = {path.name for path in (tmp_path / "calibration").iterdir()}
    assert names == {"index.md", "levels.md", "levels.csv", "power.md", "laws.md"} | {
        f"{kind}-{measure}.png" for kind in ("levels", "power") for measure in ("mmd", "ksd")
    }
    written = [(tmp_path / "calibration" / name).read_text("utf-8") for name in names if name.endswith(".md")]
    assert not any("$" in text for text in written)
    assert results["order"][0][1][0]["relpsi"][1] == 0
