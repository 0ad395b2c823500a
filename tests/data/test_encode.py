"""Tables: numbers, categories, dates and gaps as rows of numbers, by an encoding that the reference alone decides."""

import html
import json
import math
import re
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from refusals import refused

import relfit
from relfit.cli import main
from relfit.data.encode import Column, Encode, encoded_tables, fit_rows
from relfit.data.files import text as text_files
from relfit.data.load import load
from relfit.data.tables import cells_of, read_table
from relfit.report.columns import column_shares, distance, noise

pd = pytest.importorskip("pandas")

CUTS = ["fair", "good", "ideal"]


def drawn(seed, n=150, shift=0.0, odds=(0.2, 0.3, 0.5)):
    """Two numbers of unlike units, a category, a truth value and a date."""
    rng = np.random.default_rng(seed)
    weight = rng.gamma(2.0, 0.4, n) + shift
    return pd.DataFrame(
        {
            "weight": weight,
            "price": 4000 * weight + rng.normal(0, 500, n),
            "cut": rng.choice(CUTS, n, p=odds),
            "sold": rng.random(n) < 0.3,
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, n), unit="D"),
        }
    )


@pytest.fixture
def tables():
    return drawn(1), {"same": drawn(2), "shifted": drawn(3, shift=0.3), "other": drawn(4, odds=(0.6, 0.3, 0.1))}


def hamming_gaussian(x, y, reference, bandwidth):
    """exp(−‖z − z'‖²/2b²) · Π exp(−w²·1{c ≠ c'}/2b²): z standardised by the reference, c a category.

    w² = 2/(1 − Σp²) for the frequencies p of its levels.
    """
    total = np.zeros((len(x), len(y)))
    for name in ("weight", "price", "day"):
        a, b, r = (t[name].astype("int64") / 1e6 if name == "day" else t[name] for t in (x, y, reference))
        total += ((np.asarray(a)[:, None] - np.asarray(b)[None]) / np.std(np.asarray(r, dtype=float))) ** 2
    for name in ("cut", "sold"):
        weight = 2.0 / (1.0 - (reference[name].value_counts(normalize=True) ** 2).sum())
        total += weight * (np.asarray(x[name])[:, None] != np.asarray(y[name])[None])
    return np.exp(-total / (2 * bandwidth**2))


def test_the_discrepancy_is_that_of_a_gaussian_times_a_hamming_kernel(tables):
    """MMD² from the plain formula, with a kernel that knows nothing of an encoding."""
    data, models = tables
    data["day"], b = data["day"].astype("datetime64[us]"), 1.7
    result = relfit.compare(data, models, kernel=relfit.Gaussian(b), rng=0)
    n = len(data)
    within = hamming_gaussian(data, data, data, b)
    for name, model in models.items():
        model = model.assign(day=model["day"].astype("datetime64[us]"))
        own, cross = hamming_gaussian(model, model, data, b), hamming_gaussian(model, data, data, b)
        expected = (own.sum() - n) / (n * (n - 1)) + (within.sum() - n) / (n * (n - 1)) - 2 * cross.mean()
        assert result.discrepancy[result.names.index(name)] == pytest.approx(expected, abs=1e-12)


def test_distances_of_cells(tables):
    """As for a standardised number: rare levels count as one, and missing cells as another."""
    data, _ = tables
    many = pd.Categorical(np.arange(150) % 130)
    data = data.assign(many=many, gaps=[None if k % 5 == 0 else "ab"[k % 2] for k in range(150)])
    rows = load(data, {"a": data, "b": data.iloc[::-1]}, encode=Encode(categorical="many"))
    for column, part in zip(rows.encoding.columns, rows.encoding.slices, strict=True):
        x = rows.reference[:, part]
        assert np.square(x[:, None] - x[None]).sum(axis=2).mean() == pytest.approx(2.0, rel=1e-12), column.name
    data, models = tables
    for scale, expected in (("none", 1.0), ({"cut": 4.0}, 1 / 16)):
        rows = load(data, models, scale=scale)
        x = rows.reference[:, rows.encoding.slices[rows.encoding.names.index("cut")]]
        differ = np.asarray(data["cut"])[:, None] != np.asarray(data["cut"])[None]
        assert np.square(x[:, None] - x[None]).sum(axis=2) == pytest.approx(expected * differ, abs=1e-14)


