"""Simulate bias, variance, level and power of UME and FSSD, and write docs/evidence/locations.md.

python -m studies.locations [--trials 1000] [--only truth]
"""

from studies.estimators import memory
from studies.locations import levels, page, power, truth
from studies.study import Part, Study, main


def memory_cells():
    """A million rows at locations."""
    return [cell for cell in memory.cells() if "discrepancy" in cell["options"]]


STUDY = Study(
    parts={
        "truth": Part("truth", truth.cells, truth.trial, 100),
        "levels": Part("levels", levels.cells, levels.trial, 1000),
        "levels, optimised": Part("levels, optimised", levels.optimised_cells, levels.trial, 400),
        "many rows": Part("many rows", levels.large_cells, levels.trial, 200),
        "power": Part("power", power.cells, power.trial, 200),
        "memory": Part("memory", memory_cells, memory.trial, 2),
    },
    store="locations.sqlite",
    version="1",
    write=page.write,
    timed=True,
)

if __name__ == "__main__":
    main(STUDY, __doc__)
