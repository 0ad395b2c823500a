"""Tables in which models lack scores of some items: left out, adjusted for, or refused."""

import gzip
import time
from pathlib import Path

import numpy as np
import pytest
from commands import refused_line
from refusals import refused

import relfit
from relfit.cli import main
from relfit.estimators.holes import additive_means

REAL = Path(__file__).parents[3] / "shared" / "data" / "real" / "flusight_wis.csv.gz"


def with_holes(rng, rows, part=0.3):
    return np.where(rng.random(rows.shape) < part, np.nan, rows)


def test_complete_tables_are_not_touched(rng):
    """Bit for bit, with every choice; and the formula with holes gives the same for them."""
    rows = rng.normal(size=(60, 4))
    groups = np.repeat(np.arange(12), [2, 3, 4, 5, 6, 7, 3, 4, 5, 6, 7, 8])
    plain = relfit.from_losses(rows)
    for missing in ("common", "adjust", "refuse"):
        joint = relfit.from_losses(rows, missing=missing)
        assert joint.values.tobytes() == plain.values.tobytes()
        assert joint.covariance.tobytes() == plain.covariance.tobytes()
        assert joint.notes == plain.notes
    for members, options in ((None, {}), (groups, {"groups": groups})):
        values, psi, _ = additive_means(rows, members)
        expected = relfit.from_losses(rows, **options)
        np.testing.assert_allclose(values, expected.values, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(psi.covariance(), expected.covariance, rtol=1e-9)


def test_the_means_are_least_squares(rng):
    """Against dummy variables for every item and model; and of three items by hand (the doctest)."""
    rows = with_holes(rng, rng.normal(size=(40, 1)) + rng.normal(size=(40, 3)))
    rows = rows[~np.isnan(rows).all(axis=1)]
    item, model = np.nonzero(~np.isnan(rows))
    design = np.zeros((len(item), len(rows) + 3))
    design[np.arange(len(item)), item] = 1.0
    design[np.arange(len(item)), len(rows) + model] = 1.0
    fitted = np.linalg.lstsq(design, rows[item, model], rcond=None)[0]
    expected = fitted[len(rows) :] + fitted[: len(rows)].mean()
    joint = relfit.from_losses(rows, missing="adjust", min_coverage=0.0)
    np.testing.assert_allclose(joint.values, expected, rtol=1e-9)
    assert joint.design == "adjusted for missing scores"
    # An offset of an item, or of a model, moves the means by as much as it should.
    moved = relfit.from_losses(rows + 3.0 * np.arange(3), missing="adjust", min_coverage=0.0)
    np.testing.assert_allclose(moved.values, expected + 3.0 * np.arange(3), rtol=1e-9)
    np.testing.assert_allclose(moved.covariance, joint.covariance, rtol=1e-8)


def test_strata_with_holes(rng):
    """Each stratum by itself, put together as complete ones are; complete ones give the plain macro average."""
    strata = np.repeat(["a", "b"], [40, 80])
    rows = with_holes(rng, rng.normal(size=(120, 3)))
    weights = {"a": 1.0, "b": 3.0}
    options = {"missing": "adjust", "min_coverage": 0.0}
    joint = relfit.from_losses(rows, strata=strata, weights=weights, **options)
    parts = [relfit.from_losses(rows[strata == name], **options) for name in "ab"]
    np.testing.assert_allclose(joint.values, 0.25 * parts[0].values + 0.75 * parts[1].values, rtol=1e-9)
    expected = 0.25**2 * parts[0].covariance + 0.75**2 * parts[1].covariance
    np.testing.assert_allclose(joint.covariance, expected, rtol=1e-9)
    complete = rng.normal(size=(120, 3))
    plain = relfit.from_losses(complete, strata=strata, weights=weights)
    complete[0, 0] = np.nan
    nearly = relfit.from_losses(complete, strata=strata, weights=weights, **options)
    np.testing.assert_allclose(nearly.covariance, plain.covariance, rtol=0.2, atol=1e-3)
    groups = np.arange(120) // 4
    grouped = relfit.from_losses(rows, strata=strata, groups=groups, **options)
    assert grouped.groups == (30,)
    refused(lambda: relfit.from_losses(rows, strata=strata, groups=np.arange(120) % 30, **options), "in one stratum")


def test_two_models_on_common_and_other_items(rng):
    """Only common items say anything of the difference: it has the mean, variance and freedom of those."""
    rows = rng.normal(size=(90, 2))
    rows[30:60, 0] = np.nan
    rows[60:, 1] = np.nan
    joint = relfit.from_losses(rows, missing="adjust")
    gaps = rows[:30, 0] - rows[:30, 1]
    assert joint.values[0] - joint.values[1] == pytest.approx(gaps.mean())
    variance = joint.covariance[0, 0] + joint.covariance[1, 1] - 2 * joint.covariance[0, 1]
    assert variance == pytest.approx(gaps.var(ddof=1) / 30, rel=0.05)
    assert joint.freedom[0, 1] == pytest.approx(29.0)


def test_the_notes_and_what_is_left_out(rng, tmp_path):
    rows = with_holes(rng, rng.normal(size=(200, 3)), 0.2)
    rows[20:, 1] = np.nan
    named = {"one": rows[:, 0], "few": rows[:, 1], "two": rows[:, 2]}
    result = relfit.compare_losses(named, missing="adjust", higher_is_better=False, rng=0)
    assert result.names == ("one", "two")
    text = str(result)
    assert "models left out, which have scores of fewer items than min_coverage=0.5 allows: few (" in text
    assert "this assumes that an item is as much harder for one model as for another" in text
    assert "one 8" in text
    every = relfit.compare_losses(named, missing="adjust", min_coverage=0.0, higher_is_better=False, rng=0)
    assert every.names == ("one", "few", "two")
    again = relfit.Comparison.from_json(every.to_json())
    assert again.warnings == every.warnings
    scores = relfit.scores(named, missing="adjust", min_coverage=0.0, higher_is_better=False)
    every.report(tmp_path / "page.html", data=scores)
    assert "Coverage of the" in (tmp_path / "page.html").read_text()


def test_permuting_models_permutes_the_answer(rng):
    rows = with_holes(rng, rng.normal(size=(80, 4)))
    order = [2, 0, 3, 1]
    joint = relfit.from_losses(rows, missing="adjust", min_coverage=0.0)
    other = relfit.from_losses(rows[:, order], missing="adjust", min_coverage=0.0)
    np.testing.assert_allclose(other.values, joint.values[order], rtol=1e-9)
    np.testing.assert_allclose(other.covariance, joint.covariance[np.ix_(order, order)], rtol=1e-9)
    np.testing.assert_allclose(other.freedom, joint.freedom[np.ix_(order, order)], rtol=1e-9)


def test_refusals_of_holes(rng):
    rows = with_holes(rng, rng.normal(size=(60, 4)))
    refused(lambda: relfit.from_losses(rows, missing="refuse"), "missing: expected a score of every model")
    refused(lambda: relfit.from_losses(rows, missing="drop"), "missing: expected one of common, adjust, refuse")
    refused(lambda: relfit.from_losses(rows, min_coverage=0.2), 'min_coverage: belongs to missing="adjust"')
    refused(lambda: relfit.from_losses(rows, missing="adjust", min_coverage=2.0), "min_coverage: expected a fraction")
    apart = rng.normal(size=(120, 4))
    apart[:60, :2] = np.nan
    apart[60:, 2:] = np.nan
    refused(
        lambda: relfit.from_losses(apart, missing="adjust", min_coverage=0.1),
        "got 2 parts without an item in common: ('m1' and 'm2') and ('m3' and 'm4')",
    )
    refused(lambda: relfit.from_losses(apart[30:90, 1:3], missing="adjust", min_coverage=0.9), "got fewer")
    strata = np.repeat(["a", "b"], 30)
    lacking = rows.copy()
    lacking[strata == "b", 1] = np.nan
    refused(
        lambda: relfit.from_losses(lacking, missing="adjust", min_coverage=0.0, strata=strata),
        "missing: expected at least 2 scores of every model in stratum 'b', got 0 of 'm2'",
    )
    groups = np.repeat(np.arange(6), 10)
    rows[:, 1] = np.nan
    rows[:8, 1] = 1.0
    refused(
        lambda: relfit.from_losses(rows, missing="adjust", min_coverage=0.0, groups=groups),
        "groups: expected scores of every model in at least 2 groups",
    )


def forecasts(path, rng, teams=12, weeks=24, places=20):
    """A file like FluSight's: some teams start late, or forecast some places only."""
    lines = ["reference_date,location,horizon,mean,size,model"]
    skill = np.linspace(0.0, 1.5, teams)
    level = np.exp(rng.normal(size=(weeks, places, 2)))
    for k in range(teams):
        error = 2.0 * level + skill[k] + rng.normal(size=level.shape) + rng.normal(size=(weeks, 1, 1))
        for week in range(k % 5, weeks):
            date = f"2025-{1 + week // 4:02d}-{1 + 7 * (week % 4):02d}"
            cells = [(place, h) for place in range(2 * (k % 4), places) for h in range(2)]
            lines += [f"{date},{place:02d},{h},{error[week, place, h]:.4f},23,team{k}" for place, h in cells]
    path.write_bytes(gzip.compress("\n".join(lines).encode()))


FLUSIGHT = ["--model", "model", "--score", "mean", "--lower-is-better", "--group", "reference_date"]
FLUSIGHT += ["--item", "reference_date", "--item", "location", "--item", "horizon", "--missing", "adjust"]


def test_forecasts_with_holes_from_their_file(tmp_path, rng, capsys):
    path = tmp_path / "wis.csv.gz"
    forecasts(path, rng)
    assert main(["losses", str(path), *FLUSIGHT, "--json", str(tmp_path / "r.json")]) == 0
    out = capsys.readouterr().out
    assert "n = 960 in 24 groups · adjusted for missing scores" in out
    result = relfit.Comparison.from_json((tmp_path / "r.json").read_text())
    assert len(result.names) == 12
    assert result.best in ("team0", "team1", "team2")
    assert result["team11"]["worse"]
    assert main(["losses", str(path), *FLUSIGHT, "--dependence", "series"]) == 0
    assert "a series of 24 groups from 2025-01-01 to" in capsys.readouterr().out
    line = refused_line(capsys, "losses", str(path), *FLUSIGHT[:-2], "--missing", "refuse")
    assert "--missing: expected a score of every model for every item" in line


@pytest.mark.skipif(not REAL.exists(), reason="the FluSight table is not here")
def test_all_flusight_teams_from_their_file(capsys):
    start = time.process_time()
    assert main(["losses", str(REAL), *FLUSIGHT, "--min-coverage", "0.005"]) == 0
    seconds = time.process_time() - start
    out = capsys.readouterr().out
    assert "n = 5,936 in 28 groups" in out
    verdicts = ("significantly worse", "best observed", "inconclusive")
    assert sum(any(verdict in line for verdict in verdicts) for line in out.splitlines()[2:52]) == 50
    assert seconds < 3.0
