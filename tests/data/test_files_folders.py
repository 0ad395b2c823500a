"""Folders of Parquet files are one table: the rows, names and answers of one file, and one line for anything else."""

import os
import sys

import numpy as np
import pytest
from refusals import refused

import relfit
from relfit.cli import main
from relfit.compute.memory import Budget
from relfit.data.arrays import spilled_rows
from relfit.data.files import FileRows, name_of, read_names, read_rows
from relfit.data.tables import split_labels

pa = pytest.importorskip("pyarrow", reason="pyarrow reads Parquet files")
parquet = pytest.importorskip("pyarrow.parquet")

pytestmark = [pytest.mark.filterwarnings("error"), pytest.mark.usefixtures("as_a_fresh_process")]

RNG = np.random.default_rng(0)
SAMPLES = {name: RNG.normal(shift, 1.0, (300, 3)) for name, shift in {"data": 0.0, "a": 0.0, "b": 0.5}.items()}


def write(path, rows, names=("x", "y", "z")):
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = rows if isinstance(rows, dict) else dict(zip(names, rows.T, strict=True))
    parquet.write_table(pa.table(columns), path, row_group_size=40)


@pytest.fixture
def folder(tmp_path):
    """Three files of 100 rows, one of them in a folder of its own, and what other programs leave behind."""
    rows = SAMPLES["data"]
    for k, place in enumerate(("a.parquet", "b.PARQUET", "more/c.parquet")):
        write(tmp_path / "parts" / place, rows[100 * k : 100 * k + 100])
    for hidden in ("_SUCCESS", ".a.parquet.crc", "_metadata", "_temporary/x.bin"):
        (tmp_path / "parts" / hidden).parent.mkdir(exist_ok=True)
        (tmp_path / "parts" / hidden).write_bytes(b"?")
    return tmp_path / "parts"


def test_the_rows_and_names_of_all_files(folder, tmp_path):
    assert np.array_equal(read_rows(folder), SAMPLES["data"])
    assert np.array_equal(read_rows(f"{folder}/", columns="z,0"), SAMPLES["data"][:, [2, 0]])
    assert read_names(folder) == ["x", "y", "z"]
    assert name_of(f"{folder}/") == name_of(folder) == "parts"
    assert name_of("runs/tuned.parquet") == "tuned"
    opened = spilled_rows("x", FileRows(str(folder), "y"), Budget(10**9, tmp_path))
    assert np.array_equal(opened, SAMPLES["data"][:, 1:2])


def test_names_of_folders_are_columns_as_in_pandas(tmp_path):
    pandas = pytest.importorskip("pandas")
    rows = SAMPLES["data"]
    frame = pandas.DataFrame(rows, columns=["x", "y", "z"])
    frame["year"] = np.where(rows[:, 0] > 0, 2024, 2025)
    frame["city"] = np.where(rows[:, 1] > 0, "Aÿ/1", "b")
    frame.to_parquet(tmp_path / "hive", partition_cols=["year", "city"])
    assert sorted(read_names(tmp_path / "hive")) == ["city", "x", "y", "year", "z"]
    assert np.unique(read_rows(tmp_path / "hive", columns="year")).tolist() == [2024, 2025]
    assert set(split_labels(tmp_path / "hive", "city")[0]) == {"Aÿ/1", "b"}
    read = pandas.read_parquet(tmp_path / "hive")
    read = read.assign(year=read["year"].astype(int), city=read["city"].astype(str))
    models = {"a": read.iloc[::2], "b": read.iloc[1::2]}
    for memory in (None, "1GB"):
        compute = relfit.Compute(memory=memory)
        result = relfit.compare(tmp_path / "hive", models, rng=0, compute=compute)
        expected = relfit.compare(read, models, rng=0, compute=compute)
        assert np.array_equal(result.estimates, expected.estimates)
        assert result.encoding == expected.encoding


def test_parts_that_differ_or_are_damaged_are_named(folder):
    write(folder / "d.parquet", {"x": [1.0], "y": [1.0], "zz": [1.0]})
    refused(lambda: read_rows(folder), "d.parquet: expected the columns of ", "only one of the two has 'z' and 'zz'")
    (folder / "d.parquet").unlink()
    damaged = folder / "more" / "c.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-20])
    refused(lambda: read_rows(folder), "more/c.parquet: cannot be read; it is truncated, damaged")
    damaged.write_bytes(b"")
    refused(lambda: read_rows(folder), "more/c.parquet: cannot be read")


@pytest.mark.skipif(sys.platform == "win32", reason="needs links and pipes")
def test_links_and_pipes_are_not_followed(folder):
    os.mkfifo(folder / "pipe.parquet")
    refused(lambda: read_rows(folder), "pipe.parquet: pipes cannot be read")
    (folder / "pipe.parquet").unlink()
    (folder / "again").symlink_to(folder)
    refused(lambda: read_rows(folder), "got 'again' (a link); move it elsewhere")
    (folder / "again").unlink()
    (folder / "gone.parquet").symlink_to(folder / "nowhere")
    refused(lambda: read_rows(folder), "gone.parquet: no such file")


@pytest.mark.skipif(sys.platform == "win32", reason="needs links")
@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_link_to_a_part_does_not_double_its_rows(folder, tmp_path, link):
    """N13: rows of a part with a second name were counted twice; a link to a file elsewhere is an ordinary part."""
    link(folder / "a.parquet", folder / "more" / "z.parquet")
    refused(lambda: read_rows(folder), "expected each file once, got 'a.parquet' and a link to it, 'more/z.parquet'")
    (folder / "more" / "z.parquet").unlink()
    (folder / "a.parquet").rename(tmp_path / "blob")
    link(tmp_path / "blob", folder / "a.parquet")
    assert np.array_equal(read_rows(folder), SAMPLES["data"])


@pytest.mark.parametrize("log", ["_delta_log", ".hoodie"])
def test_a_table_with_a_log_is_not_taken_for_all_of_its_files(folder, log):
    (folder / log).mkdir()
    refused(lambda: read_rows(folder), f"got a table whose log ({log}) says which files count")


def test_the_command_line(folder, tmp_path, monkeypatch, capsys):
    for name in "ab":
        write(tmp_path / name / "0.parquet", SAMPLES[name])
    monkeypatch.chdir(tmp_path)
    for memory in ([], ["--memory", "1GB"]):
        assert main(["compare", "parts/", "a", "b", *memory, "--json", "result.json"]) == 0
        result = relfit.Comparison.from_json((tmp_path / "result.json").read_text())
        assert result.names == ("a", "b")
        assert result.worse.tolist() == [False, True]
        assert main(["rerun", "result.json"]) == 0
        assert "Agrees" in capsys.readouterr().out
    # Nothing is written into an input.
    assert main(["compare", "parts", "a", "b", "--json", "parts/result.json"]) == 2
    assert "parts/result.json" in capsys.readouterr().err
    assert main(["compare", "parts", "a", "parts"]) == 2
    assert "given both as the reference and as a model" in capsys.readouterr().err
