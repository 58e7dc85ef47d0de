"""Fork safety: locks that are free in a forked child, and functions that are called around a fork.

A fork copies only the calling thread. A lock that another thread holds at this moment would stay locked in the child
forever. This module has two kinds of locks for that, and a registry of functions:

    hold_across_forks(lock)     a fork waits until `lock` is free; for a library with internal locks and state
    import_lock                 such a lock, for modules that are imported at first use
    ForkResetLock()             the child gets a new, free lock; for Python values that are replaced in one assignment
    at_fork(...)                functions to call in the parent before the fork, and in the child after it

Functions registered as `before` are called while all locks of `hold_across_forks` are held. On systems without fork,
nothing is registered.
"""

import os
import threading
from collections.abc import Callable
from types import TracebackType
from weakref import WeakSet

import_lock = threading.RLock()
"""The lock held while a function imports modules: Python locks each module for that, and does not unlock it in a child.

It is the first lock of `hold_across_forks`: a thread may acquire it whichever of them it holds, and no module acquires
another one of them when it is imported.
"""
_locks: list["threading.RLock"] = [import_lock]
_acquired: list["threading.RLock"] = []
_before: list[Callable[[], object]] = []
_after_in_child: list[Callable[[], object]] = []
_reset_locks: "WeakSet[ForkResetLock]" = WeakSet()


def hold_across_forks(lock: "threading.RLock") -> None:
    """Acquire `lock` before every fork of this process and release it afterwards: no other thread holds it at a fork.

    A fork acquires these locks in the reverse order of their registration. To avoid a deadlock, a thread that holds one
    of them may only acquire locks that were registered before it.
    """
    _locks.append(lock)


def at_fork(*, before: Callable[[], object] | None = None, after_in_child: Callable[[], object]) -> None:
    """Register functions to call in the parent before every fork, and in the child after it; they must not raise."""
    if before is not None:
        _before.append(before)
    _after_in_child.append(after_in_child)


class ForkResetLock:
    """A lock that is free in a forked child, even if another thread of the parent holds it at the fork."""

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        """Create an unlocked lock."""
        self._lock = threading.Lock()
        _reset_locks.add(self)

    def __enter__(self) -> None:
        """Acquire the lock, and wait for it if necessary."""
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Release the lock."""
        self._lock.release()


def _acquire_all() -> None:
    """Acquire all locks of `hold_across_forks`, then call the functions registered as `before`."""
    while True:
        count = len(_locks)
        for lock in reversed(_locks[:count]):
            lock.acquire()
            _acquired.append(lock)
        if len(_locks) == count:
            break
        _release_all()  # a module that another thread has imported meanwhile registered a lock, and may hold it
    for call in list(_before):
        call()


def _release_all() -> None:
    while _acquired:
        _acquired.pop().release()


def _reset_child() -> None:
    """In a forked child: replace all `ForkResetLock`s, call the registered functions, release the locks."""
    for lock in list(_reset_locks):
        lock._lock = threading.Lock()
    for call in list(_after_in_child):
        call()
    _release_all()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_acquire_all, after_in_parent=_release_all, after_in_child=_reset_child)
