"""`relfit losses`: a table of scores in, the outputs of `relfit compare` out."""

import json
from xml.etree import ElementTree

import numpy as np
import pytest
from commands import refused_line

import relfit
from relfit.cli import main
from relfit.results.letters import letters_of

NAMES = ("old", "new", "small")


@pytest.fixture
def right(rng):
    return (rng.random((90, 3)) < [0.8, 0.85, 0.3]).astype(int)


@pytest.fixture
def folder(tmp_path, monkeypatch, right):
    """The same scores as a wide and as a long table, the long one in another order."""
    lines = [",".join(map(str, row)) for row in right]
    (tmp_path / "wide.csv").write_text("\n".join(["old,new,small", *lines]))
    long = [
        {"doc": f"d{k % 45}", "task": "arc" if k < 45 else "mmlu", "model": name, "acc": int(right[k, j])}
        for j, name in enumerate(NAMES)
        for k in range(90)
    ]
    order = np.random.default_rng(3).permutation(len(long))
    (tmp_path / "long.jsonl").write_text("\n".join(json.dumps(long[k]) for k in order))
    monkeypatch.chdir(tmp_path)
    return tmp_path


LONG = ["long.jsonl", "--item", "doc", "--model", "model", "--score", "acc", "--stratum", "task", "--higher-is-better"]


def test_the_table_is_that_of_python(folder, capsys, right):
    assert main(["losses", "wide.csv", "--higher-is-better", "--seed", "4"]) == 0
    out = capsys.readouterr().out.rstrip("\n")
    assert out == str(relfit.compare_losses(right, names=NAMES, higher_is_better=True, rng=4))
    assert "mean score (larger is better)" in out
    assert "step-down" in out


def test_every_output(folder, capsys, right):
    outputs = ["--json", "r.json", "--html", "r.html", "--junit", "r.xml", "--show", "ranks", "--show", "pairs"]
    assert main(["losses", *LONG, "--gate", "small", *outputs]) == 1
    out, err = capsys.readouterr()
    assert "gate: small is significantly worse than" in err
    assert "rank" in out
    result = relfit.Comparison.from_json((folder / "r.json").read_text())
    means = (right[:45].mean(0) + right[45:].mean(0)) / 2
    np.testing.assert_allclose([result.discrepancy[result.names.index(name)] for name in NAMES], means)
    assert result.design == "macro average over 2 strata"
    assert json.loads((folder / "r.json").read_text())["gate"]["verdict"] == "worse"
    page = (folder / "r.html").read_text()
    assert "mean score (larger is better)" in page
    assert "relfit losses long.jsonl" in page
    assert "Stratum by stratum" in page
    assert "<h3>small</h3>" in page
    assert ElementTree.parse(folder / "r.xml").getroot().attrib["failures"] == "1"
    assert main(["losses", *LONG, "--gate", "new", "--gate-against", "small"]) == 0


def test_no_direction_no_answer(folder, capsys):
    """Scores from 0 to 100 were taken for losses: the worst model passed the gate."""
    text = (folder / "long.jsonl").read_text()
    columns = ["--item", "doc", "--model", "model", "--stratum", "task"]
    for name, direction in (("accuracy", "larger"), ("error", "smaller"), ("rating_error", None), ("marks", None)):
        (folder / "t.jsonl").write_text(text.replace('"acc": 1', f'"{name}": 100').replace('"acc": 0', f'"{name}": 0'))
        status = main(["losses", "t.jsonl", *columns, "--score", name, "--gate", "small"])
        out, err = capsys.readouterr()
        if direction is None:
            assert (status, out) == (2, "")
            assert f"the name '{name}' does not tell which scores are better; pass --higher-is-better if" in err
        else:
            assert status == int(direction == "larger")
            assert f"({direction} is better)" in out
            assert f"Note: {name}: {'higher' if direction == 'larger' else 'lower'} is better, by its name\n" in out


