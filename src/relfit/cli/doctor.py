"""The command `relfit doctor`: what is installed, which backends work, and a self-test with
a known answer.
"""

from __future__ import annotations

import math
import platform
import timeit
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any, Literal

import click
import numpy as np
from numpy.typing import NDArray

from relfit.api import compare, estimate
from relfit.cli.outputs import say
from relfit.compute.backend import TILE, Job, NumbaBackend, NumpyBackend, numba_problem
from relfit.compute.reduce import one_blas_thread
from relfit.data.models import Density
from relfit.kernels.standard import Gaussian
from relfit.settings import Compute
from relfit.util import __version__
from relfit.util.libraries import has_cuda, usable_cores

HEALTHY = 0
BROKEN = 1
NEEDED = (
    "numpy",
    "scipy",
    "threadpoolctl",
    "click",
    "rich",
    "jinja2",
    "matplotlib",
    "contourpy",
)
# Package → the name it is imported by, and what it is for.
OPTIONAL = {
    "pandas": ("pandas", "to_frame()"),
    "pyarrow": ("pyarrow", "Parquet, Feather and Arrow files"),
    "safetensors": ("safetensors", "safetensors files"),
    "zarr": ("zarr", "Zarr files"),
    "torch": ("torch", "the torch backend, scores by autograd, features"),
    "numba": ("numba", "compiled loops on the CPU"),
    "triton": ("triton", "fused kernels on a CUDA device"),
    "jax": ("jax", "scores by jax.grad"),
    "scikit-learn": ("sklearn", "mixtures and kernel densities as models"),
    "distributed": ("distributed", "Dask clusters"),
}
# The known values are those of n rows, half of them at each of two points; q is the kernel's
# value between the two.
ROWS = 20
Q = math.exp(-0.5)
# Columns of the rows that times are measured with.
COLUMNS = 10
# The largest error in double and in single precision.
DOUBLE = 1e-12
SINGLE = 1e-5


@dataclass(frozen=True)
class Finding:
    """One line of the report: what was examined, its state, and details."""

    name: str
    state: Literal["ok", "absent", "broken"]
    details: str

    def __str__(self) -> str:
        return f"{self.state:<7} {self.name:<15} {self.details}"


def findings() -> Iterator[Finding]:
    """Every finding, as soon as it is known."""
    for name in NEEDED:
        yield _installed(name)
    for name, (module, purpose) in OPTIONAL.items():
        yield _installed(name, module, purpose)
    yield processor()
    yield cpu_loops()
    for backend in ("numpy", "numba", "torch", "triton"):
        yield backend_finding(backend)
    yield self_test()


def _installed(name: str, module: str = "", purpose: str = "") -> Finding:
    """A library; one with a purpose is optional."""
    if find_spec(module or name) is None:
        if purpose:
            return Finding(name, "absent", f"for {purpose}")
        return Finding(name, "broken", "not installed")
    try:
        number = version(name)
    except PackageNotFoundError:
        number = "of unknown version"
    return Finding(name, "ok", f"{number}: {purpose}" if purpose else number)


def known_mmd() -> tuple[float, float]:
    """MMD² of two samples of n = 20 rows to n/2 rows at 0 and n/2 at 1, Gaussian kernel,
    bandwidth 1.

    With q = e^−½ a reference pair has the mean kernel value (9 + 10q)/19. All model rows at
    0: 1 + (9 + 10q)/19 − (1 + q) = 9(1 − q)/19. The reference's own rows: 2(9 + 10q)/19 − (1
    + q) = −(1 − q)/19; unbiased, hence negative.
    """
    return 9.0 * (1.0 - Q) / 19.0, -(1.0 - Q) / 19.0


def known_ksd() -> float:
    """KSD² of the standard normal to n/2 rows at −½ and n/2 at ½, Gaussian kernel, bandwidth 1.

    The Stein kernel is u(x, y) = k (xy + 1 − 2(x − y)²): 5/4 for equal rows and −5q/4 for
    others, so that the mean over pairs of rows is (5/4)(9 − 10q)/19.
    """
    return 1.25 * (9.0 - 10.0 * Q) / 19.0


def instruction_sets() -> list[str]:
    """The vector instructions that NumPy finds in the processor, by its names for them."""
    simd: Any = np.show_config(mode="dicts")
    return [
        name for kind in ("baseline", "found") for name in simd["SIMD Extensions"].get(kind, ())
    ]


def processor() -> Finding:
    """Its kind, and whether an x86 processor has AVX-512, without which NumPy's exponential
    is slow.
    """
    kind = platform.machine()
    if kind.lower() in ("x86_64", "amd64"):
        wide = not {"X86_V4", "AVX512F"}.isdisjoint(instruction_sets())
        kind += " with AVX-512" if wide else " without AVX-512"
    return Finding("processor", "ok", kind)


