"""The best set on losses beside arch's model confidence set (MCS) and McNemar's test; writes docs/losses.md.

python -m studies.losses [--trials 1000] [--workers 2]

Needs scikit-learn and arch.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri
from scipy.stats import binom

from examples.losses_mcs import REPS, example, model_confidence_set
from relfit import decide, from_losses
from relfit.paper.experiment import rate
from studies.study import ALPHA, Part, Study, level, main, rows_of, table, write_page

ABOVE = {"stepdown": "step-down", "holm": "Holm", "mcs": "MCS", "mcnemar": "McNemar"}
CORRECTIONS = {"step-down": "stepdown", "Holm": "holm", "no correction": "none"}
# Four models tied for best, four that are worse.
GAPS = np.r_[np.zeros(4), 0.1, 0.15, 0.2, 0.3]
# 30 tasks of 5 to 100 items, and by how much each model is better or worse on each of them; the sum over tasks is 0.
STRATA = np.repeat(np.arange(30), np.geomspace(5, 100, 30).round().astype(int))
EFFECTS = np.random.default_rng(0).uniform(-0.1, 0.1, (30, 8))
EFFECTS -= EFFECTS.mean(axis=0)
# Eight tied for best, and 126 that are worse.
SKILLS = np.r_[np.full(8, 1.0), np.linspace(0.9, -1.0, 126)]


class Case(NamedTuple):
    """Items, the gap of each model's mean loss to the best (or any number above 0), and a function that draws them.

    The losses of a `series` depend on their neighbours, those of `strata` have a macro average. McNemar's test
    is for losses of 0 and 1.
    """

    items: int
    gaps: np.ndarray
    draw: Callable[[int, np.random.Generator], np.ndarray]
    series: bool = False
    strata: bool = False
    mcnemar: bool = False


def _unequal(n, rng):
    scales = np.linspace(0.5, 1.5, 8)
    return rng.exponential(size=(n, 8)) * scales - scales + GAPS


def _one_skewed(n, rng):
    noise = rng.exponential(size=(n, 8)) - 1.0
    noise[:, 0] = rng.lognormal(-1.125, 1.5, n) - 1.0
    return noise + GAPS


def _autoregressive(n, rng):
    """AR(.5) of variance 1, from its stationary law."""
    noise = rng.normal(size=(n, 8))
    for t in range(1, n):
        noise[t] = 0.5 * noise[t - 1] + np.sqrt(0.75) * noise[t]
    return noise + 2.0 * GAPS


def _tasks(n, rng):
    """Wrong answers; tasks are easy (20% wrong) to hard (55%), the small ones easy."""
    tasks = np.resize(STRATA, n)
    chance = np.linspace(0.2, 0.55, 30)[:, None] + 0.5 * GAPS + EFFECTS
    return (rng.random((n, 8)) < chance[tasks]).astype(float)


def _leaderboard(n, rng):
    return (rng.normal(size=(n, 1)) + 0.7 * rng.normal(size=(n, len(SKILLS))) > SKILLS).astype(float)


RARE = np.r_[np.zeros(4), 0.03, 0.05, 0.08, 0.12]


def _rare(n, rng):
    """A normal variable, half of whose variance is the item's, errs beyond its quantile."""
    level = np.sqrt(0.5) * (rng.normal(size=(n, 1)) + rng.normal(size=(n, 8)))
    return (level > -ndtri(0.02 + RARE)).astype(float)


CASES = {
    "independent": Case(200, GAPS, lambda n, rng: rng.normal(size=(n, 8)) + GAPS),
    "hard and easy items": Case(
        200, GAPS, lambda n, rng: 2.0 * rng.normal(size=(n, 1)) + 0.7 * rng.normal(size=(n, 8)) + GAPS
    ),
    "skewed, unequal scales": Case(200, GAPS, _unequal),
    "rare wrong answers": Case(
        200, GAPS, lambda n, rng: (rng.random((n, 8)) < 0.02 + GAPS).astype(float), mcnemar=True
    ),
    "one very skewed model": Case(200, GAPS, _one_skewed),
    "2% errors, shared": Case(200, RARE, _rare, mcnemar=True),
    "series, AR(.5)": Case(300, 2.0 * GAPS, _autoregressive, series=True),
    "30 strata": Case(len(STRATA), 0.5 * GAPS, _tasks, strata=True),
    "leaderboard": Case(468, SKILLS[0] - SKILLS, _leaderboard, mcnemar=True),
}


def cells(small):
    """The settings of the cases with eight models, or those with more."""
    return [{"case": name, "n": case.items} for name, case in CASES.items() if (len(case.gaps) == 8) == small]


