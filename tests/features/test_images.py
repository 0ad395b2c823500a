"""Images from files: what is decoded, what is refused, and the arrays that a network gets."""

import struct
import zlib

import numpy as np
import pytest
from refusals import refused

from relfit.features.base import by_size
from relfit.features.run import decode

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")


def test_every_mode_and_format_becomes_rgb(png):
    grey = decode("g", png(np.full((4, 5), 7, np.uint8)))
    assert (grey.mode, grey.size) == ("RGB", (5, 4))
    assert np.array_equal(np.asarray(grey), np.full((4, 5, 3), 7))
    colours = np.random.default_rng(0).integers(0, 256, (3, 2, 3), np.uint8)
    assert np.array_equal(np.asarray(decode("c", png(colours))), colours)
    transparent = np.dstack([colours, np.zeros((3, 2), np.uint8)])
    assert np.array_equal(np.asarray(decode("t", png(transparent))), colours)
    for form in ("JPEG", "WEBP", "BMP", "GIF", "TIFF"):
        image = decode("x", png(np.full((8, 8, 3), 120, np.uint8), form))
        assert np.abs(np.asarray(image).astype(int) - 120).max() <= 3


def test_broken_files_and_sixteen_bits_are_named(png):
    whole = png(np.random.default_rng(0).integers(0, 256, (40, 40, 3), np.uint8))
    for payload in (b"", b"not an image", whole[:400], whole[:20] + b"\xff" * 40 + whole[60:]):
        refused(lambda payload=payload: decode("cat/1.png", payload), "image 'cat/1.png'", "cannot be decoded")
    refused(lambda: decode("deep.png", png(np.full((4, 4), 40_000, np.uint16))), "deep.png", "8 bits per channel")


def test_files_that_claim_much_or_start_programs_are_refused(tmp_path):
    """A run-length BMP of 262 bytes kept its decoder busy for 80 million pixels: found by fuzzing."""
    header = struct.pack("<2sIHHI", b"BM", 262, 0, 0, 54) + struct.pack(
        "<IiiHHIIiiII", 40, 16_121_860, 5, 1, 8, 1, *[0] * 5
    )
    refused(lambda: decode("a.bmp", header + bytes(208)), "no more pixels than 262 bytes can hold", "16121860 × 5")

    # A PNG of 20000 × 20000 pixels in a few bytes: refused before anything is unpacked.
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 20_000, 20_000, 8, 2, 0, 0, 0)
    bomb = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    refused(lambda: decode("bomb.png", bomb), "bomb.png")
    eps = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n"
    refused(lambda: decode("a.png", eps), "cannot be decoded")


def test_images_of_several_sizes_keep_their_order():
    """Images of one size go through the network together; here it returns each image's mean and the batch's size."""
    images = [Image.fromarray(np.full((size, 5, 3), k, np.uint8)) for k, size in enumerate((4, 7, 4, 9, 7, 4))]

    def network(arrays):
        assert arrays.shape[1] == 3
        assert arrays.shape[3] == 5
        return np.array([[array.mean(), len(arrays)] for array in arrays], np.float32)

    assert np.array_equal(by_size(network, images), [[0, 3], [1, 2], [2, 3], [3, 1], [4, 2], [5, 3]])
