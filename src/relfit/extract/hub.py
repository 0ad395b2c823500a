"""Model folders of the transformers library: found on this machine, never downloaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from relfit.errors import BackendUnavailable, InputError
from relfit.extract.base import library
from relfit.extract.networks import digest_of, quiet


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
