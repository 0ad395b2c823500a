"""The inputs of a command: files, of which some columns and rows are used, and Python
objects.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relfit.cli.outputs import valid_text
from relfit.cli.sections import opt
from relfit.data.encode import Encode
from relfit.data.evals import read_evals
from relfit.data.files import (
    SUFFIXES,
    FileRows,
    format_of,
    name_of,
    read_rows,
    split_key,
)
from relfit.data.files.base import NoSuchColumn, parse_columns
from relfit.data.load import aligned
from relfit.data.scored import Scores
from relfit.data.scores import scores
from relfit.data.tables import Table, read_labels, read_table, split_labels
from relfit.estimators import DEVICE_CORES, ESTIMATORS, LARGEST_ADDED, duration
from relfit.estimators.base import Complete
from relfit.util.errors import InputError, complain
from relfit.util.files import note_read
from relfit.util.libraries import has_cuda, usable_cores
from relfit.util.random import stream
from relfit.util.text import listed, quoted

# Before work that takes longer than this, in seconds, the sizes of the inputs and the time are
# printed.
LONG_RUN = 2.0
# If all pairs of rows take longer than this, landmarks are suggested.
SUGGESTED = 60.0
# Options about a table of scores that the library has under the same names.
_OF_TABLES = (
    "model",
    "score",
    "stratum",
    "run",
    "judge",
    "columns",
    "drop",
    "higher_is_better",
    "missing",
    "min_coverage",
)
REFERENCE = "reference"
# Options of which the first excludes the second, and why.
_WHOLE_FILES = "expected without --memory, which takes whole files; leave out one of the two"
_EXCLUDED = (
    (
        "rows",
        "given",
        "draws rows of the reference without their covariates (--given); shorten both files",
    ),
    ("rows", "memory", _WHOLE_FILES),
    ("groups", "memory", _WHOLE_FILES),
    (
        "rows",
        "groups",
        "draws single rows, which --groups forbids; shorten the files themselves",
    ),
)
ITEMS = (
    opt(
        "--items NAME=SOURCE",
        "Show in the report the images or texts that the rows of NAME, a model or reference, "
        "were made from; repeat it "
        "for each.",
        multiple=True,
    ),
    opt("--field FIELD", "With --items, the field of .jsonl files that holds the text."),
)


@dataclass(frozen=True)
class Inputs:
    """What the files hold, the labels of groups, and notes on how the files were read."""

    reference: Any
    models: dict[str, Any]
    notes: tuple[str, ...] = ()
    groups: Any = None


def read_inputs(reference: Any, models: Mapping[str, Any], params: Mapping[str, Any]) -> Inputs:
    """Read the columns and rows that the options ask for, from files or objects; print the
    sizes before a long run.
    """
    for option, other, why in _EXCLUDED:
        if params.get(option) is not None and params.get(other) is not None:
            raise InputError(f"--{option}: {why}")
    columns = params["columns"]
    data = _opened(reference, columns)
    samples = {name: _opened(source, columns) for name, source in models.items()}
    if params.get("memory") is not None:
        # The files themselves, which are opened under the budget of memory.
        sizes = Inputs(_mapped(data), {name: _mapped(model) for name, model in samples.items()})
        if all(map(_count, (sizes.reference, *sizes.models.values()))):
            _announce(sizes, params)
        return Inputs(data, samples)
    labels: Any = None
    others: Mapping[str | None, Sequence[int]] = {}
    if params.get("groups") is not None:
        labels, others = read_groups(reference, models, params["groups"])
    chosen = others if columns is None else {}
    data, samples, notes = aligned(data, samples, chosen, table_options(params))
    # A preset takes rows of numbers as they are.
    plain = params.get("preset") is not None
    data = _read(data, plain)
    samples = {name: _read(source, plain) for name, source in samples.items()}
    if isinstance(data, Table):
        # Columns stand in one order now, whatever a model calls those that were selected by
        # their numbers.
        for name, x in samples.items():
            if isinstance(x, Table) and len(x.columns) == len(data.columns):
                samples[name] = x.renamed(data.names)
    inputs = Inputs(data, samples, notes, labels)
    if params.get("rows") is not None:
        inputs = _subsample(inputs, params["rows"], params["seed"], params["dependence"])
    _announce(inputs, params)
    return inputs


def _announce(inputs: Inputs, params: Mapping[str, Any]) -> None:
    """Say what was read and how long it will take: if asked to, or where a person waits for
    it.
    """
    verbose = params["verbose"]
    if verbose is False:
        return
    seconds = expected_seconds(inputs, params["estimator"])
    if seconds > SUGGESTED and params.get("backend") != "numpy" and has_cuda():
        seconds *= usable_cores() / DEVICE_CORES
    if verbose is None and sys.stderr.isatty():
        verbose = seconds > LONG_RUN
    if verbose:
        named = {
            "reference": inputs.reference,
            **{f"model {quoted(name)}": x for name, x in inputs.models.items()},
        }
        for sample, x in named.items():
            if _count(x):
                size = f"{len(x)} rows × {_width(x)} columns"
                if isinstance(x, np.ndarray):
                    size += f", {x.dtype}, {x.nbytes / 1e6:.3g} MB"
                complain(f"relfit: {sample}: {size}")
    where = "" if params.get("cluster") is None else " on this machine alone"
    checkpoint = params.get("checkpoint")
    if checkpoint is not None and Path(checkpoint).exists():
        where += f", less what {quoted(str(checkpoint))} holds already"
    if seconds > SUGGESTED and _takes_landmarks(inputs, params):
        complain(
            f"relfit: the complete estimate takes about {duration(seconds)}{where}; "
            f"--estimator auto uses landmarks, "
            f"in about {duration(expected_seconds(inputs, 'landmarks'))}, where they add at "
            f"most {LARGEST_ADDED:.0%} "
            "to the variance"
        )
    elif verbose and seconds > LONG_RUN and params["estimator"] != "auto":
        complain(
            f"relfit: the {params['estimator']} estimate takes about {duration(seconds)}{where}"
        )


def _takes_landmarks(inputs: Inputs, params: Mapping[str, Any]) -> bool:
    """True if the estimate over all pairs of rows was asked for, and landmarks could replace
    it.
    """
    measures = params.get("discrepancy") or "auto"
    pairs = set((measures,) if isinstance(measures, str) else measures) <= {
        "auto",
        "mmd",
        "ksd",
    }
    apart = inputs.groups is None and params.get("dependence") != "chain"
    return params["estimator"] == "complete" and pairs and apart


def table_options(params: Mapping[str, Any]) -> Encode | None:
    """What the options say about the columns of tables; None if they say nothing."""
    said: dict[str, Any] = {name: params.get(name) for name in ("missing", "metadata")}
    for name in ("categorical", "drop"):
        said[name] = tuple(map(str, parse_columns(params.get(name)) or ()))
    usual = {item.name: item.default for item in fields(Encode)}
    said = {name: value for name, value in said.items() if value and value != usual[name]}
    return Encode(**said) if said else None


def read_groups(
    reference: Any, models: Mapping[str, Any], groups: str
) -> tuple[dict[str | None, Any] | NDArray[Any], dict[str | None, list[int]]]:
    """Labels of the rows, from a file of them or from a column of every file, and each
    file's other columns.
    """
    there = os.path.exists(groups)  # noqa: PTH110  (Path.exists raises for names that are too long)
    if there and format_of(Path(groups)) is not None:
        return read_labels(groups), {}
    try:
        both = {
            key: split_labels(source, groups)
            for key, source in ((None, reference), *models.items())
            if isinstance(source, str) and not names_object(source)
        }
    except NoSuchColumn as error:
        missing = f"column, and {groups} is no file of labels" if there else "column or file"
        raise InputError(f"--groups: there is no such {missing}; {error}") from None
    return {key: labels for key, (labels, _) in both.items()}, {
        key: others for key, (_, others) in both.items()
    }


def named_models(models: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Name → file, in the order given."""
    if names and len(names) != len(models):
        raise InputError(
            f"--name: expected one for each of the {len(models)} models, got {len(names)}"
        )
    default = [
        model.rpartition(":")[2] if names_object(model) else name_of(model) for model in models
    ]
    chosen = [valid_text(name) for name in names or default]
    for name in chosen:
        if chosen.count(name) > 1:
            raise InputError(
                f"two models are called {name!r}; tell them apart with --name, "
                f"once for each model"
            )
    return dict(zip(chosen, models, strict=True))


