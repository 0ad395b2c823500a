"""The list of commands, and how their errors are shown.

A command called "name" is the function ``name_command`` in a file of this folder. Exit
status: 0 done, 1 a negative answer (the gated model is worse), 2 bad input or no answer, 3
an inconclusive gate where non-inferiority is required, 70 a defect of relfit, 130
interrupted, 129 and 143 ended by SIGHUP and SIGTERM.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from types import ModuleType
from typing import cast

import click

from relfit.cli.sections import in_options, option_names
from relfit.util import __version__
from relfit.util.errors import ON_COMMAND_LINE, RelfitError, complain
from relfit.util.files import forget_read
from relfit.util.text import visible

DONE = 0
BAD_INPUT = 2
# In the order of the help page, with the file of each.
COMMANDS = {
    "compare": "compare",
    "losses": "scores",
    "evals": "scores",
    "monitor": "monitor",
    "pair": "compare",
    "plan": "plan",
    "report": "report",
    "rerun": "report",
    "features": "features",
    "demo": "demo",
    "reproduce": "reproduce",
    "doctor": "doctor",
}
# What people write who mean 1 − alpha.
_ERROR_RATE = ("--confidence", "--confidence-level", "--level")


class _Commands(click.Group):
    """Commands that are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        return cast(click.Command, getattr(_file_of(cmd_name), f"{cmd_name}_command"))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command, or an error that has the most similar one."""
        typed = args[0]
        close = get_close_matches(typed.lower(), COMMANDS, 1)
        if typed not in COMMANDS and close and not typed.startswith("-"):
            raise click.UsageError(
                f"No such command '{typed}'. Did you mean 'relfit {close[0]}'?", ctx
            )
        return super().resolve_command(ctx, args)


@click.group(
    cls=_Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="\b\nTry it:    relfit demo\nYour data: relfit compare data.npy large.npy "
    "tuned.npy --html report.html",
)
@click.version_option(__version__, message="relfit %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Which of several models are worse than the best one, for these data?"""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def load(args: Sequence[str] | None = None) -> None:
    """Import the command; the first one typed, because click answers an interrupt with an
    empty line of its own.
    """
    for name in _typed(args)[:1]:
        if name in COMMANDS:
            _file_of(name)


def _file_of(command: str) -> ModuleType:
    return importlib.import_module(f"relfit.cli.{COMMANDS[command]}")


def run(args: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show "²" shows "?" instead.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    forget_read()
    token = ON_COMMAND_LINE.set(True)
    try:
        # The command as it was typed is for results and reports to show.
        status = cli.main(args, prog_name="relfit", standalone_mode=False, obj=_typed(args))
        return status if isinstance(status, int) else DONE
    except click.ClickException as error:
        if isinstance(error, click.NoSuchOption):
            error = _suggested(error)
        context = getattr(error, "ctx", None)
        hint = "" if context is None else f" (see {context.command_path} --help)"
        return _refuse(f"{' '.join(error.format_message().split())}{hint}")
    except RelfitError as error:
        return _refuse(_with_option(str(error), _typed(args)))
    except MemoryError as error:
        advice = "use --memory 2GB (rows stay on disk), --rows 20000 or --estimator auto"
        return _refuse(f"not enough memory ({str(error) or 'none left'}); {advice}")
    except OSError as error:
        return _refuse(f"{error.filename or 'operating system'}: {error.strerror or error}")
    except click.Abort:
        raise KeyboardInterrupt from None
    finally:
        ON_COMMAND_LINE.reset(token)


def _suggested(error: click.NoSuchOption) -> click.UsageError:
    """The error with what was probably meant by an option that does not exist."""
    command = None if error.ctx is None else error.ctx.command
    name = error.option_name
    if name in _ERROR_RATE and command is not None and "alpha" in option_names(command):
        return click.UsageError(f"No such option '{name}'. Did you mean '--alpha'?", error.ctx)
    # The most similar one only: others may mean the opposite.
    most_similar = list(error.possibilities or ())[:1]
    return click.NoSuchOption(name, possibilities=most_similar, ctx=error.ctx)


def _typed(args: Sequence[str] | None) -> list[str]:
    return list(sys.argv[1:] if args is None else args)


def _with_option(message: str, typed: Sequence[str]) -> str:
    """An error of the library with the options that were typed in the place of its
    arguments.
    """
    argument = message.partition(":")[0]
    command = _command(typed)
    if command is None:
        return message
    message = in_options(message, command)
    if argument in typed[1:]:  # a file can be called like an argument
        return message
    options = option_names(command)
    clustered = any(word.startswith("--cluster") for word in typed)
    options["executor"] = "--cluster" if clustered else options.get("workers", "executor")
    return (
        options[argument] + message.removeprefix(argument) if argument in options else message
    )


def _command(typed: Sequence[str]) -> click.Command | None:
    """The command, or the command of a group such as monitor, that was typed."""
    command: click.Command | None = cli
    for word in typed:
        if not isinstance(command, click.Group):
            break
        command = command.get_command(click.Context(command), word)
    return None if isinstance(command, click.Group) else command


def _refuse(message: str) -> int:
    complain(f"relfit: error: {visible(message)}")
    return BAD_INPUT
