"""Tables of scores in every form: wide and long, arrays, mappings, frames and files; what is refused and said."""

import numpy as np
import pytest
from refusals import refused

import relfit
from relfit.report.page import render_report

MODELS = ("gpt", "claude", "phi")


@pytest.fixture
def right(rng):
    """60 items, 0 or 1."""
    return (rng.random((60, 3)) < [0.9, 0.85, 0.3]).astype(float)


def long_form(right, keys=None):
    keys = [f"q{k:02}" for k in range(len(right))] if keys is None else keys
    items = [key for key in keys for _ in MODELS]
    return {"item": items, "model": list(MODELS) * len(right), "right": right.ravel().tolist()}


COLUMNS = {"item": "item", "model": "model", "score": "right", "higher_is_better": True}


def _same(result, expected):
    at = [result.names.index(name) for name in expected.names]
    np.testing.assert_allclose(result.discrepancy[at], expected.discrepancy, rtol=1e-14)
    np.testing.assert_allclose(result.covariance[np.ix_(at, at)], expected.covariance, rtol=1e-10)
    assert result.worse[at].tolist() == expected.worse.tolist()


def test_wide_tables_mappings_and_series_are_matched_by_key(right, rng, tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(right, columns=MODELS)
    frame.insert(0, "doc_id", [f"q{k:02}" for k in range(60)])
    expected = relfit.compare_losses(right, names=MODELS, higher_is_better=True, rng=3)
    mixed = frame.sample(frac=1.0, random_state=1)
    mixed.to_csv(tmp_path / "wide.csv", index=False)
    for table in (mixed, tmp_path / "wide.csv"):
        _same(relfit.compare_losses(table, item="doc_id", higher_is_better=True, rng=3), expected)
    table = relfit.scores(mixed, item="doc_id")
    assert table.items.tolist() == frame["doc_id"].tolist()
    np.testing.assert_array_equal(table.values, right)
    expected = relfit.compare_losses(right, names=MODELS, higher_is_better=True, rng=3)
    keyed, series = {}, {}
    for k, name in enumerate(MODELS):
        order = rng.permutation(60)
        keyed[name] = {f"q{a}": right[a, k] for a in order.tolist()}
        series[name] = pandas.Series(right[order, k], index=order)
    for table in (keyed, series):
        _same(relfit.compare_losses(table, higher_is_better=True, rng=3), expected)


def test_keys_of_many_digits_are_not_rounded(right, tmp_path):
    """Whole numbers above 2^53 differ by 1: as float64 pairs of them would be one item."""
    columns, path = long_form(right, [2**60 + k for k in range(60)]), tmp_path / "keys.csv"
    lines = [",".join(map(str, row)) for row in zip(*columns.values(), strict=True)]
    path.write_text("\n".join(["item,model,right", *lines]))
    for table in (columns, path):
        assert len(relfit.scores(table, item="item", model="model", score="right").items) == 60


def test_the_users_numbers_and_direction_everywhere(right, rng):
    result = relfit.compare_losses(right, names=MODELS, higher_is_better=True, rng=0)
    np.testing.assert_allclose(result.discrepancy, right.mean(0))
    assert result.higher_is_better
    assert (result.difference >= 0.0).all()
    best = result.names[int(right.mean(0).argmax())]
    assert result.best == best
    again = relfit.Comparison.from_json(result.to_json())
    assert again.higher_is_better
    assert again.rows() == result.rows()
    np.testing.assert_array_equal(again.confidence_interval(), result.confidence_interval())
    text = str(result)
    assert "· mean score (larger is better) · n = 60 ·" in text
    assert f"{best} has the largest mean score (larger is better)" in text
    assert "below best" in text
    assert [row["name"] for row in result.rows()] == [result.names[k] for k in np.argsort(-right.mean(0))]
    assert "larger is better" in result.methods_text()
    page = render_report(result)
    assert "smaller is better" not in page
    assert "mean score (larger is better)" in page
    assert "mean score & s.e. & below best" in result.to_latex()
    assert "mean score (larger is better)" in result.plot().get_xlabel()
    losses = relfit.compare_losses(1.0 - right, names=MODELS, higher_is_better=False, rng=0)
    np.testing.assert_allclose(losses.log_pvalue, result.log_pvalue)
    np.testing.assert_allclose(losses.difference, result.difference, atol=1e-15)
    assert result.ranks().lower.tolist() == losses.ranks().lower.tolist()
    assert result.pairs().worse.tolist() == losses.pairs().worse.tolist()


def test_a_direction_is_needed_or_told_by_the_name_of_the_score(right):
    """Accuracies from 0 to 100 were taken for losses, and the worst model passed the gate."""
    for scores in (right, 100 * right, -right):
        refused(lambda scores=scores: relfit.compare_losses(scores), "expected a direction", "does not name the metric")
        assert relfit.compare_losses(scores, higher_is_better=True, rng=0).higher_is_better
    assert "all numbers lie between 0 and 1" in relfit.from_losses(right).notes[0]
    assert not relfit.from_losses(right, higher_is_better=False).notes
    refused(lambda: relfit.from_losses(right, higher_is_better="yes"), "higher_is_better: expected True or False")
    long = long_form(100 * right)
    for name, better in (("accuracy", True), ("val_loss", False)):
        table = {**long, name: long["right"]}
        result = relfit.compare_losses(table, item="item", model="model", score=name, rng=0)
        assert (result.higher_is_better, result.best) == (better, "gpt" if better else "phi")
        note = f"{name}: {'higher' if better else 'lower'} is better, by its name"
        assert result.warnings[0] == note
        assert relfit.from_losses(table, item="item", model="model", score=name).notes == (note,)
        other = relfit.compare_losses(table, item="item", model="model", score=name, higher_is_better=not better, rng=0)
        assert other.higher_is_better is not better
        assert f"{name} is usually better when {'larger' if better else 'smaller'}" in other.warnings[0]
    columns = {"item": "item", "model": "model"}
    refused(lambda: relfit.compare_losses(long, score="right", **columns), "the name 'right' does not tell which")
    long["rmse"] = (-right).ravel().tolist()
    refused(lambda: relfit.compare_losses(long, score="rmse", **columns), "cannot be negative, and the smallest is -1")


def test_columns_that_are_no_models(right, rng, tmp_path):
    """The number of tokens of each item won against accuracies, and the table had to be edited."""
    tokens = rng.integers(200, 900, size=60)
    table = {"doc": [f"q{k}" for k in range(60)], **dict(zip(MODELS, right.T.tolist(), strict=True))}
    table |= {"n_tokens": tokens.tolist(), "prompt": ["text"] * 60}
    options = dict(item="doc", higher_is_better=True, rng=0)
    refused(lambda: relfit.compare_losses(table, **options), "'prompt' (text); leave out other columns with drop=")
    result = relfit.compare_losses(table, drop="prompt", **options)
    assert result.best == "n_tokens"
    (note,) = result.doubts
    assert note.startswith("'n_tokens' is on another scale than the other columns (mean size 5")
    assert note in result.warnings
    expected = relfit.compare_losses(right, names=MODELS, higher_is_better=True, rng=0)
    for chosen in ({"drop": ["prompt", "n_tokens"]}, {"columns": "gpt,claude,phi"}):
        _same(relfit.compare_losses(table, **chosen, **options), expected)
    named = relfit.compare_losses(table, columns=["gpt", "n_tokens"], **options)
    assert (named.names, named.doubts) == (("gpt", "n_tokens"), ())
    refused(lambda: relfit.compare_losses(table, drop="tokens", **options), "drop: expected the name of a column")
    refused(lambda: relfit.compare_losses(table, columns=["x"], **options), "columns: expected the name of a column")
    long = long_form(right)
    refused(
        lambda: relfit.compare_losses(long, drop="item", **COLUMNS), "drop: belongs to tables with a column for each"
    )


@pytest.mark.parametrize(("factor", "noted"), [(1e-6, True), (0.5, False), (5.0, False), (50.0, True)])
def test_one_very_good_or_bad_model_is_no_doubt(rng, factor, noted):
    """Losses of another size are noted; a gate refuses only scores that are 100 times as large."""
    losses = rng.exponential(size=(60, 3)) + 0.5
    losses[:, 2] *= factor
    table = {"item": [f"q{k}" for k in range(60)], **dict(zip(MODELS, losses.T.tolist(), strict=True))}
    result = relfit.compare_losses(table, item="item", higher_is_better=False, rng=0)
    assert any(note.startswith("'phi' is on another scale") for note in result.warnings) is noted
    assert not result.doubts


def test_missing_scores_leave_their_items_out(right):
    right[5, 0] = right[7, 2] = np.nan
    result = relfit.compare_losses(right, higher_is_better=True, rng=0)
    complete = np.delete(right, [5, 7], axis=0)
    np.testing.assert_allclose(result.discrepancy, complete.mean(0))
    assert result.sizes == (58,)
    assert result.warnings[0] == "2 of 60 items were left out, for which some model has no score"
    right[10:20, 1] = np.nan
    said = relfit.compare_losses(right, higher_is_better=True, rng=0).warnings[0]
    assert said.startswith("12 of 60 items were left out")
    assert "'m2' lacks 17% of the items, more than max_missing=0.05 allows" in said
    assert relfit.compare_losses(right, higher_is_better=True, rng=0).doubts == (said,)
    allowed = relfit.compare_losses(right, higher_is_better=True, max_missing=0.2, rng=0)
    assert allowed.warnings[0].endswith("no score; those that are left may be easier or harder than the rest")
    assert not allowed.doubts
    for wrong in (-0.1, 1.5, "x"):
        refused(lambda wrong=wrong: relfit.compare_losses(right, max_missing=wrong), "max_missing: expected a fraction")
    columns = long_form(complete)
    for column in columns.values():
        del column[4]
    assert "1 of 58 item was left out" in relfit.compare_losses(columns, rng=0, **COLUMNS).warnings[0]


def test_repeats_become_the_mean_of_the_item(rng):
    """Three epochs: the items are the units, each with the mean of its epochs."""
    scores = rng.random((3, 40, 3))
    parts = [long_form(epoch) for epoch in scores]
    columns = {name: [cell for part in parts for cell in part[name]] for name in parts[0]}
    result = relfit.compare_losses(columns, rng=0, **COLUMNS)
    np.testing.assert_allclose(result.discrepancy, scores.mean((0, 1)))
    np.testing.assert_allclose(result.covariance, np.cov(scores.mean(0).T) / 40)
    assert result.sizes == (40,)
    assert result.warnings[0] == "40 of 40 items have up to 3 scores of one model; an item's score is their mean"


def test_strata_and_groups_are_columns_and_keys_are_those_of_a_stratum(rng):
    """doc_id 0, 1, … in both tasks: two different items each."""
    scores = rng.random((60, 3))
    columns = long_form(scores, [k % 30 for k in range(60)])
    columns["task"] = ["arc" if k < 90 else "mmlu" for k in range(180)]
    columns["text"] = [f"t{k // 6}" for k in range(180)]
    result = relfit.from_losses(columns, item="item", model="model", score="right", stratum="task")
    np.testing.assert_allclose(result.values, (scores[:30].mean(0) + scores[30:].mean(0)) / 2)
    assert result.design == "macro average over 2 strata"
    grouped = relfit.from_losses(columns, item="item", model="model", score="right", stratum="task", group="text")
    assert grouped.groups == (30,)
    columns["text"][0] = "another"
    names = dict(item="item", model="model", score="right", stratum="task", group="text")
    refused(lambda: relfit.from_losses(columns, **names), "group: expected one group for each item, got two for item 0")


def test_traps_get_one_helpful_line(rng, right):
    pandas = pytest.importorskip("pandas")
    refused(lambda: relfit.compare_losses(right.T[:3]), "if rows are models, pass losses.T")
    frame = pandas.DataFrame(right, columns=MODELS)
    frame["prompt"] = "text"
    refused(lambda: relfit.compare_losses(frame), "'prompt' (text)", "item=")
    frame["prompt"] = rng.permutation(60) * 7
    frame = frame.rename(columns={"prompt": "doc_id"})
    refused(lambda: relfit.compare_losses(frame), "in 'doc_id', which numbers the items; pass item='doc_id'")
    columns = long_form(right)
    refused(lambda: relfit.compare_losses(columns, model="model", score="right"), "item: expected the name of a column")
    refused(lambda: relfit.compare_losses(columns, item="item", model="model", score="x"), "score: expected the name")
    refused(lambda: relfit.compare_losses(columns, item="item", model="model", score="item"), "'item' (text)")
    refused(lambda: relfit.compare_losses(right, item="item"), "losses: expected a data frame")
    refused(lambda: relfit.compare_losses(right, strata="task"), "stratum='task'")
    refused(lambda: relfit.compare_losses(columns, names=["a"], **COLUMNS), "names: ")
    refused(lambda: relfit.compare_losses(columns, stratum="item", strata=[1], **COLUMNS), "strata: expected once")
    columns["item"][3] = None
    refused(lambda: relfit.compare_losses(columns, **COLUMNS), "item: expected a value in every row, got none in row 3")
    refused(
        lambda: relfit.compare_losses({"a": [1.0] * 30, "b": [[1.0, 2.0]] * 30}), "losses['b']: expected one number"
    )
    refused(lambda: relfit.compare_losses(relfit.scores(right), names=["a"]), "names: the scores have it already")


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.csv", "item,model,right\n1,a\n", "expected 3 fields"),
        ("a.csv", "item,model,right\n1,a,x\n", "'right' (text)"),
        ("a.csv", "item,item,right\n1,a,2\n", "'item' more than once"),
        ("a.csv", "item,model,right\n", "empty table"),
        ("a.csv", "1,2,3\n", "expected a data frame"),
        ("a.csv", "", "expected a data frame"),
        ("a.jsonl", '{"item": 1', "line 1: expected JSON, which is cut off or damaged here"),
        ("a.jsonl", "[1, 2]", "line 1: expected a JSON object, got a list"),
        ("a.jsonl", "[" * 100_000, "line 1: expected JSON"),
        ("a.jsonl", "{}", "names of columns"),
        ("a.jsonl", '{"item": 1, "model": "a", "right": {"x": 1}}', "'right' (text)"),
        ("a.jsonl", '{"item": 1, "model": "a", "right": 1e999}', "expected"),
    ],
)
def test_hostile_tables(tmp_path, name, text, words):
    (tmp_path / name).write_text(text)
    refused(lambda: relfit.compare_losses(tmp_path / name, **COLUMNS), words)


