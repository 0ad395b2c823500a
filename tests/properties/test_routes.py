"""Some examples of `tools.routes` and `tools.score_routes`: every way to give rows or scores has the same answer."""

import pytest


@pytest.fixture(autouse=True)
def libraries():
    for name in ("pandas", "polars", "pyarrow"):
        pytest.importorskip(name)


def test_every_route_has_the_same_answer():
    """N1: also with more levels than are held, and in parts."""
    from tools import routes

    routes.check(60, fixed=True)


def test_every_route_of_scores_and_of_a_monitor_has_the_same_answer():
    """N2: also of scores times 2^-900 and 2^500."""
    from tools import score_routes

    score_routes.check(40, fixed=True)
