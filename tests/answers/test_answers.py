"""Every call of `answers` gives the answer that `expected.json` holds."""

import pytest

from answers.record import CALLS, differences, found, recorded, rounding_of


def test_every_call_has_an_answer():
    assert len(CALLS) >= 170
    assert list(recorded()) == list(CALLS)


@pytest.fixture(scope="module")
def expected():
    return recorded()


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.usefixtures("as_a_fresh_process")
def test_the_answer_is_the_same(name, expected):
    assert differences(found(name), expected[name], rounding=rounding_of(name)) == []


def test_a_change_is_seen(expected):
    """A number that moves by 1e-8 of the largest, a p-value by 0.01, a verdict and a status word."""
    old = expected["mmd relpsi"]
    assert differences(old, old) == []
    moved = [value * (1 + 1e-8) for value in old["discrepancy"]]
    changes = {
        "discrepancy": moved,
        "pvalue": [value + 0.01 for value in old["pvalue"]],
        "worse": [not value for value in old["worse"]],
        "status": [["tie"], *old["status"][1:]],
        "truncation": [["-inf", "inf"] for _ in old["truncation"]],
    }
    for key, value in changes.items():
        assert set(differences({**old, key: value}, old)) == {key}
