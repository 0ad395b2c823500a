"""`relfit monitor` and `relfit evals --sequential`: tables and logs in, verdicts, files and exit status out."""

import json
from pathlib import Path

import numpy as np
import pytest
from commands import refused_line, run

from relfit.cli.monitor import conclude_monitor
from relfit.monitor import Monitor
from relfit.util.errors import InputError

NAMES = ("new", "old", "<b>small</b>")


@pytest.fixture
def days(tmp_path, monkeypatch):
    """Three days of 200 items, as wide tables and the first as a long one."""
    monkeypatch.chdir(tmp_path)
    right = (np.random.default_rng(0).random((600, 3)) < [0.8, 0.78, 0.5]).astype(int)
    for day in range(3):
        lines = [f"q{k}," + ",".join(map(str, right[k])) for k in range(200 * day, 200 * day + 200)]
        Path(f"day{day}.csv").write_text("\n".join(["id," + ",".join(NAMES), *lines]))
    long = [{"id": f"q{k}", "m": name, "acc": int(right[k, j])} for j, name in enumerate(NAMES) for k in range(200)]
    Path("long.jsonl").write_text("\n".join(map(json.dumps, long)))
    return right


def test_three_days_of_a_gate(days, capsys):
    add = ["monitor", "add", "--item", "id"]
    status, out, err = run(capsys, *add, "day0.csv", "--higher-is-better", "--gate", "new")
    assert (status, err) == (0, "")
    assert "Gate inconclusive: new compared with every other model, after 200 items." in out
    status, out, err = run(
        capsys, *add, "day1.csv", "day2.csv", "--gate", NAMES[2], "--html", "r.html", "--json", "r.json"
    )
    assert status == 1
    assert err.startswith("relfit: gate: '<b>small</b>' is significantly worse than another model since item ")
    stored = json.loads(Path("r.json").read_text(encoding="utf-8"))
    assert stored["items"] == 600
    assert stored["gate"]["sentence"].startswith("Gate failed")
    page = Path("r.html").read_text(encoding="utf-8")
    assert "<b>" not in page
    assert "&lt;b&gt;small&lt;/b&gt;" in page
    assert page.count('class="curve"') == 3
    assert page.count('class="noise"') == 2
    with Monitor.open("gate.sqlite") as monitor:
        np.testing.assert_allclose(monitor.result().mean, days.mean(axis=0))
        assert str(monitor.result()) in out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--alpha", "0.01"], "alpha was 0.05, is 0.01"),
        (["--lower-is-better"], "higher_is_better was True, is False"),
        (["--gate", "other"], "--gate: expected the name of a model"),
        (["--gate-against", "new"], "--gate-against: expected together with --gate"),
        (["--gate-require", "non-inferior"], "--gate-require: expected together with --gate"),
        (["--margin", "0.1"], "--margin: expected together with --gate"),
        (["--margin", "-0.1", "--gate", "new"], "--margin: expected a number of at least 0"),
        (["--html", "gate.sqlite"], "it is the file for --state too"),
        (["--item", "no"], "item: expected the name of a column"),
        (["--model", "id"], "score: expected the name of a column"),
    ],
)
def test_refusals_count_nothing(days, capsys, options, said):
    run(capsys, "monitor", "add", "day0.csv", "--item", "id", "--higher-is-better")
    assert said in refused_line(capsys, "monitor", "add", "day1.csv", "--item", "id", *options)
    with Monitor.open("gate.sqlite") as monitor:
        assert monitor.result().items == 200


def test_a_new_file_needs_a_direction(days, capsys):
    """A score that says nothing about it was taken for a loss."""
    status, out, err = run(capsys, "monitor", "add", "day0.csv", "--item", "id")
    assert (status, out) == (2, "")
    assert "the table does not name the metric; pass --higher-is-better if larger scores are better" in err
    assert not Path("gate.sqlite").exists()
    long = ["long.jsonl", "--item", "id", "--model", "m", "--score", "acc"]
    status, out, _ = run(capsys, "monitor", "add", *long)
    assert (status, out.splitlines()[0]) == (0, "Note: acc: higher is better, by its name")
    with Monitor.open("gate.sqlite") as monitor:
        assert monitor.higher_is_better


