"""The best set on losses beside arch's model confidence set (MCS), evalstats and McNemar.

Writes docs/evidence/losses.md.

python -m studies.losses [--trials 1000] [--workers 2]

Needs scikit-learn, arch and evalstats; the parts `losses`, `leaderboard` and `tied`
(--only) need none of them. All parts draw
the same losses from the same seeds.
"""

import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri
from scipy.stats import binom

from relfit import decide, from_losses
from relfit.paper.experiment import rate
from studies.study import ALPHA, Part, Study, level, main, rows_of, table, write_page

ABOVE = {"stepdown": "step-down", "holm": "Holm", "mcs": "MCS", "evalstats": "evalstats", "mcnemar": "McNemar"}
PROCEDURES = ("step-down", "Holm", "MCS", "evalstats", "McNemar", "no correction")
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


def plain_cells():
    """The settings of the cases with eight models that evalstats can take: it has no series and no strata."""
    return [
        setting for setting in cells(True) if not CASES[setting["case"]].series and not CASES[setting["case"]].strata
    ]


def mcnemar_against_the_leader(losses):
    """Which models keep p > α in the exact two-sided test against the model of the smallest mean, one by one."""
    leader = losses[:, [losses.mean(axis=0).argmin()]]
    above, below = (losses > leader).sum(axis=0), (losses < leader).sum(axis=0)
    return 2.0 * binom.cdf(np.minimum(above, below), above + below, 0.5) > ALPHA


def draw(setting, seed):
    """The losses of a trial, and the strata of their items, or None."""
    case = CASES[setting["case"]]
    losses = case.draw(setting["n"], np.random.default_rng(seed))
    return case, losses, np.resize(STRATA, len(losses)) if case.strata else None


def plain(losses, tasks):
    """Losses whose mean is the macro average, for peers that have no strata."""
    return losses if tasks is None else losses * (len(losses) / 30 / np.bincount(tasks))[tasks, None]


def trial(setting, seed):
    """The models that relfit and McNemar's test keep, on one draw of the losses."""
    case, losses, tasks = draw(setting, seed)
    dependence = "series" if case.series else "independent"
    joint = from_losses(losses, higher_is_better=False, strata=tasks, dependence=dependence)
    kept = {"seed": seed}
    for label, correction in CORRECTIONS.items():
        kept[label] = ~decide(joint, test="best-set", correction=correction, alpha=ALPHA, rng=seed).worse
    if case.mcnemar:
        kept["McNemar"] = mcnemar_against_the_leader(losses)
    return kept


def mcs_trial(setting, seed):
    """The models that arch's MCS keeps, on the same draw."""
    from examples.losses_mcs import model_confidence_set

    case, losses, tasks = draw(setting, seed)
    # arch fails where two models tie exactly, as 0/1 losses do.
    untied = plain(losses, tasks) + 1e-9 * np.random.default_rng(seed).normal(size=losses.shape)
    kept = model_confidence_set(untied, seed, block_size=None if case.series else 1)
    return {"seed": seed, "MCS": np.isin(np.arange(losses.shape[1]), kept)}


