"""Masked autoregressive flows by zuko: maximum likelihood with an L2 penalty and early stopping, kept once trained."""

from __future__ import annotations

import copy
import io
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.errors import InputError
from relfit.experiments.cache import digest
from relfit.experiments.given import Tell, library
from relfit.extract.networks import fit_state, read_state
from relfit.files import write_bytes_atomic

Array = NDArray[np.float64]

LINE_SECONDS = 10.0
HELD_OUT = 0.1  # of the training rows, for early stopping


@dataclass(frozen=True)
class Flow:
    """How a flow is built and trained; with the training rows it determines the weights, up to rounding.

    Attributes:
        transforms: autoregressive layers, each a network with one hidden layer; one layer is MADE.
        components: of the Gaussian mixture that is the base, fitted with the rest; 0 is a standard normal.
        l2: λ of the penalty λ/2·Σw² on the weights of the layers, biases and base left out.
        hidden: units of the hidden layer.
        rate: of Adam.
        patience: epochs without a better held-out likelihood before it stops.
    """

    transforms: int
    components: int
    l2: float
    hidden: int = 512
    rate: float = 1e-4
    batch: int = 100
    patience: int = 30
    epochs: int = 600
    seed: int = 0


def trained(name: str, flow: Flow, rows: Array, folder: Path, tell: Tell) -> Any:
    """The flow in double precision, from `folder` if it was trained before on these rows in this way."""
    torch = library(name, "torch", "torch zuko")
    key = digest(rows.tobytes(), json.dumps(asdict(flow), sort_keys=True).encode())
    path = folder / f"flow-{key}.pt"
    network = build(name, flow)
    if path.exists():
        try:
            return fit_state(network, read_state(path), path).double()
        except InputError as error:
            tell(f"{error}; training it again")
    state = train(name, network, flow, rows, tell)
    buffer = io.BytesIO()
    torch.save(state, buffer)
    write_bytes_atomic(path, buffer.getvalue())
    return fit_state(network, state, path).double()


def build(name: str, flow: Flow) -> Any:
    """The flow on the plane with the random weights of its seed."""
    torch, zuko = (library(name, module, "torch zuko") for module in ("torch", "zuko"))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(flow.seed)
        network = zuko.flows.MAF(2, transforms=flow.transforms, hidden_features=(flow.hidden,))
        if not flow.components:
            return network
        return zuko.flows.Flow(network.transform, zuko.mixtures.GMM(2, components=flow.components))


def train(name: str, network: Any, flow: Flow, rows: Array, tell: Tell) -> dict[str, Any]:
    """The weights with the highest likelihood of the held-out rows."""
    torch = library(name, "torch", "torch zuko")
    kept = len(rows) - round(HELD_OUT * len(rows))
    data = torch.as_tensor(rows, dtype=torch.float32)
    fitted, held_out = data[:kept], data[kept:]
    optimiser = _optimiser(torch, network, flow)
    order = torch.Generator().manual_seed(flow.seed)
    best, best_epoch, state = np.inf, -1, {}
    start = last = time.monotonic()
    with _one_thread(torch):
        for epoch in range(flow.epochs):
            for batch in torch.randperm(kept, generator=order).split(flow.batch):
                _step(network, optimiser, fitted[batch])
            with torch.no_grad():
                loss = -network().log_prob(held_out).mean().item()
            if loss < best:
                best, best_epoch, state = loss, epoch, copy.deepcopy(network.state_dict())
            if time.monotonic() - last > LINE_SECONDS:
                last = time.monotonic()
                tell(f"{name}: epoch {epoch}, held-out NLL {loss:.3f} (best {best:.3f}), {last - start:.0f} s so far")
            if epoch - best_epoch >= flow.patience:
                break
    tell(f"{name}: trained, held-out NLL {best:.3f} at epoch {best_epoch}, {time.monotonic() - start:.0f} s")
    return state


def _step(network: Any, optimiser: Any, rows: Any) -> None:
    loss = -network().log_prob(rows).mean()
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()


def _optimiser(torch: Any, network: Any, flow: Flow) -> Any:
    """Adam, whose weight decay is the gradient λw of the penalty."""
    weights: list[Any] = []
    others: list[Any] = []
    for name, parameter in network.named_parameters():
        (weights if name.startswith("transform") and parameter.ndim == 2 else others).append(parameter)
    return torch.optim.Adam([{"params": weights, "weight_decay": flow.l2}, {"params": others}], lr=flow.rate)


@contextmanager
def _one_thread(torch: Any) -> Iterator[None]:
    """One thread, so that the order of the sums, and with it the weights, is the same on every run."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
