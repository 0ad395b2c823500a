"""Landmarks beside the complete estimate: bias, variance, level, power, time; evidence/calibration/landmarks.md.

python -m studies.landmarks [--trials 5000] [--workers 2]
"""

import json
import math
import os
import platform
import subprocess
import sys

import numpy as np

from relfit import Gaussian, Landmarks, compare, estimate
from relfit.estimators import landmarks
from relfit.paper.experiment import rate
from relfit.paper.problems import candidates, mean_shift, mean_shift_l10
from relfit.util.libraries import has_cuda
from studies.problems import true_ksd, true_mmd
from studies.study import ALPHA, Part, Study, declared, error_rates, level, main, rows_of, table, write_page

# Otherwise all pairs would be used where they are few, as in these small trials.
landmarks.FEW_PAIRS = 0
BANDWIDTH = 2.0
# A shift that the complete estimate finds in about half of the samples of 20,000 rows.
BEST, WORSE = 0.1, 0.122


def biases():
    """Few landmarks and few drawn rows, so that nearly all depends on the guard."""
    return [{"measure": measure, "n": 60, "count": 4, "drawn": 6} for measure in ("mmd", "ksd")]


def bias_trial(setting, seed):
    """The estimates and their variances, with the true values."""
    n, problem = setting["n"], mean_shift(np.array([[0.5, 0.0], [0.0, -0.5]]))
    estimator = Landmarks(setting["count"], setting["drawn"] * n)
    data = candidates(problem, setting["measure"], n, seed)
    joint = estimate(*data, kernel=Gaussian(BANDWIDTH), estimator=estimator, rng=seed, progress=False)
    gap = joint.covariance[0, 0] + joint.covariance[1, 1] - 2.0 * joint.covariance[0, 1]
    return {"values": joint.values.tolist(), "variance": float(joint.covariance[0, 0]), "gap": float(gap)}


def bias_rows(setting, results):
    """The mean error in standard errors, and the mean estimated over the true variance."""
    problem = mean_shift(np.array([[0.5, 0.0], [0.0, -0.5]]))
    truth = (true_mmd if setting["measure"] == "mmd" else true_ksd)(problem, BANDWIDTH)
    errors = np.array([r["values"] for r in results]) - truth
    row = {"measure": setting["measure"].upper(), "rows": setting["n"], "landmarks": setting["count"]}
    row |= {"drawn rows": setting["drawn"], "trials": len(results)}
    for name, error in (("D₁", errors[:, 0]), ("D₁ − D₂", errors[:, 0] - errors[:, 1])):
        row[f"bias of {name}, in s.e."] = f"{error.mean() / error.std() * math.sqrt(len(error)):+.1f}"
    for name, key, error in (("D₁", "variance", errors[:, 0]), ("D₁ − D₂", "gap", errors[:, 0] - errors[:, 1])):
        ratios = np.array([r[key] for r in results]) / np.square(error).mean()
        spread = np.std(np.square(error)) / np.square(error).mean() / math.sqrt(len(error))
        row[f"estimated / true variance of {name}"] = (float(ratios.mean()), float(spread))
    return [row]


def variances():
    """Sizes chosen automatically."""
    return [{"measure": measure, "n": 2000, "shift": shift} for measure in ("mmd", "ksd") for shift in (0.02, 0.3)]


def variance_trial(setting, seed):
    """The complete estimate and that by landmarks from the same rows, and the law's variances."""
    problem = mean_shift(setting["shift"] * np.eye(10)[:3])
    data = candidates(problem, setting["measure"], setting["n"], seed)
    both = [estimate(*data, estimator=name, rng=seed, progress=False) for name in ("complete", "landmarks")]
    return {
        "values": [float(joint.values[0]) for joint in both],
        "variances": [float(joint.covariance[0, 0]) for joint in both],
        "note": both[1].notes[0],
    }


def variance_rows(setting, results):
    """The variances of both estimates over the trials, and of the difference between them."""
    # Of the few others, landmarks would have cost as much as all pairs.
    results = [r for r in results if "adds" in r["note"]]
    complete, landmarks = np.array([r["values"] for r in results]).T
    shares = np.array([float(r["note"].split("adds ")[1].split("%")[0].removeprefix("less than ")) for r in results])
    counts = [int(r["note"].split("estimator: ")[1].split(" landmarks")[0].replace(",", "")) for r in results]
    estimated = np.array([r["variances"] for r in results])
    ratio = float(landmarks.var() / complete.var())
    # The two are correlated: the error of the ratio by resampling the trials.
    rng, draws = np.random.default_rng(0), []
    for _ in range(200):
        some = rng.integers(len(results), size=len(results))
        if complete[some].var() > 0.0:
            draws.append(landmarks[some].var() / complete[some].var())
    return [
        {
            "measure": setting["measure"].upper(),
            "rows": setting["n"],
            "shift": setting["shift"],
            "trials": len(results),
            "landmarks": f"{min(counts)} to {max(counts)}",
            "said to add to the variance": f"{np.mean(shares):.1f}%",
            "variance, landmarks / complete": (ratio, float(np.std(draws))),
            "estimated V, landmarks / complete": (
                float((estimated[:, 1] / estimated[:, 0]).mean()),
                float((estimated[:, 1] / estimated[:, 0]).std() / math.sqrt(len(results))),
            ),
        }
    ]


def placed(reference, models):
    """The samples where there is most speed: as tensors in double precision on a CUDA device, if there is one."""
    if not has_cuda():
        return reference, models
    import torch

    return torch.as_tensor(reference, device="cuda"), {k: torch.as_tensor(x, device="cuda") for k, x in models.items()}


