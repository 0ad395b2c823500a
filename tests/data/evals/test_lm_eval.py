"""Logs that lm-evaluation-harness wrote (scripts/eval_fixtures.py), and what can go wrong with such logs."""

import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from refusals import refused
from scored import by_model, refusal

import relfit
from relfit.data.evals import formats, read_evals
from relfit.data.files import text as text_files

LOGS = Path(__file__).parent / "fixtures" / "lm_eval"
SUMS, DOUBLES = (f"samples_{task}_2026-01-02T03-04-05.678901.jsonl" for task in ("sums", "doubles"))
RESULTS = "results_2026-01-02T03-04-05.678901.json"


@pytest.fixture
def logs(tmp_path):
    """A copy of the logs that a test may change."""
    return Path(shutil.copytree(LOGS, tmp_path / "logs"))


def lines_of(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write_lines(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def change(path, number, **values):
    """Set keys of one line; a value of ... takes the key out."""
    lines = lines_of(path)
    lines[number] = {key: value for key, value in {**lines[number], **values}.items() if value is not ...}
    write_lines(path, lines)


@pytest.mark.parametrize(
    ("task", "metric", "filter"),
    [
        *(("sums", metric, "none") for metric in ("acc", "acc_norm")),
        *(("doubles", "exact_match", filter) for filter in ("strict-match", "flexible-extract")),
    ],
)
def test_task_means_are_those_of_the_harness(task, metric, filter):
    evals = read_evals(LOGS, task=task, metric=metric, filter=filter)
    assert set(evals.names) == {"small", "medium", "large"}
    for model, scores in by_model(evals).items():
        results = json.loads((LOGS / model / RESULTS).read_text())
        assert len(scores) == results["n-samples"][task]["effective"]
        mean = sum(scores.values()) / len(scores)
        assert mean == pytest.approx(results["results"][task][f"{metric},{filter}"], rel=0, abs=1e-12)


def test_the_first_metric_and_filter_are_read_and_the_others_named():
    evals = read_evals(LOGS)
    assert list(dict.fromkeys(evals.strata.tolist())) == ["doubles", "sums"]
    assert evals.metric == "exact_match,strict-match and acc"
    assert evals.higher_is_better is True
    assert evals.notes[1:] == (
        "doubles: scored by exact_match,strict-match; the logs also have exact_match,flexible-extract",
        "sums: scored by acc; the logs also have acc_norm",
    )
    assert "17 + 72 =" in evals.prompts
    assert refusal(LOGS, task="sums", metric="f2").startswith("metric: expected 'acc', 'mcc' or 'acc_norm' in ")
    message = refusal(LOGS, task="doubles", filter="loose")
    assert message.startswith("filter: expected 'strict-match' or 'flexible-extract' in ")


def test_items_are_joined_whatever_the_order_of_the_lines_and_the_name_of_the_folder(logs):
    before = read_evals(LOGS)
    lines = lines_of(logs / "small" / SUMS)
    random.Random(0).shuffle(lines)
    write_lines(logs / "small" / SUMS, lines)
    assert by_model(read_evals(logs)) == by_model(before)
    (logs / "small" / RESULTS).unlink()
    results = logs / "large" / RESULTS
    results.write_text(results.read_text().replace('"model_name": "large"', '"model_name": "org/large"'))
    (logs / "small").rename(logs / "tiny")
    evals = read_evals(logs)
    assert set(evals.names) == {"tiny", "medium", "org/large"}
    assert evals.higher_is_better is True


@pytest.mark.parametrize("key", ["doc_hash", "target_hash"])
def test_another_question_under_the_same_number_is_named(logs, key):
    change(logs / "small" / SUMS, 7, **{key: "0" * 64})
    said = f"item '7' of 'sums' is not the same question as in {logs / 'large' / SUMS} (1 of 30 items differ)"
    assert said in refusal(logs)


def settings(logs, model, **values):
    """Change the results file of a run; a dictionary is merged into what is there."""
    path = logs / model / RESULTS
    results = json.loads(path.read_text())
    for key, value in values.items():
        results[key] = {**results.get(key, {}), **value} if isinstance(value, dict) else value
    path.write_text(json.dumps(results))


def test_another_prompt_for_the_same_question_is_a_doubt(logs):
    """The question is the same, and the answers depend on how it was put."""
    change(logs / "small" / SUMS, 7, prompt_hash="0" * 64)
    evals = read_evals(logs)
    assert by_model(evals) == by_model(read_evals(LOGS))
    assert evals.doubts == (
        "the runs differ in the prompts on sums: 1 of 30 items have another prompt in small than in large; differences "
        "between models may come from this setting: run all models alike, or pass allow_different='prompts'",
    )
    assert evals.notes[-1] == evals.doubts[0]
    assert read_evals(logs, allow_different="prompts").doubts == ()
    assert read_evals(LOGS).doubts == ()


TEMPERATURES = [{"configs": {"sums": {"generation_kwargs": {"temperature": t, "until": ["x"]}}}} for t in (0.0, 0.7)]


@pytest.mark.parametrize(
    ("setting", "first", "second", "said"),
    [
        ("shots", {"n-shot": {"sums": 0}}, {"n-shot": {"sums": 5}}, "shots: 0 (large and medium), 5 (small)"),
        ("version", {"versions": {"sums": 1.0}}, {"versions": {"sums": 2.0}}, "version: 1.0 (large and medium), 2.0"),
        ("system", {"system_instruction": None}, {"system_instruction": "Be short."}, "medium), Be short. (small)"),
        ("chat-template", {"chat_template_sha": None}, {"chat_template_sha": "ab" * 32}, "medium), abababab (small)"),
        (
            "system",
            {"system_instruction_sha": None},
            {"system_instruction_sha": "cd" * 32},
            "medium), cdcdcdcd (small)",
        ),
        ("generation", *TEMPERATURES, "the generation settings: temperature 0.0 (large and medium), 0.7 (small);"),
    ],
)
def test_runs_that_were_made_differently_are_a_doubt(logs, setting, first, second, said):
    """D3: a run with 5 shots was compared with one without any, in silence. Prompts that follow are not told twice."""
    for model, values in (("large", first), ("medium", first), ("small", second)):
        settings(logs, model, **values)
    if setting != "generation":
        write_lines(logs / "small" / SUMS, [{**line, "prompt_hash": "1"} for line in lines_of(logs / "small" / SUMS)])
    (doubt,) = read_evals(logs, task="sums").doubts
    assert said in doubt
    assert doubt.endswith(f"allow_different='{setting}'")
    allowed = read_evals(logs, task="sums", allow_different=[setting])
    assert allowed.doubts == ()
    assert allowed.notes[-1] == doubt.partition("; differences between models")[0]
    assert "allow_different: expected one of shots, version" in refusal(logs, allow_different="shot")


def test_the_newest_run_in_a_folder_is_read(logs):
    """D16: lm-eval writes a run that is repeated into the same folder, with another date."""
    later = "2026-01-03T00-00-00.000000"
    for name in (SUMS, RESULTS):
        text = (LOGS / "large" / name).read_text().replace('"model_name": "large"', '"model_name": "small"')
        (logs / "small" / name.replace("2026-01-02T03-04-05.678901", later)).write_text(text)
    evals = read_evals(logs)
    expected = by_model(read_evals(LOGS))
    sums = {key: score for key, score in by_model(evals)["small"].items() if key[0] == "sums"}
    assert sums == {key: score for key, score in expected["large"].items() if key[0] == "sums"}
    assert f"small has several runs of sums; the newest was read ({later}); runs='all' averages over the runs" in (
        evals.notes
    )
    assert evals.doubts == ()
    every = by_model(read_evals(logs, runs="all"))["small"]
    assert every["sums", "0"] == (expected["small"]["sums", "0"] + expected["large"]["sums", "0"]) / 2
    assert every["doubles", "0"] == expected["small"]["doubles", "0"]
    assert "runs: expected one of newest, all" in refusal(logs, runs="oldest")


def test_a_list_of_true_and_false_is_its_mean(logs):
    """D39: IFEval's inst_level_strict_acc has an entry for each instruction of the prompt."""
    for model in ("small", "medium", "large"):
        lines = lines_of(logs / model / SUMS)
        write_lines(logs / model / SUMS, [{**line, "mcc": [True, False, bool(line["acc"])]} for line in lines])
    evals = read_evals(logs, task="sums", metric="mcc")
    right = read_evals(logs, task="sums", metric="acc")
    np.testing.assert_allclose(evals.values, (1 + right.values) / 3)


def test_two_runs_of_a_model_are_refused_and_names_tell_them_apart(logs):
    again = Path(shutil.copytree(LOGS / "small", logs.parent / "again"))
    message = refusal([logs, again])
    assert "is a second run of 'small' on 'doubles', besides" in message
    assert message.endswith("leave one out, give each run a name of its own, or average them with runs='all'")
    evals = read_evals({"before": logs / "small", "after": again})
    assert evals.names == ("before", "after")
    assert "expected runs of one model under the name 'x', got 'large' and 'medium'" in refusal({"x": logs})


def test_a_name_that_the_numbers_or_another_metric_contradict_tells_nothing(logs):
    """Negative accuracies, and a metric that is known beside one that is not: the direction is asked for."""
    for model in ("small", "medium", "large"):
        settings(logs, model, higher_is_better=None)
        lines = lines_of(logs / model / SUMS)
        write_lines(logs / model / SUMS, [{**line, "style": 1.0, "metrics": ["acc", "style"]} for line in lines])
    assert read_evals(logs, task="sums").higher_is_better is True
    change(logs / "small" / SUMS, 3, acc=-1.0)
    evals = read_evals(logs, task="sums")
    assert evals.higher_is_better is None
    refused(lambda: relfit.compare_losses(evals), "scores called 'acc' cannot be negative, and the smallest is -1")
    refused(lambda: evals.differing("small", "large"), "scores called 'acc' cannot be negative")
    for model in ("small", "medium", "large"):
        lines = lines_of(logs / model / SUMS)
        write_lines(logs / model / SUMS, [{**line, "metrics": ["style"]} for line in lines])
    both = read_evals(logs)
    assert both.higher_is_better is None
    refused(lambda: relfit.compare_losses(both), "the name 'exact_match,strict-match and style' does not tell")


def test_opposite_directions_are_refused(logs):
    for model in ("small", "medium", "large"):
        settings(logs, model, higher_is_better={"sums": {"acc": False}})
    message = refusal(logs)
    assert message.startswith("metric: expected scores of one direction, got 'exact_match,strict-match' of 'doubles'")
    assert read_evals(logs, task="sums").higher_is_better is False


def test_missing_scores_are_not_zeros_and_lines_have_an_end(logs, monkeypatch):
    change(logs / "small" / SUMS, 0, acc=None)
    change(logs / "small" / SUMS, 1, acc=float("nan"))
    evals = read_evals(logs, task="sums")
    assert len(by_model(evals)["small"]) == 28
    assert evals.notes[-1] == "scores that are missing in the logs: 2 of small"
    monkeypatch.setattr(text_files, "LONGEST_JSON_LINE", 2**10)
    path = logs / "small" / SUMS
    change(path, 4, doc="x" * 2**10)
    assert f"{path}, line 5: expected at most 0 MiB in a line, got more" in refusal(logs)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"doc_id": None}, "expected text in 'doc_id', got nothing"),
        ({"doc_id": [1]}, "expected text in 'doc_id', got [1]"),
        ({"doc_id": True}, "expected text in 'doc_id', got True"),
        ({"doc_id": 10**400}, "expected text in 'doc_id', got 1000"),
        ({"doc_id": "\ud800"}, r"expected text in 'doc_id', got '\ud800'"),
        ({"filter": {}}, "expected text in 'filter', got {}"),
        ({"metrics": "acc"}, "expected the names of the scores in 'metrics', got none"),
        ({"metrics": [1]}, "expected the names of the scores in 'metrics', got none"),
        ({"acc": "0.5"}, "expected a number for 'acc', got text; choose another metric"),
        ({"acc": {"a": 1}}, "expected a number for 'acc', got an object; choose another metric"),
        ({"acc": 10**400}, "expected a finite number for 'acc', got inf"),
        ({"acc": float("inf")}, "expected a finite number for 'acc', got inf"),
        ({"acc": ...}, "expected a score under 'acc', got none"),
    ],
)
def test_lines_of_another_kind(logs, values, message):
    change(logs / "small" / SUMS, 0, **values)
    assert message in refusal(logs, task="sums", metric="acc")


