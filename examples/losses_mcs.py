"""Five classifiers on the same held-out items: relfit's best set beside the model confidence set of `arch`.

    python examples/losses_mcs.py                     # the example
    python examples/losses_mcs.py --trials 300        # and a simulation of both
    python examples/losses_mcs.py --trials 300 --docs docs/losses.md

Needs scikit-learn and arch. Both procedures take a matrix of losses, a row per item and a column per model, and say
which models may be the best. `MCS` promises that *all* best models are in its set with probability 1 − α; so does
the best set with `correction="holm"`, and without a correction it promises this for *each* best model.
"""

import argparse
import sys
import warnings

import numpy as np
from arch.bootstrap import MCS
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

import relfit
from relfit.util.files import write_text_atomic

ALPHA, REPS = 0.05, 1000
CASES = (
    *("independent", "hard and easy items", "skewed, unequal scales"),
    *("rare wrong answers", "one very skewed model"),
)


def held_out_losses(seed=0):
    """Log losses (nats) of five classifiers on the same 285 held-out items."""
    x, y = load_breast_cancer(return_X_y=True)
    x, x_test, y, y_test = train_test_split(x, y, test_size=0.5, random_state=seed)
    models = {
        "logistic": make_pipeline(StandardScaler(), LogisticRegression()),
        "forest": RandomForestClassifier(200, random_state=seed),
        "15 neighbours": make_pipeline(StandardScaler(), KNeighborsClassifier(15)),
        "naive Bayes": GaussianNB(),
        "small tree": DecisionTreeClassifier(max_depth=3, random_state=seed),
    }
    losses = {}
    for name, model in models.items():
        given = model.fit(x, y).predict_proba(x_test)[np.arange(len(y_test)), y_test]
        # A loss must be finite: no probability below one in a thousand is believed.
        losses[name] = -np.log(np.clip(given, 1e-3, None))
    return losses


def model_confidence_set(losses, seed=0, method="R"):
    """The columns that arch's MCS keeps; items are independent, so blocks have length 1."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = MCS(np.asarray(losses), ALPHA, reps=REPS, block_size=1, method=method, seed=seed)
        found.compute()
    return found.included


def example():
    losses = held_out_losses()
    result = relfit.decide(relfit.from_losses(losses), test="best-set", correction="holm", alpha=ALPHA, rng=0)
    kept = model_confidence_set(np.column_stack(list(losses.values())))
    lines = [
        str(result),
        "",
        f"relfit may be best: {', '.join(result.confidence_set)}",
        f"MCS may be best:    {', '.join(list(losses)[k] for k in kept)}",
    ]
    return "\n".join(lines)


def drawn_losses(case, n, rng):
    """(n, 8) losses and which models are best: four tied ones, four worse by 0.1, 0.15, 0.2, 0.3."""
    gaps = np.r_[np.zeros(4), 0.1, 0.15, 0.2, 0.3]
    if case == "rare wrong answers":
        return (rng.random((n, 8)) < 0.02 + gaps).astype(float), gaps == 0.0
    if case == "one very skewed model":
        noise = rng.exponential(size=(n, 8)) - 1.0
        noise[:, 0] = rng.lognormal(-1.125, 1.5, n) - 1.0
    elif case == "independent":
        noise = rng.normal(size=(n, 8))
    elif case == "hard and easy items":
        noise = 2.0 * rng.normal(size=(n, 1)) + 0.7 * rng.normal(size=(n, 8))
    else:
        noise = rng.exponential(size=(n, 8)) * np.linspace(0.5, 1.5, 8) - np.linspace(0.5, 1.5, 8)
    return noise + gaps, gaps == 0.0


def kept_models(losses, seed):
    """Which models each procedure keeps, (8,) each."""
    joint = relfit.from_losses(losses)
    out = {}
    for name, correction in (("best-set", "none"), ("best-set, Holm", "holm")):
        out[name] = ~relfit.decide(joint, test="best-set", correction=correction, alpha=ALPHA, rng=seed).worse
    # arch fails where two models tie exactly, as 0/1 losses do.
    untied = losses + 1e-9 * np.random.default_rng(seed).normal(size=losses.shape)
    out["MCS"] = np.isin(np.arange(losses.shape[1]), model_confidence_set(untied, seed))
    return out


def simulation(trials, n=200):
    """Rows of a table: error rates and power of each procedure on every kind of losses."""
    rows = []
    for case in CASES:
        kept = {}
        print(f"{case} …", file=sys.stderr, flush=True)
        for seed in range(trials):
            losses, best = drawn_losses(case, n, np.random.default_rng(seed))
            for name, models in kept_models(losses, seed).items():
                kept.setdefault(name, []).append(models)
        for name, models in kept.items():
            lost, excluded = ~np.array(models)[:, best], ~np.array(models)[:, ~best]
            rates = (lost.any(axis=1), lost.mean(axis=1), excluded.mean(axis=1))
            rows.append((case, name, *(f"{r.mean():.3f} ± {r.std() / np.sqrt(trials):.3f}" for r in rates)))
    return rows


def table(rows):
    titles = ("losses", "procedure", "a best model lost", "share of best lost", "share of worse found")
    lines = [titles, tuple("---" for _ in titles), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


PAGE = """# Any loss: the best set beside arch's model confidence set

