"""Training runs, judges, two groupings of the items, and groups that follow each other in time."""

import json

import numpy as np
import pytest
from refusals import refused

import relfit
from relfit.report.gate import judge
from relfit.stats.crossed import Factor, crossed, least
from relfit.stats.dependence import pair_variances
from relfit.stats.joint import gram


def tall(cube, role="run"):
    """The array (items, models, levels) as a table with a row for each score."""
    n, count, levels = cube.shape
    rows = {"item": [], "model": [], role: [], "loss": []}
    for a in range(n):
        for i in range(count):
            for r in range(levels):
                if not np.isnan(cube[a, i, r]):
                    rows["item"].append(a)
                    rows["model"].append(f"m{i + 1}")
                    rows[role].append(f"{role}{r}")
                    rows["loss"].append(cube[a, i, r])
    return rows


@pytest.fixture
def cube(rng):
    """200 items, three models, four runs with means of their own."""
    hard = rng.normal(size=(200, 1, 1)) + 0.7 * rng.normal(size=(200, 3, 1))
    runs = 0.3 * np.array([[0.0, 1.0, 2.0, 3.0], [1.0, 0.0, 3.0, 2.0], [3.0, 1.0, 0.0, 2.0]])
    return hard + runs + rng.normal(size=(200, 3, 4))


def test_runs_have_the_variance_of_a_random_effects_model(cube):
    """V_ii = s²(item means)/n + s²(run means)/R − s²(rest)/(nR), and covariances are those of the items."""
    joint = relfit.from_losses(cube)
    n, _, runs = cube.shape
    means = cube.mean(axis=2)
    items = np.cov(means.T) / n
    np.testing.assert_allclose(joint.values, means.mean(axis=0), rtol=1e-12)
    of_runs = cube.mean(axis=0).var(axis=1, ddof=1) / runs
    rest = cube - means[:, :, None] - cube.mean(axis=0) + means.mean(axis=0)[:, None]
    noise = np.square(rest).sum(axis=(0, 2)) / ((n - 1) * (runs - 1)) / (n * runs)
    np.testing.assert_allclose(joint.covariance, items + np.diag(of_runs - noise), rtol=1e-9)
    for part in (items, np.diag(of_runs)):
        assert np.linalg.eigvalsh(joint.covariance - part).min() > -1e-12


def test_v_is_never_less_than_either_part():
    """Where the rest is larger than both, and where runs vary in one model only, no direction is too small."""
    items = np.diag([1.0, 1.0, 1.0])
    few = np.full((3, 3), 2.0)
    for of_runs, rest in (([0.1, 0.1, 0.1], [2.0, 2.0, 2.0]), ([9.0, 0.0, 0.0], [3.0, 3.0, 3.0])):
        factor = Factor("runs", 3, np.diag(of_runs), np.diag(rest), few, 100.0)
        total, freedom = crossed(items, np.full((3, 3), 50.0), [factor])
        for part in (items, np.diag(of_runs)):
            assert np.linalg.eigvalsh(total - part).min() > -1e-12
        assert (freedom >= 1.0).all()
    # The floor: a third of the mean over the contrasts, and nothing for two models.
    assert least(np.diag([9.0, 0.0])).tolist() == [[9.0, 0.0], [0.0, 0.0]]
    lowest = np.linalg.eigvalsh(least(np.diag([9.0, 0.0, 0.0])))
    assert lowest[1] > 0.9


def test_degrees_of_freedom_of_runs(rng):
    """Where only runs vary, those of Welch for the runs' means; where runs do not vary, those of the items."""
    shift = np.array([[0.0, 1.0, 2.5, -1.0, 0.3], [0.1, 2.0, 4.0, 0.5, -2.0]])
    noise = 1e-6 * rng.normal(size=(400, 2, 5))
    joint = relfit.from_losses(shift + noise)
    v = shift.var(axis=1, ddof=1) / 5
    assert joint.freedom[0, 1] == pytest.approx(v.sum() ** 2 / (np.square(v) / 4).sum(), rel=1e-4)
    same = np.repeat(rng.normal(size=(400, 2, 1)), 5, axis=2)
    alike = relfit.from_losses(same)
    assert alike.freedom[0, 1] == pytest.approx(399.0)
    np.testing.assert_allclose(alike.covariance, relfit.from_losses(same[:, :, 0]).covariance, atol=1e-15)


