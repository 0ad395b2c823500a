"""DINOv2 image features (ViT-L/14): the class token after the last layer."""

from __future__ import annotations

from relfit.extract.base import Extractor, Network, library
from relfit.extract.catalogue import EXTRACTORS
from relfit.extract.hub import folder_digest, model_folder, model_of
from relfit.extract.images import IMAGENET, Preparation
from relfit.extract.networks import on_device, pick_device

REPOSITORY = "facebook/dinov2-large"
PREPARATION = Preparation(224, *IMAGENET)


def load(name: str, weights: str | None, device: str) -> Extractor:
    """The class token; `weights` may be the folder of another DINOv2 model."""
    place, folder = pick_device(device), model_folder(name, REPOSITORY, weights)
    transformers = library("transformers", EXTRACTORS[name].install)
    model = model_of(transformers.Dinov2Model, folder, place)
    run = on_device(lambda x: model(pixel_values=x).last_hidden_state[:, 0], place)
    return Network(
        name,
        "images",
        int(model.config.hidden_size),
        f"{name} sha256:{folder_digest(folder)} {PREPARATION.describe()}",
        lambda images: run(PREPARATION.arrays(images)),
    )
