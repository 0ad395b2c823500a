"""Looking after every item: level, power at a fixed n, items needed, batches.

Writes docs/evidence/calibration/monitor.md.

python -m studies.monitor [--trials 20] [--workers 2]

A trial is a batch of 100 runs, which advance together.
"""

import math
from statistics import NormalDist

import numpy as np
from scipy.special import ndtri

from relfit import Assumed, Gaussian, compare_losses, estimate, plan
from relfit.monitor.evidence import BETS, CHUNK, advance, no_evidence
from relfit.paper.experiment import rate
from studies.study import ALPHA, Part, Study, level, main, table, write_page

RUNS, ITEMS, MODELS = 100, 10_000, 4
# The test that is repeated begins once a normal law is plausible.
FEWEST = 20
PERIOD, FADING = 1000, 0.98
MOST_ITEMS = 40_000
BATCH, BATCHES = 50, 2000
Z = NormalDist().inv_cdf(1.0 - ALPHA / (MODELS - 1))


def _errors(rng, chance):
    return (rng.random((CHUNK, RUNS, MODELS)) < chance).astype(float)


def _dependent(rng, at):
    """Half of the models' errors are decided by the item: a normal variable that they share, correlation 0.8."""
    shared, own = rng.normal(size=(CHUNK, RUNS, 1)), rng.normal(size=(CHUNK, RUNS, MODELS))
    return (math.sqrt(0.8) * shared + math.sqrt(0.2) * own < ndtri(0.3)).astype(float)


def _drifting(rng, at):
    return _errors(rng, (0.05 + 0.55 * (at / ITEMS))[:, None, None])


