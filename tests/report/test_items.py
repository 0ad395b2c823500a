"""Items behind a verdict: strata and items of scores; images and texts behind the rows, whatever they are, as text."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from PIL import Image
from refusals import refused

import relfit
from relfit.report.items import (
    LETTERS,
    PICTURE,
    check_items,
    contrasts,
    example,
    example_rows,
    recall_scores,
    stratum_rows,
)
from relfit.report.page import render_report
from relfit.report.recall import recall
from relfit.report.witness import differing_rows

STRATA = ["east"] * 40 + ["west"] * 40


def crossed():
    """Model a passes everywhere in the east and on half of the west; b the other way round; c nowhere."""
    half = [1, 0] * 20
    return {"a": [1] * 40 + half, "b": half + [1] * 40, "c": [0] * 80}


def compared(scores, higher_is_better=True, *, margin=0.0, **options):
    kept = {"strata": STRATA, **options}
    read = relfit.scores(scores, higher_is_better=higher_is_better, **kept)
    result = relfit.compare_losses(read, margin=margin, rng=0)
    return result, recall_scores(
        result, relfit.scores(scores, strata=kept["strata"], labels=kept.get("labels"), groups=kept.get("groups"))
    )


def by_name(result, row):
    return dict(zip([each["name"] for each in result.rows()], row.kinds, strict=True))


def test_each_stratum_is_decided_by_itself_as_by_a_call_on_it(rng):
    """Overall a and b are equal. In the east b fails on 20 of 40 items that a passes, and never the other way round:
    even the sign test has p = 2⁻²⁰. In the west it is a that is worse.
    """
    result, scores = compared(crossed())
    every, east, west = stratum_rows(result, scores)
    assert (every.name, every.items, east.name, east.items, west.name) == (None, 80, "east", 40, "west")
    assert by_name(result, every) == {"a": "best", "b": "best", "c": "worse"}
    assert by_name(result, east) == {"a": "best", "b": "worse", "c": "worse"}
    assert by_name(result, west) == {"a": "worse", "b": "best", "c": "worse"}
    assert east.means.tolist() == [1.0, 0.5, 0.0]
    assert every.means.tolist() == [0.75, 0.75, 0.0]
    strata = np.repeat(["s", "t", "u"], [70, 50, 40])
    losses = rng.gamma(2.0, 1.0, (160, 5)) + 0.2 * np.arange(5) * (strata == "t")[:, None]
    result, scores = compared(losses, False, strata=strata, margin=0.01)
    order = [result.names.index(row["name"]) for row in result.rows()]
    for row in stratum_rows(result, scores)[1:]:
        alone = relfit.compare_losses(
            losses[strata == row.name][:, order], higher_is_better=False, margin=0.01, rng=result.seed
        )
        np.testing.assert_allclose(row.means, alone.discrepancy)
        assert [kind == "worse" for kind in row.kinds] == alone.worse.tolist()
        assert row.kinds[alone.best_index] == "best"


# ── items ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_items_on_which_the_worse_model_fails():
    """a passes and c fails on 40 items of the east and 20 of the west, all as clear: the strata take turns."""
    keys = [f"q{k}" for k in range(80)]
    table = {"key": keys, "part": STRATA, **crossed()}
    options = {"item": "key", "stratum": "part", "higher_is_better": True}
    result = relfit.compare_losses(table, rng=0, **options)
    (found,) = contrasts(result, recall_scores(result, relfit.scores(table, **options)))
    assert (found.worse, found.binary, found.behind) == ("c", True, 0)
    assert found.better in ("a", "b")
    assert found.ahead == 60
    assert [each["stratum"] for each in found.items] == ["east", "west"] * 5
    for each in found.items:
        k = keys.index(each["item"])
        assert (each["worse"], each["better"]) == (0.0, 1.0) == (0.0, float(crossed()[found.better][k]))
        assert each["prompt"] is None


def test_the_clearest_losses_come_first(rng):
    """Items without a key are numbered, and a loss is better when it is smaller."""
    good = rng.random(60)
    bad = good + 0.1
    bad[[7, 41]] += (3.0, 5.0)
    bad[:4] -= 0.2
    result, scores = compared({"good": good, "bad": bad}, False, strata=None)
    (found,) = contrasts(result, scores)
    assert [each["item"] for each in found.items[:2]] == ["row 41", "row 7"]
    assert (found.ahead, found.behind, found.binary, len(found.items)) == (56, 4, False, 10)
    page = render_report(result, {"good": good, "bad": bad})
    assert "good does better than bad on 56 items, and worse on 4." in " ".join(page.split())


HOSTILE = "solved example " * 50 + "</td><script>alert(1)</script> & \u202eend?"


def logs(missing=()):
    """Logs of two models, of which b fails on the first 25 items of each task; some scores are missing."""
    keys = [(task, k) for task in ("<i>sums", "t") for k in range(40)]
    values = [[np.nan if (m, k) in missing else float(m == "a" or k >= 25) for m in "ab"] for _, k in keys]
    return relfit.Scores(
        ("a", "b"),
        np.array(values),
        items=np.array([str(k) for _, k in keys], dtype=object),
        strata=np.array([task for task, _ in keys]),
        prompts=np.array([f"{HOSTILE} {task} {k}" for task, k in keys], dtype=object),
        part=("task", "tasks"),
        metric="acc",
        higher_is_better=True,
    )


def evals_result(evals, **options):
    return relfit.compare_losses(evals, rng=0, **options)


def test_prompts_are_those_of_their_items_and_text_in_the_page():
    """Item 3 has no score of a and is left out: the prompts after it still belong to their items."""
    evals = logs(missing={("a", 3)})
    result = evals_result(evals)
    (found,) = contrasts(result, recall_scores(result, evals))
    assert found.ahead == len(evals.differing("b", "a", 1000)) == 48
    assert [each["item"] for each in found.items] == ["0", "0", "1", "1", "2", "2", "4", "4", "5", "5"]
    known = {(row["task"], row["item"]) for row in evals.differing("b", "a", 1000)}
    for each in found.items:
        assert (each["stratum"], each["item"]) in known
        assert each["prompt"].endswith(f"\\u202eend? {each['stratum']} {each['item']}")
        assert each["prompt"].startswith("…")
        assert len(each["prompt"]) <= LETTERS
    evals = logs()
    page = render_report(evals_result(evals), evals)
    assert page.count("<script") == 1
    assert "<i>" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; \\u202eend?" in page
    assert "&lt;i&gt;sums" in page
    table = {"key": [f"<u>{k}" for k in range(80)], **crossed()}
    options = {"item": "key", "higher_is_better": True}
    page = render_report(relfit.compare_losses(table, rng=0, **options), relfit.scores(table, **options))
    assert "<u>" not in page
    assert "&lt;u&gt;0" in page


def test_other_scores_are_refused():
    scores = crossed()
    result, _ = compared(scores)
    other = {**scores, "a": [0, *scores["a"][1:]]}
    fewer = {name: column[:60] for name, column in scores.items()}
    renamed = {"x": scores["a"], "b": scores["b"], "c": scores["c"]}
    for data in (other, fewer, renamed, logs()):
        refused(lambda data=data: render_report(result, data), "data: expected the scores this result was made from")
    refused(lambda: render_report(result, scores, items={"a": ["x"]}), "items: belongs to features")


@pytest.fixture
def clumps(rng):
    """Model b has a clump at 5 that the data lack; the data have one at −5 that b lacks."""
    data = np.concatenate([rng.normal(size=(40, 1)), rng.normal(-5, 0.1, (20, 1))])
    clumped = np.concatenate([rng.normal(size=(40, 1)), rng.normal(5, 0.1, (20, 1))])
    models = {"a": np.concatenate([rng.normal(size=(40, 1)), rng.normal(-5, 0.1, (20, 1))]), "b": clumped}
    return relfit.compare(data, models, rng=0, kernel=relfit.Gaussian(1.0)), (data, models)


def _texts(clumps):
    data, models = clumps[1]
    return {"reference": [f"r {x[0]:.1f}" for x in data], "b": [f"b {x[0]:.1f}" for x in models["b"]]}


def test_the_rows_that_differ_most_are_chosen_and_must_fit_the_items(clumps):
    result, data = clumps
    found = differing_rows(result, recall(result, data), "b")
    shown = {title: [each.text for each in kept] for title, kept in example_rows(found, _texts(clumps)).items()}
    many = shown["Too frequent in the model"]
    rare = shown["In the data, but too rare in the model"]
    typical = shown["Most like the data"]
    assert all(4.5 < float(text.split()[1]) < 5.5 for text in many)
    assert all(-5.5 < float(text.split()[1]) < -4.5 for text in rare)
    assert all(abs(float(text.split()[1])) < 2.5 for text in typical)
    recalled = recall(result, data)
    refused(lambda: check_items(["x"], recalled), "items: expected a mapping")
    refused(
        lambda: check_items({"b": ["x"] * 59}, recalled), "items of 'b': expected one for each of its 60 rows, got 59"
    )
    refused(lambda: check_items({"c": []}, recalled), "expected 'reference' or the name of a model")
    items = {"reference": ["<script>alert(1)</script>"] * 60}
    page = render_report(result, data, items=items)
    assert page.count("<script") == 1
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


def _decoded(address):
    head, _, body = address.partition(",")
    assert head == "data:image/png;base64"
    return Image.open(io.BytesIO(base64.b64decode(body)))


def test_arrays_become_pictures():
    """An 8 × 4 image is enlarged to 96 pixels without blurring: black stays black and white white."""
    pixels = np.zeros((4, 8))
    pixels[:, 4:] = 1.0
    image = _decoded(example(pixels, 3).picture)
    assert image.size == (PICTURE, PICTURE // 2)
    assert set(np.asarray(image).ravel()) == {0, 255}
    colour = np.zeros((2, 2, 3), np.uint8)
    colour[..., 0] = 200
    assert _decoded(example(colour, 0).picture).getpixel((0, 0)) == (200, 0, 0)
    refused(lambda: example(np.zeros(5), 0), "expected images of shape (h, w) or (h, w, 3)")


def test_strata_with_missing_scores_have_adjusted_means(rng):
    scores = rng.normal(size=(120, 2)) + 3.0 * rng.normal(size=(120, 1))
    scores[rng.random(scores.shape) < 0.2] = np.nan
    tasks = np.repeat(["a", "b"], 60)
    table = relfit.scores(scores, strata=tasks, missing="adjust", higher_is_better=False)
    result = relfit.compare_losses(table, rng=0)
    rows = stratum_rows(result, table.common())
    np.testing.assert_allclose((rows[1].means + rows[2].means) / 2, rows[0].means)
    assert "nan" not in render_report(result, data=table)


def test_strata_with_training_runs_are_decided_with_them(rng):
    """In the order of the table, which is not that of the scores."""
    # The runs of the model that looks worst differ so much that it may be the best.
    shift = np.array([[-4.0, 1.0, 7.0], [0.0, 0.0, 0.0], [0.8, 0.8, 0.8]])
    cube = rng.normal(size=(120, 3, 3)) + shift
    tasks = np.repeat(["a", "b"], 60)
    table = relfit.scores(cube, strata=tasks, higher_is_better=False)
    result = relfit.compare_losses(table, rng=0)
    assert [row["name"] for row in result.rows()] == ["m2", "m3", "m1"]
    for row in stratum_rows(result, table.common())[1:]:
        alone = relfit.compare_losses(cube[tasks == row.name], higher_is_better=False, rng=0)
        np.testing.assert_allclose(row.means, alone.discrepancy[[1, 2, 0]])
        assert row.kinds[1] == "worse"
        assert row.kinds[2] == "open"
