"""Do the confidence bounds hold what they promise, and margins and groups their level?

Writes docs/evidence/coverage.md.

python -m studies.coverage [--trials 2000] [--only data] [--workers 2]
"""

import math
from dataclasses import replace

import numpy as np

from relfit import KSD, MMD, Density, Gaussian, JointEstimate, compare, decide, estimate
from relfit.paper.experiment import markdown_table, rate
from relfit.paper.problems import candidates, mean_shift_l10, stream
from relfit.stats.decision import difference_variance
from relfit.stats.maxt import seeded
from relfit.stats.pairs import pair_intervals
from relfit.stats.tests.base import Criteria
from relfit.stats.tests.best_set import best_set, regret_bounds
from relfit.stats.tests.carve import carve, carve_bounds, select
from relfit.stats.tests.relpsi import RelPSI
from relfit.stats.truncnorm import selective_log_pvalue
from studies.study import ALPHA, PLAIN, Part, Study, main, rows_of, write_page

LEVEL = 0.95
# Fixed, so that the population discrepancies have a closed form; about the median distance in ten dimensions.
BANDWIDTH = 4.5
TESTS = ("relpsi", "carve", "best-set")
MEANS = {
    "all tied": np.zeros(10),
    "nine tied, one worse": np.r_[np.zeros(9), 4.0],
    "graded": np.linspace(0.0, 4.5, 10),
}
GROUPS, GROUP_SIZE = 60, 5
# Draws of the best set: a quarter of the default, which is enough for a rate over many trials.
DRAWS = 5000
# Lengths are those of every tenth trial.
EVERY = 10


def known_cells():
    """Gaussian (D, V) with V known."""
    return [{"setting": name} for name in MEANS]


def data_cells():
    """The paper's ten-model problem."""
    return [{"measure": measure, "n": n} for measure in ("mmd", "ksd") for n in (200, 500)]


def pair_cells():
    """All of them once more, for the intervals of all pairs."""
    return known_cells() + data_cells()


def group_cells():
    """Tied models, rows in groups, with the groups and without."""
    return [
        {"measure": measure, "dependence": dependence, "groups": groups}
        for measure, dependence in (("ksd", "independent"), ("mmd", "independent"), ("mmd", "paired"))
        for groups in (True, False)
    ]


def known_covariance():
    """Ten correlated estimates with variances that differ fourfold; a typical difference has variance 1."""
    rng = np.random.default_rng(5)
    root = rng.normal(size=(10, 10)) * np.sqrt(np.linspace(0.4, 1.6, 10))[:, None]
    return np.asarray(root @ root.T / 20.0 + 0.3)


def known_trial(setting, seed):
    """One D ~ N(θ, V)."""
    return _bounds(*_known(setting, seed), seed)


def data_trial(setting, seed):
    """One draw of meanshift-l10."""
    joint, theta = _estimated(setting, seed)
    return _bounds(joint, theta, seed)


def pair_trial(setting, seed):
    """Whether the intervals of all 45 differences hold, and their median length."""
    joint, theta = (_known if "setting" in setting else _estimated)(setting, seed)
    ends = pair_intervals(replace(joint, psi=None), LEVEL, rng=seeded(seed, "pairs"), draws=DRAWS)
    truth = np.subtract.outer(theta, theta)
    held = (ends[:, :, 0] <= truth) & (truth <= ends[:, :, 1])
    upper = np.triu_indices(len(theta), 1)
    return {"interval": bool(held.all()), "length": float(np.median(np.ptp(ends, axis=2)[upper]))}


def margin_trial(setting, seed):
    """The verdicts with a margin that is exactly the gap of P10 to the nine tied models."""
    joint, theta = _estimated(setting, seed)
    gap = float(theta[-1] - theta.min())
    decisions = {
        "relpsi": RelPSI().decide(joint, Criteria(ALPHA, margin=gap)),
        "carve": carve(joint, ALPHA, rng=seeded(seed, "carve"), margin=gap),
        "best-set": best_set(joint, ALPHA, rng=seeded(seed, "best-set"), draws=DRAWS, margin=gap),
    }
    return {
        test: {"best": decision.best, "worse": bool(decision.worse[-1]), "equivalent": _equivalent(decision)}
        for test, decision in decisions.items()
    }


