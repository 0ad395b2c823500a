"""What docs/files.md shows, run in its order."""

import re
import shlex
from pathlib import Path

import pytest

import relfit
from relfit.cli import main
from relfit.data.files import SUFFIXES

PAGE = (Path(__file__).parents[2] / "docs" / "files.md").read_text(encoding="utf-8")


@pytest.mark.usefixtures("as_a_fresh_process")
def test_every_command_and_example_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    commands = 0
    for language, block in re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        if language == "python":
            exec(compile(block, "docs/files.md", "exec"), names)
            continue
        for line in block.splitlines():
            program, *args = shlex.split(line)
            assert program == "relfit"
            assert main(args) == 0, capsys.readouterr().err
            assert "base" in capsys.readouterr().out
            commands += 1
    assert commands >= 5
    assert isinstance(names["result"], relfit.Comparison)
    assert names["ages"].shape == (400, 2)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_ending_is_on_the_page(suffix):
    assert f"`{suffix}`" in PAGE
