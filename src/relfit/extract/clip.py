"""CLIP image embeddings (ViT-L/14 at 336 pixels), the features of CMMD."""

from __future__ import annotations

from relfit.extract.base import Extractor, Network, library
from relfit.extract.catalogue import EXTRACTORS
from relfit.extract.hub import folder_digest, model_folder, model_of
from relfit.extract.images import Preparation
from relfit.extract.networks import on_device, pick_device

REPOSITORY = "openai/clip-vit-large-patch14-336"
MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)


def load(name: str, weights: str | None, device: str) -> Extractor:
    """The projected image embeddings, not normalised; `weights` may be the folder of another CLIP model."""
    place, folder = pick_device(device), model_folder(name, REPOSITORY, weights)
    transformers = library("transformers", EXTRACTORS[name].install)
    model = model_of(transformers.CLIPVisionModelWithProjection, folder, place)
    preparation = Preparation(int(model.config.image_size), MEAN, STD)
    run = on_device(lambda x: model(pixel_values=x).image_embeds, place)
    return Network(
        name,
        "images",
        int(model.config.projection_dim),
        f"{name} sha256:{folder_digest(folder)} {preparation.describe()}",
        lambda images: run(preparation.arrays(images)),
    )
