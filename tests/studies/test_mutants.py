"""The mutation check can run: the text of every mutation occurs once in its file."""

from tools.mutants import stale


def test_the_text_of_every_mutation_occurs_once():
    assert stale() == []
