"""Rows of a model that go with the reference rows of the same number."""

import numpy as np
import pytest

import relfit

NOTE = "seems paired with row k of the reference"
DOUBT = "do not look like partners of the reference rows"


def answers(rng, n=100, d=3):
    """Rows that answer the same prompts as the reference, and rows that do not."""
    prompts = rng.normal(size=(n, d))
    reference, aligned = (prompts + 0.7 * rng.normal(size=(n, d)) for _ in range(2))
    return reference, {"aligned": aligned, "apart": rng.normal(scale=np.sqrt(1.49), size=(n, d))}


def notes(reference, models, words, **options):
    return [note for note in relfit.compare(reference, models, rng=0, **options).warnings if words in note]


@pytest.mark.parametrize("dependence", ["independent", "shared"])
def test_aligned_rows_are_named_with_the_right_option(rng, dependence):
    (note,) = notes(*answers(rng), NOTE, dependence=dependence)
    assert note.startswith("row k of aligned seems")
    assert note.endswith('use dependence="paired"')


def test_paired_rows_without_partners_are_doubted_and_independent_rows_are_not(rng):
    # The statistic of rows that are no partners is about standard normal, and a doubt is raised below 2.
    doubted = []
    for _ in range(10):
        reference, models = answers(rng)
        doubted += notes(reference, models, DOUBT, dependence="paired")
    assert len(doubted) >= 8
    assert not any("aligned" in note for note in doubted)
    partners = {"a": models["aligned"], "b": models["aligned"] + 0.1}
    assert not notes(reference, partners, DOUBT, dependence="paired")
    # The statistic is about standard normal for independent rows, also for skewed ones: it does not reach 5.
    for _ in range(30):
        models = {"a": rng.exponential(size=(60, 2)), "b": rng.standard_t(3, size=(60, 2))}
        assert not notes(rng.normal(size=(60, 2)), models, NOTE)
