"""docs/command-line.md lists every option there is, and none that is not."""

import re
from pathlib import Path

import click
import pytest

from scripts.options import COMMANDS, HEADING, command_of, every_option

PAGE = Path(__file__).parents[2] / "docs" / "command-line.md"


def page():
    return PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_listed(command):
    own = page().partition(f"### `relfit {command}`")[2].partition("###")[0]
    listed = set(re.findall(r"--[a-z-]+", " ".join(re.findall(r"^\| `([^`]*)`", own, re.MULTILINE))))
    options = [each for each in command_of(command).params if isinstance(each, click.Option)]
    assert listed == {name for each in options for name in (*each.opts, *each.secondary_opts) if name.startswith("--")}


def test_the_page_was_written_by_the_script():
    assert page().endswith(every_option().partition(HEADING)[2])
