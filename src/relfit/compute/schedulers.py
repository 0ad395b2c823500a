"""Workers in other processes and on other machines, which compute patches of kernel matrices."""

from __future__ import annotations

import contextlib
import math
import pickle
import tempfile
import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from relfit.compute.backend import Backend
from relfit.compute.choice import DEVICE_SCALE, LocalBackend
from relfit.compute.patches import Crew, Patch, Sums, Work, patch_sums, sources_for
from relfit.compute.rows import StoredRows, mapped_rows, parts, seen_here, written_rows
from relfit.compute.tiles import Runtime
from relfit.util.errors import InputError, RelfitError, WorkersLost
from relfit.util.libraries import has_cuda, usable_cores


def crew_of(executor: Any) -> Crew | None:
    """Who computes patches for this executor; None for none, and for threads, which take blocks in this process."""
    client = _client(executor)
    if client is not None:
        return ClusterCrew(client)
    if executor is None or isinstance(executor, ThreadPoolExecutor):
        return None
    if isinstance(executor, Executor):
        return ProcessCrew(executor)
    raise InputError(
        "executor: expected a concurrent.futures.Executor, a dask.distributed.Client or None, "
        f"got {type(executor).__name__}"
    )


def _client(executor: Any) -> Any:
    """The dask.distributed client that this is, or whose executor this is."""
    if not any(cls.__module__.startswith("distributed") for cls in type(executor).__mro__):
        return None
    client = getattr(executor, "_client", executor)
    if getattr(client, "asynchronous", False):
        raise InputError("executor: expected a Client that waits for answers, got one with asynchronous=True")
    return client if hasattr(client, "scatter") else None


# --------------------
# Any `concurrent.futures.Executor` whose workers see the same files: local processes, joblib's loky, MPI.


@dataclass(frozen=True)
class ProcessCrew:
    """Patches by an executor. Every process reads the rows it needs from their files.

    Arrays that are not a mapped file are written once to a temporary folder.
    """

    executor: Executor

    def scale(self, backend: Backend) -> int:
        """See `Crew`; the processes are taken to be on this machine, or on machines like it."""
        return DEVICE_SCALE if isinstance(backend, LocalBackend) and has_cuda() else 1

    def sums(self, work: Work, runtime: Runtime) -> Generator[Sums]:
        """The sums of every patch in turn."""
        _check_sendable(work, runtime)
        with _in_files(work.sources) as sources:
            waiting: deque[Future[Sums]] = deque()
            given = iter(work.patches)
            done = 0
            try:
                for patch in work.patches:
                    for another in islice(given, self._in_flight - len(waiting)):
                        waiting.append(self._submit(work, runtime, sources_for(work, another, sources), another))
                    found = _result(waiting.popleft())
                    done += patch.pairs
                    if runtime.progress is not None:
                        runtime.progress(work.measure.passes * done, work.pairs)
                    yield found
            finally:
                for future in waiting:
                    future.cancel()

    @property
    def _in_flight(self) -> int:
        return 2 * int(getattr(self.executor, "_max_workers", None) or usable_cores()) + 2

    def _submit(self, work: Work, runtime: Runtime, sources: Sequence[Any], patch: Any) -> Future[Sums]:
        try:
            return self.executor.submit(patch_sums, work.measure, sources, patch, runtime.backend, runtime.memory)
        except (BrokenExecutor, RuntimeError) as error:
            raise WorkersLost(f"executor: takes no more work ({error})") from error


def _result(future: Future[Sums]) -> Sums:
    try:
        return future.result()
    except BrokenExecutor as error:
        raise WorkersLost(
            "executor: a worker process ended without an answer, killed or out of memory; with a checkpoint the same "
            f"call goes on from there ({error})"
        ) from error


def _check_sendable(work: Work, runtime: Runtime) -> None:
    try:
        pickle.dumps((work.measure, runtime.backend))
    except Exception as error:  # noqa: BLE001  (what cannot be pickled says so in many ways)
        raise InputError(
            f"executor: the kernel cannot be sent to other processes ({error}); use functions that can be imported, "
            "or threads"
        ) from None


