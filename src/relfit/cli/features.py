"""The command `relfit features`: images and texts into rows that `relfit compare` takes."""

from __future__ import annotations

import os
from typing import Any

import click

from relfit.cli.outputs import check_outputs, say
from relfit.features.base import EXTRACTORS
from relfit.features.run import Extraction, extract_features

_SHOWN_BROKEN = 3


def _show_list(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        say(listing())
        ctx.exit()


def listing() -> str:
    """The extractors, one a line, with what is missing for those that are not installed."""
    width = max(map(len, EXTRACTORS))
    lines = []
    for name, entry in EXTRACTORS.items():
        state = "installed" if not entry.missing() else f"not installed: {entry.install}"
        lines.append(f"{name:{width}}  {entry.kind:6}  {entry.dim:>4}  {entry.about}\n{'':{width}}  {state}")
    return "\n".join(lines)


@click.command(
    "features",
    epilog="\b\nExamples:\n"
    "  relfit features photos/ --model efficientnet-lite0 -o photos.npy\n"
    "  relfit features answers.jsonl --field answer --model minilm -o answers.npy\n"
    "Then:\n"
    "  relfit compare photos.npy model1.npy model2.npy --preset kid",
)
@click.argument("source")
@click.option("--model", type=click.Choice(list(EXTRACTORS)), required=True, help="The network; see --list.")
@click.option("-o", "--output", metavar="FILE.npy", required=True, help="Where the rows go.")
@click.option("--batch", metavar="N", type=click.IntRange(min=1), default=32, show_default=True, help="Items at once.")
@click.option("--limit", metavar="N", type=click.IntRange(min=1), help="Only the first N items.")
@click.option("--field", metavar="NAME", help="Of a .jsonl file: the field with the text.  [default: text]")
@click.option("--skip-broken", is_flag=True, help="Leave out items that cannot be decoded, and count them.")
@click.option("--weights", metavar="PATH", help="File or folder of the network's weights, if not the usual one.")
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True)
@click.option("--progress/--no-progress", default=None, help="Show a bar; by default on terminals only.")
@click.option("--list", is_flag=True, is_eager=True, expose_value=False, callback=_show_list, help="List the networks.")
def features_command(source: str, model: str, output: str, **settings: Any) -> int:
    """Turn images or texts into features, one row each.

    SOURCE is a folder of images or of .txt files, a .txt file (one text a line) or a .jsonl file. A run that was
    killed goes on where it stopped. Nothing is downloaded.
    """
    names = os.path.splitext(output)[0] + ".names.txt"  # noqa: PTH122  (only the ending changes)
    check_outputs({"--output": output, "names of --output": names}, [source])
    say(report(model, extract_features(source, model, output, **settings)))
    return 0


def report(model: str, result: Extraction) -> str:
    """What was written, in words."""
    lines = [f"{result.path}: {result.rows} rows of {result.dim} features ({model}); names in {result.names_path}"]
    if result.resumed:
        lines.append(f"{result.resumed} items had been done by an earlier run.")
    if result.broken:
        shown = ", ".join(repr(name) for name in list(result.broken)[:_SHOWN_BROKEN])
        more = len(result.broken) - _SHOWN_BROKEN
        lines.append(f"Left out {len(result.broken)} broken: {shown}{f' and {more} more' if more > 0 else ''}.")
    return "\n".join(lines)