def evalstats_trial(setting, seed):
    """The models that no other one beats significantly by evalstats' own choice of methods, on the same draw."""
    import evalstats
    import pandas

    case, losses, tasks = draw(setting, seed)
    count, names = len(losses), [f"m{k}" for k in range(losses.shape[1])]
    # Right answers are 1, which makes evalstats take them for what they are.
    scores = (1.0 if case.mcnemar else 0.0) - plain(losses, tasks)
    columns = {"model": np.tile(names, count), "item": np.repeat(np.arange(count), len(names)).astype(str)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded = evalstats.load_from(pandas.DataFrame({**columns, "score": scores.ravel()}))
        unbeaten = evalstats.compare(loaded, factors="model", rng=np.random.default_rng(seed)).unbeaten
    return {"seed": seed, "evalstats": np.isin(names, names if unbeaten is None else unbeaten)}


def _autoregressive_ties(strength):
    def drawn(n, count, rng):
        noise = rng.normal(size=(n, count))
        for t in range(1, n):
            noise[t] = strength * noise[t - 1] + np.sqrt(1.0 - strength**2) * noise[t]
        return noise

    return drawn


# Tied models: draws of their losses from the items, the models and a generator.
TIES = {
    "normal": lambda n, count, rng: rng.normal(size=(n, count)),
    "t, 3 degrees of freedom": lambda n, count, rng: rng.standard_t(3, size=(n, count)),
    "exponential": lambda n, count, rng: rng.exponential(size=(n, count)),
    "exponential, unequal scales": lambda n, count, rng: (
        (rng.exponential(size=(n, count)) - 1.0) * np.linspace(0.2, 2.0, count)
    ),
    "0/1, 20% wrong": lambda n, count, rng: (rng.random((n, count)) < 0.2).astype(float),
    "AR(.5) series": _autoregressive_ties(0.5),
    "AR(.8) series": _autoregressive_ties(0.8),
}


def tied_cells():
    """Few items, of which all models tie."""
    return [
        {"losses": name, "models": count, "n": n}
        for name in TIES
        for count in (2, 10)
        for n in ((60, 120, 300) if "series" in name else (20, 50, 200))
    ]


def tied_trial(setting, seed):
    """Whether a model is lost with each correction."""
    losses = TIES[setting["losses"]](setting["n"], setting["models"], np.random.default_rng(seed))
    dependence = "series" if "series" in setting["losses"] else "independent"
    joint = from_losses(losses, higher_is_better=False, dependence=dependence)
    return {
        label: bool(decide(joint, test="best-set", correction=correction, alpha=ALPHA, rng=seed).worse.any())
        for label, correction in CORRECTIONS.items()
        if label != "no correction"
    }


def tied_rows(setting, results):
    """How often a model is lost."""
    labels = [label for label in CORRECTIONS if label in results[0]]
    lost = {f"{label}: a model lost": rate([result[label] for result in results]) for label in labels}
    return [{**setting, "trials": len(results), **lost}]


def merged(results):
    """(setting, {procedure: {seed: the models kept}}) for every case, from all parts."""
    parts = [part for name, part in results.items() if name != "tied"]
    for cases in (results["losses"], results["leaderboard"]):
        for setting, _ in cases:
            kept = {}
            for part in parts:
                for trial in next((trials for other, trials in part if other == setting), ()):
                    for procedure in PROCEDURES:
                        if procedure in trial:
                            kept.setdefault(procedure, {})[trial["seed"]] = np.array(trial[procedure])
            yield setting, kept


def rows(setting, kept):
    """A row per procedure: how often it loses a best model, and the shares of models that it drops."""
    worse, out = CASES[setting["case"]].gaps > 0.0, []
    for procedure in PROCEDURES:
        if procedure in kept:
            dropped = ~np.array(list(kept[procedure].values()))
            row = {"losses": setting["case"], "trials": len(dropped), "procedure": procedure}
            row["a best model lost"] = rate(dropped[:, ~worse].any(axis=1))
            row["worse found"] = rate(dropped[:, worse].mean(axis=1))
            out.append({**row, "share of best lost": rate(dropped[:, ~worse].mean(axis=1))})
    return out


def above_the_level(results, procedure):
    """The cases, with rates, in which a procedure loses a best model in more than α of the trials by two s.e.; text."""
    shown = []
    for setting, kept in results:
        lost = {row["procedure"]: row["a best model lost"] for row in rows(setting, kept)}
        mean, error = lost.get(procedure, (0.0, 0.0))
        if mean > ALPHA + 2.0 * error:
            shown.append(f"{setting['case']} ({mean:.3f} ± {error:.3f})")
    return "; ".join(shown) or "none"


def differences(results, procedure):
    """The cases in which a procedure finds more or fewer worse models than step-down by two s.e. of the difference.

    The differences are those of single trials, which both procedures have run.
    """
    shown = {"more": [], "fewer": []}
    for setting, kept in results:
        worse, both = CASES[setting["case"]].gaps > 0.0, kept["step-down"].keys() & kept.get(procedure, {}).keys()
        if not both:
            continue
        ours, theirs = (np.array([kept[name][seed] for seed in both])[:, worse] for name in ("step-down", procedure))
        mean, error = rate(ours.mean(axis=1) - theirs.mean(axis=1))
        if abs(mean) > 2.0 * error:
            text = f"{setting['case']} (by {abs(mean):.3f} ± {error:.3f})"
            shown["more" if mean > 0.0 else "fewer"].append(text)
    return {key: "; ".join(cases) or "none" for key, cases in shown.items()}


def write(docs, results):
    """The page, with the example; what should hold is the level of step-down."""
    from examples.losses_mcs import REPS, example

    shown = example()
    ours, theirs = (line.partition(":")[2].split(",") for line in shown.splitlines()[-2:])
    tied, results = table(tied_rows, results["tied"]).rstrip(), list(merged(results))
    against = {key: differences(results, name) for key, name in ABOVE.items() if key in ("holm", "mcs", "evalstats")}
    write_page(
        docs,
        "losses.md",
        shown=shown,
        same="the same" if sorted(map(str.strip, ours)) == sorted(map(str.strip, theirs)) else "different",
        reps=REPS,
        table=table(rows, results).rstrip(),
        tied=tied,
        **{f"above_{key}": above_the_level(results, name) for key, name in ABOVE.items()},
        **{f"{key}_{which}": text for key, both in against.items() for which, text in both.items()},
    )
    lost = [row["a best model lost"] for row in rows_of(rows, results) if row["procedure"] == "step-down"]
    return all(level(each) == "kept" for each in lost)


STUDY = Study(
    {
        "losses": Part("losses", lambda: cells(True), trial, 1000),
        "leaderboard": Part("losses", lambda: cells(False), trial, 1000),
        "tied": Part("losses, few items", tied_cells, tied_trial, 1000),
        "mcs": Part("losses MCS", lambda: cells(True), mcs_trial, 1000),
        "mcs leaderboard": Part("losses MCS", lambda: cells(False), mcs_trial, 100),
        "evalstats": Part("losses evalstats", plain_cells, evalstats_trial, 1000),
    },
    "losses.sqlite",
    "3",
    write,
)

if __name__ == "__main__":
    main(STUDY, __doc__)
