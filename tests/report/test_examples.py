"""Images and texts behind the rows: the right ones are shown, whatever they are, and as text."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from PIL import Image
from refusals import refused

import relfit
from relfit.report.items import PICTURE, check_items, example, example_rows
from relfit.report.page import render_report
from relfit.report.recall import recall
from relfit.report.witness import differing_rows


@pytest.fixture
def compared(rng):
    """Model b has a clump at 5 that the data lack; the data have one at −5 that b lacks."""
    data = np.concatenate([rng.normal(size=(40, 1)), rng.normal(-5, 0.1, (20, 1))])
    clumped = np.concatenate([rng.normal(size=(40, 1)), rng.normal(5, 0.1, (20, 1))])
    models = {"a": np.concatenate([rng.normal(size=(40, 1)), rng.normal(-5, 0.1, (20, 1))]), "b": clumped}
    return relfit.compare(data, models, rng=0, kernel=relfit.Gaussian(1.0)), (data, models)


def _texts(compared):
    data, models = compared[1]
    return {"reference": [f"r {x[0]:.1f}" for x in data], "b": [f"b {x[0]:.1f}" for x in models["b"]]}


def test_the_rows_that_differ_most_are_chosen(compared):
    result, data = compared
    found = differing_rows(result, recall(result, data), "b")
    shown = {title: [each.text for each in kept] for title, kept in example_rows(found, _texts(compared)).items()}
    many = shown["Too frequent in the model"]
    rare = shown["In the data, but too rare in the model"]
    typical = shown["Most like the data"]
    assert all(4.5 < float(text.split()[1]) < 5.5 for text in many)
    assert all(-5.5 < float(text.split()[1]) < -4.5 for text in rare)
    assert all(abs(float(text.split()[1])) < 2.5 for text in typical)


def test_items_must_fit_the_rows(compared):
    result, data = compared
    recalled = recall(result, data)
    refused(lambda: check_items(["x"], recalled), "items: expected a mapping")
    refused(
        lambda: check_items({"b": ["x"] * 59}, recalled), "items of 'b': expected one for each of its 60 rows, got 59"
    )
    refused(lambda: check_items({"c": []}, recalled), "expected 'reference' or the name of a model")


def _decoded(address):
    head, _, body = address.partition(",")
    assert head == "data:image/png;base64"
    return Image.open(io.BytesIO(base64.b64decode(body)))


def test_arrays_become_pictures():
    """An 8 × 4 image is enlarged to 96 pixels without blurring: black stays black and white white."""
    pixels = np.zeros((4, 8))
    pixels[:, 4:] = 1.0
    image = _decoded(example(pixels, 3).picture)
    assert image.size == (PICTURE, PICTURE // 2)
    assert set(np.asarray(image).ravel()) == {0, 255}
    colour = np.zeros((2, 2, 3), np.uint8)
    colour[..., 0] = 200
    assert _decoded(example(colour, 0).picture).getpixel((0, 0)) == (200, 0, 0)
    refused(lambda: example(np.zeros(5), 0), "expected images of shape (h, w) or (h, w, 3)")


def test_the_page_shows_them_escaped(compared):
    result, data = compared
    items = {"reference": ["<script>alert(1)</script>"] * 60}
    page = render_report(result, data, items=items)
    assert page.count("<script") == 1
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
