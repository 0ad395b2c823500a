"""What sizes beyond this machine would take, reckoned from measured speeds. Writes into docs/evidence/scale.md.

python benchmarks/scale.py [--dollars 4.0] [--link 1.25]
python benchmarks/scale.py --measure        # the table of docs/scale.md; needs goodpoints, 12 GB and half an hour
python benchmarks/scale.py --table          # that table, from what is measured

Speeds of cores are measured here and now; that of the CUDA device is the one in benchmarks/results-gpu.json. What
--measure finds is kept in benchmarks/results-scale.json. Power is that of docs/evidence/calibration/rivals.md.
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
from relfit.estimators.cost import landmark_values
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
WORKERS, CORES_EACH = 32, 2


def pairs_of(n):
    """Kernel values of a complete MMD: l + 1 half matrices and l whole ones."""
    return (1 + MODELS) * n * (n - 1) // 2 + MODELS * n * n


def seconds_here(estimator, n):
    """The best of three on this machine."""
    rng = np.random.default_rng(0)
    rows = [rng.normal(0.01 * k, 1, (n, DIM)) for k in range(1 + MODELS)]
    models = {f"m{k}": x for k, x in enumerate(rows[1:])}
    taken = []
    for _ in range(3):
        start = time.perf_counter()
        relfit.estimate(rows[0], models, kernel=relfit.Gaussian(4.0), estimator=estimator, rng=0)
        taken.append(time.perf_counter() - start)
    return min(taken)


def device_speed():
    """Pairs a second of the largest comparison measured on the device, and what it was."""
    runs = json.loads((ROOT / "benchmarks" / "results-gpu.json").read_text(encoding="utf-8"))
    fused = [run for run in runs["compare"] if run["backend"].startswith("triton")]
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


def priced(seconds, devices, dollars):
    """A time, and what so many devices cost meanwhile."""
    price = devices * seconds / 3600 * dollars
    return f"{in_words(seconds)}, {f'{price:,.2f}' if price >= 0.01 else '< 0.01'} $"


def speeds():
    """Pairs, or rows, a second on the cores here."""
    n = {"complete": 12_000, "incomplete": 200_000, "linear": 1_000_000}
    return (
        pairs_of(n["complete"]) / seconds_here("complete", n["complete"]),
        n["incomplete"] / seconds_here("incomplete", n["incomplete"]),
        n["linear"] / seconds_here("linear", n["linear"]),
    )


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


KERNEL_VALUES = {"complete": pairs_of, "landmarks": lambda n: landmark_values(n, [n] * MODELS)}


def marked(text, measured):
    """What is a forecast has a mark."""
    return text if measured else f"≈ {text}"


def on_the_device(runs, key):
    """{n: run} of this table's width and number of models, the fastest of each size."""
    wanted = [run for run in runs.get(key, []) if (run["d"], run["l"]) == (DIM, MODELS)]
    return {run["n"]: run for run in sorted(wanted, key=lambda run: -run["s"])}


def time_table(cells, gpu):
    """Times of every way and machine, and the memory of landmarks."""
    seconds = {way: {c["n"]: c["s"] for c in cells if c["way"] == way} for way in LARGEST}
    peaks = {c["n"]: c["GB"] for c in cells if c["way"] == "landmarks"}
    (before, low), (last, high) = sorted(peaks.items())[-2:]
    landmarks, complete = on_the_device(gpu, "landmarks"), on_the_device(gpu, "compare")
    speed, busy = device_speed()[0], WORKERS * CORES_EACH * EFFICIENCY
    # What landmarks take whatever the rows are.
    fixed = seconds["landmarks"][ALL_SIZES[0]]
    others = list(LARGEST)[2:]
    titles = ["n", "landmarks", "GB", "Dask", "H200", "complete", "Dask", "H200", *others]
    rows = []
    for n in ALL_SIZES:
        own = {way: grown(of, n, KERNEL_VALUES.get(way)) for way, of in seconds.items()}
        shown = {way: marked(in_words(value), known) for way, (value, known) in own.items()}
        spread = (fixed + (own["landmarks"][0] - fixed) / busy, own["complete"][0] / busy)
        workers = [marked(in_words(s), False) if n >= 10**5 else "" for s in spread]
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
    cells = json.loads(MEASURED.read_text(encoding="utf-8"))["cells"]
    gpu = json.loads((ROOT / "benchmarks" / "results-gpu.json").read_text(encoding="utf-8"))
    parts = {
        "times": time_table(cells, gpu),
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
    complete, incomplete, linear = speeds()
    device, how = device_speed()
    cores = usable_cores()
    times = [
        (
            f"{n:,}",
            in_words(pairs_of(n) / complete),
            *(priced(on_devices(n, k, device), k, options.dollars) for k in DEVICES),
            priced(n / incomplete, 1, options.dollars),
            priced(n / linear, 1, options.dollars),
        )
        for n in SIZES
    ]
    limits = []
    for n in SIZES:
        patches = patches_of(n)
        rows = (1 + MODELS) * n * DIM * 8
        back = 16.0 * pairs_of(n) / min(SIDE, n)
        seconds = on_devices(n, 64, device)
        limits.append(
            (
                f"{n:,}",
                f"{patches:,}",
                f"{_number(rows / 1e9)} GB",
                in_words(64 * rows / (options.link * 1e9)),
                f"{_number(back / 1e9)} GB",
                in_words(back / (options.link * 1e9)),
                in_words(patches / SCHEDULER_TASKS),
                in_words(seconds),
            )
        )
    text = f"""Measured: {complete / 1e9:.2f} thousand million pairs a second on {cores} cores (float64), {
        device / 1e9:,.0f} on one H200
(whole comparison, {how}, `Compute(precision="single")`); "incomplete" with {LAGS} pairs a row {
        incomplete / 1e3:,.0f} thousand rows a second
and "linear" {linear / 1e3:,.0f} thousand, both on {
        cores
    } cores. Everything else is division: no more devices at work than there
are patches, {EFFICIENCY:g} of perfect with several (measured with two workers), {options.dollars:g} dollars
for an hour of a device, idle or not (put your own price). Estimators that are not complete run where the call is made
and use no device: theirs is the time and the price of one machine with {cores} cores, however many devices there are.

{table(["n", f"complete, {cores} cores", *(f"complete, {k} × H200" for k in DEVICES), "incomplete", "linear"], times)}

Where something else becomes the limit, for 64 devices, patches of {SIDE:,} rows and a network of {
        options.link:g} GB/s at the
client. Rows are sent to every worker once, sums come back for both sides of every patch (16 bytes times pairs
divided by the patch's rows), and a scheduler hands out about {SCHEDULER_TASKS:,.0f} tasks a second.

{
        table(
            [
                "n",
                "patches",
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
        options.link * 1e9 * SIDE / 16.0 / device:,.0f} devices on: they come back
faster than the client's network takes them. The scheduler is not the limit at any of
these sizes. No run with more than one device was made."""
    print(text)
    write_text_atomic(PAGE, written(PAGE.read_text(encoding="utf-8"), {"forecast": text}))


if __name__ == "__main__":
    main()
