"""The command `relfit demo`: generators of handwritten digits, compared on images that none
of them has seen.
"""

from __future__ import annotations

from collections.abc import Callable

import click
import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from relfit.api import compare
from relfit.cli.outputs import check_outputs, say, shell_command, terminal_width, typed_command
from relfit.cli.sections import SEED, SectionedCommand, opt, section
from relfit.paper.problems import GREY_LEVELS, digits
from relfit.results.comparison import Comparison
from relfit.util.arrays import Array
from relfit.util.random import stream

TITLE = "Six generators of handwritten digits"
SHRINKAGE = 0.1
COMPONENTS = 10


def split_digits(seed: int) -> tuple[Array, NDArray[np.uint8], Array]:
    """Training images, their labels, and the reference images: two disjoint random halves."""
    images, labels = digits()
    order = stream(seed, "demo split").permutation(len(images))
    train = order[: len(order) // 2]
    reference = order[len(order) // 2 :]
    return images[train], labels[train], images[reference]


def generate(
    images: Array, labels: NDArray[np.uint8], count: int, seed: int
) -> dict[str, Array]:
    """`count` images from each of six generators fitted to the training images.

    - digit Gaussians: a digit drawn at random, then a Gaussian fitted to that digit;
    - noisy copies: a training image plus noise of one grey level;
    - blended neighbours: a random point between a training image and the one nearest to it;
    - one Gaussian: a Gaussian fitted to all digits together;
    - PCA Gaussian: a Gaussian on the first ten principal components;
    - independent pixels: each pixel drawn on its own from the training images.
    """
    n, width = images.shape
    makers: dict[str, Callable[[np.random.Generator], Array]] = {
        "digit Gaussians": lambda rng: _digit_gaussians(images, labels, count, rng),
        "noisy copies": lambda rng: (
            rng.normal(scale=1.0 / GREY_LEVELS, size=(count, width))
            + images[rng.integers(n, size=count)]
        ),
        "blended neighbours": lambda rng: _blended_neighbours(images, count, rng),
        "one Gaussian": lambda rng: _gaussian(images, count, rng),
        "PCA Gaussian": lambda rng: _pca_gaussian(images, count, rng),
        "independent pixels": lambda rng: np.take_along_axis(
            images, rng.integers(n, size=(count, width)), axis=0
        ),
    }
    return {
        name: np.clip(make(stream(seed, "demo", name)), 0.0, 1.0)
        for name, make in makers.items()
    }


def problem(seed: int = 0) -> tuple[Array, dict[str, Array]]:
    """The reference images (n, 64), and as many of each generator."""
    train, labels, reference = split_digits(seed)
    return reference, generate(train, labels, len(reference), seed)


def run(seed: int = 0) -> Comparison:
    """Compare the six generators with the images that none of them has seen.

    >>> len(run(seed=0).names)
    6
    """
    return compare(*problem(seed), rng=seed).changed(reference="handwritten digits")


def _digit_gaussians(
    images: Array, labels: NDArray[np.uint8], count: int, rng: np.random.Generator
) -> Array:
    drawn = rng.choice(labels, count)
    out = np.empty((count, images.shape[1]))
    for digit in np.unique(drawn):
        out[drawn == digit] = _gaussian(
            images[labels == digit], int((drawn == digit).sum()), rng
        )
    return out


def _blended_neighbours(images: Array, count: int, rng: np.random.Generator) -> Array:
    distance = cdist(images, images)
    np.fill_diagonal(distance, np.inf)
    first = rng.integers(len(images), size=count)
    nearest = distance.argmin(axis=1)[first]
    fraction = rng.uniform(size=(count, 1))
    return np.asarray(images[first] + fraction * (images[nearest] - images[first]))


def _gaussian(images: Array, count: int, rng: np.random.Generator) -> Array:
    covariance = np.cov(images, rowvar=False)
    # Shrunk towards a multiple of the identity: a digit has about 90 images for 64 × 64
    # covariances.
    typical = np.trace(covariance) / len(covariance)
    shrunk = (1.0 - SHRINKAGE) * covariance + SHRINKAGE * typical * np.eye(len(covariance))
    return np.asarray(
        images.mean(axis=0)
        + rng.normal(size=(count, len(shrunk))) @ np.linalg.cholesky(shrunk).T
    )


def _pca_gaussian(images: Array, count: int, rng: np.random.Generator) -> Array:
    centre = images.mean(axis=0)
    _, sizes, directions = np.linalg.svd(images - centre, full_matrices=False)
    spread = sizes[:COMPONENTS] / np.sqrt(len(images) - 1)
    return np.asarray(
        centre + (rng.normal(size=(count, COMPONENTS)) * spread) @ directions[:COMPONENTS]
    )


@click.command("demo", cls=SectionedCommand)
@section(
    "Options",
    opt(
        "--html PATH",
        "Write the report to this file.",
        dest="html_path",
        default="relfit-demo.html",
    ),
    SEED,
)
def demo_command(html_path: str, seed: int) -> int:
    """Compare six generators of handwritten digits and write a report.

    The data come with relfit, and it takes a few seconds.
    """
    from relfit.results.text import styled
    from relfit.results.words import error_words

    check_outputs({"html_path": html_path})
    result = run(seed)
    reference, models = problem(seed)
    # The rows as images of 8 × 8 pixels.
    items = {
        name: list(rows.reshape(-1, 8, 8))
        for name, rows in {"reference": reference, **models}.items()
    }
    result.report(
        html_path,
        (reference, models),
        items=items,
        command=shell_command(typed_command()),
        title=TITLE,
    )
    say(
        f"{len(digits()[0]) - len(reference)} images of handwritten digits trained six simple "
        f"generators; "
        f"{len(reference)} other images, which no generator has seen, are the reference.\n"
        f"Each generator made {len(reference)} images. Which of them are worse than the "
        f"best one?\n"
    )
    say(styled(result, terminal_width()))
    say(f"{error_words(result)}\n\nReport: {html_path}")
    return 0
