"""The command line. Nothing large is imported before `main` runs, so that any interrupt is
one quiet line.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import time

from relfit.util.errors import complain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

# What ends a command early: Ctrl-C, a cancelled job, a closed terminal.
_SIGNALS: dict[str, Any] = {
    "SIGINT": signal.default_int_handler,
    "SIGTERM": signal.SIG_DFL,
    "SIGHUP": signal.SIG_DFL,
}
INTERNAL_ERROR = 70
# Seconds that a command which a signal ended may take to clean up.
_MOST_SECONDS = 2.0


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status.

    Without `args` they are those of the process, which a signal then ends.
    """
    signals = _Signals(own_process=args is None)
    try:
        for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
            # Closed by whoever started us: nobody reads what is written.
            if getattr(sys, name) is None:
                # Open until the end.
                setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
        from relfit.cli.commands import load, run

        load(args)
        signals.importing = False
        return run(args)
    except BaseException as error:
        # Libraries turn an interrupt into errors of their own.
        if signals.came or isinstance(error, KeyboardInterrupt):
            return signals.ended(signals.came or signal.SIGINT)
        if not isinstance(error, Exception):
            raise
        from traceback import format_exc

        # A defect must not look like status 1, the verdict of --gate.
        complain(format_exc().rstrip())
        return INTERNAL_ERROR
    finally:
        signals.restore()


class _Interrupt(KeyboardInterrupt):
    """Python forgets the exit status, and dies of SIGINT, once a KeyboardInterrupt itself
    has left `exec("...")`.

    Libraries run such code while they are imported: every dataclass does.
    """


class _Signals:
    """Signals as KeyboardInterrupt, so that what was started is ended and what was written
    temporarily is removed.

    While `importing` there is nothing to clean up, and modules that are half imported would
    complain: the process ends at once. Only the main thread may set handlers, and a signal
    that is ignored, as under nohup, stays ignored. A library may swallow the interrupt, or
    leave a thread that the interpreter waits for: in its `own_process`, a command is over
    after some seconds even so.
    """

    def __init__(self, own_process: bool) -> None:
        self.importing = True
        self.came = 0
        self.said = False
        self.own_process = own_process
        usual = {
            getattr(signal, name): handler
            for name, handler in _SIGNALS.items()
            if hasattr(signal, name)
        }
        self.replaced = {
            number: handler
            for number, handler in usual.items()
            if signal.getsignal(number) == handler
        }
        try:
            for number in self.replaced:
                signal.signal(number, self._stop)
        except ValueError:  # Not in the main thread.
            self.replaced = {}

    def restore(self) -> None:
        for number, handler in self.replaced.items():
            signal.signal(number, handler)

    def _stop(self, number: int, _frame: Any) -> None:
        if self.importing:
            os._exit(self.ended(number))
        if self.own_process and not self.came:
            # A `threading.Thread` would wait for a lock that the interrupted code may hold.
            _thread.start_new_thread(self._end_process, (number,))
        self.came = self.came or number
        raise _Interrupt

    def _end_process(self, number: int) -> None:
        time.sleep(_MOST_SECONDS)
        from relfit.util.files import remove_temporary

        remove_temporary()
        os._exit(self.ended(number))

    def ended(self, number: int) -> int:
        """Say once that a signal ended the command; the exit status that shells give it."""
        if not self.said:
            self.said = True
            how = (
                "interrupted"
                if number == signal.SIGINT
                else f"ended by {signal.Signals(number).name}"
            )
            complain(f"relfit: {how}")
        return 128 + number
