"""What sizes beyond this machine would take, reckoned from measured speeds. Writes into docs/evidence/scale.md.

python benchmarks/scale.py [--dollars 4.0] [--link 1.25]
python benchmarks/scale.py --measure        # the table of docs/scale.md; needs goodpoints, 12 GB and half an hour
python benchmarks/scale.py --table          # that table, from what is measured

What --measure finds is kept in benchmarks/results-scale.json, in processor seconds. What a CUDA device takes is in
benchmarks/results-gpu.json. Both pages reckon with these alone. Power is that of docs/evidence/calibration/rivals.md.
"""

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from marks import table, written

import relfit
from relfit.compute.reduce import DEVICE_SCALE, PATCH_ROWS
from relfit.estimators.landmarks import Landmarks
from relfit.util.files import write_text_atomic
from relfit.util.libraries import usable_cores

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "evidence" / "scale.md"
DIM, MODELS, LAGS = 16, 5, 25
SIZES, DEVICES = (10**6, 10**7, 10**8), (1, 8, 64)
# A scheduler hands out about a thousand tasks a second.
SCHEDULER_TASKS = 1000.0
# What two workers were measured to give, of twice what one gives (benchmarks/cluster.py).
EFFICIENCY = 0.97
SIDE = PATCH_ROWS * DEVICE_SCALE
# The table of docs/scale.md: the sizes, and for each way the largest that is measured here.
GUIDE, POWER = ROOT / "docs" / "scale.md", ROOT / "docs" / "evidence" / "calibration" / "rivals.md"
MEASURED = ROOT / "benchmarks" / "results-scale.json"
ON_DEVICE = ROOT / "benchmarks" / "results-gpu.json"
ALL_SIZES = tuple(10**k for k in range(3, 9))
LARGEST = {
    "landmarks": 10**7,
    "complete": 10**5,
    "incomplete": 10**6,
    "random features": 10**6,
    "compress-then-test": 10**6,
}
# The names that the ways have in the study of their power.
IN_STUDY = {
    "complete": "complete",
    "landmarks": "landmarks",
    "incomplete": "incomplete",
    "random features": "Fourier, noise counted",
    "compress-then-test": "compressed, over bins",
}
# Workers with as many cores each as were measured, and the shortest time that is forecast for them.
WORKERS, SHORTEST = 32, 10.0


def pairs_of(n):
    """Kernel values of a complete MMD: l + 1 half matrices and l whole ones."""
    return (1 + MODELS) * n * (n - 1) // 2 + MODELS * n * n


def measured_here_and_there():
    """What is in the files of results: that of the cores, and that of the device."""
    return tuple(json.loads(path.read_text(encoding="utf-8")) for path in (MEASURED, ON_DEVICE))


def device_speed(gpu):
    """Pairs a second of the largest comparison measured on the device, and what it was."""
    fused = [run for run in gpu["compare"] if run["backend"].startswith("triton")]
    largest = max(fused, key=lambda run: run["n"])
    return largest["G pairs/s"] * 1e9, f"n = {largest['n']:,}, d = {largest['d']}, l = {largest['l']}"


def in_words(seconds):
    """Seconds, minutes, hours or days."""
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{_number(seconds / size)} {unit}"
    return f"{_digits(seconds)} s"


def _number(value):
    return f"{value:,.0f}" if value >= 100.0 else f"{value:.3g}"


