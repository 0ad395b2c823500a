"""Images from files that may be broken or hostile, and as arrays that a network takes."""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.errors import InputError
from relfit.extract.base import library

# A small file may unpack to gigabytes; no picture of a model's size comes near this.
MOST_PIXELS = 100_000_000
# Beyond so many pixels, no more than so many for each byte: a tiny file that claims them keeps a decoder busy for long.
LARGE_PIXELS, PIXELS_PER_BYTE = 16_000_000, 10_000
# Only formats that Pillow decodes itself: EPS, for one, would start another program.
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
SUFFIXES = frozenset({".bmp", ".gif", ".jpg", ".jpeg", ".png", ".pgm", ".ppm", ".tif", ".tiff", ".webp"})
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def decode(name: str, payload: bytes) -> Any:
    """The image in these bytes as RGB, its first frame if it has several; transparency is dropped.

    Raises:
        InputError: naming the image, where it is broken, too large or of more than 8 bits a channel.
    """
    image_module = library("PIL.Image", "pip install pillow")
    try:
        with warnings.catch_warnings():
            # Pillow's own bomb warning comes at its own limit; ours is below, on the size in the header.
            warnings.simplefilter("ignore")
            with image_module.open(io.BytesIO(payload), formats=FORMATS) as image:
                _refuse_unusable(name, image, len(payload))
                return image.convert("RGB")
    except InputError:
        raise
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001  (a damaged file makes its decoder raise anything)
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise InputError(f"image {name!r}: cannot be decoded ({reason}); repair it or leave it out") from None


def _refuse_unusable(name: str, image: Any, size: int) -> None:
    width, height = image.size
    if width * height > max(LARGE_PIXELS, PIXELS_PER_BYTE * size):
        raise InputError(
            f"image {name!r}: expected no more pixels than {size:,} bytes can hold, got {width} × {height}; repair it "
            "or leave it out"
        )
    if width * height > MOST_PIXELS:
        raise InputError(
            f"image {name!r}: expected at most {MOST_PIXELS // 10**6} million pixels, got {width} × {height}; shrink it"
        )
    if image.mode[0] in "IF":
        raise InputError(f"image {name!r}: expected 8 bits a channel, got mode {image.mode!r}; convert it to 8 bits")


@dataclass(frozen=True)
class Preparation:
    """Resize to a square of `size` pixels (the whole image, not a crop), then ``(x/255 − mean) / std``."""

    size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    filter: str = "BICUBIC"

    def arrays(self, images: Sequence[Any]) -> NDArray[np.float32]:
        """The images as (n, 3, size, size)."""
        resampling = getattr(library("PIL.Image", "pip install pillow").Resampling, self.filter)
        resized = [np.asarray(image.resize((self.size, self.size), resampling)) for image in images]
        scaled = np.stack(resized).astype(np.float32) / np.float32(255.0)
        normed = (scaled - np.asarray(self.mean, np.float32)) / np.asarray(self.std, np.float32)
        return np.ascontiguousarray(normed.transpose(0, 3, 1, 2))

    def describe(self) -> str:
        """For the fingerprint."""
        numbers = " ".join(f"{value:g}" for value in (*self.mean, *self.std))
        return f"{self.size} {self.filter.lower()} {numbers}"
