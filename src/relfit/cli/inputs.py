"""The files of a command: which columns and rows of them, and their sizes told before a long run."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from relfit.cli.options import Decorator, opt, section
from relfit.data.align import aligned
from relfit.data.files import SUFFIXES, FileRows, format_of, name_of, read_labels, read_names, read_rows, split_labels
from relfit.data.files.base import NoSuchColumn
from relfit.estimators.base import pair_count
from relfit.estimators.cost import band_seconds, complete_seconds
from relfit.estimators.designs import DEFAULT_LAGS
from relfit.util.errors import InputError
from relfit.util.random import stream
from relfit.util.text import listed, quoted

# Work longer than this, in seconds, is announced.
LONG_RUN = 2.0
_MOST_NAMES = 3


@dataclass(frozen=True)
class Inputs:
    """What the files hold, and what the result has to say about how they were read."""

    reference: Any
    models: dict[str, Any]
    notes: tuple[str, ...]


def input_options(*more: Any) -> Decorator:
    """The options --columns, --rows, --groups and --verbose/--quiet, after those given."""
    return section("Input", *more, *_OPTIONS)


def read_inputs(reference: Any, models: Mapping[str, Any], params: dict[str, Any]) -> Inputs:
    """Read every file, take the columns and rows wanted, and tell the sizes of a long run.

    Takes `columns`, `rows` and `verbose` out of the params and puts labels for `groups` there; what is not a file
    name is left as it is.
    """
    columns, rows, verbose = (params.pop(name) for name in ("columns", "rows", "verbose"))
    groups, memory = params.pop("groups", None), params.get("memory")
    if memory is not None:
        return _unread(reference, models, columns, rows, groups)
    others: Mapping[str | None, Sequence[int]] = {}
    if groups is not None:
        if rows is not None:
            raise InputError("--rows: draws single rows, which --groups forbids; shorten the files themselves")
        params["groups"], others = read_groups(reference, models, groups)
    opened = {name: _opened(source, columns) for name, source in models.items()}
    unread = aligned(_opened(reference, columns), opened, others if columns is None else {})
    data, named = _read(unread[0]), {name: _read(source) for name, source in unread[1].items()}
    taken = Inputs(data, named, unread[2])
    taken = taken if rows is None else _subsample(taken, rows, params)
    if verbose is False:
        params["progress"] = params["progress"] or False
    elif verbose or (sys.stderr.isatty() and _expected_seconds(taken, params["estimator"]) > LONG_RUN):
        _print_sizes(taken)
    return taken


def _unread(reference: Any, models: Mapping[str, Any], columns: str | None, rows: Any, groups: Any) -> Inputs:
    """The files themselves, which are opened under the budget of memory."""
    for option, value in (("--rows", rows), ("--groups", groups)):
        if value is not None:
            raise InputError(f"{option}: expected without --memory, which takes whole files; leave out one of the two")

    opened = {name: _opened(source, columns) for name, source in models.items()}
    return Inputs(_opened(reference, columns), opened, ())


def read_groups(
    reference: Any, models: Mapping[str, Any], groups: str
) -> tuple[dict[str | None, Any] | NDArray[Any], dict[str | None, list[int]]]:
    """Labels of the rows, from a file of them or from a column of every file, and each file's other columns."""
    given = ((None, reference), *models.items())
    files = {key: source for key, source in given if isinstance(source, str) and not names_object(source)}
    there = os.path.exists(groups)  # noqa: PTH110  (Path.exists raises for names that are too long)
    if there and format_of(Path(groups)) is not None:
        _refuse_both(groups, files.values())
        return read_labels(groups), {}
    try:
        found = {key: split_labels(source, groups) for key, source in files.items()}
    except NoSuchColumn as error:
        what = f"column, and {groups} is no file of labels" if there else "column or file"
        raise InputError(f"--groups: there is no such {what}; {error}") from None
    return {key: labels for key, (labels, _) in found.items()}, {key: left for key, (_, left) in found.items()}


def _refuse_both(groups: str, files: Iterable[str]) -> None:
    """Refuse a name that is a file of labels and a column as well."""
    for source in files:
        names: Sequence[str] = ()
        with suppress(InputError):  # said when the file is read
            names = read_names(source) or ()
        if groups in (name.strip() for name in names):
            both = f"{groups} is a file, and a column of {source} too"
            raise InputError(f"--groups: {both}; write ./{groups} for the file, or rename one of the two")


