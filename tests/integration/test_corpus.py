"""Answers that a change of structure must not change: every option once, with the answers in corpus.json.

    python tests/integration/test_corpus.py --write

writes the answers of the relfit that is imported. Do that only where an answer is meant to change, and say why in the
changelog. The answers were first written by version 0.1, before tests, estimators and `Compute` became values.

Numbers may differ by rounding (1e-9 of the largest of their array), p-values and what is simulated by 1e-3; names,
verdicts and status words not at all.
"""

import argparse
import json
import tempfile
import warnings
from dataclasses import fields, is_dataclass
from pathlib import Path

import numpy as np
import pytest

import relfit

EXPECTED = Path(__file__).with_name("corpus.json")
TESTS = ("best-set", "relpsi", "relmulti", "carve")
SHIFTS = {"right": (0.0, 1.0), "near": (0.1, 1.0), "off": (0.5, 1.0), "wide": (0.0, 1.4), "far": (2.0, 1.0)}


def normals(seed, n=300, shifts=SHIFTS):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(mean, scale, (n, 4)) for name, (mean, scale) in shifts.items()}


def gaussian(mean, scale=1.0):
    return relfit.Density(score=lambda x: -(x - mean) / scale**2, dim=4)


DATA = np.random.default_rng(1).normal(size=(300, 4))
SAMPLES = normals(2)
SIZES = {
    "short": normals(3, 120)["right"],
    "long": normals(4, 700)["near"],
    "copy": SAMPLES["off"],
    "copy again": SAMPLES["off"].copy(),
}
DENSITIES = {"right": gaussian(0.0), "left": gaussian(-0.3), "mirror": gaussian(0.3), "wide": gaussian(0.0, 1.5)}
LOGS = {
    name: relfit.Density(log_prob=lambda x, mean=mean: -0.5 * ((x - mean) ** 2).sum(1), dim=4)
    for name, mean in {"p": 0.0, "q": 0.4}.items()
}
LABELS = np.repeat(np.arange(60), 5)
LOSSES = np.random.default_rng(5).exponential(1 + np.array([0.0, 0.0, 0.1, 0.4]), size=(250, 4))
SEVERAL = [relfit.Gaussian(0.7), relfit.Gaussian(2.0)]


def compared(reference=DATA, models=SAMPLES, **options):
    return lambda: relfit.compare(reference, models, **{"rng": 5, "progress": False, **options})


def estimated(reference=DATA, models=SAMPLES, **options):
    return lambda: relfit.estimate(reference, models, **{"rng": 5, "progress": False, **options})


def paired(a="off", b="near", models=SAMPLES, **options):
    return lambda: relfit.compare_pair(DATA, models[a], models[b], rng=1, progress=False, **options)


def decided(groups=None, **options):
    joint = relfit.from_losses(LOSSES, list("abcd"), groups=groups)
    return lambda: relfit.decide(joint, rng=2, **options)


def chain(seed, rho):
    noise = np.random.default_rng(seed).normal(size=(600, 4))
    for k in range(1, len(noise)):
        noise[k] = rho * noise[k - 1] + np.sqrt(1 - rho**2) * noise[k]
    return noise


def in_files(ending, **options):
    """The same comparison from files of one format."""

    def run():
        with tempfile.TemporaryDirectory() as folder:
            files = {name: str(Path(folder, name + ending)) for name in ("reference", *SAMPLES)}
            for name, rows in {"reference": DATA, **SAMPLES}.items():
                WRITERS[ending](files[name], rows)
            return relfit.compare(files.pop("reference"), files, rng=7, progress=False, **options)

    return run


def write_csv(path, rows):
    lines = [",".join(map(repr, row)) for row in rows.tolist()]
    Path(path).write_text("\n".join(["w,x,y,z", *lines]))


def write_parquet(path, rows):
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table(dict(zip("wxyz", rows.T, strict=True))), path)


WRITERS = {".npy": np.save, ".csv": write_csv, ".parquet": write_parquet}


def matrix():
    z = np.concatenate([DATA[:80], SAMPLES["near"][:80], SAMPLES["off"][:80]])
    return np.exp(-0.25 * ((z[:, None] - z) ** 2).sum(-1))


def precomputed():
    rows = {"reference": np.arange(80), "near": np.arange(80, 160), "off": np.arange(160, 240)}
    return relfit.compare(rows.pop("reference"), rows, kernel=relfit.Precomputed(matrix()), rng=5, progress=False)


def noised():
    networks = {
        name: lambda x, sigma, mean=mean: (mean - x) / (1 + sigma**2) for name, mean in (("0", 0.0), ("1", 0.7))
    }
    return relfit.compare_noised(DATA, networks, [0.1, 1.0], rng=0)