def test_the_header_the_record_and_json(tables):
    result = relfit.compare(*tables, rng=0)
    assert "· 3 columns standardised, 2 categorical ·" in str(result)
    weight, _, cut, *_ = result.encoding.columns
    kinds = ["number", "number", "category", "category", "date"]
    assert [c.kind for c in result.encoding.columns] == kinds
    np.testing.assert_allclose([weight.centre, weight.scale], [f(tables[0]["weight"]) for f in (np.mean, np.std)])
    assert cut.levels == tuple(CUTS)
    again = relfit.Comparison.from_json(result.to_json())
    assert (again.encoding, again.to_json()) == (result.encoding, result.to_json())
    # Median 3, deviations 2, 1, 0, 1, 97, their median 1: the scale is 1.4826.
    (column,) = fit_rows(np.array([[1.0], [2.0], [3.0], [4.0], [100.0]]), "robust").columns
    assert (column.centre, column.scale) == (3.0, pytest.approx(1.4826, abs=1e-4))


def test_a_unit_the_order_and_plain_arrays_change_nothing(tables):
    data, models = tables
    names = {"fair": "z", "good": "b", "ideal": "a"}

    def changed(table):
        table = table.assign(weight=7.0 - 1e6 * table["weight"], cut=table["cut"].map(names).astype("category"))
        return table[["sold", "cut", "day", "price", "weight"]]

    plain = relfit.compare(data, models, rng=0)
    other = relfit.compare(changed(data), {name: changed(model) for name, model in models.items()}, rng=0)
    np.testing.assert_allclose(plain.discrepancy, other.discrepancy, atol=1e-12)
    assert plain.worse.tolist() == other.worse.tolist() == [False, True, True]
    rows = np.random.default_rng(0).normal(size=(3, 60, 2)) * [1.0, 300.0]
    models = {"a": rows[1], "b": rows[2]}
    assert load(rows[0], models).encoding is None
    by_hand = [(x - rows[0].mean(axis=0)) / rows[0].std(axis=0) for x in rows]
    expected = relfit.compare(by_hand[0], dict(zip("ab", by_hand[1:], strict=True)), rng=0)
    np.testing.assert_allclose(relfit.compare(rows[0], models, scale="auto", rng=0).discrepancy, expected.discrepancy)
    # A frame of the same numbers is scaled without being asked, and its array models with it.
    frame = pd.DataFrame(rows[0], columns=["x", "y"])
    np.testing.assert_allclose(relfit.compare(frame, models, rng=0).discrepancy, expected.discrepancy)
    same = relfit.compare(frame, models, scale="none", rng=0)
    assert same.discrepancy.tolist() == relfit.compare(rows[0], models, rng=0).discrepancy.tolist()


def _gaps(table, seed):
    """A missing number, text, truth value and date in some rows."""
    rng = np.random.default_rng(seed)
    table = table.astype({"sold": "object"})
    for name in table.columns:
        table.loc[rng.choice(len(table), 9, replace=False), name] = None
    return table


def test_the_first_line_says_whether_columns_were_standardised(tmp_path):
    """The same numbers as .npy and .csv give different tables, and only one of them said what was done."""
    rng = np.random.default_rng(0)
    samples = {name: rng.normal(0.0, [1.0, 3.0, 9.0], (60, 3)) for name in ("data", "a", "b")}
    for name, rows in samples.items():
        np.save(tmp_path / f"{name}.npy", rows)
        pd.DataFrame(rows, columns=list("xyz")).to_csv(tmp_path / f"{name}.csv", index=False)

    def line(form, **options):
        files = {name: tmp_path / f"{name}.{form}" for name in samples}
        result = relfit.compare(files.pop("data"), files, rng=0, **options)
        assert relfit.Comparison.from_json(result.to_json()).unscaled == result.unscaled
        pair = relfit.compare_pair(tmp_path / f"data.{form}", *files.values(), rng=0, **options)
        found = [re.search(" · n = 60(.*?) · α", str(each))[1] for each in (result, pair)]
        assert found[0] == found[1]
        return found[0]

    for form, options, said in (
        ("npy", {}, "not standardised"),
        ("csv", {}, "standardised"),
        ("npy", {"scale": "auto"}, "standardised"),
        ("csv", {"scale": "none"}, "not standardised"),
    ):
        assert line(form, **options) == f" · 3 columns {said}"
    # D40: a factor of 1.8 changed the table, too, and only one of the two first lines said why.
    for name, rows in samples.items():
        np.save(tmp_path / f"{name}.npy", rows / [1.0, 3.0, 5.0])
    with relfit.computing(memory="8GB"):
        assert line("npy") == " · 3 columns not standardised"
    # A preset says what is done, and columns of one spread would not change much.
    assert "standardised" not in line("npy", preset="kid")
    even = {name: rows / [1.0, 3.0, 9.0] for name, rows in samples.items()}
    result = relfit.compare(even.pop("data"), even, rng=0)
    assert "standardised" not in str(result)