def named_models(models: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Name → file, in the order given."""
    if names and len(names) != len(models):
        raise InputError(f"--name: expected one for each of the {len(models)} models, got {len(names)}")
    found = [_as_text(name) for name in names or [_default_name(model) for model in models]]
    for name in found:
        if found.count(name) > 1:
            raise InputError(f"two models are called {name!r}; tell them apart with --name, once for each model")
    return dict(zip(found, models, strict=True))


def _default_name(model: str) -> str:
    return model.rpartition(":")[2] if names_object(model) else name_of(model)


def _as_text(name: str) -> str:
    # A file name need not be valid text; the name of a model must be, or no output could be written.
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def check_inputs(reference: str, models: Sequence[str]) -> None:
    """Refuse the reference as a model."""
    for model in models:
        if os.path.realpath(model) == os.path.realpath(reference):
            raise InputError(f"{model}: given both as the reference and as a model; leave it out of the models")


def _expected_seconds(inputs: Inputs, estimator: str) -> float:
    """About how long the estimate takes."""
    arrays = [value for value in inputs.models.values() if isinstance(value, np.ndarray) and value.ndim]
    columns = max((x[:1].size for x in (*arrays, inputs.reference) if isinstance(x, np.ndarray) and x.ndim), default=1)
    n = _count(inputs.reference)
    if estimator == "linear":
        return band_seconds(n * len(arrays), columns)
    if estimator == "incomplete":
        return band_seconds(3 * DEFAULT_LAGS * n * len(arrays), columns)
    return complete_seconds(pair_count(n, [len(x) for x in arrays]), columns)


def _opened(source: Any, columns: str | None) -> Any:
    """The object of that name, or the file, of which nothing is read yet."""
    if isinstance(source, str) and names_object(source):
        return load_object(source)
    return FileRows(source, columns) if isinstance(source, str) else source


def _read(source: Any) -> Any:
    return read_rows(source.source, columns=source.columns) if isinstance(source, FileRows) else source


def _subsample(inputs: Inputs, rows: int, params: Mapping[str, Any]) -> Inputs:
    """At most `rows` rows of each, drawn without replacement.

    All models draw from one stream, so that rows made from common random numbers stay together; the reference
    joins in where its rows are paired with them.
    """
    reference, models = inputs.reference, inputs.models
    seed, dependence = params["seed"], params["dependence"]
    _check_same_rows(reference, models, dependence)
    own = "models" if dependence == "paired" else "reference"
    wholes = {"the reference": reference, **{f"model {name!r}": value for name, value in models.items()}}
    keys = [own, *("models" for _ in models)]
    parts = [_drawn(value, rows, stream(seed, "rows", key)) for value, key in zip(wholes.values(), keys, strict=True)]
    cut = [f"{what} ({_count(whole)})" for what, whole in wholes.items() if _count(whole) > rows]
    note = (f"{rows} rows drawn at random (--rows, seed {seed}) from {listed(cut, most=_MOST_NAMES)}",) if cut else ()
    return Inputs(parts[0], dict(zip(models, parts[1:], strict=True)), (*inputs.notes, *note))


def _check_same_rows(reference: Any, models: Mapping[str, Any], dependence: str) -> None:
    """Rows that belong together can only be drawn together from files of one length."""
    if dependence == "chain":
        raise InputError("--rows: a random choice of rows breaks the order of a chain; shorten the files themselves")
    together = [*models.values(), *([reference] if dependence == "paired" else [])]
    lengths = sorted({len(value) for value in together if isinstance(value, np.ndarray)})
    if dependence in ("shared", "paired") and len(lengths) > 1:
        raise InputError(f"--rows: --dependence {dependence} expects files of equal length, got {lengths} rows")


def _drawn(value: Any, rows: int, rng: np.random.Generator) -> Any:
    if _count(value) <= rows:
        return value
    # In order: a mapped file is then read from front to back.
    return value[np.sort(rng.choice(len(value), rows, replace=False))]


def _count(value: Any) -> int:
    return len(value) if isinstance(value, np.ndarray) and value.ndim else 0


def _print_sizes(inputs: Inputs) -> None:
    models = [(f"model {quoted(name)}", value) for name, value in inputs.models.items()]
    for name, value in [("reference", inputs.reference), *models]:
        if isinstance(value, np.ndarray) and value.ndim:
            print(f"relfit: {name}: {_size(value)}", file=sys.stderr)


def _size(rows: NDArray[Any]) -> str:
    return f"{len(rows)} rows × {rows[:1].size} columns, {rows.dtype}, {rows.nbytes / 1e6:.3g} MB"


_OPTIONS = (
    opt("--columns", metavar="LIST", help="Columns of every file: names, numbers from 0 or ranges (a,b or 0,3-10)."),
    opt(
        "--rows",
        metavar="NUMBER",
        type=click.IntRange(min=1),
        help="Use at most this many rows of each file, drawn at random with --seed.",
    ),
    opt(
        "--groups",
        metavar="COLUMN|FILE",
        help="Rows with one label belong together. The labels are a column of every file or, for paired rows, a file.",
    ),
    opt("--verbose/--quiet", default=None, help="Print the sizes of the inputs, or hide sizes and progress."),
)


def names_object(text: str) -> bool:
    """True if the text names a Python object, ``module:object`` or ``file.py:object``, and not a file.

    >>> names_object("models:flow"), names_object("samples.npz:first")
    (True, False)
    """
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
