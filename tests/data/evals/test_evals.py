"""What scores tell of single items, and finding logs."""

from dataclasses import replace
from pathlib import Path

import pytest
from refusals import refused
from scored import refusal

import relfit
from relfit.data.evals.base import LONGEST_PROMPT, shortened
from relfit.data.metrics import known_direction, told_direction

LOGS = Path(__file__).parent / "fixtures" / "lm_eval"


def test_the_items_on_which_the_worse_model_fails():
    """Item 1 of a has two epochs, (1 + 0)/2; the others are 0 against 1."""
    read = relfit.scores(
        {
            "item": ["1", "1", "2", "1", "2", "1"],
            "task": ["t", "t", "t", "t", "t", "u"],
            "model": ["a", "a", "a", "b", "b", "b"],
            "acc": [1.0, 0.0, 0.0, 0.75, 1.0, 1.0],
        },
        **{"item": "item", "model": "model", "score": "acc", "stratum": "task"},
    )
    first = {"stratum": "t", "item": "2", "worse": 0.0, "better": 1.0, "prompt": None}
    second = {"stratum": "t", "item": "1", "worse": 0.5, "better": 0.75, "prompt": None}
    assert read.differing("a", "b") == [first, second]
    assert read.differing("a", "b", most=1) == [first]
    assert read.differing("b", "a") == []
    turned = replace(read, higher_is_better=False).differing("b", "a")
    assert [row["item"] for row in turned] == ["2", "1"]
    refused(lambda: read.differing("a", "c"), "better: expected one of 'a' or 'b', got 'c'")


DIRECTIONS = {
    True: "acc|acc_norm|mean_accuracy|quasi_exact_match|F1Score|rougeL|elpd|win_rate|score|rating|pass@1|reward|"
    # A minus turns it round, as in scikit-learn.
    "log_likelihood|-loss|neg_mean_squared_error|neg_log_loss|negLogLoss|minus_nll",
    False: "word_perplexity|mae|val_loss|valLoss|nll|brier_score|latency_ms|bits_per_byte|wis|interval_score|1-acc|"
    "one_minus_f1|error_rate|negative_log_likelihood|neg_elpd",
    # Words that contradict each other, and names that say nothing.
    None: "score_error|win_loss|acc_drop|acc_stderr|not_correct|log_score|1-shot_acc|grade|n_tokens|accx|acc and style|"
    "negative_sentiment_score|",
}


@pytest.mark.parametrize(
    ("metric", "larger"), [(name, larger) for larger, names in DIRECTIONS.items() for name in names.split("|")]
)
def test_directions_that_a_name_tells(metric, larger):
    assert known_direction(metric) is larger
    assert known_direction(f"{metric},none") is larger


def test_numbers_that_contradict_the_name_leave_the_direction_open():
    """A mean squared error below 0 is none, and scikit-learn's neg_ scores are not above 0."""
    note = "neg_mean_squared_error: higher is better, by its name"
    assert told_direction("neg_mean_squared_error", -3.0, 0.0) == (True, note)
    for metric, low, high in (("rmse", -1.0, 2.0), ("accuracy", -1.0, 1.0), ("neg_mean_squared_error", 0.0, 3.0)):
        assert told_direction(metric, low, high)[0] is None
    for metric in ("loss", "score", "elpd", "1-acc"):
        assert told_direction(metric, -1.0, 1.0)[0] is not None


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        ([], "paths: expected at least one file or folder, got none"),
        (3, "paths: expected files or folders, or a mapping of names to them, got something else"),
        ({"": LOGS}, "paths: expected a mapping of names to files or folders, got '' as a name"),
        ({("a",): LOGS}, "paths: expected a mapping of names to files or folders, got ('a',) as a name"),
        ("nowhere", "nowhere: no such file"),
    ],
)
def test_paths_of_another_kind(paths, message):
    assert refusal(paths) == message


def test_what_is_no_log_or_no_option(tmp_path):
    formats = "lm-evaluation-harness, Inspect, HELM or every-eval-ever"
    assert f"expected a folder with logs of {formats}, got none" in refusal(tmp_path)
    (tmp_path / "other.jsonl").write_text("{}")
    assert f"expected a log of {formats}, got another file" in refusal(tmp_path / "other.jsonl")
    assert shortened("solved" * 1000 + "x" * 5000) == "…" + "x" * LONGEST_PROMPT
    assert shortened("\ud83d") == "?"
    assert shortened(" ") is None
    assert shortened(["x"]) is None
    for name, value in (("metric", 3), ("filter", b"x"), ("task", [3]), ("task", 3)):
        assert refusal(LOGS, **{name: value}).startswith(f"{name}: expected a name")
