"""Comparisons of rows: every option of `compare`, `estimate`, `compare_pair` and `plan`."""

import tempfile
from pathlib import Path

import numpy as np
import pytest

import relfit

TESTS = ("best-set", "relpsi", "relmulti", "carve")
SHIFTS = {"right": (0.0, 1.0), "near": (0.1, 1.0), "off": (0.5, 1.0), "wide": (0.0, 1.4), "far": (2.0, 1.0)}


def normals(seed, n=300, shifts=SHIFTS):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(mean, scale, (n, 4)) for name, (mean, scale) in shifts.items()}


def normalised(mean, scale):
    constant = -4 * np.log(scale) - 2 * np.log(2 * np.pi)
    return relfit.Density(
        log_prob=lambda x: -0.5 * (((x - mean) / scale) ** 2).sum(1) + constant, dim=4, normalised=True
    )


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
NORMALISED = {
    name: normalised(mean, scale) for name, (mean, scale) in {"p": (0.0, 1.0), "q": (0.2, 1.0), "w": (0.0, 1.4)}.items()
}
# Density 0 beyond 2.
HALF = relfit.Density(
    log_prob=lambda x: np.where((x < 2.0).all(1), NORMALISED["p"].log_prob(x), -np.inf), dim=4, normalised=True
)
REGRESSIONS = {
    f"{slope}": relfit.Density(
        log_prob=lambda y, x, slope=slope: -0.5 * (y[:, 0] - slope * x[:, 0]) ** 2 - 0.5 * np.log(2 * np.pi),
        normalised=True,
    )
    for slope in (0.0, 0.3)
}
SAMPLERS = {
    name: relfit.Sampler(lambda n, rng, mean=mean: rng.normal(mean, 1, (n, 4))) for name, mean in (("a", 0), ("b", 1))
}
BOTH = (("mmd", SAMPLES), ("ksd", DENSITIES))
# Enough rows that landmarks pay.
MANY = (
    normals(8, 5000)["right"],
    {name: x for name, x in normals(9, 5000).items() if name in ("right", "near", "off")},
)
SCALES = {"auto": "auto", "robust": "robust", "one column": {"column 0": 10.0}}
SEVERAL = [relfit.Gaussian(0.7), relfit.Gaussian(2.0)]


def compared(reference=DATA, models=SAMPLES, **options):
    return lambda: relfit.compare(reference, models, **{"rng": 5, "progress": False, **options})


def estimated(reference=DATA, models=SAMPLES, **options):
    return lambda: relfit.estimate(reference, models, **{"rng": 5, "progress": False, **options})


def paired(a="off", b="near", models=SAMPLES, **options):
    return lambda: relfit.compare_pair(DATA, models[a], models[b], rng=1, progress=False, **options)


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
    return relfit.compare(DATA, SAMPLERS, rng=5, progress=False)


def scaled(scale):
    units = np.array([1.0, 10.0, 100.0, 1.0])
    return compared(DATA * units, {name: x * units for name, x in SAMPLES.items()}, scale=scale)


def tables(encode=lambda: None, **options):
    """Numbers with gaps, text, truth values and dates."""

    def table(pandas, rng, n, shift):
        x = rng.normal(shift, 1.0, (n, 2))
        return pandas.DataFrame(
            {
                "age": x[:, 0],
                "income": np.where(rng.random(n) < 0.1, np.nan, x[:, 1] * 50 + 1000),
                "colour": np.array(["red", "green", "blue"])[rng.integers(3, size=n)],
                "member": rng.random(n) < 0.4,
                "since": pandas.Timestamp("2020-01-01") + pandas.to_timedelta(rng.integers(900, size=n), "D"),
            }
        )

    def run():
        pandas = pytest.importorskip("pandas", reason="pandas is not installed")
        rng = np.random.default_rng(10)
        real, made, other = table(pandas, rng, 250, 0.0), table(pandas, rng, 250, 0.05), table(pandas, rng, 250, 0.6)
        models = {"made": made, "other": other}
        return relfit.compare(real, models, rng=5, progress=False, encode=encode(), **options)

    return run


