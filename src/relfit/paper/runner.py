"""Run the trials of an experiment in parallel and store each as it finishes; the same call
resumes after a stop.

A trial is a pure module-level function of (setting, seed), so a finished one is never run
again and the results depend neither on the number of workers nor on the order in which they
arrive.

The store is an SQLite file with one row per finished trial, keyed by (experiment, version,
setting, seed). It is in WAL mode with synchronous=FULL: once `put_many` returns, the rows
survive kill -9 and a power cut. Any number of processes may write to one file on a local
disk (WAL does not work over network file systems).
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from contextlib import contextmanager
from typing import Any

import threadpoolctl

from relfit.compute.schedulers import Processes, check_workers, start_worker
from relfit.util.errors import InputError, RelfitError
from relfit.util.files import Database, Format
from relfit.util.libraries import usable_cores
from relfit.util.progress import Progress, reporting

_CREATE = """
CREATE TABLE trials (
    experiment TEXT NOT NULL,
    version TEXT NOT NULL,
    setting TEXT NOT NULL,
    seed INTEGER NOT NULL,
    result TEXT NOT NULL,
    PRIMARY KEY (experiment, version, setting, seed)
) WITHOUT ROWID
"""
# The number is "relf".
STORE = Format("path", "a store of relfit", 0x72656C66, 1, _CREATE)
_INSERT = "INSERT INTO trials VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
_SELECT = (
    "SELECT seed, result FROM trials WHERE experiment = ? AND version = ? AND setting = "
    "? ORDER BY seed"
)

LINE_SECONDS = 30.0  # between two progress lines where stderr is not a terminal
# Trials in flight for each process, so that short ones are stored many at a time.
WINDOW = 64

Trial = Callable[[dict[str, Any], int], Mapping[str, Any]]


def canonical_json(value: Mapping[str, Any]) -> str:
    """`value` as JSON text, the same for equal mappings: keys sorted, no spaces, NumPy
    values made plain.

    >>> canonical_json({"n": 500, "angle": 0.5})
    '{"angle":0.5,"n":500}'
    """
    try:
        return json.dumps(
            dict(value), sort_keys=True, separators=(",", ":"), allow_nan=False, default=_plain
        )
    except (TypeError, ValueError) as error:
        raise InputError(
            f"expected finite numbers, text, lists and mappings that JSON can hold; got "
            f"{value!r} ({error}); "
            "write None where a number does not exist"
        ) from error


def _plain(value: object) -> object:
    """NumPy scalars and arrays, without importing numpy: both have `tolist`."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not JSON")


