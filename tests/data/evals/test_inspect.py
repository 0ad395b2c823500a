"""Logs that Inspect wrote (scripts/eval_fixtures.py), read by Inspect itself where it is installed."""

import json
import sys
import zipfile
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from scored import by_model, refusal

import relfit
from relfit.data.evals import read_evals

LOGS = Path(__file__).parent / "fixtures" / "inspect"
MEANS = json.loads((LOGS / "means.json").read_text())


@pytest.fixture
def inspect():
    return pytest.importorskip("inspect_ai.log")


@pytest.mark.parametrize("metric", ["match", "marks"])
def test_means_are_those_of_the_harness(inspect, metric):
    """Two epochs a sample; the questions about Cuba have no mark, and count for nothing."""
    evals = read_evals(LOGS, metric=metric)
    assert set(evals.names) == set(MEANS)
    assert evals.repeats == 2
    for model, scores in by_model(evals).items():
        assert len(scores) == (24 if metric == "match" else 20)
        assert sum(scores.values()) / len(scores) == pytest.approx(MEANS[model][metric], rel=0, abs=1e-12)


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

    def make(name, samples, model="m", status="success", date="", version=0, arguments=None, temperature=None):
        about = SimpleNamespace(model=model, task="t", created=date, task_version=version, task_args=arguments or {})
        config = SimpleNamespace(model_dump=lambda exclude_none: {"temperature": temperature, "max_retries": version})
        plan = SimpleNamespace(steps=[SimpleNamespace(solver="generate")], config=config)
        logs[f"{name}.eval"] = SimpleNamespace(eval=about, plan=plan, status=status, samples=samples)
        (tmp_path / f"{name}.eval").write_bytes(b"")
        return tmp_path / f"{name}.eval"

    return make


def test_a_log_that_unpacks_to_more_than_fits_is_refused(stand_in, monkeypatch, tmp_path):
    """A few kilobytes may unpack to gigabytes; the library is not asked to try."""
    log = stand_in("bomb", [sample(0, "C")])
    monkeypatch.setattr("relfit.compute.memory.free_memory", lambda: 2e6)
    for size, fits in ((1_000_000, True), (1_500_000, False)):
        with zipfile.ZipFile(log, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("header.json", bytes(1_000))
            archive.writestr("samples/a.json", bytes(size // 2))
            archive.writestr("samples/b.json", bytes(size))
        assert log.stat().st_size < 10_000
        if fits:
            assert read_evals(log).names == ("m",)
        else:
            message = refusal(log)
            assert f"{log}: expected what fits into memory (0.002 GB free), got 0.00225 GB once unpacked" in message
            assert message.endswith("the file is damaged, or has to be read on a machine with more memory")


def test_letters_are_numbers_with_a_direction_and_nan_is_unscored(stand_in):
    values = ["C", "I", "P", "N", True, "0.25", 3, float("nan"), None, "yes", "False"]
    evals = read_evals(stand_in("a", [sample(k, value) for k, value in enumerate(values)]))
    scores = by_model(evals)["m"]
    assert [scores.get(str(k)) for k in range(11)] == [1.0, 0.0, 0.5, 0.0, 1.0, 0.25, 3.0, None, None, 1.0, 0.0]
    assert evals.notes[1] == "scores that are missing in the logs: 2 of m"
    assert read_evals(stand_in("a", [sample(1, "C"), sample(2, float("nan"))])).notes[2:] == ()
    graded = SimpleNamespace(value=7.0)
    evals = read_evals(stand_in("a", [sample(1, None, scores={"grade": graded})]))
    assert evals.higher_is_better is None
    with pytest.raises(relfit.InputError, match="the name 'grade' does not tell which scores are better"):
        evals.differing("m", "m")


def test_a_run_that_was_stopped_is_left_out_of_a_folder(stand_in):
    """D17: One cancelled log among good ones stopped everything; with a gate it is a doubt."""
    good = stand_in("a", [sample(1, "C")], model="a")
    assert read_evals(good.parent).doubts == ()
    log = stand_in("b", [sample(1, "C")], model="b", status="cancelled")
    stand_in("c", [], model="c", status="error")
    evals = read_evals(good.parent)
    assert evals.names == ("a",)
    assert evals.notes[1:] == evals.doubts
    assert evals.notes[1].startswith(
        f"{log} of b was left out, because its status is 'cancelled'; run it again, or pass"
    )
    assert evals.notes[2].endswith(
        "of c was left out, because it has no scores, and its status is 'error'; run it again"
    )
    named = read_evals([good, log])
    assert named.names == ("a", "b")
    assert named.doubts == (f"{log} may lack items, because its status is 'cancelled'; run it again",)


def test_the_newest_run_that_finished_is_read(stand_in):
    """D16: A run that was repeated replaces the cancelled one, without a doubt."""
    stand_in("a", [sample(1, "I")], date="2026-01-01T00:00:00+00:00")
    last = stand_in("b", [sample(1, "C")], date="2026-01-02T00:00:00+00:00")
    stand_in("c", [sample(1, "I")], date="2026-01-03T00:00:00+00:00", status="cancelled")
    evals = read_evals(last.parent)
    assert (evals.values.tolist(), evals.doubts) == ([[1.0]], ())
    assert evals.notes[1].startswith(
        "m has several runs of t; the newest was read (2026-01-02T00:00:00+00:00); runs='all'"
    )
    every = read_evals(last.parent, runs="all")
    assert (every.values.tolist(), every.repeats) == ([[0.5]], 2)
    assert every.notes[1] == "m has several runs of t; an item's score is the mean over the runs"


def test_settings_of_the_runs_that_differ_are_doubts(stand_in):
    first = stand_in("a", [sample(1, "C")], model="a", version=1, arguments={"shots": 0}, temperature=0.0)
    second = stand_in("b", [sample(1, "C")], model="b", version=2, arguments={"shots": 5}, temperature=0.7)
    evals = read_evals([first, second])
    found = [note.partition(";")[0] for note in evals.notes[1:]]
    assert found == [
        "the runs differ in the task version: 1 (a), 2 (b)",
        "the runs differ in the task arguments: shots 0 (a), 5 (b)",
        "the runs differ in the generation settings: temperature 0.0 (a), 0.7 (b)",
    ]
    assert evals.doubts == evals.notes[1:]
    assert read_evals([first, second], allow_different=["version", "arguments", "generation"]).doubts == ()


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (None, "expected a finished run with scores, but it has no scores, and its status is 'success'"),
        ([], "expected a finished run with scores"),
        ([sample(1, None)], "expected a finished run with scores"),
        ([sample(1, "maybe")], "sample '1': expected C, I, P, N or a number for 'match', got 'maybe'"),
        ([sample(1, "inf")], "expected C, I, P, N or a number for 'match', got 'inf'"),
        ([sample(1, [1, 2])], "expected a number for 'match', got a list"),
        ([sample(1, "C"), sample(1, "I")], "expected each item once, got '1' 2 times"),
    ],
)
def test_samples_of_another_kind(stand_in, samples, message):
    assert message in refusal(stand_in("a", samples))
