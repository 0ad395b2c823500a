"""Tables of scores with training runs, judges, missing scores, and items in one or two ways of clusters.

Writes docs/evidence/calibration/incomplete.md.

python -m studies.incomplete [--trials 1000] [--workers 2]
"""

import numpy as np

from relfit import compare_losses
from studies.study import ALPHA, Part, Study, main, table, write_page

MODELS = 4
# How much better the best model is in the settings that measure power, in points of 100.
GAP = 0.06


def answers(rng, chance):
    """Answers that are right (1) or wrong (0)."""
    return (rng.random(chance.shape) < np.clip(chance, 0.0, 1.0)).astype(float)


def difficulty(rng, items):
    """The chance that a typical model answers an item."""
    return 0.7 + 0.2 * np.tanh(rng.normal(size=items))


def decided(scores, seed, **options):
    """Which models are declared worse, by step-down and by themselves."""
    result = compare_losses(scores, higher_is_better=True, rng=seed, **options)
    order = [result.names.index(f"m{k}") for k in range(1, len(result.names) + 1)]
    return {"worse": result.worse[order].tolist(), "alone": (result.pvalue <= ALPHA)[order].tolist()}


def skills(setting):
    """Equal models, or a last one that is worse."""
    ability = np.zeros(MODELS)
    if setting["worse"]:
        ability[-1] = -GAP
    return ability


def run_trial(setting, seed):
    """400 questions; every run of a model has an ability of its own around that of the method."""
    rng = np.random.default_rng(seed)
    runs = setting["runs"]
    ability = skills(setting)[:, None] + setting["spread"] / 100.0 * rng.normal(size=(MODELS, runs))
    right = answers(rng, difficulty(rng, 400)[:, None, None] + ability)
    found = decided(right, seed, run=True)
    averaged = decided(right.mean(axis=2), seed)
    return {**found, "averaged": averaged["worse"]}


def judge_trial(setting, seed):
    """300 answers of each model; a judge likes every model more or less than other judges do."""
    rng = np.random.default_rng(seed)
    judges = setting["judges"]
    quality = rng.normal(size=(300, 1, 1)) + 0.7 * rng.normal(size=(300, MODELS, 1))
    taste = setting["spread"] * rng.normal(size=(MODELS, judges)) + rng.normal(size=judges)
    noise = 0.7 * rng.normal(size=(300, MODELS, judges))
    marks = 5.0 * skills(setting)[:, None] + quality + taste + noise
    found = decided(marks, seed, judge=True)
    averaged = decided(marks.mean(axis=2), seed)
    return {**found, "averaged": averaged["worse"]}


def hole_trial(setting, seed):
    """A loss with additive effects of items and models; missing at random, or more often for difficult items."""
    rng = np.random.default_rng(seed)
    items = 300
    hard = rng.normal(size=items)
    groups = np.repeat(np.arange(30), 10) if setting["clusters"] else None
    noise = rng.normal(size=(items, MODELS))
    if setting["clusters"]:
        noise = np.sqrt(0.7) * noise + np.sqrt(0.3) * rng.normal(size=(30, MODELS))[groups]
    scores = hard[:, None] + 5.0 * skills(setting) + noise
    part = np.full((items, MODELS), setting["missing"] / 100.0)
    if setting["which"] == "difficult":
        # Models lack difficult items to a different extent, the first one none.
        slope = np.linspace(0.0, 2.0, MODELS)
        part = np.clip(part * (1.0 - slope * np.tanh(hard)[:, None]), 0.0, 0.95)
    gone = rng.random(scores.shape) < part
    complete = decided(scores, seed, groups=groups)
    holes = np.where(gone, np.nan, scores)
    found = decided(holes, seed, groups=groups, missing="adjust", min_coverage=0.0)
    return {**found, "complete": complete["worse"]}


def cluster_trial(setting, seed):
    """Items of prompts that annotators score: effects of both differ from model to model."""
    rng = np.random.default_rng(seed)
    first, second = setting["prompts"], setting["annotators"]
    places = np.array([(i, j) for i in range(first) for j in range(second)])
    kept = rng.random(len(places)) < setting["filled"] / 100.0
    kept[:: second + 1] = True
    prompt, annotator = places[kept].T
    ability = 10.0 * skills(setting)
    scores = ability + np.sqrt(setting["of prompts"]) * rng.normal(size=(first, MODELS))[prompt]
    scores = scores + np.sqrt(setting["of annotators"]) * rng.normal(size=(second, MODELS))[annotator]
    scores = scores + rng.normal(size=scores.shape)
    found = decided(scores, seed, groups=[prompt, annotator])
    once = decided(scores, seed, groups=prompt)
    return {**found, "one way": once["worse"]}


