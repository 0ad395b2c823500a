"""The command line. Nothing is imported before `main` runs, so that an interrupt at any moment is one quiet line."""

import sys
from collections.abc import Sequence

INTERRUPTED = 130


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    try:
        from relfit.cli.commands import run

        return run(args)
    except KeyboardInterrupt:
        print("relfit: interrupted", file=sys.stderr)
        return INTERRUPTED
