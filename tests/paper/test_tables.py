"""table1-celeba and table1-digits: the draws, FID, the quick versions and the refusals."""

from __future__ import annotations

import csv
import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from refusals import refused
from scipy.linalg import sqrtm

from relfit.cli import main
from relfit.paper import table1
from relfit.paper.experiment import CACHE_VARIABLE, DataOptions
from relfit.paper.faces import attributes, feature_files
from relfit.paper.reproduce import CATALOGUE, Scope, reproduce
from relfit.paper.table1 import fids


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))


# --- FID


def test_fid_of_one_column_is_known():
    """(μ − μ')² + (s − s')²: for a standard deviation s doubled and a mean moved by 3, 9 + s²."""
    x = np.array([[1.0], [2.0], [4.0], [9.0]])
    s = x.std(ddof=1)
    assert fids(x, {"m": 2.0 * x - x.mean() + 3.0})["m"] == pytest.approx(9.0 + s**2)


@pytest.mark.parametrize("n", [200, 6])
def test_fid_agrees_with_the_root_of_the_product(rng, n):
    """With fewer rows than columns both covariances are singular."""
    a, b = rng.normal(size=(n, 8)), rng.normal(0.3, 1.5, size=(n + 1, 8)) @ rng.normal(size=(8, 8))
    p, q = np.cov(a, rowvar=False), np.cov(b, rowvar=False)
    ridge = 0.0 if n > 8 else 1e-13
    root = sqrtm(p @ q + ridge * np.eye(8)).real
    expected = ((a.mean(0) - b.mean(0)) ** 2).sum() + np.trace(p + q - 2.0 * root)
    assert fids(a, {"b": b})["b"] == pytest.approx(expected, rel=1e-4)
    # Eigenvalues of 0 come out as rounding, and their roots as the root of it.
    assert fids(a, {"a": a})["a"] == pytest.approx(0.0, abs=1e-10 if n > 8 else 1e-6)


# --- the draws


def numbered(n=60):
    """Rows that say which group they are of and which number they have; generated ones are negative."""
    groups = tuple(np.stack([np.full(n, float(g)), np.arange(n, dtype=float)], axis=1) for g in (0, 1))
    return table1.Source(groups, lambda group, count, rng: -1.0 - np.full((count, 2), float(group)))


def test_reference_and_models_are_disjoint_and_mixed_as_said():
    reference, models = table1.draw(numbered(), 50, seed=1)
    rows = set(map(tuple, reference))
    assert len(rows) == 50
    assert (reference[:, 0] == 0.0).sum() == 25
    shares = {"R .60/.40": 30, "R .40/.60": 20, "R .51/.49": 26, "R .52/.48": 26}
    for name, first in shares.items():
        drawn = set(map(tuple, models[name]))
        assert len(drawn) == len(models[name]) == 50
        assert not drawn & rows
        assert (models[name][:, 0] == 0.0).sum() == first
    assert sorted(models["G .50/.50"][:, 0]) == [-2.0] * 25 + [-1.0] * 25
    other, _ = table1.draw(numbered(), 50, seed=2)
    assert set(map(tuple, other)) != rows


# --- digits


def test_digits_quick_version_and_a_trial_is_a_function_of_its_seed(tmp_path):
    with ThreadPoolExecutor(2) as pool:
        report = reproduce(CATALOGUE["table1-digits"], tmp_path, scope=Scope(quick=True), executor=pool, progress=False)
    assert [str(check) for check in report.checks if not check.ok] == []
    assert report.table.count("| 300 |") == 5 + 1
    assert "1.00 ± 0.00 (0.99)" in report.table  # the generated images
    assert {"figure.png", "figure.svg", "run.json", "table.md", "trials.csv"} <= {
        path.name for path in report.folder.iterdir()
    }
    first, again = (table1.trial(table1.digits_source, {"n": 300}, 4) for _ in range(2))
    assert first == again
    tests = {decision["test"] for decision in first["decisions"]}
    assert tests == {*table1.TESTS, "FID", "FID, 10 resamples", "RelPSI, two models"}
    for test in tests:
        assert sum(decision["selected"] for decision in first["decisions"] if decision["test"] == test) == 1


