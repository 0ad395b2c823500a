"""Rows that stay in their files: the same answers, checks and complaints as for rows in memory, in bounded parts."""

import errno
import gzip
import os
import re
import tempfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from peaks import peak_of
from refusals import refused

import relfit
from relfit.cli import main
from relfit.compute import memory
from relfit.compute.memory import (
    Budget,
    MappedRows,
    held_bytes,
    mapped_rows,
    parse_memory,
    some_rows,
    spilled,
    transposed,
)
from relfit.data import load as data_load
from relfit.data.arrays import spilled_rows
from relfit.data.files import FileRows
from relfit.data.models import Density
from relfit.util.arrays import is_mapped
from relfit.util.errors import InputError

pytestmark = pytest.mark.usefixtures("as_a_fresh_process")

ROWS, COLUMNS = 401, 3
SHIFTS = {"reference": 0.0, "a": 0.0, "b": 0.3, "c": 0.8}
DENSITIES = {
    "right": Density(score=lambda x: -x),
    "off": Density(score=lambda x: 0.5 - x),
    "by log density": Density(log_prob=lambda x: -0.5 * np.square(x - 1.0).sum(axis=1)),
}


@pytest.fixture
def samples():
    rng = np.random.default_rng(5)
    return {name: rng.normal(shift, 1, (ROWS, COLUMNS)).astype("f4") for name, shift in SHIFTS.items()}


@pytest.fixture
def files(samples, tmp_path):
    for name, rows in samples.items():
        np.save(tmp_path / f"{name}.npy", rows)
    return {name: str(tmp_path / f"{name}.npy") for name in samples}


@pytest.fixture
def small_parts(monkeypatch):
    """Every check and every patch sees a few rows only, so that seams are everywhere."""
    monkeypatch.setattr("relfit.util.arrays.PART_NUMBERS", 200)
    monkeypatch.setattr(Budget, "working", lambda self, kept, fewest, later=0: 100_000)


def both(reference, models, **options):
    """The comparison without a budget and with one."""
    return [
        relfit.compare(reference, models, rng=3, compute=relfit.Compute(memory=budget), **options)
        for budget in (None, "4GB")
    ]


def assert_same(first, second):
    np.testing.assert_allclose(second.discrepancy, first.discrepancy, rtol=0, atol=1e-12)
    np.testing.assert_allclose(second.covariance, first.covariance, rtol=1e-9, atol=1e-15)
    np.testing.assert_array_equal(second.worse, first.worse)
    assert second.inputs == first.inputs
    assert second.warnings == first.warnings


DESIGNS = [
    {},
    {"estimator": relfit.Complete("projection")},
    {"dependence": "paired"},
    {"dependence": "shared"},
    {"estimator": "linear"},
    {"estimator": relfit.Linear(shuffle=False)},
    {"estimator": "incomplete"},
    {"estimator": "block"},
    {"test": "relmulti"},
    {"kernel": "select"},
    {"kernel": "select", "estimator": "incomplete", "test": "relmulti"},
    {"kernel": [relfit.Gaussian(1.0), relfit.IMQ()]},
    {"preset": "kid"},
    {"discrepancy": "ume"},
    {"discrepancy": relfit.UME(locations=3, choose="optimise")},
    {"estimator": relfit.Landmarks(20, 4000)},
    {"estimator": "landmarks", "dependence": "paired"},
]


@pytest.mark.parametrize("options", DESIGNS, ids=range(len(DESIGNS)))
def test_samples_in_files_give_the_same_answer(files, options, small_parts):
    reference, models = files.pop("reference"), files
    assert_same(*both(reference, models, **options))


@pytest.mark.parametrize(
    "options",
    [{}, {"estimator": "linear"}, {"estimator": "incomplete"}, {"estimator": "block"}, {"discrepancy": "fssd"},
     {"test": "relmulti"}, {"kernel": "select"}, {"kernel": relfit.IMQ()}, {"estimator": relfit.Landmarks(20, 4000)}],
    ids=range(9),
)  # fmt: skip
def test_densities_at_data_in_a_file_give_the_same_answer(files, options, small_parts):
    assert_same(*both(files["reference"], DENSITIES, **options))


@pytest.mark.parametrize(
    "options", [{}, {"estimator": "linear"}, {"estimator": "incomplete"}, {"dependence": "shared"}], ids=range(4)
)
def test_a_target_and_samples_in_files_give_the_same_answer(files, options, small_parts):
    del files["reference"]
    assert_same(*both(DENSITIES["right"], files, **options))