def group_trial(setting, seed):
    """Four tied models; a group's rows are its centre and a little noise. The models each test declares worse."""
    rng = stream(seed, f"groups {setting['measure']}")
    labels = np.repeat(np.arange(GROUPS), GROUP_SIZE)
    shifts = 0.5 * np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    names = [f"P{k}" for k in range(1, 5)]
    prompts = rng.normal(size=(GROUPS, 2))
    reference = _in_groups(rng, prompts)
    if setting["measure"] == "ksd":
        models = {name: Density(score=_score(mean), dim=2) for name, mean in zip(names, shifts, strict=True)}
        groups = labels
    else:
        paired = setting["dependence"] == "paired"
        models = {
            name: _in_groups(rng, prompts if paired else rng.normal(size=(GROUPS, 2))) + mean
            for name, mean in zip(names, shifts, strict=True)
        }
        groups = labels if paired else dict.fromkeys(("reference", *names), labels)
    options = {"kernel": Gaussian(2.0), "dependence": setting["dependence"], "alpha": ALPHA, "correction": "none"}
    options["estimator"] = PLAIN
    options |= {"groups": groups} if setting["groups"] else {}
    results = {
        test: compare(reference, models, test=test, rng=seed, progress=False, **options)
        for test in ("relpsi", "relmulti", "best-set")
    }
    return {test: int(result.worse.sum()) for test, result in results.items()}


def coverage_rows(setting, results):
    """Coverage with its Monte-Carlo error, and the median length of the intervals."""
    rows = []
    for test in TESTS:
        trials = [result[test] for result in results]
        lengths = [math.inf if length is None else length for one in trials for length in one.get("lengths", ())]
        lengths = [length for length in lengths if length > 0.0]  # the length is 0 for the selected model itself
        rows.append(
            {
                **setting,
                "test": test,
                "lower bound": rate([one["lower"] for one in trials]),
                "upper bound": rate([one["upper"] for one in trials]),
                "interval": rate([one["interval"] for one in trials]),
                "median length": f"{np.median(lengths):.3g}",
                "infinite": f"{np.mean(np.isinf(lengths)):.3f}",
            }
        )
    return rows


def pair_rows(setting, results):
    """Coverage of all differences at once."""
    words = setting.get("setting") or f"{setting['measure'].upper()}, n = {setting['n']}"
    length = float(np.median([result["length"] for result in results]))
    covered = rate([float(result["interval"]) for result in results])
    return [{"setting": words, "all intervals": covered, "median length": f"{length:.3g}"}]


def margin_rows(setting, results):
    """How often P10, worse by exactly δ, is called worse by more, and how often any claim "equivalent" is wrong."""
    rows = []
    for test in TESTS:
        tied = [result[test] for result in results if test == "best-set" or result[test]["best"] != 9]
        rows.append(
            {
                **setting,
                "test": test,
                "worse by more than δ": rate([one["worse"] for one in tied]),
                "equivalent within δ": rate([one["equivalent"] for one in tied]),
            }
        )
    return rows


def group_rows(setting, results):
    """False positive rates of four tied models."""
    rates = {f"{test} FPR": rate([result[test] / 4.0 for result in results]) for test in results[0]}
    return [{**setting, "groups": "given" if setting["groups"] else "ignored", **rates}]


def population(measure):
    """D of the ten models under the fixed kernel.

    With c = (σ²/(σ²+2))^(d/2), d = 10, and m = ‖μ‖²: MMD² = 2c(1 − exp(−m/(2(σ²+2)))) and, the scores differing by the
    constant μ, KSD² = m c.
    """
    squares = np.r_[np.full(9, 0.25), 1.0]
    wide = BANDWIDTH**2 + 2.0
    c = (BANDWIDTH**2 / wide) ** 5
    return np.asarray(c * squares if measure == "ksd" else -2.0 * c * np.expm1(-squares / (2.0 * wide)))


def _known(setting, seed):
    covariance, theta = known_covariance(), MEANS[setting["setting"]]
    values = stream(seed, f"coverage {setting['setting']}").multivariate_normal(theta, covariance)
    names = tuple(f"P{k}" for k in range(1, 11))
    return JointEstimate(names, values, covariance), theta


def _estimated(setting, seed):
    reference, models = candidates(mean_shift_l10(), setting["measure"], setting["n"], seed)
    discrepancy = (MMD if setting["measure"] == "mmd" else KSD)(Gaussian(BANDWIDTH))
    joint = estimate(reference, models, discrepancy=discrepancy, estimator=PLAIN, rng=seed, progress=False)
    return joint, population(setting["measure"])


