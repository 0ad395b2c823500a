"""The fixture `relfit_gate`. pytest finds it by itself where relfit is installed."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from relfit.results.comparison import Comparison

# Bytes of a test's name in the name of its page; file systems allow 255 in all.
LONGEST_NAME = 100


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option for the pages."""
    words = (
        "write the page of every comparison that relfit_gate was asked about into this folder"
    )
    parser.getgroup("relfit").addoption("--relfit-reports", metavar="FOLDER", help=words)


def pytest_configure(config: pytest.Config) -> None:
    """Make the folder for the pages: a path that cannot be one is refused before any test."""
    folder = config.getoption("--relfit-reports")
    try:
        if folder is not None:
            Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        got = f"got {folder!r}, which cannot be made: {error.strerror}"
        raise pytest.UsageError(f"--relfit-reports: expected a folder, {got}") from None


@pytest.fixture
def relfit_gate(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Fail where a model is worse: `relfit_gate(comparison, "new", against="production")`.

    Like `relfit.assert_not_worse`, `require="non-inferior"` included. It also puts the
    answer into pytest's JUnit file and, with --relfit-reports FOLDER, writes a page named
    after the test; with `data=(reference, models)` the page shows the rows too.
    """
    # Imported here, because pytest loads this file in every run, also where no test uses
    # relfit.
    from relfit.report.gate import ask, check_passed

    folder = request.config.getoption("--relfit-reports")
    asked = 0

    def gate(
        comparison: Comparison,
        name: str,
        against: str | None = None,
        data: Any = None,
        *,
        require: str | None = None,
    ) -> None:
        __tracebackhide__ = True
        nonlocal asked
        asked += 1
        answer = ask(comparison, name, against, require=require)
        # What record_property does, but that warns under xunit2, the default of pytest.
        request.node.user_properties.append(("relfit", answer.sentence))
        if folder is not None:
            page = f"{page_name(request.node.nodeid)}{'' if asked == 1 else f'-{asked}'}.html"
            comparison.report(Path(folder) / page, data, gate=answer)
        check_passed(comparison, answer)

    return gate


def page_name(test: str) -> str:
    """A file name for a test: the end of its name, and a digest that tells [a/b] from [a-b]."""
    digest = hashlib.sha256(test.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    letters = re.sub(r"[^\w.-]+", "-", test).encode("utf-8", "replace")
    words = letters[-LONGEST_NAME:].decode("utf-8", "ignore")
    return f"{words.strip('-.')}-{digest}"