def test_a_gap_is_a_flag_beside_the_centre_or_a_level_of_its_own():
    """Mean 2, deviation √(2/3); of the levels a, b and missing Σp² = 3/8, so that w² = 2/(5/8), and w/√2 = √1.6."""
    reference = pd.DataFrame({"x": [1.0, 2.0, 3.0, None], "c": ["a", "b", None, "a"]})
    model = pd.DataFrame({"x": [2.0, 2.0, None, 1.0], "c": ["b", "zzz", "a", "a"]})
    data = load(reference, {"m": model, "again": reference.iloc[::-1]})
    step, level, flag = math.sqrt(1.5), math.sqrt(1.6), math.sqrt(2.0)
    assert data.encoding.labels == ["x", "x is missing", "c = a", "c = b", "c = another level", "c is missing"]
    gap = [0, flag, level, 0, 0, 0]
    expected = [[-step, 0, level, 0, 0, 0], [0, 0, 0, level, 0, 0], [step, 0, 0, 0, 0, level], gap]
    np.testing.assert_allclose(data.reference, expected, atol=1e-15)
    np.testing.assert_allclose(data.samples["m"][1:3], [[0, 0, 0, 0, level, 0], gap], atol=1e-15)
    notes = " ".join(data.warnings)
    assert "'c': 'zzz' of 'm' not in the reference" in notes
    assert "missing cells of 'x' and 'c' count as a value of their own" in notes


def test_gaps_of_a_model_are_flagged_dropped_or_refused(tables):
    data, models = tables
    holes = {**models, "same": _gaps(models["same"], 5)}
    complete = {**models, "same": holes["same"].dropna()}
    dropped = load(data, holes, encode=Encode(missing="drop"))
    count = len(holes["same"]) - len(complete["same"])
    assert f"{count} of 150 rows of 'same' have missing cells and were left out" in dropped.warnings
    np.testing.assert_allclose(dropped.samples["same"], load(data, complete).samples["same"])
    line = refused(lambda: load(data, holes, encode=Encode(missing="refuse")), "model 'same': expected complete cells")
    assert "9 missing in column 'weight'" in line
    odd = np.arange(150) % 2 == 1
    everything = data.assign(weight=np.where(odd, 1.0, np.nan), price=np.where(odd, np.nan, 1.0))
    refused(lambda: load(everything, models, encode=Encode(missing="drop")), "every row has a missing cell")
    data_ = load(data, {**models, "same": models["same"].assign(weight=None, cut=None)})
    at = [data_.encoding.labels.index(label) for label in ("weight is missing", "cut is missing")]
    level = math.sqrt(0.5) / data_.encoding.columns[data_.encoding.names.index("cut")].scale
    np.testing.assert_allclose(data_.samples["same"][:, at], [[math.sqrt(2.0), level]] * 150)
    assert "'cut' is missing in every row of 'same'" in data_.warnings


def test_ids_constants_free_text_and_empty_columns_are_left_out_by_name(tables):
    data, models = tables

    def more(table, unit):
        n = len(table)
        empty = 1.5 if unit == "lb" else None
        return table.assign(number=range(5, n + 5), unit=unit, empty=empty, comment=[f"text {k}" for k in range(n)])

    more_models = {"a": more(models["same"], "kg"), "b": more(models["other"], "lb")}
    result = relfit.compare(more(data, "kg"), more_models, kernel=relfit.Gaussian(1.0), rng=0)
    assert set(result.encoding.left_out) == {"number", "unit", "empty", "comment"}
    notes = " ".join(result.warnings)
    assert "'number' (row numbers), 'unit' (constant in the reference), 'empty' (every cell is missing)" in notes
    assert "'comment' (free text or an id: 150 different values in 150 cells)" in notes
    # What was left out is not lost.
    assert "'unit' is kg in every reference row, but not in 'b'" in notes
    assert "'empty' is missing in every reference row, but not in 'b'" in notes
    plain = relfit.compare(data, models, kernel=relfit.Gaussian(1.0), rng=0)
    np.testing.assert_allclose(result.discrepancy[0], plain.discrepancy[0])


