"""The options that commands share, with the names and defaults of `Settings`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import click
from click.core import ParameterSource

from relfit.compute.backend import BACKENDS, PRECISIONS
from relfit.data.presets import PRESETS
from relfit.estimators.base import Estimator
from relfit.estimators.designs import ESTIMATORS, VARIANCES
from relfit.estimators.locations import AT_LOCATIONS, AtLocations
from relfit.kernels import NAMED
from relfit.kernels.base import Kernel
from relfit.kernels.choice import Select
from relfit.settings import DEPENDENCE, Compute, Settings
from relfit.stats.decision import CORRECTIONS
from relfit.stats.tests import DEFAULT, TESTS
from relfit.stats.tests.base import Test
from relfit.stats.tests.relmulti import RelMulti
from relfit.util.errors import InputError

Decorator = Callable[[Any], Any]
DEFAULTS = {item.name: item.default for record in (Settings, Compute) for item in fields(record)}
# The estimator that each option of the command line belongs to.
_DESIGN_OPTIONS = {"pairs": "incomplete", "blocks": "block", "variance": "complete"}


class SectionedOption(click.Option):
    """An option that is listed under a heading of its own in the help."""

    def __init__(self, *args: Any, section: str = "Other options", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.section = section


class SectionedCommand(click.Command):
    """A command whose help lists its options by section."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write every section, in the order in which their first options were declared."""
        sections: dict[str, list[tuple[str, str]]] = {}
        # Options without a section, such as --help, come last.
        for param in sorted(self.get_params(ctx), key=lambda param: not isinstance(param, SectionedOption)):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is not None:
                sections.setdefault(getattr(param, "section", "Other options"), []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


def section(title: str, *options: tuple[tuple[str, ...], dict[str, Any]]) -> Decorator:
    """Several options under one heading, as one decorator."""

    def decorate(function: Any) -> Any:
        for names, settings in reversed(options):
            function = click.option(*names, cls=SectionedOption, section=title, **settings)(function)
        return function

    return decorate


def opt(*names: str, **settings: Any) -> tuple[tuple[str, ...], dict[str, Any]]:
    """One option of a section."""
    return names, settings


class _Bandwidth(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # generic since click 8.4 only
    name = "median|NUMBER"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "median":
            return value
        try:
            number = float(value)
        except ValueError:
            number = 0.0
        if not 0.0 < number < float("inf"):
            self.fail(f'expected "median" or a positive number, got {value!r}', param, ctx)
        return number


JSON = opt("--json", "json_path", metavar="PATH", help="Write the result as JSON; - prints it instead of the table.")
HTML = opt("--html", "html_path", metavar="PATH", help="Write a report that opens in any browser.")
NAMES = opt(
    "--name", "names", metavar="NAME", multiple=True, help="Name of a model, once for each.  [default: file names]"
)
ALPHA = opt(
    "--alpha",
    metavar="LEVEL",
    type=float,
    default=DEFAULTS["alpha"],
    show_default=True,
    help="Level of the test: the error rate that is allowed.",
)
MARGIN = opt(
    "--margin",
    metavar="DELTA",
    type=float,
    default=DEFAULTS["margin"],
    help="Test “worse by more than DELTA”, in the units of the discrepancy, and say which models are equivalent.",
)
CORRECTION = opt(
    "--correction",
    type=click.Choice(CORRECTIONS),
    help=f"Multiple-testing correction of the p-values.  [default: {RelMulti.default_correction} for relmulti, "
    "otherwise none]",
)
SELECT_FRACTION = opt(
    "--select-fraction",
    metavar="FRACTION",
    type=float,
    help=f"With relmulti, the fraction of the rows that selects the best model.  [default: "
    f"{RelMulti().select_fraction}]",
)
TEST = opt(
    "--test",
    type=click.Choice(list(TESTS)),
    default=DEFAULT.name,
    show_default=True,
    help="best-set finds the models that could be best; relpsi selects and tests on all rows; relmulti splits the "
    "rows; carve is relpsi with noise in the selection.",
)
SEED = opt(
    "--seed",
    metavar="NUMBER",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Seed of all random choices; the same seed gives the same answer.",
)
PROGRESS = opt("--progress/--no-progress", default=None, help="Show a progress bar.  [default: on terminals only]")
PRESET = opt(
    "--preset",
    type=click.Choice(list(PRESETS)),
    help="For feature vectors. kid: cubic polynomial kernel; cmmd: rows of unit length, Gaussian kernel of "
    "bandwidth 10.",
)
DEPENDENCE_OPTION = opt(
    "--dependence",
    type=click.Choice(DEPENDENCE),
    default=DEFAULTS["dependence"],
    show_default=True,
    help="shared: the models used the same prompts or random numbers; paired: their rows match the reference rows too; "
    "chain: each sample is a Markov chain.",
)
ESTIMATOR = opt(
    "--estimator",
    type=click.Choice([*ESTIMATORS, "auto"]),
    default=DEFAULTS["estimator"],
    show_default=True,
    help="complete uses all pairs of rows, incomplete 25 for each row, block those within blocks, linear n/2; auto "
    "chooses by the size.",
)
KERNEL = opt(
    "--kernel",
    type=click.Choice([*NAMED, "select"]),
    default="gaussian",
    show_default=True,
    help="The kernel; select chooses the bandwidth of a Gaussian on a fifth of the rows and tests on the others.",
)
BANDWIDTH = opt(
    "--bandwidth",
    metavar="median|NUMBER",
    type=_Bandwidth(),
    help="Bandwidth of the kernel.  [default: the median distance; 1 for imq]",
)

measure_options = section(
    "Discrepancy and kernel",
    opt(
        "--discrepancy",
        type=click.Choice(["auto", "mmd", "ksd", *AT_LOCATIONS]),
        default=DEFAULTS["discrepancy"],
        show_default=True,
        help="auto takes mmd for samples and ksd for densities; ume, nystroem and fssd use some locations, in "
        "linear time.",
    ),
    opt(
        "--locations",
        metavar="NUMBER",
        type=click.IntRange(min=1),
        help="Number of locations for ume, nystroem and fssd.  [default: 10; nystroem: 2√n]",
    ),
    KERNEL,
    BANDWIDTH,
    PRESET,
    DEPENDENCE_OPTION,
)
estimator_options = section(
    "Estimator",
    ESTIMATOR,
    opt(
        "--pairs",
        metavar="NUMBER",
        type=int,
        help="With incomplete, the number of pairs of rows.  [default: 25 for each row]",
    ),
    opt("--blocks", metavar="NUMBER", type=int, help="With block, the number of blocks.  [default: √n, at least 40]"),
    opt(
        "--variance",
        type=click.Choice(VARIANCES),
        default="auto",
        show_default=True,
        help="With complete, corrected counts the second-order part of the variance once.",
    ),
)
compute_options = section(
    "Computation",
    opt(
        "--backend",
        type=click.Choice(BACKENDS),
        default=DEFAULTS["backend"],
        show_default=True,
        help="Library that computes the kernel; triton uses fused kernels on a CUDA device, in single precision.",
    ),
    opt(
        "--precision",
        type=click.Choice(PRECISIONS),
        default=DEFAULTS["precision"],
        show_default=True,
        help="Precision of the kernel's values; sums stay in double precision.",
    ),
    opt(
        "--memory",
        metavar="SIZE",
        help="Memory that the process may use, such as 2GB; larger files are read in parts.  [default: files are read "
        "whole]",
    ),
    opt("--workers", metavar="NUMBER", type=click.IntRange(min=1), help="Compute in this many processes."),
    opt("--cluster", metavar="ADDRESS", help="Compute on a Dask cluster, given its scheduler's tcp://HOST:8786."),
    opt(
        "--checkpoint",
        metavar="FILE",
        help="Save finished parts here; after a crash or an interrupt the same command resumes from them.",
    ),
)


def comparing_options(params: dict[str, Any], executor: Any) -> dict[str, Any]:
    """The options of the command line as those of `compare` and `compare_pair`."""
    take = params.get
    preset, kernel, bandwidth = take("preset"), take("kernel"), take("bandwidth")
    if preset is not None:
        _refuse_own_kernel(preset)
    return {
        "discrepancy": _discrepancy(params["discrepancy"], take("locations")),
        "kernel": kernel_of(kernel, bandwidth) if preset is None else None,
        "preset": preset,
        "estimator": estimator_of(params),
        "alpha": params["alpha"],
        "margin": params["margin"],
        "dependence": params["dependence"],
        "groups": take("groups"),
        "rng": params["seed"],
        "progress": take("progress"),
        "compute": Compute(
            backend=params["backend"],
            precision=params["precision"],
            executor=executor,
            checkpoint=take("checkpoint"),
            memory=take("memory"),
        ),
    }


def estimator_of(params: dict[str, Any]) -> str | Estimator:
    """The estimator with its own options."""
    name = params["estimator"]
    for option, owner in _DESIGN_OPTIONS.items():
        value = params.get(option)
        if value not in (None, "auto") and name != owner:
            raise InputError(f"--{option}: belongs to --estimator {owner}, got {name}; leave it out")
    if name not in ESTIMATORS:
        return str(name)
    own = {option: params.get(option) for option, owner in _DESIGN_OPTIONS.items() if owner == name}
    return ESTIMATORS[name](**{option: value for option, value in own.items() if value is not None})


def test_of(name: str, select_fraction: float | None) -> Test:
    """The test with its own options."""
    if select_fraction is None:
        return TESTS[name]()
    if name != RelMulti.name:
        raise InputError(f"--select-fraction: belongs to --test {RelMulti.name}, got {name}; leave it out")
    return RelMulti(select_fraction)


test_of.__test__ = False  # type: ignore[attr-defined]  # pytest collects functions with this name


def kernel_of(name: str | None, length: Any) -> Kernel | Select:
    """The kernel of --kernel (None is Gaussian) and --bandwidth."""
    if name == "select":
        if length is not None:
            raise InputError("--bandwidth: --kernel select chooses it; leave out one of the two")
        return Select()
    kernel = NAMED[name or "gaussian"]
    return kernel if length is None else replace(kernel, **{kernel.length_field: length})


def _discrepancy(name: str, locations: int | None) -> str | AtLocations:
    if locations is None:
        return name
    if name not in AT_LOCATIONS:
        raise InputError(f"--locations: belongs to --discrepancy {', '.join(AT_LOCATIONS)}, got {name}")
    return AT_LOCATIONS[name](locations=locations)


def _refuse_own_kernel(preset: str) -> None:
    context = click.get_current_context()
    for name in ("kernel", "bandwidth"):
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise InputError(f"--{name}: --preset {preset} has its own kernel; leave out one of the two")
