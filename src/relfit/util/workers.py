"""Worker processes: what each of them does first."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading

from relfit.util.files import remove_abandoned


def start_worker() -> None:
    """The parent handles Ctrl-C; a worker never outlives its parent, and removes what a killed one left."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        remove_abandoned()
        os._exit(1)
