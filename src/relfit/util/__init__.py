"""What every package uses: errors, atomic files, SQLite, progress, random streams, text; and
the version.

A result declares methods, such as `plot`, whose work a package above does: `relfit.report`
attaches it here. The declaration has the signature and the docstring, the attached function
has the same arguments. So a result can be drawn without importing what draws it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__version__ = "0.2.0"

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
