"""The command line. Nothing is imported before `main` runs, so that an interrupt at any moment is one quiet line."""

import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Any

# What ends a command early: Ctrl-C, a cancelled job, a closed terminal.
_SIGNALS: dict[str, Any] = {"SIGINT": signal.default_int_handler, "SIGTERM": signal.SIG_DFL, "SIGHUP": signal.SIG_DFL}
INTERNAL_ERROR = 70


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        # Closed by whoever started us: nobody reads what is written.
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  (open until the end)
    stopped: list[int] = []
    with _signals(stopped) as allow_cleanup:
        try:
            from relfit.cli.commands import load, run

            load(args)
            allow_cleanup()
            return run(args)
        except BaseException as error:
            # Libraries turn an interrupt into errors of their own.
            if stopped or isinstance(error, KeyboardInterrupt):
                return _ended(stopped[0] if stopped else signal.SIGINT)
            if not isinstance(error, Exception):
                raise
            # A defect must not look like status 1, the verdict of --gate.
            complain(traceback.format_exc().rstrip())
            return INTERNAL_ERROR


@contextmanager
def _signals(stopped: list[int]) -> Iterator[Any]:
    """Signals as KeyboardInterrupt, so that what was started is ended and what was written temporarily is removed.

    Before the function that this gives is called there is nothing to clean up, and modules that are half imported would
    complain: the process ends at once. Only the main thread may set handlers, and a signal that is ignored, as under
    nohup, stays ignored.
    """
    importing = True

    def stop(number: int, _frame: Any) -> None:
        if importing:
            os._exit(_ended(number))
        stopped.append(number)
        raise KeyboardInterrupt

    def allow_cleanup() -> None:
        nonlocal importing
        importing = False

    default = {getattr(signal, name): handler for name, handler in _SIGNALS.items() if hasattr(signal, name)}
    main_thread = threading.current_thread() is threading.main_thread()
    handled = [number for number, usual in default.items() if main_thread and signal.getsignal(number) == usual]
    for number in handled:
        signal.signal(number, stop)
    try:
        yield allow_cleanup
    finally:
        for number in handled:
            signal.signal(number, default[number])


def _ended(number: int) -> int:
    """Say that a signal ended the command; the exit status that shells give it."""
    complain("relfit: interrupted" if number == signal.SIGINT else f"relfit: ended by {signal.Signals(number).name}")
    return 128 + number


def complain(line: str) -> None:
    """Print to standard error, if anybody listens."""
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        to_nowhere(sys.stderr)


def to_nowhere(stream: IO[str]) -> None:
    """Let a stream that cannot be written lead nowhere: Python would report it a second time when it exits."""
    with suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
