"""Run the trials of an experiment in parallel, store each as it comes, and go on after an interruption."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, NamedTuple

import threadpoolctl

from relfit.paper.store import Store, canonical_json
from relfit.util import progress as shared
from relfit.util.errors import InputError, RelfitError
from relfit.util.progress import Progress

LINE_SECONDS = 30.0  # between two lines where stderr is not a terminal


@contextmanager
def reporting(
    progress: Progress | bool | None, experiment: str, done: int, total: int
) -> Iterator[Callable[[int], None]]:
    """Give a function that is told how many more trials are stored."""
    if progress is None and not sys.stderr.isatty():
        yield _counting(_line_writer(experiment, done), done, total)
        return
    with shared.reporting(True if progress is None else progress, experiment) as update:
        if progress is None and update is not None:
            # What was stored before must not count as speed.
            update(done, total)
        yield _counting(update, done, total)


def _counting(report: Progress | None, done: int, total: int) -> Callable[[int], None]:
    counts = [done]

    def advance(count: int) -> None:
        counts[0] += count
        if report is not None:
            report(counts[0], total)

    return advance


def _line_writer(experiment: str, already: int) -> Progress:
    """Write a line when LINE_SECONDS have passed since the last one, and at the end."""
    start = last = time.monotonic()

    def report(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < LINE_SECONDS and done < total:
            return
        last = now
        left = (now - start) * (total - done) / max(done - already, 1)
        line = f"{experiment}: {done}/{total} trials, {now - start:.0f} s so far, about {left:.0f} s left"
        print(line, file=sys.stderr, flush=True)

    return report


# --------------------
# Run the trials of an experiment in parallel, store each as it comes, and go on after an interruption.
#
# A trial is a pure module-level function of (setting, seed), so a finished one is never run again and the results
# depend neither on the number of workers nor on the order in which they arrive.

Trial = Callable[[dict[str, Any], int], Mapping[str, Any]]

BATCH_SECONDS = 1.0  # short trials travel together, so that a batch lasts about this long
MAX_BATCH = 256


class Outcome(NamedTuple):
    """What a worker sends back for a batch: finished trials, seconds taken, and the failure that ended it."""

    setting: str
    finished: list[tuple[int, dict[str, Any]]]
    seconds: float
    failure: tuple[int, str, str] | None = None


def run_trials(
    store: Store,
    experiment: str,
    settings: Iterable[Mapping[str, Any]],
    trials: int | Iterable[int],
    function: Trial,
    *,
    executor: Any = None,
    progress: Progress | bool | None = None,
    window: int | None = None,
    workers: int | None = None,
) -> list[list[dict[str, Any]]]:
    """Run what is missing of `function(setting, seed)` and return all results, per setting, ordered by seed.

    Args:
        store: where finished trials are kept; its `version` is that of the computation.
        experiment: key of the experiment in the store.
        settings: JSON-able mappings; the function gets each as it reads back from JSON.
        trials: number of trials per setting (seeds 0, 1, …), or the seeds themselves.
        function: module-level, pure, returns a JSON-able mapping.
        executor: any `concurrent.futures.Executor` or a `dask.distributed.Client`, left open; None makes one process
            per core, one thread each.
        progress: None reports on stderr (a bar on a terminal, otherwise a line every half a minute), False is
            silent, a function is called with (trials done, trials in all).
        workers: worker processes where there is no executor; None is one per core.
        window: most batches in flight, by default four per process; raise it for an executor with more workers.

    Returns:
        For each setting the list of results of the asked-for seeds.

    >>> import tempfile
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> def trial(setting, seed):
    ...     return {"sum": setting["n"] + seed}
    >>> with tempfile.TemporaryDirectory() as folder, Store(f"{folder}/s") as store, ThreadPoolExecutor() as pool:
    ...     run_trials(store, "demo", [{"n": 1}, {"n": 5}], 3, trial, executor=pool, progress=False)
    [[{'sum': 1}, {'sum': 2}, {'sum': 3}], [{'sum': 5}, {'sum': 6}, {'sum': 7}]]
    """
    texts = [canonical_json(setting) for setting in settings]
    seeds = _seeds(trials)
    missing = _missing(store, experiment, texts, seeds)
    total = len(seeds) * len(set(texts))
    left = sum(len(each) for each in missing.values())
    if left:
        _check_function(function, executor)
        processes = workers or (len(executor.nthreads()) if hasattr(executor, "nthreads") else _cores())
        with (
            reporting(progress, experiment, total - left, total) as advance,
            _pool(executor, min(processes, left)) as pool,
        ):
            _drive(store, experiment, missing, function, pool, window or 4 * processes, advance)
    return [_results(store, experiment, json.loads(text), seeds) for text in texts]


def _seeds(trials: int | Iterable[int]) -> list[int]:
    if isinstance(trials, int):
        trials = range(trials)
    seeds = sorted({int(seed) for seed in trials})
    if not seeds:
        raise InputError("trials: expected a positive number of trials or a list of seeds; got none")
    return seeds


def _missing(store: Store, experiment: str, texts: Sequence[str], seeds: Sequence[int]) -> dict[str, list[int]]:
    done = {text: store.done(experiment, json.loads(text)) for text in texts}
    return {text: [seed for seed in seeds if seed not in done[text]] for text in done}


def _results(store: Store, experiment: str, setting: Mapping[str, Any], seeds: Sequence[int]) -> list[dict[str, Any]]:
    stored = store.by_seed(experiment, setting)
    return [stored[seed] for seed in seeds]


def _check_function(function: Trial, executor: Any) -> None:
    name = getattr(function, "__qualname__", "")
    if executor is None and ("<locals>" in name or "<lambda>" in name):
        raise InputError(
            f"function: expected a module-level function, which worker processes can import; got {name}; move it "
            "to a module or give a ThreadPoolExecutor"
        )


# --- the main process: a bounded window of batches in flight


def _drive(
    store: Store,
    experiment: str,
    missing: Mapping[str, list[int]],
    function: Trial,
    pool: Executor,
    window: int,
    advance: Callable[[int], None],
) -> None:
    """Submit and collect until nothing is missing; whatever ends it early, finished trials are stored first."""
    pace: dict[str, float] = {}
    running: set[Future[Outcome]] = set()

    def keep(outcome: Outcome) -> None:
        if outcome.finished:
            store.put_many(experiment, json.loads(outcome.setting), outcome.finished)
            pace[outcome.setting] = outcome.seconds / len(outcome.finished)
            advance(len(outcome.finished))

    def collect_some() -> None:
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            outcome = future.result()
            keep(outcome)
            # Not before it is kept: an interrupt inside `keep` leaves the batch to `_drain`.
            running.discard(future)
            _raise_failure(experiment, outcome)

    try:
        for text, seeds in _batches(missing, pace):
            running.add(pool.submit(run_batch, function, text, seeds))
            if len(running) >= window:
                collect_some()
        while running:
            collect_some()
    except KeyboardInterrupt:
        print(f"\n{experiment}: interrupted; the same command resumes (finishing trials under way)", file=sys.stderr)
        _drain(running, keep)
        raise
    except BrokenExecutor as error:
        raise RelfitError(
            f"{experiment}: a worker process ended abruptly, often for want of memory; finished trials are kept; "
            "run the same command to resume, with fewer workers"
        ) from error
    except Exception:
        _drain(running, keep)
        raise


def _batches(missing: Mapping[str, list[int]], pace: Mapping[str, float]) -> Iterator[tuple[str, list[int]]]:
    """(setting, seeds) in order, cut when asked for, so that later batches use what earlier ones took."""
    for text, seeds in missing.items():
        start = 0
        while start < len(seeds):
            size = _batch_size(pace.get(text))
            yield text, seeds[start : start + size]
            start += size


def _batch_size(seconds_per_trial: float | None) -> int:
    """One trial while their time is unknown, then as many as fill BATCH_SECONDS."""
    if seconds_per_trial is None:
        return 1
    return max(1, min(MAX_BATCH, int(BATCH_SECONDS / max(seconds_per_trial, 1e-9))))


def _drain(running: set[Future[Outcome]], keep: Callable[[Outcome], None]) -> None:
    """Cancel what has not started, wait for the rest and keep it; the first error is the one that counts."""
    started = [future for future in running if not future.cancel()]
    for future in wait(started).done:
        if future.exception() is None:
            keep(future.result())


def _raise_failure(experiment: str, outcome: Outcome) -> None:
    if outcome.failure is None:
        return
    seed, message, trace = outcome.failure
    error = RelfitError(
        f"{experiment}: the trial with setting {outcome.setting} and seed {seed} failed: {message}; finished trials "
        "are kept; mend it and run the same command to resume"
    )
    error.add_note(trace)
    raise error


# --- the worker processes


@contextmanager
def _pool(executor: Any, workers: int) -> Iterator[Executor]:
    """The given executor, left open, or worker processes that are closed at the end."""
    if executor is not None:
        yield executor.get_executor() if hasattr(executor, "get_executor") else executor
        return
    # spawn: a fork would copy locks held by BLAS and CUDA threads.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_start_worker)
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _start_worker() -> None:
    """One thread per worker; Ctrl-C is the parent's business; a worker never outlives its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The limits hold for libraries loaded by now, the variables for those that a trial loads later.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    threadpoolctl.threadpool_limits(1)
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def run_batch(function: Trial, setting: str, seeds: Sequence[int]) -> Outcome:
    """Run the trials of one batch, in a worker; a failure ends it and travels back with what was finished."""
    finished: list[tuple[int, dict[str, Any]]] = []
    start = time.perf_counter()
    for seed in seeds:
        try:
            result = json.loads(canonical_json(function(json.loads(setting), seed)))
        except Exception as error:  # noqa: BLE001 - whatever a trial raises is reported with its setting and seed
            message = " ".join(f"{type(error).__name__}: {error}".split())
            failure = (seed, message, traceback.format_exc())
            return Outcome(setting, finished, time.perf_counter() - start, failure)
        finished.append((seed, result))
    return Outcome(setting, finished, time.perf_counter() - start)
