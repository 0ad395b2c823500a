"""Simulate error rates, power and laws of every procedure, and write docs/evidence/calibration/.

python -m studies.calibration [--trials 1000] [--only levels] [--workers 2 | --cluster ADDRESS]
"""

from studies.calibration import levels, negative, order, pages, power, variance, variants, verdicts
from studies.study import Part, Study, main

STUDY = Study(
    parts={
        "levels": Part("error-rates", levels.cells, verdicts.verdicts, 1000),
        "variance": Part("ksd-variance", variance.cells, variance.trial, 200),
        "power": Part("power-splits", power.cells, power.trial, 300),
        "order": Part("order", order.cells, order.trial, 20),
        "negative": Part("negative-correlation", negative.cells, negative.trial, 80),
        "averaging": Part("averaging", variants.averaging_cells, variants.averaging_trial, 1000),
    },
    store="calibration.sqlite",
    version="1",
    write=pages.write,
)

if __name__ == "__main__":
    main(STUDY, __doc__)
