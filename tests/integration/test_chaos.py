"""A few random faults in every run of the tests: `make chaos` tries two hundred of a cluster."""

import random
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs fork, signals, limits and /proc")


def test_a_few_faults_of_a_cluster(tmp_path):
    pytest.importorskip("distributed", reason="needs dask.distributed")
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


def test_any_sequence():
    """Two sequences of commands in any order, with kills, full disks and twins at random moments."""
    from tools import sequences

    sequences.check(2, fixed=True)
