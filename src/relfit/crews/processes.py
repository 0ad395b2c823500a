"""Any `concurrent.futures.Executor` whose workers see the same files: local processes, joblib's loky, MPI."""

from __future__ import annotations

import pickle
import tempfile
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from relfit.backends import Backend
from relfit.crews.local import DEVICE_SCALE, LocalBackend, has_cuda, patch_sums, sources_for
from relfit.errors import InputError, WorkersLost
from relfit.patches import Sums, Work
from relfit.stored import StoredRows, mapped_rows, parts, written_rows
from relfit.tiles import Runtime, usable_cores


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
