"""Rows that arrive in batches give the answer of the same rows in one array."""

from __future__ import annotations

import tempfile
import tracemalloc

import numpy as np
import pytest
from peaks import peak_of
from refusals import refused

import relfit
from relfit.compute.memory import Budget
from relfit.data.arrays import gathered
from relfit.util import progress as bars
from relfit.util.arrays import is_mapped

pytestmark = pytest.mark.usefixtures("as_a_fresh_process")

RNG = np.random.default_rng(0)
DATA, A, B = (RNG.normal(shift, 1.0, (100, 3)) for shift in (0.0, 0.0, 0.4))


def parts(rows):
    return (rows[k : k + 33] for k in range(0, len(rows), 33))


def whole():
    return relfit.compare(DATA, {"a": A, "b": B}, rng=0)


def test_loaders_and_data_sets_of_torch():
    torch = pytest.importorskip("torch")
    from torch.utils.data import DataLoader, TensorDataset

    labelled = TensorDataset(torch.tensor(B), torch.zeros(len(B)))
    loaders = {"a": TensorDataset(torch.tensor(A)), "b": DataLoader(labelled, batch_size=33)}
    result = relfit.compare(DataLoader(torch.tensor(DATA), batch_size=7), loaders, rng=0)
    assert np.array_equal(result.estimates, whole().estimates)
    assert "model 'b': the first of the 2 parts of each item was taken as its row" in result.warnings


