"""Fakes and small sources for the tests of features."""

import io
import socket

import numpy as np
import pytest

from relfit.features.base import Network


class Counting:
    """An extractor of texts that remembers what it was asked for: (length, sum of bytes, 1)."""

    name, kind, dim = "counting", "text", 3

    def __init__(self, fingerprint="counting 1"):
        self.fingerprint = fingerprint
        self.seen = []

    def features(self, batch):
        self.seen.extend(batch)
        return np.array([[len(text), sum(text.encode()), 1] for text in batch], np.float32)


@pytest.fixture
def counting():
    return Counting()


@pytest.fixture
def mean_colour():
    """An extractor of images: the mean red, green and blue."""
    return Network("colour", "images", 3, "colour 1", lambda batch: [np.asarray(i).mean(axis=(0, 1)) for i in batch])


@pytest.fixture
def png():
    """A function of an array (h, w) or (h, w, 3): the bytes of its PNG file."""
    images = pytest.importorskip("PIL.Image", reason="Pillow is not installed")

    def encode(array, form="PNG"):
        stream = io.BytesIO()
        images.fromarray(np.asarray(array)).save(stream, form)
        return stream.getvalue()

    return encode


@pytest.fixture
def offline(monkeypatch):
    """Any attempt to reach a network fails the test."""

    def refuse(*args, **kwargs):
        pytest.fail(f"a connection was attempted: {args[1:]}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