def planned(pilot, **options):
    return lambda: relfit.plan(pilot(), rng=0, trials=100, progress=False, **options)


def drawn():
    samplers = {
        name: relfit.Sampler(lambda n, rng, mean=mean: rng.normal(mean, 1, (n, 4)))
        for name, mean in (("a", 0), ("b", 1))
    }
    return relfit.compare(DATA, samplers, rng=5, progress=False)


CASES = {
    **{f"mmd {test}": compared(test=test, rng=7) for test in TESTS},
    **{f"mmd sizes {test}": compared(models=SIZES, test=test, rng=7) for test in TESTS},
    **{f"ksd {test}": compared(models=DENSITIES, test=test, rng=7) for test in TESTS},
    **{f"imq {test}": compared(models=DENSITIES, test=test, kernel=relfit.IMQ(), rng=7) for test in TESTS},
    **{f"margin {test}": compared(margin=0.01, test=test) for test in TESTS},
    **{f"correction {name}": compared(correction=name, rng=3) for name in ("by", "bh", "holm", "bonferroni")},
    "correction auto": compared(test="relmulti", correction="auto"),
    "alpha": compared(alpha=0.2, test="relpsi"),
    # Estimators and tests as values.
    **{f"mmd {name}": compared(estimator=name) for name in ("linear", "block", "incomplete", "auto")},
    **{f"ksd {name}": compared(models=DENSITIES, estimator=name) for name in ("linear", "block", "incomplete")},
    "mmd rows in order": compared(estimator=relfit.Linear(shuffle=False)),
    "ksd 30 blocks": compared(models=DENSITIES, estimator=relfit.Block(30)),
    "mmd 3000 pairs": compared(estimator=relfit.Incomplete(3000), dependence="paired"),
    "target 3000 pairs": compared(DENSITIES["right"], estimator=relfit.Incomplete(3000), dependence="shared"),
    "half of the rows select": compared(test=relfit.RelMulti(select_fraction=0.5), correction="holm"),
    "estimate": estimated(),
    "estimate of copies": estimated(models=SIZES),
    # Dependence and groups.
    **{f"dependence {name}": compared(dependence=name) for name in ("shared", "paired")},
    "chain": compared(DENSITIES["right"], {"slow": chain(6, 0.8), "fast": chain(7, 0.2)}, dependence="chain"),
    "groups": compared(groups=dict.fromkeys(("reference", *SAMPLES), LABELS)),
    "groups paired": compared(groups=LABELS, dependence="paired", test="relmulti"),
    "groups of densities": compared(models=DENSITIES, groups=LABELS, test="relpsi"),
    "groups of a target": compared(DENSITIES["right"], groups=dict.fromkeys(SAMPLES, LABELS)),
    # Kernels and discrepancies.
    "kernel imq": compared(kernel="imq"),
    "kernel multiscale": compared(kernel=relfit.MultiScale()),
    "kernel polynomial": compared(kernel=relfit.Polynomial()),
    "kernel sum": compared(kernel=relfit.Gaussian(1.5) + relfit.IMQ(2.0)),
    "kernel tilted": compared(kernel=relfit.Tilted(relfit.IMQ())),
    "kernel select": compared(kernel="select"),
    "several kernels": compared(kernel=SEVERAL),
    "one of several kernels": compared(models=DENSITIES, kernel=relfit.Select(SEVERAL), test="relmulti"),
    "precomputed": precomputed,
    "ume": compared(discrepancy="ume"),
    "fssd": compared(models=DENSITIES, discrepancy="fssd"),
    "optimised locations": compared(discrepancy=relfit.UME(locations=3, choose="optimise"), kernel="select"),
    "relmulti at locations": compared(models=DENSITIES, discrepancy=relfit.FSSD(locations=4), test="relmulti"),
    **{name: compared(preset=name) for name in ("kid", "cmmd")},
    **{f"published {name}": lambda name=name: relfit.published(name, DATA, SAMPLES) for name in ("kid", "cmmd")},
    # Models, files, pairs, losses, and what follows from a result.
    "log densities": compared(models=LOGS),
    "target": compared(DENSITIES["right"]),
    "samplers": drawn,
    "noised": noised,
    # Columns with names are standardised unless that is declined; the first answers are those of numbers as they are.
    **{f"files {ending}": in_files(ending, scale="none") for ending in WRITERS},
    "files .csv, standardised": in_files(".csv"),
    "a budget of memory": compared(compute=relfit.Compute(memory="1GB")),
    **{f"pair {test}": paired(test=test) for test in ("z", "relpsi")},
    "pair margin": paired(margin=0.02),
    "pair densities": paired("wide", "right", DENSITIES, estimator="linear"),
    **{f"losses {test}": decided(test=test) for test in ("best-set", "relpsi", "carve")},
    "losses groups": decided(np.repeat(np.arange(50), 5)),
    "losses margin": decided(margin=0.1, correction="holm"),
    "ranks": lambda: compared()().ranks(),
    "pairs": lambda: compared()().pairs(),
    "plan": planned(compared(), tests=TESTS, n=400),
    "plan of two": planned(lambda: relfit.Assumed({"a": 0.01}, 0.02, n=500), tests=[relfit.RelMulti(0.5), "best-set"]),
}