def mcnemar_against_the_leader(losses):
    """Which models keep p > α in the exact two-sided test against the model of the smallest mean, one by one."""
    leader = losses[:, [losses.mean(axis=0).argmin()]]
    above, below = (losses > leader).sum(axis=0), (losses < leader).sum(axis=0)
    return 2.0 * binom.cdf(np.minimum(above, below), above + below, 0.5) > ALPHA


def kept_models(name, losses, seed):
    """Which models each procedure keeps."""
    case = CASES[name]
    tasks = np.resize(STRATA, len(losses)) if case.strata else None
    dependence = "series" if case.series else "independent"
    joint = from_losses(losses, higher_is_better=False, strata=tasks, dependence=dependence)
    kept = {}
    for label, correction in CORRECTIONS.items():
        kept[label] = ~decide(joint, test="best-set", correction=correction, alpha=ALPHA, rng=seed).worse
    # The mean of these losses is the macro average: MCS has no strata.
    plain = losses if tasks is None else losses * (len(losses) / 30 / np.bincount(tasks))[tasks, None]
    # arch fails where two models tie exactly, as 0/1 losses do.
    untied = plain + 1e-9 * np.random.default_rng(seed).normal(size=losses.shape)
    block = None if case.series else 1
    kept["MCS"] = np.isin(np.arange(losses.shape[1]), model_confidence_set(untied, seed, block_size=block))
    if case.mcnemar:
        kept["McNemar"] = mcnemar_against_the_leader(losses)
    return kept


def trial(setting, seed):
    """The models that each procedure keeps, on one draw of the losses."""
    losses = CASES[setting["case"]].draw(setting["n"], np.random.default_rng(seed))
    return kept_models(setting["case"], losses, seed)


def rows(setting, results):
    """A row per procedure: how often it loses a best model, and the shares of models that it drops."""
    worse, out = CASES[setting["case"]].gaps > 0.0, []
    for procedure in ("step-down", "Holm", "MCS", "McNemar", "no correction"):
        if procedure in results[0]:
            dropped = ~np.array([result[procedure] for result in results])
            row = {"losses": setting["case"], "trials": len(results), "procedure": procedure}
            row["a best model lost"] = rate(dropped[:, ~worse].any(axis=1))
            row["worse found"] = rate(dropped[:, worse].mean(axis=1))
            out.append({**row, "share of best lost": rate(dropped[:, ~worse].mean(axis=1))})
    return out


def above_the_level(results, procedure):
    """The cases, with rates, in which a procedure loses a best model in more than α of the trials by two s.e.; text."""
    shown = []
    for setting, trials in results:
        lost = {row["procedure"]: row["a best model lost"] for row in rows(setting, trials)}
        mean, error = lost.get(procedure, (0.0, 0.0))
        if mean > ALPHA + 2.0 * error:
            shown.append(f"{setting['case']} ({mean:.3f} ± {error:.3f})")
    return "; ".join(shown) or "none"


def differences(results, procedure):
    """The cases in which a procedure finds more or fewer worse models than step-down by two s.e. of the difference."""
    shown = {"more": [], "fewer": []}
    for setting, trials in results:
        worse = CASES[setting["case"]].gaps > 0.0
        kept = {name: np.array([trial[name] for trial in trials])[:, worse] for name in ("step-down", procedure)}
        mean, error = rate(kept["step-down"].mean(axis=1) - kept[procedure].mean(axis=1))
        if abs(mean) > 2.0 * error:
            text = f"{setting['case']} (by {abs(mean):.3f} ± {error:.3f})"
            shown["more" if mean > 0.0 else "fewer"].append(text)
    return {key: "; ".join(cases) or "none" for key, cases in shown.items()}


def write(docs, results):
    """The page, with the example; what should hold is the level of step-down."""
    shown = example()
    ours, theirs = (line.partition(":")[2].split(",") for line in shown.splitlines()[-2:])
    results = [*results["losses"], *results["leaderboard"]]
    holm, mcs = (differences(results, procedure) for procedure in ("Holm", "MCS"))
    write_page(
        docs,
        "losses.md",
        shown=shown,
        same="the same" if sorted(map(str.strip, ours)) == sorted(map(str.strip, theirs)) else "different",
        reps=REPS,
        table=table(rows, results).rstrip(),
        **{f"above_{key}": above_the_level(results, name) for key, name in ABOVE.items()},
        **{f"holm_{key}": text for key, text in holm.items()},
        **{f"mcs_{key}": text for key, text in mcs.items()},
    )
    lost = [row["a best model lost"] for row in rows_of(rows, results) if row["procedure"] == "step-down"]
    return all(level(each) == "kept" for each in lost)


STUDY = Study(
    {
        "losses": Part("losses", lambda: cells(True), trial, 1000),
        "leaderboard": Part("losses", lambda: cells(False), trial, 1000),
    },
    "losses.sqlite",
    "2",
    write,
)

if __name__ == "__main__":
    main(STUDY, __doc__)
