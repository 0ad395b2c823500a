"""Folders in the form that HELM writes; the numbers are made by hand."""

import json

import pytest
from scored import by_model, refusal

from relfit.data.evals import read_evals

RUN = "mmlu:subject=anatomy,method=joint,model=openai_{}"


def stat(name, mean, split="test", **more):
    """HELM's Stat of one value; without a value it has a count of 0 and no mean."""
    held = {"count": 0, "sum": 0} if mean is None else {"count": 1, "sum": mean, "mean": mean}
    return {"name": {"name": name, "split": split}, **held, **more}


def instance(id, mean, trial=0, split="test", perturbation=None, metric="exact_match"):
    stats = [stat("num_references", 4, split), stat("quasi_exact_match", 1.0, split), stat(metric, mean, split)]
    changed = {} if perturbation is None else {"perturbation": {"name": perturbation}}
    return {"instance_id": id, "train_trial_index": trial, **changed, "stats": stats}


def write_run(folder, model, instances, run=RUN, questions=None, spec=True):
    path = folder / run.format(model)
    path.mkdir(parents=True)
    (path / "per_instance_stats.json").write_text(json.dumps(instances))
    if spec:
        named = {"name": run.format(model), "adapter_spec": {"model": f"openai/{model}"}}
        (path / "run_spec.json").write_text(json.dumps(named))
    if questions is not None:
        texts = [{"id": key, "input": {"text": text}} for key, text in questions.items()]
        (path / "instances.json").write_text(json.dumps(texts))
    return path


def test_runs_become_models_tasks_and_items(tmp_path):
    """A trial is an epoch: item id1 of gpt2 has the mean (1 + 0)/2."""
    questions = {"id1": "Where is the heart?", "id2": "Where is the knee?"}
    write_run(
        tmp_path, "gpt2", [instance("id1", 1.0), instance("id1", 0.0, 1), instance("id2", 1.0)], questions=questions
    )
    write_run(tmp_path, "gpt3", [instance("id2", 1.0), instance("id1", 1.0)], questions=questions)
    evals = read_evals(tmp_path)
    assert evals.names == ("openai/gpt2", "openai/gpt3")
    assert evals.metric == "exact_match"
    assert by_model(evals)["openai/gpt2"] == {"id1": 0.5, "id2": 1.0}
    assert (evals.repeats, evals.prompts[0]) == (2, "Where is the heart?")
    assert read_evals(tmp_path, metric="num_references").values.tolist() == [[4.0, 4.0]] * 2
    assert "'mmlu:subject=anatomy,method=joint'" in refusal(tmp_path, task="other")


def test_splits_and_perturbations(tmp_path):
    """By default the test split as it is: one instance of four."""
    instances = [
        instance("id1", 1.0),
        instance("id2", 0.0, split="valid"),
        instance("id1", 0.25, perturbation="typos"),
        instance("id2", 0.5, split="valid", perturbation="typos"),
    ]
    write_run(tmp_path, "gpt2", instances)
    evals = read_evals(tmp_path)
    assert evals.values.tolist() == [[1.0]]
    assert evals.notes[1] == (
        "mmlu:subject=anatomy,method=joint: 3 instances of another split or of a perturbation are left out (filter)"
    )
    assert read_evals(tmp_path, filter="typos").values.tolist() == [[0.25], [0.5]]
    assert refusal(tmp_path, filter="upper").startswith("filter: expected 'test', 'typos' or 'valid' in ")
    assert "expected each item once, got 'id2' 2 times" in refusal(tmp_path, filter="valid")


def test_questions_that_differ_are_named_and_adapters_are_doubts(tmp_path):
    for model, text in (("gpt2", "Where is the heart?"), ("gpt3", "Where is the knee?")):
        path = write_run(tmp_path, model, [instance("id1", 1.0)])
        state = {"request_states": [{"instance": {"id": "id1", "input": {"text": text}}}, {"instance": 3}, 4]}
        (path / "scenario_state.json").write_text(json.dumps(state))
    assert "item 'id1' of 'mmlu:subject=anatomy,method=joint' is not the same question" in refusal(tmp_path)
    folder = tmp_path / "adapters"
    for model, shots, temperature in (("gpt2", 0, 0.0), ("gpt3", 5, 1.0)):
        path = write_run(folder, model, [instance("id1", 1.0)])
        adapter = {"model": model, "max_train_instances": shots, "temperature": temperature, "instructions": "Answer."}
        (path / "run_spec.json").write_text(json.dumps({"name": RUN.format(model), "adapter_spec": adapter}))
    found = [note.partition(";")[0] for note in read_evals(folder).doubts]
    assert found == [
        "the runs differ in the number of shots: 0 (gpt2), 5 (gpt3)",
        "the runs differ in the generation settings: temperature 0.0 (gpt2), 1.0 (gpt3)",
    ]


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([], "expected a list of instances, got none"),
        ({}, "expected a list of instances, got something else"),
        ([3], "expected instances with 'stats'"),
        ([{"instance_id": "a", "stats": 3}], "expected instances with 'stats'"),
        ([{"instance_id": "a", "stats": [{"name": "acc"}]}], "expected instances with 'stats'"),
        ([{"instance_id": "a", "stats": []}], "expected instances with numbers, got none; did the run finish?"),
        ([instance(None, 1.0)], "instance 1: expected text in 'instance_id', got nothing"),
        ([instance("a", "x")], "expected a number for 'exact_match', got text"),
        ([instance("a", [1])], "expected a number for 'exact_match', got a list"),
    ],
)
def test_records_of_another_kind(tmp_path, records, message):
    assert message in refusal(write_run(tmp_path, "gpt2", records))
