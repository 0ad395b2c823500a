"""How much memory is free, as the system says it, and what is refused for it."""

import pytest
from refusals import refused

from relfit.compute import memory as room


@pytest.fixture
def system(tmp_path, monkeypatch):
    """A system that says nothing; files written here are what it says."""
    monkeypatch.setattr(room, "_MEMORY", tmp_path / "meminfo")
    monkeypatch.setattr(room, "_GROUP", tmp_path)
    return tmp_path


def test_what_is_available_counts(system):
    (system / "meminfo").write_text("MemTotal:       100 kB\nMemFree:  1 kB\nMemAvailable:    50 kB\n")
    assert room.free_memory() == 51_200.0


def test_the_limit_of_a_container_counts(system):
    (system / "meminfo").write_text("MemAvailable:    50 kB\n")
    (system / "memory.max").write_text("30000\n")
    (system / "memory.current").write_text("10000\n")
    assert room.free_memory() == 20_000.0
    (system / "memory.current").write_text("40000\n")
    assert room.free_memory() == 0.0
    (system / "memory.max").write_text("max\n")
    assert room.free_memory() == 51_200.0


@pytest.mark.parametrize("said", [None, "", "nonsense", "MemAvailable: much\n"])
def test_a_system_that_does_not_say_has_what_is_built_in(system, said):
    if said is not None:
        (system / "meminfo").write_text(said)
    assert room.free_memory() > 10**8


def test_what_does_not_fit_is_refused(system):
    (system / "meminfo").write_text("MemAvailable:    1000000 kB\n")
    room.require_room("a.npz", 1_024_000_000)
    said = refused(lambda: room.require_room("a.npz", 1_024_000_001), "a.npz", "1.02 GB free")
    assert "save" in said
