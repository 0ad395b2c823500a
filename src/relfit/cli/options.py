"""The options that commands share, made from the fields that describe them, and the values
that they stand for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import Field, fields, replace
from typing import Any

import click

from relfit.cli.inputs import named_numbers, table_options
from relfit.cli.sections import AT_LEAST_1, PROGRESS, SEED, Decorator, opt, section, together
from relfit.data.encode import Encode
from relfit.data.files.base import parse_columns
from relfit.data.presets import PRESETS, as_preset
from relfit.estimators import ESTIMATORS
from relfit.estimators.locations import AT_LOCATIONS
from relfit.kernels import NAMED
from relfit.kernels.base import Kernel
from relfit.kernels.composite import Select
from relfit.settings import NO_TEST, Compute, Settings
from relfit.stats.tests import DEFAULT, TESTS
from relfit.util.checks import Fraction, Whole, flagged
from relfit.util.errors import InputError

# The kinds of number that are typed for a field with such a check.
_TYPES: dict[type, Any] = {Whole: int, Fraction: float}
# The values that an option names, which have options of their own.
_VALUES: dict[str, Mapping[str, Any]] = {
    "test": TESTS,
    "estimator": ESTIMATORS,
    "discrepancy": AT_LOCATIONS,
}


def of(record: Any, name: str, *, help: str = "", also: str = "", **more: Any) -> Decorator:
    """The option of the field of this name; `also` is added to its help, `more` replaces the
    rest.
    """
    item = next(each for each in fields(record) if each.name == name)
    text = f"{help or item.metadata['help']} {also}".rstrip()
    return _option(item, text, item.metadata["shown"], **more)


def _option(item: Field[Any], help: str, shown: Any, **more: Any) -> Decorator:
    """The option of a field; the default is None where it is shown in other words."""
    told = item.metadata
    rest = {
        "choices": told["words"],
        "type": _TYPES.get(type(told["check"])),
        "default": None if shown else item.default,
        "dest": _place(item),
    }
    end = f"  [default: {shown}]" if shown else ""
    return opt(told["flag"], f"{help.rstrip('.')}.{end}", **{**rest, **more})


def _place(item: Field[Any]) -> str:
    """The name of the parameter: that of the field, or of the option where a field of
    `Settings` has this name, too.
    """
    if Settings.__dataclass_fields__.get(item.name, item) is item:
        return item.name
    return str(item.metadata["flag"]).split()[0].lstrip("-").replace("-", "_")


def _own_options(kind: str) -> list[tuple[Field[Any], list[str]]]:
    """The options of the values of one kind, each with the names of those that have it."""
    owners: dict[str, list[str]] = {}
    items: dict[str, Field[Any]] = {}
    for name, value in _VALUES[kind].items():
        for item in flagged(value):
            items.setdefault(item.name, item)
            owners.setdefault(item.name, []).append(name)
    return [(item, owners[name]) for name, item in items.items()]


def of_values(kind: str, **more: Any) -> list[Decorator]:
    """The options of the tests, of the estimators or of the discrepancies that have some."""
    made = []
    for item, owners in _own_options(kind):
        told = item.metadata
        help = f"With {' and '.join(owners)}, {told['help']}"
        made.append(_option(item, help, told["shown"] or item.default, **more))
    return made


def values_of(kind: str, names: Sequence[str], params: Mapping[str, Any]) -> list[Any]:
    """The values of these names with their own options; an option of none of them is
    refused.
    """
    own: dict[str, dict[str, Any]] = {name: {} for name in names}
    for item, owners in _own_options(kind):
        value = params.get(_place(item))
        if value is None or value == item.default:
            continue
        chosen = [name for name in names if name in owners]
        if not chosen:
            flag = item.metadata["flag"].split()[0]
            which = f"--{kind} {', '.join(owners)}"
            raise InputError(
                f"{flag}: belongs to {which}, got {', '.join(names)}; leave it out"
            )
        for name in chosen:
            own[name][item.name] = value
    known = _VALUES[kind]
    return [known[name](**own[name]) if name in known else name for name in names]


def _bandwidth(value: str) -> str | float:
    if value == "median":
        return value
    with suppress(ValueError):
        if 0.0 < float(value) < float("inf"):
            return float(value)
    raise click.BadParameter(f'expected "median" or a positive number, got {value!r}')


def _scale(value: str) -> Any:
    """One of the words, or columns with their numbers; the library refuses anything else."""
    with suppress(InputError):
        pairs = named_numbers("--scale", list(map(str, parse_columns(value) or ())))
        if all(name for name, _ in pairs):
            return dict(pairs)
    return value


class _PresetName(click.Choice[str]):
    """One of the presets; the library explains why FID is none of them."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        return as_preset(value)


