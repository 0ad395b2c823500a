"""Every experiment's quick version: its files and its claims."""

from __future__ import annotations

import csv
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from commands import refused_line

from relfit.cli import main
from relfit.paper.experiment import Check, Printed
from relfit.paper.reproduce import CATALOGUE, Scope, certain_rates, reproduce, template, write_document

QUICK = Scope(quick=True)
NAMES = [
    "fig1-meanshift",
    "fig1-blobs",
    "fig1-rbm",
    "calibration",
    "meanshift-l10",
    "rbm-l7",
    "tpr-mixture",
    "tpr-rotation",
]


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("reproduction")


@pytest.fixture(scope="module")
def quick(out):
    """The report of an experiment's quick version, run once."""
    reports = {}

    def run(name):
        if name not in reports:
            with ThreadPoolExecutor(2) as pool:
                reports[name] = reproduce(CATALOGUE[name], out, scope=QUICK, executor=pool, progress=False)
        return reports[name]

    return run


def rows_of(folder):
    with open(folder / "trials.csv", newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def test_a_rate_without_spread_has_limits():
    """D46: 0.000 ± 0.000 of 20 trials is no certainty. Wilson's upper limit is z²/(n + z²), 3.84/23.84."""
    upper = 1.959964**2 / (20 + 1.959964**2)
    line = certain_rates("| 0.350 ± 0.109 | 0.000 ± 0.000 |", 20)
    assert line.strip().endswith(f"its 95% Wilson limits are 0 to {upper:.3f}, or {1 - upper:.3f} to 1.")
    assert certain_rates("| 1.00 ± 0.00 (0.99) |", 100)
    assert not certain_rates("| 0.350 ± 0.109 | 0.010 ± 0.000 | 10.000 ± 0.0001 |", 20)


@pytest.mark.parametrize("name", NAMES)
def test_quick_version_writes_its_files_and_passes_its_checks(name, quick):
    experiment, report = CATALOGUE[name], quick(name)
    assert report.checks
    assert [str(check) for check in report.checks if not check.ok] == []
    expected = {"figure.png", "figure.svg", "run.json", "table.md", "trials.csv"}
    assert expected <= {path.name for path in report.folder.iterdir()}
    assert (report.folder / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert "</svg>" in (report.folder / "figure.svg").read_text(encoding="utf-8")
    run = json.loads((report.folder / "run.json").read_text(encoding="utf-8"))
    assert run["trials"] == report.trials == experiment.count(True) * len(experiment.settings(True))
    decisions = len(experiment.trial(experiment.settings(True)[0], 0)["decisions"])
    assert len(rows_of(report.folder)) == report.trials * decisions


def test_the_table_is_made_of_the_trials_and_a_second_run_computes_nothing(quick, out):
    """Rejection rates counted afresh from trials.csv."""
    report = quick("fig1-blobs")
    found = [row for row in rows_of(report.folder) if row["n"] == "500" and row["test"] == "RelPSI-KSD linear"]
    mean = sum(row["worse"] == "True" for row in found) / len(found)
    line = next(line for line in report.table.splitlines() if line.startswith("| 500 "))
    column = [cell.strip() for cell in report.table.splitlines()[0].split("|")].index("RelPSI-KSD linear")
    assert line.split("|")[column].strip().startswith(f"{mean:.3f} ±")
    first = quick("tpr-mixture")
    with ThreadPoolExecutor(1) as pool:
        again = reproduce(replace(CATALOGUE["tpr-mixture"], trial=_refuse), out, scope=QUICK, executor=pool)
    assert (again.table, again.checks, again.seconds) == (first.table, first.checks, first.seconds)


def _refuse(setting, seed):
    raise AssertionError("a stored trial was run again")


def test_the_page_shows_each_finished_experiment(quick, out, tmp_path):
    report = quick("tpr-rotation")
    page = tmp_path / "reproduction.md"
    shown = write_document(out, page)
    text = page.read_text(encoding="utf-8")
    assert "tpr-rotation" in shown
    assert report.table in text
    assert template()[1]["tpr-rotation"].partition("$agreement")[2] in text
    assert "**The paper:** The same order: RelPSI" in text
    assert "$" not in text
    assert text.count("**Not the full run (--quick):**") == len(shown)
    assert "(images/reproduction/tpr-rotation.png)" in text
    assert (tmp_path / "images/reproduction/tpr-rotation.png").read_bytes() == (
        report.folder / "figure.png"
    ).read_bytes()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fig9"], "got 'fig9'"),
        (["fig1-rbm", "--quick", "--docs", "page.md"], "leave out --quick"),
        (["fig1-rbm", "--trials", "5", "--docs", "page.md"], "leave out --trials 5"),
        (["fig1-rbm", "--n", "50,x"], "--n: expected whole numbers such as 200,1000; got '50,x'"),
        (["fig1-rbm", "--workers", "0"], "--workers"),
        ([], "NAME"),
    ],
)
def test_command_refuses_in_one_line(arguments, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert words in refused_line(capsys, "reproduce", *arguments)
    assert list(tmp_path.iterdir()) == []


def test_exit_status_tells_a_failed_check(tmp_path, monkeypatch, capsys):
    def failing(results):
        return [Check("never", False, "0")]

    experiment = replace(CATALOGUE["calibration"], trials=(2, 2), checks=failing)
    monkeypatch.setitem(CATALOGUE, "calibration", experiment)
    assert main(["reproduce", "calibration", "--quick", "--out", str(tmp_path), "--no-progress"]) == 1
    assert "FAIL  never: 0" in capsys.readouterr().out


def test_trials_sizes_and_seeds_can_be_asked_for(out, tmp_path):
    experiment = CATALOGUE["tpr-mixture"]
    scope = Scope(trials=3, sizes=(90, 120), first_seed=7)
    with ThreadPoolExecutor(1) as pool:
        report = reproduce(experiment, tmp_path, scope=scope, executor=pool, progress=False)
    rows = rows_of(report.folder)
    assert {(row["n"], row["seed"]) for row in rows} == {(n, s) for n in ("90", "120") for s in "789"}
    run = json.loads((report.folder / "run.json").read_text(encoding="utf-8"))
    assert run["asked"] == "--trials 3 --seed 7 --n 90,120"
    # A grid over n gives every size once; what is fixed keeps its other settings.
    assert [setting["n"] for setting in scope.settings(CATALOGUE["fig1-meanshift"])] == [90, 120]
    epsilons = len(CATALOGUE["rbm-l7"].settings(False))
    assert len(scope.settings(CATALOGUE["rbm-l7"])) == 2 * epsilons


def test_a_printed_rate_is_compared_by_the_standard_error_of_the_difference():
    """(1 + 1)/(98 + 2) = .02 with s.e. .01414 over 98 trials; ours .06 ± .01: 3 s.e. are .05196."""
    error = (0.02 * 0.98 / 98) ** 0.5
    near = Printed("rej.", 1 / 98, (1 / 98 + 3.0 * (error**2 + 0.01**2) ** 0.5 - 1e-9, 0.01), 98)
    assert near.error == pytest.approx((error**2 + 0.01**2) ** 0.5)
    assert near.row() == {"printed": "rej.", "the paper": 1 / 98, "ours": near.ours, "within 3 s.e.": "yes"}
    assert not Printed("rej.", 1 / 98, (near.ours[0] + 1e-6, 0.01), 98).within


def test_the_page_counts_the_printed_rates(quick, out, tmp_path):
    """The authors' notebook has six rates at n = 500."""
    report = quick("fig1-meanshift")
    run = json.loads((report.folder / "run.json").read_text(encoding="utf-8"))
    assert run["printed"] == 6
    lines = [line for line in report.table.splitlines() if "authors' notebook" in line]
    assert len(lines) == 6
    assert sum(line.rstrip(" |").endswith("yes") for line in lines) == run["within"]
    write_document(out, tmp_path / "page.md")
    page = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert f"{run['within']} of the 6 rates that the paper prints come out" in page