@pytest.mark.parametrize(
    ("options", "status", "verdict", "said"),
    [
        (["--gate", "new"], 0, "inconclusive", "new compared with every other model, after 600 items"),
        (["--gate", "new", "--gate-require", "non-inferior"], 3, "inconclusive", "without a margin only a model that"),
        (["--gate", "new", "--margin", "0.2"], 0, "non-inferior", "non-inferior to every other model within 0.2"),
        (
            ["--gate", "new", "--margin=0.001"],
            0,
            "inconclusive",
            "every other model (margin 0.001), after",
        ),
        (
            ["--gate", NAMES[2], "--margin", "0.1"],
            1,
            "worse",
            "worse than another model by more than 0.1 (95% lim",
        ),
        (["--gate", NAMES[2], "--margin", "0.9"], 0, "non-inferior", "within 0.9"),
        (["--gate", "new", "--gate-against", NAMES[2]], 0, "non-inferior", "new is non-inferior to '<b>"),
        (["--gate", NAMES[2], "--gate-against", "new", "--margin=0.1"], 1, "worse", "worse than new by more than 0.1"),
    ],
)
def test_three_answers_of_a_monitor(days, capsys, options, status, verdict, said):
    """The same answers, sentences and statuses as the other gates."""
    run(capsys, "monitor", "add", "day0.csv", "day1.csv", "day2.csv", "--item", "id", "--higher-is-better")
    assert run(capsys, "monitor", "status", *options, "--json", "r.json")[0] == status
    gate = json.loads(Path("r.json").read_text(encoding="utf-8"))["gate"]
    assert (gate["verdict"], said in gate["sentence"]) == (verdict, True), gate["sentence"]
    assert run(capsys, "monitor", "report", *options, "--html", "r.html")[0] == status
    assert gate["sentence"].partition(":")[0] in Path("r.html").read_text(encoding="utf-8")


def test_doubts_are_an_error_after_everything_was_written(days, capsys):
    """Scores of runs that were made differently, say: the table and the files come first."""
    params = {"gate": "new", "against": None, "require": None, "margin": 0.0}
    params |= {"json_path": "r.json", "html_path": "r.html"}
    run(capsys, "monitor", "add", "day0.csv", "--item", "id", "--higher-is-better")
    with Monitor.open("gate.sqlite") as monitor, pytest.raises(InputError, match="gate: 0 and 5 shots"):
        conclude_monitor(monitor, params, doubts=("0 and 5 shots",))
    assert "95% confidence set for the best model, valid at all looks: " in capsys.readouterr().out
    assert json.loads(Path("r.json").read_text(encoding="utf-8"))["gate"]["verdict"] == "error"
    assert "Gate without an answer: 0 and 5 shots." in Path("r.html").read_text(encoding="utf-8")


@pytest.fixture
def race(tmp_path):
    """Logs of a model that is always right, and of one that never is."""
    for model, score in (("good", 1.0), ("bad", 0.0)):
        lines = [{"doc_id": k, "filter": "none", "metrics": ["acc"], "acc": score} for k in range(100)]
        path = tmp_path / model / "samples_t_2026-01-02T03-04-05.jsonl"
        path.parent.mkdir()
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


def test_a_race_ends_when_one_model_is_left_which_is_shown_to_be_no_worse(race, capsys):
    """Every bet wins at every item: the bad model is out once mean_k ((1 + λ_k)ⁿ + (1 − λ_k)ⁿ)/2 reaches 20."""
    status, out, _ = run(capsys, "evals", race, "--sequential", "--gate", "bad")
    assert status == 1
    bets = 0.9 * 0.5 ** np.arange(12)
    items = next(n for n in range(20) if ((1.0 + bets) ** n + (1.0 - bets) ** n).mean() / 2.0 >= 20.0)
    assert f"One model is left after {items} of 100 items: {2 * items} of 200 scores were needed" in out
    # With probability 1 − α no best model is ever out: the one that is left is the best.
    options = ["--sequential", "--gate", "good", "--gate-require", "non-inferior"]
    status, out, _ = run(capsys, "evals", race, *options)
    assert status == 0
    assert "Gate passed: good is non-inferior to every other model." in out
