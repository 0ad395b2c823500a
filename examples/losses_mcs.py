"""Five classifiers on the same held-out items: relfit's best set beside the model confidence set of `arch`.

    python examples/losses_mcs.py

Needs scikit-learn and arch. Both procedures take a matrix of losses, a row per item and a column per model, and say
which models may be the best. `MCS` promises that *all* best models are in its set with probability 1 − α; so does
`relfit.compare_losses`, and with `correction="none"` it promises this for *each* best model. The page
docs/evidence/losses.md compares the two by simulation (`python -m studies.losses`).
"""

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

ALPHA, REPS = 0.05, 1000


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
        probabilities = model.fit(x, y).predict_proba(x_test)[np.arange(len(y_test)), y_test]
        # A loss must be finite: probabilities below one in a thousand count as one in a thousand.
        losses[name] = -np.log(np.clip(probabilities, 1e-3, None))
    return losses


def model_confidence_set(losses, seed=0, block_size=1):
    """The columns that arch's MCS keeps; blocks have length 1 where items are independent, and √n by default (None)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        procedure = MCS(np.asarray(losses), ALPHA, reps=REPS, block_size=block_size, seed=seed)
        procedure.compute()
    return procedure.included


def example():
    """relfit's table, and the models that each procedure keeps."""
    losses = held_out_losses()
    result = relfit.compare_losses(losses, higher_is_better=False, alpha=ALPHA, rng=0)
    kept = model_confidence_set(np.column_stack(list(losses.values())))
    lines = [
        str(result),
        "",
        f"confidence set of relfit: {', '.join(result.confidence_set)}",
        f"confidence set of MCS:    {', '.join(list(losses)[k] for k in kept)}",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    print(example())
