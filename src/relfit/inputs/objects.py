"""Python objects named on the command line: ``module:object`` or ``file.py:object``. This runs that code."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

from relfit.errors import InputError
from relfit.inputs.files import SUFFIXES


def names_object(text: str) -> bool:
    """Whether the text has the form of an object's address and is not a file itself."""
    head, separator, name = text.rpartition(":")
    if not separator or not name.isidentifier() or Path(text).exists():
        return False
    if head.lower().endswith(SUFFIXES):
        return False  # one of several arrays in a file
    return head.endswith(".py") or all(part.isidentifier() for part in head.split("."))


def load_object(text: str) -> Any:
    """Import the module or run the file, and return the object of that name.

    >>> load_object("math:pi")
    3.141592653589793
    """
    head, _, name = text.rpartition(":")
    module = _run_file(Path(head)) if head.endswith(".py") else _import(head, name)
    if not hasattr(module, name):
        raise InputError(f"{text}: {head} has no object called {name!r}")
    return getattr(module, name)


def _import(module: str, name: str) -> Any:
    try:
        return importlib.import_module(module)
    except Exception as error:
        file = Path(*module.split(".")).with_suffix(".py")
        mend = f"; or write {file}:{name}" if isinstance(error, ModuleNotFoundError) and file.is_file() else ""
        raise InputError(f"{module}: cannot be imported ({type(error).__name__}: {error}){mend}") from error


def _run_file(path: Path) -> Any:
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path}: cannot be run as Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(f"{path}: failed while it ran ({type(error).__name__}: {error})") from error
    return module
