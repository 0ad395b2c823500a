"""Random problems on which every backend must agree, and how far two answers are apart.

    python -m tools.agreement [--problems 200] [--workers 1] [--json PATH]

compares NumPy with torch on the CPU and, where there is one, with torch and the fused kernels on a CUDA device.
"""

import argparse
import json
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from relfit.api import compare, estimate
from relfit.data.models import Density
from relfit.kernels.standard import IMQ, Gaussian, Polynomial, RationalQuadratic
from relfit.settings import Compute
from relfit.util.files import write_text_atomic

ALPHA = 0.05
# What must hold: of double precision, of the largest kernel mean; of single precision, of a standard error.
DOUBLE, SINGLE, NEAR_LEVEL = 1e-10, 1e-3, 1e-3
# The data as they are, far from the origin, tiny and huge.
PLACES = {
    "plain": (0.0, 1.0),
    "offset": (1e6, 1.0),
    "tiny": (0.0, 1e-30),
    "huge": (0.0, 1e30),
    "offset and huge": (1e24, 1e20),
}


@dataclass(frozen=True)
class Problem:
    """Arguments of `compare`, and words for them."""

    words: str
    reference: object
    models: dict
    options: dict


def problem(seed, largest=3000):
    """The problem of this seed: size, dimension, models, kernel and place drawn at random."""
    rng = np.random.default_rng([20191208, seed])
    n = int(np.exp(rng.uniform(np.log(30), np.log(largest))))
    d = int(np.exp(rng.uniform(0.0, np.log(300)))) if rng.random() < 0.5 else int(rng.integers(1, 17))
    place = str(rng.choice(list(PLACES), p=[0.6, 0.1, 0.1, 0.1, 0.1]))
    kind = str(rng.choice(["mmd", "ksd", "target"], p=[0.6, 0.3, 0.1]))
    count = int(rng.integers(2, 7))
    # A model of the very distribution of the data is among them now and then: there the estimate is degenerate.
    shifts = rng.choice([0.0, 0.05, 0.2, 0.5], size=count) + 0.02 * rng.random(count)
    shifts[0] *= rng.random() < 0.5
    offset, scale = PLACES[place]
    kernel = _kernel(rng, kind, place, scale * np.sqrt(d))
    words = f"{seed}: {kind}, n = {n}, d = {d}, l = {count}, {kernel.describe()}, {place}"
    options = {"kernel": kernel, "alpha": ALPHA, "rng": 0, "discrepancy": "mmd" if kind == "mmd" else "ksd"}
    if kind == "mmd":
        options["dependence"] = str(rng.choice(["independent", "shared", "paired"], p=[0.7, 0.15, 0.15]))
    equal = options.get("dependence", "independent") != "independent"
    rows = [n if equal else int(n * rng.uniform(0.5, 1.5)) + 20 for _ in shifts]

    def sample(size, shift):
        return (rng.normal(size=(size, d)) + shift) * scale + offset

    def density(shift):
        return Density(score=lambda x: (shift * scale + offset - x) / scale**2, dim=d)

    if kind == "target":
        models = {f"m{k}": sample(size, s) for k, (size, s) in enumerate(zip(rows, shifts, strict=True))}
        return Problem(words, density(0.0), models, options)
    make = density if kind == "ksd" else sample
    drawn = [make(s) if kind == "ksd" else make(size, s) for size, s in zip(rows, shifts, strict=True)]
    return Problem(words, sample(n, 0.0), {f"m{k}": model for k, model in enumerate(drawn)}, options)


def _kernel(rng, kind, place, spread):
    wide = float(np.exp(rng.uniform(np.log(0.3), np.log(3.0)))) * spread
    kernels = [Gaussian(), Gaussian(wide), IMQ("median"), IMQ(wide, -0.7), RationalQuadratic(wide, 1.5)]
    if kind == "mmd" and place == "plain":
        kernels.append(Polynomial())
    return kernels[int(rng.integers(len(kernels)))]