def test_codes_can_be_categories_and_columns_dropped():
    rng = np.random.default_rng(0)
    data, *models = (pd.DataFrame({"code": rng.integers(0, 4, 80), "x": rng.normal(size=80)}) for _ in range(3))
    named = dict(zip("ab", models, strict=True))
    encoding = load(data, named, encode=Encode(categorical="code")).encoding
    assert encoding.columns[0].levels == ("0", "1", "2", "3")
    # Another type of the same numbers has the same levels.
    floats = {name: model.astype(float) for name, model in named.items()}
    assert not load(data, floats, encode=Encode(categorical="code")).encoding.columns[0].other
    assert load(data, named, encode=Encode(drop=("code",))).encoding.names == ("x",)
    # A column that only the reference has can be dropped, too.
    assert load(data.assign(key=1.5), named, encode=Encode(drop="key")).encoding.names == ("code", "x")
    refused(lambda: load(data, named, encode=Encode(drop="y")), "drop: expected the name of a column, got 'y'")
    refused(lambda: load(data, named, encode=Encode(categorical=("z",))), "categorical: expected names", "'z'")
    refused(lambda: relfit.compare(data, named, encode="x"), "encode: expected relfit.Encode(...) or None")
    refused(lambda: Encode(missing="never"), "missing: expected one of flag, drop, refuse")
    refused(lambda: Encode(drop=3), "drop: expected names of columns")
    refused(lambda: Encode(metadata=3), "metadata: expected a JSON file or a dictionary, got 3")


@pytest.mark.parametrize("form", ["V1", "single"])
def test_sdv_metadata_say_what_columns_are(tmp_path, form):
    rng = np.random.default_rng(0)

    def table():
        day = pd.Timestamp("2020-05-01") + pd.to_timedelta(rng.integers(0, 99, 70), unit="D")
        columns = {"user": rng.integers(0, 9, 70), "zip": rng.integers(0, 5, 70), "x": rng.random(70)}
        return pd.DataFrame({**columns, "day": day.strftime("%d/%m/%Y")})

    data, models = table(), {"a": table(), "b": table()}
    columns = {
        "user": {"sdtype": "id"},
        "zip": {"sdtype": "categorical"},
        "day": {"sdtype": "datetime", "datetime_format": "%d/%m/%Y"},
        "x": {"sdtype": "numerical"},
    }
    spec = {"METADATA_SPEC_VERSION": "V1", "tables": {"t": {"columns": columns}}}
    metadata = spec if form == "V1" else {"METADATA_SPEC_VERSION": "SINGLE_TABLE_V1", "columns": columns}
    path = tmp_path / "metadata.json"
    path.write_text(json.dumps(metadata))
    encoding = load(data, models, encode=Encode(metadata=path)).encoding
    assert {c.name: c.kind for c in encoding.columns} == {"zip": "category", "day": "date", "x": "number"}
    assert "metadata" in encoding.left_out["user"]
    for broken in ("{", "[]", '{"tables": 3}', '{"tables": {"t": {"columns": []}}}', "[" * 100000):
        path.write_text(broken)
        refused(lambda: load(data, models, encode=Encode(metadata=str(path))), str(path), "expected")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([*map(str, range(40)), "n.k."], "column 'x' holds numbers, but 'n.k.' and the like in 1 of 41 cells"),
        ([*range(40), "n.k."], "column 'x' holds numbers, but 'n.k.'"),
        (["2024-01-30", "2024-01-31", "2024-01-32"] * 9, "column 'x' holds dates, but '2024-01-32'"),
        (["2024-01-30", "0000-00-00", "2024-01-31"] * 9, "column 'x' holds dates, but '0000-00-00'"),
        ([1.0, 2.0, math.inf], "expected finite numbers in column 'x', got 1 others"),
        ([1.7e308, -1.7e308, 0.0], "expected finite numbers in column 'x', got 2 others"),
        ([{}, {}, {}], "expected numbers, dates or text in column 'x', got other objects"),
        (["a", "\ud800"], "expected valid text in column 'x'"),
        (["a", "b\0c"], "expected valid text in column 'x', got 'b\\x00c'"),
    ],
)
def test_mixed_and_broken_columns_are_refused_by_name(values, said):
    table = pd.DataFrame({"x": values}, dtype=object)
    refused(lambda: load(table, {"a": table, "b": table}), said)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["a"] * 150, "model 'shifted': expected numbers in column 'weight', got 'a' in 150 of 150 rows"),
        (pd.date_range("2020-01-01", periods=150), "expected numbers in column 'weight', got dates"),
        ([math.inf, *[1e200] * 149], "expected numbers below 1e+152 in size in column 'weight', got larger ones in"),
    ],
)
def test_a_model_of_other_kinds_is_refused_by_name(tables, wrong, said):
    data, models = tables
    refused(lambda: load(data, {**models, "shifted": models["shifted"].assign(weight=wrong)}), said)


