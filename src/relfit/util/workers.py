"""Worker processes: what each of them does first."""

from __future__ import annotations

import os
import signal
import threading
import time
from multiprocessing import parent_process
from multiprocessing.util import Finalize

from relfit.util.files import remove_abandoned

_REMOVING = threading.Lock()
_MOST_SECONDS = 5.0


def start_worker() -> None:
    """The parent handles Ctrl-C; a worker never outlives its parent, and removes what a killed one left.

    A worker that waits for work notices that its parent is gone and ends by itself. It then removes what was left, too:
    its end would stop the thread in the middle of that.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
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
        # It gives up its locks after the pipe that told of its end, and its children after its locks.
        while os.getppid() == parent.pid and time.monotonic() < deadline:
            time.sleep(0.01)
        with _REMOVING:
            remove_abandoned()