def test_results_of_another_kind_are_not_used(logs):
    for contents in ("[]", '{"model_name": 3, "higher_is_better": {"sums": 1}}'):
        (logs / "small" / RESULTS).write_text(contents)
        assert "small" in read_evals(logs).names


def test_the_results_file_of_a_run_is_read_once(logs, monkeypatch):
    """N12: each log of a run with many tasks read it again, so that the time grew with the square of the tasks."""
    read = []
    monkeypatch.setattr(formats, "read_json", lambda path: read.append(path) or text_files.read_json(path))
    read_evals(logs)
    assert len(read) == len(set(read)) == 3


def test_averages_are_not_scores(tmp_path):
    # D25.
    shutil.copy(LOGS / "large" / RESULTS, tmp_path)
    for path in (tmp_path, tmp_path / RESULTS):
        assert f"; {RESULTS} has averages only: pass samples_*.jsonl, which lm_eval writes" in refusal(path)


def test_several_runs_as_a_random_sample(tmp_path):
    """The same verdicts as an array of items, models and runs; every model needs two."""
    rng = np.random.default_rng(2)
    cube = (rng.random((60, 2, 3)) < 0.6 + 0.3 * rng.normal(size=(2, 3))).astype(float)
    for i, name in enumerate(("a", "b")):
        (tmp_path / name).mkdir()
        for r in range(3):
            lines = [
                {"doc_id": k, "filter": "none", "metrics": ["acc"], "acc": cube[k, i, r]} for k in range(len(cube))
            ]
            path = tmp_path / name / f"samples_t_2026-01-0{r + 1}T03-04-05.jsonl"
            path.write_text("\n".join(map(json.dumps, lines)))
    evals = read_evals(tmp_path, runs="random")
    joint = relfit.from_losses(evals, higher_is_better=True)
    expected = relfit.from_losses(cube, higher_is_better=True)
    np.testing.assert_allclose(joint.covariance, expected.covariance, rtol=1e-9)
    assert joint.design == "3 random runs of each model"
    (note,) = [note for note in read_evals(tmp_path, runs="all").notes if "differ by more than chance" in note]
    assert 'use runs="random"' in note
    for path in sorted((tmp_path / "b").iterdir())[1:]:
        path.unlink()
    assert "run: expected at least 2 runs of each model, got one of 'b'" in refusal(tmp_path, runs="random")
