"""Faults of tables and logs that a comparison of scores has a note on; and what has none."""

import json

import numpy as np
import pytest

import relfit


@pytest.fixture
def right(rng):
    return (rng.random((200, 4)) < [0.5, 0.55, 0.6, 0.65]).astype(float)


def notes_of(scores, **options):
    return relfit.compare_losses(scores, higher_is_better=True, rng=0, **options).warnings


def having(notes, text):
    return [note for note in notes if text in note]


FAULTS = (
    "tell models apart",
    "one score on every item",
    "the same score on every item",
    "output",
    "prompt",
    "results file",
)


def test_ordinary_scores_have_no_note(right):
    assert not [note for note in notes_of(right) for fault in FAULTS if fault in note]


def test_saturated_items(right):
    right[:150] = 1.0
    (note,) = having(notes_of(right), "tell models apart")
    telling = int((right.min(axis=1) < right.max(axis=1)).sum())
    assert note.startswith(f"only {telling} of 200 items tell models apart")
    # Of two models that agree on most items nothing follows.
    assert not having(notes_of(right[:, :2]), "tell models apart")


def test_one_score_on_every_item(right):
    right[:, 2] = 0.0
    (note,) = having(notes_of(right), "one score on every item")
    assert "m3 (0)" in note


def test_a_model_under_two_names(right):
    right[:, 3] = right[:, 0]
    (note,) = having(notes_of(right), "the same score on every item")
    assert "m1 and m4" in note
    # Models that are nearly always right agree by chance.
    nearly = np.ones((200, 2))
    nearly[:5] = 0.0
    assert not having(notes_of(nearly), "the same score on every item")


def write(folder, model, scores, outputs, board=None, prompts=None):
    """A log of lm-eval with its results file."""
    stamp = "2026-01-02T03-04-05"
    path = folder / model
    path.mkdir()
    lines = [
        {
            "doc_id": k,
            "filter": "none",
            "metrics": ["exact_match"],
            "exact_match": score,
            "filtered_resps": [output],
            "arguments": {"gen_args_0": {"arg_0": f"Question {k}" if prompts is None else prompts[k]}},
        }
        for k, (score, output) in enumerate(zip(scores, outputs, strict=True))
    ]
    (path / f"samples_t_{stamp}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    if board is not None:
        results = {"model_name": model, "results": {"t": {"exact_match,none": board}}}
        (path / f"results_{stamp}.json").write_text(json.dumps(results))


def test_faults_of_logs(tmp_path, right):
    """A constant answer, empty answers scored 0, and a board that has another number than the items."""
    answers = [f"answer {k}" for k in range(200)]
    write(tmp_path, "good", right[:, 0], answers, board=right[:, 0].mean())
    write(tmp_path, "cheat", right[:, 1], ["the one answer"] * 200)
    empty = list(answers)
    for k in np.flatnonzero(right[:, 2] == 0.0)[::3]:
        empty[k] = ""
    write(tmp_path, "failing", right[:, 2], empty)
    write(tmp_path, "board", right[:, 3], answers, board=0.1)
    result = relfit.compare_losses(relfit.read_evals(tmp_path), higher_is_better=True, rng=0)
    (cheat,) = having(result.warnings, "cheat has one output")
    assert "'the one answer', for 200 of 200 items" in cheat
    (failing,) = having(result.warnings, "outputs of failing are empty")
    assert failing.startswith(f"{empty.count('')} of 200")
    (board,) = having(result.warnings, "results file has 0.1 for board")
    assert f"is {right[:, 3].mean():.4g}" in board
    assert not having(result.warnings, "good")
    # A gate does not answer.
    assert {cheat, failing, board} <= set(result.doubts)


def test_items_that_are_asked_twice(tmp_path, right):
    prompts = [f"Question {k % 190}" for k in range(200)]
    for j, name in enumerate(("a", "b")):
        write(tmp_path, name, right[:, j], [str(k) for k in range(200)], prompts=prompts)
    result = relfit.compare_losses(relfit.read_evals(tmp_path), higher_is_better=True, rng=0)
    (note,) = having(result.warnings, "have the same prompt as another item")
    assert note.startswith("10 of 200 items")
