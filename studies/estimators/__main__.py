"""Simulate bias, variance, power and cost of the estimators, and write docs/evidence/estimators.md.

python -m studies.estimators [--trials 600] [--only truth]
"""

from functools import partial

from studies.estimators import costs, memory, page, power, shrinkage, truth
from studies.study import Part, Study, main

STUDY = Study(
    parts={
        "truth": Part("truth", truth.tied_cells, truth.trial, 100),
        "exact": Part("exact", truth.exact_cells, truth.trial, 200),
        "noise": Part("noise", truth.noise_cells, truth.noise_trial, 50),
        "power": Part("power", power.cells, power.trial, 300),
        "lags": Part("lags", power.lag_cells, power.lag_trial, 100),
        "shrinkage": Part("shrinkage", shrinkage.cells, shrinkage.trial, 600),
        "costs to 10,000": Part("costs to 10,000", partial(costs.cells, 0, 20_000), costs.trial, 200),
        "costs to 100,000": Part("costs to 100,000", partial(costs.cells, 20_000, 200_000), costs.trial, 60),
        "costs to 1,000,000": Part("costs to 1,000,000", partial(costs.cells, 200_000, 2_000_000), costs.trial, 24),
        "memory": Part("memory", memory.cells, memory.trial, 2),
    },
    store="estimators.sqlite",
    version="1",
    write=page.write,
    timed=True,
)

if __name__ == "__main__":
    main(STUDY, __doc__)
