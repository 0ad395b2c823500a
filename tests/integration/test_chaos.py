"""A few faults of a cluster in every run of the tests; `make chaos` tries two hundred."""

import random
from pathlib import Path

import pytest

pytest.importorskip("distributed", reason="needs dask.distributed")
pytestmark = pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs fork and /proc")


def test_a_few_faults(tmp_path):
    from tools import chaos

    cluster = chaos.Chaos(tmp_path, random.Random(0), rows=2400)
    try:
        expected, usual = cluster.undisturbed()
        for fault in (chaos.repeat_answers, chaos.cut_client, chaos.kill_client):
            outcome = None
            while outcome is None:
                outcome = cluster.trial(fault, expected, usual)
            assert outcome in ({"killed"} if fault is chaos.kill_client else {"same", "said"}), fault
    finally:
        cluster.stop()
