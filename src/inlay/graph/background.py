"""Background work: planning for a new shape yields the processors, and Python's lock, to runs of known shapes.

    with running():                 around each run of a session
    with in_background():           around the planning that a request causes; its thread yields
        yield_to_runs()             in each loop of importing, planning and compiling

Python code of one thread keeps the lock of the interpreter for 5 ms while another waits for it, longer than small
networks run, and a thread that computes takes a processor from the team of a run. So background work has a duty cycle:
while a run is going on, it computes for `SLICE` or a little more, then sleeps until it has computed for `SHARE` of the
time. Between runs that follow one another it only lets others have the lock. Without runs it does not pause.

The duty cycle replaces a lower priority of the thread: a thread of low priority that is not scheduled, because other
programs compute, would keep the lock that all runs wait for.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from inlay.forks import at_fork

SHARE = 0.15
"""Share of the time that background work computes while runs are going on."""
SLICE = 0.0005
"""Seconds that background work computes at least between two pauses."""
_RECENT = 1.0  # seconds after a run within which another one is expected
_LET_GO = 0.0001  # seconds of sleep after which a thread that waited for the interpreter's lock has it
_MOST_PAUSE = 0.1  # seconds


class RunActivity:
    """The runs that are going on in this process."""

    __slots__ = ("_runs", "ended")

    def __init__(self) -> None:
        """Begin without runs."""
        self._runs: list[None] = []
        self.ended = float("-inf")
        """Time at which the last run ended, of `time.perf_counter`."""

    def __enter__(self) -> None:
        """Count a run; `append` and `pop` need no lock."""
        self._runs.append(None)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Count the run no longer."""
        if self._runs:  # empty in a child that was forked during the run
            self._runs.pop()
        self.ended = time.perf_counter()

    @property
    def is_any(self) -> bool:
        """Return whether a run is going on."""
        return bool(self._runs)

    def reset(self) -> None:
        """Forget all runs."""
        self._runs.clear()


RUNS = RunActivity()
"""The runs of all sessions: `with RUNS` is a run."""
at_fork(after_in_child=RUNS.reset)


class _BackgroundThread(threading.local):
    """The state of one thread."""

    resumed: float | None = None
    """Time at which its background work began or went on after a pause; None if it does no background work."""


_thread = _BackgroundThread()


@contextmanager
def in_background() -> Iterator[None]:
    """Mark the calling thread as one that does background work: `yield_to_runs` pauses in it."""
    outer, _thread.resumed = _thread.resumed, time.perf_counter()
    try:
        yield
    finally:
        _thread.resumed = outer


def yield_to_runs() -> None:
    """Pause the background work of this thread if runs are going on; return at once in any other thread."""
    if _thread.resumed is None:
        return
    worked = time.perf_counter() - _thread.resumed
    if worked < SLICE:
        return
    if RUNS.is_any:
        time.sleep(min(worked * (1 / SHARE - 1), _MOST_PAUSE))
    elif time.perf_counter() - RUNS.ended < _RECENT:
        time.sleep(_LET_GO)
    _thread.resumed = time.perf_counter()
