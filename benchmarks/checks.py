"""What the checks of every comparison cost: their share of the processor time of plain calls.

python benchmarks/checks.py [--calls 40] [--docs docs/evidence/robustness.md]

A share is the median over calls of the time within checks over the time without them. The test at half and at twice the
bandwidth is apart from the others. Checks of scores, which have no list of their own, are the notes on their order.
"""

import argparse
import time
from pathlib import Path

import numpy as np
from marks import table, written

import relfit
from relfit import checks
from relfit.estimators import losses

ROOT = Path(__file__).parents[1]
SIZES = ((200, 3), (2000, 3), (2000, 10))


class Clock:
    """Processor time within functions, by a name."""

    def __init__(self):
        self.spent = dict.fromkeys(("bandwidth", "others"), 0.0)

    def timed(self, name, function):
        """The function, which adds its time to that of the name."""

        def wrapper(*args, **options):
            started = time.process_time()
            try:
                return function(*args, **options)
            finally:
                self.spent[name] += time.process_time() - started

        return wrapper


def normal(mean):
    """A normal density with this mean in every column."""
    return relfit.Density(
        log_prob=lambda x: -0.5 * np.square(x - mean).sum(axis=1),
        score=lambda x: mean - x,
    )


def calls():
    """Plain calls by what they compare."""
    rng = np.random.default_rng(0)
    for n, count in SIZES:
        size = f"n = {n}, {count} models"
        data = rng.normal(size=(n, 5))
        samples = {f"m{k}": rng.normal(0.02 * k, 1.0, (n, 5)) for k in range(count)}
        densities = {f"m{k}": normal(0.02 * k) for k in range(count)}
        scores = rng.normal(size=(n, count))
        yield f"samples, {size}", lambda d=data, m=samples: relfit.compare(d, m, rng=0, progress=False)
        yield f"densities, {size}", lambda d=data, m=densities: relfit.compare(d, m, rng=0, progress=False)
        yield f"draws and a target, {size}", lambda m=samples: relfit.compare(normal(0.0), m, rng=0, progress=False)
        yield f"scores, {size}", lambda s=scores: relfit.compare_losses(s, higher_is_better=True, rng=0)


def watch(clock):
    """Let the clock run in every check."""
    timed = []
    for check, kinds in checks.CHECKS:
        name = "bandwidth" if check is checks.check_bandwidth else "others"
        timed.append((clock.timed(name, check), kinds))
    checks.CHECKS = tuple(timed)
    losses.order_effect = clock.timed("others", losses.order_effect)


def rows(count):
    """Rows of the table: milliseconds without checks, and the shares of both kinds."""
    clock = Clock()
    watch(clock)
    for name, call in calls():
        call()
        seen = []
        for _ in range(count):
            clock.spent.update(bandwidth=0.0, others=0.0)
            started = time.process_time()
            call()
            total = time.process_time() - started
            seen.append((total - sum(clock.spent.values()), clock.spent["bandwidth"], clock.spent["others"]))
        plain, bandwidth, others = np.array(seen).T
        yield (
            name,
            f"{1e3 * np.median(plain):.1f}",
            f"{100 * np.median(bandwidth / plain):.0f}%",
            f"{100 * np.median(others / plain):.1f}%",
        )


def main():
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=40)
    parser.add_argument("--docs", type=Path)
    options = parser.parse_args()
    text = table(["", "ms without checks", "other bandwidths", "all other checks"], rows(options.calls))
    print(text)
    if options.docs is not None:
        page = written(options.docs.read_text(encoding="utf-8"), {"checks": text})
        options.docs.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
