"""What the torch extractors share: the device, weights without pickle, a forward pass."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.errors import InputError
from relfit.extract.base import library


def torch_library() -> Any:
    """The torch module."""
    return library("torch", "pip install torch")


def pick_device(device: str) -> str:
    """The device by its torch name; "auto" is a CUDA device where there is one."""
    available = bool(torch_library().cuda.is_available())
    if device == "cuda" and not available:
        raise InputError('device: torch sees no CUDA device here, got "cuda"; use "cpu" or "auto"')
    if device not in ("auto", "cpu", "cuda"):
        raise InputError(f'device: expected "auto", "cpu" or "cuda", got {device!r}')
    return "cuda" if available and device != "cpu" else "cpu"


def read_state(path: Path) -> Any:
    """The tensors in a .pth file, by torch's restricted reader: code in the file is never run."""
    torch = torch_library()
    if not path.is_file():
        raise InputError(f"weights: expected a file, got {str(path)!r}")
    try:
        with warnings.catch_warnings():
            # It warns of what it then refuses.
            warnings.simplefilter("ignore")
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        reason = " ".join(str(error).split())[:120]
        raise InputError(f"weights: {str(path)!r} holds no plain tensors or is damaged ({reason})") from error


def fit_state(model: Any, state: Any, path: Path) -> Any:
    """The model with these weights, for inference."""
    try:
        model.load_state_dict(state)
    except (RuntimeError, AttributeError, TypeError) as error:
        reason = " ".join(str(error).split())[:120]
        raise InputError(f"weights: {str(path)!r} does not fit {type(model).__name__} ({reason})") from error
    return model.eval().requires_grad_(False)


def digest_of(paths: Iterable[Path]) -> str:
    """A short SHA-256 of the files' contents, in the order given."""
    whole = hashlib.sha256()
    for path in paths:
        with path.open("rb") as stream:
            whole.update(hashlib.file_digest(stream, "sha256").digest())
    return whole.hexdigest()[:16]


def forward(function: Callable[[Any], Any], inputs: Any) -> NDArray[np.float32]:
    """``function(inputs)`` without gradients, in full float32 and repeatable, as a host array (n, dim)."""
    torch = torch_library()
    flags = torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False)
    try:
        with torch.inference_mode(), flags:
            rows = function(inputs)
    except torch.OutOfMemoryError:
        raise InputError("batch: the device has too little memory for it; use a smaller one (--batch)") from None
    return np.asarray(rows.flatten(1).float().cpu().numpy(), dtype=np.float32)


def on_device(function: Callable[[Any], Any], device: str) -> Callable[[NDArray[Any]], NDArray[np.float32]]:
    """`function` of a tensor on the device as a function of host arrays."""
    torch = torch_library()
    return lambda arrays: forward(function, torch.from_numpy(arrays).to(device))


@contextmanager
def quiet(transformers: Any) -> Iterator[None]:
    """Loading without the library's bars and notes on unused weights."""
    log = transformers.utils.logging
    bar, level = log.is_progress_bar_enabled(), log.get_verbosity()
    log.disable_progress_bar()
    log.set_verbosity_error()
    try:
        yield
    finally:
        log.set_verbosity(level)
        if bar:
            log.enable_progress_bar()
