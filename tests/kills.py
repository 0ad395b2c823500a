"""A hundred kills at random moments: of Dask workers, then of the client. Writes its table into docs/scale.md.

python tests/kills.py [--kills 50] [--seed 0]

Every run must end with the bits of an undisturbed one; a client that was killed must go on from its checkpoint, and no
part that was noted may be computed again.
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
from relfit.compute import patches
from relfit.compute import schedulers as crew
from relfit.compute.checkpoint import Checkpoint
from relfit.util.files import write_text_atomic

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))

from marks import table, written  # noqa: E402

# Twenty seconds are long where a whole run takes two.
crew.GLANCE = 0.3
PAGE = ROOT / "docs" / "scale.md"
ROWS, PATCH = 6000, 1344
CLIENT = f"""
import sys
from relfit import cli
from relfit.compute import patches
patches.PATCH_ROWS = patches.BLOCK_ROWS = {PATCH}
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


def same(found, expected):
    """Whether two estimates or results are the same bits."""
    return all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))


def kill_workers(cluster, client, samples, expected, kills, rng):
    """Runs in which a random worker is killed at a random moment; another takes its place afterwards."""
    start = time.monotonic()
    relfit.estimate(*samples, rng=0, compute=relfit.Compute(executor=client))
    usual = time.monotonic() - start
    right = 0
    for _ in range(kills):
        timer = threading.Timer(rng.uniform(0.0, usual), cluster.kill_worker, [rng.randrange(2)])
        timer.start()
        found = relfit.estimate(*samples, rng=0, compute=relfit.Compute(executor=client))
        timer.join()
        right += same((found.values, found.covariance), expected)
        cluster.start_worker()
        client.wait_for_workers(2, timeout=120)
    return right


def command(folder, address, *options):
    """The command line as a process, on the cluster, with a checkpoint."""
    files = [str(folder / f"{name}.npy") for name in ("r", "a", "b")]
    place = ["--cluster", address, "--checkpoint", str(folder / "run.sqlite")]
    return [sys.executable, "-c", CLIENT, "compare", *files, "--seed", "0", *place, *options]


def noted(path):
    """The finished parts in a checkpoint: their numbers in the file's own order of writing."""
    if not path.exists():
        return set()
    with Checkpoint(path) as checkpoint:
        return set(checkpoint._connection.execute("SELECT work, patch FROM patches").fetchall())


def executed(client):
    """How many parts the workers have computed so far, once they are idle."""
    while any(client.processing().values()):
        time.sleep(0.05)
    return sum(client.run(lambda dask_worker: dask_worker.state.executed_count).values())


def kill_clients(folder, client, expected, kills, rng):
    """Clients that are killed at a random moment and started again, until one ends by itself.

    Returns how many runs ended right, how many there were, the kills, and how many noted parts were lost, and computed
    once more by the run that ended.
    """
    right = killed = lost = again = rounds = 0
    path, result, address = folder / "run.sqlite", folder / "result.json", client.scheduler.address
    start = time.monotonic()
    subprocess.run(command(folder, address), stdout=subprocess.DEVNULL, check=True, env=ENVIRONMENT)
    usual = time.monotonic() - start
    parts = len(noted(path))
    while killed < kills:
        for file in [*folder.glob("run.sqlite*"), result]:
            file.unlink(missing_ok=True)
        while True:
            before, so_far = noted(path), executed(client)
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
            lost += not before <= noted(path)
        rounds += 1
        again += executed(client) - so_far - (parts - len(before))
        found = relfit.Comparison.from_json(result.read_text(encoding="utf-8")) if result.exists() else None
        right += found is not None and same((found.discrepancy, found.covariance), expected)
    return right, rounds, killed, lost, again


def main():
    """Both, and the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    patches.PATCH_ROWS = patches.BLOCK_ROWS = PATCH
    with tempfile.TemporaryDirectory() as name, running(name, 2) as (cluster, client):
        folder = Path(name)
        samples = problem(folder)
        here = relfit.estimate(*samples, rng=0)
        expected = (here.values, here.covariance)
        workers = kill_workers(cluster, client, samples, expected, options.kills, rng)
        right, rounds, killed, lost, again = kill_clients(folder, client, expected, options.kills, rng)
    text = table(
        ["killed", "kills", "runs that ended", "with the same bits", "noted parts lost", "noted parts computed again"],
        [
            ("a worker, at a random moment", options.kills, options.kills, workers, "", ""),
            ("the client, then the same command again", killed, rounds, right, lost, again),
        ],
    )
    print(text)
    write_text_atomic(PAGE, written(PAGE.read_text(encoding="utf-8"), {"kills": text}))


if __name__ == "__main__":
    main()