def test_every_form_of_runs_is_the_same(cube, tmp_path):
    names = ("m1", "m2", "m3")
    cube[:, 2, 3] = np.nan  # a model with three runs
    joint = relfit.from_losses(cube, run=True)
    lists = {name: list(cube[:, i, : 3 if i == 2 else 4].T) for i, name in enumerate(names)}
    table = tall(cube)
    path = tmp_path / "runs.json"
    rows = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
    path.write_text(json.dumps(rows))
    roles = {"item": "item", "model": "model", "score": "loss", "run": "run"}
    for other in (
        relfit.from_losses(lists),
        relfit.from_losses(table, **roles),
        relfit.from_losses(path, **roles),
    ):
        assert other.names == names
        np.testing.assert_allclose(other.values, joint.values, rtol=1e-12)
        np.testing.assert_allclose(other.covariance, joint.covariance, rtol=1e-9)
        np.testing.assert_allclose(other.freedom, joint.freedom, rtol=1e-9)
    # Runs of a model have nothing to do with those of another: their names do not matter.
    table["run"] = [f"{model} {run}" for model, run in zip(table["model"], table["run"], strict=True)]
    np.testing.assert_allclose(relfit.from_losses(table, **roles).covariance, joint.covariance, rtol=1e-9)


def test_judges_are_common_to_all_models(rng):
    """Their leniency cancels in differences; what they like in a model does not."""
    judges = 5
    marks = rng.normal(size=(150, 2, 1)) + 3.0 * rng.normal(size=judges) + 0.5 * rng.normal(size=(150, 2, judges))
    joint = relfit.from_losses(marks, judge=True)
    items = relfit.from_losses(marks.mean(axis=2)).covariance
    assert pair_variances(joint.covariance)[0, 1] < 1.2 * pair_variances(items)[0, 1]
    assert joint.covariance[0, 0] > 10 * items[0, 0]
    taste = marks + 0.5 * rng.normal(size=(2, judges))
    differing = relfit.from_losses(taste, judge=True)
    gaps = (taste[:, 0] - taste[:, 1]).mean(axis=0)
    assert pair_variances(differing.covariance)[0, 1] > gaps.var(ddof=1) / judges
    assert differing.freedom[0, 1] < 8.0
    table = relfit.from_losses(tall(taste, "judge"), item="item", model="model", score="loss", judge="judge")
    np.testing.assert_allclose(table.covariance, differing.covariance, rtol=1e-9)


def test_the_note_says_what_more_runs_would_bring(rng, tmp_path):
    cube = rng.normal(size=(200, 2, 4)) + np.array([[0.0, 0.3, -0.3, 0.2], [0.6, -0.1, 0.7, 0.1]])
    result = relfit.compare_losses(cube, higher_is_better=False, rng=0)
    (note,) = [each for each in result.warnings if each.startswith("variance of the differences")]
    joint = relfit.from_losses(cube, higher_is_better=False)
    items = pair_variances(relfit.from_losses(cube.mean(axis=2)).covariance)[0, 1]
    total = pair_variances(joint.covariance)[0, 1]
    assert f"{items / total:.0%} items and {1 - items / total:.0%} runs" in note
    # With runs that differ much more than items do, 7 runs in place of 4 make errors √(4/7) as large.
    apart = relfit.compare_losses(cube + 10.0 * rng.normal(size=(2, 4)), higher_is_better=False, rng=0)
    assert any("3 more runs would shorten the intervals by 24%" in each for each in apart.warnings)
    # What separates two models: with so many runs the true difference is 1.645 + 0.842 errors away.
    (needed,) = [each for each in result.warnings if each.startswith("to separate")]
    more = int(needed.split("about ")[1].split(" more runs")[0].replace(",", ""))
    of_runs = pair_variances(np.diag(cube.mean(axis=0).var(axis=1, ddof=1) / 4))[0, 1]
    gap = abs(joint.values[0] - joint.values[1])
    left = total - of_runs * more / (4 + more)
    assert gap / np.sqrt(left) == pytest.approx(1.6449 + 0.8416, rel=0.03)
    assert "if they are" in needed
    refused(lambda: relfit.plan(relfit.scores(cube, higher_is_better=False)), "expected scores without runs")
    assert "4 random runs of each model" in str(result).splitlines()[0]
    again = relfit.Comparison.from_json(result.to_json())
    assert again.warnings == result.warnings
    assert (
        again.components
        == result.components
        == pytest.approx({"items": items / total, "runs": 1 - items / total}, abs=1e-3)
    )
    result.report(tmp_path / "page.html", data=relfit.scores(cube, higher_is_better=False))
    assert "To separate" in (tmp_path / "page.html").read_text()
    # Neither a plan nor a gate counts on more items alone.
    refused(lambda: relfit.plan(again), "expected scores without runs")
    assert "would decide" not in judge(again, result.names[1 - result.best_index]).sentence


