"""The fixture `relfit_gate`. pytest finds it by itself where relfit is installed."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from relfit.results.comparison import Comparison

LONGEST_NAME = 100


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option for the pages."""
    words = "write the page of every comparison that relfit_gate was asked about into this folder"
    parser.getgroup("relfit").addoption("--relfit-reports", metavar="FOLDER", help=words)


@pytest.fixture
def relfit_gate(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> Callable[..., None]:
    """Fail where a model is worse: `relfit_gate(comparison, "new", against="production")`.

    Like `relfit.assert_not_worse`. It also puts the answer into pytest's JUnit file and, with --relfit-reports FOLDER,
    writes a page named after the test; with `data=(reference, models)` the page shows the rows too.
    """
    # Imported here, because pytest loads this file in every run, also where no test uses relfit.
    from relfit.report.gate import assert_not_worse, gate_sentence, judge

    folder = request.config.getoption("--relfit-reports")
    asked = 0

    def gate(comparison: Comparison, name: str, against: str | None = None, data: Any = None) -> None:
        __tracebackhide__ = True
        nonlocal asked
        asked += 1
        answer = judge(comparison, name, against)
        record_property("relfit", gate_sentence(comparison, answer))
        if folder is not None:
            Path(folder).mkdir(parents=True, exist_ok=True)
            test = re.sub(r"[^\w.-]+", "-", request.node.nodeid)[-LONGEST_NAME:].strip("-.")
            path = Path(folder) / f"{test}{'' if asked == 1 else f'-{asked}'}.html"
            comparison.report(path, data, gate=answer)
        assert_not_worse(comparison, name, against)

    return gate
