"""Encoding a table against reading it: 10^6 rows of 20 mixed columns, from CSV and from Parquet; and its memory.

python benchmarks/tables.py [--rows 1000000] [--repeats 5]

Reading and encoding are measured side by side in one process, as seconds of the processor (neither uses more than one
core), and the best of the repeats is shown. Reading is all that turns the file into columns of numbers and levels;
encoding is the fit of the encoding, with all checks and notes, and the rows of numbers. The memory is the most
anonymous memory of a process that compares three such Parquet files by the linear estimator. Needs pandas and pyarrow.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from relfit.data.encode import Encode, encoded_tables
from relfit.data.tables import read_table


def mixed(n):
    """Ten columns of numbers, two of counts, four of text, a truth value, a date, and two with missing cells."""
    rng = np.random.default_rng(0)
    columns = {f"number {k}": rng.normal(size=n) for k in range(10)}
    columns |= {f"count {k}": rng.integers(0, 1000, n) for k in range(2)}
    columns |= {f"text {k}": rng.choice([f"level {j}" for j in range(5 * (k + 1))], n) for k in range(4)}
    columns["truth"] = rng.random(n) < 0.3
    columns["date"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 1000, n), unit="D")
    columns["number with gaps"] = np.where(rng.random(n) < 0.1, np.nan, rng.normal(size=n))
    columns["text with gaps"] = pd.Series(rng.choice(["a", "b"], n)).where(rng.random(n) > 0.1, None)
    return pd.DataFrame(columns)


def seconds(path):
    """Seconds of the processor for reading and for encoding."""
    start = time.process_time()
    table = read_table("table", path)
    read = time.process_time()
    encoded_tables({None: table}, "auto", Encode())
    return read - start, time.process_time() - read


COMPARE = """
import sys, threading, time
import relfit
from relfit.compute.memory import held_bytes

most = 0

def watch():
    global most
    while True:
        most = max(most, held_bytes())
        time.sleep(0.002)

threading.Thread(target=watch, daemon=True).start()
reference, first, second, memory = sys.argv[1:]
compute = relfit.Compute(memory=memory or None)
result = relfit.compare(reference, [first, second], estimator="linear", rng=0, progress=False, compute=compute)
print(most / 1e6, *result.discrepancy)
"""


def peak(files, memory):
    """The peak of a process in MB, and the discrepancies."""
    run = subprocess.run([sys.executable, "-c", COMPARE, *files, memory], check=True, capture_output=True, text=True)
    return list(map(float, run.stdout.split()))


def main():
    """Print two tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    asked = parser.parse_args()
    print("| file | reading, s | encoding, s | encoding / reading |\n| --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        table = mixed(asked.rows)
        for form in ("csv", "parquet"):
            path = Path(folder) / f"table.{form}"
            getattr(table, f"to_{form}")(path, index=False)
            read, encoded = np.min([seconds(path) for _ in range(asked.repeats)], axis=0)
            print(f"| {form} | {read:.2f} | {encoded:.2f} | {encoded / read:.2f} |", flush=True)
        files = [str(path)]
        for k in range(2):
            files.append(str(Path(folder) / f"model {k}.parquet"))
            table.sample(frac=1.0, random_state=k).to_parquet(files[-1], index=False)
        print("\n| memory= | peak, MB | MMD² |\n| --- | --- | --- |")
        for memory in ("", "600MB"):
            largest, *found = peak(files, memory)
            print(
                f"| {memory or 'none'} | {largest:.0f} | {', '.join(f'{value:.6g}' for value in found)} |", flush=True
            )


if __name__ == "__main__":
    main()