def test_repetitions_that_differ_as_runs_do_have_a_note(rng):
    cube = rng.normal(size=(200, 2, 3)) + 0.5 * np.arange(3)
    roles = {"item": "item", "model": "model", "score": "loss"}
    noted = relfit.scores(tall(cube), **roles).notes
    assert any("the mean scores of the repetitions differ by more than chance" in note for note in noted)
    alike = relfit.scores(tall(rng.normal(size=(200, 2, 3))), **roles).notes
    assert not any("differ by more than chance" in note for note in alike)


def test_runs_with_strata_and_groups(rng):
    """The macro average of every run, and clusters within runs: parts of V that are known."""
    cube = rng.normal(size=(120, 2, 3)) + np.array([[0.0, 1.0, 2.0], [0.5, -0.5, 1.0]])
    tasks = np.repeat(["a", "b"], [40, 80])
    joint = relfit.from_losses(cube, strata=tasks)
    macro = (cube[:40].mean(axis=0) + cube[40:].mean(axis=0)) / 2
    np.testing.assert_allclose(joint.values, macro.mean(axis=1), rtol=1e-12)
    assert joint.covariance[0, 0] >= macro[0].var(ddof=1) / 3
    assert joint.design == "macro average over 2 strata, 3 random runs of each model"
    grouped = relfit.from_losses(cube, groups=np.arange(120) // 4)
    assert grouped.groups == (30,)


def test_two_groupings(rng):
    """V = V_1 + V_2 − V_12 where the second grouping has an effect, and never less than either."""
    first, second = np.divmod(np.arange(240), 12)
    losses = rng.normal(size=(240, 3)) + rng.normal(size=(12, 3))[second] + rng.normal(size=(20, 3))[first]
    joint = relfit.from_losses(losses, groups=[first, second])
    parts = [relfit.from_losses(losses, groups=groups).covariance for groups in (first, second)]
    expected = parts[0] + parts[1] - relfit.from_losses(losses, groups=np.arange(240)).covariance
    np.testing.assert_allclose(joint.covariance, expected, rtol=1e-9)
    for part in parts:
        assert np.linalg.eigvalsh(joint.covariance - part).min() > -1e-10
    table = {"item": np.arange(240), "place": first, "week": second, **dict(zip("abc", losses.T, strict=True))}
    named = relfit.from_losses(table, item="item", group=["place", "week"])
    np.testing.assert_allclose(named.covariance, joint.covariance, rtol=1e-12)
    swapped = relfit.from_losses(losses, groups=np.stack([second, first], axis=1))
    np.testing.assert_allclose(swapped.covariance, joint.covariance, rtol=1e-9)
    assert joint.freedom[0, 1] <= 11.0 + 1e-9
    assert "also clustered by 12 other groups" in joint.design


def test_the_intraclass_correlation_of_groups(rng):
    """Groups of 5 items of which .4 of the variance is common: d = 1 + 4 · 0.4, and 3000 items count as 3000/d."""
    groups = np.repeat(np.arange(600), 5)
    losses = np.sqrt(0.4) * rng.normal(size=(600, 3))[groups] + np.sqrt(0.6) * rng.normal(size=(3000, 3))
    result = relfit.compare_losses(losses, groups=groups, higher_is_better=False, rng=0)
    (note,) = [each for each in result.warnings if "intraclass correlation" in each]
    of_groups, alone = (
        pair_variances(relfit.from_losses(losses, **options).covariance)[~np.eye(3, dtype=bool)].sum()
        for options in ({"groups": groups}, {})
    )
    effect = of_groups / alone
    assert effect == pytest.approx(2.6, abs=0.2)
    assert f"correlation {(effect - 1) / 4:.2f} of the differences, design effect {effect:.2g}" in note
    assert f"so 3000 items count as about {3000 / effect:.0f} independent ones" in note


def test_groups_as_a_series(rng):
    """With groups of one size, V is that of a series of the groups' means."""
    weeks = np.repeat(np.arange(40), 6)
    losses = rng.normal(size=(240, 3)) + rng.normal(size=(40, 3))[weeks]
    order = rng.permutation(240)
    joint = relfit.from_losses(losses[order], groups=weeks[order], dependence="series")
    means = losses.reshape(40, 6, 3).mean(axis=1)
    series = relfit.from_losses(means, dependence="series")
    np.testing.assert_allclose(joint.covariance, series.covariance, rtol=1e-9)
    np.testing.assert_allclose(joint.freedom, series.freedom, rtol=1e-9)
    assert joint.design.startswith("a series of 40 groups from 0 to 39")
    lagged = relfit.from_losses(losses, groups=weeks, dependence="series", lags=2)
    np.testing.assert_allclose(lagged.covariance, gram(means - means.mean(axis=0), 2), rtol=1e-9)


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        (lambda t: t | {"run": ["only"] * len(t["run"])}, {}, "run: expected at least 2 runs of each model, got one"),
        (
            lambda t: t | {"run": [r if m != "m2" else "one" for r, m in zip(t["run"], t["model"], strict=True)]},
            {},
            "got one of 'm2'",
        ),
        (lambda t: t | {"run": [None, *t["run"][1:]]}, {}, "run: expected a value in every row, got none in row 0"),
        (lambda t: t, {"item": None}, "item: expected the name of a column"),
        (lambda t: t, {"run": "seed"}, "run: expected the name of a column"),
        (lambda t: t, {"run": True}, "run: expected an array (items, models, runs)"),
        (lambda t: t, {"group": ["a", "b", "c"]}, "group: expected the names of one or two columns"),
        (lambda t: t, {"group": ["item", "item"]}, "group: expected different columns, got 'item' twice"),
    ],
)
def test_refusals_of_runs(cube, change, options, words):
    roles = {"item": "item", "model": "model", "score": "loss", "run": "run", **options}
    refused(lambda: relfit.from_losses(change(tall(cube)), **roles), words)


