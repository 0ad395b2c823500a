"""Comparisons to show, made from estimates rather than data: fast, and every verdict can be chosen."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import relfit


def make(values, errors=0.1, names=None, **changes):
    """RelPSI on independent estimates; `changes` replaces fields of the result."""
    values = np.asarray(values, dtype=float)
    names = tuple(names) if names is not None else tuple(f"m{k}" for k in range(1, len(values) + 1))
    settings = {key: changes.pop(key) for key in ("alpha", "correction") if key in changes}
    joint = relfit.JointEstimate(names, values, np.diag(np.broadcast_to(errors, values.shape) ** 2.0))
    return relfit.decide(joint, test="relpsi", **settings).changed(**changes)


@pytest.fixture(name="make")
def make_fixture():
    return make


ODD_NAMES = (
    "<script>alert(1)</script>",
    "two\nlines",
    "\x1b[31mred",
    "$\\frac$ & $x_1$",
    "rocket 🚀",
    "日本語モデル",
    "עברית",
    "\u202eevil",
    "_hidden",
    "x" * 100,
    "  ",
    "[bold]no markup[/bold]",
)


@pytest.fixture
def odd():
    return make(np.arange(len(ODD_NAMES)), names=ODD_NAMES, warnings=("a <b> note\nof two lines",))


@pytest.fixture(scope="session")
def axe():
    """A function of the browser: what axe finds on the page that is open."""
    found = importlib.util.find_spec("axe_playwright_python")
    if found is None:
        pytest.skip("axe is not installed: pip install --no-deps axe-playwright-python")
    script = (Path(found.submodule_search_locations[0]) / "axe.min.js").read_text(encoding="utf-8")

    def violations(browser):
        browser.run(f"{script}; true")
        return browser.run(
            "axe.run(document, {resultTypes: ['violations']}).then(r => r.violations.map("
            "v => [v.impact, v.id, v.nodes.length, v.nodes[0].html.slice(0, 200)]))"
        )

    return violations