def _alternating(rng, at):
    """The first model is better by 0.1 for a thousand items, then worse by 0.1 for a thousand, and so on."""
    first = np.where(at // PERIOD % 2 == 0, 0.25, 0.35)
    chance = np.stack([first, *[0.6 - first] * (MODELS - 1)], axis=1)
    return _errors(rng, chance[:, None, :])


def _heavy(rng, at):
    """Losses from 0 to 1 of one mean, 0.2, and very unlike laws: constant, few large ones, and two in between."""
    few = (rng.random((CHUNK, RUNS)) < 0.2).astype(float)
    return np.stack(
        [np.full_like(few, 0.2), few, rng.beta(0.2, 0.8, few.shape), rng.beta(2.0, 8.0, few.shape)], axis=-1
    )


# The number of best models, which come first, and a function that draws the losses of these items.
CASES = {
    "ties": (4, lambda rng, at: _errors(rng, 0.3)),
    "near ties": (1, lambda rng, at: _errors(rng, np.r_[0.3, 0.302, 0.304, 0.306])),
    "dependence between models": (4, _dependent),
    "rare errors": (4, lambda rng, at: _errors(rng, 0.005)),
    "unlike laws of one mean": (4, _heavy),
    "drifting difficulty": (4, _drifting),
    "better and worse in turn": (1, _alternating),
}


def blocks(case, seed, items=ITEMS):
    """The losses of a batch of runs, some items at a time."""
    rng = np.random.default_rng(seed)
    for start in range(0, items, CHUNK):
        at = np.arange(start, min(start + CHUNK, items))
        padded = np.resize(at, CHUNK)
        yield CASES[case][1](rng, padded)[: len(at)]


class Naive:
    """A z test of every model against each other one (Bonferroni) after every item."""

    def __init__(self):
        self.sums, self.squares = np.zeros((2, RUNS, MODELS, MODELS))
        self.n, self.out = 0, np.zeros((RUNS, MODELS), dtype=bool)

    def add(self, gaps):
        sums, squares = self.sums + np.cumsum(gaps, axis=0), self.squares + np.cumsum(gaps**2, axis=0)
        n = (self.n + 1.0 + np.arange(len(gaps))).reshape(-1, 1, 1, 1)
        spread = np.sqrt(np.maximum(squares - sums**2 / n, 1e-300))
        worse = (sums > Z * spread) & (n >= FEWEST) & (squares > 0.0)
        self.out |= worse.any(axis=(0, -1))
        self.sums, self.squares, self.n = sums[-1], squares[-1], self.n + len(gaps)


class Adaptive:
    """Bets that follow about the last fifty items: λ = Σd/(Σd² + 1) with weights that fade, from 0 to 1/2."""

    def __init__(self):
        self.sums, self.squares, self.log = np.zeros((3, RUNS, MODELS, MODELS))
        self.out = np.zeros((RUNS, MODELS), dtype=bool)

    def add(self, gaps):
        own = np.eye(MODELS, dtype=bool)
        for gap in gaps:
            bet = np.clip(self.sums / (self.squares + 1.0), 0.0, 0.5)
            self.log += np.log1p(bet * gap)
            self.sums, self.squares = FADING * self.sums + gap, FADING * self.squares + gap**2
            mean = np.logaddexp.reduce(np.where(own, -np.inf, self.log), axis=-1) - math.log(MODELS - 1)
            # As careful as the closure can be at most.
            self.out |= mean >= math.log(MODELS / ALPHA)


def level_trial(setting, seed):
    """In which runs a best model was ever called worse, by each procedure."""
    best, evidence = CASES[setting["case"]][0], no_evidence(MODELS, len(BETS), (RUNS,))
    naive, adaptive = Naive(), Adaptive()
    for losses in blocks(setting["case"], seed):
        evidence = advance(evidence, losses, BETS, ALPHA)
        gaps = losses[..., :, None] - losses[..., None, :]
        naive.add(gaps)
        if setting["case"] == "better and worse in turn":
            adaptive.add(gaps)
    dropped = {"monitor": evidence.out > 0.0, "naive": naive.out, "adaptive": adaptive.out}
    return {name: out[:, :best].any(axis=1).astype(int).tolist() for name, out in dropped.items()}


def level_rows(setting, results):
    """A row per case."""
    shown = {name: rate([run for trial in results for run in trial[name]]) for name in ("monitor", "naive", "adaptive")}
    own = setting["case"] == "better and worse in turn"
    return [
        {
            "losses": setting["case"],
            "runs": RUNS * len(results),
            "monitor": shown["monitor"],
            "level": level(shown["monitor"]),
            "z test after every item": shown["naive"],
            "bets on recent items": shown["adaptive"] if own else "",
        }
    ]


CHANCES = np.r_[0.3, 0.3, 0.35, 0.4]


def power_trial(setting, seed):
    """The worse models that the monitor has found after n items, and those the best set finds on n items."""
    rng, found = np.random.default_rng(seed), {"monitor": [], "best set": []}
    losses = (rng.random((setting["n"], setting["runs"], MODELS)) < CHANCES).astype(float)
    out = advance(no_evidence(MODELS, len(BETS), (setting["runs"],)), losses, BETS, ALPHA).out
    for run in range(setting["runs"]):
        best_set = compare_losses(losses[:, run], higher_is_better=False, correction="stepdown", rng=run)
        found["best set"].append(best_set.worse[2:].astype(int).tolist())
        found["monitor"].append((out[run, 2:] > 0.0).astype(int).tolist())
    return found


def power_rows(setting, results):
    """A row per n."""
    found = {name: np.array([run for trial in results for run in trial[name]]) for name in ("monitor", "best set")}
    return [
        {
            "items": setting["n"],
            "runs": len(found["monitor"]),
            **{
                f"{name}: {gap} worse": rate(held[:, k])
                for k, gap in enumerate(("0.05", "0.1"))
                for name, held in found.items()
            },
        }
    ]


def needed_trial(setting, seed):
    """After how many items the worse of two models is out; 0 for not within the limit."""
    rng, evidence = np.random.default_rng(seed), no_evidence(2, len(BETS), (RUNS,))
    while evidence.items < MOST_ITEMS and not (evidence.out[:, 1] > 0.0).all():
        losses = (rng.random((CHUNK, RUNS, 2)) < np.r_[0.3, 0.3 + setting["gap"]]).astype(float)
        evidence = advance(evidence, losses, BETS, ALPHA)
    return {"items": evidence.out[:, 1].astype(int).tolist()}


def needed_rows(setting, results):
    """A row per gap: the items the monitor needed, beside the plan for a fixed number."""
    items = np.array([run for trial in results for run in trial["items"]], dtype=float)
    items[items == 0.0] = np.inf
    gap = setting["gap"]
    chance = 0.3 + gap
    error = math.sqrt((0.3 * 0.7 + chance * (1.0 - chance)) / 2.0)
    planned = {
        power: plan(Assumed(gap, standard_error=error, n=1), power=power, tests=["best-set"]).needed("m1", "best-set")
        for power in (0.8, 0.95)
    }
    shown = {f"out in {part:.0%}": int(np.quantile(items, part, method="higher")) for part in (0.5, 0.8, 0.95)}
    plans = {f"fixed n, power {power:g}": int(n) for power, n in planned.items()}
    late = "at least " if np.isinf(items).any() else ""
    mean = f"{late}{np.minimum(items, MOST_ITEMS).mean():.0f}"
    return [{"difference": gap, "runs": len(items), "mean": mean, **shown, **plans}]


def _mmd(x, y):
    """(runs,) unbiased MMD² of rows (runs, n, d), Gaussian kernel of width 1.5."""

    def mean(a, b, pairs):
        squares = ((a[:, :, None] - b[:, None]) ** 2).sum(axis=-1)
        return (np.exp(-squares / 4.5).sum(axis=(1, 2)) - (len(a[0]) if a is b else 0)) / pairs

    n = x.shape[1]
    return mean(x, x, n * (n - 1)) + mean(y, y, n * (n - 1)) - 2.0 * mean(x, y, n * n)


def batches_trial(setting, seed):
    """After how many batches the worse of two samplers is out; 0 for not within the limit."""
    rng, runs = np.random.default_rng(seed), setting["runs"]
    evidence = no_evidence(2, len(BETS), (runs,))
    while evidence.items < BATCHES and not (evidence.out[:, 1] > 0.0).all():
        rows = rng.normal(size=(3, runs, BATCH, 2))
        rows[1, ..., 0] += 0.3
        rows[2, ..., 0] += 0.3 + setting["shift"]
        losses = np.stack([_mmd(rows[0], rows[k]) for k in (1, 2)], axis=-1)
        evidence = advance(evidence, np.clip((losses[None] + 2.0) / 4.0, 0.0, 1.0), BETS, ALPHA)
    return {"batches": evidence.out[:, 1].astype(int).tolist()}


def batches_rows(setting, results):
    """A row per shift: the rows that batches need, beside the plan of the best set for one comparison."""
    batches = np.array([run for trial in results for run in trial["batches"]], dtype=float)
    batches[batches == 0.0] = np.inf
    middle = float(np.median(batches))
    rng = np.random.default_rng(0)
    pilot = rng.normal(size=(3, 2000, 2))
    pilot[1, :, 0] += 0.3
    pilot[2, :, 0] += 0.3 + setting["shift"]
    joint = estimate(pilot[0], {"a": pilot[1], "b": pilot[2]}, kernel=Gaussian(1.5), rng=0, progress=False)
    rows = plan(joint, power=0.5, tests=["best-set"], rng=0, progress=False).needed("b", "best-set")
    text = f"{BATCH * middle:.0f}" if math.isfinite(middle) else f"more than {BATCH * BATCHES}"
    return [
        {"shift": setting["shift"], "runs": len(batches), "rows, in batches": text, "rows, best set": f"{rows:.0f}"}
    ]


def write(docs, results):
    """The page; what should hold is the level."""
    write_page(
        docs,
        "calibration/monitor.md",
        levels=table(level_rows, results["level"]).rstrip(),
        power=table(power_rows, results["power"]).rstrip(),
        needed=table(needed_rows, results["needed"]).rstrip(),
        batches=table(batches_rows, results["batches"]).rstrip(),
    )
    rows = [row for setting, trials in results["level"] for row in level_rows(setting, trials)]
    return all(row["level"] == "kept" for row in rows)


STUDY = Study(
    {
        "level": Part("monitor-level", lambda: [{"case": name} for name in CASES], level_trial, 20),
        "power": Part("monitor-power", lambda: [{"n": n, "runs": 40} for n in (300, 1000, 3000)], power_trial, 10),
        "needed": Part("monitor-needed", lambda: [{"gap": gap} for gap in (0.02, 0.05, 0.1, 0.2)], needed_trial, 5),
        "batches": Part("monitor-batches", lambda: [{"shift": s, "runs": 20} for s in (0.5, 1.0)], batches_trial, 2),
    },
    "monitor.sqlite",
    "1",
    write,
)

if __name__ == "__main__":
    main(STUDY, __doc__)
