"""However a command ends, one line says so, the exit status is the documented one, and nothing of it is left."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.skipif(not Path("/proc/self").exists(), reason="POSIX signals, and /proc to look at processes")

RELFIT = [sys.executable, "-m", "relfit"]
FILES = ["r.npy", "a.npy", "b.npy"]
# Patches for worker processes although there are few rows.
SMALL = (
    "import sys\nfrom relfit import cli\nfrom relfit.cli import workers\nfrom relfit.compute import reduce\n"
    "if __name__ == '__main__':\n"
    "    reduce.PATCH_ROWS = reduce.BLOCK_ROWS = 448\n    workers.FEW_PAIRS = 0.0\n"
    "    sys.exit(cli.main(sys.argv[1:]))\n"
)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    Path("small.py").write_text(SMALL)
    return tmp_path


def rows(count, write=np.save, ending=""):
    rng = np.random.default_rng(0)
    for k, name in enumerate(FILES):
        write(name.removesuffix(".npy") + ending if ending else name, rng.normal(k / 2, 1.0, (count, 2)))


def until(true, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def left():
    return sorted(path.name for path in Path("tmp").iterdir() if path.name.startswith("relfit-"))


def children(pid):
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def running(pid):
    """True unless the process is gone, or a zombie that only waits to be counted."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_killed_parent_takes_its_workers_and_folder_along():
    rows(20_000)
    process = subprocess.Popen([sys.executable, "small.py", "compare", *FILES, "--workers", "2"])
    # Two workers, and Python's tracker of shared resources.
    until(lambda: len(children(process.pid)) >= 3 and left())
    workers = children(process.pid)
    time.sleep(1.0)
    assert process.poll() is None
    process.kill()
    process.wait()
    until(lambda: not any(map(running, workers)))
    until(lambda: not left(), 10.0)


@pytest.mark.parametrize("moment", [0.0, 0.2, 0.5, 1.0])
def test_ctrl_c_at_a_terminal_while_workers_start(moment):
    """It reaches the workers too, which are importing: they say nothing."""
    rows(20_000)
    command = [sys.executable, "small.py", "compare", *FILES, "--workers", "2"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    until(lambda: len(children(process.pid)) >= 2)
    time.sleep(moment)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err.strip()) == (130, "relfit: interrupted")
    assert left() == []


@pytest.mark.parametrize(("number", "word"), [("SIGTERM", "ended by SIGTERM"), ("SIGHUP", "ended by SIGHUP")])
def test_a_cancelled_job_says_so_and_removes_its_copies(number, word):
    rows(20_000, lambda name, x: np.savetxt(name, x, delimiter=","), ".csv")
    files = [name.replace(".npy", ".csv") for name in FILES]
    command = [*RELFIT, "compare", *files, "--memory", "400MB", "--json", "out.json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    # A copy of each file is written, and the work has begun.
    until(lambda: len(list(Path("tmp").glob("relfit-*/*.npy"))) == 3)
    process.send_signal(getattr(signal, number))
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err.strip()) == (128 + getattr(signal, number), "", f"relfit: {word}")
    assert left() == []
    assert not Path("out.json").exists()


# A library that reads logs (N4): it may leave a thread that sleeps, and sleeps itself, in code that it runs as text.
READER = """
import threading, time
from pathlib import Path
__version__ = "0.3.200"
def read_eval_log(path, header_only=False):
    {before}
    from relfit.util.files import temporary_folder
    with temporary_folder():
        Path("reading").touch()
        while True:
            try:
                exec("time.sleep(60)")
            except KeyboardInterrupt:
                {on_interrupt}
"""


THREAD = "threading.Thread(target=time.sleep, args=(60,)).start()"


@pytest.mark.parametrize(("before", "on_interrupt"), [(THREAD, "raise"), (THREAD, "time.sleep(60)"), ("pass", "raise")])
@pytest.mark.parametrize(("number", "word"), [("SIGINT", "interrupted"), ("SIGTERM", "ended by SIGTERM")])
def test_a_signal_ends_the_command_whatever_a_library_does(number, word, before, on_interrupt):
    """N4: the interpreter would wait for the library's thread, and a library may swallow the interrupt.

    An interrupt that leaves `exec` of a text would make Python end with -2, the status of SIGINT, without a thread.
    """
    package = Path("library/inspect_ai")
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('__version__ = "0.3.200"')
    (package / "log.py").write_text(READER.format(before=before, on_interrupt=on_interrupt))
    Path("a.eval").touch()
    path = os.pathsep.join(["library", *filter(None, [os.environ.get("PYTHONPATH")])])
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen([*RELFIT, "evals", "a.eval"], env={**os.environ, "PYTHONPATH": path}, **streams)
    until(Path("reading").exists)
    assert len(left()) == 1
    process.send_signal(getattr(signal, number))
    started = time.monotonic()
    try:
        out, err = process.communicate(timeout=20)
    finally:
        process.kill()
    # It takes two seconds at most, but for a machine that is busy.
    assert time.monotonic() - started < 10.0
    assert (process.returncode, out, err.strip()) == (128 + getattr(signal, number), "", f"relfit: {word}")
    assert left() == []


def test_what_a_killed_process_left_is_removed_by_the_next():
    rows(20_000, lambda name, x: np.savetxt(name, x, delimiter=","), ".csv")
    files = [name.replace(".npy", ".csv") for name in FILES]
    process = subprocess.Popen([*RELFIT, "compare", *files, "--memory", "400MB"], stderr=subprocess.DEVNULL)
    until(lambda: list(Path("tmp").glob("relfit-*/*.npy")))
    process.kill()
    process.wait()
    assert len(left()) == 1
    # The folder of a process that lives, and one that is not ours to judge, stay.
    Path("tmp/relfit-unknown").mkdir()
    owner = (
        "from relfit.util.files import temporary_folder\n"
        "with temporary_folder() as folder:\n    print(folder.name, flush=True)\n    input()\n"
    )
    alive = subprocess.Popen([sys.executable, "-c", owner], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    name = alive.stdout.readline().strip()
    rows(100)
    subprocess.run([*RELFIT, "compare", *FILES, "--memory", "400MB"], check=True, stdout=subprocess.DEVNULL)
    assert left() == sorted(["relfit-unknown", name])
    alive.communicate("\n")
    assert left() == ["relfit-unknown"]


@pytest.mark.parametrize("module", ["click", "numpy", "scipy.special", "relfit.api", "relfit.cli.compare"])
def test_an_interrupt_while_importing(module):
    """Wherever it comes, also where libraries would make an error of their own of it."""
    script = (
        "import os, signal, sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from relfit.cli import main\n"
        "sys.exit(main(['compare', *sys.argv[1:]]))\n"
    )
    done = subprocess.run([sys.executable, "-c", script, *FILES], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "relfit: interrupted\n")