def test_whatever_holds_the_rows(samples, files, tmp_path, small_parts):
    np.save(tmp_path / "columns.npy", np.asfortranarray(samples["b"]))
    mapped = np.load(files["c"], mmap_mode="r")
    changed = np.load(files["c"], mmap_mode="c")
    changed[0] = 7.0
    models = {
        "file": files["a"],
        "column by column": str(tmp_path / "columns.npy"),
        "mapped": mapped,
        "part of a mapped one": mapped[11:],
        "every other row": mapped[::2],
        "mapped by columns": np.load(tmp_path / "columns.npy", mmap_mode="r")[1:],
        "changed in memory only": changed,
        "float32": samples["b"][5:],
        "whole numbers": (100 * samples["b"]).astype("i2"),
        "Fortran": np.asfortranarray(samples["c"][7:].astype(float)),
        "list": samples["a"][:60].tolist(),
        "sample": relfit.Sample(samples["a"][9:]),
        "sampler": relfit.Sampler(lambda n, rng: rng.normal(size=(n, COLUMNS))),
    }
    assert_same(*both(files["reference"], models))


def test_every_kind_of_file(samples, tmp_path, small_parts):
    rows = samples["b"].astype(float)
    text = "\n".join(["x,y,z", *(",".join(map(repr, map(float, row))) for row in rows)])
    (tmp_path / "t.csv").write_text(text)
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(text.encode()))
    np.savez(tmp_path / "t.npz", rows=rows)
    np.save(tmp_path / "t.npy", rows)
    np.save(tmp_path / "swapped.npy", rows.astype(">f8"))
    found = {path.name: path for path in tmp_path.iterdir()}
    found |= _tables(rows, tmp_path)
    budget = Budget(10**9, tmp_path)
    for name, path in found.items():
        opened = spilled_rows("x", FileRows(str(path)), budget)
        assert is_mapped(opened), name
        np.testing.assert_array_equal(opened, rows, err_msg=name)
        chosen = spilled_rows("x", FileRows(str(path), "2,0"), budget)
        np.testing.assert_array_equal(chosen, rows[:, [2, 0]], err_msg=name)
    assert mapped_rows(spilled_rows("x", str(tmp_path / "t.npy"), budget)).path == str(tmp_path / "t.npy")


def _tables(rows, folder):
    """The files whose libraries are there."""
    found = {}
    try:
        import pandas as pd

        frame = pd.DataFrame(rows, columns=["x", "y", "z"])
        frame.to_parquet(folder / "t.parquet", row_group_size=37)
        frame.to_feather(folder / "t.feather")
        found |= {name: folder / name for name in ("t.parquet", "t.feather")}
    except ImportError:
        pass
    try:
        import zarr

        for name, chunks in (("t.zarr", (50, 2)), ("one.zarr", (ROWS, 3))):
            zarr.create_array(folder / name, data=rows, chunks=chunks)
            found[name] = folder / name
    except ImportError:
        pass
    return found


def test_embeddings_in_a_column_of_lists(samples, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet")
    column = pyarrow.FixedSizeListArray.from_arrays(samples["a"].ravel(), COLUMNS)
    pyarrow.parquet.write_table(pyarrow.table({"embedding": column}), tmp_path / "e.parquet", row_group_size=100)
    opened = spilled_rows("x", str(tmp_path / "e.parquet"), Budget(10**9, tmp_path))
    np.testing.assert_array_equal(opened, samples["a"].astype(float))


@pytest.mark.parametrize("dtype", ["<f4", ">f8", "<i2", "?", "<f2"])
def test_spilled_rows_are_those_of_the_array(dtype, tmp_path, small_parts):
    rng = np.random.default_rng(0)
    rows = (3 * rng.normal(size=(500, 4))).astype(dtype)
    np.save(tmp_path / "x.npy", rows)
    folder = tmp_path / "folder"
    folder.mkdir()
    there = spilled_rows("x", str(tmp_path / "x.npy"), Budget(10**9, folder))
    (file,) = folder.iterdir()
    np.testing.assert_array_equal(there, rows.astype(float), strict=True)
    np.testing.assert_array_equal(np.load(file), there, strict=True)
    np.testing.assert_array_equal(transposed(there, folder), there.T, strict=True)
    numbers = rng.integers(500, size=70)
    np.testing.assert_array_equal(some_rows(there, numbers, folder), there[numbers], strict=True)
    assert is_mapped(some_rows(there, numbers, folder))


def test_a_file_that_changes_or_goes_is_noticed(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.ones((10, 2)))
    rows = mapped_rows(np.load(path, mmap_mode="r"))
    assert isinstance(rows, MappedRows)
    np.save(path, np.ones((11, 2)))
    refused(rows.open, "x.npy", "changed while it was being read")
    path.unlink()
    refused(rows.open, "x.npy", "can no longer be read")


def test_faults_of_the_disk_are_told_from_damaged_files(tmp_path, monkeypatch):
    def damaged():
        yield np.ones((2, 2))
        raise OSError("Unexpected end of stream")

    def full(stream, rows, folder):
        with memory._writing(folder):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OSError, match="Unexpected end"):
        spilled(damaged(), tmp_path)
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(memory, "_write", full)
    refused(lambda: spilled([np.ones((2, 2))], tmp_path), "TMPDIR: cannot write rows to", "No space left")
    assert not list(tmp_path.iterdir())