# What is compared of each kind of result; fields that a kind does not have are left out.
KEPT = (
    *("names", "best", "best_index", "discrepancy", "values", "standard_error", "covariance", "difference"),
    *("pvalue", "adjusted_pvalue", "worse", "status", "confidence_set", "truncation", "statistic", "equivalent"),
    *("beaten_by", "sizes", "groups", "near_degeneracy", "second_order", "estimator", "correction", "select_fraction"),
    *("lower", "upper", "tests", "corrections", "n", "fewest", "curves", "forecasts", "overall", "by_level"),
)
SIMULATED = ("pvalue", "adjusted_pvalue", "interval", "curves", "forecasts")


def answer(result):
    """The result as JSON can hold it."""
    kept = {key: plain(getattr(result, key)) for key in KEPT if getattr(result, key, None) is not None}
    if isinstance(result, relfit.Comparison):
        kept["interval"] = plain(result.confidence_interval(0.9))
    return kept


def plain(value):
    if isinstance(value, relfit.Comparison):
        return answer(value)
    if is_dataclass(value):
        return [plain(getattr(value, item.name)) for item in fields(value)]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, float) and not np.isfinite(value) else value


def differences(new, old, key=""):
    """Where two answers differ, as a list of keys."""
    if isinstance(old, dict):
        if not isinstance(new, dict) or set(new) != set(old):
            return [f"{key}: {sorted(set(new) ^ set(old))}"]
        return [where for name in old for where in differences(new[name], old[name], name)]
    numbers = as_numbers(old)
    if numbers is not None:
        return [] if close(as_numbers(new), numbers, key) else [key]
    if isinstance(old, list) and isinstance(new, list) and len(new) == len(old):
        return [where for one, other in zip(new, old, strict=True) for where in differences(one, other, key)]
    return [] if new == old else [key]


def as_numbers(value):
    """A number or a rectangle of numbers as an array; None for anything else."""
    try:
        array = np.asarray(value)
        return (
            array.astype(float) if array.dtype.kind in "fi" or set(np.ravel(array)) & {"inf", "-inf", "nan"} else None
        )
    except (TypeError, ValueError):
        return None


def close(new, old, key):
    if new is None or new.shape != old.shape:
        return False
    if key in SIMULATED:
        return np.allclose(new, old, rtol=1e-3, atol=1e-3, equal_nan=True)
    finite = np.isfinite(old)
    if not np.array_equal(new[~finite], old[~finite], equal_nan=True):
        return False
    return bool(np.abs(new[finite] - old[finite]).max(initial=0.0) <= 1e-9 * np.abs(old[finite]).max(initial=1e-300))


def test_every_case_has_an_answer():
    assert len(CASES) >= 60
    assert list(json.loads(EXPECTED.read_text())) == list(CASES)


@pytest.fixture(scope="module")
def expected():
    return json.loads(EXPECTED.read_text())


@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("as_a_fresh_process")
def test_the_answer_is_the_same(name, expected):
    # Through JSON and back, as the expected answer went.
    new = json.loads(json.dumps(answer(CASES[name]())))
    assert differences(new, expected[name]) == []


def test_a_change_is_seen(expected):
    """A number that moves by 1e-8 of the largest, a p-value by 0.01, a verdict and a status word."""
    old = expected["mmd relpsi"]
    assert differences(old, old) == []
    moved = [value * (1 + 1e-8) for value in old["discrepancy"]]
    changes = {
        "discrepancy": moved,
        "pvalue": [value + 0.01 for value in old["pvalue"]],
        "worse": [not value for value in old["worse"]],
        "status": [["tie"], *old["status"][1:]],
        "truncation": [["-inf", "inf"] for _ in old["truncation"]],
    }
    for key, value in changes.items():
        assert set(differences({**old, key: value}, old)) == {key}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", required=True)
    parser.parse_args()
    warnings.simplefilter("ignore")
    lines = [f"{json.dumps(name)}: {json.dumps(answer(run()))}" for name, run in CASES.items()]
    EXPECTED.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(len(CASES), "answers written")
