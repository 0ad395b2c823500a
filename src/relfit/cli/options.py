"""Options of the command line that say what is measured, and what they mean to `compare` and `compare_pair`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
from click.core import ParameterSource

from relfit.cli.inputs import DISCREPANCIES, discrepancy_of, kernel_of
from relfit.compute.choice import BACKENDS, PRECISIONS
from relfit.data.presets import PRESETS
from relfit.kernels import NAMED
from relfit.settings import DEPENDENCE, ESTIMATORS, VARIANCES
from relfit.util.errors import InputError


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


def _options(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Several click options as one decorator, in the order in which the help shows them."""

    def decorate(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


name_option = click.option(
    "--name", "names", metavar="NAME", multiple=True, help="Name of a model, once for each; otherwise the file names."
)
measuring_options = _options(
    click.option("--alpha", metavar="LEVEL", type=float, default=0.05, show_default=True, help="Error rate allowed."),
    click.option(
        "--margin",
        metavar="DELTA",
        type=float,
        default=0.0,
        help="A difference that does not matter: test “worse by more than DELTA”, and say where “equivalent” is shown.",
    ),
    click.option(
        "--kernel",
        type=click.Choice([*NAMED, "select"]),
        default="gaussian",
        show_default=True,
        help="select: the bandwidth of a Gaussian chosen on a fifth of the rows, the test on the others.",
    ),
    click.option(
        "--bandwidth",
        metavar="median|NUMBER",
        type=_Bandwidth(),
        help="Length of the kernel.  [default: the median distance; 1 for imq]",
    ),
    click.option(
        "--preset",
        type=click.Choice(list(PRESETS)),
        help="Of features: kid: cubic kernel; cmmd: rows of unit length, Gaussian kernel of bandwidth 10.",
    ),
    click.option(
        "--discrepancy",
        type=click.Choice(DISCREPANCIES),
        default="auto",
        show_default=True,
        help="auto: mmd for samples, ksd for densities; ume, nystroem, fssd: by some locations, in linear time.",
    ),
    click.option(
        "--locations", metavar="NUMBER", type=click.IntRange(min=1), help="How many.  [default: 10; nystroem: 2√n]"
    ),
    click.option(
        "--estimator",
        type=click.Choice(ESTIMATORS),
        default="complete",
        show_default=True,
        help="complete: all pairs of rows; incomplete: 25 for each row; block: within blocks; linear: n/2; auto: by n.",
    ),
    click.option("--pairs", metavar="NUMBER", type=int, help="incomplete: pairs of rows.  [default: 25 for each row]"),
    click.option("--blocks", metavar="NUMBER", type=int, help="block: number of blocks.  [default: √n or 40]"),
    click.option(
        "--variance",
        type=click.Choice(VARIANCES),
        default="auto",
        show_default=True,
        help="corrected: the second-order part of complete's variance counted once.",
    ),
    click.option(
        "--dependence",
        type=click.Choice(DEPENDENCE),
        default="independent",
        show_default=True,
        help="shared: the models used the same prompts or random numbers; paired: with the reference rows too.",
    ),
    click.option(
        "--seed",
        metavar="NUMBER",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        help="The same seed gives the same answer.",
    ),
    click.option(
        "--backend",
        type=click.Choice(BACKENDS),
        default="auto",
        show_default=True,
        help="Where the work is done; triton: fused kernels on a CUDA device, in single precision.",
    ),
    click.option("--precision", type=click.Choice(PRECISIONS), default="double", show_default=True),
    click.option(
        "--memory",
        metavar="SIZE",
        help="Hold no more than this, such as 2GB, whatever the size of the files.  [default: files are read whole]",
    ),
    click.option("--progress/--no-progress", default=None, help="Show a bar; by default on terminals only."),
)
json_option = click.option(
    "--json", "json_path", metavar="PATH", help="Write the result as JSON; - prints it instead of the table."
)


def measured_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """The options as arguments of `compare` and `compare_pair`."""
    kernel, bandwidth, preset = (settings.pop(name) for name in ("kernel", "bandwidth", "preset"))
    if preset is not None:
        _refuse_own_kernel(preset)
    chosen = kernel_of(kernel, bandwidth) if preset is None else None
    discrepancy = discrepancy_of(settings.pop("discrepancy"), settings.pop("locations"))
    return {"discrepancy": discrepancy, "kernel": chosen, "preset": preset, "rng": settings.pop("seed"), **settings}


def _refuse_own_kernel(preset: str) -> None:
    context = click.get_current_context()
    for name in ("kernel", "bandwidth"):
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise InputError(f"--{name}: --preset {preset} has a kernel of its own; leave out one of the two")
