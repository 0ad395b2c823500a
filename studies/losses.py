"""The best set on losses beside arch's model confidence set (MCS): level and power; writes docs/losses.md.

python -m studies.losses [--trials 300] [--workers 2]

Needs scikit-learn and arch.
"""

import numpy as np

from examples.losses_mcs import REPS, example, model_confidence_set
from relfit import decide, from_losses
from relfit.paper.experiment import rate
from studies.study import ALPHA, Part, Study, main, table, write_page

ITEMS = 200
# Four models tied for best, four that are worse.
GAPS = np.r_[np.zeros(4), 0.1, 0.15, 0.2, 0.3]
CASES = (
    "independent",
    "hard and easy items",
    "skewed, unequal scales",
    "rare wrong answers",
    "one very skewed model",
)


def cells():
    """Every kind of losses."""
    return [{"case": case, "n": ITEMS} for case in CASES]


def drawn_losses(case, n, rng):
    """(n, 8) losses of models that are worse than the best by GAPS."""
    if case == "rare wrong answers":
        return (rng.random((n, 8)) < 0.02 + GAPS).astype(float)
    if case == "one very skewed model":
        noise = rng.exponential(size=(n, 8)) - 1.0
        noise[:, 0] = rng.lognormal(-1.125, 1.5, n) - 1.0
    elif case == "independent":
        noise = rng.normal(size=(n, 8))
    elif case == "hard and easy items":
        noise = 2.0 * rng.normal(size=(n, 1)) + 0.7 * rng.normal(size=(n, 8))
    else:
        noise = rng.exponential(size=(n, 8)) * np.linspace(0.5, 1.5, 8) - np.linspace(0.5, 1.5, 8)
    return noise + GAPS


def kept_models(losses, seed):
    """Which models each procedure keeps, (8,) each."""
    joint = from_losses(losses)
    kept = {}
    for name, correction in (("best-set", "none"), ("best-set, Holm", "holm")):
        kept[name] = ~decide(joint, test="best-set", correction=correction, alpha=ALPHA, rng=seed).worse
    # arch fails where two models tie exactly, as 0/1 losses do.
    untied = losses + 1e-9 * np.random.default_rng(seed).normal(size=losses.shape)
    kept["MCS"] = np.isin(np.arange(losses.shape[1]), model_confidence_set(untied, seed))
    return kept


def trial(setting, seed):
    """The models that each procedure keeps, on one draw of the losses."""
    return kept_models(drawn_losses(setting["case"], setting["n"], np.random.default_rng(seed)), seed)


def rows(setting, results):
    """A row per procedure: how often it loses a best model, and the fractions of models that it drops."""
    out = []
    for procedure in ("best-set", "best-set, Holm", "MCS"):
        dropped = ~np.array([result[procedure] for result in results])
        best, worse = dropped[:, GAPS == 0.0], dropped[:, GAPS > 0.0]
        row = {"losses": setting["case"], "procedure": procedure, "a best model lost": rate(best.any(axis=1))}
        row["fraction of best lost"] = rate(best.mean(axis=1))
        out.append({**row, "fraction of worse found": rate(worse.mean(axis=1))})
    return out


def write(docs, results):
    """The page, with the example."""
    shown = example()
    ours, theirs = (line.partition(":")[2].split(",") for line in shown.splitlines()[-2:])
    write_page(
        docs,
        "losses.md",
        shown=shown,
        same="the same" if sorted(map(str.strip, ours)) == sorted(map(str.strip, theirs)) else "different",
        reps=REPS,
        n=ITEMS,
        trials=min(len(trials) for _, trials in results["losses"]),
        table=table(rows, results["losses"]).rstrip(),
    )
    return True


STUDY = Study({"losses": Part("losses", cells, trial, 300)}, "losses.sqlite", "1", write)

if __name__ == "__main__":
    main(STUDY, __doc__)
