"""Compare files that are ten times as large as the memory allowed, and write what the process really held.

    python benchmarks/out_of_core.py [--case NAME ...] [--scale 0.1] [--folder FOLDER]

Every case makes its files (4 GB, and 8 GB of copies in float64, removed afterwards), runs one comparison in a process
of its own with a budget of 400 MB, and looks every 2 ms at the anonymous memory of the process. Figures are kept
in build/out_of_core.json, so that cases can be run one at a time; the table of all goes to docs/evidence/scale.md.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from marks import table, written

import relfit
from relfit.util.files import write_text_atomic

ROOT = Path(__file__).parents[1]
BUDGET = 400_000_000
BLOCK = 50_000_000
ABOUT = """`benchmarks/out_of_core.py`: files of {times} times the budget or more, `Compute(memory="{budget}MB")`.
Peak is the most anonymous memory of the process, Python and all libraries included, looked at every 2 ms; pages of
mapped files do not count. Seconds are those of two cores that had other work too."""

# Landmarks and drawn rows are held whole: so few that 1,000 columns of them are small beside the budget.
LANDMARKS = {"estimator": relfit.Landmarks(count=300, residual_pairs=300 * 250_000)}
# name: what it shows, (rows, columns) of every sample, models, ending, arguments of compare
CASES = {
    "complete": ("MMD, all pairs of rows", (1_000, 5_000), 100, ".npy", {}),
    "cluster": ("the same, two Dask workers: the largest process", (1_000, 5_000), 100, ".npy", {}),
    "linear": ("MMD, linear", (250_000, 1_000), 3, ".npy", {"estimator": "linear"}),
    "incomplete": ("MMD, incomplete", (250_000, 1_000), 3, ".npy", {"estimator": "incomplete"}),
    "ume": ("UME, 10 locations", (250_000, 1_000), 3, ".npy", {"discrepancy": "ume"}),
    "ksd": ("KSD of two densities, incomplete", (1_000_000, 1_000), 0, ".npy", {"estimator": "incomplete"}),
    "parquet": ("MMD, linear, from Parquet", (250_000, 1_000), 3, ".parquet", {"estimator": "linear"}),
    "zarr": ("MMD, linear, from Zarr", (250_000, 1_000), 3, ".zarr", {"estimator": "linear"}),
    "batches": ("MMD, 300 landmarks, from generators of batches", (250_000, 1_000), 3, "generator", LANDMARKS),
    "parts": ("the same, from folders of Parquet files", (250_000, 1_000), 3, "folder", LANDMARKS),
}


def main():
    args = arguments()
    if args.child:
        print(json.dumps(measured(args.child, Path(args.folder), args.scale)))
        return
    store = ROOT / "build" / "out_of_core.json"
    found = json.loads(store.read_text()) if args.case and args.scale == 1.0 and store.exists() else {}
    for name in args.case or CASES:
        with tempfile.TemporaryDirectory(prefix="relfit-out-of-core-", dir=args.folder) as folder:
            make(name, Path(folder), args.scale)
            found[name] = run(name, folder, args)
            print(name, json.dumps(found[name]), flush=True)
        if args.scale == 1.0:
            keep(found, store)
    print(shown(found))


def keep(found, store):
    store.parent.mkdir(exist_ok=True)
    write_text_atomic(store, json.dumps(found, indent=1))
    page = ROOT / "docs" / "evidence" / "scale.md"
    least = min(case["data"] / BUDGET for name, case in found.items())
    about = ABOUT.format(times=f"{least:.1f}", budget=BUDGET // 10**6)
    write_text_atomic(page, written(page.read_text(encoding="utf-8"), {"memory": f"{about}\n\n{shown(found)}"}))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=CASES, action="append")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the rows, for a try")
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="where there is room for 20 GB")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    return parser.parse_args()


def make(name, folder, scale):
    _, (rows, columns), models, ending, _ = CASES[name]
    rng = np.random.default_rng(0)
    # The complete estimate works through n² pairs: its files are large by their type instead.
    kind = np.float64 if name in ("complete", "cluster") else np.float32
    for k in range(1 + models) if ending != "generator" else ():
        write(folder / f"{k}{ending}", int(scale * rows), columns, kind, shift(k, models), rng)


def shift(k, models):
    return 0.0 if k < 2 else 0.02 * k / (1 + models)


def drawn(rows, columns, kind, shift, rng, size):
    return (rng.standard_normal((min(size, rows - a), columns), dtype=kind) + kind(shift) for a in range(0, rows, size))


def write(path, rows, columns, kind, shift, rng):
    blocks = drawn(rows, columns, kind, shift, rng, max(1, BLOCK // columns))
    if path.name.endswith("folder"):
        path.mkdir()
        for number, block in enumerate(blocks):
            write_parquet(path / f"{number}.parquet", columns, [block])
    elif path.suffix == ".npy":
        out = np.lib.format.open_memmap(path, mode="w+", dtype=kind, shape=(rows, columns))
        done = 0
        for block in blocks:
            out[done : done + len(block)] = block
            done += len(block)
    elif path.suffix == ".zarr":
        write_zarr(path, rows, columns, blocks)
    else:
        write_parquet(path, columns, blocks)


def write_parquet(path, columns, blocks):
    import pyarrow
    import pyarrow.parquet

    schema = pyarrow.schema([("embedding", pyarrow.list_(pyarrow.float32(), columns))])
    with pyarrow.parquet.ParquetWriter(path, schema, use_dictionary=False) as writer:
        for block in blocks:
            column = pyarrow.FixedSizeListArray.from_arrays(block.ravel(), columns)
            writer.write_table(pyarrow.table([column], schema), row_group_size=20_000)


def write_zarr(path, rows, columns, blocks):
    import zarr

    out = zarr.create_array(path, shape=(rows, columns), chunks=(2_000, columns), dtype="float32", compressors=None)
    done = 0
    for block in blocks:
        out[done : done + len(block)] = block
        done += len(block)


def run(name, folder, args):
    command = [sys.executable, __file__, "--child", name, "--folder", folder, "--scale", str(args.scale)]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "TMPDIR": folder}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise SystemExit(done.stderr)
    _, (rows, columns), models, _, _ = CASES[name]
    generated = 4 * int(args.scale * rows) * columns * (1 + models)
    data = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file()) or generated
    return {"data": data, **json.loads(done.stdout)}


@contextmanager
def workers(count):
    """A client of so many Dask workers, each a process of one thread; None for none."""
    if not count:
        yield None
        return
    from dask.distributed import Client, LocalCluster

    cluster = LocalCluster(count, threads_per_worker=1, memory_limit=0, dashboard_address=None)
    with cluster, Client(cluster) as client:
        yield client


def watch():
    """Look at the memory of this process from now on; the peak is kept in a module that every worker has."""
    import threading
    import time

    from relfit.compute import memory

    memory.peak = 0

    def look():
        while True:
            memory.peak = max(memory.peak, memory.held_bytes())
            time.sleep(0.002)

    threading.Thread(target=look, daemon=True).start()


def peak():
    """The most that `watch` has seen."""
    from relfit.compute import memory

    return memory.peak


def sample(k, name, folder, scale):
    """The name of a file or folder, or a generator of batches of 4 MB."""
    _, (rows, columns), models, ending, _ = CASES[name]
    if ending != "generator":
        return str(folder / f"{k}{ending}")
    return drawn(int(scale * rows), columns, np.float32, shift(k, models), np.random.default_rng(k), 1_000)


def measured(name, folder, scale):
    _, _, models, _, options = CASES[name]
    samples = {f"model {k}": sample(k, name, folder, scale) for k in range(1, 1 + models)}
    if not models:
        off = np.float64(0.01)
        samples = {"right": relfit.Density(score=lambda x: -x), "off": relfit.Density(score=lambda x: off - x)}
    with workers(2 if name == "cluster" else 0) as client:
        watch()
        if client:
            client.run(watch)
        start = time.perf_counter()
        compute = relfit.Compute(memory=BUDGET, executor=client)
        result = relfit.compare(sample(0, name, folder, scale), samples, rng=0, compute=compute, **options)
        seconds = time.perf_counter() - start
        held = max([peak(), *(client.run(peak).values() if client else ())])
    return {"seconds": seconds, "peak": held, "worse": int(result.worse.sum()), "models": len(result.names)}


def shown(found):
    titles = ["", "samples", "data", "peak", "peak / budget", "data / budget", "seconds"]
    rows = []
    for name in (name for name in CASES if name in found):
        case = found[name]
        what, (n, d), models, _, _ = CASES[name]
        data, peak = case["data"], case["peak"]
        sizes = [f"{1 + models} × {n:,} × {d:,}", f"{data / 1e9:.2f} GB", f"{peak / 1e6:.0f} MB"]
        rows.append([what, *sizes, f"{peak / BUDGET:.2f}", f"{data / BUDGET:.1f}", f"{case['seconds']:.0f}"])
    return table(titles, rows)


if __name__ == "__main__":
    main()
