"""What an extractor is, and how one asks for a library that may be absent."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from relfit.errors import BackendUnavailable

Kind = Literal["images", "text"]
Features = NDArray[np.float32]


class Extractor(Protocol):
    """Turns a batch of images (Pillow, RGB) or of texts into rows of features (len(batch), dim).

    `fingerprint` names the model, its weights and how inputs are prepared: rows of different fingerprints do not
    belong in one file. Any object with these members will do.
    """

    @property
    def name(self) -> str:
        """The name on the command line."""

    @property
    def kind(self) -> Kind:
        """What a batch holds: "images" or "text"."""

    @property
    def dim(self) -> int:
        """The number of features of one item."""

    @property
    def fingerprint(self) -> str:
        """Model, weights and preparation."""

    def features(self, batch: Sequence[Any]) -> Features:
        """The features of the batch, one row an item."""


@dataclass(frozen=True)
class Network:
    """The extractor that a function `embed` of a batch is."""

    name: str
    kind: Kind
    dim: int
    fingerprint: str
    embed: Callable[[Sequence[Any]], NDArray[Any]]

    def features(self, batch: Sequence[Any]) -> Features:
        """The rows that `embed` returns, as float32."""
        return np.asarray(self.embed(batch), dtype=np.float32)


def library(module: str, remedy: str) -> Any:
    """Import an optional library; `remedy` says what to type when it is absent or does not load."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise BackendUnavailable(f"the library {error.name or module!r} is not installed; {remedy}") from None
    except Exception as error:
        # Builds that do not fit together raise whatever their loaders raise.
        first = (str(error).splitlines() or [""])[0][:120]
        raise BackendUnavailable(f"{module} does not load here ({type(error).__name__}: {first}); {remedy}") from error
