"""Options of the command line that say who computes and where finished parts are noted."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from multiprocessing import active_children, get_context
from typing import Any

import click

from relfit.checkpoint import Checkpoint
from relfit.errors import BackendUnavailable, InputError, RelfitError, WorkersLost

# Seconds to wait for a scheduler to answer.
PATIENCE = 20


def worker_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """--workers, --cluster and --checkpoint."""
    options = (
        click.option("--workers", metavar="NUMBER", type=click.IntRange(min=1), help="Compute in this many processes."),
        click.option(
            "--cluster", metavar="ADDRESS", help="Compute on a Dask cluster: tcp://HOST:8786 of its scheduler."
        ),
        click.option(
            "--checkpoint",
            metavar="FILE",
            help="Note finished parts: after a crash or an interrupt the same command goes on from there.",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


@contextmanager
def computing(settings: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The settings with `executor` in place of the options that name one, and a word on what an interrupt leaves."""
    workers, cluster, checkpoint = settings.pop("workers"), settings.pop("cluster"), settings["checkpoint"]
    try:
        with _executor(workers, cluster) as executor:
            yield {**settings, "executor": executor}
    except (KeyboardInterrupt, WorkersLost):
        if checkpoint is not None:
            print(f"relfit: {_progress(checkpoint)}; the same command goes on from there", file=sys.stderr)
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


@contextmanager
def _processes(workers: int) -> Iterator[ProcessPoolExecutor]:
    """A pool of processes; what goes wrong ends them at once, with their work half done."""
    with ProcessPoolExecutor(workers, get_context("spawn"), _leave_interrupts) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in active_children():
                process.terminate()
            raise


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
        client = distributed.Client(address, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        raise InputError(
            f"--cluster: no Dask scheduler answers at {address!r} ({error or 'time is up'}); "
            "expected an address such as tcp://HOST:8786"
        ) from None
    with client:
        yield client


def _progress(path: str) -> str:
    """How far a checkpoint has come."""
    try:
        with Checkpoint(path) as checkpoint:
            done, known = checkpoint.counts()
    except RelfitError:
        return f"{path} could not be read"
    return f"{path} holds {done} finished parts of {known}"
