"""`pause_garbage_collection`: no collection of cyclic garbage while a plan is loaded.

All that loading makes stays alive: records, descriptors, modules. Python would look through these objects for garbage
some 30 times, and once through all objects of the process, which is a fifth of the time to load a plan.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from inlay.forks import at_fork

_pauses = 0


@contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Disable the collector of cyclic garbage in the `with` block, unless it is disabled already.

    >>> with pause_garbage_collection():
    ...     gc.isenabled()
    False
    >>> gc.isenabled()
    True
    """
    global _pauses
    if not gc.isenabled():  # by the caller, or by another thread that loads a plan
        yield
        return
    gc.disable()
    _pauses += 1
    try:
        yield
    finally:
        _pauses -= 1
        gc.enable()


def _end_pauses() -> None:
    """Enable the collector in a forked child, where the thread that paused it does not exist."""
    global _pauses
    if _pauses:
        _pauses = 0
        gc.enable()


at_fork(after_in_child=_end_pauses)