@contextmanager
def _in_files(sources: Sequence[Any]) -> Iterator[list[Any]]:
    """The sources as rows in files; those in memory are written to a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="relfit-") as folder:
        yield [_stored(source, Path(folder)) for source in sources]


def _stored(source: Any, folder: Path) -> StoredRows:
    if isinstance(source, StoredRows):
        return source
    return mapped_rows(source) or written_rows((source[part] for part in parts(source.shape)), folder)


# --------------------
# A dask.distributed cluster. Rows reach every worker once, or by their file's path; lost workers are made up for.

# How long a cluster may be without any worker, and how often it is looked at meanwhile.
PATIENCE, GLANCE = 60.0, 2.0
# Times in a row that all workers may be seen idle while a patch waits: twenty seconds, enough for any answer to arrive.
IDLE_GLANCES = 10
# Times that a patch may be lost with its worker.
ATTEMPTS = 5
# Of a worker's memory, the part that rows and one patch may fill: Dask pauses workers at 0.8 of it.
USABLE = 0.6
ADVICE = "with a checkpoint the same call goes on from there"


@dataclass(frozen=True)
class ClusterCrew:
    """Patches by the workers of a dask.distributed client."""

    client: Any
    patience: float = PATIENCE

    def scale(self, backend: Backend) -> int:
        """See `Crew`."""
        if not isinstance(backend, LocalBackend):
            return 1
        with contextlib.suppress(Exception):
            answers = self.client.run(has_cuda)
            return DEVICE_SCALE if answers and all(answers.values()) else 1
        return 1

    def sums(self, work: Work, runtime: Runtime) -> Generator[Sums]:
        """The sums of every patch in turn."""
        _check_room(self.client, work)
        shift = _Shift(self.client, work, runtime, self.patience)
        done = 0
        try:
            for patch in work.patches:
                found = shift.next_result()
                done += patch.pairs
                if runtime.progress is not None:
                    runtime.progress(work.measure.passes * done, work.pairs)
                yield found
        finally:
            shift.stop()


@dataclass
class _Given:
    """A patch that was handed out; its future is None where that was lost."""

    patch: Patch
    future: Any = None


@dataclass
class _Shift:
    """One work on the cluster: what is scattered, and what was handed out and not come back."""

    client: Any
    work: Work
    runtime: Runtime
    patience: float
    sources: list[Any] = field(default_factory=list)
    given: deque[_Given] = field(default_factory=deque)
    handed_out: int = 0

    def next_result(self) -> Sums:
        """The sums of the first patch that has not been asked for yet; what is lost meanwhile is handed out again."""
        for attempt in range(1, 1 + ATTEMPTS):
            try:
                self._hand_out()
                found = self._wait(self.given[0])
            except _Lost as error:
                if attempt == ATTEMPTS:
                    raise WorkersLost(
                        f"executor: the same part of the work was lost {ATTEMPTS} times ({error}); workers with too "
                        f"little memory end like this: give memory= for smaller parts; {ADVICE}"
                    ) from error
                self.stop()
            else:
                break
        self.given.popleft()
        return found

    def stop(self) -> None:
        """Take back what has not come, and the rows."""
        rows = [source for source in self.sources if hasattr(source, "release")]
        self.sources = []
        # The cluster may be gone, and says so in many ways; there is nothing to take back then.
        with contextlib.suppress(Exception):
            self.client.cancel([*(given.future for given in self.given if given.future is not None), *rows])
        for given in self.given:
            given.future = None

    def _hand_out(self) -> None:
        """Keep two patches for every thread of the cluster with it; rows went with the worker that held them."""
        if not self.sources:
            self.sources = self._scattered()
        for given in self.given:
            given.future = self._submit(given.patch) if given.future is None else given.future
        wanted = 2 * max(1, sum(worker["nthreads"] for worker in _workers(self.client).values())) + 2
        while len(self.given) < wanted and self.handed_out < len(self.work.patches):
            patch = self.work.patches[self.handed_out]
            self.given.append(_Given(patch, self._submit(patch)))
            self.handed_out += 1

    def _scattered(self) -> list[Any]:
        """Rows in a file by its path; others sent to one worker each, from where the rest fetch them when first needed.

        A file counts as such where every worker sees it.
        """
        self._require_workers()
        sources = list(self.work.sources)
        files = {k: mapped_rows(rows) for k, rows in enumerate(sources) if not isinstance(rows, StoredRows)}
        with _losses():
            found = [rows for rows in files.values() if rows is not None]
            shared = bool(found) and all(self.client.run(seen_here, found).values())
            arrays = [k for k, rows in files.items() if rows is None or not shared]
            futures = self.client.scatter([sources[k] for k in arrays], hash=False) if arrays else []
        sent: dict[int, Any] = {**files, **dict(zip(arrays, futures, strict=True))}
        return [sent.get(k, rows) for k, rows in enumerate(sources)]

    def _submit(self, patch: Patch) -> Any:
        runtime = self.runtime
        sources = sources_for(self.work, patch, self.sources)
        with _losses():
            return self.client.submit(
                *(patch_sums, self.work.measure, sources, patch, runtime.backend, runtime.memory),
                pure=False,
                key=f"relfit-{id(self)}-{patch.x}-{patch.y}-{patch.i[0]}-{patch.j[0]}-{time.monotonic_ns()}",
            )

    def _wait(self, given: _Given) -> Sums:
        lonely, idle = None, 0
        while True:
            try:
                with _losses():
                    found: Sums = given.future.result(timeout=GLANCE)
                    return found
            except TimeoutError:
                # A scheduler that has just lost a worker may leave a task queued for ever while the others are idle,
                # and the future call itself finished: its answer went with the worker.
                idle = idle + 1 if _all_idle(self.client) else 0
                if idle >= IDLE_GLANCES:
                    raise _Lost("left waiting by the scheduler while workers were idle") from None
                lonely = None if _workers(self.client) else (lonely or time.monotonic())
                if lonely is not None and time.monotonic() - lonely > self.patience:
                    raise WorkersLost(
                        f"executor: the cluster has had no workers for {self.patience:.0f} s; {ADVICE}"
                    ) from None

    def _require_workers(self) -> None:
        """Wait for a worker, or give up."""
        start = time.monotonic()
        while not _workers(self.client):
            if getattr(self.client, "status", "closed") in ("closed", "closing"):
                raise WorkersLost(f"executor: the connection to the cluster is lost; {ADVICE}")
            if time.monotonic() - start > self.patience:
                raise WorkersLost(f"executor: the cluster has had no workers for {self.patience:.0f} s; {ADVICE}")
            time.sleep(GLANCE / 4)


class _Lost(Exception):
    """A worker, and what it held, is gone."""


class _losses:  # noqa: N801  (used like a function)
    """Turn the many ways in which Dask says that something is gone into one."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, RelfitError | TimeoutError):
            return
        ours = isinstance(error, CancelledError | OSError) or type(error).__name__ in _NAMES
        if ours:
            raise _Lost(str(error) or type(error).__name__) from error


