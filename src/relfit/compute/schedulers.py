"""Schedulers: threads of this process, other processes, and Dask clusters, behind one loop
that keeps the order.

`in_order` submits tasks, a bounded number at a time, and gives their results in the order of
the tasks, whatever the order in which they finish. Sums that are added up from it therefore
have the same bits for any number of workers.

Threads compute blocks of kernel matrices in this process. A `Scheduler` sends larger tasks
elsewhere: `ProcessScheduler` to any `concurrent.futures.Executor` whose workers see the same
files (local processes, joblib's loky, MPI), `DaskScheduler` to the workers of a
dask.distributed client, where work lost with a worker is resubmitted. `Processes` are our own
workers: how they are started and ended, and what each of them does first.
"""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import pkgutil
import signal
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import (
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing import active_children, get_context, parent_process
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any, TypeVar

from relfit.compute.memory import MappedRows, mapped_rows, seen_here, spilled
from relfit.util import __version__
from relfit.util.arrays import is_mapped, parts
from relfit.util.errors import InputError, RelfitError, WorkersLost
from relfit.util.files import remove_abandoned, temporary_folder
from relfit.util.libraries import has_cuda, usable_cores
from relfit.util.text import first_line

T = TypeVar("T")

# Seconds that a cluster may be without any worker, and between two looks at it while waiting.
WORKER_TIMEOUT = 60.0
POLL_INTERVAL = 2.0
# Looks in a row at which all workers may be idle while a task waits: twenty seconds, enough for
# any result to arrive.
IDLE_POLLS = 10
# Times that a task may be submitted, if it is lost with its worker each time.
ATTEMPTS = 5
# The fraction of a worker's memory that rows and one task may fill: Dask pauses workers at 0.8.
USABLE_MEMORY = 0.6
RESUME_ADVICE = "with a checkpoint, the same call resumes from there"


def _first_result(futures: Sequence[Future[Any]]) -> Any:
    try:
        return futures[0].result()
    except BrokenExecutor as error:
        raise WorkersLost(
            f"executor: a worker process ended without a result, killed or out of memory; "
            f"{RESUME_ADVICE} ({error})"
        ) from error


def _cancel_futures(futures: Iterable[Future[Any]]) -> None:
    for future in futures:
        future.cancel()


def in_order(
    tasks: Iterable[T],
    submit: Callable[[T], Any],
    in_flight: Callable[[], int],
    first_result: Callable[[Sequence[Any]], Any] = _first_result,
    cancel: Callable[[Sequence[Any]], None] = _cancel_futures,
) -> Generator[tuple[T, Any]]:
    """Every task in turn with its result.

    A task is taken and submitted only while fewer than `in_flight()` are unfinished, so that
    few are held at a time. `first_result` waits for the first of the unfinished ones. On an
    error, and when the generator is closed, they are cancelled.

    >>> with ThreadPoolExecutor(2) as threads:
    ...     list(in_order([3, 2], lambda x: threads.submit(pow, x, 2), in_flight=lambda: 4))
    [(3, 9), (2, 4)]
    """
    remaining = iter(tasks)
    unfinished: deque[T] = deque()
    handles: deque[Any] = deque()
    try:
        while True:
            for task in islice(remaining, max(0, in_flight() - len(handles))):
                handles.append(submit(task))
                unfinished.append(task)
            if not handles:
                return
            result = first_result(handles)
            handles.popleft()
            yield unfinished.popleft(), result
    finally:
        cancel(handles)


@dataclass(frozen=True)
class Task:
    """A call for a worker elsewhere: ``function(sources, *arguments)``.

    `sources` are arrays or rows in files that many tasks share; the call gets those numbered
    in `reads`, and None in place of the others. `memory` is the number of bytes that it
    needs besides them.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    reads: tuple[int, ...]
    memory: float = 0.0

    def call(self, sources: Sequence[Any]) -> tuple[Any, ...]:
        """The function and its arguments."""
        return (
            self.function,
            [rows if k in self.reads else None for k, rows in enumerate(sources)],
            *self.arguments,
        )


def scheduler_for(executor: Any) -> Scheduler | None:
    """The scheduler for the user's executor; None for no executor and for threads, which
    compute in this process.
    """
    if any(cls.__module__.startswith("distributed") for cls in type(executor).__mro__):
        # A client, or an executor that belongs to one.
        client = getattr(executor, "_client", executor)
        if getattr(client, "asynchronous", False):
            raise InputError(
                "executor: expected a synchronous Client, got one with asynchronous=True"
            )
        if hasattr(client, "scatter"):
            return DaskScheduler(client)
    if executor is None or isinstance(executor, ThreadPoolExecutor):
        return None
    if isinstance(executor, Executor):
        return ProcessScheduler(executor)
    raise InputError(
        "executor: expected a concurrent.futures.Executor, a dask.distributed.Client or None, "
        f"got {type(executor).__name__}"
    )


@dataclass(frozen=True)
class ProcessScheduler:
    """Tasks on an executor, whose processes read rows from files; arrays in memory are
    written to temporary files.
    """

    executor: Executor

    def has_devices(self) -> bool:
        """True if this machine has a CUDA device: the processes are assumed to be on it, or
        on machines like it.
        """
        return has_cuda()

    def results(self, tasks: Sequence[Task], sources: Sequence[Any]) -> Generator[Any]:
        """The result of every task in turn."""
        try:
            pickle.dumps([task.arguments for task in tasks[:1]])
        # Objects that cannot be pickled raise many kinds of errors.
        except Exception as error:  # noqa: BLE001
            raise InputError(
                f"executor: the kernel cannot be sent to other processes ({error}); use "
                f"functions that can be "
                "imported, or threads"
            ) from None
        in_flight = 2 * int(getattr(self.executor, "_max_workers", None) or usable_cores()) + 2
        with temporary_folder() as folder:
            files = [_in_file(source, folder) for source in sources]

            def submit(task: Task) -> Future[Any]:
                try:
                    return self.executor.submit(*task.call(files))
                except (BrokenExecutor, RuntimeError) as error:
                    raise WorkersLost(f"executor: accepts no more work ({error})") from error

            with closing(in_order(tasks, submit, lambda: in_flight)) as finished:
                for _, result in finished:
                    yield result


def _in_file(source: Any, folder: Path) -> MappedRows | None:
    there = mapped_rows(source)
    if there is not None:
        return there
    return mapped_rows(spilled((source[part] for part in parts(source.shape)), folder))


@dataclass(frozen=True)
class DaskScheduler:
    """Tasks on the workers of a dask.distributed client."""

    client: Any

    def has_devices(self) -> bool:
        """True if every worker has a CUDA device."""
        with contextlib.suppress(Exception):
            answers = self.client.run(has_cuda)
            return bool(answers) and all(answers.values())
        return False

    def results(self, tasks: Sequence[Task], sources: Sequence[Any]) -> Generator[Any]:
        check_workers(self.client)
        _check_memory(self.client, tasks, sources)
        run = _DaskRun(self.client, sources, set(_workers(self.client)))
        with closing(
            in_order(tasks, _Submission, run.in_flight, run.first_result, run.cancel)
        ) as finished:
            for _, result in finished:
                yield result


Scheduler = ProcessScheduler | DaskScheduler


@dataclass
class _Submission:
    """A task; `future` is None before it is submitted, and again once it is lost."""

    task: Task
    future: Any = None


@dataclass
class _DaskRun:
    """One run on a cluster; `sent` are the sources as its workers get them, `known` the
    workers that were checked.
    """

    client: Any
    sources: Sequence[Any]
    known: set[str] = field(default_factory=set)
    sent: list[Any] = field(default_factory=list)

    def in_flight(self) -> int:
        workers = _workers(self.client)
        check_workers(self.client, workers.keys() - self.known)
        self.known |= workers.keys()
        return 2 * max(1, sum(int(worker["nthreads"]) for worker in workers.values())) + 2

    def first_result(self, submissions: Sequence[_Submission]) -> Any:
        """Submit what is new or was lost, and wait for the first task. After a loss,
        everything is submitted again.
        """
        lost: _Lost | None = None
        for _ in range(ATTEMPTS):
            try:
                self.sent = self.sent or self._send()
                for submission in submissions:
                    if submission.future is None:
                        call = submission.task.call(self.sent)
                        with _losses():
                            submission.future = self.client.submit(
                                *call, pure=False, key=f"relfit-{uuid.uuid4().hex}"
                            )
                return self._wait(submissions[0].future)
            except _Lost as error:
                lost = error
                self.cancel(submissions)
        raise WorkersLost(
            f"executor: the same part of the work was lost {ATTEMPTS} times ({lost}); this "
            f"happens when workers run "
            f"out of memory: give memory= for smaller parts; {RESUME_ADVICE}"
        ) from lost

    def cancel(self, submissions: Sequence[_Submission]) -> None:
        """Withdraw these tasks, and the rows that were sent: a worker that held them may be
        gone.
        """
        held = [*self.sent, *(submission.future for submission in submissions)]
        self.sent = []
        # A cluster that no longer exists raises many kinds of errors; there is nothing to
        # withdraw then.
        with contextlib.suppress(Exception):
            self.client.cancel([each for each in held if hasattr(each, "release")])
        for submission in submissions:
            submission.future = None

    def _send(self) -> list[Any]:
        """The sources as workers get them, once there is a worker: a file that every worker
        sees by its path.

        Other rows go to one worker each, from where the rest fetch them when they first need
        them.
        """
        start = time.monotonic()
        while not _workers(self.client):
            if getattr(self.client, "status", "closed") in ("closed", "closing"):
                raise WorkersLost(
                    f"executor: the connection to the cluster is lost; {RESUME_ADVICE}"
                )
            if time.monotonic() - start > WORKER_TIMEOUT:
                raise _no_workers()
            time.sleep(POLL_INTERVAL / 4)
        self.in_flight()  # Workers that have come meanwhile are checked.
        sent: list[Any] = [mapped_rows(rows) for rows in self.sources]
        mapped = [rows for rows in sent if rows is not None]
        with _losses():
            shared = bool(mapped) and all(self.client.run(seen_here, mapped).values())
            arrays = [k for k, rows in enumerate(sent) if rows is None or not shared]
            if arrays:
                futures = self.client.scatter([self.sources[k] for k in arrays], hash=False)
                for k, future in zip(arrays, futures, strict=True):
                    sent[k] = future
        return sent

    def _wait(self, future: Any) -> Any:
        last_seen = time.monotonic()
        idle = 0
        while True:
            try:
                with _losses():
                    return future.result(timeout=POLL_INTERVAL)
            except TimeoutError:
                # A scheduler that has just lost a worker may leave a task queued for ever while
                # other workers are idle, and a finished task's result may have been lost with
                # its worker.
                idle = idle + 1 if _all_idle(self.client) else 0
                if idle >= IDLE_POLLS:
                    raise _Lost(
                        "the scheduler left it waiting while workers were idle"
                    ) from None
                if _workers(self.client):
                    last_seen = time.monotonic()
                elif time.monotonic() - last_seen > WORKER_TIMEOUT:
                    raise _no_workers() from None


def _no_workers() -> WorkersLost:
    return WorkersLost(
        f"executor: the cluster has had no workers for {WORKER_TIMEOUT:.0f} s; {RESUME_ADVICE}"
    )


class _Lost(Exception):
    """A worker is gone, and a task or rows with it."""


_LOSS_NAMES = (
    "KilledWorker",
    "FutureCancelledError",
    "CommClosedError",
    "FutureLostError",
    "NoValidWorkerError",
)


@contextmanager
def _losses() -> Iterator[None]:
    """Turn the many errors by which Dask says that something is lost into `_Lost`."""
    try:
        yield
    except (RelfitError, TimeoutError):
        raise
    except BaseException as error:
        if isinstance(error, CancelledError | OSError) or type(error).__name__ in _LOSS_NAMES:
            raise _Lost(str(error) or type(error).__name__) from error
        raise


def _workers(client: Any) -> dict[str, Any]:
    """The workers that the scheduler knows; none if it is gone, which raises many kinds of
    errors.

    The client's own list is no help: it is the last that was heard.
    """
    with contextlib.suppress(Exception):
        if client.status == "running":
            return dict(client.sync(client.scheduler.identity, n_workers=-1)["workers"])
    return {}


def _all_idle(client: Any) -> bool:
    """True if there are workers and none of them has anything to do; False if the scheduler
    is gone.
    """
    with contextlib.suppress(Exception):
        tasks = client.processing().values()
        return bool(tasks) and not any(tasks)
    return False


def check_workers(client: Any, addresses: Iterable[str] | None = None) -> None:
    """Refuse workers, by default all, with no relfit or with another version of it, whose
    answer may differ.
    """
    asked = None if addresses is None else list(addresses)
    if asked == []:
        return
    advice = f"install relfit {__version__} there, as it is here"
    for name in ("relfit.util:__version__", "relfit.compute.reduce:patch_sums"):
        answers: dict[str, Any] = {}
        # A worker that is lost is noticed later.
        with contextlib.suppress(OSError, TimeoutError):
            # A function of Python itself, which every worker has.
            answers = client.run(pkgutil.resolve_name, name, workers=asked, on_error="return")
        for address, answer in answers.items():
            if isinstance(answer, Exception) and not isinstance(answer, OSError | TimeoutError):
                why = f"{type(answer).__name__}: {first_line(answer)}"
                raise InputError(
                    f"executor: worker {address} cannot load relfit ({why}); {advice}"
                )
            if isinstance(answer, str) and answer != __version__:
                raise InputError(
                    f"executor: worker {address} has relfit {answer}, and "
                    f"answers may differ; {advice}"
                )


def _check_memory(client: Any, tasks: Sequence[Task], sources: Sequence[Any]) -> None:
    """Refuse tasks that do not fit into a worker's memory, before the worker is killed for
    them.
    """
    sent = [0 if is_mapped(rows) else 8 * math.prod(rows.shape) for rows in sources]
    needed = max(task.memory + sum(sent[k] for k in task.reads) for task in tasks)
    for address, worker in _workers(client).items():
        limit = worker.get("memory_limit") or 0
        if limit and needed > USABLE_MEMORY * limit:
            raise InputError(
                f"executor: worker {address} has {limit / 1e9:.3g} GB and needs about "
                f"{needed / USABLE_MEMORY / 1e9:.3g} GB for these rows; give it more memory, "
                f"start fewer workers, or "
                "give memory= for smaller parts"
            )


# ── processes ────────────────────────────────────────────────────────────────────────────────────

_REMOVING = threading.Lock()
_MOST_SECONDS = 5.0
_SIGNALS = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]


class Processes(ProcessPoolExecutor):
    """Worker processes, each started for a task; spawned, because a fork would copy locks of
    BLAS and CUDA threads.
    """

    def __init__(self, workers: int, first: Callable[[], None] | None = None) -> None:
        super().__init__(workers, get_context("spawn"), first or start_worker)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        with _signals_later():
            return super().submit(fn, *args, **kwargs)

    def end(self) -> None:
        """End them at once, without waiting for their work."""
        manager: threading.Thread | None = getattr(self, "_executor_manager_thread", None)
        # Once only: another call, as at the end of a `with` block, would forget that the
        # waiting work is withdrawn.
        self.shutdown(wait=False, cancel_futures=True)
        for process in active_children():
            process.kill()
        if manager is not None:
            manager.join()


@contextmanager
def _signals_later() -> Iterator[None]:
    """Signals come after the block: half a start, and a process that is still importing,
    would show a traceback.

    A process that is started in the block has them blocked until `start_worker`.
    """
    if (
        not hasattr(signal, "pthread_sigmask")
        or threading.current_thread() is not threading.main_thread()
    ):
        yield
        return
    came: list[int] = []
    handlers = {
        number: signal.signal(number, lambda number, _: came.append(number))
        for number in _SIGNALS
    }
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number in came:
            signal.raise_signal(number)


def start_worker() -> None:
    """The parent handles Ctrl-C; a worker never outlives its parent, and removes what a
    killed one left.

    A worker that waits for work notices that its parent is gone and ends by itself. It then
    removes what was left, too: its end would stop the thread in the middle of that.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    Finalize(None, _remove_left, exitpriority=100)


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        _remove_left()
        os._exit(1)


def _remove_left() -> None:
    parent = parent_process()
    if parent is not None and not parent.is_alive():
        deadline = time.monotonic() + _MOST_SECONDS
        # It gives up its locks after the pipe that told of its end, and its children after its
        # locks.
        while os.getppid() == parent.pid and time.monotonic() < deadline:
            time.sleep(0.01)
        with _REMOVING:
            remove_abandoned()
