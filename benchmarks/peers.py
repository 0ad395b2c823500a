"""relfit beside what people use today, on problems whose truth is known; writes docs/peers.md.

    python benchmarks/peers.py --trials 200 --docs docs/peers.md

Needs torch and torchmetrics. All data are drawn from normal distributions, and stand for features of images.
"""

import argparse
import time
import warnings

import numpy as np
import torch
from scipy.special import ndtr
from torchmetrics.image.kid import KernelInceptionDistance

import relfit

ALPHA, SUBSETS = 0.05, 20
ROWS, DIM, SHIFTS, SIZES = 500, 32, (0.05, 0.2), (500, 250, 50)
MODELS, EQUAL_ROWS, EQUAL_DIM, EQUAL_SHIFT, EQUAL_SIZE = 10, 300, 10, 0.2, 100


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
    torch.manual_seed(trial)
    kid, std = np.array([torchmetrics_kid(reference, x, EQUAL_SIZE) for x in models.values()]).T
    result = relfit.compare(reference, models, preset="kid", rng=trial)
    with np.errstate(invalid="ignore", divide="ignore"):
        z = result.difference / result.difference_standard_error
    best = int(kid.argmin())
    return {
        "KID ± std does not overlap that of the smallest": kid - std > kid[best] + std[best],
        "KID above the smallest by more than its std": kid > kid[best] + std[best],
        "plain z test against the smallest": np.nan_to_num(ndtr(-z), nan=1.0) <= ALPHA,
        "relfit, best set": result.worse,
        "relfit, RelPSI": relfit.compare(reference, models, preset="kid", test="relpsi", rng=trial).worse,
    }


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
    return f"{value:.{digits}f} ± {error:.{digits}f}" if digits else f"{1e4 * value:.2f} ± {1e4 * error:.2f}"


def table(titles, rows):
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


PAGE = """# Beside other tools

Written by `benchmarks/peers.py` ({trials} trials, torchmetrics {torchmetrics}, torch {torch}); ± is one Monte-Carlo standard error.

## What each one answers

| | tells whether a gap is real | of many models, corrected for picking the best | error rate controlled | for samples | for densities | for any loss |
| --- | --- | --- | --- | --- | --- | --- |
| relfit | yes | yes | FPR, or FDR | MMD, KID, CMMD, UME | KSD, FSSD | yes |
| the paper's published code (2019) | yes | yes | FPR, or FDR | MMD | KSD | no |
| torchmetrics, torch-fidelity, clean-fid | no: a number, for KID with a spread over subsets | no | none | FID, KID, … | no | no |
| `arch.bootstrap.MCS` | yes | yes | all best models kept | no | no | yes |

relfit's estimates are those of the published code to nine digits, and so are RelPSI's p-values from its KSD estimates
(`tests/oracle/test_golden.py`); [the method](method.md) says where relfit departs from it on purpose. The comparison with `arch` has
[a page of its own](losses.md), the times against plain dense NumPy are with the [benchmarks](benchmarks.md).

## KID's "std" is not its standard error

Reference and model of {rows} rows, {dim} features, the model's means shifted. KID's true standard deviation over repeated draws of both
samples, and what each tool prints as its uncertainty; all times 10⁴, and the seconds for one value in the same run.

{errors}

The spread over random subsets answers another question: how much KID varies between subsets *of that size, drawn from one
sample*. It is 0 where the subsets are the whole sample and grows as they shrink; it does not fall when more samples are drawn. relfit's standard
error is right where the model is some way from the data, and too large (conservative) for a model as close as its own noise, as at the
smaller shift: the variance then holds its second-order part twice, and the result says so. (The larger shift was added after a first look
at the smaller one.)

## Ten models, nine of them equally good

Nine models with the same distribution (a shift of {equal} in one of {equal_dim} features) and one with a shift of {worse}, {equal_rows} rows each,
α = {alpha}. What follows when the model with the smallest KID is taken for the best and the others are held against it:

{alarms}

"KID ± std" is torchmetrics' with {subsets} subsets of {size}. A plain z test against the smallest of ten estimates forgets that it was picked for being
the smallest; relfit's tests do not.
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--docs", help="write the page to this file")
    arguments = parser.parse_args()
    import torchmetrics

    torch.set_num_threads(1)
    worse = 0.5
    page = PAGE.format(
        errors=table(
            ["shift", "what", "× 10⁴", "seconds"],
            [row for shift in SHIFTS for row in standard_errors(arguments.trials, shift)],
        ),
        alarms=table(
            ["procedure", "share of the equal models declared worse", "a trial with any", "the worse one found"],
            false_alarms(arguments.trials, worse),
        ),
        **{
            "trials": arguments.trials,
            "torchmetrics": torchmetrics.__version__,
            "torch": torch.__version__.split("+")[0],
        },
        **{"rows": ROWS, "dim": DIM, "equal": EQUAL_SHIFT, "equal_dim": EQUAL_DIM, "worse": worse},
        **{"equal_rows": EQUAL_ROWS, "alpha": ALPHA, "subsets": SUBSETS, "size": EQUAL_SIZE},
    )
    print(page)
    if arguments.docs:
        with open(arguments.docs, "w", encoding="utf-8") as file:
            file.write(page)


if __name__ == "__main__":
    main()
