"""What each Python thread executes with: a stream, a scratchpad that its primitives share, a number of threads.

    lanes.lane              of the calling thread, made when it is first asked for
    lane.reserve(nbytes)    the scratchpad is at least so large
    lane.tell(threads)      OpenMP starts so many for what this thread calls

One scratchpad serves all primitives of a thread because they run one after the other; it is as large as the largest.
When a thread ends, the next one gets its lane: SYCL keeps 20 kB of each stream that ever executed.

**Forks.** A fork copies one thread, and the library would wait for the others. OpenMP ends them before the fork and
starts new ones where they are needed, in the parent and in the child (`omp_pause_resource`, OpenMP 5.0). With another
runtime, or an OpenMP without that function, the library is refused in the child.
"""

import os
import threading
import warnings
from collections.abc import Callable
from ctypes import c_int, c_void_p, cast
from typing import Any, Final
from weakref import WeakSet

from inlay.engine.onednn.handles import Handle, created
from inlay.engine.onednn.library import Library
from inlay.errors import InlayError, PerformanceWarning
from inlay.forks import at_fork
from inlay.memory.buffers import address_of, allocate
from inlay.onednn_abi import IN_ORDER
from inlay.primitives.operation import ThreadTeam
from inlay.reordering.processors import limited

MOST_PER_PROCESSOR: Final = 16
"""Threads of OpenMP for each processor of the machine at most: GNU OpenMP ends the process at some 30,000."""


def bounded(threads: int, processors: int) -> int:
    """Return how many threads the library may start, at most, where OMP_NUM_THREADS or OpenMP says `threads`.

    Warns:
        PerformanceWarning: it is less.

    >>> bounded(8, 2)
    8
    """
    most = MOST_PER_PROCESSOR * processors
    if threads <= most:
        return threads
    warnings.warn(
        f"OpenMP is set to {threads} threads, and this machine has {processors} processors: oneDNN uses {most}; set "
        "OMP_NUM_THREADS to the number of processors, or unset it",
        PerformanceWarning,
        stacklevel=2,
    )
    return most


_PAUSE: Final = 1
"""omp_pause_soft: threads end, settings stay."""


class Team:
    """How many threads the library starts: OpenMP's number, which each Python thread has for itself."""

    def __init__(self, library: Library) -> None:
        """Find the functions of the OpenMP that the library was linked to, if it was."""
        self._library = library
        self._is_ended = self._is_lost = False
        self._pause = _pausing(library)
        _teams.add(self)
        self._set: Any = None
        self.most = 0
        """As many as OpenMP starts if it is told nothing; 0 where another runtime decides."""
        if library.runtime == "omp" and hasattr(library.cdll, "omp_set_num_threads"):
            most: Any = library.cdll["omp_get_max_threads"]
            most.restype = c_int
            self._set = library.cdll["omp_set_num_threads"]
            self._set.argtypes = (c_int,)
            self._set.restype = None
            self.most = bounded(most(), os.cpu_count() or 1)

    @property
    def wanted(self) -> int:
        """What `set_num_threads` allows now; 0 where it has no say."""
        return limited(self.most)

    def tell(self, threads: int) -> None:
        """Set the number for the calling Python thread.

        Raises:
            InlayError: the process is a fork, and the library's threads are gone.
        """
        if self._is_lost:
            raise InlayError(
                f"{self._library.name} runs on {self._library.runtime} and was used before this process was forked, "
                "which left its threads behind: start processes by spawn, as multiprocessing.get_context('spawn') does"
            )
        if self._set is not None:
            self._set(threads)

    def end_threads(self) -> None:
        """End the threads that the calling thread has in the library, before a fork."""
        self._is_ended = self._pause()

    def lose_threads(self) -> None:
        """Note in a forked child whether the library can still compute."""
        self._is_lost |= not self._is_ended