`relfit.from_losses(losses)` makes a joint estimate of any (items × models) matrix of losses: log-likelihoods of
held-out rows, errors on benchmark questions, forecast losses. `relfit.decide` then runs any test but RelMulti on it,
with the same table and report. Items that belong together (questions about one text) are said with `groups=`.

This page was written by `python examples/losses_mcs.py --trials {trials} --docs docs/losses.md`, which needs
`pip install arch scikit-learn` besides.

## Your own losses

```console
$ pip install .
```

in a checkout of relfit (`pip install relfit` once it is on PyPI). A row for every item, a column for every model, as an
array, a mapping, a data frame or a file, whose columns then name the models: `relfit.from_losses("losses.csv")`. Every
column is taken for a model; one that numbers the items is refused. Smaller is better: turn accuracies
round first.

```python
import numpy as np
import relfit

losses = np.random.default_rng(0).exponential([1.0, 1.05, 1.5], size=(400, 3))
joint = relfit.from_losses(losses, ["old", "new", "small"])
print(relfit.decide(joint, rng=0))
```

```text
best set · mean loss (smaller is better) · n = 400 · α = 0.05
model  mean loss  s.e.   Δ to best  p-value  verdict
old    1.008      0.050  —          0.96     best of the sample
new    1.136      0.054  0.129      0.037    worse
small  1.487      0.075  0.479      3.0e-8   worse
old has the smallest mean loss (smaller is better); new and small are significantly worse.
```

## Beside MCS

Log losses of five classifiers on the same 285 held-out items (scikit-learn's breast cancer data):

```
{shown}
```

On these losses the two keep {same} models.

## Levels and power

{n} items, eight models: four tied for best, four worse by 0.1, 0.15, 0.2 and 0.3; {trials} trials, α = 0.05, ± one
Monte-Carlo standard error. MCS and Holm promise the first column at 0.05, the best set without correction the second.

{table}

Rare wrong answers are 0 or 1, a model errs on 2% of the items (the worse ones more often, by as much), independently of
the others: few items make up a difference there. (MCS gets all losses with a noise of 1e−9, because arch fails on
exact ties.) In the last case the losses are exponential, but for one of the best models, whose losses are lognormal
(σ = 1.5) with the same mean: until an item hits its long tail it looks better than the others, which are then declared
worse. Expect more of that with fewer items: no test here knows of a tail that it has not seen.

MCS and Holm make the same promise, and MCS finds somewhat more: it drops models one by one and asks less of those that
are left. The best set without correction promises less and finds most.

`MCS` is `arch.bootstrap.MCS(losses, 0.05, reps={reps}, block_size=1)`, its default statistic ("R"). For series whose
items depend on their neighbours use MCS with blocks, or `groups=` here.
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=0, help="trials of the simulation (default: none)")
    parser.add_argument("--docs", help="write the page to this file")
    arguments = parser.parse_args()
    shown = example()
    print(shown)
    if not arguments.trials:
        return
    found = table(simulation(arguments.trials))
    print(found)
    if arguments.docs:
        kept = [set(line.split(":")[1].replace(",", " ").split()) for line in shown.splitlines()[-2:]]
        same = "the same" if kept[0] == kept[1] else "different"
        page = PAGE.format(trials=arguments.trials, shown=shown, same=same, reps=REPS, n=200, table=found)
        write_text_atomic(arguments.docs, page)


if __name__ == "__main__":
    main()
