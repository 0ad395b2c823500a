"""Common first mistakes: the error says what to do instead."""

import os

import numpy as np
import pytest
import scipy.sparse
from commands import refused_line
from refusals import refused

import relfit
from relfit.cli.inputs import load_object
from relfit.data.files import read_rows


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, rows in zip(("real", "good", "meh"), np.random.default_rng(0).normal(size=(3, 40, 2)), strict=True):
        np.save(tmp_path / f"{name}.npy", rows)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "columns", "said"),
    [
        ("a;b\n1;2\n", None, "separated by ';'?"),
        ("1;2\n3;4\n", None, "separated by ';'?"),
        ("a;b\n1,5;2,5\n", None, "separated by ';'?"),
        ("a;b\n1;2\n", "b", "expected a column called 'b', got 'a;b'; is it separated by ';'?"),
        ("a\tb\n1\t2\n", None, "separated by a tab?"),
        ("a|b\n1|2\n", None, "separated by '|'?"),
    ],
)
def test_another_separator_is_asked_about(tmp_path, text, columns, said):
    (tmp_path / "a.csv").write_text(text)
    refused(lambda: read_rows(tmp_path / "a.csv", columns=columns), str(tmp_path / "a.csv"), said)


@pytest.mark.parametrize("odd", ["real", "good"])
def test_one_file_with_another_separator(folder, capsys, odd):
    for name in ("real", "good", "meh"):
        (folder / f"{name}.csv").write_text("a,b\n1,2\n".replace(",", ";" if name == odd else ","))
    line = refused_line(capsys, "compare", "real.csv", "good.csv", "meh.csv")
    assert "good.csv: expected the reference's columns" in line
    assert "separated by ';'?; rename them" in line


def test_what_is_separated_by_commas_is_not(tmp_path):
    for text in ("a,b\n1,x;y\n", "a\nx\n", 'a\n"1,5"\n'):
        (tmp_path / "a.csv").write_text(text)
        assert "separated by" not in refused(lambda: read_rows(tmp_path / "a.csv"), "expected numbers")


def test_pipes_and_modules_in_the_folder(folder, capsys):
    said = "pipes cannot be read; save to a file first"
    assert f"-: {said}" in refused_line(capsys, "compare", "-", "good.npy", "meh.npy")
    assert f"-: {said}" in refused_line(capsys, "compare", "real.npy", "good.npy", "-")
    assert f"-: {said}" in refused_line(capsys, "compare", "real.npy", "good.npy", "-", "--memory", "2GB")
    os.mkfifo("pipe.csv")
    refused(lambda: read_rows("pipe.csv"), f"pipe.csv: {said}")
    reader, writer = os.pipe()
    try:
        refused(lambda: read_rows(f"/dev/fd/{reader}"), said)
    finally:
        os.close(reader)
        os.close(writer)
    (folder / "my_models.py").write_text("good = 3\n")
    refused(lambda: load_object("my_models:good"), "my_models: cannot be imported", "; or write my_models.py:good")
    assert load_object("my_models.py:good") == 3
    assert "or write" not in refused(lambda: load_object("no_models:good"), "no_models: cannot be imported")


# --- the functions


@pytest.fixture
def samples():
    return np.random.default_rng(0).normal(size=(3, 60, 2))


def test_a_test_by_any_of_its_names(samples):
    """D22: any case, and the class."""
    for test in ("RelPSI", "rel_psi", relfit.RelPSI, relfit.RelPSI()):
        assert relfit.compare(samples[0], list(samples[1:]), test=test, rng=0).test == "relpsi"
        assert relfit.compare_pair(*samples, test=test, rng=0).test == "relpsi"


# --- scores


@pytest.fixture
def scores():
    return np.random.default_rng(1).random((60, 2))


def test_means_are_no_scores():
    """D29: "expected rows and columns, got shape ()"."""
    said = "expected a score for each item, got one number; pass the scores of the items, because the error"
    for mean in (0.8, 1, True, np.float32(0.8), np.int64(1), np.array(0.8)):
        two = {"a": mean, "b": 0.7}
        refused(lambda x=two: relfit.compare_losses(x, higher_is_better=True), f"losses['a']: {said}")
        refused(lambda x=mean: relfit.compare_losses(x, higher_is_better=True), f"losses: {said}")


def test_what_is_no_table_of_scores(scores, tmp_path):
    """D23: in Python it can be turned round in place."""
    line = refused(lambda: relfit.compare_losses(scores.T[:2], higher_is_better=True), "got 2 rows and 60 columns")
    assert line.endswith("; if rows are models, pass losses.T")
    # D27: `relfit features` was advised.
    line = refused(lambda: relfit.compare_losses(tmp_path), f"{tmp_path}: expected a file, got a folder")
    assert line.endswith(f"for the logs of evaluations use relfit.read_evals({str(tmp_path)!r})")


def test_numbers_are_names_such_as_those_of_checkpoints(scores, tmp_path):
    """D31: names had to be text."""
    a, b = scores.T
    lists, names = {1000: a, 2000: b}, ("1000", "2000")
    assert relfit.compare_losses(lists, higher_is_better=True).names == names
    assert relfit.compare_losses(scores, names=(1000, np.int64(2000)), higher_is_better=True).names == names
    assert relfit.from_elpd(lists).names == names
    assert relfit.JointEstimate((1000, 2000), [0.0, 1.0], np.eye(2)).names == names
    with relfit.Monitor([1000, 2000], path=tmp_path / "gate.sqlite", higher_is_better=False) as monitor:
        monitor.update(lists, items=range(60))
        assert monitor.names == names
    refused(lambda: relfit.compare_losses({1000: a, "1000": b}, higher_is_better=True), "names: expected different")
    refused(lambda: relfit.compare_losses(scores, names=(True, None), higher_is_better=True), "got True and None")


def test_sparse_scores_are_told_to_be_converted(scores):
    """D30."""
    for form in (scipy.sparse.csr_matrix, scipy.sparse.csr_array, scipy.sparse.coo_matrix):
        said = f"losses: expected an array, got a sparse {form.__name__}; convert it by .toarray()"
        sparse = form(scores)
        refused(lambda x=sparse: relfit.compare_losses(x, higher_is_better=True), said)


# --- batches


def test_rows_one_by_one_are_noted(samples):
    """D30: where every sample yields its rows one by one, nothing else tells that each number was read as a row."""
    result = relfit.compare((row for row in samples[0]), [(row for row in rows) for rows in samples[1:]], rng=0)
    said = (
        "60 batches of 2 numbers were read as 120 rows of one column; if each batch is one row, yield arrays of shape"
    )
    assert f"reference: {said} (n, 2)" in result.warnings
    columns = [[rows[:30, 0], rows[30:, 0]] for rows in samples]
    result = relfit.compare(iter(columns[0]), [iter(each) for each in columns[1:]], rng=0)
    assert not any("batches" in note for note in result.warnings)
