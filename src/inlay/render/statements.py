"""Calls whose result nobody uses: `show(d)` as a statement of a script.

Python evaluates a call that is a statement, and drops its result by the instruction POP_TOP. A prompt, doctest and the
last expression of a notebook's cell display the result instead, by another instruction. So the instruction after the
call tells the two apart, and a picture is printed where it would be lost, and nowhere twice.
"""

import dis
import sys
from types import FrameType


def is_result_dropped(frame: FrameType) -> bool:
    """Return True if the call that `frame` is executing is a statement, whose result is dropped.

    >>> def caller():
    ...     return is_result_dropped(sys._getframe(1))
    >>> def call_it():
    ...     caller_result = caller()
    ...     return caller_result
    >>> call_it()
    False
    """
    following = (step for step in dis.get_instructions(frame.f_code) if step.offset > frame.f_lasti)
    step = next((step for step in following if step.opname != "CACHE"), None)
    return step is not None and step.opname == "POP_TOP"


def display(picture: object) -> None:
    """Show a picture: as the output of a notebook's cell, or printed."""
    ipython = sys.modules.get("IPython")
    if ipython is not None and ipython.get_ipython() is not None:
        sys.modules["IPython.display"].display(picture)
        return
    sys.stdout.write(f"{picture}\n")
