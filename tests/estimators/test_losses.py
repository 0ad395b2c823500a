import numpy as np
import pytest
from refusals import refused

import relfit
from relfit.report.page import render_report


@pytest.mark.parametrize(
    ("losses", "words"),
    [
        ({"a": 1.0, "b": 2.0}, r"losses\['a'\]: expected a score for each item, got one number"),
        ({"a": [1.0, [2.0]], "b": [1.0, 2.0]}, r"losses\['a'\]"),
    ],
)
def test_losses_of_another_shape_are_refused_in_a_line(losses, words):
    with pytest.raises(relfit.InputError, match=words):
        relfit.from_losses(losses)


def test_means_and_covariance_of_the_means(rng):
    losses = rng.normal([0.0, 0.1, 0.5], size=(50, 3))
    joint = relfit.from_losses(losses)
    np.testing.assert_allclose(joint.values, losses.mean(0))
    np.testing.assert_allclose(joint.covariance, np.cov(losses.T) / 50)
    assert joint.names == ("m1", "m2", "m3")
    assert joint.sizes == (50,)


def test_a_loss_plus_a_constant_is_worse_on_all_items(rng):
    """p = 1/(n + 1): the next item could be the first one to contradict. Equal losses are a tie, and no proof."""
    loss = rng.normal(size=100)
    result = relfit.decide(relfit.from_losses({"a": loss, "b": loss + 0.01, "c": loss}))
    assert result.worse.tolist() == [False, True, False]
    assert "deterministic" in result.status[1]
    assert result.pvalue[1] == pytest.approx(1 / 101)
    assert result.status[2] == ("tie",)


def _written(folder, rows, suffix):
    """The rows in a file whose columns are gpt, claude and llama."""
    names, path = ["gpt", "claude", "llama"], folder / f"loss{suffix}"
    if suffix == ".csv":
        np.savetxt(path, rows, delimiter=",", header=", ".join(names), comments="")
    else:
        pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
        from pyarrow import parquet

        parquet.write_table(pyarrow.table(dict(zip(names, rows.T, strict=True))), path)
    return path


def test_a_column_that_numbers_the_items_is_no_model(rng, tmp_path):
    rows = np.column_stack([np.arange(1, 31), rng.exponential(size=(30, 2))])
    path = _written(tmp_path, rows, ".csv")
    refused(lambda: relfit.from_losses(path), "got 1, 2, 3, … in 'gpt'", "leave that column out")
    refused(lambda: relfit.from_losses(rows[:, [1, 0]]), "in 'm2'")
    rows[7, 0] = 3.0
    assert relfit.from_losses(rows).names == ("m1", "m2", "m3")


def test_items_and_groups_are_counted(rng):
    losses = rng.normal(size=(50, 6))
    joint = relfit.from_losses(losses, groups=np.repeat(np.arange(25), 2))
    result = relfit.decide(joint, rng=0)
    assert any(note.startswith("6 models are many for 25 groups: ") for note in result.warnings)
    paragraph = result.methods_text()
    assert "We compared 6 models on 50 items in 25 groups by a mean loss" in paragraph
    assert "treating items of one group as dependent" in paragraph
    assert "The answer holds for independent groups of items that no model was fitted to" in render_report(result)
    alone = relfit.decide(relfit.from_losses(losses), rng=0)
    assert "We compared 6 models on 50 items by a mean loss" in alone.methods_text()
    assert "group" not in alone.methods_text().splitlines()[0]
    assert "The answer holds for independent items that no model was fitted to" in render_report(alone)
    given = relfit.decide(relfit.JointEstimate(("a", "b"), [0.0, 1.0], np.eye(2)), rng=0)
    assert "independent items" not in render_report(given)
    assert "only as good as the covariance that was given" in render_report(given)


@pytest.mark.parametrize(
    ("losses", "options", "words"),
    [
        (np.zeros((5, 2)), {}, "at least 20"),
        (np.zeros((30, 2)), {"names": ["a"]}, "expected 2"),
        ({"a": [1.0] * 30, "b": [1.0] * 29}, {}, "as many"),
        ({}, {}, "losses"),
        (np.full((30, 2), np.nan), {}, "NaN"),
        ([["x", "y"]] * 30, {}, "text"),
        (np.zeros((30, 2)), {"groups": np.arange(30) % 5}, "at least 6 groups"),
        (np.zeros((30, 2)), {"groups": [1, 2]}, "expected 30 labels"),
    ],
)
def test_refusals(losses, options, words):
    with pytest.raises(relfit.InputError, match=words) as caught:
        relfit.from_losses(losses, **options)
    assert "\n" not in str(caught.value)


def test_very_small_scores_are_measured_in_a_unit(rng):
    """Equal models with scores near 1e-170 were declared worse with p = 0; scores too small for float64 are refused."""
    scores = rng.random((300, 3)) * 1e-170
    result = relfit.compare_losses(scores, higher_is_better=True, rng=0)
    assert result.unit == 2.0**-565
    np.testing.assert_allclose(result.unit * result.discrepancy, scores.mean(0), rtol=1e-12)
    assert result.standard_error.min() > 0.0
    assert result.warnings[0].startswith("the largest score is 1e-170, so all scores, differences and margins")
    refused(lambda: relfit.from_losses(scores * 1e-140), "losses: expected scores of at least 2.2e-308 in size")
    scores[:, 1] *= 1e170
    refused(lambda: relfit.from_losses(scores), "expected scores of similar size", "at most 1e-170 for 'm1'")
