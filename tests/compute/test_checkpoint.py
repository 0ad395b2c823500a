"""Checkpoints: a killed comparison resumes where it stopped, and never with other inputs."""

import re
import resource
import signal
import sqlite3
import subprocess
import sys
import time

import numpy as np
import pytest

import relfit
from relfit.compute.checkpoint import finished_patches

pytestmark = pytest.mark.usefixtures("small_patches")
N = 900


@pytest.fixture
def samples(rng):
    """A reference and two models."""
    return rng.normal(size=(N, 3)), {k: rng.normal(s, 1, (N, 3)) for k, s in {"a": 0.0, "b": 0.2}.items()}


def compared(samples, path, **options):
    """The comparison with this checkpoint."""
    return relfit.compare(*samples, **{"rng": 0, **options}, compute=relfit.Compute(checkpoint=path))


class Stop(Exception):
    """Ends a run half-way."""


def stopping(after):
    """A progress function that ends the run when so many pairs are done."""

    def progress(done, _):
        if done > after:
            raise Stop

    return progress


@pytest.mark.parametrize("test", ["best-set", "relmulti"])
def test_resumes_where_it_stopped(test, samples, tmp_path):
    plain = relfit.compare(*samples, test=test, rng=0).to_json()
    path = tmp_path / "run.sqlite"
    with pytest.raises(Stop):
        compared(samples, path, test=test, progress=stopping(600_000))
    before, _ = finished_patches(path)
    assert before > 0
    seen = []
    again = compared(samples, path, test=test, progress=lambda *now: seen.append(now))
    assert again.to_json() == plain
    # The first report counts the finished patches.
    assert seen[0][0] > 100_000
    done, known = finished_patches(path)
    assert done == known > before
    assert compared(samples, path, test=test).to_json() == plain
    assert finished_patches(path) == (done, known)


def test_other_inputs_and_settings_are_refused_and_named(samples, tmp_path):
    reference, models = samples
    path = tmp_path / "run.sqlite"
    compared(samples, path)
    moved = {**models, "b": models["b"] + 1e-9}
    for other, options, message in (
        ((reference, moved), {}, "model 'b' has changed"),
        ((reference[1:], models), {}, "reference has changed"),
        (samples, {"rng": 1}, "seed was 0, is 1"),
        (samples, {"kernel": relfit.IMQ()}, "kernel was"),
        ((reference, {**models, "c": reference + 1}), {}, "'c' is new"),
    ):
        with pytest.raises(relfit.InputError, match=message):
            compared(other, path, **options)
    assert compared(samples, path).best == "a"


def test_work_without_patches_is_refused(samples, tmp_path):
    path = tmp_path / "run.sqlite"
    for options, message in (
        ({"estimator": "linear"}, "linear is quick"),
        ({"discrepancy": "ume"}, "ume is quick"),
        (
            {"kernel": relfit.Radial(lambda t: np.exp(-t), lambda t: -np.exp(-t), lambda t: np.exp(-t))},
            "functions of your own",
        ),
    ):
        with pytest.raises(relfit.InputError, match=message):
            compared(samples, path, **options)


@pytest.mark.parametrize("content", [b"", b"not a database", b"SQLite format 3\x00" + b"\x00" * 4096])
def test_files_that_are_not_checkpoints(content, samples, tmp_path):
    path = tmp_path / "run.sqlite"
    path.write_bytes(content)
    if content:
        with pytest.raises(relfit.InputError, match=r"^checkpoint: "):
            compared(samples, path)
        assert path.read_bytes() == content
    else:
        compared(samples, path)


