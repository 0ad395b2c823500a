"""Worker processes and Dask clusters for a command."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from relfit.compute.checkpoint import finished_patches
from relfit.compute.reduce import NARROW, patch_sums
from relfit.compute.schedulers import Processes
from relfit.util.errors import (
    BackendUnavailable,
    InputError,
    RelfitError,
    WorkersLost,
    complain,
)

# Pairs of short rows that take about as long as the start of a process.
FEW_PAIRS = 2e8
# Seconds to wait for a scheduler to answer.
ANSWER_TIMEOUT = 10


@contextmanager
def running(params: dict[str, Any]) -> Iterator[Any]:
    """The executor that the options name; an interrupt says what a checkpoint holds."""
    workers = params["workers"]
    cluster = params["cluster"]
    checkpoint = params["checkpoint"]
    if workers is not None and cluster is not None:
        raise InputError("--workers: expected without --cluster, whose workers run already")
    try:
        with cluster_client(cluster) if workers is None else _processes(workers) as executor:
            yield executor
    except (KeyboardInterrupt, WorkersLost):
        if checkpoint is not None:
            try:
                done, known = finished_patches(checkpoint)
                state = f"{checkpoint} holds {done} finished parts of {known}"
            except RelfitError:
                state = f"{checkpoint} could not be read"
            complain(f"relfit: {state}; the same command resumes from there")
        raise


class _Processes(Processes):
    """A pool that starts a process for each patch until there are enough, and none for the
    first small patches.

    Those, up to FEW_PAIRS pairs in all, are computed here in less time than a process takes
    to start.
    """

    pairs_here = 0.0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if fn is patch_sums:
            sources, reduction, patch, *_ = args
            width = reduction.width([source for source in sources if source is not None])
            self.pairs_here += reduction.passes * patch.pairs * max(1.0, width / NARROW)
        if fn is not patch_sums or self.pairs_here > FEW_PAIRS:
            return super().submit(fn, *args, **kwargs)
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        # Raised where the result is asked for, as those of a process are.
        except Exception as error:  # noqa: BLE001
            done.set_exception(error)
        return done


@contextmanager
def _processes(workers: int) -> Iterator[Processes]:
    """A pool of processes; an error or a signal ends them at once, without waiting for their
    work.
    """
    pool = _Processes(workers)
    try:
        yield pool
    except BaseException:
        pool.end()
        raise
    pool.shutdown()


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
            "--cluster: dask.distributed is not installed; install it with  pip install "
            "distributed"
        ) from None
    try:
        # A client that finds no scheduler waits for it once more when it is deleted, so both
        # are tried first.
        parts = urlsplit(address if "://" in address else f"tcp://{address}")
        if not parts.hostname or not parts.port:
            raise ValueError("no port")
        socket.create_connection((parts.hostname, parts.port), ANSWER_TIMEOUT).close()
        asyncio.run(_check_scheduler(distributed, address))
        client = distributed.Client(address, timeout=ANSWER_TIMEOUT, set_as_default=False)
    except (OSError, ValueError, TypeError, RuntimeError) as error:
        raise InputError(
            f"--cluster: no Dask scheduler answers at {address!r} "
            f"({str(error) or 'timed out'}); "
            "expected an address such as tcp://HOST:8786"
        ) from None
    # Dask logs each connection that it loses; what becomes of the run is said by us.
    logging.disable(logging.CRITICAL)
    try:
        with client:
            yield client
    finally:
        logging.disable(logging.NOTSET)


async def _check_scheduler(distributed: Any, address: str) -> None:
    """Raise an error if it is not Dask that answers: a client would wait for its greeting
    forever.
    """
    options = distributed.Security().get_connection_args("client")
    comm = await asyncio.wait_for(
        distributed.core.connect(address, ANSWER_TIMEOUT, **options), ANSWER_TIMEOUT
    )
    await comm.close()
