"""The options that commands share, with the names and defaults of `Settings`, and the values that they stand for."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import fields, replace
from typing import Any

import click

from relfit.cli.inputs import table_options
from relfit.cli.sections import AT_LEAST_1, PROGRESS, SEED, Decorator, opt, section, together
from relfit.compute.backend import BACKENDS, PRECISIONS
from relfit.data.encode import MISSING, SCALES, Encode
from relfit.data.files.base import parse_columns
from relfit.data.presets import PRESETS, as_preset
from relfit.estimators.base import Estimator
from relfit.estimators.designs import DEFAULT_LAGS, ESTIMATORS, FEWEST_BLOCKS, VARIANCES, Complete
from relfit.estimators.locations import AT_LOCATIONS
from relfit.kernels import NAMED
from relfit.kernels.base import Kernel
from relfit.kernels.choice import Select
from relfit.settings import DEPENDENCE, DISCREPANCIES, Compute, Settings
from relfit.stats.decision import CORRECTIONS
from relfit.stats.tests import DEFAULT, TESTS
from relfit.stats.tests.base import Test
from relfit.stats.tests.relmulti import RelMulti
from relfit.util.errors import InputError

_DEFAULTS = {item.name: item.default for record in (Settings, Compute, Complete) for item in fields(record)}
# The estimator that each option of one estimator belongs to.
_OWNERS = {
    "pairs": "incomplete",
    "blocks": "block",
    "variance": "complete",
    "count": "landmarks",
    "residual_pairs": "landmarks",
}
# Options that are not called as the field they set.
_OPTIONS = {"count": "landmarks", "residual_pairs": "residual-pairs"}
# The tests that --select-fraction belongs to.
SPLITTING = [name for name, test in TESTS.items() if hasattr(test, "select_fraction")]


def _bandwidth(value: str) -> str | float:
    if value == "median":
        return value
    with suppress(ValueError):
        if 0.0 < float(value) < float("inf"):
            return float(value)
    raise click.BadParameter(f'expected "median" or a positive number, got {value!r}')


def _scale(value: str) -> Any:
    if value in SCALES:
        return value
    pairs = [part.rpartition("=") for part in map(str, parse_columns(value) or ())]
    try:
        return (
            {name: float(number) for name, _, number in pairs if name} if all(name for name, _, _ in pairs) else value
        )
    except ValueError:
        return value


def _setting(declaration: str, help: str, **more: Any) -> Decorator:
    """An option with the default of the field of the same name."""
    return opt(declaration, help, default=_DEFAULTS[declaration.split()[0].removeprefix("--")], **more)


TEST = opt(
    "--test",
    "How the models are compared. best-set finds those that could be the best; relpsi selects the best one and tests "
    "on all rows; relmulti splits the rows; carve is relpsi with noise added to the selection.",
    choices=TESTS,
    default=DEFAULT.name,
)
ALPHA = _setting("--alpha LEVEL", "Level of the test, which is the error rate that you allow.")
MARGIN = _setting(
    "--margin DELTA",
    "Test whether a model is worse by more than DELTA, in the units of the discrepancy, and say which models are "
    "equivalent within DELTA. The result prints how far apart sampling noise puts two halves of the data.",
)
CORRECTION = opt(
    "--correction",
    "How the p-values are corrected for multiple testing; stepdown (best-set) finds more than holm.  "
    f"[default: {RelMulti.default_correction} for relmulti, otherwise none]",
    choices=CORRECTIONS,
)
SELECT_FRACTION = opt(
    "--select-fraction FRACTION",
    f"With relmulti, the fraction of the rows that selects the best model.  [default: {RelMulti().select_fraction}]",
    type=float,
)
DISCREPANCY = opt(
    "--discrepancy",
    "How far a model is from the data. auto is mmd for samples and ksd for densities; loglik is the mean of -log p, "
    "for normalised densities; ume and fssd compare at some locations only, in linear time. Repeat it for "
    "verdicts by several, of which the first decides the gate.  [default: auto]",
    choices=DISCREPANCIES,
    multiple=True,
)
BANDWIDTH = opt(
    "--bandwidth median|NUMBER",
    "Bandwidth of the kernel: a number, or the median distance between rows.  [default: median; 1 for imq]",
    type=_bandwidth,
)


class _PresetName(click.Choice[str]):
    """One of the presets; the library explains why FID is none of them."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return as_preset(value)