def test_a_scale_of_unknown_columns_or_words_is_refused(tables):
    refused(lambda: relfit.compare(*tables, scale={"size": 2.0}), "scale: expected names of columns, got 'size'")
    refused(lambda: relfit.compare(*tables, scale="big"), "scale: expected one of auto, none, robust, whiten")
    refused(lambda: relfit.compare(*tables, scale={"weight": 0.0}), "scale['weight']: expected a number above 0")
    refused(lambda: relfit.compare(*tables, scale="whiten"), 'scale="whiten": belongs to densities')
    refused(lambda: relfit.compare(*tables, preset="kid", scale="auto"), "a preset or a precomputed kernel")


@pytest.mark.parametrize(
    "change",
    [
        {"columns": []},
        *(
            {"columns": [{**asdict(Column("a")), **wrong}]}
            for wrong in ({"name": 3}, {"scale": 0.0}, {"centre": "inf"}, {"kind": "lists"}, {"levels": [1]})
        ),
        {"columns": [asdict(Column("a"))] * 2},
        *({"scale": "big"}, {"missing": 3}, {"left_out": [1, 2]}),
    ],
)
def test_a_damaged_record_is_refused(tables, change):
    record = relfit.compare(*tables, rng=0).to_dict()
    record["encoding"] = {**record["encoding"], **change}
    refused(lambda: relfit.Comparison.from_dict(record), "data: not a complete relfit.Comparison (encoding: expected")


@pytest.fixture
def folder(tmp_path, monkeypatch, tables):
    monkeypatch.chdir(tmp_path)
    for name, table in {"data": tables[0], **tables[1]}.items():
        table.to_csv(f"{name}.csv", index=False)
    return tmp_path


FILES = ("data.csv", "same.csv", "shifted.csv", "other.csv")


def test_the_command_records_the_encoding_and_rerun_and_report_use_it(folder, capsys, tables):
    options = ("--scale", "robust", "--categorical", "sold", "--drop", "day")
    assert main(["compare", *FILES, *options, "--json", "r.json", "--html", "p.html"]) == 0
    assert "2 columns standardised, 2 categorical" in capsys.readouterr().out
    result = relfit.Comparison.from_json((folder / "r.json").read_text())
    data, models = tables
    encode = Encode(categorical=("sold",), drop=("day",))
    expected = relfit.compare(data, models, scale="robust", encode=encode, rng=0)
    np.testing.assert_allclose(result.discrepancy, expected.discrepancy, rtol=1e-10)
    assert main(["rerun", "r.json"]) == 0
    assert "Agrees" in capsys.readouterr().out
    assert main(["report", "r.json", *FILES, "--html", "again.html"]) == 0
    assert '<h2 id="columns">' in (folder / "again.html").read_text()
    other = data.assign(weight=data["weight"] + 1e-3)
    refused(lambda: result.report(folder / "x.html", (other, models)), "the rows of the reference are not the same")


def _ways(frame, tmp_path, name):
    """One table in every form in which it may come."""
    pl, pa = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    frame.to_csv(tmp_path / f"{name}.csv", index=False)
    frame.to_parquet(tmp_path / f"{name}.parquet", index=False)
    batches = [frame[:40], frame[40:]]
    files = {"csv": tmp_path / f"{name}.csv", "parquet": tmp_path / f"{name}.parquet"}
    return {**files, "pandas": frame, "polars": pl.from_pandas(frame), "arrow": pa.table(frame), "batches": batches}


