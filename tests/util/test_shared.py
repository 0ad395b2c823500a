"""Changes of the whole process are made for the first caller and undone after the last."""

import os
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

import relfit
from relfit.util.libraries import Shared


def test_made_once_undone_once_and_tried_again_after_a_failure():
    seen = []

    @contextmanager
    def change():
        seen.append("made")
        yield
        seen.append("undone")

    shared, barrier = Shared(change), threading.Barrier(8)

    def use(_):
        with shared:
            barrier.wait()

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(use, range(8)))
    assert seen == ["made", "undone"]
    with pytest.raises(KeyError), shared:
        raise KeyError
    assert seen == ["made", "undone"] * 2
    tries = []

    @contextmanager
    def change():
        tries.append(None)
        if len(tries) == 1:
            raise InterruptedError
        yield

    shared = Shared(change)
    with pytest.raises(InterruptedError), shared:
        pass
    with shared:
        pass
    assert len(tries) == 2


def python2_header(path, rows):
    """A .npy file as NumPy wrote it under Python 2: the sizes are long integers, of which today's NumPy warns."""
    header = (
        f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({len(rows)}L, {rows.shape[1]}L), }}".ljust(117) + "\n"
    )
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + rows.tobytes())


def test_readers_in_threads_are_quiet_and_leave_the_filters_alone(tmp_path, rng, capfd):
    for name in "rab":
        python2_header(tmp_path / f"{name}.npy", rng.normal(size=(50, 2)))
    files = [str(tmp_path / f"{name}.npy") for name in "rab"]
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        before = list(warnings.filters)
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda _: relfit.compare(files[0], files[1:], rng=0), range(32)))
        assert warnings.filters == before
    assert capfd.readouterr().err == ""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_in_the_middle_of_a_change():
    """The child of a process in which another thread is just at it can use it, too."""
    shared = Shared(warnings.catch_warnings)
    with shared._lock:
        child = os.fork()
        if not child:
            with shared:
                os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
