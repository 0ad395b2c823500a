"""Files in the form of every-eval-ever (schema 0.3.0); the numbers are made by hand."""

import json

import pytest
from scored import by_model, refusal

from relfit.data.evals import read_evals


def sample(model, id, score, correct=True, task="arc", hash="h", **more):
    return {
        "schema_version": "0.3.0",
        "evaluation_id": f"{task}/{model}/1",
        "model_id": model,
        "evaluation_name": task,
        "sample_id": id,
        "sample_hash": f"{hash}{id}",
        "interaction_type": "single_turn",
        "input": {"raw": f"question {id}", "reference": ["4"]},
        "output": {"raw": ["4"]},
        "evaluation": {"score": score, "is_correct": correct},
        **more,
    }


def write(path, samples):
    path.write_text("".join(json.dumps(each) + "\n" for each in samples))
    return path


def result(metric, lower, id=None, task="arc"):
    named = {} if id is None else {"evaluation_result_id": id}
    return {"evaluation_name": task, **named, "metric_config": {"metric_name": metric, "lower_is_better": lower}}


def test_samples_become_models_tasks_and_items(tmp_path):
    write(tmp_path / "1.jsonl", [sample("a", "q1", 1.0), sample("a", "q2", 0.5), sample("a", "p", 1, task="gsm")])
    write(tmp_path / "2_samples.jsonl", [sample("b", "q2", 0.0), sample("b", "q1", 1.0)])
    evals = read_evals(tmp_path)
    assert evals.names == ("a", "b")
    assert by_model(evals) == {
        "a": {("arc", "q1"): 1.0, ("arc", "q2"): 0.5, ("gsm", "p"): 1.0},
        "b": {("arc", "q2"): 0.0, ("arc", "q1"): 1.0},
    }
    assert evals.metric == "score"
    assert evals.prompts[0] == "question q1"
    assert (evals.higher_is_better, evals.notes[1:]) == (True, ("score: higher is better, by its name",))


@pytest.mark.parametrize("name", ["1.jsonl", "1_samples.jsonl"])
def test_the_file_about_the_run_names_the_metric_and_its_direction(tmp_path, name):
    log = write(tmp_path / name, [sample("a", "q1", 3.0)])
    (tmp_path / "1.json").write_text(json.dumps({"evaluation_results": [result("edit distance", True)]}))
    evals = read_evals(log)
    assert (evals.metric, evals.higher_is_better, evals.notes[1:]) == ("edit distance", False, ())
    right = read_evals(log, metric="is_correct")
    assert (right.metric, right.higher_is_better, right.values.tolist()) == ("is_correct", True, [[1.0]])


def test_several_results_of_a_sample(tmp_path):
    results = [result("f1", False, "arc:f1"), result("time", True, "arc:time")]
    (tmp_path / "1.json").write_text(json.dumps({"evaluation_results": results}))
    both = [sample("a", "q1", value, evaluation_result_id=id) for id, value in (("arc:f1", 0.5), ("arc:time", 9.0))]
    log = write(tmp_path / "1.jsonl", both)
    evals = read_evals(log)
    assert (evals.values.tolist(), evals.notes[1:]) == ([[0.5]], ("arc: scored by f1; the logs also have time",))
    slow = read_evals(log, metric="time")
    assert (slow.values.tolist(), slow.higher_is_better) == ([[9.0]], False)
    assert refusal(log, metric="x").startswith("metric: expected 'f1', 'time' or 'is_correct' in ")


def test_an_item_twice_and_a_model_twice(tmp_path):
    log = write(tmp_path / "1.jsonl", [sample("a", "q1", 1.0), sample("a", "q1", 0.0)])
    assert "expected each item once, got 'q1' 2 times" in refusal(log)
    write(log, [sample("a", "q1", 1.0)])
    write(tmp_path / "2.jsonl", [sample("a", "q2", 1.0)])
    assert "is a second run of 'a' on 'arc'" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model_id": None}, "expected text in 'model_id', got nothing"),
        ({"sample_id": []}, "expected text in 'sample_id', got []"),
        ({"evaluation_name": 1.5}, "expected text in 'evaluation_name', got 1.5"),
        ({"evaluation": None}, "expected 'score' in 'evaluation', got none"),
        ({"evaluation": {"is_correct": True}}, "expected 'score' in 'evaluation', got none"),
        ({"evaluation": {"score": "C"}}, "expected a number for 'score', got text"),
    ],
)
def test_samples_of_another_kind(tmp_path, values, message):
    assert message in refusal(write(tmp_path / "1.jsonl", [{**sample("a", "q1", 1.0), **values}]))
