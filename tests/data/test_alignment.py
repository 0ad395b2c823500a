"""Columns with names are compared by name, wherever they stand."""

import json

import numpy as np
import pytest
from commands import refused_line
from refusals import refused

import relfit
from relfit.cli import main
from relfit.data.load import load

NAMES = ["age", "height", "pulse"]
# The columns of "good" stand in this order in its file.
MOVED = [2, 0, 1]
NOTE = "columns of 'good' were matched to those of the reference by name, not by position"


def _arrays():
    """Columns around 40, 170 and 70: by position "good" would be far off, by name "meh" is."""
    rng = np.random.default_rng(5)
    real, good, meh = rng.normal([40, 170, 70], 3, (3, 80, 3))
    return {"real": real, "good": good, "meh": meh + 2}


def _csv(path, rows, names=None, separator=","):
    header = "" if names is None else separator.join(names)
    np.savetxt(path, rows, fmt="%.17g", delimiter=separator, header=header, comments="")


def _table(path, rows, names):
    pyarrow = pytest.importorskip("pyarrow")
    parquet, feather = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow.feather")
    table = pyarrow.table(dict(zip(names, rows.T, strict=True)))
    if path.suffix == ".parquet":
        parquet.write_table(table, path, row_group_size=30)
    else:
        feather.write_feather(table, path)


def _written(kind, name, rows, names):
    path = name.with_suffix(f".{kind}")
    if kind == "tsv":
        _csv(path, rows, names, "\t")
    else:
        (_csv if kind == "csv" else _table)(path, rows, names)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _write(folder, kind, moved=MOVED):
    arrays = _arrays()
    for name, rows in arrays.items():
        places = moved if name == "good" else [0, 1, 2]
        _written(kind, folder / name, rows[:, places], [NAMES[k] for k in places])
    return arrays


def _expected(scale="auto"):
    """Columns with names are standardised by the reference."""
    arrays = _arrays()
    return relfit.compare(arrays.pop("real"), arrays, scale=scale, rng=0)


def _same(found, expected):
    np.testing.assert_allclose(found["discrepancy"], expected.discrepancy, rtol=1e-9)
    assert found["worse"] == expected.worse.tolist() == [False, True]


def _json(capsys, *args):
    assert main(["compare", *args, "--json", "-"]) == 0
    return json.loads(capsys.readouterr().out)


def _files(kind):
    return [f"{name}.{kind}" for name in ("real", "good", "meh")]


@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet", "feather"])
def test_files_are_matched_by_name_and_the_result_says_so(folder, capsys, kind):
    _write(folder, kind)
    found = _json(capsys, *_files(kind))
    _same(found, _expected())
    assert found["warnings"][0] == NOTE
    real, good, meh = _files(kind)
    again = relfit.compare(real, {"good": good, "meh": relfit.Sample(meh)}, rng=0)
    _same(again.to_dict(), _expected())
    assert again.warnings[0] == NOTE


def test_a_choice_of_columns_decides(folder, capsys):
    """By name it has always been right; numbers are positions, also in files with names."""
    arrays = _write(folder, "csv")
    _same(_json(capsys, *_files("csv"), "--columns", "age,height,pulse"), _expected())
    by_number = _json(capsys, *_files("csv"), "--columns", "0-2")
    moved = {"good": arrays["good"][:, MOVED], "meh": arrays["meh"]}
    expected = relfit.compare(arrays["real"], moved, scale="auto", rng=0).discrepancy
    np.testing.assert_allclose(by_number["discrepancy"], expected, rtol=1e-9)
    assert by_number["worse"] == [True, False]
    assert not any("matched" in note for note in by_number["warnings"])
    streamed = _json(capsys, *_files("csv"), "--columns", "0-2", "--memory", "2GB")
    assert streamed["worse"] == [True, False]


@pytest.mark.parametrize("nameless", ["real", "good"])
def test_without_names_on_one_side_position_counts(folder, capsys, nameless):
    arrays = _write(folder, "csv", [0, 1, 2])
    _csv(folder / f"{nameless}.csv", arrays[nameless])
    _same(_json(capsys, *_files("csv")), _expected("none" if nameless == "real" else "auto"))


def test_other_names_are_refused_with_a_few_of_them(folder, capsys):
    arrays = _write(folder, "csv", [0, 1, 2])
    _csv(folder / "good.csv", arrays["good"], ["a", "height", "b"])
    assert refused_line(capsys, "compare", *_files("csv")).endswith(
        "good.csv: expected the reference's columns, got 'age' and 'pulse' missing, 'a' and 'b' extra; rename them, "
        "or leave them out (--drop age,pulse,a,b)"
    )
    found = _json(capsys, *_files("csv"), "--columns", "0-2")
    _same(found, _expected())
    _csv(folder / "good.csv", np.ones((5, 50)), [f"{'long' * 30}{k}" for k in range(50)])
    line = refused_line(capsys, "compare", *_files("csv"))
    assert "and 47 more extra" in line
    assert len(line) < 400
    _csv(folder / "good.csv", np.ones((5, 2)), ["pulse", "age"])
    assert "got 'height' missing; rename" in refused_line(capsys, "compare", *_files("csv"))


def _pandas(rows, names):
    return pytest.importorskip("pandas").DataFrame(rows, columns=names)


def _polars(rows, names):
    return pytest.importorskip("polars").DataFrame(dict(zip(names, rows.T, strict=True)))