def test_a_run_that_crashed_does_not_pass_the_gate(folder, capsys, right):
    """D11: A model with 40% of the items passed."""
    lines = [f"{a},{'' if k > 35 else b},{c}" for k, (a, b, c) in enumerate(right)]
    (folder / "t.csv").write_text("\n".join(["old,new,small", *lines]))
    arguments = ["losses", "t.csv", "--higher-is-better"]
    assert main(arguments) == 0
    assert "54 of 90 items were left out" in capsys.readouterr().out
    assert main([*arguments, "--gate", "old"]) == 2
    assert "'new' lacks 60% of the items, more than --max-missing 0.05 allows" in capsys.readouterr().err
    assert main([*arguments, "--gate", "old", "--max-missing", "0.6"]) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["none.csv"], "no such file"),
        (["wide.csv", "--gate", "phi"], "--gate: expected the name of a model (old, new or small), got 'phi'"),
        (["wide.csv", "--json", "wide.csv"], "it is an input too"),
        (["wide.csv", "--item", "doc"], "--item: expected the name of a column"),
        (["logs"], "logs: expected a file, got a folder; for the logs of evaluations use  relfit evals logs"),
        (["ids.csv", "--higher-is-better"], "pass --item doc_id, or leave that column out with --drop doc_id"),
        (["flat.csv", "--higher-is-better"], "TABLE: expected a row for each item and a column for each model, got 2"),
        (["wide.csv", "--lower-is-better", "--lags", "3"], "--lags: belongs to --dependence series"),
        (["wide.csv", "--gate", "new"], "pass --higher-is-better if larger scores are better, or --lower-is-better"),
        (["wide.csv", "--weight", "arc"], "--weight: expected STRATUM=NUMBER"),
        (["wide.csv", "--lower-is-better", "--weight", "arc=1"], "--weight: belongs to --stratum"),
        (["wide.csv", "--lower-is-better", "--test", "relpsi", "--correction", "stepdown"], "belongs to"),
        (["wide.csv", "--test", "relmulti"], "relmulti"),
        (["long.jsonl"], "(text); name a key of the items as --item, and leave out other columns with --drop"),
        (["wide.csv", "--label", "old"], "--label: expected with --model"),
    ],
)
def test_refusals(folder, capsys, arguments, words, right):
    (folder / "logs").mkdir()
    (folder / "ids.csv").write_text("\n".join(["doc_id,a,b", *(f"{k},{a},{b}" for k, (a, b, _) in enumerate(right))]))
    columns = [f"c{k}" for k in range(30)]
    (folder / "flat.csv").write_text(
        "\n".join([",".join(columns), *[",".join(map(str, right[:30, j])) for j in (0, 1)]])
    )
    assert words in refused_line(capsys, "losses", *arguments)


@pytest.mark.parametrize("words", [("True", "False"), ("true", "false"), ("TRUE", "FALSE")])
def test_truth_values_of_a_text_file_are_numbers(folder, capsys, right, words):
    """D19: pandas writes truth values as words, which were refused as text; other files have them as numbers."""
    lines = [",".join(words[0] if cell else words[1] for cell in row) for row in right]
    lines[0] = lines[0].replace(words[1], "", 1)
    (folder / "words.csv").write_text("\n".join(["old,new,small", *lines]))
    (folder / "numbers.csv").write_text(
        "\n".join(["old,new,small", *(line.replace(words[0], "1").replace(words[1], "0") for line in lines)])
    )
    for file in ("words.csv", "numbers.csv"):
        assert main(["losses", file, "--higher-is-better", "--seed", "4", "--json", f"{file}.json"]) == 0
    results = [relfit.Comparison.from_json((folder / f"{name}.csv.json").read_text()) for name in ("words", "numbers")]
    assert results[0].discrepancy.tolist() == results[1].discrepancy.tolist()


