"""Handling of Ctrl-C while the command line is loaded: the process ends at once with exit code 130.

Loading takes a tenth of a second or more. An interrupt inside the initialization of an extension module would appear as
a traceback, or as a failed import. This module is loaded before all others. It changes nothing in a process that uses
Inlay as a library.
"""

import os
import signal
import sys
from pathlib import PurePath
from types import FrameType

INTERRUPTED = 130
"""Exit code after Ctrl-C."""


def end(_: int, __: FrameType | None) -> None:
    """Signal handler: end the process without a message, since no work has begun."""
    os._exit(INTERRUPTED)


def is_command(arguments: list[str]) -> bool:
    """Return True if these are the arguments of the command line: of `inlay` or of `python -m inlay`.

    While Python loads a module for `python -m`, the first argument is `-m`.

    >>> is_command(["/usr/bin/inlay", "plan"]), is_command(["-m", "plan"]), is_command(["train.py"]), is_command([])
    (True, True, False, False)
    """
    return bool(arguments) and PurePath(arguments[0]).stem in ("inlay", "-m")


def _install_handler() -> None:
    """Install the signal handler if this is the command line and Python's handler is active.

    Interrupts may be ignored instead: a shell does that for processes in the background.
    """
    if is_command(getattr(sys, "argv", [])) and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        try:
            signal.signal(signal.SIGINT, end)
        except ValueError:  # not the main thread
            return


_install_handler()
