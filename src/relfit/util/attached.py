"""Methods whose work a package above does: a result declares `plot`, and `relfit.report`
attaches what it does.

The declaration has the signature and the docstring, the attached function has the same
arguments. So a result can be drawn without importing what draws it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_functions: dict[str, Callable[[], Callable[..., Any]]] = {}
_sources: list[Callable[[], object]] = []


def attach(method: str, load: Callable[[], Callable[..., Any]]) -> None:
    """Let this function do what a method declares; `load` gets it when the method is first
    called.

    >>> attach("Example.twice", lambda: lambda value: 2 * value)
    >>> attached("Example.twice")(21)
    42
    """
    _functions[method] = load


def attach_from(source: Callable[[], object]) -> None:
    """Call this before a method is looked up: it imports a package that attaches functions."""
    _sources.append(source)


def attached(method: str) -> Callable[..., Any]:
    """The function that does what this method declares."""
    for source in _sources:
        source()
    return _functions[method]()
