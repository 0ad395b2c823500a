"""Every estimator through the public functions: what works, what is refused, what is said."""

import numpy as np
import pytest
from oracle import dense
from refusals import refused

import relfit
from relfit import estimators
from relfit.cli import main
from relfit.data.load import Data
from relfit.estimators import KINDS
from relfit.estimators.designs import lags_of

PAIR_DESIGNS = ("linear", "block", "incomplete")
TESTS = ("relpsi", "relmulti", "best-set", "carve")
TARGET = relfit.Density(score=lambda x: -x, dim=2)
KERNEL = relfit.Gaussian(1.5)
CYCLIC_NOTE = "each row with the"


def draw(n=240, sizes=(240, 240, 240), seed=1):
    rng = np.random.default_rng(seed)
    shifts = (0.0, 0.1, 1.5)
    return rng.normal(size=(n, 2)), {
        f"m{k}": rng.normal(shift, 1, (size, 2)) for k, (shift, size) in enumerate(zip(shifts, sizes, strict=True))
    }


def densities():
    return {f"m{k}": relfit.Density(score=lambda x, m=m: m - x, dim=2) for k, m in enumerate((0.0, 0.1, 1.5))}


def problem(kind):
    reference, samples = draw()
    return {"samples": (reference, samples), "densities": (reference, densities()), "target": (TARGET, samples)}[kind]


@pytest.mark.parametrize("kind", ["samples", "densities", "target"])
@pytest.mark.parametrize("estimator", PAIR_DESIGNS)
@pytest.mark.parametrize("test", TESTS)
def test_every_test_takes_every_estimator(kind, estimator, test):
    reference, models = problem(kind)
    result = relfit.compare(reference, models, test=test, estimator=estimator, rng=3)
    assert np.isfinite(result.covariance).all()
    assert (result.pvalue >= 0).all()
    assert not result.worse[0]
    assert result.worse[2]
    assert result.estimator == estimator
    assert result.near_degeneracy is None
    again = relfit.compare(reference, models, test=test, estimator=estimator, rng=3)
    assert again.to_json() == result.to_json()
    assert relfit.Comparison.from_json(result.to_json()).to_json() == result.to_json()


@pytest.mark.parametrize("estimator", PAIR_DESIGNS)
def test_a_target_takes_shared_samples_and_refuses_what_does_not_apply(estimator):
    _, models = draw()
    options = {"estimator": estimator, "rng": 0}
    own = relfit.estimate(TARGET, models, **options).covariance
    shared = relfit.estimate(TARGET, models, dependence="shared", **options).covariance
    assert (own == np.diag(np.diag(own))).all()
    assert (shared[~np.eye(3, dtype=bool)] != 0).all()
    np.testing.assert_allclose(np.diag(shared), np.diag(own), rtol=0.25)
    refused(lambda: relfit.estimate(TARGET, models, dependence="paired", **options), 'dependence="paired"')
    refused(lambda: relfit.estimate(TARGET, models, dependence="chain", **options), "complete", estimator)


def test_pairs_become_lags_and_left_over_rows_are_said():
    for rows, pairs, lags in ((100, 100, 1), (100, 250, 3), (100, 10**9, 49), (101, 10**9, 50)):
        assert lags_of(rows, pairs) == lags
    reference, models = draw(243, (243, 243, 243))
    (note,) = relfit.estimate(reference, models, estimator=relfit.Block(20), rng=0).notes
    assert "20 blocks of 12 rows; 3 rows are left over" in note
    (note,) = relfit.estimate(reference, models, estimator="incomplete", rng=0).notes
    assert f"6,075 of 29,403 pairs of rows, {CYCLIC_NOTE} 25" in note


def test_block_estimate_by_hand():
    """shuffle=False: the first block of 3 rows holds rows 0, 1, 2."""
    reference, models = draw(60, (60, 60, 60))
    joint = relfit.estimate(
        reference, models, kernel=KERNEL, estimator=relfit.Block(20, shuffle=False), dependence="paired", rng=0
    )
    parts = [slice(3 * k, 3 * k + 3) for k in range(20)]
    each = np.array([dense.mmd_paired(reference[p], [x[p] for x in models.values()], KERNEL)[0] for p in parts])
    np.testing.assert_allclose(joint.values, each.mean(0), atol=1e-14)
    np.testing.assert_allclose(joint.covariance, np.cov(each.T) / 20, atol=1e-15)


# --- numbers of pairs and blocks


def compared(models=3, rows=240, **options):
    reference, _ = draw(rows)
    samples = {f"m{k}": reference + k for k in range(models)}
    return lambda: relfit.compare(reference, samples, rng=0, **options)


@pytest.mark.parametrize(
    ("call", "parts"),
    [
        (compared(estimator=relfit.Incomplete(100)), ["pairs", "at least 240", "got 100", "linear"]),
        (compared(estimator=relfit.Block(14)), ["blocks", "at least 15", "5 for each of 3 models", "got 14"]),
        (compared(estimator=relfit.Block(121)), ["blocks", "at most 120", "got 121"]),
        (compared(7, 60, estimator="block"), ['estimator="block"', "at least 70 rows", "7 models", "got 60"]),
        (compared(estimator="fast"), ["estimator", "incomplete", "'fast'"]),
        (compared(estimator=relfit.Block), ["estimator", "incomplete", "Block"]),
        (
            compared(discrepancy="ume", estimator=relfit.Complete(variance="projection")),
            ["variance='projection'", "ume", "leave it out"],
        ),
        (lambda: relfit.Incomplete(0), ["pairs", "at least 1", "got 0"]),
        (lambda: relfit.Incomplete(2.5), ["pairs", "whole number", "got 2.5"]),
        (lambda: relfit.Incomplete(True), ["pairs", "whole number"]),
        (lambda: relfit.Block(-1), ["blocks", "at least 1", "got -1"]),
        (lambda: relfit.Complete("best"), ["variance", "projection", "'best'"]),
        (lambda: relfit.Complete(variance="corrected"), ['variance="corrected": was removed; use variance="auto"']),
    ],
)
def test_refusals(call, parts):
    refused(call, *parts)


