"""Comparisons of scores: losses, labels of people, series, elpd, and a monitor."""

import tempfile
from pathlib import Path

import numpy as np
import pytest

import relfit

NAMES = list("abcd")
N = 250
LOSSES = np.random.default_rng(5).exponential(1 + np.array([0.0, 0.0, 0.1, 0.4]), size=(N, 4))
RIGHT = (LOSSES > 1.2).astype(float)
RARE = (LOSSES > 4.0).astype(float)
TASKS = np.repeat(np.arange(5), 50)
TRENDS = 0.05 * np.cumsum(LOSSES - 1.1, axis=0) + LOSSES
SERIES = {"dependence": "series"}
RUNS = LOSSES[:, :, None] + np.random.default_rng(7).normal(size=(N, 4, 4)) + 0.1 * np.sin(np.arange(16)).reshape(4, 4)
HOLES = np.where(np.random.default_rng(8).random((N, 4)) < [0.1, 0.2, 0.3, 0.4], np.nan, LOSSES)
WEIGHTS = {0: 3.0, 1: 1.0, 2: 1.0, 3: 1.0, 4: 1.0}


def compared(losses=LOSSES, names=NAMES, **options):
    return lambda: relfit.compare_losses(losses, names=names, **{"higher_is_better": False, "rng": 2, **options})


def decided(groups=None, **options):
    joint = relfit.from_losses(LOSSES, NAMES, groups=groups)
    return lambda: relfit.decide(joint, rng=2, **options)


def labels(noise, seed=6):
    """Judgements of people on the first 60 items: the judge's with noise."""
    human = LOSSES + noise * np.random.default_rng(seed).normal(size=LOSSES.shape)
    human[60:] = np.nan
    return human


def long_table(**options):
    def run():
        pandas = pytest.importorskip("pandas", reason="pandas is not installed")
        columns = {
            "item": np.tile(np.arange(N), 4),
            "model": np.repeat(NAMES, N),
            "loss": LOSSES.T.ravel(),
            "task": np.tile(TASKS, 4),
            "author": np.tile(np.arange(N) // 5, 4),
        }
        named = {"item": "item", "model": "model", "score": "loss", **options}
        return relfit.compare_losses(pandas.DataFrame(columns), higher_is_better=False, rng=2, **named)

    return run


def brought(covariance=None, **options):
    """Any scores with their covariance."""
    covariance = np.diag([0.01, 0.01, 0.02]) if covariance is None else covariance
    joint = relfit.JointEstimate(("a", "b", "c"), [0.1, 0.25, 0.6], covariance)
    return lambda: relfit.decide(joint, rng=0, **options)


def elpd():
    rng = np.random.default_rng(12)
    pointwise = rng.normal(-1.0, 1.0, 200)
    models = {name: pointwise + rng.normal(shift, 0.3, 200) for name, shift in (("a", 0.0), ("b", -0.05), ("c", -0.2))}
    return relfit.from_elpd(models)


def monitored(**options):
    """Thirty items a day; the last model is the worst."""
    settings = {"higher_is_better": False, **options}

    def run():
        losses = np.clip(LOSSES / 6.0 * [1.0, 1.0, 1.0, 1.6], 0.0, 1.0)
        with (
            tempfile.TemporaryDirectory() as folder,
            relfit.Monitor(NAMES, path=Path(folder, "gate.sqlite"), **settings) as monitor,
        ):
            for start in range(0, 240, 30):
                items = range(start, start + 30)
                day = losses[start : start + 30]
                monitor.update(dict(zip(NAMES, day.T, strict=True)), items=[f"item {k}" for k in items])
            return monitor.result()

    return run


CALLS = {
    **{f"losses {test}": decided(test=test) for test in ("best-set", "relpsi", "carve")},
    "losses groups": decided(np.repeat(np.arange(50), 5)),
    "losses margin": decided(margin=0.1, correction="holm"),
    "losses compared": compared(),
    **{f"losses compared {test}": compared(test=test) for test in ("relpsi", "carve")},
    **{f"losses correction {name}": compared(correction=name) for name in ("bh", "by", "holm", "bonferroni", "none")},
    "losses larger is better": compared(-LOSSES, higher_is_better=True),
    "losses 0/1": compared(RIGHT),
    "losses rare": compared(RARE),
    "losses rare stepdown": compared(RARE, correction="stepdown"),
    "losses rare margin": compared(RARE, margin=0.02),
    "losses rare unlike relpsi": compared(RARE, test="relpsi"),
    "losses strata": compared(strata=TASKS),
    "losses strata groups": compared(strata=TASKS, groups=np.arange(N) // 5),
    "losses weights": compared(strata=TASKS, weights=WEIGHTS),
    "losses series": compared(TRENDS, **SERIES),
    "losses lags": compared(TRENDS, lags=3, **SERIES),
    "losses no lags": compared(TRENDS, lags=0, **SERIES),
    "losses short series": compared(TRENDS[:60], **SERIES),
    **{f"losses labels, noise {noise}": compared(labels=labels(noise)) for noise in (0.2, 2.0)},
    "losses labels relpsi": compared(labels=labels(0.5), test="relpsi"),
    "losses compared, margin": compared(margin=0.1),
    "losses compared, large margin": compared(margin=0.6, test="relpsi"),
    "losses alpha": compared(alpha=0.3),
    "losses few": compared(LOSSES[:25]),
    "losses two models": compared(LOSSES[:, [0, 3]], ["a", "d"]),
    "losses one copy": compared(LOSSES[:, [0, 1, 0]], ["a", "b", "a again"]),
    "losses huge": compared(LOSSES * 1e200, margin=1e199),
    "losses tiny": compared(LOSSES * 1e-60),
    **{f"losses {k} runs": compared(RUNS[:, :, :k]) for k in (2, 4)},
    "losses runs strata": compared(RUNS, strata=TASKS),
    "losses judges": compared(RUNS, judge=True),
    "losses holes": compared(HOLES, missing="adjust"),
    "losses holes, coverage": compared(HOLES, missing="adjust", min_coverage=0.7),
    "losses holes groups": compared(HOLES, missing="adjust", groups=np.arange(N) // 5),
    "losses holes strata": compared(HOLES, missing="adjust", strata=TASKS),
    "losses two groupings": compared(groups=[np.arange(N) // 10, np.arange(N) % 10]),
    "losses groups in time": compared(TRENDS, groups=np.arange(N) // 5, **SERIES),
    "losses long": long_table(stratum="task"),
    "losses long groups": long_table(group="author"),
    "scores with covariance": brought(),
    "scores correlated": brought(0.01 * (0.5 * np.eye(3) + 0.5)),
    **{f"scores {test}": brought(test=test) for test in ("relpsi", "carve")},
    "scores, margin": brought(margin=0.3, correction="holm"),
    "scores, bh": brought(correction="bh"),
    "elpd": lambda: relfit.decide(elpd(), rng=0),
    "elpd margin": lambda: relfit.decide(elpd(), rng=0, margin=20.0),
    "elpd estimate": elpd,
    "losses plan": lambda: relfit.plan(compared()(), rng=0, trials=100, n=400, progress=False),
    "monitor": monitored(),
    "monitor alpha and bets": monitored(alpha=0.2, bets=(0.5, 0.25)),
    "monitor larger is better": monitored(higher_is_better=True),
    "monitor clipping": monitored(bounds=(0.0, 0.5), outside="clip"),
    "losses ranks": lambda: compared()().ranks(),
    "losses pairs": lambda: compared()().pairs(),
}
