"""tests/slow.txt: what `make test` leaves out."""

from pathlib import Path

from tools.slow import slowest

ROOT = Path(__file__).parents[1]
NAMES = (ROOT / "tests" / "slow.txt").read_text(encoding="utf-8").splitlines()


def test_every_name_is_of_a_test_that_is_there():
    assert len(NAMES) == len(set(NAMES))
    for name in NAMES:
        path, _, test = name.partition("::")
        function = test.partition("[")[0]
        assert function in (ROOT / path).read_text(encoding="utf-8"), name


def test_the_slowest_are_those_whose_parts_take_longest():
    lines = ["2.00s call     tests/a.py::one[x y]", "1.50s setup    tests/b.py::two", "1.00s call     tests/b.py::two"]
    lines += ["0.10s call     tests/c.py::three", "= slowest durations ="]
    assert slowest("\n".join(lines), 2) == ["tests/a.py::one[x y]", "tests/b.py::two"]
    assert slowest("\n".join(lines), 1) == ["tests/b.py::two"]