# --- CelebA


@pytest.fixture
def features(tmp_path):
    """Made-up features: two groups that differ, and generated ones that are off."""
    folder, rng = tmp_path / "features", np.random.default_rng(0)
    folder.mkdir()
    for k, group in enumerate(("smile", "nonsmile")):
        np.save(folder / f"ref_{group}.npy", rng.normal(3.0 * k, 1.0, (400, 6)).astype(np.float32))
        np.save(folder / f"gen_{group}.npy", rng.normal(3.0 * k + 1.0, 1.0, (150, 6)).astype(np.float32))
    return folder


def test_celeba_on_given_features(features, tmp_path):
    with ThreadPoolExecutor(1) as pool:
        options = {"scope": Scope(quick=True), "executor": pool, "progress": False}
        report = reproduce(
            CATALOGUE["table1-celeba"], tmp_path / "out", data_options=DataOptions(features=features), **options
        )
    assert [str(check) for check in report.checks if not check.ok] == []
    assert "1.00 ± 0.00 (0.99)" in report.table
    assert str(features) not in (report.folder / "trials.csv").read_text(encoding="utf-8")


def test_resampling_makes_fid_larger():
    """Two samples of one law, 8 columns: every resample repeats rows, whose covariances differ more."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 200, 8))
    mean, spread = table1.resampled_fids(x, {"m": y}, 0)["m"]
    assert mean > 1.5 * fids(x, {"m": y})["m"]
    assert 0.0 < spread < mean
    assert table1.resampled_fids(x, {"m": y}, 0)["m"] == (mean, spread)


def rows_of(folder):
    with (folder / "trials.csv").open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def test_fewer_rows_make_n_smaller_and_without_generated_faces_there_are_four_models(features, tmp_path):
    for name in ("gen_smile.npy", "gen_nonsmile.npy"):
        (features / name).unlink()
    rows = np.load(features / "ref_smile.npy")[:90]
    np.save(features / "ref_smile.npy", rows)
    with ThreadPoolExecutor(1) as pool:
        options = {"scope": Scope(quick=True), "executor": pool, "progress": False}
        report = reproduce(
            CATALOGUE["table1-celeba"], tmp_path / "out", data_options=DataOptions(features=features), **options
        )
    # n/2 + .6 n ≤ 90.
    assert {row["n"] for row in rows_of(report.folder)} == {"82"}
    assert {row["model"] for row in rows_of(report.folder)} == {name for name in table1.MODELS if name[0] == "R"}
    assert "6 features of faces from feature files (90 in ref_smile.npy, 400 in ref_nonsmile.npy)" in (
        report.folder / "run.json"
    ).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    """Small pictures, the smiling ones brighter, with CelebA's list in both forms; and generated ones."""
    image = pytest.importorskip("PIL.Image")
    folder = tmp_path_factory.mktemp("celeba")
    rng = np.random.default_rng(0)
    lines, table = [], []
    (folder / "images").mkdir()
    for k in range(140):
        pixels = rng.integers(0, 120, (16, 16, 3)) + (120 if k % 2 else 0)
        image.fromarray(pixels.astype(np.uint8)).save(folder / "images" / f"{k:06}.png")
        lines.append(f"{k:06}.png  -1 {1 if k % 2 else -1}")
        table.append(f"{k:06}.png,-1,{1 if k % 2 else -1}")
    (folder / "list.txt").write_text("\n".join(["140", "Young Smiling", *lines, "999999.png 1 1"]) + "\n")
    (folder / "list.csv").write_text("\n".join(["image_id,Young,Smiling", *table]) + "\n")
    for group in ("smiling", "other"):
        (folder / "made" / group).mkdir(parents=True)
        for k in range(35):
            pixels = rng.integers(100, 140, (16, 16, 3)).astype(np.uint8)
            image.fromarray(pixels).save(folder / "made" / group / f"{k}.png")
    return folder


