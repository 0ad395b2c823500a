"""relfit doctor: the known values are known, what is broken is said, and only that makes the exit status 1."""

import numpy as np
import pytest

from relfit.cli import doctor, main


def test_the_known_values_are_sums_over_pairs():
    reference = np.repeat([0.0, 1.0], 10)[:, None]
    k = lambda x, y: np.exp(-0.5 * (x - y.T) ** 2)  # noqa: E731
    own = (k(reference, reference).sum() - 20) / 380
    at_zero = np.zeros((20, 1))
    assert doctor.known_mmd()[0] == pytest.approx(1.0 + own - 2.0 * k(at_zero, reference).mean(), abs=1e-15)
    assert doctor.known_mmd()[1] == pytest.approx(2.0 * own - 2.0 * k(reference, reference).mean(), abs=1e-15)


def test_all_is_well_here(capsys):
    assert main(["doctor"]) == 0
    first, *lines, last = capsys.readouterr().out.splitlines()
    assert first.startswith("relfit ")
    assert last == "All that is installed works."
    assert all(line.split()[0] in ("ok", "absent") for line in lines)
    assert sum("backend" in line for line in lines) >= 3


def test_what_is_broken_is_said_in_one_line(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "known_ksd", lambda: 1.0)
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "broken  backend numpy   off by" in out
    assert out.splitlines()[-1].startswith("Something does not work")

    def crash(*_, **__):
        raise RuntimeError("no such\nluck")

    monkeypatch.setattr(doctor, "estimate", crash)
    found = doctor.backend_finding("numpy")
    assert (found.state, found.details) == ("broken", "RuntimeError: no such")
    result = doctor.compare(np.ones((30, 1)) * np.arange(30)[:, None], [np.zeros((30, 1)), np.ones((30, 1))], rng=0)
    monkeypatch.setattr(doctor, "compare", lambda *_, **__: result)
    assert doctor.self_test().state == "broken"


@pytest.mark.parametrize(
    ("machine", "found", "said"),
    [
        ("x86_64", ["X86_V2", "X86_V3"], "x86_64 without AVX-512"),
        ("AMD64", ["X86_V2", "X86_V3", "X86_V4", "AVX512_ICL"], "AMD64 with AVX-512"),
        ("x86_64", ["SSE", "AVX512F"], "x86_64 with AVX-512"),
        ("aarch64", ["NEON"], "aarch64"),
    ],
)
def test_the_processor_in_plain_words(monkeypatch, machine, found, said):
    monkeypatch.setattr(doctor.platform, "machine", lambda: machine)
    monkeypatch.setattr(doctor, "instruction_sets", lambda: found)
    assert str(doctor.processor()) == f"ok      processor       {said}"


def test_what_is_absent_is_optional(monkeypatch, capsys):
    there = doctor.find_spec
    monkeypatch.setattr(doctor, "find_spec", lambda name: None if name in ("torch", "pandas") else there(name))
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "absent  pandas          for to_frame()" in out
    assert "absent  backend torch   not installed" in out
