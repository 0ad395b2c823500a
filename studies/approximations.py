"""Nyström and random Fourier features against the incomplete estimator at equal cost.

Writes docs/evidence/approximations.md.

python -m studies.approximations [--trials 300]

The Fourier features are a prototype of this script, not part of relfit: the page says why.
"""

import time
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from relfit import UME, Gaussian, JointEstimate, Nystroem, decide, estimate
from relfit.paper.experiment import markdown_table
from relfit.paper.problems import draw, mean_shift_l10, rbm_l7
from relfit.stats.joint import Psi, centred
from studies.problems import true_mmd
from studies.study import ALPHA, Part, Study, declared, error_rates, estimator_options, main, rows_of, write_page

# Bandwidths near the median distance of each problem, fixed so that the true discrepancies are known exactly.
PROBLEMS = {"meanshift-l10": (mean_shift_l10, 4.4), "rbm-l7": (lambda: rbm_l7(0.18), 8.0)}
ROWS = {"few rows": {"meanshift-l10": 200, "rbm-l7": 1000}, "many rows": {"meanshift-l10": 10_000, "rbm-l7": 10_000}}
LAGS = (2, 9, 25, 50)
METHODS = ("incomplete", "UME", "Nyström", "Fourier", "Fourier, noise counted")
BY_DEFAULT = {"few rows": ("Nyström, 2√n", "complete"), "many rows": ("Nyström, 2√n",)}


def cells(size):
    """Both problems at four budgets, and what spends as much as it needs."""
    budgets = [*({"lags": lags, "methods": METHODS} for lags in LAGS), {"lags": 0, "methods": BY_DEFAULT[size]}]
    return [{"problem": p, "n": ROWS[size][p], **budget} for p in PROBLEMS for budget in budgets]


def trial(setting, seed):
    """For each method the models declared worse, the gaps to the first best model, and the seconds."""
    problem, bandwidth = PROBLEMS[setting["problem"]][0](), PROBLEMS[setting["problem"]][1]
    reference, models = draw(problem, setting["n"], seed)
    out = {}
    for method in setting["methods"]:
        start = time.process_time()
        joint = measured(method, setting, reference, models, bandwidth, seed)
        seconds = time.process_time() - start
        result = decide(joint, test="best-set", alpha=ALPHA, rng=seed)
        worse = declared(result.names, result.worse)
        out[method] = {"worse": worse, "values": joint.values.tolist(), "seconds": seconds}
    return out


def measured(method, setting, reference, models, bandwidth, seed):
    """The joint estimate by one method, of the setting's cost."""
    count, kernel = features_of(setting, len(models)), Gaussian(bandwidth)
    if method.startswith("Fourier"):
        rng = np.random.default_rng([5, seed])
        return fourier(reference, models, bandwidth, count, rng, own_noise="noise" in method)
    options = {
        "incomplete": {"kernel": kernel, **estimator_options("incomplete", pairs=setting["n"] * setting["lags"])},
        "complete": {"kernel": kernel},
        "UME": {"discrepancy": UME(kernel, max(count, 1))},
        "Nyström": {"discrepancy": Nystroem(kernel, max(count, 1))},
        "Nyström, 2√n": {"discrepancy": Nystroem(kernel)},
    }
    return estimate(reference, models, rng=seed, progress=False, **options[method])


def features_of(setting, models):
    """As many features as cost the incomplete estimator's kernel values: n·R·(1 + 3l) against n·J·(l + 1)."""
    return round(setting["lags"] * (1 + 3 * models) / (models + 1))


def fourier(reference, models, bandwidth, count, rng, *, own_noise):
    """MMD² under k ≈ mean_f cos(ω_f·(x − y)), ω_f ~ N(0, I/b²): the mean over frequencies of a D_f each.

    Given the frequencies its mean is not the MMD². With `own_noise` the covariance of D_f over the frequencies, over
    their number, is added to V, so that the test is one of the MMD² again.
    """
    waves = rng.standard_normal((reference.shape[1], count)) / bandwidth
    angles = (x @ waves for x in (reference, *models.values()))
    features = [np.hstack([np.cos(angle), np.sin(angle)]) / np.sqrt(count) for angle in angles]
    joint, each = of_features(features, list(models))
    if not own_noise:
        return joint
    by_wave = count * (each[:, :count] + each[:, count:])
    return JointEstimate(joint.names, joint.values, joint.covariance + np.cov(by_wave) / count, joint.sizes)


def of_features(features, names):
    """The unbiased MMD² of samples with rows of features, its covariance, and the part of every feature: (l, J)."""
    ours, *theirs = (sums_of(x) for x in features)
    each = np.stack([ours.pairs + t.pairs - 2.0 * ours.mean * t.mean for t in theirs])
    g = np.stack([projection(features[0], ours, t) for t in theirs], axis=1)
    f = [projection(x, t, ours) for x, t in zip(features[1:], theirs, strict=True)]
    psi = Psi(centred(g), tuple(centred(row) for row in f))
    sizes = tuple(len(x) for x in features)
    return JointEstimate(tuple(names), each.sum(axis=1), psi.covariance(), sizes, psi), each