def test_celeba_from_folders(photographs, tmp_path, monkeypatch, capsys):
    pytest.importorskip("efficientnet_lite_pytorch")
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    command = ["reproduce", "table1-celeba", "--quick", "--no-progress", "--workers", "1"]
    command += ["--images", str(photographs / "images"), "--generated", str(photographs / "made")]
    first = [*command, "--out", str(tmp_path / "out"), "--attributes", str(photographs / "list.txt")]
    assert main(first) in (0, 1)
    run = json.loads((tmp_path / "out/table1-celeba/run.json").read_text(encoding="utf-8"))
    assert run["about"] == (
        "1280 features of efficientnet-lite0, of 70 smiling and 70 other photographs and 70 generated faces"
    )
    stored = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*.names.txt")}
    again = [*command, "--out", str(tmp_path / "again"), "--attributes", str(photographs / "list.csv")]
    assert main(again) in (0, 1)
    assert {path: path.stat().st_mtime_ns for path in stored} == stored  # nothing was computed again
    tables = [(tmp_path / name / "table1-celeba/table.md").read_text(encoding="utf-8") for name in ("out", "again")]
    assert tables[0] == tables[1]


BAD_LISTS = {
    "no attribute": ("2\nYoung Male\na.png 1 1\n", "found none"),
    "a short line": ("1\nYoung Smiling\na.png 1\n", "line 3 of list.txt: expected a name and 2 values"),
    "a word": ("1\nYoung Smiling\na.png 1 yes\n", "line 3 of list.txt"),
}


@pytest.mark.parametrize(("text", "words"), BAD_LISTS.values(), ids=BAD_LISTS)
def test_lists_of_attributes_that_are_refused(text, words, tmp_path):
    path = tmp_path / "list.txt"
    path.write_text(text)
    refused(lambda: attributes(path), "--attributes: ", words)


def test_images_without_a_line_or_a_list_are_refused(photographs, tmp_path, monkeypatch):
    pytest.importorskip("efficientnet_lite_pytorch")
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    short = tmp_path / "short.txt"
    short.write_text("1\nSmiling\n000001.png 1\n")
    folder = photographs / "images"
    refused(lambda: feature_files(DataOptions(images=folder), print), "--images: expected --attributes FILE")
    options = DataOptions(images=folder, attributes=short)
    refused(lambda: feature_files(options, print), "has no line for 139 of the 140 images, such as '000000.png'")
    refused(
        lambda: feature_files(DataOptions(images=folder, attributes=short, model="minilm"), print),
        "--model: expected one of ",
        "got 'minilm'",
    )


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (None, "expected the file ref_smile.npy"),
        (np.zeros((50, 6)), "66 rows or more"),
        (np.zeros((400, 7)), "same number of columns"),
        (np.full((400, 6), np.nan), "finite"),
        (np.array([{}] * 400, dtype=object), "an .npy file of numbers"),
    ],
    ids=["absent", "few", "wide", "nan", "objects"],
)
def test_celeba_refuses_other_files(features, rows, words):
    file = features / "ref_smile.npy"
    file.unlink()
    if rows is not None:
        np.save(file, rows, allow_pickle=True)
    refused(lambda: table1.prepare_celeba(DataOptions(features=features), True, print), words)


# --- the command


def test_all_skips_what_has_no_data(tmp_path, monkeypatch, capsys):
    tables = {name: CATALOGUE[name] for name in ("table1-celeba", "table2-chicago", "table1-digits")}
    monkeypatch.setattr("relfit.paper.reproduce.CATALOGUE", tables)
    assert main(["reproduce", "all", "--quick", "--out", str(tmp_path), "--no-progress", "--workers", "1"]) == 0
    out = capsys.readouterr().out
    assert "Skipped table1-celeba: " in out
    assert "--features DIR" in out
    assert "Skipped table2-chicago: " in out
    assert "table1-digits ·" in out
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} - {"cache"} == {"table1-digits"}
