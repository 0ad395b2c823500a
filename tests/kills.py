"""Kill Dask workers at random moments, then the client, a hundred times. Writes the table in docs/evidence/scale.md.

python tests/kills.py [--kills 50] [--seed 0]

Every run must end with the bits of an undisturbed one. A killed client must resume from its checkpoint, and no finished
part may be computed again.
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
from cluster import ENVIRONMENT, running

import relfit
from relfit.compute import reduce, schedulers
from relfit.compute.checkpoint import CHECKPOINT
from relfit.util.files import write_text_atomic
from relfit.util.sqlite import Database

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

from marks import table, written  # noqa: E402

# Workers count as idle after ten looks: twenty seconds by default, too long where a whole run takes two.
schedulers.POLL_INTERVAL = 0.3
PAGE = ROOT / "docs" / "evidence" / "scale.md"
ROWS, PATCH = 6000, 1344
CLIENT = f"""
import sys
from relfit import cli
from relfit.compute import reduce
reduce.PATCH_ROWS = reduce.BLOCK_ROWS = {PATCH}
sys.exit(cli.main(sys.argv[1:]))
"""


def problem(folder):
    """A reference and two models, in memory and in files."""
    rng = np.random.default_rng(0)
    samples = {name: rng.normal(shift, 1, (ROWS, 8)) for name, shift in {"r": 0.0, "a": 0.02, "b": 0.05}.items()}
    for name, rows in samples.items():
        np.save(folder / f"{name}.npy", rows)
    reference = samples.pop("r")
    return reference, samples


def same(arrays, expected):
    """True if two estimates or results have the same bits."""
    return all(np.array_equal(a, b) for a, b in zip(arrays, expected, strict=True))


def kill_workers(cluster, client, samples, expected, kills, rng):
    """Runs in which a random worker is killed at a random moment; another takes its place afterwards."""
    start = time.monotonic()
    relfit.estimate(*samples, rng=0, compute=relfit.Compute(executor=client))
    usual = time.monotonic() - start
    right = 0
    for _ in range(kills):
        timer = threading.Timer(rng.uniform(0.0, usual), cluster.kill_worker, [rng.randrange(2)])
        timer.start()
        joint = relfit.estimate(*samples, rng=0, compute=relfit.Compute(executor=client))
        timer.join()
        right += same((joint.values, joint.covariance), expected)
        cluster.start_worker()
        client.wait_for_workers(2, timeout=120)
    return right


def command(folder, address, *options):
    """The command line as a process, on the cluster, with a checkpoint."""
    files = [str(folder / f"{name}.npy") for name in ("r", "a", "b")]
    place = ["--cluster", address, "--checkpoint", str(folder / "run.sqlite")]
    return [sys.executable, "-c", CLIENT, "compare", *files, "--seed", "0", *place, *options]


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


def kill_clients(folder, client, expected, kills, rng):
    """Clients that are killed at a random moment and started again, until one ends by itself.

    Returns the numbers of runs with the right result, of all runs, of kills, of finished parts that were lost, and of
    those that were computed once more by the run that ended.
    """
    right = killed = lost = again = rounds = 0
    path, result, address = folder / "run.sqlite", folder / "result.json", client.scheduler.address
    start = time.monotonic()
    subprocess.run(command(folder, address), stdout=subprocess.DEVNULL, check=True, env=ENVIRONMENT)
    usual = time.monotonic() - start
    parts = len(finished(path))
    while killed < kills:
        for file in [*folder.glob("run.sqlite*"), result]:
            file.unlink(missing_ok=True)
        while True:
            before, so_far = finished(path), executed(client)
            process = subprocess.Popen(
                command(folder, address, "--json", str(result)),
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


def main():
    """Both, and the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    reduce.PATCH_ROWS = reduce.BLOCK_ROWS = PATCH
    with tempfile.TemporaryDirectory() as name, running(name, 2) as (cluster, client):
        folder = Path(name)
        samples = problem(folder)
        here = relfit.estimate(*samples, rng=0)
        expected = (here.values, here.covariance)
        workers = kill_workers(cluster, client, samples, expected, options.kills, rng)
        right, rounds, killed, lost, again = kill_clients(folder, client, expected, options.kills, rng)
    text = table(
        [
            "killed",
            "kills",
            "runs that ended",
            "with the same bits",
            "finished parts lost",
            "finished parts computed again",
        ],
        [
            ("a worker, at a random moment", options.kills, options.kills, workers, "", ""),
            ("the client, then the same command again", killed, rounds, right, lost, again),
        ],
    )
    print(text)
    write_text_atomic(PAGE, written(PAGE.read_text(encoding="utf-8"), {"kills": text}))


if __name__ == "__main__":
    main()
