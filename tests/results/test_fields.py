"""A field of a result is declared in one place: files, their checks, the page and the estimate follow from it."""

from dataclasses import dataclass, field, fields

import numpy as np
from refusals import refused

import relfit
from relfit.report.page import settings
from relfit.results.stored import MAYBE_WORD, Numbers, kept
from relfit.results.verdicts import shared_fields

# The other comparisons are read as comparisons, one by one.
NESTED = {"also"}


def _result():
    return relfit.decide(relfit.JointEstimate(("a", "b"), [0.1, 0.9], 0.01 * np.eye(2), (50,)), rng=0)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Coloured(relfit.Comparison):
    """A comparison with two fields more."""

    colour: str | None = field(default=None, metadata=kept(MAYBE_WORD, label="colour of the ink"))
    shades: np.ndarray | None = field(default=None, metadata=kept(Numbers(low=0.0)))


def _coloured(**more):
    result = _result()
    return Coloured(**{item.name: getattr(result, item.name) for item in fields(result)}, **more)


def test_every_field_says_how_it_is_kept():
    assert {item.name for item in fields(relfit.Comparison) if item.metadata.get("form") is None} == NESTED


def test_a_declared_field_is_written_checked_read_and_shown():
    """Code review of 0.2: a result field stood in seven lists."""
    result = _coloured(colour="red", shades=np.array([0.5, 2.0]))
    record = {**result.to_dict(), "type": "relfit.Comparison"}
    again = Coloured.from_dict(record)
    assert (again.colour, again.shades.tolist()) == ("red", [0.5, 2.0])
    refused(lambda: Coloured.from_dict({**record, "colour": "a\x07"}), "colour: expected a word or null")
    refused(lambda: Coloured.from_dict({**record, "shades": [-1.0, 0.0]}), "shades: expected numbers from 0 to inf")
    refused(lambda: Coloured.from_dict({**record, "shades": [1.0]}), "shades of shape (1,) for 2 names")
    assert ("colour of the ink", "red") in settings(result)
    assert not any("shades" in label for label, _ in settings(result))


def test_fields_shared_with_the_estimate_are_those_of_the_estimate():
    result = _result()
    of_estimate = {item.name for item in fields(relfit.JointEstimate)}
    assert set(shared_fields(result)) < of_estimate
    assert result.distinct().sizes == result.sizes == (50,)


def test_settings_on_the_page_keep_their_order_and_names():
    shown = dict(settings(_result()))
    assert list(shown)[:5] == ["discrepancy", "models", "level α", "test", "correction"]
    assert shown["level α"] == "0.05"