DAMAGES = {
    "UPDATE patches SET rows = x'00' WHERE patch = 1": 1,
    "UPDATE patches SET rows = 'text' WHERE patch = 1": 1,
    "UPDATE patches SET squares = 'text'": 17,
    "UPDATE patches SET squares = 1e308 WHERE patch = 2": 1,
    "UPDATE patches SET width = -5": 17,
    "UPDATE patches SET columns = NULL WHERE patch = 1": 1,
    "UPDATE patches SET rows = (SELECT rows FROM patches WHERE patch = 3) WHERE patch = 1": 1,
    "UPDATE patches SET rows = zeroblob(length(rows)) WHERE patch = 4": 1,
    "UPDATE patches SET checksum = CAST(x'fffe' AS TEXT) WHERE patch = 1": 1,
    "UPDATE patches SET patch = patch + 1000000": 17,
    "DELETE FROM patches WHERE patch = 1": 0,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_patches_are_computed_again_and_counted(damage, tmp_path, rng):
    samples = rng.normal(size=(350, 3)), {k: rng.normal(s, 1, (350, 3)) for k, s in {"a": 0.0, "b": 0.2}.items()}
    path = tmp_path / "run.sqlite"
    plain = compared(samples, path)
    assert not any("checkpoint" in note for note in plain.warnings)
    with sqlite3.connect(path) as file:
        # 350 rows in 2 parts: 3 patches of each of 3 samples with itself, 4 of each model with the reference.
        assert file.execute("SELECT count(*) FROM patches").fetchone() == (17,)
        file.execute(damage)
    file.close()
    count = DAMAGES[damage]
    again = compared(samples, path)
    np.testing.assert_array_equal(again.discrepancy, plain.discrepancy)
    np.testing.assert_array_equal(again.covariance, plain.covariance)
    said = [note for note in again.warnings if note not in plain.warnings]
    assert said == ([f"damaged parts of the checkpoint, computed again: {count}"] if count else [])
    last = compared(samples, path)
    if "1000000" not in damage:
        assert last.to_json() == plain.to_json()


@pytest.mark.parametrize("table", ["patches", "works", "run"])
def test_a_checkpoint_without_its_tables(table, samples, tmp_path):
    path = tmp_path / "run.sqlite"
    compared(samples, path)
    with sqlite3.connect(path) as file:
        file.execute(f"DROP TABLE {table}")
    file.close()
    with pytest.raises(relfit.InputError, match=r"^checkpoint: .* is damaged \(its tables are not .*\); delete"):
        compared(samples, path)
    if table != "run":
        with pytest.raises(relfit.InputError, match="is damaged"):
            finished_patches(path)


def test_a_second_process_is_told_of_the_first(files):
    """One computes, the other says so in one line at once; the first is not disturbed, and leaves one file."""
    first = subprocess.Popen(command(files, "--json", str(files / "1.json")), stdout=subprocess.PIPE)
    wait_for_patches(files, first)
    first.send_signal(signal.SIGSTOP)
    second = subprocess.run(command(files), capture_output=True, text=True, timeout=60, check=False)
    first.send_signal(signal.SIGCONT)
    assert second.returncode == 2
    assert re.fullmatch(
        r"relfit: error: --checkpoint: cannot use '.*' \(another process is writing it\); wait for that process, .*\n",
        second.stderr,
    )
    first.communicate(timeout=120)
    assert first.returncode == 0
    assert sorted(path.name for path in files.glob("run.sqlite*")) == ["run.sqlite"]


SCRIPT = """
import sys
import numpy as np
import relfit
from relfit import cli
from relfit.compute import reduce
reduce.PATCH_ROWS = reduce.BLOCK_ROWS = 448
sys.exit(cli.main(sys.argv[1:]))
"""


def command(folder, *options):
    """`relfit compare` on the files in a folder, with small patches, as a process."""
    files = [str(folder / f"{name}.npy") for name in ("r", "a", "b")]
    arguments = ["compare", *files, "--seed", "1", "--checkpoint", str(folder / "run.sqlite"), *options]
    return [sys.executable, "-c", SCRIPT, *arguments]


@pytest.fixture
def files(tmp_path, rng):
    """Enough rows for a few seconds of work."""
    for name, shift in {"r": 0.0, "a": 0.02, "b": 0.05}.items():
        np.save(tmp_path / f"{name}.npy", rng.normal(shift, 1, (9000, 4)))
    return tmp_path


def wait_for_patches(folder, process, size=80_000):
    """Wait until a few patches are recorded: 14 kB each, in a log that belongs to the process."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        log = folder / "run.sqlite-wal"
        if log.exists() and log.stat().st_size >= size:
            return
        time.sleep(0.02)
    raise AssertionError("the run ended, or recorded nothing")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_killed_command_resumes(how, files):
    process = subprocess.Popen(command(files), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for_patches(files, process)
    process.send_signal(how)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == (-signal.SIGKILL if how == signal.SIGKILL else 130)
    if how == signal.SIGINT:
        assert "finished parts" in errors
        assert "Traceback" not in errors
    done, known = finished_patches(files / "run.sqlite")
    assert 0 < done < known
    json = files / "result.json"
    again = subprocess.run(
        command(files, "--json", str(json)), capture_output=True, text=True, timeout=120, check=False
    )
    assert again.returncode == 0, again.stderr
    (files / "run.sqlite").unlink()
    for leftover in files.glob("run.sqlite-*"):
        leftover.unlink()
    fresh = files / "fresh.json"
    subprocess.run(command(files, "--json", str(fresh)), capture_output=True, timeout=120, check=True)
    one, other = (relfit.Comparison.from_json(path.read_text()) for path in (json, fresh))
    np.testing.assert_array_equal(one.discrepancy, other.discrepancy)
    np.testing.assert_array_equal(one.covariance, other.covariance)


def test_full_disk_keeps_what_is_there(files):
    limit = 60_000

    def small_files():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    process = subprocess.run(
        command(files), capture_output=True, text=True, timeout=120, check=False, preexec_fn=small_files
    )
    assert process.returncode == 2
    assert process.stderr.startswith("relfit: error: --checkpoint: cannot")
    assert "Traceback" not in process.stderr
    assert (files / "run.sqlite").exists()
    again = subprocess.run(command(files), capture_output=True, text=True, timeout=120, check=False)
    assert again.returncode == 0, again.stderr
