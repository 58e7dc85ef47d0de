"""Ctrl-C while the command line is loaded: the process ends at once, with the code that Ctrl-C has later.

Loading takes a tenth of a second and more. An interrupt that reaches an extension module in that time comes out of it
as a traceback, or as an import that failed. This module is loaded before all others and changes nothing in a process
that uses Inlay as a library.
"""

import os
import signal
import sys
from pathlib import PurePath
from types import FrameType

INTERRUPTED = 130
"""The exit code after Ctrl-C."""


def end(_: int, __: FrameType | None) -> None:
    """End the process without a word: nothing is begun yet."""
    os._exit(INTERRUPTED)


def is_command(arguments: list[str]) -> bool:
    """Whether a process with these arguments is the command line, as `inlay` or `python -m inlay`.

    Python names a module that it is about to run `-m`.

    >>> is_command(["/usr/bin/inlay", "plan"]), is_command(["-m", "plan"]), is_command(["train.py"]), is_command([])
    (True, True, False, False)
    """
    return bool(arguments) and PurePath(arguments[0]).stem in ("inlay", "-m")


def _watch() -> None:
    """Take the place of Python's own handler; a shell starts what it puts in the background with interrupts ignored."""
    if is_command(getattr(sys, "argv", [])) and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        try:
            signal.signal(signal.SIGINT, end)
        except ValueError:  # not the main thread
            return


_watch()