def test_scores_are_read_once_and_used_by_every_function(right, tmp_path):
    """The same answers as from the table itself, although the table is gone."""
    options = {key: value for key, value in COLUMNS.items() if key != "higher_is_better"}
    columns = long_form(right)
    columns["item"] = columns["item"][::-1]
    read = relfit.scores(columns, higher_is_better=True, **options)
    assert repr(read) == "Scores of 'gpt', 'claude' and 'phi' on 60 items"
    result = relfit.compare_losses(read, rng=0)
    assert result.to_json() == relfit.compare_losses(columns, rng=0, **COLUMNS).to_json()
    joint = relfit.from_losses(read)
    np.testing.assert_array_equal(joint.values, relfit.from_losses(columns, **COLUMNS).values)
    assert relfit.plan(read, rng=0, trials=100).to_json() == relfit.plan(joint, rng=0, trials=100).to_json()
    result.report(tmp_path / "page.html", data=read)
    refused(lambda: relfit.compare_losses(read, higher_is_better="yes"), "higher_is_better: expected True or False")
    refused(lambda: relfit.plan(relfit.scores(right)), "the table does not name the metric")


def test_a_monitor_counts_the_items_of_scores_in_the_order_of_their_table(right):
    columns = {"item": [f"q{k}" for k in range(60)][::-1], **dict(zip(MODELS, right.T, strict=True))}
    columns["phi"] = np.where(np.arange(60) < 3, np.nan, columns["phi"])
    whole = relfit.Monitor(MODELS, path=":memory:", higher_is_better=True)
    whole.update(relfit.scores(columns, item="item"))
    single = relfit.Monitor(MODELS, path=":memory:", higher_is_better=True)
    for k, item in enumerate(columns["item"]):
        single.update({name: columns[name][k] for name in MODELS}, items=item)
    np.testing.assert_allclose(whole.result().log_evalue, single.result().log_evalue)
    assert whole.result().scored.tolist() == [60, 60, 57]
    twice = {**columns, "item": ["q1", "q1", *columns["item"][2:]]}
    again = relfit.Monitor(MODELS, path=":memory:", higher_is_better=True)
    refused(lambda: again.update(relfit.scores(twice, item="item")), "item: expected one score for each item and model")
    refused(lambda: again.update(relfit.scores(right, names=MODELS)), "pass item= to relfit.scores")
    grouped = relfit.scores(columns, item="item", groups=range(60))
    refused(lambda: again.update(grouped), "expected scores without groups")
    refused(lambda: again.update(relfit.scores(columns, item="item"), items=[1]), "items: the scores have them already")
