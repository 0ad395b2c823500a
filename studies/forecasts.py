"""Do plans come true for models that differ from the data in different ways?

Writes docs/evidence/forecasts.md.

python -m studies.forecasts [--trials 1000] [--workers 2] [--store FILE]

The populations, sizes, tests and models were fixed before any forecast was seen.
"""

from dataclasses import replace
from functools import lru_cache

import numpy as np

from relfit import Density, Gaussian, JointEstimate, compare, decide, estimate, from_losses, plan
from relfit.paper.experiment import markdown_table
from relfit.stats.joint import third_cumulants
from relfit.stats.population import with_variances
from studies.relpsi import factors
from studies.study import ALPHA, Part, Study, main, write_page
from studies.ties import UNLIKE_SCORES, rated
from studies.unlike import equally_far, normal, squared_mmd

TOLERANCE = 0.05
# Forecasts are means over plans with so many seeds.
PLANS = 5
# The covariance of a population is the mean of this many estimates from so many rows.
DRAWS, LARGE = 20, 2000
# Trials use seeds from 0 on; those of the population must not be among them.
FIRST_SEED = 10**9
D, BANDWIDTH = 3, 1.7
TESTS = {
    "best set": {"test": "best-set", "correction": "none"},
    "step-down": {"test": "best-set", "correction": "stepdown"},
    "RelPSI": {"test": "relpsi", "correction": "none"},
    "RelMulti": {"test": "relmulti", "correction": "by"},
}


def samples(n, seed, m=None):
    """A shifted model is best; a wide one and one with outliers are further off. m rows of each model, n by default."""
    rng = np.random.default_rng(seed)
    models = {
        "shifted": equally_far(0.3, D, BANDWIDTH)["shifted"],
        "wide": equally_far(0.5, D, BANDWIDTH)["wide"],
        "outliers": equally_far(0.6, D, BANDWIDTH)["outliers"],
    }
    drawn = {name: each.draw(rng, m or n) for name, each in models.items()}
    truth = [squared_mmd(normal(D), each, BANDWIDTH) for each in models.values()]
    return rng.normal(size=(n, D)), drawn, truth


def unequal(n, seed):
    """Two shifts; 33 times as many rows of the better model and 8 times as many of the data as of the worse one."""
    rng = np.random.default_rng(seed)
    shifts = {"large": (0.2, 33 * n), "small": (0.5, n)}
    drawn = {
        name: rng.normal(size=(rows, D)) + by * np.eye(D)[k] for k, (name, (by, rows)) in enumerate(shifts.items())
    }
    truth = [squared_mmd(normal(D), normal(D, by), BANDWIDTH) for by, _ in shifts.values()]
    return rng.normal(size=(8 * n, D)), drawn, truth


def scores(n, seed):
    """Five densities wrong in different places: the best by .15 in KSD, the others by .3 and more."""
    far = {"constant": 0.15, "slope": 0.3, "tail": 0.3, "local": 0.4, "sine": 0.4}

    def density(name, distance):
        factor = factors(distance, 1, 1.0)[name]
        return Density(score=lambda x: factor * UNLIKE_SCORES[name](x) - x, dim=1)

    rows = np.random.default_rng(seed).normal(size=(n, 1))
    return rows, {name: density(name, by) for name, by in far.items()}, [by**2 for by in far.values()]


def losses(n, seed):
    """Losses of different spread and skewness, correlated through the items."""
    rng = np.random.default_rng(seed)
    item = rng.normal(size=n)
    truth = [0.0, 0.25, 0.4]
    noise = (rng.normal(size=n), 2.0 * rng.normal(size=n) / np.sqrt(2.0), rng.exponential(size=n) - 1.0)
    names = ("normal", "wide", "skewed")
    return {name: item + by + each for name, by, each in zip(names, truth, noise, strict=True)}, truth


def errors(n, seed):
    """Losses of 0 and 1."""
    rng = np.random.default_rng(seed)
    item = rng.random(n)
    truth = [0.1, 0.2, 0.3]
    flips = rng.random((n, 3)) < 0.5
    own = rng.random((n, 3))
    rates = np.array(truth)
    wrong = np.where(flips, own < rates, item[:, None] < rates)
    return dict(zip("abc", wrong.T.astype(float), strict=True)), truth


POPULATIONS = {
    "samples": samples,
    "samples of unequal sizes": unequal,
    "densities": scores,
    "losses": losses,
    "0/1 losses": errors,
}
# The population, rows, test, and the worse model whose power is forecast.
CELLS = (
    ("samples", 60, "best set", "outliers"),
    ("samples", 60, "RelPSI", "outliers"),
    ("samples", 150, "best set", "wide"),
    ("samples", 150, "step-down", "outliers"),
    ("samples", 150, "RelPSI", "wide"),
    ("samples", 150, "RelMulti", "outliers"),
    ("samples", 400, "step-down", "wide"),
    ("samples", 400, "RelPSI", "outliers"),
    ("samples of unequal sizes", 60, "best set", "small"),
    ("samples of unequal sizes", 60, "RelPSI", "small"),
    ("samples of unequal sizes", 120, "step-down", "small"),
    ("densities", 150, "best set", "slope"),
    ("densities", 150, "step-down", "sine"),
    ("densities", 150, "RelPSI", "local"),
    ("densities", 150, "RelMulti", "sine"),
    ("densities", 400, "best set", "tail"),
    ("losses", 60, "best set", "wide"),
    ("losses", 60, "step-down", "skewed"),
    ("losses", 60, "RelPSI", "skewed"),
    ("0/1 losses", 100, "step-down", "c"),
)


