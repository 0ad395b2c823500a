"""Write the slowest tests into tests/slow.txt, which `make test` leaves out.

python -m tools.slow DURATIONS [--count 200]

DURATIONS is what `pytest --durations=0 -vv` printed.
"""

import argparse
import re
from collections import Counter
from pathlib import Path

SLOW = Path(__file__).parents[1] / "tests" / "slow.txt"
LINE = re.compile(r"^(\d+\.\d+)s (call|setup|teardown) +(.*)$")


def slowest(text, count):
    """The names of the tests that took longest, in the order of their names."""
    seconds = Counter()
    for line in text.splitlines():
        if found := LINE.match(line):
            seconds[found[3].strip()] += float(found[1])
    return sorted(name for name, _ in seconds.most_common(count))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("durations", type=Path)
    parser.add_argument("--count", type=int, default=200)
    given = parser.parse_args()
    names = slowest(given.durations.read_text(encoding="utf-8"), given.count)
    if len(names) < given.count:
        raise SystemExit(f"{given.durations}: expected at least {given.count} durations, got {len(names)}")
    SLOW.write_text("\n".join(names) + "\n", encoding="utf-8")
    print(len(names), "tests written to", SLOW)


if __name__ == "__main__":
    main()
