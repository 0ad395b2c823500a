"""The data of a finished comparison: loaded alike, checked to be the same, thinned out by the rules."""

from __future__ import annotations

import numpy as np
import pytest
from refusals import refused

import relfit
from relfit.compute.memory import budget_of
from relfit.data.load import load
from relfit.report.page import render_report
from relfit.report.recall import MOST_ROWS, recall
from relfit.report.witness import differing_rows


@pytest.fixture
def two(rng):
    return rng.normal(size=(60, 2)), {"a": rng.normal(size=(60, 2)), "b": rng.normal(1, 1, (50, 2))}


def test_all_rows_give_the_result_again_and_files_are_read_as_far_as_shown(two, tmp_path):
    result = relfit.compare(*two, rng=0)
    recalled = recall(result, two)
    assert recalled.complete
    for name, value in zip(result.names, result.discrepancy, strict=True):
        assert differing_rows(result, recalled, name).discrepancy == pytest.approx(value, rel=1e-9, abs=1e-13)
    data, models = two
    for name, rows in {"x": data, **models}.items():
        np.save(tmp_path / f"{name}.npy", rows.astype(np.float32))
    files = str(tmp_path / "x.npy"), {name: str(tmp_path / f"{name}.npy") for name in models}
    result = relfit.compare(*files, rng=0)
    with budget_of("100GB") as budget:
        recalled = recall(result, load(*files, budget=budget), most=20)
    assert isinstance(recalled.data.samples["a"], np.ndarray)
    np.testing.assert_array_equal(recalled.data.samples["a"], models["a"].astype(np.float32)[recalled.rows["a"]])


def test_columns_are_summed_up_over_all_rows(rng, tmp_path, monkeypatch):
    """Files in parts of 100 numbers, far from 0: the moments are those of NumPy over all rows, and the page says so."""
    monkeypatch.setattr("relfit.util.arrays.PART_NUMBERS", 100)
    samples = {"x": rng.normal(1e6, 1.0, (3000, 2)), "a": rng.normal(1e6, 1.5, (2500, 2))}
    samples["b"] = rng.normal((1e6 + 0.25, 1e6), 1.0, (1200, 2))
    for name, rows in samples.items():
        np.save(tmp_path / f"{name}.npy", rows)
    files = str(tmp_path / "x.npy"), {name: str(tmp_path / f"{name}.npy") for name in "ab"}
    result = relfit.compare(*files, rng=0)
    with budget_of("100GB") as budget:
        recalled = recall(result, load(*files, budget=budget), most=20)
    for key, name in ((None, "x"), ("a", "a"), ("b", "b")):
        np.testing.assert_allclose(recalled.moments[key].mean, samples[name].mean(axis=0), rtol=1e-14)
        np.testing.assert_allclose(recalled.moments[key].spread, samples[name].std(axis=0), rtol=1e-9)
    page = render_report(result, files)
    spread = samples["x"].std(axis=0)
    for name in "ab":
        moved = (samples[name].mean(axis=0) - samples["x"].mean(axis=0)) / spread
        for shift, wide in zip(moved, samples[name].std(axis=0) / spread, strict=True):
            assert f"mean {shift:+.2f} s.d., spread ×{wide:.2f}".replace("-", "−") in page
    assert "come from at most 1,000 rows of each sample; means, spreads and percentages come from all rows." in page
    assert "Shares come from at most 400 rows of each sample." in page


def test_large_samples_are_thinned_out_alike(rng):
    data = rng.normal(size=(MOST_ROWS + 500, 2))
    noise = rng.normal(size=data.shape)
    models = {"a": noise, "b": noise + 0.3}
    result = relfit.compare(data, models, rng=0, dependence="shared")
    recalled = recall(result, (data, models))
    assert not recalled.complete
    assert len(recalled.data.reference) == recalled.most_rows == MOST_ROWS
    assert recalled.sizes == {None: MOST_ROWS + 500, "a": MOST_ROWS + 500, "b": MOST_ROWS + 500}
    np.testing.assert_array_equal(recalled.data.samples["b"], models["b"][recalled.rows["b"]])
    np.testing.assert_array_equal(recalled.rows["a"], recalled.rows["b"])
    assert not np.array_equal(recalled.rows[None], recalled.rows["a"])
    paired = recall(relfit.compare(data, models, rng=0, dependence="paired"), (data, models))
    np.testing.assert_array_equal(paired.rows[None], paired.rows["a"])
    assert (np.diff(recalled.rows["a"]) > 0).all()


def test_other_data_are_refused(two):
    data, models = two
    result = relfit.compare(data, models, rng=0)
    refused(lambda: recall(result, data), "data: expected a pair")
    renamed = {"a": models["a"], "c": models["b"]}
    refused(lambda: recall(result, (data, renamed)), "expected the models of this result (a and b), got a and c")
    shorter = {**models, "b": models["b"][:49]}
    refused(lambda: recall(result, (data, shorter)), "expected the data this result was made from", "model 'b'")
    moved = data, {**models, "b": models["b"] + 0.1}
    refused(lambda: recall(result, moved), "expected the data this result was made from", "model 'b'")
    refused(lambda: recall(result, (data[::-1], models)), "expected the data this result was made from", "reference")
    unrecorded = result.changed(inputs=None)
    refused(lambda: differing_rows(unrecorded, recall(unrecorded, moved), "b"), "the discrepancy of 'b' is")
    refused(
        lambda: differing_rows(result, recall(result, two), "c"), "name: expected the name of a model (a or b), got 'c'"
    )