# --- variance


# --- auto


def automatic(rows, device=False):
    """What "auto" chooses for one density and so many rows of ten columns."""
    data = Data(np.empty((rows, 10)), {"a": densities()["m0"]}, ("a",), {}, ())
    return estimators.automatic_estimator(data, KINDS["densities"], "independent", grouped=False, device=device)


def test_auto_says_what_it_picked_and_why(monkeypatch):
    reference, models = draw()
    result = relfit.compare(reference, models, estimator="auto", rng=0)
    assert result.estimator == "complete"
    assert any("the complete one" in note and "240 rows, 3 models and 2 columns" in note for note in result.warnings)
    # Where all pairs would take too long, landmarks are tried on some rows; either way a note has the reason.
    monkeypatch.setattr(estimators, "LONGEST", 1e-9)
    reasons = {
        "landmarks": "the one by landmarks, because all pairs would take about a second",
        "complete": "because landmarks would",
    }
    for kind in ("samples", "densities", "target"):
        chosen = relfit.compare(*problem(kind), estimator="auto", rng=0)
        assert any(reasons[chosen.estimator] in note for note in chosen.warnings)
    chain = relfit.compare(TARGET, models, dependence="chain", estimator="auto", rng=0)
    assert any('dependence="chain"' in note for note in chain.warnings)
    labels = {"reference": np.arange(240) // 2}
    grouped = relfit.compare(reference, densities(), groups=labels, estimator="auto", rng=0)
    assert any("rows in groups" in note for note in grouped.warnings)
    assert 'estimator="auto"' in relfit.estimate(reference, models, estimator="auto", rng=0).notes[0]


def test_auto_goes_by_the_rows_and_the_device(monkeypatch):
    assert automatic(3000)[0] == relfit.Complete()
    estimator, why = automatic(10**6)
    assert estimator == relfit.Landmarks()
    assert "1,000,000 rows" in why
    for module in ("estimators", "estimators.base"):
        monkeypatch.setattr(f"relfit.{module}.usable_cores", lambda: 2)
    assert automatic(10**5)[0].name == "landmarks"
    estimator, why = automatic(10**5, device=True)
    assert estimator == relfit.Complete()
    assert "on a CUDA device" in why


# --- cost


@pytest.mark.parametrize("estimator", ["block", "incomplete"])
def test_scores_are_evaluated_once_for_every_row(estimator):
    reference, _ = draw(700, (1, 1, 1))
    seen = []

    def score(x, shift):
        seen.append(len(x))
        return shift - x

    models = {f"m{k}": relfit.Density(score=lambda x, k=k: score(x, 0.1 * k), dim=2) for k in range(2)}
    relfit.estimate(reference, models, estimator="linear", rng=0)
    before = sum(seen)  # checks of the input, and every row once
    seen.clear()
    relfit.estimate(reference, models, estimator=estimator, rng=0)
    assert sum(seen) <= before


# --- the command line


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    reference, models = draw()
    np.save("r.npy", reference)
    for name, x in models.items():
        np.save(f"{name}.npy", x)
    return ["compare", "r.npy", "m0.npy", "m1.npy", "m2.npy"]


def test_command_line_options_reach_the_estimate(files, capsys):
    def run(*options):
        assert main([*files, "--json", "-", *options]) == 0
        return relfit.Comparison.from_json(capsys.readouterr().out)

    incomplete = run("--estimator", "incomplete", "--pairs", "2400")
    assert (incomplete.estimator, incomplete.pair_count) == ("incomplete", 2400)
    assert any("2,400 of 28,680 pairs" in note for note in incomplete.warnings)
    block = run("--estimator", "block", "--blocks", "30")
    assert (block.estimator, block.block_count) == ("block", 30)
    assert run("--variance", "projection").variance == "projection"
    assert run("--estimator", "auto").estimator == "complete"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--pairs", "1000"], "belongs to --estimator incomplete, got complete; leave it out\n"),
        (["--pairs", "1000", "--estimator", "auto"], "belongs to --estimator incomplete, got auto; leave it out"),
        (
            ["--blocks", "10", "--estimator", "incomplete"],
            "belongs to --estimator block, got incomplete; leave it out\n",
        ),
        (["--variance", "projection", "--estimator", "linear"], "belongs to --estimator complete, got linear; leave"),
        (["--variance", "corrected"], "was removed; use --variance auto, which counts"),
    ],
)
def test_an_option_of_another_estimator_is_refused(files, capsys, options, said):
    assert main([*files, *options]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"relfit: error: {options[0]}")
    assert said in error


@pytest.mark.parametrize(("noise", "noted"), [(0.05, True), (0.1, False)])
def test_samples_that_are_nearly_the_same_rows_are_noted(noise, noted):
    """With a noise of 0.05 the contributions of the rows have a cosine between 0.99 and 0.999, with 0.1 below both."""
    rng = np.random.default_rng(0)
    rows, reference = rng.normal(size=(2, 200, 2))
    models = {"a": rows, "b": rows + noise * rng.normal(size=rows.shape)}
    warnings = relfit.compare(reference, models, rng=0, progress=False).warnings
    assert any("nearly the same rows" in note for note in warnings) == noted