_NAMES = ("KilledWorker", "FutureCancelledError", "CommClosedError", "FutureLostError", "NoValidWorkerError")


def _workers(client: Any) -> dict[str, Any]:
    """The workers that the scheduler knows of; none where it does not answer."""
    try:
        # All of them: by default only the first few are listed.
        return dict(client.scheduler_info(n_workers=-1)["workers"])
    except Exception:  # noqa: BLE001  (a scheduler that is gone says so in many ways)
        return {}


def _all_idle(client: Any) -> bool:
    """Whether there are workers and none of them has anything to do."""
    try:
        tasks = client.processing().values()
    except Exception:  # noqa: BLE001  (a scheduler that is gone says so in many ways)
        return False
    return bool(tasks) and not any(tasks)


def _check_room(client: Any, work: Work) -> None:
    """Refuse work of which one patch does not fit into a worker's memory, before the worker is killed for it."""
    needed = max(_bytes(work, patch) for patch in work.patches)
    for address, worker in _workers(client).items():
        limit = worker.get("memory_limit") or 0
        if limit and needed > USABLE * limit:
            raise InputError(
                f"executor: worker {address} has {limit / 1e9:.3g} GB and needs about {needed / USABLE / 1e9:.3g} GB "
                "for these rows; give it more, start fewer workers, or give memory= for smaller parts"
            )


def _bytes(work: Work, patch: Patch) -> float:
    """What a worker holds for a patch: the rows that were scattered, and the prepared parts of them."""
    needed = work.measure.needs(patch)
    sent = (work.sources[k].shape for k in needed if not isinstance(work.sources[k], StoredRows))
    held = sum(8 * math.prod(shape) for shape in sent)
    width: int = work.measure.width([source for source in work.sources if source is not None])
    rows = patch.i[1] - patch.i[0] + patch.j[1] - patch.j[0]
    return float(held) + 8.0 * 4.0 * rows * width