def test_records_in_a_json_file(folder, capsys):
    # D28.
    records = [json.loads(line) for line in (folder / "long.jsonl").read_text().splitlines()]
    (folder / "long.json").write_text(json.dumps(records))
    outputs = []
    for name in ("long.jsonl", "long.json"):
        assert main(["losses", name, *LONG[1:]]) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]
    for text in ('{"a": [1]}', "[1]", "[", "[]"):
        (folder / "long.json").write_text(text)
        assert main(["losses", "long.json", *LONG[1:]]) == 2
        assert "long.json: expected" in capsys.readouterr().err
    (folder / "long.xls").write_text("")
    assert main(["losses", "long.xls", *LONG[1:]]) == 2
    assert ".json, .jsonl, .ndjson, got '.xls'" in capsys.readouterr().err


def test_both_directions_are_refused(folder, capsys):
    """D2: the last of them counted, and the gate passed the worst model."""
    for options in (["--lower-is-better", "--higher-is-better"], ["--higher-is-better", "--lower-is-better"]):
        line = refused_line(capsys, "losses", "wide.csv", *options, "--gate", "small")
        assert "expected --higher-is-better or --lower-is-better, got both" in line


def test_a_column_that_is_no_model(folder, capsys, right):
    """D9: The number of tokens won, and a gate on it passed; the table had to be edited."""
    lines = [f"{k + 300},{','.join(map(str, row))}" for k, row in enumerate(right[:, [1, 0, 2]])]
    (folder / "t.csv").write_text(
        "\n".join(["n_tokens,new,old,small", *[line.replace("300,", "310,") for line in lines]])
    )
    assert main(["losses", "t.csv", "--higher-is-better", "--gate", "n_tokens"]) == 2
    out, err = capsys.readouterr()
    assert "Note: 'n_tokens' is on another scale than the other columns" in out
    assert "leave out such columns with --drop, or name the models with --columns" in err
    for chosen in (["--drop", "n_tokens"], ["--columns", "old,new,small"]):
        assert main(["losses", "t.csv", "--higher-is-better", *chosen, "--gate", "small", "--json", "r.json"]) == 1
        result = relfit.Comparison.from_json((folder / "r.json").read_text())
        assert set(result.names) == set(NAMES)
        assert main(["report", "r.json", "t.csv", "--html", "again.html"]) == 0


def test_a_plan_from_a_table_and_from_logs(folder, capsys, right):
    """The sentence of `relfit.plan` for the same scores; a table without a direction is no pilot."""
    assert main(["plan", "wide.csv", "--higher-is-better", "--seed", "1"]) == 0
    out = capsys.readouterr().out
    expected = relfit.plan(relfit.scores(right, names=NAMES, higher_is_better=True), rng=1)
    assert out.splitlines()[0] == str(expected).splitlines()[0]
    assert "from" in out.splitlines()[0]
    assert main(["plan", *LONG, "--seed", "1"]) == 0
    assert "small" in capsys.readouterr().out
    assert "a table of scores with --higher-is-better" in refused_line(capsys, "plan", "wide.csv")
    line = refused_line(capsys, "plan", "a.csv", "b.csv", "--item", "doc")
    assert "--item: expected a single table of scores" in line


def test_letters_of_groups(folder, capsys, right):
    """Printed after the table; two models share a letter exactly if neither is worse by the tests of ranks."""
    assert main(["losses", "wide.csv", "--higher-is-better", "--show", "letters"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == "Models without a common letter are separated (familywise error 5%)."
    result = relfit.compare_losses(right, names=NAMES, higher_is_better=True, rng=0)
    groups = dict(zip(result.letters().names, result.letters().letters, strict=True))
    worse = result.ranks().worse
    assert groups["small"] not in groups["new"] + groups["old"]
    assert (groups["new"] == groups["old"]) == (not worse[0, 1] and not worse[1, 0])
    rng = np.random.default_rng(5)
    for _ in range(20):
        apart = np.triu(rng.random((7, 7)) < 0.4, 1)
        found = letters_of(apart | apart.T)
        for i, j in zip(*np.triu_indices(7, 1), strict=True):
            assert apart[i, j] == (not set(found[i]) & set(found[j]))