def _complaints(reference, models, **options):
    said = []
    for budget in (None, "4GB"):
        with pytest.raises(InputError) as error:
            relfit.compare(reference, models, rng=0, compute=relfit.Compute(memory=budget), **options)
        said.append(str(error.value))
    return said


def _broken(samples, name, place, value):
    samples[name] = samples[name].astype(float)
    for row in place:
        samples[name][row, 1] = value
    return samples


@pytest.mark.parametrize("value", [np.nan, -np.inf, 1e200])
def test_bad_numbers_are_counted_over_all_parts(samples, value, small_parts):
    _broken(samples, "b", (30, 31, 333), value)
    first, second = _complaints(samples.pop("reference"), samples)
    assert first == second
    assert "3 of 401 rows (first: row 30)" in first


def test_copies_and_rows_in_common_are_seen(samples, small_parts):
    reference = samples.pop("reference")
    reference[:, 2] = 4.0
    models = {
        **samples,
        "copy of a": samples["a"].copy(),
        "b in another order": samples["b"][::-1],
        "c with data": np.concatenate([samples["c"], reference[:200]]),
    }
    first, second = both(reference, models)
    assert_same(first, second)
    words = " ".join(second.warnings)
    for said in ("1 of 3 columns is constant", "200 of 601 rows of 'c with data'", "'b in another order' holds"):
        assert said in words
    assert "duplicate of a" in second.status[second.names.index("copy of a")]


@pytest.mark.parametrize(("given", "size"), [("1GB", 10**9), ("1.5 gib", 1610612736), ("200 MB", 2 * 10**8), (77, 77)])
def test_sizes(given, size):
    assert parse_memory(given) == size


def test_a_budget_too_small_names_one_that_does(files):
    reference = files.pop("reference")

    def run(budget):
        return relfit.compare(reference, files, rng=0, compute=relfit.Compute(memory=budget))

    message = refused(lambda: run("20MB"), "memory: expected at least", "got '20MB'")
    refused(lambda: run("1KB"), "got '1KB'")
    refused(lambda: run(2), "got 2 bytes")
    smallest = int(re.search(r"at least (\d+) MB", message)[1])
    run(f"{smallest + 10}MB")


def test_the_folder_is_removed_whatever_happens(samples, files, tmp_path, monkeypatch):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    seen = []
    density = Density(score=lambda x: seen.append(len(list(scratch.iterdir()))) or -x)
    reference = samples["reference"]
    relfit.compare(files["reference"], {**DENSITIES, "seen": density}, rng=0, compute=relfit.Compute(memory="4GB"))
    assert set(seen) == {1}
    assert not list(scratch.iterdir())
    np.save(tmp_path / "columns.npy", np.asfortranarray(reference.astype(float)))
    reference[3, 1] = np.nan
    with pytest.raises(InputError, match="NaN"):
        relfit.compare(
            str(tmp_path / "columns.npy"), {"a": files["a"], "b": reference}, compute=relfit.Compute(memory="4GB")
        )
    assert not list(scratch.iterdir())


def test_the_command_line_takes_a_budget(files, tmp_path, capsys):
    names = [files[name] for name in ("reference", "a", "b", "c")]
    result = tmp_path / "result.json"
    assert main(["compare", *names, "--memory", "4GB", "--columns", "0-1", "--json", str(result)]) == 0
    recorded = relfit.Comparison.from_json(result.read_text())
    plain = relfit.compare(*_first_two(files), rng=0)
    np.testing.assert_allclose(recorded.discrepancy, plain.discrepancy, rtol=0, atol=1e-12)
    assert main(["rerun", str(result)]) == 0
    assert "Agrees" in capsys.readouterr().out
    assert main(["pair", *names[:3], "--memory", "4GB"]) == 0
    for option in (["--rows", "50"], ["--groups", "x"]):
        assert main(["compare", *names, "--memory", "1GB", *option]) == 2
        assert "without --memory" in capsys.readouterr().err


def _first_two(files):
    reference, *models = (np.load(path)[:, :2] for path in files.values())
    return reference, dict(zip(list(files)[1:], models, strict=True))


