"""The errors relfit raises, and how a command complains of one.

Each message is one line: the argument, what was expected, what came. This file imports next
to nothing: the command line needs it first of all.
"""

from __future__ import annotations

import os
import sys
from contextvars import ContextVar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO

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


def complain(line: str) -> None:
    """Print to standard error, if anybody listens."""
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        to_nowhere(sys.stderr)


def to_nowhere(stream: IO[str]) -> None:
    """Let a stream that cannot be written lead nowhere: Python would report it a second time
    when it exits.
    """
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    except OSError:
        return
