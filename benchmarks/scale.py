"""What sizes beyond this machine would take, reckoned from measured speeds. Writes into docs/evidence/scale.md.

python benchmarks/scale.py [--dollars 4.0] [--link 1.25]

Speeds of cores are measured here and now; that of the CUDA device is the one in benchmarks/results-gpu.json.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
from marks import table, written

import relfit
from relfit.compute.reduce import DEVICE_SCALE, PATCH_ROWS
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
    return f"{seconds:.2g} s"


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


def main():
    """The tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dollars", type=float, default=4.0, help="price of a device for an hour")
    parser.add_argument("--link", type=float, default=1.25, help="speed of the client's network, GB/s")
    options = parser.parse_args()
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