def levels():
    """Nine tied models and one that is further off."""
    return [{"n": 100_000}]


def large_levels():
    """The same with more rows."""
    return [{"n": 1_000_000}]


def level_trial(setting, seed):
    """The models declared worse by the best set."""
    data = placed(*candidates(mean_shift_l10(), "mmd", setting["n"], seed))
    result = compare(*data, estimator="landmarks", alpha=ALPHA, rng=seed, progress=False)
    return {"worse": declared(result.names, result.worse)}


def level_rows(setting, results):
    """The fraction of the tied models declared worse, and whether the level is kept."""
    rates = error_rates(mean_shift_l10(), [r["worse"] for r in results])
    row = {"rows": f"{setting['n']:,}", "trials": len(results), "tied models declared worse": rates["FPR"]}
    return [{**row, "level": level(rates["FPR"]), "any of them": rates["FWER"], "worse one found": rates["TPR"]}]


def powers():
    """Two models, one a little further off."""
    return [{"n": 20_000}]


def power_trial(setting, seed):
    """Whether the worse model is found, by both from the same rows."""
    problem = mean_shift(np.array([BEST * np.eye(10)[0], WORSE * np.eye(10)[1]]))
    data = candidates(problem, "mmd", setting["n"], seed)
    there, found = placed(*data), {}
    for name in ("complete", "landmarks", "incomplete"):
        result = compare(
            *(data if name == "incomplete" else there), estimator=name, alpha=ALPHA, rng=seed, progress=False
        )
        found[name] = bool(result.worse[1])
    return found


def power_rows(setting, results):
    """How often the worse model is found."""
    row = {"rows": f"{setting['n']:,}", "trials": len(results)}
    row |= {name: rate([r[name] for r in results]) for name in ("complete", "landmarks", "incomplete")}
    differences = [float(r["landmarks"]) - float(r["complete"]) for r in results]
    return [{**row, "landmarks − complete": rate(differences)}]


def times():
    """Five models, ten columns."""
    return [{"n": n} for n in (1_000, 2_000, 5_000, 10_000, 100_000, 1_000_000)]


_TIMED = """
import json, resource, sys, time
import numpy as np
import relfit
n = int(sys.argv[1])
rng = np.random.default_rng(0)
reference = rng.normal(size=(n, 10))
models = {f"m{i}": rng.normal(0.02 * i, 1.0, (n, 10)) for i in range(5)}
relfit.compare(reference[:500], {name: x[:500] for name, x in models.items()}, estimator="landmarks", rng=0)
wall, cpu = time.perf_counter(), time.process_time()
result = relfit.compare(reference, models, estimator="landmarks", rng=0, progress=False)
used = {"seconds": time.perf_counter() - wall, "cpu": time.process_time() - cpu, "note": result.warnings[0]}
used["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
if n <= 10_000:
    cpu = time.process_time()
    relfit.compare(reference, models, rng=0, progress=False)
    used["complete"] = time.process_time() - cpu
print(json.dumps(used))
"""


def time_trial(setting, seed):
    """A comparison in a process of its own."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", _TIMED, str(setting["n"])]
    output = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    return json.loads(output)


def time_rows(setting, results):
    """The best of the runs."""
    best = min(results, key=lambda r: r["seconds"])
    note = best["note"].removeprefix("landmarks estimator: ")
    return [
        {
            "rows": f"{setting['n']:,}",
            "runs": len(results),
            "seconds": f"{best['seconds']:.2g}",
            "seconds of processors": f"{min(r['cpu'] for r in results):.2g}",
            "the same, complete": "" if "complete" not in best else f"{min(r['complete'] for r in results):.2g}",
            "peak of memory, GB": f"{best['peak'] / 1e9:.2f}",
            "chosen": note.replace(" rows of each sample that are compared with all rows", " drawn rows"),
        }
    ]


def write(docs, results):
    """The page; True if everything that should hold does."""
    shown = rows_of(time_rows, results["times"])
    costs = [(int(row["rows"].replace(",", "")), float(row["seconds of processors"])) for row in shown]
    (n0, first), (n1, last) = costs[-2], costs[-1]
    levels_found = [*results["level"], *results["level-large"]]
    write_page(
        docs,
        "calibration/landmarks.md",
        machine=f"{os.cpu_count()} cores ({platform.machine()})",
        bias=table(bias_rows, results["bias"]),
        variance=table(variance_rows, results["variance"]),
        level=table(level_rows, levels_found),
        power=table(power_rows, results["power"]),
        times=table(time_rows, results["times"]),
        exponent=f"{math.log(last / first) / math.log(n1 / n0):.2f}",
    )
    biased = [
        abs(float(row[f"bias of {name}, in s.e."])) > 3.5
        for row in rows_of(bias_rows, results["bias"])
        for name in ("D₁", "D₁ − D₂")
    ]
    kept = [row["level"] == "kept" for row in rows_of(level_rows, levels_found)]
    return not any(biased) and all(kept)


STUDY = Study(
    {
        "bias": Part("landmarks-bias", biases, bias_trial, 5000),
        "variance": Part("landmarks-variance-2", variances, variance_trial, 1000),
        "level": Part("landmarks-level-2", levels, level_trial, 1000),
        "level-large": Part("landmarks-level-2", large_levels, level_trial, 300),
        "power": Part("landmarks-power-2", powers, power_trial, 1000),
        "times": Part("landmarks-times-2", times, time_trial, 2),
    },
    "landmarks.sqlite",
    "1",
    write,
)

if __name__ == "__main__":
    main(STUDY, __doc__)
