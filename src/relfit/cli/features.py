"""The command `relfit features`: turns images and texts into rows that `relfit compare`
takes.
"""

from __future__ import annotations

import os
from typing import Any

import click

from relfit.cli.outputs import check_outputs, say
from relfit.cli.sections import AT_LEAST_1, PROGRESS, SectionedCommand, flag, opt, section
from relfit.features.base import DEVICES, EXTRACTORS
from relfit.features.run import extract_features

_SHOWN_BROKEN = 3


def listing() -> str:
    """The extractors, with what has to be installed for those that are not available."""
    width = max(map(len, EXTRACTORS))
    lines = []
    for name, entry in EXTRACTORS.items():
        state = "installed" if not entry.missing() else f"not installed: {entry.install}"
        lines.append(
            f"{name:{width}}  {entry.kind:6}  {entry.dim:>4}  "
            f"{entry.about}\n{'':{width}}  {state}"
        )
    return "\n".join(lines)


@click.command(
    "features",
    cls=SectionedCommand,
    epilog="\b\nExamples:\n"
    "  relfit features photos/ --model efficientnet-lite0 -o photos.npy\n"
    "  relfit features answers.jsonl --field answer --model minilm -o answers.npy\n"
    "  relfit features answers.txt --model char-ngrams -o answers.npy\n"
    "Then:\n"
    "  relfit compare photos.npy model1.npy model2.npy --preset kid",
)
@click.argument("source")
@section(
    "Options",
    opt(
        "--model",
        "The network, or other function, that computes the features; see --list.",
        choices=EXTRACTORS,
        required=True,
    ),
    opt("-o --output FILE.npy", "Write the rows to this file.", required=True),
    opt("--field NAME", "In a .jsonl file, the field that holds the text.  [default: text]"),
    opt("--recursive", "Take the files in subfolders too.", is_flag=True),
    opt("--limit N", "Use the first N items only.", type=AT_LEAST_1),
    opt(
        "--skip-broken",
        "Leave out items that cannot be decoded, and say how many there were.",
        is_flag=True,
    ),
    opt(
        "--batch N", "Number of items that are processed at once.", type=AT_LEAST_1, default=32
    ),
    opt(
        "--weights PATH",
        "File or folder of the network's weights, if they are not in the usual place.",
    ),
    opt(
        "--device",
        "Where the network runs; auto uses a CUDA device if there is one.",
        choices=DEVICES,
        default="auto",
    ),
    PROGRESS,
    flag(
        "--list", lambda: say(listing()), "List the networks, and what is missing to use them."
    ),
)
def features_command(source: str, model: str, output: str, **settings: Any) -> int:
    """Turn images or texts into features, one row each.

    SOURCE is a folder of images or of .txt files, a .txt file (one text per line) or a
    .jsonl file. A folder whose subfolders hold such files too needs --recursive. After a
    crash or an interrupt the same command resumes where it stopped. Nothing is downloaded.
    """
    names = os.path.splitext(output)[0] + ".names.txt"  # noqa: PTH122  (only the ending changes)
    check_outputs({"output": output, "output_names": names})
    result = extract_features(source, model, output, **settings)
    rows = f"{result.rows} rows of {result.dim} features ({model})"
    say(f"{result.path}: {rows} from {result.taken}; names in {result.names_path}")
    if result.resumed:
        say(f"{result.resumed} items were finished by an earlier run.")
    if result.broken:
        shown = ", ".join(repr(name) for name in list(result.broken)[:_SHOWN_BROKEN])
        more = len(result.broken) - _SHOWN_BROKEN
        say(
            f"Left out {len(result.broken)} broken: "
            f"{shown}{f' and {more} more' if more > 0 else ''}."
        )
    return 0
