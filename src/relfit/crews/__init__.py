"""Workers in other processes and on other machines, which compute patches of kernel matrices."""

from __future__ import annotations

from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

from relfit.crews.cluster import ClusterCrew
from relfit.crews.local import LocalBackend, Precision, has_cuda
from relfit.crews.processes import ProcessCrew
from relfit.errors import InputError
from relfit.patches import Crew

__all__ = ["ClusterCrew", "LocalBackend", "Precision", "ProcessCrew", "crew_of", "has_cuda"]


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