def test_runs_of_different_items(rng):
    """A column that splits the items is no run."""
    table = tall(rng.normal(size=(60, 2, 1)))
    table["run"] = [str(item % 2) for item in table["item"]]
    roles = {"item": "item", "model": "model", "score": "loss", "run": "run"}
    refused(lambda: relfit.from_losses(table, **roles), "run: expected at least 20 items with scores of every run")


def test_a_key_for_a_run(rng):
    """A column in which every value is different would be an array of n² numbers."""
    n = 3000
    table = {"item": [*range(n)] * 2, "model": ["a"] * n + ["b"] * n, "loss": rng.normal(size=2 * n)}
    table["run"] = [str(k) for k in range(2 * n)]
    roles = {"item": "item", "model": "model", "score": "loss", "run": "run"}
    refused(lambda: relfit.from_losses(table, **roles), "run: expected runs with scores of many items, got 3000 runs")


def test_other_refusals(cube, rng):
    marks = tall(cube, "judge")
    kept = [
        k for k, (m, j) in enumerate(zip(marks["model"], marks["judge"], strict=True)) if (m, j) != ("m2", "judge3")
    ]
    some = {name: [column[k] for k in kept] for name, column in marks.items()}
    roles = {"item": "item", "model": "model", "score": "loss", "judge": "judge"}
    refused(
        lambda: relfit.from_losses(some, **roles),
        "judge: expected every judge to score every model, got no score of 'm2' by 'judge3'",
    )
    refused(
        lambda: relfit.from_losses({"a": [[1.0, 2.0, 3.0], [1.0, 2.0]]}), "as many scores in every run, got 3 and 2"
    )
    refused(lambda: relfit.from_losses(cube, labels=rng.normal(size=(200, 3))), "labels: cannot be combined with runs")
    refused(lambda: relfit.from_losses(cube[:, :, 0], groups=np.zeros(200)), "groups: expected at least 6 groups")