@pytest.mark.parametrize("memory", [None, "8GB"])
@pytest.mark.parametrize("way", ["csv", "parquet", "pandas", "polars", "arrow", "batches"])
def test_whole_numbers_that_float64_cannot_tell_apart_are_refused(tmp_path, way, memory):
    """N13: 2^60 + {0 … 99} became one number, and the column was said to be constant; as levels, too."""

    def table(seed, start):
        keys = start + np.random.default_rng(seed).integers(0, 100, 80)
        return _ways(drawn(seed, 80)[["weight"]].assign(key=keys), tmp_path, seed)[way]

    def compared(start, **options):
        tables = [iter(each) if way == "batches" else each for each in (table(k, start) for k in range(3))]
        return relfit.compare(tables[0], {"a": tables[1], "b": tables[2]}, rng=0, **options)

    with relfit.computing(memory=memory):
        refused(lambda: compared(2**60), "float64 can tell apart in column 'key', got whole numbers from 11529215046")
        refused(lambda: compared(2**60, encode=Encode(categorical="key")), "expected levels that float64 can tell")
        assert "key" in compared(2**40).encoding.names


def test_whole_numbers_of_arrays_and_columns_of_lists_are_refused(tmp_path):
    """An array has the rule of tables, in memory and in a file; a large range loses nothing that matters."""
    rng = np.random.default_rng(0)
    data, a, b = (np.stack([2**60 + rng.integers(0, 100, 50), rng.integers(0, 100, 50)], axis=1) for _ in range(3))
    np.save(tmp_path / "data.npy", data)
    for reference in (data, str(tmp_path / "data.npy"), np.load(tmp_path / "data.npy", mmap_mode="r")):
        for memory in (None, "8GB"):
            with relfit.computing(memory=memory):
                refused(lambda x=reference: relfit.compare(x, {"a": a, "b": b}), "reference: expected numbers that")
    relfit.compare(data * 2**20, {"a": a * 2**20, "b": b * 2**20})
    # N11: pyarrow raised an error of its own.
    pa = pytest.importorskip("pyarrow")
    lists = pd.Series([[1.0, 2.0]] * 9, dtype=pd.ArrowDtype(pa.list_(pa.float64())))
    frame = pd.DataFrame({"x": np.arange(9.0) ** 2, "e": lists})
    said = "expected columns of numbers, got 'e' (List(Float64)); drop or convert them"
    refused(lambda: load(frame, {"a": frame, "b": frame}), said)
    refused(lambda: load(iter([frame]), {"a": iter([frame]), "b": frame}), said)


def test_truth_values_are_the_same_levels_in_every_form(tmp_path):
    """pandas writes True, polars true and R TRUE: they were different levels, and a frame has a type of its own."""
    tables = [drawn(k)[["weight", "sold"]] for k in range(3)]
    whole = load(tables[0], {"a": tables[1], "b": tables[2]})
    files = [str(tmp_path / f"{k}.csv") for k in range(3)]
    for table, file, case in zip(tables, files, (str.capitalize, str.lower, str.upper), strict=True):
        table.assign(sold=table["sold"].astype(str).map(case)).to_csv(file, index=False)
    read = load(files[0], {"a": files[1], "b": files[2]})
    assert read.encoding == whole.encoding
    assert read.encoding.columns[1].levels == ("False", "True")
    assert np.array_equal(read.models["b"], whole.models["b"])


@pytest.mark.parametrize("way", ["parquet", "pandas", "polars", "arrow"])
def test_durations_and_categories_are_the_same_in_every_library(tmp_path, way):
    """Durations were text, and categories written as numbers were numbers, outside pandas."""
    rng = np.random.default_rng(0)

    def table(name):
        times = {"took": pd.to_timedelta(rng.integers(0, 10**6, 80), unit="s")}
        times["at"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 10**15, 80), unit="ns")
        return _ways(pd.DataFrame({**times, "code": pd.Categorical(rng.choice(["1", "2"], 80))}), tmp_path, name)[way]

    data = load(table(0), {"a": table(1), "b": table(2)})
    assert [column.kind for column in data.encoding.columns] == ["number", "date", "category"]
    np.testing.assert_allclose(data.reference[:, 0].std(), 1.0)


def test_levels_that_do_not_fit_into_the_memory_limit_are_one_line(monkeypatch):
    """Levels are held in memory: where they do not fit, the column is named rather than cut short."""
    monkeypatch.setattr(relfit.data.tables, "MOST_HELD", 50)
    monkeypatch.setattr(relfit.data.tables, "_BYTES_PER_LEVEL", 10**9)
    data = drawn(1).assign(cut=[f"c{k}" for k in range(150)])
    with relfit.computing(memory="8GB"):
        models = {"a": iter([data]), "b": iter([data[::-1]])}
        encode = Encode(categorical="cut")
        said = "column 'cut' has more than 50 different values"
        refused(lambda: relfit.compare(iter([data]), models, encode=encode), said)


