"""The commands by name, and what their errors come to.

Exit status: 0 done, 1 the gated model is worse, 2 bad input, 70 a defect of relfit, 130 interrupted.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Sequence

import click

from relfit.util.errors import RelfitError
from relfit.util.text import visible
from relfit.util.version import __version__

DONE, BAD_INPUT, INTERNAL_ERROR = 0, 2, 70
# Where each command is, in the order of the help page.
COMMANDS = {
    "compare": "compare:compare_command",
    "pair": "compare:pair_command",
    "plan": "plan:plan_command",
    "report": "report:report_command",
    "rerun": "rerun:rerun_command",
    "features": "features:features_command",
    "demo": "demo:demo_command",
    "reproduce": "reproduce:reproduce_command",
    "doctor": "doctor:doctor_command",
}


class _Commands(click.Group):
    """Commands that are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, function = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(f"relfit.cli.{module}"), function)
        return command


@click.group(
    cls=_Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="\b\nTry it:    relfit demo\nYour data: relfit compare human.npy gpt.npy claude.npy --html report.html",
)
@click.version_option(__version__, message="relfit %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Which of several models are significantly worse than the best one, for these data?"""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def run(args: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show "²" gets a "?" there, not a traceback.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        # The command as typed, which reports show.
        typed = list(sys.argv[1:] if args is None else args)
        status = cli.main(args, prog_name="relfit", standalone_mode=False, obj=typed)
        return status if isinstance(status, int) else DONE
    except click.ClickException as error:
        return _refuse(f"{' '.join(error.format_message().split())}{_where_help(error)}")
    except RelfitError as error:
        return _refuse(str(error))
    except MemoryError as error:
        return _refuse(f"not enough memory ({str(error) or 'none left'}); use fewer rows or --estimator linear")
    except OSError as error:
        return _refuse(f"{error.filename or 'operating system'}: {error.strerror or error}")
    except click.Abort:
        raise KeyboardInterrupt from None
    except Exception:  # noqa: BLE001  (a crash must not look like status 1, the verdict of --gate)
        traceback.print_exc()
        return INTERNAL_ERROR


def _refuse(message: str) -> int:
    print(f"relfit: error: {visible(message)}", file=sys.stderr)
    return BAD_INPUT


def _where_help(error: click.ClickException) -> str:
    context = error.ctx if isinstance(error, click.UsageError) else None
    return "" if context is None else f" (see {context.command_path} --help)"