CALLS = {
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
    # Models, files, pairs, and what follows from a result.
    "log densities": compared(models=LOGS),
    "target": compared(DENSITIES["right"]),
    "samplers": drawn,
    "noised": noised,
    # Columns with names are standardised unless that is declined; the first answers are those of numbers as they are.
    **{f"files {ending}": in_files(ending, scale="none") for ending in WRITERS},
    "files .csv, standardised": in_files(".csv"),
    "a budget of memory": compared(compute=relfit.Compute(memory="4GB")),
    **{f"pair {test}": paired(test=test) for test in ("z", "relpsi")},
    "pair margin": paired(margin=0.02),
    "pair densities": paired("wide", "right", DENSITIES, estimator="linear"),
    "ranks": lambda: compared()().ranks(),
    "pairs": lambda: compared()().pairs(),
    "plan": planned(compared(), tests=TESTS, n=400),
    "plan of two": planned(lambda: relfit.Assumed({"a": 0.01}, 0.02, n=500), tests=[relfit.RelMulti(0.5), "best-set"]),
    # What came with version 0.2.
    **{f"landmarks {name}": compared(models=models, estimator=relfit.Landmarks(count=60)) for name, models in BOTH},
    **{
        f"landmarks and {pairs} pairs {name}": compared(models=models, estimator=relfit.Landmarks(80, pairs))
        for pairs in (30_000, 60_000)
        for name, models in BOTH
    },
    "landmarks of a target": compared(DENSITIES["right"], estimator=relfit.Landmarks(count=60)),
    "landmarks paired": compared(estimator=relfit.Landmarks(count=60), dependence="paired"),
    "landmarks imq": compared(estimator=relfit.Landmarks(count=60), kernel="imq", test="relpsi"),
    **{f"many rows {name}": compared(*MANY, estimator=name) for name in ("landmarks", "auto")},
    **{f"variance {name}": compared(estimator=relfit.Complete(name)) for name in ("projection", "auto")},
    "ksd variance projection": compared(models=DENSITIES, estimator=relfit.Complete("projection")),
    "stepdown": compared(correction="stepdown"),
    "stepdown of densities": compared(models=DENSITIES, correction="stepdown"),
    "stepdown with a margin": compared(correction="stepdown", margin=0.01),
    "many models": compared(DATA[:100], {f"m{k}": DATA[200:] + 0.05 * k for k in range(25)}),
    "margin of unequal sizes": compared(models=SIZES, margin=0.02),
    "margin of densities": compared(models=DENSITIES, margin=0.02),
    "one model twice": compared(models={"a": SAMPLES["near"], "b": SAMPLES["near"].copy(), "c": SAMPLES["off"]}),
    **{f"{count} rows": compared(DATA[:count], {name: x[:count] for name, x in SAMPLES.items()}) for count in (20, 30)},
    "few rows of densities": compared(DATA[:20], DENSITIES),
    "one column": compared(DATA[:, :1], {name: x[:, :1] for name, x in SAMPLES.items()}),
    "single precision": compared(compute=relfit.Compute(precision="single", backend="numpy")),
    "two threads": compared(compute=relfit.Compute(threads=2, backend="numpy")),
    # Likelihoods.
    **{f"loglik {test}": compared(models=NORMALISED, discrepancy="loglik", test=test) for test in TESTS},
    "loglik margin": compared(models=NORMALISED, discrepancy="loglik", margin=0.05),
    "loglik, impossible": compared(models={**NORMALISED, "half": HALF}, discrepancy="loglik"),
    "loglik given": compared(DATA[:, :1], REGRESSIONS, discrepancy="loglik", given=DATA[:, 1:]),
    "loglik groups": compared(models=NORMALISED, discrepancy="loglik", groups=LABELS),
    "ksd and loglik": compared(models=NORMALISED, discrepancy=["ksd", "loglik"]),
    # More kernels and locations.
    "kernel matern": compared(kernel=relfit.Matern()),
    "kernel matern 2.5": compared(models=DENSITIES, kernel=relfit.Matern(2.5, 1.5)),
    "kernel rational quadratic": compared(kernel=relfit.RationalQuadratic(alpha=2.0)),
    "kernel rational quadratic of densities": compared(models=DENSITIES, kernel=relfit.RationalQuadratic(1.5)),
    "kernel multiscale of two": compared(kernel=relfit.MultiScale((0.5, 2.0), 1.0)),
    "kernel polynomial of degree 2": compared(kernel=relfit.Polynomial(2, 0.5, 0.3)),
    "kernel imq with a median": compared(models=DENSITIES, kernel=relfit.IMQ("median", -0.3)),
    "kernel radial": compared(kernel=relfit.Radial(lambda t: 1 / (1 + t), scale=2.0)),
    "kernel tilted by decay": compared(models=DENSITIES, kernel=relfit.Tilted(relfit.IMQ(), relfit.Decay(0.8, 2.0))),
    "select half": compared(kernel=relfit.Select(SEVERAL, fraction=0.5)),
    "collection": compared(kernel=relfit.Collection(tuple(SEVERAL))),
    "ksd of several kernels": compared(models=DENSITIES, kernel=SEVERAL),
    "ume, five locations": compared(discrepancy=relfit.UME(locations=5)),
    "fssd, optimised on half": compared(
        models=DENSITIES, discrepancy=relfit.FSSD(locations=3, choose="optimise", fraction=0.5)
    ),
    # Scales and tables.
    **{f"scale {name}": scaled(scale) for name, scale in SCALES.items()},
    "whiten a target": compared(DENSITIES["right"], scale="whiten"),
    "whiten densities": compared(models=DENSITIES, scale="whiten"),
    "table": tables(),
    "table, gaps dropped": tables(encode=lambda: relfit.Encode(categorical=["member"], drop=["since"], missing="drop")),
    "table, robust": tables(scale="robust"),
    # More pairs, plans and single functions.
    "pair losing": paired("far", "right"),
    "pair paired": paired(dependence="paired"),
    "pair relpsi, alpha": paired(test="relpsi", alpha=0.2),
    "pair loglik": paired("p", "w", NORMALISED, discrepancy="loglik"),
    "plan power and alpha": planned(compared(), power=0.9, alpha=0.1),
    "plan holm": planned(compared(), tests="relpsi", correction="holm"),
    "plan of densities": planned(compared(models=DENSITIES), n=200),
    "estimate of locations": estimated(discrepancy="ume"),
    "estimate in chains": estimated(DENSITIES["right"], {"a": chain(8, 0.5), "b": chain(9, 0.5)}, dependence="chain"),
    "draw": lambda: {name: x.sum(0) for name, x in relfit.draw(SAMPLERS, 50, rng=3).items()},
    "interval at 0.99": lambda: {"interval": compared(test="carve")().confidence_interval(0.99)},
    "published cmmd of few": lambda: relfit.published("cmmd", DATA[:40], SAMPLES),
}
