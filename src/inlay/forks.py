"""Forks: locks that a forked child does not inherit in a locked state, and what has to be done around a fork.

A fork copies one thread. A lock that another thread holds stays locked in the child for ever. There are two remedies:

    hold_across_forks(lock)     guards a library that keeps locks and state of its own: a fork waits until it is free
    ForkResetLock()               guards values of Python that are replaced at once: the child has a new, free one
    at_fork(...)                what else is called: in the parent before the fork, or in the child after it

The calls of `before` run while all of these locks are held. Where the system cannot fork, nothing is registered.
"""

import os
import threading
from collections.abc import Callable
from types import TracebackType
from weakref import WeakSet

_held: list["threading.RLock"] = []
_acquired: list["threading.RLock"] = []
_before: list[Callable[[], object]] = []
_after_in_child: list[Callable[[], object]] = []
_renewed: "WeakSet[ForkResetLock]" = WeakSet()


def hold_across_forks(lock: "threading.RLock") -> None:
    """Hold `lock` across every fork of this process, so that no fork happens while another thread holds it.

    A fork acquires these locks in the reverse order of their registration: a thread may acquire a lock while it holds
    one that was registered later, not the other way round.
    """
    _held.append(lock)


def at_fork(*, before: Callable[[], object] | None = None, after_in_child: Callable[[], object]) -> None:
    """Call `before` before every fork of this process, and `after_in_child` in the child; both may not raise."""
    if before is not None:
        _before.append(before)
    _after_in_child.append(after_in_child)


class ForkResetLock:
    """A lock that is free in a forked child, even if another thread of the parent holds it."""

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        """Create it unlocked."""
        self._lock = threading.Lock()
        _renewed.add(self)

    def __enter__(self) -> None:
        """Wait until it is free, and acquire it."""
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Release it."""
        self._lock.release()


def _acquire_all() -> None:
    # Another thread may register more while this one waits: what is released is what was acquired.
    for lock in reversed(list(_held)):
        lock.acquire()
        _acquired.append(lock)
    for call in list(_before):
        call()


def _release_all() -> None:
    while _acquired:
        _acquired.pop().release()


def _renew() -> None:
    for lock in list(_renewed):
        lock._lock = threading.Lock()
    for call in list(_after_in_child):
        call()
    _release_all()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_acquire_all, after_in_parent=_release_all, after_in_child=_renew)