def _arrow(rows, names):
    return pytest.importorskip("pyarrow").table(dict(zip(names, rows.T, strict=True)))


def _batch(rows, names):
    return pytest.importorskip("pyarrow").RecordBatch.from_pydict(dict(zip(names, rows.T, strict=True)))


def _dask(rows, names):
    return pytest.importorskip("dask.dataframe").from_pandas(_pandas(rows, names), npartitions=2)


FRAMES = {"pandas": _pandas, "polars": _polars, "arrow": _arrow, "batch": _batch, "dask": _dask}


@pytest.mark.parametrize("library", FRAMES)
def test_frames_are_matched_by_name(library):
    arrays, make = _arrays(), FRAMES[library]
    good = relfit.Sample(make(arrays["good"][:, MOVED], [NAMES[k] for k in MOVED]))
    data = load(make(arrays["real"], NAMES), {"good": good, "meh": make(arrays["meh"], NAMES)}, scale="none")
    np.testing.assert_array_equal(data.models["good"], arrays["good"])
    np.testing.assert_array_equal(data.models["meh"], arrays["meh"])
    assert data.warnings[0] == NOTE
    other = {"good": make(arrays["good"], ["age", "height", "size"]), "meh": arrays["meh"]}
    said = "model 'good': expected the reference's columns, got 'pulse' missing, 'size' extra; rename them"
    refused(lambda: load(make(arrays["real"], NAMES), other), said, "or leave them out (encode=relfit.Encode(drop=")


@pytest.mark.parametrize(
    ("own", "theirs"),
    [
        (["a", "b", "c"], [0, 1, 2]),
        ([0, 1, 2], ["a", "b", "c"]),
        (["a", "b", "c"], ["0", "1", "2"]),
        (["a", "b", "c"], ["column_0", "column_1", "column_2"]),
        (["a", "b", "c"], ["b", "b", "a"]),
        (["a", "a", "c"], ["a", "b", "c"]),
    ],
)
def test_names_that_tell_nothing_are_no_names(own, theirs):
    arrays = _arrays()
    data = load(
        _pandas(arrays["real"], own), {"good": _pandas(arrays["good"], theirs), "meh": arrays["meh"]}, scale="none"
    )
    np.testing.assert_array_equal(data.models["good"], arrays["good"])


def _flights(seed, n=60):
    """Delays with a tail number that hardly repeats, as a frame of pandas."""
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {"delay": rng.normal(size=n), "tailnum": [f"N{seed}{k}" for k in range(n)], "month": 1.0 * seed}
    )


@pytest.mark.parametrize("memory", [None, "8GB"])
@pytest.mark.parametrize("source", ["csv", "frame", "command line"])
def test_a_column_that_is_left_out_anyway_may_be_missing_in_a_model(folder, capsys, source, memory):
    """D21: A synthesizer need not make ids: only a column that is compared must be there."""
    real, tvae = _flights(0), _flights(1)
    ctgan = _flights(2).drop(columns=["tailnum", "month"])
    tables = {"real": real, "tvae": tvae, "ctgan": ctgan}
    for name, table in tables.items():
        table.to_csv(f"{name}.csv", index=False)
    if source == "command line":
        options = [] if memory is None else ["--memory", memory]
        warnings = _json(capsys, "real.csv", "tvae.csv", "ctgan.csv", *options)["warnings"]
    else:
        files = tables if source == "frame" else {name: f"{name}.csv" for name in tables}
        with relfit.computing(memory=memory):
            warnings = relfit.compare(files.pop("real"), files, rng=0).warnings
    assert "'month' is missing in 'ctgan', and left out of all (constant in the reference)" in warnings
    said = "'tailnum' is missing in 'ctgan', and left out of all (free text or an id: 60 different values in 60 cells)"
    assert said in warnings
    ctgan.drop(columns="delay").assign(tailnum="N").to_csv("ctgan.csv", index=False)
    line = refused_line(capsys, "compare", "real.csv", "tvae.csv", "ctgan.csv")
    assert "got 'delay' missing; rename them, or leave them out (--drop delay" in line


def test_row_numbers_under_no_name_are_left_out(folder, capsys):
    """D18: `frame.to_csv(path)` writes row numbers under an empty name, `to_parquet` those of chosen rows as well."""
    for seed, name in enumerate(("real", "good", "meh")):
        chosen = _flights(seed).drop(columns="tailnum").sample(30, random_state=1)
        chosen.to_csv(f"{name}.csv")
        chosen.to_csv(f"{name}.tsv", sep="\t", index=False)
        chosen.to_parquet(f"{name}.parquet")
    expected = _json(capsys, *_files("tsv"))
    for kind, called in (("csv", "Unnamed: 0"), ("parquet", "__index_level_0__")):
        found = _json(capsys, *_files(kind))
        assert any(f"'{called}' (row numbers)" in note for note in found["warnings"])
        assert found["discrepancy"] == expected["discrepancy"]
        mixed = _json(capsys, "real.tsv", f"good.{kind}", "meh.tsv")
        assert f"'{called}' of 'good' not in the reference, and left out" in mixed["warnings"]
        mixed = _json(capsys, f"real.{kind}", f"good.{kind}", "meh.tsv")
        assert f"'{called}' is missing in 'meh', and left out of all (row numbers)" in mixed["warnings"]
        assert mixed["discrepancy"] == expected["discrepancy"]
    # Rows of numbers as they are would count them as data.
    assert "are these row numbers?" in refused_line(capsys, "compare", *_files("csv"), "--preset", "kid")
