"""The demonstration: honest halves, generators that never see the reference, no scikit-learn, quick."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import numpy as np
import pytest

from relfit.cli import demo, main


def test_the_bundled_digits_are_scikit_learns_and_generators_see_only_theirs():
    """The same training half gives the same images, whatever the reference; all lie in [0, 1]."""
    train, labels, reference = demo.split_digits(3)
    made = demo.generate(train, labels, 50, 3)
    again = demo.generate(train.copy(), labels.copy(), 50, 3)
    assert len(made) == 6
    for name, images in made.items():
        assert images.shape == (50, 64)
        assert 0.0 <= images.min() <= images.max() <= 1.0
        assert np.array_equal(images, again[name])
    assert not np.array_equal(made["one Gaussian"], demo.generate(train, labels, 50, 4)["one Gaussian"])
    assert len(reference) == 899
    sklearn = pytest.importorskip("sklearn.datasets").load_digits()
    images, labels = demo.digits()
    assert np.array_equal(images * 16, sklearn.data)
    assert np.array_equal(labels, sklearn.target)


def test_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["demo"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert lines[0].startswith("898 images of handwritten digits trained six simple generators; 899 other images")
    assert lines[2] == ""
    assert lines[3].startswith("best set · MMD²")
    assert str(demo.run(0)) in out
    assert (
        "Familywise error rate: the probability that any model as good as the best is declared worse is at most 5%"
        in out
    )
    assert lines[-1] == "Report: relfit-demo.html"
    assert "noisy copies" in (tmp_path / "relfit-demo.html").read_text(encoding="utf-8")


def test_needs_no_scikit_learn_and_is_quick(tmp_path):
    blocked = "import sys; sys.modules['sklearn'] = None; from relfit.cli import main; sys.exit(main(['demo']))"
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", blocked],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "80"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert time.monotonic() - started < 20.0
