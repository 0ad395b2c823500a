"""The tests of models, one file each. A new one is a subclass of `Test` in a file of its
own, and a line in TESTS.
"""

from __future__ import annotations

from typing import Any

from relfit.stats.tests.base import Test
from relfit.stats.tests.best_set import BestSet
from relfit.stats.tests.carve import Carve
from relfit.stats.tests.relmulti import RelMulti
from relfit.stats.tests.relpsi import RelPSI
from relfit.util.checks import as_choice

# docs/choosing.md has the evidence for the default, which "auto" stands for.
DEFAULT = BestSet()
TESTS: dict[str, type[Test]] = {each.name: each for each in (BestSet, RelPSI, RelMulti, Carve)}


def as_test(value: Any, argument: str = "test") -> Test:
    """A test given as a value such as `RelMulti(0.5)`, as its class, or by its name in any
    case.

    >>> as_test("RelMulti").split, as_test(RelPSI).name, as_test("auto").name
    (0.25, 'relpsi', 'best-set')
    """
    if isinstance(value, Test):
        return value
    if isinstance(value, type) and issubclass(value, Test):
        return value()
    name = as_choice(argument, value, ("auto", *TESTS))
    return DEFAULT if name == "auto" else TESTS[name]()


def as_used(name: str, scale: str | None, select_fraction: float | None = None) -> Test:
    """The test of a result, from the name and the options that the result holds."""
    options = {"scale": scale, "select_fraction": select_fraction}
    return TESTS[name](**{key: value for key, value in options.items() if value is not None})
