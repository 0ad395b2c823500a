"""Standard streams that nobody may be reading. Imports next to nothing: the command line
needs it first of all.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO


def complain(line: str) -> None:
    """Print to standard error, if anybody listens."""
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        to_nowhere(sys.stderr)


def to_nowhere(stream: IO[str]) -> None:
    """Let a stream that cannot be written lead nowhere: Python would report it a second time
    when it exits.
    """
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    except OSError:
        return