def patches_of(n):
    """Into how many patches a complete MMD is cut for devices."""
    cuts = -(-n // SIDE)
    return (1 + MODELS) * cuts * (cuts + 1) // 2 + MODELS * cuts * cuts


def on_devices(n, k, speed):
    """Seconds on k devices: one more than there are patches has nothing to do."""
    busy = min(k, patches_of(n))
    return pairs_of(n) / (speed * busy * (EFFICIENCY if busy > 1 else 1.0))


def priced(seconds, devices, dollars, measured=False):
    """A time, marked if it is a forecast, and what so many devices cost meanwhile."""
    price = devices * seconds / 3600 * dollars
    return f"{marked(in_words(seconds), measured)}, {f'{price:,.2f}' if price >= 0.01 else '< 0.01'} $"


def cell(way, n):
    """Seconds of all cores and the peak of memory of one way, in this process."""
    rng = np.random.default_rng(0)
    rows = [rng.normal(0.01 * k, 1, (n, DIM)) for k in range(1 + MODELS)]
    models = {f"m{k}": x for k, x in enumerate(rows[1:])}
    if way in ("landmarks", "complete", "incomplete"):
        small = {name: x[:500] for name, x in models.items()}
        relfit.estimate(rows[0][:500], small, estimator=way, rng=0, progress=False)
        start = time.process_time()
        relfit.estimate(rows[0], models, estimator=way, rng=0, progress=False)
    else:
        sys.path.insert(0, str(ROOT))
        from studies import rivals

        if way == "compress-then-test":
            rivals.compressed(rows[0][:1000], 0)
        start = time.process_time()
        if way == "random features":
            rivals.fourier(*rows, rng)
        else:
            rivals.over_bins(*(rivals.compressed(x, k) for k, x in enumerate(rows)))
    seconds = time.process_time() - start
    return {"way": way, "n": n, "s": seconds, "GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9}


def measure():
    """Every way at its sizes, each in a process of its own; the best of three where that takes seconds."""
    cells = []
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    for n in ALL_SIZES:
        for way in (way for way, largest in LARGEST.items() if n <= largest):
            command = [sys.executable, __file__, "--cell", way, str(n)]
            runs = [
                json.loads(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
                for _ in range(3 if n <= (10**4 if way == "complete" else 10**5) else 1)
            ]
            cells.append(min(runs, key=lambda run: run["s"]))
            print(cells[-1], flush=True)
    what = {"d": DIM, "l": MODELS, "cores": usable_cores(), "cells": cells}
    write_text_atomic(MEASURED, json.dumps(what, indent=2) + "\n")


def grown(measured, n, values=None):
    """The value at n rows, and whether it was measured.

    Otherwise it grows from the largest like the kernel `values`, or like the last two.
    """
    if n in measured:
        return measured[n], True
    before, last = sorted(measured)[-2:]
    if values is not None:
        return measured[last] * values(n) / values(last), False
    exponent = max(1.0, math.log(measured[last] / measured[before]) / math.log(last / before))
    return measured[last] * (n / last) ** exponent, False


KERNEL_VALUES = {"complete": pairs_of, "landmarks": lambda n: Landmarks().values(n, [n] * MODELS)}


def marked(text, measured):
    """What is a forecast has a mark."""
    return text if measured else f"≈ {text}"


def on_the_device(runs, key):
    """{n: run} of this table's width and number of models, the fastest of each size."""
    wanted = [run for run in runs.get(key, []) if (run["d"], run["l"]) == (DIM, MODELS)]
    return {run["n"]: run for run in sorted(wanted, key=lambda run: -run["s"])}


def processor_times(here):
    """{way: {n: seconds}} of all cores together."""
    return {way: {c["n"]: c["s"] for c in here["cells"] if c["way"] == way} for way in LARGEST}


def on_cores(seconds, way, n):
    """The processor time of one way, and whether it was measured."""
    return grown(seconds[way], n, KERNEL_VALUES.get(way))


def time_table(here, gpu):
    """Times of every way and machine, and the memory of landmarks."""
    seconds = processor_times(here)
    peaks = {c["n"]: c["GB"] for c in here["cells"] if c["way"] == "landmarks"}
    (before, low), (last, high) = sorted(peaks.items())[-2:]
    landmarks, complete = on_the_device(gpu, "landmarks"), on_the_device(gpu, "compare")
    speed, others = device_speed(gpu)[0], list(LARGEST)[2:]
    places = ("Dask", "H200")
    titles = ["n", "landmarks", "GB", *(f"landmarks, {place}" for place in places)]
    titles += ["complete", *(f"complete, {place}" for place in places), *others]
    rows = []
    for n in ALL_SIZES:
        own = {way: on_cores(seconds, way, n) for way in seconds}
        shown = {way: marked(in_words(value), known) for way, (value, known) in own.items()}
        spread = [own[way][0] / (WORKERS * here["cores"] * EFFICIENCY) for way in ("landmarks", "complete")]
        workers = [marked(in_words(s), False) if s >= SHORTEST else "" for s in spread]
        peak = peaks.get(n, high + (high - low) / (last - before) * (n - last))
        row = [shown["landmarks"], marked(_digits(peak), n in peaks), workers[0], device_cell(landmarks, n, None)]
        row += [shown["complete"], workers[1], device_cell(complete, n, speed), *(shown[way] for way in others)]
        rows.append((f"{n:,}", *row))
    return table(titles, rows)


def device_cell(runs, n, speed):
    """Seconds and GB on one device: measured, or a forecast for sizes above those measured, or nothing."""
    if n in runs:
        memory = runs[n].get("GB", runs[n].get("GB, data included"))
        return in_words(runs[n]["s"]) + ("" if memory is None else f", {_digits(memory)} GB")
    last = max(runs, default=10**5)
    if n <= last or (speed is None and not runs):
        return ""
    return marked(in_words(runs[last]["s"] * n / last if speed is None else pairs_of(n) / speed), False)


def _digits(value):
    """Two digits, and no powers of ten."""
    return f"{value:.0f}" if value >= 10.0 else f"{value:.2g}"


def powers(text):
    """{(n, way): rate} from the tables of the study's page."""
    found, titles = {}, []
    names = {name: way for way, name in IN_STUDY.items()}
    for line in text.splitlines():
        fields = [field.strip() for field in line.strip("|").split("|")]
        if "worse one found" in fields:
            titles = fields
        elif titles and len(fields) == len(titles):
            row = dict(zip(titles, fields, strict=True))
            if row["method"] in names:
                found[int(row["rows"].replace(",", "")), names[row["method"]]] = row["worse one found"]
    return found


def power_table(rates):
    """How often each way finds the worse model, at the sizes of the study."""
    sizes = sorted({n for n, _ in rates})
    return table(["n", *IN_STUDY], [(f"{n:,}", *(rates.get((n, way), "") for way in IN_STUDY)) for n in sizes])


def write_table():
    """Both tables of docs/scale.md."""
    parts = {
        "times": time_table(*measured_here_and_there()),
        "power": power_table(powers(POWER.read_text(encoding="utf-8"))),
    }
    write_text_atomic(GUIDE, written(GUIDE.read_text(encoding="utf-8"), parts))


def main():
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dollars", type=float, default=4.0, help="price of a device for an hour")
    parser.add_argument("--link", type=float, default=1.25, help="speed of the client's network, GB/s")
    parser.add_argument("--measure", action="store_true", help="measure the ways of the table of docs/scale.md")
    parser.add_argument("--table", action="store_true", help="write the table of docs/scale.md")
    parser.add_argument("--cell", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cell:
        print(json.dumps(cell(options.cell[0], int(options.cell[1]))))
    if options.measure:
        measure()
    if options.table:
        write_table()
    if not (options.cell or options.measure or options.table):
        forecast(options)


def forecast(options):
    """The tables of what it would cost."""
    text = costs(*measured_here_and_there(), options.dollars, options.link)
    print(text)
    write_text_atomic(PAGE, written(PAGE.read_text(encoding="utf-8"), {"forecast": text}))


def costs(here, gpu, dollars, link):
    """What the ways of docs/scale.md take and cost, and where something else becomes the limit."""
    cores, seconds, (device, how) = here["cores"], processor_times(here), device_speed(gpu)
    landmarks = on_the_device(gpu, "landmarks")
    times = []
    for n in SIZES:
        alone = [marked(in_words(s), known) for s, known in (on_cores(seconds, way, n) for way in list(LARGEST)[:3])]
        spread = [priced(on_devices(n, k, device), k, dollars) for k in DEVICES]
        one = priced(landmarks[n]["s"], 1, dollars, measured=True) if n in landmarks else ""
        times.append((f"{n:,}", alone[1], *spread, alone[0], one, alone[2]))
    titles = ["complete, processor time", *(f"complete, {k} × H200" for k in DEVICES)]
    titles += ["landmarks, processor time", "landmarks, 1 × H200", "incomplete, processor time"]
    largest = {way: max(of) for way, of in seconds.items()}
    taken = {way: f"{largest[way]:,} rows in {in_words(of[largest[way]])}" for way, of in seconds.items()}
    limits = []
    for n in SIZES:
        patches = patches_of(n)
        rows = (1 + MODELS) * n * DIM * 8
        back = 16.0 * pairs_of(n) / min(SIDE, n)
        limits.append(
            (
                f"{n:,}",
                f"{patches:,}",
                f"{_number(rows / 1e9)} GB",
                in_words(64 * rows / (link * 1e9)),
                f"{_number(back / 1e9)} GB",
                in_words(back / (link * 1e9)),
                in_words(patches / SCHEDULER_TASKS),
                in_words(on_devices(n, 64, device)),
            )
        )
    return f"""Processor times were measured on {cores} cores (float64): the complete estimate with {
        taken["complete"]
    }, landmarks
with {taken["landmarks"]}, "incomplete" with {LAGS} pairs a row and {taken["incomplete"]}. On one H200:
{device / 1e9:,.0f} billion (10⁹) pairs a second in a whole comparison ({how},
`Compute(precision="single")`), and landmarks at each size of the table. **≈ marks a forecast.** With several devices,
no more of them are at work than there are parts, and they do {EFFICIENCY:g} of what perfect sharing would give, as
measured with two workers. An hour of a device costs {
        dollars:g} dollars, idle or not (put your own price). Landmarks use workers
and devices as the complete estimate does. "incomplete" runs in the process that makes the call and uses no device.

{table(["n", *titles], times)}

Where something else becomes the limit, for 64 devices, parts of {SIDE:,} rows and a network of {link:g} GB/s at the
client. Rows are sent to every worker once, sums come back for both sides of every part (16 bytes times pairs
divided by the part's rows), and a scheduler hands out about {SCHEDULER_TASKS:,.0f} tasks a second.

{
        table(
            [
                "n",
                "parts",
                "rows",
                "sent to 64 workers by the client",
                "sums",
                "received",
                "scheduled",
                "computing",
            ],
            limits,
        )
    }

Sending the rows to 64 workers over one such link takes longer than the work itself at each of these sizes: let them
read a folder they share. The sums are the limit from {
        link * 1e9 * SIDE / 16.0 / device:,.0f} devices on: they come back
faster than the client's network takes them. The scheduler is not the limit at any of
these sizes. No run with more than one device was made."""


if __name__ == "__main__":
    main()
