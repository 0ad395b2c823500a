"""Options under headings of the help page, and those that nearly every command has.

This file imports nothing of relfit, so that a command that needs none of the statistics
starts quickly.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Iterable
from typing import Any

import click

# In the context of a command: when it began.
STARTED = "relfit.started"
Decorator = Callable[[Any], Any]
# Arguments of the library that the command line calls otherwise, and functions that are
# commands.
_OTHER_NAMES = {
    "strata": "stratum",
    "groups": "group",
    "labels": "label",
    "weights": "weight",
    "names": "name",
}
_ARGUMENTS = {"losses": {"losses": "TABLE"}, "evals": {"losses": "RUNS", "paths": "RUNS"}}
_FUNCTIONS = {"compare_losses": "losses", "read_evals": "evals"}
AT_LEAST_0 = click.IntRange(min=0)
AT_LEAST_1 = click.IntRange(min=1)


class OneOf(click.Choice[str]):
    """A choice; the error for one that was removed says what replaces it."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        if value not in self.choices:
            from relfit.util.checks import check_removed

            check_removed(str(None if param is None else param.name), value)
        return super().convert(value, param, ctx)


class SectionedOption(click.Option):
    """An option that is listed under a heading of the help page."""

    section: str

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """The line in the help, without ranges such as x>=1, which only a wrong value needs."""
        record = super().get_help_record(ctx)
        if record is None:
            return None
        return record[0], re.sub(r"; x>=\d+|  \[x>=\d+\]", "", record[1])


class SectionedCommand(click.Command):
    """A command whose help lists its options by section, in the order of their declaration."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, and remember when it began."""
        ctx.meta[STARTED] = time.monotonic()
        return super().invoke(ctx)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse an option together with its opposite, of which click takes the last."""
        typed = set(args[: args.index("--")] if "--" in args else args)
        for param in self.get_params(ctx):
            on = typed.intersection(param.opts)
            off = typed.intersection(param.secondary_opts)
            if on and off:
                raise click.UsageError(
                    f"expected {on.pop()} or {off.pop()}, got both; leave out one of the two",
                    ctx,
                )
        return super().parse_args(ctx, args)

    def sections(self, ctx: click.Context) -> dict[str, list[tuple[str, str]]]:
        """The options and their help under each heading; --help comes last."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is not None:
                default = "Options" if list(sections) in ([], ["Options"]) else "Other options"
                sections.setdefault(getattr(param, "section", default), []).append(record)
        return sections

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, records in self.sections(ctx).items():
            with formatter.section(title):
                formatter.write_dl(records)


def opt(
    declaration: str,
    help: str,
    *,
    dest: str = "",
    default: Any = None,
    choices: Iterable[str] = (),
    **settings: Any,
) -> Decorator:
    """An option such as "--rows NUMBER" or "-o --output FILE", or a choice; a default is
    shown in the help.

    `dest` is the name of the parameter where it is not that of the option.
    """
    *names, last = declaration.split()
    if last.startswith("-"):
        names.append(last)
    else:
        settings["metavar"] = last
    if choices:
        settings["type"] = OneOf(list(choices), case_sensitive=False)
    if dest:
        names.append(dest)
    if default is not None:
        settings |= {"default": default, "show_default": True}
    elif "/" in names[0]:
        settings["default"] = None  # neither --this nor --that
    return click.option(*names, cls=SectionedOption, help=help, **settings)


def section(title: str, *options: Decorator) -> Decorator:
    """Several options under one heading, as one decorator."""

    def titled(option: Decorator) -> Decorator:
        def decorate(function: Any) -> Any:
            function = option(function)
            function.__click_params__[-1].section = title
            return function

        return decorate

    return together(*map(titled, options))


def together(*sections: Decorator) -> Decorator:
    """Several sections as one decorator."""

    def decorate(function: Any) -> Any:
        for each in reversed(sections):
            function = each(function)
        return function

    return decorate


def option_names(command: click.Command) -> dict[str, str]:
    """What the command line calls each argument of the library: --item for item, --group for
    groups.
    """
    names = {}
    for each in command.params:
        if isinstance(each, click.Option):
            names[str(each.name)] = "/".join([each.opts[-1], *each.secondary_opts])
    for argument, name in _OTHER_NAMES.items():
        if argument not in names and name in names:
            names[argument] = names[name]
    return names | _ARGUMENTS.get(str(command.name), {})


def in_options(message: str, command: click.Command) -> str:
    """A message of the library in the words of the command line: --item doc_id for
    item='doc_id'.

    Functions that are commands are named so, with their options.
    """
    names = option_names(command)
    text = re.sub(
        r"\b(compare_losses|read_evals)\b",
        lambda found: f"relfit {_FUNCTIONS[found[0]]}",
        message,
    )

    def replaced(found: re.Match[str]) -> str:
        name = found["name"]
        value = found["value"].strip("'\"")
        elsewhere = (
            f"--{_OTHER_NAMES.get(name, name).replace('_', '-')}" if text != message else ""
        )
        option = names.get(name) or elsewhere
        if not option.startswith("--"):
            return found[0]
        if value in ("True", "False") and "/" in option:
            return option.split("/")[value == "False"]
        return f"{option} {shlex.quote(value)}" if value else option

    # Calls of Python, such as kernel=Gaussian(bandwidth=2), and names of runs, such as
    # babi:task=1, stay as they are.
    text = re.sub(
        r"(?<![^\s(])(?<!\w\()(?P<name>[a-z_]+)="
        r"(?P<value>'[^']*'|\"[^\"]*\"|[\w+-]+(?:\.\w+)*|)(?![\w(\[=]|\.[\w.])",
        replaced,
        text,
    )
    # Where a message has both forms, one is left.
    return re.sub(r"(--[a-z-]+(?: \w+)?), \1\b", r"\1", text)


def flag(name: str, action: Callable[[], Any], help: str) -> Decorator:
    """An option that does something else instead of the command, such as --list."""

    def callback(ctx: click.Context, _param: click.Parameter, is_set: bool) -> None:
        if is_set and not ctx.resilient_parsing:
            action()
            ctx.exit()

    return opt(name, help, is_flag=True, is_eager=True, expose_value=False, callback=callback)


JSON = opt(
    "--json PATH",
    "Write the result as JSON; - prints it instead of the table.",
    dest="json_path",
)
HTML = opt("--html PATH", "Write a report that opens in any browser.", dest="html_path")
TITLE = opt("--title TEXT", "Heading of the report.")
SEED = opt(
    "--seed NUMBER",
    "Seed of all random choices: the same seed gives the same answer.",
    type=AT_LEAST_0,
    default=0,
)
DIRECTION = opt(
    "--higher-is-better/--lower-is-better",
    "Whether larger or smaller scores are better.  [default: as the log records or the name "
    "of the score tells]",
    dest="higher_is_better",
)
PROGRESS = opt("--progress/--no-progress", "Show a progress bar.  [default: on terminals only]")