def test_dates_that_metadata_describe_are_read_in_parts_however_many(tmp_path, monkeypatch):
    """Dates in a form of their own are text until they are encoded."""
    monkeypatch.setattr(text_files, "_LABELS_BETWEEN_CHECKS", 64)
    metadata = {"columns": {"day": {"sdtype": "datetime", "datetime_format": "%d.%m.%Y"}}}
    for k in range(3):
        table = drawn(k, 300)[["weight", "day"]]
        table.assign(day=table["day"].dt.strftime("%d.%m.%Y")).to_csv(tmp_path / f"{k}.csv", index=False)
    files = [str(tmp_path / f"{k}.csv") for k in range(3)]
    encode = Encode(metadata=metadata)
    whole = relfit.compare(files[0], files[1:], encode=encode, rng=0)
    with relfit.computing(memory="8GB"):
        parts = relfit.compare(files[0], files[1:], encode=encode, rng=0)
    assert [column.kind for column in parts.encoding.columns] == ["number", "date"]
    assert parts.encoding == whole.encoding
    np.testing.assert_allclose(parts.discrepancy, whole.discrepancy, rtol=1e-9)


def test_out_of_core_arrays_and_files_can_be_mixed_and_bad_ones_are_refused(folder, capsys, tables):
    numbers = {name: pd.read_csv(f"{name}.csv")[["weight", "price"]] for name in ("data", "same", "other")}
    for name, table in numbers.items():
        table.to_csv(f"n{name}.csv", index=False)
        np.save(f"{name}.npy", table.to_numpy())
    with relfit.computing(memory="8GB"):
        mixed = relfit.compare("ndata.csv", ["nsame.csv", "other.npy"], rng=0)
    expected = relfit.compare(numbers["data"], {"nsame": numbers["same"], "other": numbers["other"]}, rng=0)
    np.testing.assert_allclose(mixed.discrepancy, expected.discrepancy, rtol=1e-9)
    broken = [*map(str, np.arange(149) / 7), "n.k."]
    for file, table in (("broken.csv", tables[0].assign(weight=broken)), ("short.csv", tables[0].iloc[:0])):
        table.to_csv(file, index=False)
        assert main(["compare", file, *FILES[1:], "--memory", "8GB"]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        said = {"broken.csv": "column 'weight' holds numbers, but 'n.k.'", "short.csv": "expected at least one row"}
        assert f"{file}: {said[file]}" in line


def test_the_page_shows_rows_by_their_own_cells(tmp_path, tables):
    """A level with markup, gaps and dates; and every row that is shown is one of the table."""
    data, models = tables
    data, models = _gaps(data, 1), {name: _gaps(model, 2) for name, model in models.items()}
    for table in (data, *models.values()):
        table["cut"] = table["cut"].replace("ideal", "<b>ideal</b>")
    result = relfit.compare(data, models, rng=0)
    result.report(tmp_path / "p.html", (data, models))
    page = (tmp_path / "p.html").read_text()
    assert "<b>ideal" not in page
    shown = re.findall(r'class="quote"><span class="soft">row (\d+)</span> (.*?)</li>', page)
    assert len(shown) == 3 * 3 * 4
    samples = [data, *models.values()]
    for number, text in shown:
        weight, price, cut, sold, day = (re.split(" = | is ", cell) for cell in html.unescape(text).split(" · "))
        assert [weight[0], price[0], cut[0], sold[0], day[0]] == list(data.columns)
        rows = [table.iloc[int(number)] for table in samples]
        assert any(
            cut[1] == (row["cut"] or "missing")
            and sold[1] == ("missing" if row["sold"] is None else str(row["sold"]))
            and day[1] == ("missing" if pd.isna(row["day"]) else str(row["day"].date()))
            and weight[1] == ("missing" if pd.isna(row["weight"]) else f"{row['weight']:.6g}")
            for row in rows
        ), text
    encoding = replace(result.encoding, columns=(Column("n", "number", 1e6, 3e3), Column("t", "date", 1e9, 1e7)))
    assert encoding.in_words(np.array([0.5, 0.0])) == ["n = 1001500", "t = 2001-09-09T01:46:40"]


DIAMONDS = Path(__file__).with_name("diamonds")


def test_three_synthesizers_of_sdv_in_one_command(monkeypatch, capsys):
    """The files were drawn by SDV (scripts/table_fixtures.py); the guide shows this output."""
    monkeypatch.chdir(DIAMONDS)
    assert main(["compare", "real.csv", "copula.csv", "ctgan.csv", "tvae.csv", "--metadata", "metadata.json"]) == 0
    shown = capsys.readouterr().out
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "tables.md").read_text(encoding="utf-8")
    assert f"```\n{shown}```" in guide


