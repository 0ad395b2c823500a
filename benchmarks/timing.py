"""Times that can be compared: ways are run in turn, each time is a best of several, and other load is watched."""

import json
import os
import re
import subprocess
import sys
import time
from math import log
from pathlib import Path

# A round counts as quiet when other processes took less than this share of the processors.
QUIET = 0.05
# Threads of a library go on spinning for a while after its call; the next call should not pay for them.
PAUSE = 0.03


def interleaved(ways, least=5, most=12, seconds=2.0):
    """Best time of each way, in seconds: one warm call each, then rounds over all of them.

    A way is timed `least` times in quiet rounds, or until it has taken `seconds`; never more than `most` times. Of a
    way so slow that its warm call used up the seconds, that call is the time.
    """
    warm = {name: timed(way) for name, way in ways.items()}
    times = {name: [first] if first > seconds else [] for name, first in warm.items()}
    quiet = dict.fromkeys(ways, 0)
    for _ in range(most):
        for name, way in ways.items():
            if times[name] and (quiet[name] >= least or sum(times[name]) > seconds):
                continue
            time.sleep(PAUSE)
            before = Load.now()
            times[name].append(timed(way))
            quiet[name] += before.others() < QUIET
    return {name: min(found) for name, found in times.items()}


def timed(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


class Load:
    """Processor time of the machine and of this process at one moment; the rest is other processes'."""

    def __init__(self, wall, busy, own):
        self.wall, self.busy, self.own = wall, busy, own

    @classmethod
    def now(cls):
        # With those processes that this one has started and that have ended.
        own = sum(os.times()[:4])
        try:
            fields = list(map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]))
        except OSError:
            return cls(time.perf_counter(), own, own)
        # user, nice, system, irq, softirq, steal: everything but idle and waiting.
        busy = sum(fields[k] for k in (0, 1, 2, 5, 6, 7)) / os.sysconf("SC_CLK_TCK")
        return cls(time.perf_counter(), busy, own)

    def others(self):
        """The share of all processors that other processes took since; the clock behind it ticks every 10 ms."""
        now = Load.now()
        capacity = (now.wall - self.wall) * (os.cpu_count() or 1)
        spent = (now.busy - self.busy) - (now.own - self.own) - 0.02
        return max(0.0, spent) / max(capacity, 1e-9)


def memory(name):
    """A line of /proc/self/status in GB: VmRSS now, VmHWM the peak. Not ru_maxrss: that starts at the parent's size."""
    return int(re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) / 2**20


def peak_growth(work):
    """Peak resident size during a call beyond the size before it, in GB, and its time in seconds."""
    Path("/proc/self/clear_refs").write_text("5")
    before = memory("VmRSS")
    seconds = timed(work)
    return memory("VmHWM") - before, seconds


def elsewhere(script, *arguments, **environment):
    """The JSON that a script of this folder prints last, run in a process of its own."""
    command = [sys.executable, str(Path(__file__).with_name(script)), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **environment})
    return json.loads(done.stdout.splitlines()[-1])


def exponent(sizes, times):
    """The power of the size by which the time grew between the last two sizes."""
    return log(times[-1] / times[-2]) / log(sizes[-1] / sizes[-2])