def check_inputs(reference: str, models: Sequence[str]) -> None:
    """Refuse the reference as a model."""
    for model in models:
        if os.path.realpath(model) == os.path.realpath(reference):
            raise InputError(
                f"{model}: given both as the reference and as a model; leave it "
                f"out of the models"
            )


def expected_seconds(inputs: Inputs, estimator: str) -> float:
    """About how long the estimate takes."""
    arrays = [value for value in inputs.models.values() if _count(value)]
    columns = max(map(_width, (*arrays, inputs.reference)))
    n = _count(inputs.reference)
    design = ESTIMATORS.get(estimator, Complete)()
    return design.seconds(n, [_count(x) for x in arrays], columns)


def _opened(source: Any, columns: str | None) -> Any:
    """The object of that name, or the file, of which nothing is read yet."""
    if isinstance(source, str) and names_object(source):
        return load_object(source)
    return FileRows(source, columns) if isinstance(source, str) else source


def _mapped(source: Any) -> Any:
    """The rows of a .npy file, of which nothing is read yet; anything else as it is."""
    known = (
        isinstance(source, FileRows)
        and source.columns is None
        and str(source.source).endswith(".npy")
    )
    return read_rows(source.source) if known else source


def _read(source: Any, plain: bool) -> Any:
    """The file as a table if its columns have names, else as rows."""
    if not isinstance(source, FileRows):
        return source
    table = None if plain else read_table(source.source, source)
    return read_rows(source.source, columns=source.columns) if table is None else table


