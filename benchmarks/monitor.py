"""A million items of twenty models into a monitor's file: seconds and memory.

python benchmarks/monitor.py [--items 1000000]
"""

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

from relfit import Monitor

MODELS, AT_ONCE = 20, 10_000


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=1_000_000)
    items = parser.parse_args().items
    rng, names = np.random.default_rng(0), [f"m{k}" for k in range(MODELS)]
    with tempfile.TemporaryDirectory() as folder:
        path, peaks = Path(folder, "gate.sqlite"), []
        wall, processor = time.monotonic(), time.process_time()
        with Monitor(names, path=path, higher_is_better=False) as monitor:
            for start in range(0, items, AT_ONCE):
                losses = (rng.random((AT_ONCE, MODELS)) < np.linspace(0.3, 0.32, MODELS)).astype(float)
                monitor.update(dict(zip(names, losses.T, strict=True)), items=range(start, start + AT_ONCE))
                peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
        wall, processor = time.monotonic() - wall, time.process_time() - processor
        print(f"{items} items × {MODELS} models: {wall:.0f} s, {processor:.0f} s of one processor")
        print(f"memory after the first {AT_ONCE} items {peaks[0]} MiB, after all {peaks[-1]} MiB")
        wall = time.monotonic()
        with Monitor.open(path) as monitor:
            monitor.result()
        print(f"opened again, with an answer: {time.monotonic() - wall:.1f} s; {path.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