def difference(asked, **how):
    """How far another backend's answer is from NumPy's: in largest kernel means, in standard errors, in verdicts."""
    return differences(asked, {"": how})[""]


def differences(asked, ways):
    """The same for several backends, each a name with options of `Compute` and the device the samples are given on."""
    exact = compare(asked.reference, asked.models, compute=Compute(backend="numpy"), **asked.options)
    size = largest_mean(asked, exact)
    return {name: _difference(asked, exact, size, **how) for name, how in ways.items()}


def _difference(asked, exact, size, device="cpu", **how):
    reference, *models = (_moved(value, device) for value in (asked.reference, *asked.models.values()))
    models = dict(zip(asked.models, models, strict=True))
    other = compare(reference, models, compute=Compute(**how), **asked.options)
    off = np.abs(other.discrepancy - exact.discrepancy)
    level = np.abs(exact.adjusted_pvalue - ALPHA) < NEAR_LEVEL
    return {
        "problem": asked.words,
        "backend": other.backend,
        "of the kernel mean": float(off.max() / size),
        "of a standard error": float((off / exact.standard_error).max()),
        "error's error": float(np.abs(other.standard_error / exact.standard_error - 1.0).max()),
        "other verdicts": int(((other.worse != exact.worse) & ~level).sum()),
    }


def _moved(value, device):
    if device == "cpu" or not isinstance(value, np.ndarray):
        return value
    import torch

    return torch.as_tensor(value, device=device)


def largest_mean(asked, exact):
    """The largest mean that goes into an estimate: of |k| for MMD, of the row means of |u| for KSD."""
    if asked.options["discrepancy"] == "mmd":
        centre = np.median(asked.reference, axis=0) if exact.kernel.variable == "r2" else 0.0
        return max(_mean(exact.kernel, x - centre) for x in (asked.reference, *asked.models.values()))
    joint = estimate(asked.reference, asked.models, kernel=exact.kernel, rng=0)
    psi = joint.psi.models if joint.psi.reference is None else joint.psi.reference.T
    return max(float(np.abs(value + p / 2.0).mean()) for value, p in zip(joint.values, psi, strict=True))


def _mean(kernel, x):
    """The mean of k over the pairs of some rows."""
    some = x[:500]
    t = some @ some.T if kernel.variable == "dot" else ((some[:, None] - some[None]) ** 2).sum(2)
    return float(np.abs(kernel.phi(t)).mean())


def ways():
    """Every way there is on this machine to compute the same."""
    import torch

    found = {
        "numpy, single": dict(backend="numpy", precision="single"),
        "torch, CPU, double": dict(backend="torch"),
        "torch, CPU, single": dict(backend="torch", precision="single"),
    }
    if torch.cuda.is_available():
        found |= {
            "torch, CUDA, double": dict(backend="auto", device="cuda"),
            "torch, CUDA, single": dict(backend="torch", precision="single", device="cuda"),
            "triton": dict(backend="auto", precision="single", device="cuda"),
        }
    return found


def of_seed(seed):
    """The differences on one problem."""
    return differences(problem(seed), ways())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with ProcessPoolExecutor(given.workers, get_context("spawn")) as workers:
        found = list(workers.map(of_seed, range(given.problems)))
    each = {way: [row[way] for row in found] for way in found[0]}
    rows = [summary(way, some) for way, some in each.items()]
    for row in rows:
        print(row)
    if given.json is not None:
        write_text_atomic(given.json, json.dumps({"summary": rows, "problems": each}, indent=1) + "\n")


def summary(way, each):
    """One row of a table: the worst of all problems."""
    return {
        "way": way,
        "problems": len(each),
        "ran on": ", ".join(f"{name}: {count}" for name, count in Counter(row["backend"] for row in each).items()),
        "worst |ΔD|, of the largest kernel mean": max(row["of the kernel mean"] for row in each),
        "worst |ΔD|, in standard errors": max(row["of a standard error"] for row in each),
        "worst relative error of a standard error": max(row["error's error"] for row in each),
        "other verdicts": sum(row["other verdicts"] for row in each),
    }


if __name__ == "__main__":
    main()