def _subsample(inputs: Inputs, rows: int, seed: int, dependence: str) -> Inputs:
    """At most `rows` rows of each, drawn without replacement.

    All models draw from one stream, so that rows made from common random numbers stay
    together; the reference joins in where its rows are paired with them.
    """
    if dependence == "chain":
        raise InputError(
            "--rows: a random choice of rows breaks the order of a chain; "
            "shorten the files themselves"
        )
    together = list(inputs.models.values())
    if dependence == "paired":
        together.append(inputs.reference)
    lengths = sorted({_count(value) for value in together} - {0})
    if dependence in ("shared", "paired") and len(lengths) > 1:
        raise InputError(
            f"--rows: --dependence {dependence} expects files of equal length, "
            f"got {lengths} rows"
        )

    def drawn(value: Any, purpose: str) -> Any:
        if _count(value) <= rows:
            return value
        # In order: a mapped file is then read from front to back.
        return value[
            np.sort(stream(seed, "rows", purpose).choice(len(value), rows, replace=False))
        ]

    samples = {"the reference": inputs.reference}
    samples |= {f"model {name!r}": value for name, value in inputs.models.items()}
    cut = [
        f"{sample} ({_count(value)})"
        for sample, value in samples.items()
        if _count(value) > rows
    ]
    notes = list(inputs.notes)
    if cut:
        whence = listed(cut, quote=str)
        notes.append(f"{rows} rows drawn at random (--rows, seed {seed}) from {whence}")
    return Inputs(
        drawn(inputs.reference, "models" if dependence == "paired" else "reference"),
        {name: drawn(value, "models") for name, value in inputs.models.items()},
        tuple(notes),
    )


def _count(value: Any) -> int:
    return (
        len(value)
        if isinstance(value, Table) or (isinstance(value, np.ndarray) and value.ndim)
        else 0
    )


def _width(value: Any) -> int:
    """The columns of rows, and 1 for anything else."""
    if isinstance(value, Table):
        return len(value.columns)
    return int(value[:1].size) if _count(value) else 1


