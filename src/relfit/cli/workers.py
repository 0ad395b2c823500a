"""Worker processes and Dask clusters for a command."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from multiprocessing import active_children, get_context
from typing import Any
from urllib.parse import urlsplit

from relfit.compute.checkpoint import finished_patches
from relfit.compute.reduce import NARROW, Patch, Reduction, patch_sums
from relfit.util.errors import BackendUnavailable, InputError, RelfitError, WorkersLost

# Pairs of rows, of few numbers each, that take about as long as the start of a process.
FEW_PAIRS = 2e8
# Seconds to wait for a scheduler to answer.
ANSWER_TIMEOUT = 10


@contextmanager
def running(params: dict[str, Any]) -> Iterator[Any]:
    """The executor that the options name; an interrupt says what a checkpoint holds."""
    workers, cluster, checkpoint = params.pop("workers"), params.pop("cluster"), params["checkpoint"]
    try:
        with _executor(workers, cluster) as executor:
            yield executor
    except (KeyboardInterrupt, WorkersLost):
        if checkpoint is not None:
            print(f"relfit: {_progress(checkpoint)}; the same command resumes from there", file=sys.stderr)
        raise


@contextmanager
def _executor(workers: int | None, cluster: str | None) -> Iterator[Any]:
    if workers is not None and cluster is not None:
        raise InputError("--workers: expected without --cluster, whose workers run already")
    if workers is not None:
        with _processes(workers) as processes:
            yield processes
    else:
        with cluster_client(cluster) as client:
            yield client


class _Processes(ProcessPoolExecutor):
    """A pool that starts a process for each patch until there are enough of them, and none for the first small ones.

    Those are computed here, up to FEW_PAIRS in all: before a process has started they are done.
    """

    pairs_here = 0.0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """See `Executor`."""
        if fn is not patch_sums or not self._is_small(*args):
            return super().submit(fn, *args, **kwargs)
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001  (raised where the result is asked for, as those of a process are)
            done.set_exception(error)
        return done

    def _is_small(self, sources: Sequence[Any], reduction: Reduction, patch: Patch, *_: Any) -> bool:
        width = reduction.width([source for source in sources if source is not None])
        self.pairs_here += reduction.passes * patch.pairs * max(1.0, width / NARROW)
        return self.pairs_here <= FEW_PAIRS


@contextmanager
def _processes(workers: int) -> Iterator[ProcessPoolExecutor]:
    """A pool of processes; what goes wrong ends them at once, with their work half done."""
    with _ended_by_signals(), _Processes(workers, get_context("spawn"), _leave_interrupts) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in active_children():
                process.terminate()
            raise


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """A cancelled job gets SIGTERM: as an exception it ends the processes too, which would wait for work for ever."""
    wanted = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    # Only the main thread may say what signals do; nohup's choice to ignore one is left alone.
    main = threading.current_thread() is threading.main_thread()
    kept = {one: signal.getsignal(one) for one in wanted if main and signal.getsignal(one) == signal.SIG_DFL}
    for one in kept:
        signal.signal(one, _exit)
    try:
        yield
    finally:
        for one, handler in kept.items():
            signal.signal(one, handler)


def _exit(number: int, _frame: Any) -> None:
    raise SystemExit(128 + number)


def _leave_interrupts() -> None:
    """An interrupt at the terminal reaches every process; the first of them decides."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def cluster_client(address: str | None) -> Iterator[Any]:
    """A client of the Dask scheduler at this address; None where there is none."""
    if address is None:
        yield None
        return
    try:
        distributed: Any = import_module("distributed")
    except ImportError:
        raise BackendUnavailable(
            "--cluster: dask.distributed is not installed; install it with  pip install distributed"
        ) from None
    try:
        # A client that finds nobody is half made, and waits for the scheduler once more when it is cleared away.
        _call(address)
        asyncio.run(_greet(distributed, address))
        client = distributed.Client(address, timeout=ANSWER_TIMEOUT, set_as_default=False)
    except (OSError, ValueError, TypeError, RuntimeError) as error:
        raise InputError(
            f"--cluster: no Dask scheduler answers at {address!r} ({str(error) or 'time is up'}); "
            "expected an address such as tcp://HOST:8786"
        ) from None
    with client:
        yield client


def _call(address: str) -> None:
    """Whether anybody takes calls there, without waiting for one who is not there."""
    found = urlsplit(address if "://" in address else f"tcp://{address}")
    if not found.hostname or not found.port:
        raise ValueError("no port")
    socket.create_connection((found.hostname, found.port), ANSWER_TIMEOUT).close()


async def _greet(distributed: Any, address: str) -> None:
    """Whether it is Dask's: a client would wait for a greeting without end."""
    options = distributed.Security().get_connection_args("client")
    comm = await asyncio.wait_for(distributed.core.connect(address, ANSWER_TIMEOUT, **options), ANSWER_TIMEOUT)
    await comm.close()


def _progress(path: str) -> str:
    """How far a checkpoint has come."""
    try:
        done, known = finished_patches(path)
    except RelfitError:
        return f"{path} could not be read"
    return f"{path} holds {done} finished parts of {known}"