def _bounds(joint, theta, seed):
    """For each test the fractions of bounds that hold (relpsi, carve) or whether all of them do (best-set)."""
    out = {"relpsi": _relpsi_held(joint, theta), "carve": _carve_held(joint, theta, seed)}
    regret = theta - theta.min() + 1e-12
    plain, source = replace(joint, psi=None), seeded(seed, "best-set")
    held = []
    for level in (LEVEL, (1.0 + LEVEL) / 2.0):
        lower, upper = regret_bounds(plain, level, rng=source, draws=DRAWS)
        held.append(((lower <= regret).all(), (upper >= regret - 2e-12).all()))
    (lower_held, upper_held), both_held = held
    out["best-set"] = {"lower": float(lower_held), "upper": float(upper_held), "interval": float(all(both_held))}
    if seed % EVERY == 0:
        for test in TESTS:
            interval = decide(joint, test=test, alpha=ALPHA, rng=seed).confidence_interval(LEVEL)
            lengths = (interval[:, 1] - interval[:, 0]).tolist()
            out[test]["lengths"] = [length if math.isfinite(length) else None for length in lengths]
    return out


def _relpsi_held(joint, theta):
    """Fractions over the models that were not selected.

    A lower bound at 95% is below μ exactly where p = P_μ(T > t | V⁻, V⁺) ≥ 0.05, an upper bound above μ where p ≤ 0.95,
    and the interval holds μ where p is between 0.025 and 0.975: no equation needs to be solved.
    """
    decision = RelPSI().decide(joint, Criteria(ALPHA))
    others = np.flatnonzero(np.arange(len(theta)) != decision.best)
    mean = theta[others] - theta[decision.best]
    s = np.sqrt([difference_variance(joint.covariance, int(i), decision.best) for i in others])
    t = joint.values[others] - joint.values[decision.best]
    lower, upper = decision.truncation[others].T
    p, tail = np.exp(selective_log_pvalue(t - mean, s, lower - mean, upper - mean)), 1.0 - LEVEL
    held = {"lower": p >= tail, "upper": p <= LEVEL, "interval": (p >= tail / 2.0) & (p <= 1.0 - tail / 2.0)}
    return {key: float(flags.mean()) for key, flags in held.items()}


def _carve_held(joint, theta, seed):
    """The same for carving, from the bounds themselves."""

    def bounds(level):
        return carve_bounds(joint, level, rng=seeded(seed, "carve"))

    best = select(joint, seeded(seed, "carve")).best
    others, gap = np.arange(len(theta)) != best, theta - theta[best]
    (lower, upper), (low, high) = bounds(LEVEL), bounds((1.0 + LEVEL) / 2.0)
    held = {"lower": lower <= gap, "upper": upper >= gap, "interval": (low <= gap) & (gap <= high)}
    return {key: float(flags[others].mean()) for key, flags in held.items()}


def _equivalent(decision):
    return decision.equivalent is not None and bool(decision.equivalent[-1])


def _in_groups(rng, centres):
    rows = np.repeat(centres, GROUP_SIZE, axis=0)
    return np.asarray(rows + 0.3 * rng.normal(size=rows.shape))


def _score(mean):
    """The score of N(mean, 1.09 I), the law of the rows moved by `mean`."""
    return lambda x: (mean - x) / 1.09


def lowest(rows):
    """The smallest coverage of a table, in words."""
    kinds = ("lower bound", "upper bound", "interval")
    value, kind, row = min(((row[kind][0], kind, row) for row in rows for kind in kinds), key=lambda entry: entry[0])
    return f"{value:.4f}, {row['test']}'s {kind} with {row['measure'].upper()} at n = {row['n']}"


ROWS = {
    "known": coverage_rows,
    "data": coverage_rows,
    "pairs": pair_rows,
    "margin": margin_rows,
    "groups": group_rows,
}


def write(docs, results):
    """The page."""
    rows = {part: rows_of(ROWS[part], results[part]) for part in ROWS}
    fewest = {part: min(len(trials) for _, trials in results[part]) for part in ROWS}
    write_page(
        docs,
        "coverage.md",
        trials=min(fewest[part] for part in ("known", "data", "pairs")),
        half=min(fewest[part] for part in ("margin", "groups")),
        bandwidth=BANDWIDTH,
        group_count=GROUPS,
        group_size=GROUP_SIZE,
        lowest=lowest(rows["data"]),
        **{part: markdown_table(lines) for part, lines in rows.items()},
    )
    return True


STUDY = Study(
    parts={
        "known": Part("coverage-known", known_cells, known_trial, 2000),
        "data": Part("coverage-data", data_cells, data_trial, 2000),
        "pairs": Part("coverage-pairs", pair_cells, pair_trial, 2000),
        "margin": Part("coverage-margin", data_cells, margin_trial, 1000),
        "groups": Part("coverage-groups", group_cells, group_trial, 1000),
    },
    store="coverage.sqlite",
    version="2",
    write=write,
)

if __name__ == "__main__":
    main(STUDY, __doc__)