class Store(Database):
    """An open store file; use it as a context manager.

    `version` names the version of the computation. Rows of another version stay in the file
    but are neither counted as done nor returned, so results of two versions are never mixed:
    raise it when a change of the code changes the numbers.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, Store(f"{folder}/store.sqlite") as store:
    ...     store.put_many("demo", {"n": 50}, [(0, {"worse": 1})])
    ...     store.by_seed("demo", {"n": 50})
    {0: {'worse': 1}}
    """

    def __init__(self, path: str | os.PathLike[str], *, version: str = "1") -> None:
        super().__init__(path, STORE)
        self.version = version

    def put_many(
        self,
        experiment: str,
        setting: Mapping[str, Any],
        trials: Iterable[tuple[int, Mapping[str, Any]]],
    ) -> None:
        """Store (seed, result) pairs of one setting in one transaction; a trial that is
        stored already is kept.
        """
        key = (experiment, self.version, canonical_json(setting))
        rows = [(*key, int(seed), canonical_json(result)) for seed, result in trials]
        with self.transaction() as connection:
            connection.executemany(_INSERT, rows)

    def results(self, experiment: str, setting: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The stored results, ordered by seed."""
        return list(self.by_seed(experiment, setting).values())

    def by_seed(self, experiment: str, setting: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
        """The stored results by seed, in the order of the seeds."""
        key = (experiment, self.version, canonical_json(setting))
        return {seed: json.loads(text) for seed, text in self.connection.execute(_SELECT, key)}


def run_trials(
    store: Store,
    experiment: str,
    settings: Iterable[Mapping[str, Any]],
    trials: int,
    function: Trial,
    *,
    executor: Any = None,
    progress: Progress | bool | None = None,
    workers: int | None = None,
    first_seed: int = 0,
) -> list[list[dict[str, Any]]]:
    """Run what is missing of `function(setting, seed)` and return all results, per setting,
    ordered by seed.

    Args:
        store: where finished trials are kept; its `version` is that of the computation.
        experiment: key of the experiment in the store.
        settings: JSON-able mappings; the function gets each as it reads back from JSON.
        trials: number of trials per setting.
        function: module-level, pure, returns a JSON-able mapping.
        executor: any `concurrent.futures.Executor` or a `dask.distributed.Client`, left
            open; None starts one process per core, one thread each.
        progress: None reports on stderr (a bar on a terminal, otherwise a line every half a
            minute), False is silent, a function is called with (trials done, trials in all).
        workers: worker processes where there is no executor; None is one per core.
        first_seed: the seed of the first trial; the others follow.

    >>> import tempfile
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> def trial(setting, seed):
    ...     return {"sum": setting["n"] + seed}
    >>> with (
    ...     tempfile.TemporaryDirectory() as folder,
    ...     Store(f"{folder}/s") as store,
    ...     ThreadPoolExecutor() as pool,
    ... ):
    ...     run_trials(
    ...         store, "demo", [{"n": 1}, {"n": 5}], 3, trial, executor=pool, progress=False
    ...     )
    [[{'sum': 1}, {'sum': 2}, {'sum': 3}], [{'sum': 5}, {'sum': 6}, {'sum': 7}]]
    """
    texts = [canonical_json(setting) for setting in settings]
    seeds = range(first_seed, first_seed + trials)
    missing = []
    for text in dict.fromkeys(texts):
        done = store.by_seed(experiment, json.loads(text))
        missing += [(text, seed) for seed in seeds if seed not in done]
    if missing:
        processes = workers or (
            len(executor.nthreads()) if hasattr(executor, "nthreads") else usable_cores()
        )
        total = trials * len(set(texts))
        with (
            _advancing(progress, experiment, total - len(missing), total) as advance,
            _pool(executor, min(processes, len(missing))) as pool,
        ):
            _drive(store, experiment, missing, function, pool, WINDOW * processes, advance)
    stored = [store.by_seed(experiment, json.loads(text)) for text in texts]
    return [[results[seed] for seed in seeds] for results in stored]


# The setting of a trial, its seed and its result.
_Finished = tuple[str, int, dict[str, Any]]


def _drive(
    store: Store,
    experiment: str,
    missing: Sequence[tuple[str, int]],
    function: Trial,
    pool: Executor,
    window: int,
    advance: Callable[[int], None],
) -> None:
    """Submit and collect until nothing is missing; whatever ends it early, finished trials
    are stored first.
    """
    running: set[Future[_Finished]] = set()

    def keep(futures: Iterable[Future[_Finished]]) -> None:
        found = defaultdict(list)
        for future in futures:
            if future.exception() is None:
                text, seed, result = future.result()
                found[text].append((seed, result))
        for text, results in found.items():
            store.put_many(experiment, json.loads(text), results)
            advance(len(results))

    def collect_some() -> None:
        done = wait(running, return_when=FIRST_COMPLETED).done
        keep(done)
        # Not before they are kept: an interrupt inside `keep` leaves them to `drain`.
        running.difference_update(done)
        for future in done:
            future.result()

    def drain() -> None:
        """Cancel what has not started, wait for the rest and keep it."""
        keep(wait([future for future in running if not future.cancel()]).done)

    try:
        for text, seed in missing:
            running.add(pool.submit(_run_trial, experiment, function, text, seed))
            if len(running) >= window:
                collect_some()
        while running:
            collect_some()
    except KeyboardInterrupt:
        print(
            f"\n{experiment}: interrupted; the same command resumes (finishing trials "
            f"under way)",
            file=sys.stderr,
        )
        drain()
        raise
    except BrokenExecutor as error:
        raise RelfitError(
            f"{experiment}: a worker process ended abruptly, often because memory ran out; "
            f"finished trials are kept; "
            "run the same command to resume, with fewer workers"
        ) from error
    except Exception:
        drain()
        raise


def _run_trial(experiment: str, function: Trial, setting: str, seed: int) -> _Finished:
    """Run one trial, in a worker."""
    try:
        result = canonical_json(function(json.loads(setting), seed))
    # Whatever a trial raises is reported with its setting and seed.
    except Exception as error:
        message = " ".join(f"{type(error).__name__}: {error}".split())
        failure = RelfitError(
            f"{experiment}: the trial with setting {setting} and seed {seed} failed: "
            f"{message}; finished trials are kept; fix it and run the same command to resume"
        )
        failure.add_note(traceback.format_exc())
        raise failure from error
    return setting, seed, json.loads(result)


@contextmanager
def _pool(executor: Any, workers: int) -> Iterator[Executor]:
    """The given executor, left open, or worker processes that are closed at the end."""
    if executor is not None:
        if hasattr(executor, "scheduler_info"):
            check_workers(executor)
        yield executor.get_executor() if hasattr(executor, "get_executor") else executor
        return
    pool = Processes(workers, _start_worker)
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _start_worker() -> None:
    """One thread per worker."""
    start_worker()
    # The limits hold for libraries loaded by now, the variables for those that a trial loads
    # later.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    threadpoolctl.threadpool_limits(1)


@contextmanager
def _advancing(
    progress: Progress | bool | None, experiment: str, done: int, total: int
) -> Iterator[Callable[[int], None]]:
    """A function to call with the number of trials that have been stored since its last
    call.
    """
    if progress is None:
        progress = sys.stderr.isatty() or _lines(experiment, done)
    with reporting(progress, experiment) as report:
        show = report or (lambda *_: None)
        # What was stored before must not count as speed.
        show(done, total)

        def advance(count: int) -> None:
            nonlocal done
            done += count
            show(done, total)

        yield advance


def _lines(experiment: str, already: int) -> Progress:
    """Progress as a line every half a minute, where there is no terminal for a bar."""
    start = time.monotonic()
    last = start

    def report(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if done == total or now - last >= LINE_SECONDS:
            last = now
            left = (now - start) * (total - done) / max(done - already, 1)
            line = (
                f"{experiment}: {done}/{total} trials, {now - start:.0f} s so far, "
                f"about {left:.0f} s left"
            )
            print(line, file=sys.stderr, flush=True)

    return report