def rates(other, name):
    """The function that makes a row: how often a best model is lost and the worse one found, by each way."""

    def rows(setting, results):
        worse = np.array([trial["worse"] for trial in results])
        beside = np.array([trial[other] for trial in results])
        shown = {key: value for key, value in setting.items() if key != "worse"}
        best = slice(None, -1) if setting["worse"] else slice(None)
        row = {**shown, "trials": len(results), "best lost": rated(worse[:, best].any(axis=1))}
        row["found"] = rated(worse[:, -1]) if setting["worse"] else "–"
        row[f"{name}: best lost"] = rated(beside[:, best].any(axis=1))
        row[f"{name}: found"] = rated(beside[:, -1]) if setting["worse"] else "–"
        return [row]

    return rows


def rated(found):
    """A rate with its Monte-Carlo standard error."""
    value = float(np.mean(found))
    return f"{value:.3f} ± {np.sqrt(value * (1.0 - value) / len(found)):.3f}"


ROWS = {
    "runs": rates("averaged", "averaged"),
    "judges": rates("averaged", "averaged"),
    "holes": rates("complete", "complete"),
    "clusters": rates("one way", "prompts only"),
}


def holds(results):
    """True if no best model is lost more often than α by more than three standard errors."""
    worst = []
    for found in results.values():
        for setting, trials in found:
            if not setting["worse"]:
                lost = np.mean([any(trial["worse"]) for trial in trials])
                worst.append(lost <= ALPHA + 3.0 * np.sqrt(ALPHA * (1.0 - ALPHA) / len(trials)))
    return all(worst)


def write(docs, results):
    """The page; False if a setting with equal models loses a best one too often."""
    parts = {name: table(ROWS[name], found) for name, found in results.items()}
    write_page(docs, "calibration/incomplete.md", **parts)
    return holds(results)


def run_settings():
    """Runs of a method, their spread in points, and a worse model in two of the settings."""
    tied = [{"runs": r, "spread": s, "worse": False} for s in (0.0, 1.5, 3.0) for r in (2, 3, 5, 10)]
    return [*tied, *({"runs": r, "spread": 1.5, "worse": True} for r in (2, 3, 5, 10))]


def judge_settings():
    """Judges, and the standard deviation of their preference for a model."""
    tied = [{"judges": j, "spread": s, "worse": False} for s in (0.0, 0.1, 0.3) for j in (2, 3, 5, 10)]
    return [*tied, *({"judges": j, "spread": 0.1, "worse": True} for j in (3, 10))]


def hole_settings():
    """The percentage of missing scores, which are missing, and whether items are in 30 clusters."""
    kinds = [("random", False), ("difficult", False), ("random", True)]
    tied = [
        {"missing": m, "which": which, "clusters": clusters, "worse": False}
        for which, clusters in kinds
        for m in (10, 30, 50, 70)
    ]
    found = [{"missing": m, "which": "random", "clusters": False, "worse": True} for m in (10, 30, 50, 70)]
    return [*tied, *found]


def cluster_settings():
    """Clusters of both kinds, the percentage of their cells with a score, and the variances of their effects."""
    sizes = [(12, 12, 100), (20, 20, 100), (20, 20, 30), (60, 12, 100), (60, 12, 30)]
    effects = [(0.0, 0.0), (0.3, 0.3), (0.3, 0.0), (0.0, 0.3)]
    tied = [
        {"prompts": p, "annotators": a, "filled": f, "of prompts": u, "of annotators": v, "worse": False}
        for p, a, f in sizes
        for u, v in effects
    ]
    worse = {"prompts": 60, "annotators": 12, "filled": 100, "of prompts": 0.3, "of annotators": 0.3, "worse": True}
    return [*tied, worse]


STUDY = Study(
    parts={
        "runs": Part("training runs", run_settings, run_trial, 1000),
        "judges": Part("judges", judge_settings, judge_trial, 1000),
        "holes": Part("missing scores", hole_settings, hole_trial, 1000),
        "clusters": Part("two-way clusters", cluster_settings, cluster_trial, 1000),
    },
    store="incomplete.sqlite",
    version="1",
    write=write,
)

if __name__ == "__main__":
    main(STUDY, __doc__)