def _pausing(library: Library) -> Callable[[], bool]:
    """What ends the threads that the calling thread has in the library, and returns whether it could."""
    if library.runtime in _WITHOUT_THREADS:
        return lambda: True
    if library.runtime != "omp" or not all(hasattr(library.cdll, name) for name in _PAUSING):
        return lambda: False
    pause, host = (library.cdll[name] for name in _PAUSING)
    return lambda: pause(_PAUSE, host()) == 0


_TEAM_FUNCTIONS: Final = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")


def thread_team(library: Library) -> ThreadTeam | None:
    """The OpenMP that the library was linked to; None where it is another runtime, or lacks GNU's names."""
    if library.runtime != "omp" or not all(hasattr(library.cdll, name) for name in _TEAM_FUNCTIONS):
        return None
    return ThreadTeam(*(cast(library.cdll[name], c_void_p).value or 0 for name in _TEAM_FUNCTIONS))


_WITHOUT_THREADS: Final = ("sequential",)
_PAUSING: Final = ("omp_pause_resource", "omp_get_initial_device")


class Lane:
    """What one Python thread executes with."""

    __slots__ = (
        "__weakref__",
        "_buffer",
        "_engine",
        "_handle",
        "_library",
        "_stream",
        "_team",
        "memory",
        "size",
        "stream",
        "threads",
    )

    stream: int
    """The library's stream."""
    memory: int
    """The `dnnl_memory_t` of the scratchpad."""
    size: int
    """Bytes of the scratchpad."""
    threads: int
    """What the library was last told in this thread; -1 before it was."""

    def __init__(self, library: Library, engine: Handle, scratch: Handle, team: Team) -> None:
        """Make a stream, and a scratchpad without bytes; `scratch` describes some bytes."""
        self._library, self._engine, self._team = library, engine, team
        self._stream = created(library, "stream_create", "stream", engine.value, IN_ORDER)
        self._buffer = allocate(0)
        self._handle = created(library, "memory_create", "memory", scratch.value, engine.value, None)
        self.stream, self.memory = self._stream.value, self._handle.value
        self.size, self.threads = 0, -1
        _lanes.add(self)

    def tell(self, threads: int) -> None:
        """Run what follows in this thread on so many."""
        self._team.tell(threads)
        self.threads = threads

    def reserve(self, nbytes: int) -> None:
        """Make the scratchpad at least so large.

        Raises:
            OutOfMemory: there is no room.
        """
        if nbytes > self.size:
            self.wait()
            larger = allocate(nbytes)
            set_handle = self._library.functions["memory_set_data_handle"]
            self._library.require(set_handle(self.memory, address_of(larger)), lambda: "its scratchpad")
            self._buffer, self.size = larger, nbytes

    def wait(self) -> None:
        """Return when everything that was begun in this thread is done."""
        self._library.require(self._library.functions["stream_wait"](self.stream), lambda: "a stream")


class _Loan:
    """A lane while a thread has it."""

    __slots__ = ("_lane", "_spare")

    def __init__(self, lane: Lane, spare: list[Lane]) -> None:
        self._lane, self._spare = lane, spare

    def __del__(self) -> None:
        self._lane.threads = -1  # what OpenMP was told, it was told in that thread
        self._spare.append(self._lane)


class Lanes(threading.local):
    """The lane of each thread, found when it is first asked for."""

    def __init__(self, spare: list[Lane], make: Callable[[], Lane]) -> None:
        """Called once in each thread: take one of `spare`, or make one."""
        try:
            self.lane = spare.pop()
        except IndexError:
            self.lane = make()
        self._loan = _Loan(self.lane, spare)


_teams: "WeakSet[Team]" = WeakSet()
_lanes: "WeakSet[Lane]" = WeakSet()


def _end_threads() -> None:
    for team in list(_teams):
        team.end_threads()


def _lose_threads() -> None:
    for team in list(_teams):
        team.lose_threads()
    for lane in list(_lanes):
        lane.threads = -1  # so that the team is asked again


at_fork(before=_end_threads, after_in_child=_lose_threads)