class Again:
    """Something of one's own that yields batches, as often as it is asked to."""

    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        return parts(self.rows)


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """The temporary folder, in which nothing must be left."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield tmp_path
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("estimator", ["complete", "linear", "landmarks"])
@pytest.mark.parametrize("memory", [None, "1GB"])
def test_batches_give_the_bits_of_arrays(estimator, memory, scratch):
    options = {"estimator": estimator, "rng": 0, "compute": relfit.Compute(memory=memory)}
    samples = [rows.astype("f4") for rows in (DATA, A, B)]
    expected = relfit.compare(samples[0], {"a": samples[1], "b": samples[2]}, **options)
    result = relfit.compare(parts(samples[0]), {"a": Again(samples[1]), "b": parts(samples[2])}, **options)
    assert np.array_equal(result.estimates, expected.estimates)
    assert np.array_equal(result.covariance, expected.covariance)
    assert (result.inputs, result.warnings) == (expected.inputs, expected.warnings)


def test_batches_of_single_and_double_precision(tmp_path):
    single = B.astype("f4")
    mixed = [single[:50], A[:33], single[50:], np.arange(6).reshape(2, 3)]
    wide, _ = gathered("x", iter(mixed), Budget(10**9, tmp_path))
    assert is_mapped(wide)
    assert np.array_equal(wide, np.concatenate(mixed))
    assert np.array_equal(gathered("x", iter(mixed))[0], np.concatenate(mixed))
    assert len(list(tmp_path.iterdir())) == 1


def reusing(rows):
    """Batches in one piece of memory, which is used again for the next."""
    buffer = np.empty((10, rows.shape[1]))
    for k in range(0, len(rows), 10):
        buffer[:] = rows[k : k + 10]
        yield buffer


@pytest.mark.parametrize("in_folder", [False, True])
def test_batches_in_the_same_memory_are_not_mixed_up(in_folder, tmp_path):
    rows, _ = gathered("x", reusing(A), Budget(10**9, tmp_path) if in_folder else None)
    assert np.array_equal(rows[:], A)


def test_batches_in_memory_are_not_held_twice():
    tracemalloc.start()
    try:
        rows, _ = gathered("x", (np.full((1_000, 100), float(k)) for k in range(60)))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert rows.flags.c_contiguous
    assert rows.base is None
    assert rows[::1_000, 0].tolist() == list(range(60))
    assert peak < 1.25 * rows.nbytes


def frame_of(rows, text=True):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(rows, columns=["x", "y", "z"])
    if text:
        frame["kind"] = np.where(rows[:, 0] > 0.5, "high", np.where(rows[:, 1] > 0, "low", None))
    frame.loc[frame.index[frame["x"] < -1], "z"] = np.nan
    return frame


def sources(frame):
    """The ways in which a table may arrive in parts."""
    pyarrow = pytest.importorskip("pyarrow")
    dataset = pytest.importorskip("pyarrow.dataset")
    table = pyarrow.Table.from_pandas(frame, preserve_index=False)
    batches = table.to_batches(max_chunksize=33)
    return {
        "chunks": parts(frame),
        "reader": pyarrow.RecordBatchReader.from_batches(table.schema, batches),
        "data set": dataset.dataset(table),
        "tables": (pyarrow.Table.from_batches([batch]) for batch in batches),
        "other order": (part[["kind", "z", "x", "y"]] if k else part for k, part in enumerate(parts(frame))),
    }


@pytest.mark.parametrize("memory", [None, "1GB"])
@pytest.mark.parametrize("way", ["chunks", "reader", "data set", "tables", "other order"])
def test_frames_in_batches_are_a_table(way, memory, scratch):
    frames = [frame_of(rows) for rows in (DATA, A, B)]
    options = {"rng": 0, "compute": relfit.Compute(memory=memory)}
    expected = relfit.compare(frames[0], {"a": frames[1], "b": frames[2]}, **options)
    data, *models = (sources(frame)[way] for frame in frames)
    result = relfit.compare(data, dict(zip("ab", models, strict=True)), **options)
    assert np.array_equal(result.estimates, expected.estimates)
    assert (result.encoding, result.inputs, result.warnings) == (expected.encoding, expected.inputs, expected.warnings)


def test_frames_with_densities_or_a_preset_are_rows(scratch):
    frames = [frame_of(rows, text=False).fillna(0.0) for rows in (DATA, A, B)]
    options = {"rng": 0, "compute": relfit.Compute(memory="1GB")}
    densities = {"right": relfit.Density(score=lambda x: -x), "off": relfit.Density(score=lambda x: 0.5 - x)}
    expected = relfit.compare(frames[0], densities, **options)
    assert np.array_equal(relfit.compare(parts(frames[0]), densities, **options).estimates, expected.estimates)
    models = {"a": frames[1], "b": frames[2]}
    expected = relfit.compare(frames[0], models, preset="kid", **options)
    result = relfit.compare(parts(frames[0]), {"a": parts(frames[1]), "b": frames[2]}, preset="kid", **options)
    assert np.array_equal(result.estimates, expected.estimates)


def failing(rows):
    yield rows[:50]
    raise RuntimeError("the disk is gone")


def test_what_is_used_up_or_is_no_source_of_rows():
    used = parts(A)
    list(used)
    refused(lambda: relfit.compare(DATA, {"a": used, "b": B}), "model 'a': expected rows, but generator yields none")
    for value in ({"x": [1.0]}, {1.0, 2.0}, b"rows", list, np.ones):
        assert gathered("x", value) == (value, None)
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(3, 3))
    assert gathered("x", model)[0] is model


def of_text():
    frame = frame_of(A, text=False)
    return frame.assign(x="much")


# The batches, and what is said of them.
BROKEN = {
    "numbers": (lambda: [1.0, 2.0], "reference: expected batches of rows, got single numbers; yield arrays of shape"),
    "unlike": (lambda: [A[:50], A[50:, :2]], "got batches of unlike shapes (3 columns, then 2)"),
    "images": (lambda: [np.ones((2, 3, 4))], "expected rows and columns, got an array of shape (2, 3, 4)"),
    "text": (lambda: [A, np.array([["a", "b", "c"]])], "reference: expected numbers, got text"),
    "names": (lambda: ["a.npy", "b.npy"], "expected batches of rows, got the text 'a.npy'; yield arrays"),
    "mappings": (lambda: [{"x": A}], "expected batches of rows, got a mapping; yield arrays"),
    "no rows": (lambda: [A[:0], A[:0]], "reference: expected at least one row and one column, got shape (0, 3)"),
    "empty frames": (lambda: [frame_of(A)[:0]], "reference: expected at least one row, got none"),
    "not a number": (lambda: [A, A[:1] * np.nan], "got NaN or infinity in 1 of 101 rows (first: row 100)"),
    "columns": (lambda: [frame_of(A, text=False), frame_of(A)], "with the columns of the first", "'kind' in batch 1"),
    "frame, then array": (lambda: [frame_of(A), A], "the columns of the first, got ndarray in batch 1"),
    "array, then frame": (lambda: [A, frame_of(A)], "expected columns of numbers, got 'kind'"),
    "types": (
        lambda: [frame_of(A, text=False), of_text()],
        "expected one type in column 'x', got numbers or dates and",
    ),
}


@pytest.mark.parametrize("memory", [None, "1GB"])
@pytest.mark.parametrize("name", BROKEN)
def test_bad_batches_are_refused_in_one_line(name, memory, scratch):
    items, *said = BROKEN[name]
    compute = relfit.Compute(memory=memory)
    refused(lambda: relfit.compare(iter(items()), {"a": A, "b": B}, compute=compute), *said)


@pytest.mark.parametrize("memory", [None, "1GB"])
def test_an_error_inside_the_generator_is_the_users(memory, scratch):
    with pytest.raises(RuntimeError, match="the disk is gone"):
        relfit.compare(DATA, {"a": failing(A), "b": B}, compute=relfit.Compute(memory=memory))


def test_the_bar_says_what_is_read(tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr(bars._Bar, "show", lambda self, *now: shown.append(now))
    np.savetxt(tmp_path / "x.csv", A, delimiter=",", header="x,y,z", comments="")
    compute = relfit.Compute(memory="1GB")
    relfit.compare(parts(DATA), {"a": Again(A), "[b]": B}, rng=0, progress=True)
    relfit.compare(tmp_path / "x.csv", {"a": A, "b": B}, rng=0, progress=True, compute=compute)
    for read in ("reference: 33", "model 'a': 100", f"{tmp_path / 'x.csv'}: 100"):
        assert (f"reading {read} rows", None, None) in shown


PEAK = """
import numpy as np
import relfit

def rows(shift, seed):
    rng = np.random.default_rng(seed)
    for _ in range(100):
        yield rng.standard_normal((650, 512), dtype="f4") + np.float32(shift)

estimator = {"linear": "linear", "landmarks": relfit.Landmarks(50, 50 * 65_000)}[sys.argv[2]]
compute = relfit.Compute(memory=int(sys.argv[1]))
result = relfit.compare(rows(0, 1), {"a": rows(0, 2), "b": rows(0.5, 3)}, rng=0, estimator=estimator, compute=compute)
assert result.sizes == (65_000, 65_000, 65_000), result.sizes
"""


@pytest.mark.parametrize("estimator", ["linear", "landmarks"])
def test_batches_twice_as_large_as_the_budget_stay_below_it(estimator, tmp_path):
    """400 MB in all; benchmarks/out_of_core.py has ten times the budget."""
    budget = 200_000_000
    assert peak_of(PEAK, budget, estimator, TMPDIR=str(tmp_path)) < budget
    assert not list(tmp_path.iterdir())
