"""Nyström and random Fourier features against the incomplete estimator at equal cost; writes docs/approximations.md.

python tests/statistical/approximations.py [--share 1.0] [--store approximations.sqlite]

The Fourier features are a prototype of this script, not part of relfit: the page says why. Resumable.
"""

import argparse
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from relfit import UME, Gaussian, JointEstimate, Nystroem, decide, estimate
from relfit.discrepancies import mmd
from relfit.experiments.runner import run_trials
from relfit.experiments.summaries import markdown_table, rate
from relfit.files import write_text_atomic
from relfit.problems import draw, mean_shift_l10, population_mmd, rbm_l7
from relfit.store import Store

ROOT = Path(__file__).parents[2]
VERSION = "1"  # raise it when a change of the code changes results: stored trials of another version are left alone
ALPHA = 0.05
TRIALS = {"few rows": 300, "many rows": 60}
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
        worse = [name for name, is_worse in zip(result.names, result.worse, strict=True) if is_worse]
        out[method] = {"worse": worse, "values": joint.values.tolist(), "seconds": seconds}
    return out


def measured(method, setting, reference, models, bandwidth, seed):
    """The joint estimate by one method, of the setting's cost."""
    count, kernel = features_of(setting, len(models)), Gaussian(bandwidth)
    if method.startswith("Fourier"):
        rng = np.random.default_rng([5, seed])
        return fourier(reference, models, bandwidth, count, rng, own_noise="noise" in method)
    options = {
        "incomplete": {"kernel": kernel, "estimator": "incomplete", "pairs": setting["n"] * setting["lags"]},
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
    ours, *theirs = (own_part(x) for x in features)
    each = np.stack([ours[0] + t[0] - 2.0 * ours[1] * t[1] for t in theirs])
    g = np.stack([projection(features[0], ours, t) for t in theirs], axis=1)
    f = [projection(x, t, ours) for x, t in zip(features[1:], theirs, strict=True)]
    psi = mmd.Psi(mmd.centred(g), tuple(mmd.centred(row) for row in f))
    sizes = tuple(len(x) for x in features)
    return JointEstimate(tuple(names), each.sum(axis=1), psi.covariance(), sizes, psi), each


def own_part(x):
    """For every feature ``mean_{a≠b} τ_a τ_b``, its mean and its sum over n − 1."""
    n, total = len(x), x.sum(axis=0)
    return (np.square(total) - np.square(x).sum(axis=0)) / (n * (n - 1)), total / n, total / (n - 1)


def projection(x, own, other):
    """``τ_a·(Σ_{b≠a} τ_b/(n−1) − mean of the other sample)``."""
    return x @ (own[2] - other[1]) - np.einsum("ij,ij->i", x, x) / (len(x) - 1)


def rows(setting, results):
    """A row per method: cost, error of the differences to the true best, and the rates of the best-set test."""
    make, bandwidth = PROBLEMS[setting["problem"]]
    problem = make()
    truth = population_mmd(problem, bandwidth)
    best = problem.best("mmd")
    first = int(np.argmin(truth))
    bad = [i for i, name in enumerate(problem.models) if name not in best]
    tied = [i for i, name in enumerate(problem.models) if name in best and i != first]
    out = []
    for method in setting["methods"]:
        values = np.array([result[method]["values"] for result in results])
        error = (values - values[:, [first]] - (truth - truth[first])) / np.mean(truth[bad] - truth[first])
        found = [set(result[method]["worse"]) for result in results]
        out.append(
            {
                "problem": setting["problem"],
                "n": setting["n"],
                "method": method,
                "budget": budget(method, setting, len(problem.models)),
                "CPU ms": f"{1000 * min(result[method]['seconds'] for result in results):.0f}",
                # UME is on a scale of its own.
                "error, worse models": "" if method == "UME" else root_mean_square(error[:, bad]),
                "error, tied models": "" if method == "UME" or not tied else root_mean_square(error[:, tied]),
                "trials": len(found),
                "TPR": rate([len(d - best) / len(bad) for d in found]),
                "FPR": rate([len(d & best) / len(best) for d in found]),
            }
        )
    return out


def budget(method, setting, models):
    if method in ("complete", "incomplete"):
        return f"R = {setting['lags']}" if setting["lags"] else "all pairs"
    return f"{features_of(setting, models) or Nystroem().count(setting['n'])} features"


def root_mean_square(values):
    return f"{np.sqrt(np.mean(np.square(values))):.2f}"


TEXT = """# Other linear-time approximations of MMD

Written by `tests/statistical/approximations.py`. Two ways to make the MMD cheap that relfit does not have, against the
one it has: random Fourier features, `k ≈ mean_f cos(ω_f·(x − y))`, and Nyström, `k ≈ K_xv K_vv⁻¹ K_vy` with landmarks
drawn from the rows, against the incomplete estimator (`estimator="incomplete"`, the cyclic design with R pairs for each
row). Every group of rows below spends the same number of kernel values (a frequency, a sine and a cosine, counts as one);
CPU ms is the fastest trial's time of one estimate on one core, of plain NumPy for the prototypes and with all of
relfit's checks for the incomplete estimator.

Errors are root mean squares, of D_i − D_best about the true difference of the MMD² (known in closed
form, for a fixed Gaussian bandwidth), in units of the mean true difference of the worse models. TPR and FPR are those
of `test="best-set"` at α = 0.05, ± one Monte-Carlo standard error: the share of worse models declared worse, and of
models tied for the smallest MMD². "Its own noise counted" adds to V the covariance of the estimates over the
frequencies, over their number.

{table}
{verdict}
"""


def verdict(found):
    """What the table says, in words made from it."""
    exceeded, kept = [], []
    for setting, results in found:
        for row in rows(setting, results):
            fpr = row["FPR"]
            (exceeded if fpr[0] > ALPHA + 3.0 * fpr[1] else kept).append(row["method"])
    methods = dict.fromkeys([*METHODS, *exceeded, *kept])
    counts = {m: (exceeded.count(m), exceeded.count(m) + kept.count(m)) for m in methods}
    said = ", ".join(f"{m}: {over} of {all_}" for m, (over, all_) in counts.items())
    return f"Settings in which FPR lies more than three standard errors above α: {said}.\n\n{CONCLUSION}"


CONCLUSION = ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=1.0, help="of the trials (default 1.0)")
    parser.add_argument("--store", default=str(ROOT / "approximations.sqlite"), help="where finished trials are kept")
    arguments = parser.parse_args()
    found = []
    with Store(arguments.store, version=VERSION) as store, ThreadPoolExecutor(1) as thread:
        for size, trials in TRIALS.items():
            count = max(2, round(arguments.share * trials))
            results = run_trials(store, size, cells(size), count, trial, executor=thread)
            found += zip(cells(size), results, strict=True)
    found.sort(key=lambda each: list(PROBLEMS).index(each[0]["problem"]))
    table = markdown_table([row for setting, done in found for row in rows(setting, done)])
    write_text_atomic(ROOT / "docs" / "approximations.md", TEXT.format(table=table, verdict=verdict(found)))
    print("Written to docs/approximations.md.")


if __name__ == "__main__":
    main()
