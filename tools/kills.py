"""Kill Dask workers at random moments, then the client, a hundred times. Writes the table in docs/evidence/scale.md.

python -m tools.kills [--kills 50] [--estimators complete landmarks] [--rows 6000] [--patch 1344] [--precision single]

Every run must end with the bits of an undisturbed one, which are the same with one, two and four workers. A killed
client must resume from its checkpoint, and no finished part may be computed again. Workers that see a CUDA device
compute there; that table is only printed.
"""

import argparse
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

import relfit
from relfit.compute import reduce, schedulers
from relfit.compute.checkpoint import CHECKPOINT
from relfit.util.files import Database, write_text_atomic
from relfit.util.libraries import has_cuda
from tools.cluster import ENVIRONMENT, running

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

from marks import table, written  # noqa: E402

# Workers count as idle after ten looks: twenty seconds by default, too long where a whole run takes two.
schedulers.POLL_INTERVAL = 0.3
PAGE = ROOT / "docs" / "evidence" / "scale.md"
CLIENT = """
import sys
from relfit import cli
from relfit.compute import reduce
reduce.PATCH_ROWS = reduce.BLOCK_ROWS = int(sys.argv.pop(1))
reduce.DEVICE_SCALE = 1
sys.exit(cli.main(sys.argv[1:]))
"""


def problem(folder, rows):
    """A reference and two models, in memory and in files."""
    rng = np.random.default_rng(0)
    samples = {name: rng.normal(shift, 1, (rows, 8)) for name, shift in {"r": 0.0, "a": 0.02, "b": 0.05}.items()}
    for name, rows in samples.items():
        np.save(folder / f"{name}.npy", rows)
    reference = samples.pop("r")
    return reference, samples


def same(arrays, expected):
    """True if two estimates or results have the same bits."""
    return all(np.array_equal(a, b) for a, b in zip(arrays, expected, strict=True))


def kill_workers(cluster, client, estimated, expected, kills, rng):
    """Runs in which a random worker is killed at a random moment; another takes its place afterwards."""
    start = time.monotonic()
    estimated(client)
    usual = time.monotonic() - start
    right = 0
    for _ in range(kills):
        timer = threading.Timer(rng.uniform(0.0, usual), cluster.kill_worker, [rng.randrange(2)])
        timer.start()
        right += same(estimated(client), expected)
        timer.join()
        cluster.start_worker()
        client.wait_for_workers(2, timeout=120)
    return right


def command(folder, address, given, *options):
    """The command line as a process, on the cluster, with a checkpoint."""
    files = [str(folder / f"{name}.npy") for name in ("r", "a", "b")]
    place = ["--cluster", address, "--checkpoint", str(folder / "run.sqlite")]
    return [sys.executable, "-c", CLIENT, *given, *files, "--seed", "0", *place, *options]


def finished(path):
    """The finished parts in a checkpoint, by their numbers."""
    if not path.exists():
        return set()
    with Database(path, CHECKPOINT) as file:
        return set(file.connection.execute("SELECT work, patch FROM patches").fetchall())


def executed(client):
    """The number of parts that the workers have computed so far, once they are idle."""
    while any(client.processing().values()):
        time.sleep(0.05)
    return sum(client.run(lambda dask_worker: dask_worker.state.executed_count).values())


def kill_clients(folder, client, given, expected, kills, rng):
    """Clients that are killed at a random moment and started again, until one ends by itself.

    Returns the numbers of runs with the right result, of all runs, of kills, of finished parts that were lost, and of
    those that were computed once more by the run that ended.
    """
    right = killed = lost = again = rounds = 0
    path, result, address = folder / "run.sqlite", folder / "result.json", client.scheduler.address
    start = time.monotonic()
    path.unlink(missing_ok=True)
    subprocess.run(command(folder, address, given), stdout=subprocess.DEVNULL, check=True, env=ENVIRONMENT)
    usual = time.monotonic() - start
    parts = len(finished(path))
    while killed < kills:
        for file in [*folder.glob("run.sqlite*"), result]:
            file.unlink(missing_ok=True)
        while True:
            before, so_far = finished(path), executed(client)
            process = subprocess.Popen(
                command(folder, address, given, "--json", str(result)),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=ENVIRONMENT,
            )
            try:
                process.communicate(timeout=rng.uniform(0.3, 1.0) * usual if killed < kills else None)
                break
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                killed += 1
            lost += not before <= finished(path)
        rounds += 1
        again += executed(client) - so_far - (parts - len(before))
        answer = relfit.Comparison.from_json(result.read_text(encoding="utf-8")) if result.exists() else None
        right += answer is not None and same((answer.discrepancy, answer.covariance), expected)
    return right, rounds, killed, lost, again


def undisturbed(cluster, client, estimated):
    """The estimate with one, two and four workers, which must have the same bits."""
    found = []
    for count in (1, 2, 4):
        while len(cluster.workers) > count:
            cluster.kill_worker()
        while len(cluster.workers) < count:
            cluster.start_worker()
        while len(client.scheduler_info()["workers"]) != count:
            time.sleep(0.1)
        found.append(estimated(client))
    assert all(same(each, found[0]) for each in found), "other bits with another number of workers"
    cluster.kill_worker()
    cluster.kill_worker()
    return found[0]


def kill_all(estimator, options, cluster, client, folder, rng):
    """The rows of the table for one estimator."""
    samples, precision = problem(folder, options.rows), options.precision

    def estimated(executor):
        compute = relfit.Compute(executor=executor, precision=precision)
        result = relfit.compare(*samples, estimator=estimator, rng=0, compute=compute)
        return result.discrepancy, result.covariance

    expected = undisturbed(cluster, client, estimated)
    if not has_cuda():
        assert same(estimated(None), expected), "other bits without workers"
    workers = kill_workers(cluster, client, estimated, expected, options.kills, rng)
    given = [str(options.patch), "compare", "--estimator", estimator, "--precision", precision]
    right, rounds, killed, lost, again = kill_clients(folder, client, given, expected, options.kills, rng)
    return [
        (estimator, "a worker, at a random moment", options.kills, options.kills, workers, "", ""),
        (estimator, "the client, then the same command again", killed, rounds, right, lost, again),
    ]


def main():
    """Both kinds of kills for every estimator, and the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--estimators", nargs="+", default=["complete", "landmarks"])
    parser.add_argument("--rows", type=int, default=6000)
    parser.add_argument("--patch", type=int, default=1344, help="rows of a patch")
    parser.add_argument("--precision", default="double")
    options = parser.parse_args()
    reduce.PATCH_ROWS = reduce.BLOCK_ROWS = options.patch
    reduce.DEVICE_SCALE = 1
    rows = []
    for estimator in options.estimators:
        with tempfile.TemporaryDirectory() as name, running(name, 2) as (cluster, client):
            rows += kill_all(estimator, options, cluster, client, Path(name), random.Random(options.seed))
    columns = ["estimator", "killed", "kills", "comparisons that ended", "with the same bits"]
    text = table([*columns, "finished parts lost", "finished parts computed again"], rows)
    print(text)
    if not has_cuda():
        write_text_atomic(PAGE, written(PAGE.read_text(encoding="utf-8"), {"kills": text}))


if __name__ == "__main__":
    main()
