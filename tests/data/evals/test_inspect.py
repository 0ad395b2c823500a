"""Logs that Inspect wrote (scripts/eval_fixtures.py), read by Inspect itself where it is installed."""

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import relfit
from relfit.data.evals import read_evals

LOGS = Path(__file__).parent / "fixtures" / "inspect"
MEANS = json.loads((LOGS / "means.json").read_text())


def refusal(*args, **options):
    with pytest.raises(relfit.InputError) as caught:
        read_evals(*args, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def inspect():
    return pytest.importorskip("inspect_ai.log")


@pytest.mark.parametrize("metric", ["match", "marks"])
def test_means_are_those_of_the_harness(inspect, metric):
    """Two epochs a sample; the questions about Cuba have no mark, and count for nothing."""
    evals = read_evals(LOGS, metric=metric)
    assert set(evals.models) == set(MEANS)
    assert evals.tasks == ("capitals",)
    assert set(evals.epoch.tolist()) == {1, 2}
    for model, scores in evals.scores().items():
        assert len(scores) == (24 if metric == "match" else 20)
        assert sum(scores.values()) / len(scores) == pytest.approx(MEANS[model][metric], rel=0, abs=1e-12)


def test_both_forms_of_a_log_say_the_same(inspect, tmp_path):
    log = inspect.read_eval_log(str(LOGS / "large.json"))
    inspect.write_eval_log(log, tmp_path / "large.eval")
    one, other = read_evals(LOGS / "large.json"), read_evals(tmp_path / "large.eval")
    assert one.scores() == other.scores()
    assert one.prompts == other.prompts
    assert one.prompts["capitals", "q0"] == "0. What is the capital of France?"


def test_tasks_are_selected_by_the_header(inspect):
    assert read_evals(LOGS, task="cap*").tasks == ("capitals",)
    assert refusal(LOGS, task="towns") == "task: expected 'capitals', got 'towns'"


@pytest.mark.parametrize("name", ["small.eval", "large.json"])
def test_damaged_logs_are_refused_in_one_line(inspect, tmp_path, name):
    data = (LOGS / name).read_bytes()
    for cut in (b"", data[: len(data) // 2], data[:-30]):
        (tmp_path / name).write_bytes(cut)
        refusal(tmp_path / name)


def test_without_inspect_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "inspect_ai", None)
    message = refusal(LOGS / "small.eval")
    assert message.endswith("reading it needs inspect_ai; install it with  pip install inspect_ai")


# --- a stand-in for the library, for what its logs may hold


def sample(id, value, epoch=1, **more):
    scores = {"match": SimpleNamespace(value=value)} if value is not None else None
    return SimpleNamespace(**{"id": id, "epoch": epoch, "input": f"question {id}", "scores": scores, **more})


@pytest.fixture
def stand_in(monkeypatch, tmp_path):
    """A function that makes a log of these samples, as inspect_ai would return it."""
    logs = {}
    package, module = ModuleType("inspect_ai"), ModuleType("inspect_ai.log")
    package.__version__ = "0.3.200"
    module.read_eval_log = lambda path, header_only=False: logs[Path(path).name]
    monkeypatch.setitem(sys.modules, "inspect_ai", package)
    monkeypatch.setitem(sys.modules, "inspect_ai.log", module)

    def make(name, samples, model="m", status="success"):
        logs[f"{name}.eval"] = SimpleNamespace(
            eval=SimpleNamespace(model=model, task="t"), status=status, samples=samples
        )
        (tmp_path / f"{name}.eval").write_bytes(b"")
        return tmp_path / f"{name}.eval"

    return make


def test_letters_are_numbers_and_nan_is_unscored(stand_in):
    values = ["C", "I", "P", "N", True, "0.25", 3, float("nan"), None, "yes", "False"]
    evals = read_evals(stand_in("a", [sample(k, value) for k, value in enumerate(values)]))
    scores = evals.scores()["m"]
    assert [scores.get(("t", str(k))) for k in range(11)] == [1.0, 0.0, 0.5, 0.0, 1.0, 0.25, 3.0, None, None, 1.0, 0.0]
    assert evals.notes[0] == "scores that are missing in the logs: 2 of m"


def test_letters_have_a_direction_and_numbers_need_not(stand_in):
    assert read_evals(stand_in("a", [sample(1, "C"), sample(2, float("nan"))])).notes[1:] == ()
    graded = SimpleNamespace(value=7.0)
    evals = read_evals(stand_in("a", [sample(1, None, scores={"grade": graded})]))
    assert evals.notes == ("the logs do not say whether a larger grade is better; it was assumed to be",)


def test_a_scorer_with_several_values(stand_in):
    log = stand_in("a", [sample(1, {"style": 0.5, "fact": 1.0})])
    assert read_evals(log).metric == "match/style"
    assert read_evals(log, metric="match/fact").score.tolist() == [1.0]


def test_messages_as_a_prompt(stand_in):
    messages = [SimpleNamespace(text="Be short."), SimpleNamespace(text="2 + 2?")]
    assert read_evals(stand_in("a", [sample(1, "C", input=messages)])).prompts == {("t", "1"): "Be short.\n2 + 2?"}


def test_a_run_that_was_stopped_is_noted(stand_in):
    log = stand_in("a", [sample(1, "C")], status="cancelled")
    assert read_evals(log).notes == (f"{log} has the status 'cancelled', and may lack items",)


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (None, "expected samples with scores, got none; its status is 'success'"),
        ([], "expected samples with scores, got none"),
        ([sample(1, None)], "expected samples with scores, got none"),
        ([sample(1, "maybe")], "sample '1': expected C, I, P, N or a number for 'match', got 'maybe'"),
        ([sample(1, "inf")], "expected C, I, P, N or a number for 'match', got 'inf'"),
        ([sample(1, [1, 2])], "expected a number for 'match', got a list"),
        ([sample(1, "C"), sample(1, "I")], "expected each item once, got '1' 2 times"),
    ],
)
def test_samples_of_another_kind(stand_in, samples, message):
    assert message in refusal(stand_in("a", samples))


def test_the_same_question_in_all_runs(stand_in):
    first = stand_in("a", [sample(1, "C")], model="a")
    second = stand_in("b", [sample(1, "C", input="another question")], model="b")
    assert "item '1' of 't' is not the same question" in refusal([first, second])
    assert "is a second run of 'a' on 't'" in refusal([first, stand_in("c", [sample(1, "C")], model="a")])