class Sums(NamedTuple):
    """For every feature ``mean_{a≠b} τ_a τ_b``, its mean, and its sum over n − 1."""

    pairs: Any
    mean: Any
    total: Any


def sums_of(x):
    """The sums over the rows of one sample."""
    n, total = len(x), x.sum(axis=0)
    return Sums((np.square(total) - np.square(x).sum(axis=0)) / (n * (n - 1)), total / n, total / (n - 1))


def projection(x, sums, other):
    """``τ_a·(Σ_{b≠a} τ_b/(n−1) − mean of the other sample)``."""
    return x @ (sums.total - other.mean) - np.einsum("ij,ij->i", x, x) / (len(x) - 1)


def rows(setting, results):
    """A row per method: cost, error of the differences to the true best, and the rates of the best-set test."""
    make, bandwidth = PROBLEMS[setting["problem"]]
    problem = make()
    truth = true_mmd(problem, bandwidth)
    first = int(np.argmin(truth))
    worse = [i for i, name in enumerate(problem.models) if name in problem.worse]
    tied = [i for i, name in enumerate(problem.models) if name in problem.best and i != first]
    out = []
    for method in setting["methods"]:
        values = np.array([result[method]["values"] for result in results])
        error = (values - values[:, [first]] - (truth - truth[first])) / np.mean(truth[worse] - truth[first])
        rates = error_rates(problem, [result[method]["worse"] for result in results])
        out.append(
            {
                "problem": setting["problem"],
                "n": setting["n"],
                "method": method,
                "budget": budget(method, setting, len(problem.models)),
                "CPU ms": f"{1000 * min(result[method]['seconds'] for result in results):.0f}",
                # UME is on a scale of its own.
                "error, worse models": "" if method == "UME" else root_mean_square(error[:, worse]),
                "error, tied models": "" if method == "UME" or not tied else root_mean_square(error[:, tied]),
                "trials": len(results),
                "TPR": rates["TPR"],
                "FPR": rates["FPR"],
            }
        )
    return out


def budget(method, setting, models):
    if method in ("complete", "incomplete"):
        return f"R = {setting['lags']}" if setting["lags"] else "all pairs"
    return f"{features_of(setting, models) or Nystroem().count(setting['n'])} features"


def root_mean_square(values):
    return f"{np.sqrt(np.mean(np.square(values))):.2f}"


def write(docs, results):
    """The page, its figures taken from the table."""
    cells_done = [*results["few rows"], *results["many rows"]]
    cells_done.sort(key=lambda cell: list(PROBLEMS).index(cell[0]["problem"]))
    all_rows = rows_of(rows, cells_done)

    def shown(problem, n, method, budget, column="TPR"):
        keys = {"problem": problem, "n": n, "method": method, "budget": budget}
        row = next(row for row in all_rows if keys.items() <= row.items())
        return f"{row[column][0]:.3f} ± {row[column][1]:.3f}"

    def against(problem, n, features, lags):
        nystroem = shown(problem, n, "Nyström", f"{features} features")
        incomplete = shown(problem, n, "incomplete", f"R = {lags}")
        return f"{nystroem} with {features} locations against {incomplete} with R = {lags}"

    exceeded = [row["method"] for row in all_rows if row["FPR"][0] > ALPHA + 3.0 * row["FPR"][1]]
    methods = [row["method"] for row in all_rows]
    errors = [
        [float(row["error, worse models"]) for row in rows(*cell) if row["method"] in ("Nyström", "Fourier")]
        for cell in cells_done
        if "Fourier" in cell[0]["methods"]
    ]
    shift = "meanshift-l10"
    write_page(
        docs,
        "approximations.md",
        table=markdown_table(all_rows),
        exceeded=", ".join(f"{m}: {exceeded.count(m)} of {methods.count(m)}" for m in dict.fromkeys(methods)),
        rbm_few=against("rbm-l7", 1000, 25, 9),
        rbm_many=against("rbm-l7", 10_000, 25, 9),
        shift=f"{against(shift, 200, 25, 9)} at n = 200",
        complete=f"rbm-l7, n = 1000: {shown('rbm-l7', 1000, 'Nyström, 2√n', '64 features')} against "
        f"{shown('rbm-l7', 1000, 'complete', 'all pairs')}",
        few=shown(shift, 10_000, "Nyström", "6 features", "FPR"),
        enough=shown(shift, 10_000, "Nyström", "70 features", "FPR"),
        fourier=shown(shift, 10_000, "Fourier", "141 features", "FPR"),
        worse_count=sum(fourier_error > nystroem_error for nystroem_error, fourier_error in errors),
        all_count=len(errors),
    )
    return True


STUDY = Study(
    parts={
        "few rows": Part("few rows", partial(cells, "few rows"), trial, 300),
        "many rows": Part("many rows", partial(cells, "many rows"), trial, 60),
    },
    store="approximations.sqlite",
    version="2",
    write=write,
    timed=True,
)

if __name__ == "__main__":
    main(STUDY, __doc__)
