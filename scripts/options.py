"""Write the options of the main commands into docs/command-line.md, from the program itself.

python scripts/options.py
"""

from pathlib import Path

import click

from relfit.cli.commands import cli
from relfit.util.files import write_text_atomic

PAGE = Path(__file__).parents[1] / "docs" / "command-line.md"
HEADING = "## Every option\n"
COMMANDS = (
    *("compare", "losses", "evals", "monitor add", "monitor status", "monitor report", "pair", "plan", "report"),
    *("rerun", "features"),
)


def every_option() -> str:
    """A table for each section of each command, as `--help` has them."""
    parts = [HEADING, "As `relfit COMMAND --help` lists them (written by `scripts/options.py`).\n"]
    for name in COMMANDS:
        parts.append(f"### `relfit {name}`\n")
        for title, records in sections(name).items():
            parts.append(f"| {title} | |\n| --- | --- |")
            parts += ["| `{}` | {} |".format(*(text.replace("|", "\\|") for text in record)) for record in records]
            parts.append("")
    return "\n".join(parts)


def sections(name: str) -> dict[str, list[tuple[str, str]]]:
    """The options of a command by section, with their help; --help itself is left out."""
    command = command_of(name)
    with click.Context(command, info_name=name) as context:
        listed = command.sections(context)
    own = {
        title: [record for record in records if not record[0].endswith("--help")] for title, records in listed.items()
    }
    return {title: records for title, records in own.items() if records}


def command_of(name: str) -> click.Command:
    """The command of this name, of which some have two words."""
    command = cli
    for word in name.split():
        command = command.get_command(click.Context(command), word)
    return command


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    write_text_atomic(PAGE, text.partition(HEADING)[0].rstrip("\n") + "\n\n" + every_option())


if __name__ == "__main__":
    main()
