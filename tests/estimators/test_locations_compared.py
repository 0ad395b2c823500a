"""discrepancy="ume" and "fssd" through the public functions: the choice of locations, every test, refusals."""

import numpy as np
import pytest
from refusals import refused

import relfit
from relfit.cli import main
from relfit.paper.problems import draw, mean_shift
from relfit.util.random import stream

TESTS = ("relpsi", "relmulti", "best-set", "carve")
PROBLEM = mean_shift(np.array([[0.3, 0.0], [0.0, 0.4], [1.5, 0.0]]))


def data(n=300, seed=0, sizes=None):
    return draw(PROBLEM, n, seed, sizes)


def densities():
    return {name: relfit.Density(score=PROBLEM.models[name].score, dim=2) for name in PROBLEM.models}


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("measure", ["ume", "fssd"])
@pytest.mark.parametrize("choose", ["data", "optimise"])
def test_every_test_finds_the_far_model(test, measure, choose):
    reference, models = data(500)
    wanted = (relfit.UME if measure == "ume" else relfit.FSSD)(locations=5, choose=choose)
    result = relfit.compare(
        reference, models if measure == "ume" else densities(), discrepancy=wanted, test=test, rng=1
    )
    assert result.measure == measure
    assert result.estimator == "complete"
    assert result.locations.shape == (5, 2)
    assert result.worse[2]
    assert not result.worse[result.best_index]
    used = {"ume": 3, "fssd": 5}[measure] if choose == "data" else 100
    left = 500 - used
    assert result.sizes[0] == (left - round(0.25 * left) if test == "relmulti" else left)
    said = " ".join(result.warnings)
    sample = "each sample" if measure == "ume" else "the reference"
    assert f"{used} rows of {sample}, used for this, are left out of the test" in said
    again = relfit.Comparison.from_json(result.to_json())
    np.testing.assert_array_equal(again.locations, result.locations)


@pytest.mark.parametrize("choose", ["data", "optimise"])
def test_fssd_is_tested_on_the_rows_that_did_not_choose(choose):
    """With the locations given and the rows used taken out beforehand the numbers are the same."""
    reference, _ = data()
    first = relfit.compare(reference, densities(), discrepancy=relfit.FSSD(locations=4, choose=choose), rng=3)
    used = 300 - first.sizes[0]
    rows = stream(3, "locations", "reference").permutation(300)
    assert all((reference[rows[:used]] == v).all(axis=1).any() for v in first.locations)
    given = relfit.FSSD(first.kernel, locations=first.locations)
    second = relfit.compare(np.delete(reference, rows[:used], axis=0), densities(), discrepancy=given, rng=77)
    np.testing.assert_allclose(second.discrepancy, first.discrepancy, rtol=1e-10)
    np.testing.assert_allclose(second.covariance, first.covariance, rtol=1e-9)
    assert "given" in second.warnings[0]


def test_ume_locations_are_rows_that_left_their_sample():
    reference, models = data()
    result = relfit.compare(reference, models, discrepancy=relfit.UME(locations=7), rng=5)
    assert set(result.sizes) == {296}
    pool = np.concatenate([reference, *models.values()])
    found = [np.flatnonzero((pool == v).all(axis=1)) for v in result.locations]
    assert [len(rows) for rows in found] == [1] * 7
    assert sum(int(rows[0]) < 300 for rows in found) == 4
    rest = relfit.compare(reference, models, discrepancy=relfit.UME(result.kernel, result.locations), rng=5)
    assert rest.sizes[0] == 300
    assert (rest.discrepancy != result.discrepancy).all()


def test_samples_of_unequal_sizes_and_those_that_belong_together():
    reference, models = data(200, sizes={"P1": 120, "P3": 400})
    result = relfit.compare(reference, models, discrepancy="ume", rng=0)
    assert result.sizes == (195, 115, 195, 395)
    assert result.worse[2]
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(200, 2))
    together = {name: noise + shift for name, shift in {"a": 0.1, "b": 0.2, "c": 1.0}.items()}
    alone, shared, paired = (
        relfit.compare(reference, together, discrepancy="ume", dependence=dependence, rng=0)
        for dependence in ("independent", "shared", "paired")
    )
    np.testing.assert_array_equal(shared.discrepancy, alone.discrepancy)
    assert shared.difference_standard_error[1] < 0.7 * alone.difference_standard_error[1]
    assert paired.locations.shape == (10, 2)
    assert paired.sizes == (195,) * 4


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"discrepancy": "fssd"}, ["discrepancy='fssd': expected densities (relfit.Density) as models, got samples"]),
        ({"discrepancy": relfit.UME(locations=np.zeros((2, 3)))}, ["locations: expected 2 columns ", ", got 3"]),
        ({"discrepancy": relfit.UME(locations=700)}, ["reference: expected at least 20 rows ", "left for the test"]),
        (
            {"discrepancy": relfit.UME(choose="optimise", fraction=0.01)},
            ["reference: expected at least 20 ", "held out"],
        ),
    ],
)
def test_refusals(options, said):
    refused(lambda: relfit.compare(*data(), rng=0, **options), *said)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"locations": 0}, "locations: expected a whole number of at least 1, got 0"),
        ({"locations": "ten"}, "locations: expected a number or an array"),
        ({"locations": [[np.nan, 0.0]]}, "locations: expected finite numbers"),
        ({"choose": "best"}, "choose: expected one of data, optimise"),
        ({"fraction": 1.5}, "fraction: expected a number between 0 and 1"),
        ({"locations": [[0.0]], "choose": "optimise"}, "choose: cannot be combined with given locations"),
    ],
)
def test_values_are_checked_when_made(given, said):
    refused(lambda: relfit.UME(**given), said)
    refused(lambda: relfit.FSSD(**given), said)


def test_command_line(tmp_path, capsys):
    reference, models = data()
    files = []
    for name, rows in {"data": reference, **models}.items():
        files.append(str(tmp_path / f"{name}.npy"))
        np.save(files[-1], rows)
    assert main(["compare", *files, "--discrepancy", "ume", "--locations", "4"]) == 0
    out = capsys.readouterr().out
    assert "UME²" in out
    assert "4 locations" in out
    assert main(["pair", *files[:3], "--discrepancy", "ume"]) == 0
    assert "RelUME · UME²" in capsys.readouterr().out
    assert main(["compare", *files, "--locations", "4"]) == 2
    assert "--locations: belongs to --discrepancy ume, fssd" in capsys.readouterr().err
    assert main(["compare", *files, "--discrepancy", "nystroem"]) == 2
    assert "--discrepancy nystroem: was removed; use --estimator landmarks" in capsys.readouterr().err