TEST = of(Settings, "test", default=DEFAULT.name)
ALPHA = of(Settings, "alpha")
MARGIN = of(Settings, "margin")
CORRECTION = of(Settings, "correction")
TEST_OPTIONS = of_values("test")
DISCREPANCY = of(
    Settings,
    "discrepancy",
    also="Repeat it for verdicts by several, of which the first decides the gate.",
    multiple=True,
)
BANDWIDTH = opt(
    "--bandwidth median|NUMBER",
    "Bandwidth of the kernel: a number, or the median distance between rows.  [default: "
    "median; 1 for imq]",
    type=_bandwidth,
)
PRESET = of(Settings, "preset", choices=(), type=_PresetName(list(PRESETS)))
ESTIMATOR = of(Settings, "estimator")
# The tests that split the rows.
SPLITTING = next(
    owners for item, owners in _own_options("test") if item.name == "select_fraction"
)

input_options = section(
    "Input",
    opt(
        "--name NAME",
        "Name of a model; repeat it for each model.  [default: the file names]",
        multiple=True,
    ),
    opt(
        "--columns LIST",
        "Columns of every file that are used: names, numbers from 0, or "
        "ranges (a,b or 0,3-10).",
    ),
    opt(
        "--rows NUMBER",
        "Use at most this many rows of each file, drawn at random with --seed.",
        type=AT_LEAST_1,
    ),
    of(
        Settings,
        "groups",
        also="The labels are a column of every file or, for paired rows, a file.",
    ),
    of(Settings, "dependence"),
    of(Settings, "given"),
    of(Settings, "scale", type=_scale),
    *(
        of(Encode, item.name, default=None if item.default == () else item.default)
        for item in flagged(Encode)
    ),
)
other_options = section(
    "Other options",
    SEED,
    PROGRESS,
    opt(
        "--verbose/--quiet",
        "Print the sizes of the inputs first, or print neither sizes nor a progress bar.",
    ),
)
data_options = together(
    input_options,
    section(
        "Discrepancy and kernel",
        DISCREPANCY,
        *of_values("discrepancy", type=AT_LEAST_1),
        of(Settings, "kernel"),
        BANDWIDTH,
        PRESET,
    ),
    section("Estimator", ESTIMATOR, *of_values("estimator")),
    section(
        "Computation",
        *(of(Compute, item.name) for item in flagged(Compute)),
        opt("--workers NUMBER", "Compute in this many processes.", type=AT_LEAST_1),
        opt(
            "--cluster ADDRESS",
            "Compute on the Dask cluster with this scheduler, such as tcp://HOST:8786.",
        ),
    ),
    other_options,
)


def comparing_options(params: dict[str, Any], executor: Any) -> dict[str, Any]:
    """The options of the command line as those of `compare` and `compare_pair`."""
    chosen = values_of("discrepancy", params["discrepancy"] or ("auto",), params)
    of_test = {name: params[name] for name in NO_TEST if name in params}
    return {
        **of_test,
        **pilot_options(params),
        "discrepancy": chosen[0] if len(chosen) == 1 else chosen,
        "compute": Compute(executor=executor, **_given(Compute, params)),
    }


def pilot_options(params: dict[str, Any]) -> dict[str, Any]:
    """Those of them that `relfit plan` has too."""
    quiet = params["verbose"] is False and params["progress"] is None
    kernel = None
    if params["kernel"] is not None or params["bandwidth"] is not None:
        kernel = _kernel(params["kernel"], params["bandwidth"], params["preset"])
    encode = table_options(params)
    if encode is not None and params.get("memory") is None:
        beyond = replace(encode, drop=())  # left out as the files were read
        encode = None if beyond == Encode() else beyond
    plain = _given(Settings, params)
    for name in (*NO_TEST, "discrepancy", "groups"):
        plain.pop(name, None)
    return {
        **plain,
        "kernel": kernel,
        "encode": encode,
        "estimator": values_of("estimator", [params["estimator"]], params)[0],
        "rng": params["seed"],
        "progress": False if quiet else params["progress"],
    }


def _given(record: Any, params: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a record that are options of this command."""
    return {
        item.name: params[_place(item)] for item in flagged(record) if _place(item) in params
    }


def _kernel(name: str | None, length: Any, preset: str | None) -> Kernel | Select | None:
    if preset is not None:
        for option, value in (("--kernel", name), ("--bandwidth", length)):
            if value is not None:
                raise InputError(
                    f"{option}: --preset {preset} has its own kernel; leave out one of the two"
                )
        return None
    if name == "select":
        if length is not None:
            raise InputError(
                "--bandwidth: --kernel select chooses it; leave out one of the two"
            )
        return Select()
    kernel = NAMED[name or "gaussian"]
    return kernel if length is None else replace(kernel, **{kernel.length_field: length})
