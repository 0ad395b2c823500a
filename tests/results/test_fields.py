"""A field of a result is declared in one place: files, their checks, the page and the estimate follow from it."""

from dataclasses import dataclass, fields, is_dataclass, replace

import numpy as np
import pytest
from refusals import refused

import relfit
from relfit.report.page import settings
from relfit.results.serial import WORD, Numbers, held
from relfit.results.verdicts import Provenance

# The other comparisons are read as comparisons, one by one.
NESTED = {"also"}


def _result():
    return relfit.decide(relfit.JointEstimate(("a", "b"), [0.1, 0.9], 0.01 * np.eye(2), (50,)), rng=0)


@dataclass(frozen=True, kw_only=True)
class Inked(Provenance):
    """With two fields more."""

    colour: str | None = held(WORD, "colour of the ink")
    shades: np.ndarray | None = held(Numbers(low=0.0))


@pytest.fixture
def inked(monkeypatch):
    monkeypatch.setitem(relfit.Comparison.PARTS, "provenance", Inked)
    return replace(_result(), provenance=Inked(colour="red", shades=np.array([0.5, 2.0])))


def test_every_field_says_how_it_is_kept_and_belongs_to_a_part():
    assert {name for name, told in relfit.Comparison.described().items() if told.get("form") is None} == NESTED
    parts = {item.name for item in fields(_result()) if is_dataclass(getattr(_result(), item.name))}
    assert parts == {"estimate", "decision", "method", "provenance"}
    assert _result().distinct() is not None
    changed = _result().changed(backend="other", alpha=0.01, lags=3, warnings=("one",))
    assert (changed.provenance.backend, changed.method.alpha, changed.estimate.lags) == ("other", 0.01, 3)
    assert (changed.backend, changed.alpha, changed.lags, changed.warnings) == ("other", 0.01, 3, ("one",))
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        _result().changed(colour="red")
    shown = dict(settings(_result()))
    assert list(shown)[:5] == ["discrepancy", "models", "level α", "test", "correction"]
    assert shown["level α"] == "0.05"


def test_a_declared_field_is_written_checked_read_and_shown(inked):
    """Code review of 0.2: a result field stood in seven lists."""
    record = inked.to_dict()
    again = relfit.Comparison.from_dict(record).provenance
    assert (again.colour, again.shades.tolist()) == ("red", [0.5, 2.0])
    for name, wrong, expected in (
        ("colour", "a\x07", "colour: expected a word or null"),
        ("shades", [-1.0, 0.0], "shades: expected numbers from 0 to inf"),
        ("shades", [1.0], "shades of shape (1,) for 2 names"),
    ):
        refused(lambda name=name, wrong=wrong: relfit.Comparison.from_dict({**record, name: wrong}), expected)
    assert ("colour of the ink", "red") in settings(inked)
    assert not any("shades" in label for label, _ in settings(inked))


@pytest.mark.parametrize("name", ["difference", "pvalue", "best_index", "verdicts", "standard_error", "confidence_set"])
def test_a_file_whose_numbers_contradict_each_other_is_refused(name):
    record = _result().to_dict()
    values = record[name]
    wrong = values + 1 if isinstance(values, int) else [*values[:-1], values[0]] if name != "confidence_set" else ["b"]
    if name == "standard_error":
        wrong = [0.2, 0.1]
    refused(lambda: relfit.Comparison.from_dict({**record, name: wrong}), f"contradicts itself: {name} is not that of")
