"""Random sequences of commands, with kills, full disks and twins at random moments, on real processes.

Whatever happens: no input changes, every output is the old one or the whole new one, no process and no temporary file
is left, the exit status is a documented one, and an undisturbed command gives the answer it always gives.

python -m tools.sequences [SEQUENCES]
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import ClassVar

import numpy as np
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

ZYGOTE = Path(__file__).with_name("zygote.py")
DATA = ["r.npy", "a.npy", "b.npy"]
LABELLED = ["--dependence", "paired", "--groups", "labels.csv"]
COMMANDS = {
    "compare": ["compare", *DATA, "--json", "out.json", "--html", "out.html"],
    "grouped": ["compare", *DATA, *LABELLED, "--json", "out.json", "--gate", "b", "--junit", "out.xml"],
    "memory": ["compare", "r.csv", "a.csv", "b.npy", "--memory", "2GB", "--json", "out.json"],
    "checkpoint": ["compare", *DATA, "--checkpoint", "run.sqlite", "--json", "out.json"],
    "pair": ["pair", *DATA, "--json", "out.json"],
    "losses": ["losses", "table.csv", "--lower-is-better", "--json", "out.json", "--html", "out.html"],
    "plan": ["plan", *DATA, "--trials", "100", "--json", "out.json", "--plot", "out.png"],
    "report": ["report", "result.json", *DATA, "--html", "out.html"],
    "rerun": ["rerun", "result.json"],
    "refused": ["compare", *DATA, *LABELLED, "--json", "labels.csv"],
}
STATUS = dict.fromkeys(COMMANDS, 0) | {"grouped": 1, "refused": 2}
OUTPUTS = ("out.json", "out.html", "out.xml", "out.png")
TROUBLES = {"kill": signal.SIGKILL, "end": signal.SIGTERM, "hang up": signal.SIGHUP, "interrupt": signal.SIGINT}


def inputs(folder):
    """A reference and two models, labels, a table of losses."""
    rng = np.random.default_rng(0)
    for k, name in enumerate(DATA):
        np.save(folder / name, rng.normal(k, 1.0, (240, 2)))
    for name in "ra":
        np.savetxt(folder / f"{name}.csv", np.load(folder / f"{name}.npy"), delimiter=",")
    np.savetxt(folder / "labels.csv", np.repeat(np.arange(80), 3), fmt="g%d")
    np.savetxt(folder / "table.csv", rng.normal((0, 1), 1.0, (60, 2)), delimiter=",", header="x,y", comments="")


def without_times(name, data):
    """An output without what differs between two runs: pictures and pages name the day and random ids."""
    if name == "out.xml":
        return re.sub(rb'time="[\d.]+"', b"", data)
    return data if name == "out.json" else re.sub(rb"\d+|[0-9a-f]{6,}", b"", data)[:2000] + data[-20:]


class Sequences(RuleBasedStateMachine):
    """One folder, any commands in any order."""

    expected: ClassVar[dict] = {}

    def __init__(self):
        super().__init__()
        self.folder, self.temporary = Path(tempfile.mkdtemp()), Path(tempfile.mkdtemp())
        self.zygote = subprocess.Popen(
            [sys.executable, str(ZYGOTE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(self.temporary)},
        )
        inputs(self.folder)
        self.killed = self.count = 0
        if not self.expected:
            shutil.copytree(self.folder, self.folder / "plain")
            for name in COMMANDS:
                if name == "report":
                    shutil.move(self.folder / "plain/kept.json", self.folder / "plain/result.json")
                self.wait(*self.start(name, self.folder / "plain"), STATUS[name])
                if name == "compare":
                    shutil.copy(self.folder / "plain/out.json", self.folder / "plain/kept.json")
                made = [self.folder / "plain" / output for output in OUTPUTS]
                self.expected[name] = {path.name: path.read_bytes() for path in made if path.exists()}
                for path in made:
                    path.unlink(missing_ok=True)
            shutil.rmtree(self.folder / "plain")
        (self.folder / "result.json").write_bytes(self.expected["compare"]["out.json"])
        self.unchanged = {path.name: path.read_bytes() for path in self.folder.iterdir()}

    def ask(self, request):
        self.zygote.stdin.write(json.dumps(request) + "\n")
        self.zygote.stdin.flush()
        return int(self.zygote.stdout.readline())

    def start(self, name, folder=None, room=None):
        self.count += 1
        out = str(self.temporary / f"command-{self.count}")
        return self.ask({"args": COMMANDS[name], "folder": str(folder or self.folder), "out": out, "room": room}), out

    def wait(self, pid, out, *allowed):
        """The status, which must be allowed, with at most one line of complaint; and nothing of the process is left."""
        status, said = self.ask({"wait": pid}), Path(f"{out}.err")
        # A signal may come before the process has opened its streams.
        errors = said.read_text() if said.exists() else ""
        assert status in allowed, (status, errors)
        assert "Traceback" not in errors
        assert len(errors.split("\n\n")) <= 2
        # A worker or a tracker may need a moment to notice.
        for _ in range(100):
            try:
                os.killpg(pid, 0)
            except ProcessLookupError:
                return status
            time.sleep(0.05)
        raise AssertionError("a process is left")

    def outputs(self):
        paths = [self.folder / name for name in OUTPUTS]
        return {path.name: path.read_bytes() for path in paths if path.exists()}

    def check_outputs(self, before, name, whole):
        """Each output is as before or, all of them if `whole`, as the command always writes it."""
        made, now = self.expected[name], self.outputs()
        assert set(now) <= set(before) | set(made)
        for output, data in now.items():
            new = output in made and without_times(output, data) == without_times(output, made[output])
            assert new or (not (whole and output in made) and data == before.get(output)), output
        assert not whole or set(made) <= set(now)

    @rule(name=st.sampled_from(sorted(COMMANDS)))
    def undisturbed(self, name):
        before = self.outputs()
        self.wait(*self.start(name), STATUS[name])
        self.check_outputs(before, name, STATUS[name] != 2)

    @rule(
        name=st.sampled_from(sorted(COMMANDS)),
        trouble=st.sampled_from(sorted(TROUBLES)),
        moment=st.floats(0.0, 1.5).filter(lambda seconds: seconds > 0.0),
    )
    def stopped(self, name, trouble, moment):
        before, number = self.outputs(), TROUBLES[trouble]
        process = self.start(name)
        time.sleep(moment)
        os.kill(process[0], number)
        # Before its handlers are set, and after they are gone, a signal ends the process by itself.
        status = self.wait(*process, STATUS[name], -number, 128 + number)
        self.killed += status == -number
        self.check_outputs(before, name, status == STATUS[name] != 2)

    @rule(name=st.sampled_from(sorted(set(COMMANDS) - {"refused"})), room=st.integers(0, 30_000))
    def full_disk(self, name, room):
        before = self.outputs()
        status = self.wait(*self.start(name, room=room), STATUS[name], 2)
        self.check_outputs(before, name, status == STATUS[name])

    @rule(name=st.sampled_from(sorted(COMMANDS)), other=st.sampled_from(sorted(COMMANDS)))
    def twins(self, name, other):
        before = self.outputs()
        processes = [self.start(name), self.start(other)]
        for each, process in zip((name, other), processes, strict=True):
            # Of two on one checkpoint the second may be told of the first.
            self.wait(*process, STATUS[each], *([2] if name == other == "checkpoint" else []))
        now = self.outputs()
        for output, data in now.items():
            made = [self.expected[each][output] for each in (name, other) if output in self.expected[each]]
            plain = [without_times(output, one) for one in made]
            assert without_times(output, data) in plain or (not made and data == before[output])

    @invariant()
    def nothing_else(self):
        """Inputs as they were; nothing beside the outputs and the checkpoint, but what kill -9 left hidden."""
        assert {name: (self.folder / name).read_bytes() for name in self.unchanged} == self.unchanged
        others = {path.name for path in self.folder.iterdir()} - set(self.unchanged) - set(OUTPUTS)
        hidden = {name for name in others if re.fullmatch(r"\.out\.\w+\.[0-9a-f]{32}\.tmp", name)}
        assert others - hidden <= {"run.sqlite", *(["run.sqlite-wal", "run.sqlite-shm"] if self.killed else [])}
        assert len(hidden) <= self.killed
        assert len(list(self.temporary.glob("relfit-*"))) <= self.killed

    def teardown(self):
        """At last every command gives the answer it always gave, and the next removes what the killed ones left."""
        try:
            for name in COMMANDS:
                self.undisturbed(name)
            assert not list(self.temporary.glob("relfit-*"))
        finally:
            self.zygote.stdin.close()
            self.zygote.stdout.close()
            self.zygote.wait()
            for folder in (self.folder, self.temporary):
                shutil.rmtree(folder)


def check(sequences, fixed):
    """Try so many sequences of eight steps; the same ones every time if `fixed`."""
    run_state_machine_as_test(
        Sequences,
        settings=settings(
            max_examples=sequences,
            stateful_step_count=8,
            deadline=None,
            derandomize=fixed,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )


if __name__ == "__main__":
    check(int(sys.argv[1]) if sys.argv[1:] else 100, fixed=False)