def test_a_shuffled_column_has_the_largest_share_and_no_distance(tables):
    """By itself the column is right: only how it goes with the others is wrong."""
    rng = np.random.default_rng(0)
    data, model = drawn(1, n=500), drawn(2, n=500)
    model["price"] = rng.permutation(model["price"])
    encoding, rows, _ = encoded_tables({None: read_table("d", data), "m": read_table("m", model)}, "auto", Encode())
    shares = column_shares(rows["m"], rows[None], relfit.Gaussian(1.5), encoding.slices)
    assert encoding.names[int(np.argmax(shares))] in ("price", "weight")
    assert min(shares[0], shares[1]) > 2 * max(shares[2:])
    price, at = encoding.columns[1], encoding.slices[1]
    assert distance(price, rows["m"][:, at], rows[None][:, at]) < 3 * noise(price, rows[None][:, at])
    # Total variation by hand: (0.5, 0.5) against (1, 0).
    column = Column("c", "category", levels=("a", "b"))
    assert distance(column, np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[1.0, 0.0]] * 2)) == 0.5


def test_dates_of_every_kind_are_the_same_seconds():
    import datetime as dt

    at = dt.datetime(2024, 3, 1, 12, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    expected = [at.timestamp(), at.timestamp() + 86400]
    for values in (
        [at, at + dt.timedelta(days=1)],
        ["2024-03-01 10:00:00", "2024-03-02T10:00:00Z"],
        ["2024-03-01 12:00:00+02:00", "2024-03-02T05:30-0430"],
        pd.Series(pd.to_datetime([at, at + dt.timedelta(days=1)])),
        np.array(["2024-03-01T10", "2024-03-02T10"], dtype="datetime64[h]").astype(object),
    ):
        cells = cells_of("table", "day", values)
        assert (cells.kind, cells.values.tolist()) == ("date", expected)


def test_densities_keep_the_names_of_the_columns(tmp_path):
    rows = np.random.default_rng(0).normal(size=(80, 2))
    frame = pd.DataFrame(rows, columns=["height", "pulse"])
    models = {str(s): relfit.Density(score=lambda x, s=s: s - x, dim=2) for s in (0.0, 1.0)}
    result = relfit.compare(frame, models, rng=0)
    assert result.discrepancy.tolist() == relfit.compare(rows, models, rng=0).discrepancy.tolist()
    assert (result.encoding.names, result.encoding.scale) == (("height", "pulse"), "none")
    result.report(tmp_path / "p.html", (frame, models))
    assert ">height</text>" in (tmp_path / "p.html").read_text()
    whitened = relfit.compare(frame, models, scale="auto", rng=0).encoding
    assert (whitened.names, whitened.scale) == (("height", "pulse"), "whiten")


def test_more_levels_than_a_left_out_column_holds_are_told_apart_in_parts(tmp_path, monkeypatch, rng):
    """N1: levels beyond 100,000 counted as one in parts, so that a gate that fails in memory passed with --memory."""
    monkeypatch.chdir(tmp_path)
    tables = {
        name: pd.DataFrame({"x": rng.normal(size=202_000), "c": [f"u{k}" for k in range(101_000)] + [last] * 101_000})
        for name, last in (("data", "A"), ("good", "A"), ("bad", "B"))
    }
    for name, table in tables.items():
        table.to_parquet(f"{name}.parquet")
    command = ["compare", "data.parquet", "good.parquet", "bad.parquet", "--categorical", "c", "--estimator", "linear"]
    assert main([*command, "--gate", "bad", "--memory", "8GB", "--json", "parts.json"]) == 1
    assert main([*command, "--gate", "bad", "--json", "whole.json"]) == 1
    parts, whole = (relfit.Comparison.from_json(Path(f"{name}.json").read_text()) for name in ("parts", "whole"))
    batches = {name: iter([table[:50_500], table[50_500:]]) for name, table in tables.items()}
    encode = Encode(categorical="c")
    batch = relfit.compare(batches.pop("data"), batches, encode=encode, estimator="linear", rng=whole.seed)
    for result in (parts, batch):
        assert result.encoding == whole.encoding
        assert result.warnings == whole.warnings
        np.testing.assert_allclose(result.discrepancy, whole.discrepancy, rtol=1e-9)
