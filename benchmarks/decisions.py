"""What a decision costs beside the estimate it is made from: processor milliseconds, as a table for docs/choosing.md.

python benchmarks/decisions.py
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from relfit.api import compare, decide, estimate
from relfit.paper.experiment import markdown_table
from relfit.paper.problems import draw, mean_shift

SETTINGS = ((2, 500), (10, 200), (10, 500), (50, 2000))
TESTS = ("relpsi", "carve", "best-set")
REPEATS = 5


def milliseconds(action: Callable[[], Any]) -> float:
    """Median processor time of a few runs, after one that warms up."""
    action()
    times = []
    for _ in range(REPEATS):
        start = time.process_time()
        action()
        times.append(1e3 * (time.process_time() - start))
    return statistics.median(times)


def tied(l: int) -> Any:
    """l models N(m_i, I) at the same distance from the reference N(0, I), in random directions of ten dimensions."""
    directions = np.random.default_rng(0).standard_normal((l, 10))
    return mean_shift(0.5 * directions / np.linalg.norm(directions, axis=1, keepdims=True))


def main() -> None:
    rows = []
    for l, n in SETTINGS:
        reference, models = draw(tied(l), n, seed=0)
        joint = estimate(reference, models, rng=0, progress=False)
        whole = milliseconds(lambda r=reference, m=models: estimate(r, m, rng=0, progress=False))
        split = milliseconds(lambda r=reference, m=models: compare(r, m, test="relmulti", rng=0, progress=False))
        row: dict[str, object] = {"l": l, "n": n, "MMD estimate": f"{whole:.0f}"}
        for test in TESTS:
            row[f"+ {test}"] = f"{milliseconds(lambda j=joint, t=test: decide(j, test=t, rng=0)):.1f}"
        rows.append({**row, "relmulti, all of it": f"{split:.0f}"})
    print(markdown_table(rows), end="")


if __name__ == "__main__":
    main()