PEAK = """
import relfit

folder, budget, estimator = sys.argv[1], int(sys.argv[2]), sys.argv[3]
models = {k: f"{folder}/{k}.npy" for k in "abc"}
relfit.compare(f"{folder}/reference.npy", models, rng=0, compute=relfit.Compute(memory=budget), estimator=estimator)
"""


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """Four files of 170 MB; one of them is another's second name, and still read like all."""
    folder = tmp_path_factory.mktemp("wide")
    rng = np.random.default_rng(0)
    for name in ("reference", "a", "b"):
        out = np.lib.format.open_memmap(folder / f"{name}.npy", mode="w+", dtype="f4", shape=(42_500, 1_000))
        for start in range(0, len(out), 2_500):
            rng.standard_normal(dtype="f4", out=(block := np.empty((2_500, 1_000), "f4")))
            out[start : start + 2_500] = block
    os.link(folder / "b.npy", folder / "c.npy")
    yield folder
    for path in folder.iterdir():
        path.unlink()


def test_the_process_stays_within_its_budget(wide):
    """Data of three times the budget; benchmarks/out_of_core.py has ten times, and more designs."""
    budget = 220_000_000
    assert sum(path.stat().st_size for path in wide.iterdir()) > 3 * budget
    assert peak_of(PEAK, wide, budget, "linear") < budget


def test_landmarks_of_wide_rows_stay_within_the_budget(tmp_path):
    """Without a limit, landmarks and drawn rows of a thousand columns took 650 MB."""
    rng = np.random.default_rng(0)
    for name in ("reference", "a", "b", "c"):
        np.save(tmp_path / f"{name}.npy", rng.standard_normal((8_000, 1_000), dtype="f4"))
    assert peak_of(PEAK, tmp_path, 400_000_000, "landmarks") < 400_000_000


def test_held_memory_is_known_and_mapped_files_do_not_count(tmp_path):
    if not Path("/proc/self/statm").exists():
        pytest.skip("only the peak is known")
    before = held_bytes()
    # Beyond 32 MiB a block is never taken from what the process has freed.
    block = np.ones(8_000_000)
    held = held_bytes()
    assert held > before + 0.9 * block.nbytes
    there = spilled([block[:, None]], tmp_path)
    assert there.sum() == 8_000_000
    assert held_bytes() < held + 0.2 * block.nbytes
    assert memory._peak() >= held


def test_wide_rows_stay_within_the_budget(tmp_path):
    """Rows of 3000 numbers: 19,900 pairs of them at once, as the law of the second order needs, would be 1.4 GB."""
    rng = np.random.default_rng(0)
    for name in "rab":
        np.save(tmp_path / f"{name}.npy", rng.normal(size=(300, 3000)))
    files = {name: str(tmp_path / f"{name}.npy") for name in "rab"}
    reference = files.pop("r")
    tracemalloc.start()
    try:
        relfit.estimate(reference, files, rng=0, compute=relfit.Compute(memory="450MB"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 300e6


def test_robust_scales_take_some_columns_at_a_time(tmp_path):
    """N3: medians of all columns at once would need the rows in memory, several times over; the answer is the same."""
    rng = np.random.default_rng(0)
    rows = rng.normal(rng.normal(size=120), 1.0, (80_001, 120)).astype("f4")
    rows[:, 3] = np.arange(80_001) == 7
    np.save(tmp_path / "r.npy", rows)
    for name in "ab":
        np.save(tmp_path / f"{name}.npy", rng.normal(size=(50, 120)))
    models = {name: str(tmp_path / f"{name}.npy") for name in "ab"}
    options = {"discrepancy": "ume", "scale": "robust", "rng": 0}
    tracemalloc.start()
    try:
        inside = relfit.compare(str(tmp_path / "r.npy"), models, **options, compute=relfit.Compute(memory="1GB"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    whole = relfit.compare(rows, models, **options)
    assert peak < 8 * rows.size
    np.testing.assert_array_equal(inside.encoding.centres, whole.encoding.centres)
    np.testing.assert_array_equal(inside.encoding.centres, np.median(rows, axis=0))
    # The deviation of column 3 is a sum over parts, of another size.
    np.testing.assert_allclose(inside.encoding.scales, whole.encoding.scales, rtol=1e-12)
    np.testing.assert_array_equal(inside.worse, whole.worse)


def test_a_budget_too_small_for_any_table_is_refused_before_a_row_is_read(tmp_path, monkeypatch):
    """What is read first would take more than the budget."""
    for name in "rab":
        (tmp_path / f"{name}.csv").write_text("x,y\n1,2\n3,5\n2,9\n")

    def read(*arguments):
        pytest.fail("a table was read")

    monkeypatch.setattr(data_load, "read_table", read)
    files = [str(tmp_path / f"{name}.csv") for name in "rab"]
    small = relfit.Compute(memory="130MB")
    refused(lambda: relfit.compare(files[0], files[1:], compute=small), "memory: expected at least", "got '130MB'")
