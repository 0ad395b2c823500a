"""The errors relfit raises. Each message is one line: the argument, what was expected, what
came.
"""

from __future__ import annotations

from contextvars import ContextVar

# True while a command runs: messages then name its options instead of the arguments of Python.
ON_COMMAND_LINE: ContextVar[bool] = ContextVar("on_command_line", default=False)


def way(option: str, python: str) -> str:
    """How to do something in the interface that the reader uses: an option, or an argument
    in Python.

    >>> way("--drop age", "encode=relfit.Encode(drop=['age'])")
    "encode=relfit.Encode(drop=['age'])"
    """
    return option if ON_COMMAND_LINE.get() else python


class RelfitError(Exception):
    """Any error that relfit raises on purpose. Its message is one line, whatever was quoted
    in it.
    """

    def __init__(self, message: str = "") -> None:
        super().__init__(" ".join(line.strip() for line in message.splitlines()))


class InputError(RelfitError, ValueError):
    """An argument or a file cannot be used; the message says which, why and how to fix it."""


class BackendUnavailable(RelfitError, ImportError):
    """The asked-for backend or optional library is not installed or cannot run here."""


class WorkersLost(RelfitError, RuntimeError):
    """The workers that were computing are gone; what a checkpoint holds is safe."""