def settings():
    """The populations with their sizes, each once."""
    return [{"population": name, "n": n} for name, n in dict.fromkeys((name, n) for name, n, _, _ in CELLS)]


def trial(setting, seed):
    """The models that every test declares worse on n fresh rows."""
    name, n = setting["population"], setting["n"]
    wanted = [test for population, rows, test, _ in CELLS if (population, rows) == (name, n)]
    found = {}
    joint, data, options = drawn(name, n, seed)
    for test in wanted:
        if test == "RelMulti":
            result = compare(*data, rng=seed, progress=False, **TESTS[test], **options)
        else:
            result = decide(joint, rng=seed, **TESTS[test])
        found[test] = [each for each, worse in zip(result.names, result.worse, strict=True) if worse]
    return found


def drawn(name, n, seed):
    """One estimate, the data that it is from, and its options."""
    made = POPULATIONS[name](n, seed)
    if len(made) == 2:
        return from_losses(made[0]), None, {}
    options = {"kernel": Gaussian(1.0 if name == "densities" else BANDWIDTH)}
    return estimate(*made[:2], rng=0, progress=False, **options), made[:2], options


@lru_cache
def population(name):
    """The pilot: the true D; its covariances and third cumulants are means over many estimates of many rows."""
    rows = 300 if name == "samples of unequal sizes" else LARGE
    truth = np.array(POPULATIONS[name](50, 0)[-1])
    return _mean([_with_truth(drawn(name, rows, FIRST_SEED + k)[0], truth) for k in range(DRAWS)])


def _with_truth(joint, truth):
    """The estimate moved to the true values; the first-order variances of squared distances follow them."""
    kept = {key: getattr(joint, key) for key in joint.__dataclass_fields__ if key != "psi"}
    kept |= {"values": truth, "third": third_cumulants(joint)}
    law = joint.close
    if law is not None:
        size = np.sqrt(truth / joint.values)
        kept |= {"close": replace(law, first=law.first * np.outer(size, size))}
    return JointEstimate(**kept)


def _mean(joints):
    """One estimate with the means of what several have."""
    first = joints[0]
    means = {"third": np.mean([joint.third for joint in joints], axis=0)}
    if first.close is None:
        means |= {"covariance": np.mean([joint.covariance for joint in joints], axis=0)}
        return replace(first, **means)
    parts = ("first", "second", "trace", "components", "third")
    law = {key: np.mean([getattr(joint.close, key) for joint in joints], axis=0) for key in parts}
    law["components"] = float(law["components"])
    means |= {"close": replace(first.close, **law), "second_order": law["second"]}
    # Of a nearly degenerate model the first-order variance may be noise below 0.
    covariance = with_variances(law["first"]) + 2.0 * law["second"]
    return replace(first, covariance=covariance, **means)


def rows(setting, results):
    """Forecast and realised power of every test in one setting."""
    out = []
    for name, n, test, model in CELLS:
        if (name, n) != (setting["population"], setting["n"]):
            continue
        powers = []
        for seed in range(PLANS):
            chosen = {"tests": TESTS[test]["test"], "correction": TESTS[test]["correction"]}
            made = plan(population(name), alpha=ALPHA, n=n, rng=seed, progress=False, **chosen)
            powers.append(next(cell.power for cell in made.forecasts if cell.name == model))
        forecast = float(np.mean(powers))
        realised = float(np.mean([model in result[test] for result in results]))
        out.append(
            {
                **setting,
                "test": test,
                "model": model,
                "trials": len(results),
                "forecast": f"{forecast:.3f} ± {np.std(powers) / np.sqrt(PLANS - 1):.3f}",
                "realised": rated(realised, len(results)),
                "difference": forecast - realised,
                "within .05": "yes" if abs(forecast - realised) <= TOLERANCE else "NO",
            }
        )
    return out


def write(docs, results):
    """The page; True if at least 19 of the 20 forecasts are within .05."""
    found = [row for setting, trials in results["forecasts"] for row in rows(setting, trials)]
    kept = sum(row["within .05"] == "yes" for row in found)
    verdict = f"{kept} of {len(found)} forecasts are within .05."
    write_page(docs, "forecasts.md", verdict=verdict, table=markdown_table(found))
    print(verdict)
    return kept >= len(found) - 1


STUDY = Study(
    parts={"forecasts": Part("unlike forecasts", settings, trial, 1000)},
    store="forecasts.sqlite",
    version="1",
    write=write,
)

if __name__ == "__main__":
    main(STUDY, __doc__)
