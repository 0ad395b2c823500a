"""What cannot be tried in every run of the tests: gigabytes, limits of memory, interrupts at random moments.

python -m tools.proofs [NAME...] [--docs docs/evidence/robustness.md]

Each proof runs real processes, and raises an error if something is not as the documentation says. The table of what was
seen is written between the marks of the page.
"""

import argparse
import gzip
import os
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import relfit
from relfit.util.files import write_text_atomic
from tools.cluster import running

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

from marks import table, written  # noqa: E402

RELFIT = [sys.executable, "-m", "relfit"]
ENVIRONMENT = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def measured(command, folder, **options):
    """Run a command; its status, what it printed on standard error, its seconds and its peak of memory in MB."""
    errors = Path(folder, "errors.txt")
    started = time.monotonic()
    with errors.open("wb") as stream:
        process = subprocess.Popen(
            command, cwd=folder, env=ENVIRONMENT, stderr=stream, stdout=subprocess.DEVNULL, **options
        )
        _, status, used = os.wait4(process.pid, 0)
    code = os.waitstatus_to_exitcode(status)
    return code, errors.read_text(), time.monotonic() - started, used.ru_maxrss / 1024


def save(path, rows, columns, shift=0.0, seed=0):
    """A .npy file, written a part at a time; not mapped, as the peak of a child begins with that of this process."""
    rng = np.random.default_rng(seed)
    header = {"descr": "<f8", "fortran_order": False, "shape": (rows, columns)}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, rows, 200):
            file.write(rng.normal(shift, 1.0, (min(200, rows - start), columns)).tobytes())


def one_large_file(folder):
    """The complete estimate under --memory, with a file of 1.5 GB; the answer is that without a limit."""
    save(folder / "r.npy", 7813, 24_000)
    for seed, name in enumerate("ab", 1):
        save(folder / f"{name}.npy", 300, 24_000, 0.01 * seed, seed)
    command = [*RELFIT, "compare", "r.npy", "a.npy", "b.npy", "--json"]
    status, errors, seconds, peak = measured([*command, "limited.json", "--memory", "1.3GB"], folder)
    assert (status, errors) == (0, ""), errors
    assert peak < 1.3e9 / 2**20, peak
    assert measured([*command, "whole.json"], folder)[0] == 0
    limited, whole = (relfit.Comparison.from_json((folder / f"{n}.json").read_text()) for n in ("limited", "whole"))
    assert np.allclose(limited.discrepancy, whole.discrepancy, rtol=1e-9, atol=1e-15)
    assert np.array_equal(limited.worse, whole.worse)
    size = (folder / "r.npy").stat().st_size / 1e9
    return f"{size:.2g} GB, `--memory 1.3GB`", f"peak {peak:.0f} MiB, {seconds:.0f} s; same verdicts, equal to 1e-9"


def packed_text(folder):
    """51 million rows in a small .csv.gz: read where there is room, refused where there is not, with true numbers."""
    with gzip.open(folder / "x.csv.gz", "wb", compresslevel=1) as stream:
        for _ in range(51):
            stream.write(b"1.5\n" * 1_000_000)
    read = "from relfit.data.files import read_rows; assert len(read_rows('x.csv.gz')) == 51_000_000"
    small = "import relfit.compute.memory as m; m.free_memory = lambda: 5e7; "
    status, errors, _, _ = measured([sys.executable, "-c", small + read], folder)
    found = re.search(r"\(([\d.]+) GB free\), got ([\d.]+) GB once unpacked", errors)
    assert status == 1, errors
    assert found is not None, errors
    # It is noticed within a million numbers of 8 bytes.
    assert (found[1], 0.05 <= float(found[2]) <= 0.06) == ("0.05", True), errors
    print("refused:", found[0], flush=True)
    status, errors, seconds, peak = measured([sys.executable, "-c", read], folder)
    assert status == 0, errors
    size = (folder / "x.csv.gz").stat().st_size / 1e6
    return (
        f"51,000,000 rows in {size:.2g} MB of `.csv.gz`",
        f"with room: read in {seconds:.0f} s, peak {peak:.0f} MiB; with 0.05 GB free: refused at {found[2]} GB",
    )


