"""What a user gives to an experiment on real data: files of their own, or leave to download them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType

from relfit.errors import BackendUnavailable, InputError

Tell = Callable[[str], None]


class DataAbsent(InputError):
    """The experiment's data are not on this machine; the message says in one line how to get them."""


@dataclass(frozen=True)
class Given:
    """The options --data FILE, --features DIR and --download."""

    data: Path | None = None
    features: Path | None = None
    download: bool = False

    def options(self) -> list[str]:
        """The options that were given, as on the command line.

        >>> Given(download=True).options()
        ['--download']
        """
        values = {"--data": self.data, "--features": self.features, "--download": self.download or None}
        return [name for name, value in values.items() if value is not None]


NOTHING = Given()


def on_stderr(line: str) -> None:
    """Say how far a preparation is."""
    print(line, file=sys.stderr, flush=True)


def silent(_line: str) -> None:
    """Say nothing."""


def library(experiment: str, name: str, install: str) -> ModuleType:
    """An optional library, imported here and nowhere at the top of a module."""
    try:
        return import_module(name)
    except ImportError as error:
        message = f"{experiment}: needs {name.partition('.')[0]}, which is not installed; pip install {install}"
        raise BackendUnavailable(message) from error
