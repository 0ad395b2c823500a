"""Two sequences of `tools.sequences`: commands in any order, with kills, full disks and twins at random moments."""

from pathlib import Path

import pytest


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs fork, signals and limits")
def test_any_sequence():
    from tools import sequences

    sequences.check(2, fixed=True)
