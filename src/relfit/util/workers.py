"""Worker processes: how they are started and ended, and what each of them does first."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import active_children, get_context, parent_process
from multiprocessing.util import Finalize
from typing import Any

from relfit.util.files import remove_abandoned

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