def parquet_bomb(folder):
    """A small Parquet file of more equal numbers than there is memory."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    part = pa.table({"x": pa.array(np.zeros(50_000_000))})
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    count = int(memory // (8 * 50_000_000)) + 1
    with pq.ParquetWriter(folder / "bomb.parquet", part.schema) as writer:
        for _ in range(count):
            writer.write_table(part, row_group_size=50_000_000)
    for name in "ra":
        save(folder / f"{name}.npy", 50, 1)
    status, errors, seconds, peak = measured([*RELFIT, "compare", "r.npy", "a.npy", "bomb.parquet"], folder)
    assert status == 2, errors
    assert re.search(r"bomb.parquet: expected what fits into memory .* got [\d.]+ GB once unpacked", errors), errors
    assert peak < 1000, peak
    size = (folder / "bomb.parquet").stat().st_size / 1e6
    claimed = 8 * 50_000_000 * count / 1e9
    return (
        f"{size:.2g} MB of Parquet that unpack to {claimed:.0f} GB",
        f"refused in {seconds:.1f} s, peak {peak:.0f} MiB",
    )


def memory_of_workers(folder):
    """Workers with a little less memory than a patch needs are refused, with a little more they are not killed."""
    wide = np.random.default_rng(0).normal(size=(3, 6000, 2500))
    samples = wide[0], dict(zip("ab", wide[1:], strict=True))
    with running(folder, 1, "--memory-limit=64MB") as (_, client):
        needs = _refused(samples, client)
    with running(folder, 1, f"--memory-limit={int(0.95 * needs)}") as (_, client):
        assert _refused(samples, client) == needs
        assert len(client.nthreads()) == 1
    # With a nanny, which kills a worker at 95% of its memory.
    with running(folder, 1, f"--memory-limit={int(1.05 * needs)}", "--nanny") as (_, client):
        before = client.run(os.getpid)
        joint = relfit.estimate(*samples, rng=0, compute=relfit.Compute(executor=client))
        assert client.run(os.getpid) == before
        peak = max(client.run(lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss).values()) * 1024
    here = relfit.estimate(*samples, rng=0)
    assert np.array_equal(joint.values, here.values)
    return (
        f"a Dask worker of which {needs / 1e9:.2g} GB are asked",
        f"with 5% less: refused, not killed; with 5% more: the same bits, peak {peak / 1e9:.2g} GB, not killed",
    )


def _refused(samples, client):
    try:
        relfit.estimate(*samples, rng=0, compute=relfit.Compute(executor=client))
    except relfit.InputError as error:
        return float(re.search(r"needs about ([\d.]+) GB", str(error))[1]) * 1e9
    raise AssertionError("it was not refused")


def _held(dask_worker):
    return len(dask_worker.data)


def interrupts_of_a_client(folder, count=12):
    """Ctrl-C at random moments of a run on a cluster: one line, and the cluster is as good as new."""
    for seed, name in enumerate("rab"):
        save(folder / f"{name}.npy", 6000, 8, 0.02 * seed, seed)
    script = "import sys; from relfit import cli; from relfit.compute import reduce\n"
    script += "reduce.PATCH_ROWS = reduce.BLOCK_ROWS = 1344\nsys.exit(cli.main(sys.argv[1:]))"
    rng, ended = random.Random(0), 0
    with running(folder, 2) as (_, client):
        command = [
            sys.executable,
            "-c",
            script,
            "compare",
            "r.npy",
            "a.npy",
            "b.npy",
            "--cluster",
            client.scheduler.address,
        ]
        status, errors, usual, _ = measured([*command, "--json", "plain.json"], folder)
        assert (status, errors) == (0, ""), errors
        for _ in range(count):
            process = subprocess.Popen(
                command, cwd=folder, env=ENVIRONMENT, stdout=-3, stderr=subprocess.PIPE, text=True
            )
            try:
                process.wait(rng.uniform(0.3, 1.0) * usual)
                ended += 1
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
            # By the signal itself: it came when Python was ending, after the answer.
            expected = ((130, "relfit: interrupted"), (0, ""), (-signal.SIGINT, ""))
            assert (process.returncode, errors.strip()) in expected, (process.returncode, errors)
            ended += process.returncode < 0
            deadline = time.monotonic() + 30
            while any(client.processing().values()) or any(
                client.run(lambda dask_worker: len(dask_worker.data)).values()
            ):
                assert time.monotonic() < deadline, "work or rows stayed on the workers"
                time.sleep(0.1)
        assert measured([*command, "--json", "after.json"], folder)[0] == 0
    assert (folder / "after.json").read_text() == (folder / "plain.json").read_text()
    return f"Ctrl-C at {count} random moments of a run on Dask", (
        f"{count - ended} interrupted: one line, status 130, no work or rows left on workers; {ended} had ended; then "
        "the same bits"
    )


PROOFS = [one_large_file, packed_text, parquet_bomb, memory_of_workers, interrupts_of_a_client]


def main():
    """Run the proofs and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=", ".join(proof.__name__ for proof in PROOFS))
    parser.add_argument("--docs", type=Path)
    options = parser.parse_args()
    rows = []
    for proof in PROOFS:
        if not options.names or proof.__name__ in options.names:
            with tempfile.TemporaryDirectory() as name:
                rows.append(proof(Path(name)))
                print(rows[-1], flush=True)
    if options.docs is not None:
        text = table(["what was tried", "what happened"], rows)
        write_text_atomic(options.docs, written(options.docs.read_text(encoding="utf-8"), {"proofs": text}))


if __name__ == "__main__":
    main()
