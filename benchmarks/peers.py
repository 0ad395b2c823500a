"""relfit beside what people use today, on problems whose truth is known: the tables of docs/evidence/peers.md.

    python benchmarks/peers.py --trials 200 --docs docs/evidence/peers.md

Needs torch and torchmetrics. All data are drawn from normal distributions, and stand for features of images.
"""

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
import torch
import torchmetrics
from marks import plus_minus, table, written
from scipy.special import ndtr
from torchmetrics.image.kid import KernelInceptionDistance

import relfit

ALPHA, SUBSETS = 0.05, 20
ROWS, DIM, SHIFTS, SIZES = 500, 32, (0.05, 0.2), (500, 250, 50)
MODELS, EQUAL_ROWS, EQUAL_DIM, EQUAL_SHIFT, EQUAL_SIZES, WORSE_SHIFT = 10, 300, 10, 0.2, (250, 100), 0.5


def torchmetrics_kid(reference, model, size):
    """KID and its "std" over random subsets of `size` rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        metric = KernelInceptionDistance(feature=torch.nn.Identity(), subsets=SUBSETS, subset_size=size)
    metric.set_dtype(torch.float64)
    metric.update(torch.from_numpy(reference), real=True)
    metric.update(torch.from_numpy(model), real=False)
    return tuple(float(part) for part in metric.compute())


def timed(work):
    start = time.perf_counter()
    return work(), time.perf_counter() - start


def standard_errors(trials, shift):
    """For each way of giving an uncertainty of KID: its mean, and its seconds; and the truth over the trials."""
    values, given = [], {}
    for trial in range(trials):
        rng = np.random.default_rng([1, trial])
        reference, model = rng.normal(size=(ROWS, DIM)), rng.normal(shift, 1.0, (ROWS, DIM))
        torch.manual_seed(trial)
        joint, seconds = timed(lambda r=reference, m=model: relfit.estimate(r, {"model": m}, preset="kid", rng=0))
        values.append(joint.values[0])
        given.setdefault("relfit, standard error", []).append((joint.standard_error[0], seconds))
        for size in SIZES:
            (_, std), seconds = timed(lambda r=reference, m=model, s=size: torchmetrics_kid(r, m, s))
            given.setdefault(f"torchmetrics, std of {SUBSETS} subsets of {size}", []).append((std, seconds))
    truth = np.std(values, ddof=1)
    rows = [(shift, "the truth: standard deviation over the trials", _pm(truth, truth / np.sqrt(2 * (trials - 1))), "")]
    for name, pairs in given.items():
        stated, seconds = np.array(pairs).T
        rows.append((shift, name, _pm(stated.mean(), stated.std() / np.sqrt(trials)), f"{np.median(seconds):.3f}"))
    return rows


def declared_worse(reference, models, trial):
    """Which of the models each procedure calls worse than the best, (l,) each."""
    out = {}
    for size in EQUAL_SIZES:
        torch.manual_seed(trial)
        kid, std = np.array([torchmetrics_kid(reference, x, size) for x in models.values()]).T
        best = int(kid.argmin())
        out[f"KID ± std, subsets of {size}: intervals do not overlap"] = kid - std > kid[best] + std[best]
    result = relfit.compare(reference, models, preset="kid", rng=trial)
    plain = relfit.compare(reference, models, preset="kid", estimator=relfit.Complete(variance="projection"), rng=trial)
    with np.errstate(invalid="ignore", divide="ignore"):
        z = plain.difference / plain.difference_standard_error
    out["plain z test against the smallest"] = np.nan_to_num(ndtr(-z), nan=1.0) <= ALPHA
    out["relfit, best set"] = result.worse
    out["relfit, RelPSI"] = relfit.compare(reference, models, preset="kid", test="relpsi", rng=trial).worse
    return out


def false_alarms(trials, worse_shift):
    """For each procedure: share of the equally good models declared worse, a trial with any, the worse one found."""
    found = {}
    for trial in range(trials):
        rng = np.random.default_rng([2, trial])
        reference = rng.normal(size=(EQUAL_ROWS, EQUAL_DIM))
        shifts = np.zeros((MODELS, EQUAL_DIM))
        shifts[:, 0] = EQUAL_SHIFT
        shifts[-1, 0] = worse_shift
        models = {f"m{k}": rng.normal(shift, 1.0, (EQUAL_ROWS, EQUAL_DIM)) for k, shift in enumerate(shifts)}
        for name, worse in declared_worse(reference, models, trial).items():
            found.setdefault(name, []).append(worse)
    rows = []
    for name, verdicts in found.items():
        worse = np.array(verdicts, dtype=float)
        equal, other = worse[:, :-1], worse[:, -1]
        rates = (equal.mean(axis=1), equal.max(axis=1), other)
        rows.append((name, *(_pm(rate.mean(), rate.std() / np.sqrt(trials), 3) for rate in rates)))
    return rows


def _pm(value, error, digits=None):
    return plus_minus(value, error, digits) if digits else plus_minus(1e4 * value, 1e4 * error, 2)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--docs", type=Path, help="put the tables into this page")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    trials = arguments.trials
    errors = [row for shift in SHIFTS for row in standard_errors(trials, shift)]
    alarms = false_alarms(trials, WORSE_SHIFT)
    versions = f"torchmetrics {torchmetrics.__version__}, torch {torch.__version__.split('+')[0]}"
    parts = {
        "run": f"{trials} trials, {versions}.",
        "standard errors": table(["shift", "what", "× 10⁴", "seconds"], errors),
        "false alarms": table(["procedure", "equal models declared worse", "a trial with any", "worse found"], alarms),
    }
    print("\n\n".join(parts.values()))
    if arguments.docs:
        page = written(arguments.docs.read_text(encoding="utf-8"), parts)
        arguments.docs.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