def names_object(text: str) -> bool:
    """True if the text names a Python object, ``module:object`` or ``file.py:object``, and
    not a file.

    >>> names_object("models:flow"), names_object("samples.npz:first")
    (True, False)
    """
    head, separator, name = text.rpartition(":")
    # After the suffix of a file, the name is that of one of its arrays.
    if (
        not separator
        or not name.isidentifier()
        or Path(text).exists()
        or head.lower().endswith(SUFFIXES)
    ):
        return False
    return head.endswith(".py") or all(part.isidentifier() for part in head.split("."))


def load_object(text: str) -> Any:
    """Import the module or run the file, and return the object of that name.

    >>> load_object("math:pi")
    3.141592653589793
    """
    head, _, name = text.rpartition(":")
    if head.endswith(".py"):
        module = _run_file(Path(head))
    else:
        try:
            module = importlib.import_module(head)
        except Exception as error:
            file = Path(*head.split(".")).with_suffix(".py")
            hint = (
                f"; or write {file}:{name}"
                if isinstance(error, ModuleNotFoundError) and file.is_file()
                else ""
            )
            raise InputError(
                f"{head}: cannot be imported ({type(error).__name__}: {error}){hint}"
            ) from error
    if not hasattr(module, name):
        raise InputError(f"{text}: {head} has no object called {name!r}")
    return getattr(module, name)


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
        raise InputError(
            f"{path}: failed while it ran ({type(error).__name__}: {error})"
        ) from error
    return module


def read_scores(table: str, params: Mapping[str, Any]) -> Scores:
    """The scores in the table that these options describe."""
    options = {name: params[name] for name in _OF_TABLES}
    options |= {name: _several(params[name]) for name in ("item", "group")}
    weights = dict(named_numbers("--weight", params["weight"], "STRATUM=NUMBER")) or None
    return scores(
        table, labels=params["label"], weights=weights, transpose=params["transpose"], **options
    )


def _several(names: tuple[str, ...]) -> str | tuple[str, ...] | None:
    """An option that may be repeated: None, one name, or several."""
    return (names[0] if len(names) == 1 else names) if names else None


def named_numbers(
    option: str, texts: Sequence[str], form: str = "NAME=NUMBER"
) -> list[tuple[str, float]]:
    """NAME=NUMBER texts of an option; the name of a number alone is empty."""
    found = []
    for text in texts:
        name, _, number = text.rpartition("=")
        try:
            found.append((name, float(number)))
        except ValueError:
            raise InputError(f"{option}: expected {form}, got {text!r}") from None
    return found


def read_runs(paths: Any, params: Mapping[str, Any]) -> Scores:
    """The logs, read with these options."""
    which = {key: params[key] for key in ("metric", "filter", "runs", "allow_different")}
    return read_evals(paths, task=params["task"] or None, **which)


def read_items(
    pairs: Sequence[str], field: str | None, files: Mapping[str, str]
) -> dict[str, list[Any]] | None:
    """NAME=SOURCE pairs as one image file or text per row; `files` says where each sample's
    rows came from.

    Where `relfit features` left items out, the list of names beside the rows says which are
    there.
    """
    if not pairs:
        return None
    from relfit.features.run import list_items

    contents = {}
    for pair in pairs:
        name, separator, source = pair.partition("=")
        if not separator or name not in files:
            raise InputError(
                f"--items: expected NAME=SOURCE with the name of a model or "
                f"{REFERENCE!r}, got {pair!r}"
            )
        images = Path(source).is_dir() and not any(Path(source).rglob("*.txt"))
        items = {
            item.name: item.content
            for item in list_items(source, "images" if images else "text", field=field)
        }
        rows = split_key(files[name])[0]
        listed = rows.with_name(f"{rows.stem}.names.txt")
        note_read(listed)
        kept = (
            listed.read_text(encoding="utf-8").splitlines() if listed.is_file() else list(items)
        )
        contents[name] = (
            [items[item] for item in kept] if set(kept) <= set(items) else list(items.values())
        )
    return contents