PRESET = opt(
    "--preset",
    "A kernel for feature vectors. kid is a cubic polynomial; cmmd is a Gaussian kernel of bandwidth 10 on rows of "
    "unit length.",
    type=_PresetName(list(PRESETS)),
)
ESTIMATOR = _setting(
    "--estimator",
    f"Which pairs of rows are used. complete: all of them; linear: n/2; block: those within blocks; incomplete: "
    f"{DEFAULT_LAGS} for each row; landmarks: near-linear in the rows, with nearly the power of complete; auto: "
    "complete, or landmarks where that would take more than about ten seconds.",
    choices=[*ESTIMATORS, "auto"],
)

input_options = section(
    "Input",
    opt("--name NAME", "Name of a model; repeat it for each model.  [default: the file names]", multiple=True),
    opt("--columns LIST", "Columns of every file that are used: names, numbers from 0, or ranges (a,b or 0,3-10)."),
    opt("--rows NUMBER", "Use at most this many rows of each file, drawn at random with --seed.", type=AT_LEAST_1),
    opt(
        "--groups COLUMN|FILE",
        "Rows with the same label belong together. The labels are a column of every file or, for paired rows, a file.",
    ),
    _setting(
        "--dependence",
        "How the samples depend on each other. shared: the models used the same prompts or random numbers; paired: "
        "their rows match those of the reference too; chain: each sample is a Markov chain.",
        choices=DEPENDENCE,
    ),
    opt("--given FILE", "With loglik, covariates of densities of y given x, a row for each row of the reference."),
    opt(
        "--scale auto|none|robust|whiten|LIST",
        "How columns are scaled, by the reference. auto: mean and standard deviation; robust: median and median "
        "absolute deviation; whiten: for densities, uncorrelated too; or scales of some columns (age=10,income=5000), "
        "the others as auto.  [default: auto where columns have names, whiten for draws against a density, otherwise "
        "none]",
        type=_scale,
    ),
    opt("--categorical LIST", "Columns whose values are levels, such as codes written as numbers."),
    opt("--drop LIST", "Columns to leave out, by name."),
    opt(
        "--missing",
        "Missing cells: flag makes them values of their own, drop leaves out rows with one.  [default: flag]",
        choices=MISSING,
    ),
    opt("--metadata FILE.json", "SDV's metadata, which say what the columns hold."),
)
other_options = section(
    "Other options",
    SEED,
    PROGRESS,
    opt("--verbose/--quiet", "Print the sizes of the inputs first, or print neither sizes nor a progress bar."),
)
data_options = together(
    input_options,
    section(
        "Discrepancy and kernel",
        DISCREPANCY,
        opt(
            "--locations NUMBER",
            "With ume and fssd, the number of locations.  [default: 10]",
            type=AT_LEAST_1,
        ),
        opt(
            "--kernel",
            "The kernel. select chooses the bandwidth of a Gaussian kernel on a fifth of the rows and tests on the "
            "rest.  [default: gaussian]",
            choices=[*NAMED, "select"],
        ),
        BANDWIDTH,
        PRESET,
    ),
    section(
        "Estimator",
        ESTIMATOR,
        opt(
            "--pairs NUMBER", f"With incomplete, the number of pairs.  [default: {DEFAULT_LAGS} for each row]", type=int
        ),
        opt("--blocks NUMBER", f"With block, the number of blocks.  [default: √n, at least {FEWEST_BLOCKS}]", type=int),
        opt(
            "--landmarks NUMBER",
            "With landmarks, how many there are.  [default: chosen on some rows]",
            dest="count",
            type=int,
        ),
        opt(
            "--residual-pairs NUMBER",
            "With landmarks, the pairs of rows that measure what the landmarks miss, rounded up to a whole "
            "number for each row, at least 2.  [default: so many that they add less than 5% to the variance]",
            type=int,
        ),
        _setting(
            "--variance",
            "With complete, how the variance is estimated. auto is the law with first- and second-order parts for the "
            "best set and RelMulti, and projection for the other tests. projection is conservative for models close to "
            "the data.",
            choices=VARIANCES,
        ),
    ),
    section(
        "Computation",
        _setting(
            "--backend",
            "Library that computes the kernel. numba is numpy with compiled loops, which are faster; triton uses fused "
            "kernels on a CUDA device, in single precision; auto decides by where the data are, by their size and by "
            "what is installed.",
            choices=BACKENDS,
        ),
        _setting(
            "--precision", "Precision of the kernel's values; sums are always in double precision.", choices=PRECISIONS
        ),
        opt(
            "--memory SIZE",
            "Memory that the process may use, such as 2GB; larger files are read in parts.  [default: files are read "
            "whole]",
        ),
        opt("--workers NUMBER", "Compute in this many processes.", type=AT_LEAST_1),
        opt("--cluster ADDRESS", "Compute on the Dask cluster with this scheduler, such as tcp://HOST:8786."),
        opt(
            "--checkpoint FILE",
            "Save finished parts in this file; after a crash or an interrupt the same command resumes from them.",
        ),
    ),
    other_options,
)