def cpu_loops() -> Finding:
    """What computes large comparisons on the CPU, and its time for a pair of rows."""
    numpy = f"numpy: {_nanoseconds(NumpyBackend()):.1f} ns a pair"
    if find_spec("numba") is None:
        return Finding(
            "CPU loops", "absent", f'{numpy}; faster with  pip install "relfit[fast]"'
        )
    problem = numba_problem()
    if problem:
        return Finding("CPU loops", "broken", problem)
    numba = f"numba: {_nanoseconds(NumbaBackend()):.1f} ns a pair"
    return Finding("CPU loops", "ok", f"{numba}, {numpy}")


def _nanoseconds(backend: NumpyBackend) -> float:
    """The best time of one core for each pair of one tile of a Gaussian kernel matrix."""
    kernel = Gaussian(3.0)
    ones = np.ones(TILE)
    points = backend.points(kernel, np.random.default_rng(0).normal(size=(TILE, COLUMNS)))
    job = Job(kernel, points, points, {"phi": ones}, {"phi": ones}, squares=True)
    with one_blas_thread:
        backend.block_sums(job)
        seconds = min(timeit.repeat(lambda: backend.block_sums(job), number=1, repeat=40))
    return 1e9 * seconds / job.pairs


def backend_finding(backend: str) -> Finding:
    """Is this backend installed, and does it give the known values?"""
    name = f"backend {backend}"
    needed = {"numpy": (), "numba": ("numba",)}.get(backend, ("torch", backend))
    if any(find_spec(library) is None for library in needed):
        return Finding(name, "absent", "not installed")
    try:
        device = "" if backend in ("numpy", "numba") else "cuda" if has_cuda() else "cpu"
        if backend == "triton" and device == "cpu":
            return Finding(name, "absent", "needs a CUDA device, and torch sees none")
        error = _error(backend, device)
    except Exception as problem:  # noqa: BLE001  (any error is a finding)
        return _broken(name, problem)
    if error > (SINGLE if backend == "triton" else DOUBLE):
        return Finding(name, "broken", f"off by {error:.0e} from the known values")
    where = f" on {device}" if device else ""
    return Finding(name, "ok", f"works{where}; within {error:.0e} of the known values")


def self_test() -> Finding:
    """A comparison whose answer is known: only the model that is far off is worse."""
    rng = np.random.default_rng(0)
    shifts = {"right": 0.0, "as good": 0.0, "far off": 1.0}
    models = {name: rng.normal(shift, 1.0, (300, 2)) for name, shift in shifts.items()}
    try:
        worse = compare(
            rng.normal(size=(300, 2)), models, rng=0, compute=Compute(backend="numpy")
        ).worse.tolist()
    except Exception as problem:  # noqa: BLE001  (any error is a finding)
        return _broken("self-test", problem)
    if worse != [False, False, True]:
        return Finding("self-test", "broken", f"expected [False, False, True], got {worse}")
    return Finding("self-test", "ok", "a comparison of three models gave the known answer")


def _broken(name: str, problem: Exception) -> Finding:
    return Finding(name, "broken", f"{type(problem).__name__}: {problem}".splitlines()[0])


@click.command("doctor")
def doctor_command() -> int:
    """Say what is installed, which backends work, and whether a self-test passes.

    Exit status 0, or 1 if something that is installed does not work. What is absent is
    optional.
    """
    say(
        f"relfit {__version__} · Python {platform.python_version()} · {platform.system()} · "
        f"{usable_cores()} cores"
    )
    broken = False
    for finding in findings():
        say(str(finding))
        broken = broken or finding.state == "broken"
    say(
        "Something does not work: see “broken” above."
        if broken
        else "All that is installed works."
    )
    return BROKEN if broken else HEALTHY


def _error(backend: str, device: str) -> float:
    """The largest distance of the backend's values from those derived by hand."""

    def placed(rows: NDArray[np.float64]) -> Any:
        # torch computes where the data are.
        return (
            import_module("torch").as_tensor(rows, device=device) if device == "cuda" else rows
        )

    reference = np.repeat([0.0, 1.0], ROWS // 2)[:, None]
    samples = {"at 0": placed(np.zeros((ROWS, 1))), "the reference": placed(reference.copy())}
    normal = {"normal": Density(score=lambda x: -x)}
    compute = Compute(backend=backend)
    found: list[float] = []
    for rows, models in ((reference, samples), (reference - 0.5, normal)):
        joint = estimate(placed(rows), models, kernel=Gaussian(1.0), rng=0, compute=compute)
        found += joint.values.tolist()
    return float(np.abs(np.subtract(found, [*known_mmd(), known_ksd()])).max())
