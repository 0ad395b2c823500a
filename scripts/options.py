"""Write the options of the main commands into docs/command-line.md, from the program itself.

python scripts/options.py
"""

from pathlib import Path

import click

from relfit.cli.commands import cli
from relfit.util.files import write_text_atomic

PAGE = Path(__file__).parents[1] / "docs" / "command-line.md"
HEADING = "## Every option\n"
COMMANDS = ("compare", "pair", "plan", "report", "rerun", "features")


def section() -> str:
    """A table for each command, as `--help` has it."""
    parts = [HEADING, "As `relfit COMMAND --help` lists them (written by `scripts/options.py`).\n"]
    for name in COMMANDS:
        parts.append(f"### `relfit {name}`\n\n| option | what it does |\n| --- | --- |")
        parts += [f"| {first} | {said} |" for first, said in _options(name)]
        parts.append("")
    return "\n".join(parts)


def _options(name: str) -> list[tuple[str, str]]:
    command = cli.commands[name]
    with click.Context(command, info_name=name) as context:
        found = [option.get_help_record(context) for option in command.params if isinstance(option, click.Option)]
    return [(f"`{option}`".replace("|", "\\|"), said.replace("|", "\\|")) for option, said in filter(None, found)]


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    write_text_atomic(PAGE, text.partition(HEADING)[0].rstrip("\n") + "\n\n" + section())


if __name__ == "__main__":
    main()