def comparing_options(params: dict[str, Any], executor: Any) -> dict[str, Any]:
    """The options of the command line as those of `compare` and `compare_pair`."""
    names, locations = params["discrepancy"] or ("auto",), params["locations"]
    if locations is not None and not set(names) & set(AT_LOCATIONS):
        which, got = ", ".join(AT_LOCATIONS), ", ".join(names)
        raise InputError(f"--locations: belongs to --discrepancy {which}, got {got}; leave it out")
    sized = {} if locations is None else {name: AT_LOCATIONS[name](locations=locations) for name in AT_LOCATIONS}
    chosen = [sized.get(name, name) for name in names]
    computing = {name: params[name] for name in ("backend", "precision", "checkpoint", "memory")}
    return {
        **pilot_options(params),
        "discrepancy": chosen[0] if len(chosen) == 1 else chosen,
        "alpha": params["alpha"],
        "margin": params["margin"],
        "compute": Compute(executor=executor, **computing),
    }


def pilot_options(params: dict[str, Any]) -> dict[str, Any]:
    """Those of them that `relfit plan` has too."""
    quiet = params["verbose"] is False and params["progress"] is None
    kernel = None
    if params["kernel"] is not None or params["bandwidth"] is not None:
        kernel = _kernel(params["kernel"], params["bandwidth"], params["preset"])
    encode = table_options(params)
    if params.get("memory") is None:
        encode = replace(encode, drop=())  # left out as the files were read
    return {
        "kernel": kernel,
        "given": params["given"],
        "preset": params["preset"],
        "scale": params["scale"],
        "encode": None if encode == Encode() else encode,
        "estimator": _estimator(params),
        "dependence": params["dependence"],
        "rng": params["seed"],
        "progress": False if quiet else params["progress"],
    }


def select_test(name: str, select_fraction: float | None) -> Test:
    """The test with its own options."""
    settings = {} if select_fraction is None else {"select_fraction": select_fraction}
    if settings and name not in SPLITTING:
        raise InputError(f"--select-fraction: belongs to --test {', '.join(SPLITTING)}, got {name}; leave it out")
    return TESTS[name](**settings)


def _estimator(params: dict[str, Any]) -> str | Estimator:
    name = params["estimator"]
    values = {option: params.get(option) for option in _OWNERS}
    values = {option: value for option, value in values.items() if value not in (None, "auto")}
    for option in values:
        if _OWNERS[option] != name:
            typed = _OPTIONS.get(option, option)
            raise InputError(f"--{typed}: belongs to --estimator {_OWNERS[option]}, got {name}; leave it out")
    return ESTIMATORS[name](**values) if name in ESTIMATORS else str(name)


def _kernel(name: str | None, length: Any, preset: str | None) -> Kernel | Select | None:
    if preset is not None:
        for option, value in (("--kernel", name), ("--bandwidth", length)):
            if value is not None:
                raise InputError(f"{option}: --preset {preset} has its own kernel; leave out one of the two")
        return None
    if name == "select":
        if length is not None:
            raise InputError("--bandwidth: --kernel select chooses it; leave out one of the two")
        return Select()
    kernel = NAMED[name or "gaussian"]
    return kernel if length is None else replace(kernel, **{kernel.length_field: length})
