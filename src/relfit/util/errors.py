"""The errors relfit raises. Each message is one line: the argument, what was expected, what came."""

from __future__ import annotations


class RelfitError(Exception):
    """Any error that relfit raises on purpose. Its message is one line, whatever was quoted in it."""

    def __init__(self, message: str = "") -> None:
        super().__init__(" ".join(line.strip() for line in message.splitlines()))


class InputError(RelfitError, ValueError):
    """An argument or a file cannot be used; the message says which, why and how to fix it."""


class BackendUnavailable(RelfitError, ImportError):
    """The asked-for backend or optional library is not installed or cannot run here."""


class WorkersLost(RelfitError, RuntimeError):
    """The workers that were computing are gone; what a checkpoint holds is safe."""
