"""Execution of primitives: arguments are settled once, then each time is one call of the library.

An `OpenMPTeam` is the threads of the library's OpenMP. Each Python thread executes with a `Lane` of its own: a stream,
a scratchpad that its primitives share, a number of threads.

    lanes.lane              of the calling thread, made when it is first asked for
    lane.reserve(nbytes)    the scratchpad is at least so large
    lane.tell(threads)      OpenMP starts so many for what this thread calls

One scratchpad serves all primitives of a thread because they run one after the other; it is as large as the largest.
When a thread ends, the next one gets its lane: SYCL keeps 20 kB of each stream that ever executed.

**Forks.** A fork copies one thread, and the library would wait for the others. OpenMP ends them before the fork and
starts new ones where they are needed, in the parent and in the child (`omp_pause_resource`, OpenMP 5.0). With another
runtime, or an OpenMP without that function, the library is refused in the child.

    bound = executable.bind(memories)       a dnnl_memory for each argument, an array of (code, memory)
    bound()                                 dnnl_primitive_execute, and a wait where the library only begins there

What is bound once may be called from several threads at once, since each uses its own lane. A primitive runs on as many
threads as it was made for, whatever was set since: its scratchpad has room for so many. The library's memory objects
are used again: those of a `Bound` that is gone serve the next one, with other addresses.
"""

import os
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from ctypes import Array, addressof, byref, c_int, c_void_p, cast, sizeof
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakSet

from inlay.engines.onednn.arguments import Argument
from inlay.engines.onednn.library import Handle, Library, created
from inlay.errors import InlayError, InvalidArguments, PerformanceWarning
from inlay.forks import at_fork
from inlay.memory import Memory
from inlay.memory.buffers import address_of, allocate
from inlay.onednn_abi import ARGUMENTS, IN_ORDER, ExecutionArgument
from inlay.primitives.engine import ThreadTeam
from inlay.reordering.threads import apply_thread_limit

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


class OpenMPTeam:
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
        return apply_thread_limit(self.most)

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


_PAUSE: Final = 1
"""omp_pause_soft: threads end, settings stay."""
_PAUSING: Final = ("omp_pause_resource", "omp_get_initial_device")


def _pausing(library: Library) -> Callable[[], bool]:
    """What ends the threads that the calling thread has in the library, and returns whether it could."""
    if library.runtime == "sequential":
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

    def __init__(self, library: Library, engine: Handle, scratch: Handle, team: OpenMPTeam) -> None:
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


_teams: "WeakSet[OpenMPTeam]" = WeakSet()
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


_SCRATCHPAD = ARGUMENTS["scratchpad"]
_STEP = sizeof(ExecutionArgument)
_MEMORY_AT = ExecutionArgument.memory.offset
_LANES_REMEMBERED = 64
_SPARE = 4
_PLAIN_KINDS = ("blocked", "opaque")


@dataclass(frozen=True, slots=True)
class ExecutionPlan:
    """What all executions of a primitive have in common."""

    primitive: Handle
    """The library's."""
    arguments: Sequence[Argument]
    """What each execution is given."""
    ignored: frozenset[str]
    """What may be given and is of no use, such as statistics that are not asked for."""
    hidden: Sequence[Argument]
    """What the library asks for and nobody gives: memory of the engine's own, of zeros."""
    scratch: int
    """Bytes of the engine's own scratchpad; 0 for none."""
    threads: int
    """On how many it runs."""
    is_asynchronous: bool
    """Whether an execution must be waited for."""
    what: str
    """For messages."""


class Slots:
    """The memory objects of one execution, and the array that the library is given."""

    __slots__ = ("_by_lane", "_destroy", "array", "handles")

    def __init__(self, library: Library, count: int) -> None:
        """Have room for so many."""
        self._destroy = library.functions["memory_destroy"]
        self.array: Array[ExecutionArgument] = (ExecutionArgument * count)()
        """Codes and memory objects."""
        self.handles: tuple[int, ...] = ()
        """The memory objects, once all are there."""
        self._by_lane: dict[int, Array[ExecutionArgument]] = {}

    def with_scratchpad(self, memory: int) -> "Array[ExecutionArgument]":
        """The array of a thread whose scratchpad is `memory`."""
        found = self._by_lane.get(memory)
        if found is None:
            found = (ExecutionArgument * (len(self.array) + 1))(*self.array, ExecutionArgument(_SCRATCHPAD, memory))
            if len(self._by_lane) >= _LANES_REMEMBERED:
                self._by_lane.clear()
            self._by_lane[memory] = found
        return found

    def __del__(self) -> None:
        for entry in self.array:
            if entry.memory:
                self._destroy(entry.memory)


class Executable:
    """A primitive that memories can be bound to."""

    __slots__ = (
        "_engine",
        "_names",
        "_set_handle",
        "_spare",
        "count",
        "execute",
        "lanes",
        "library",
        "plan",
        "primitive",
        "scratch",
        "threads",
    )

    def __init__(self, library: Library, lanes: Lanes, engine: Handle, plan: ExecutionPlan) -> None:
        """Settle what calls look up."""
        self.library, self.lanes, self.plan, self._engine = library, lanes, plan, engine
        self.execute = library.functions["primitive_execute"]
        self.primitive, self.scratch, self.threads = plan.primitive.value, plan.scratch, plan.threads
        self.count = len(plan.arguments) + len(plan.hidden) + bool(plan.scratch)
        self._set_handle = library.functions["memory_set_data_handle"]
        self._names = frozenset(argument.name for argument in plan.arguments) | plan.ignored
        is_plain = all(argument.desc.kind in _PLAIN_KINDS for argument in plan.arguments)
        self._spare: list[Slots] | None = [] if is_plain and not plan.hidden else None

    def bind(self, memories: Mapping[str, Memory]) -> "Bound":
        """The primitive with these memories.

        Raises:
            InvalidArguments: one is missing, or too many are given.
            OutOfMemory: the library says so.
        """
        if memories.keys() != self._names:
            self._refuse(memories)
        given = dict(memories)
        return Bound(self, self._used_again(given) if self._spare else self._new(given), given)

    def _used_again(self, given: dict[str, Memory]) -> Slots:
        """Slots of before with the addresses of these memories."""
        try:
            assert self._spare is not None
            slots = self._spare.pop()
        except IndexError:  # another thread took the last
            return self._new(given)
        for handle, argument in zip(slots.handles, self.plan.arguments, strict=True):
            status = self._set_handle(handle, given[argument.name].address + argument.shift)
            if status:
                raise self.library.error(status, f"memory of {argument.name}, {argument.desc!r}")
        return slots

    def _new(self, given: dict[str, Memory]) -> Slots:
        for argument in self.plan.hidden:
            given[argument.name] = Memory(argument.desc)
            given[argument.name].buffer[:] = 0
        every = (*self.plan.arguments, *self.plan.hidden)
        slots = Slots(self.library, len(every))
        for i, argument in enumerate(every):
            slots.array[i].code = argument.code
            at = addressof(slots.array) + i * _STEP + _MEMORY_AT
            status = self._create(argument, given[argument.name], c_void_p.from_address(at))
            if status:
                raise self.library.error(status, f"memory of {argument.name}, {argument.desc!r}")
        slots.handles = tuple(entry.memory for entry in slots.array)
        return slots

    def _create(self, argument: Argument, memory: Memory, out: c_void_p) -> int:
        """Write a `dnnl_memory_t` of `memory` to `out`; the status."""
        functions = self.library.functions
        if memory.desc.kind == "host_scalar":
            return int(functions["memory_create_host_scalar"](byref(out), argument.pointer, memory.address))
        buffers = memory.buffers
        engine = self._engine.value
        if len(buffers) == 1:
            address = memory.address + argument.shift
            return int(functions["memory_create"](byref(out), argument.pointer, engine, address))
        handles = (c_void_p * len(buffers))(*map(address_of, buffers))
        return int(functions["memory_create_v2"](byref(out), argument.pointer, engine, len(buffers), handles))

    def give_back(self, slots: Slots) -> None:
        """Keep the slots of what is gone, if there are few."""
        if self._spare is not None and len(self._spare) < _SPARE:
            self._spare.append(slots)

    def _refuse(self, memories: Mapping[str, Memory]) -> None:
        names = [*(argument.name for argument in self.plan.arguments), *sorted(self.plan.ignored)]
        missing = [name for name in names if name not in memories]
        problem = f"{missing[0]} is missing" if missing else f"there is no {min(memories.keys() - set(names))}"
        raise InvalidArguments(f"memories of {self.plan.what}: {problem}; it takes {', '.join(names)}")


class Bound:
    """A primitive with its memories: each call computes once.

    `submit` begins only, where the library works in the background; whoever uses it keeps this object until the engine
    was waited for.
    """

    __slots__ = ("__weakref__", "_kept", "_slots", "executable")

    executable: Executable
    """The primitive."""

    def __init__(self, executable: Executable, slots: Slots, kept: dict[str, Memory]) -> None:
        """Use `slots` until this object is gone; `kept` are the memories."""
        self.executable, self._slots, self._kept = executable, slots, kept

    def submit(self) -> None:
        """Begin to compute, in the order of the thread's calls.

        Raises:
            OutOfMemory: there is no room for the scratchpad.
            InlayError: the library fails.
        """
        executable = self.executable
        lane = executable.lanes.lane
        if lane.threads != executable.threads:
            lane.tell(executable.threads)
        array = self._slots.array
        if executable.scratch:
            if lane.size < executable.scratch:
                lane.reserve(executable.scratch)
            array = self._slots.with_scratchpad(lane.memory)
        status = executable.execute(executable.primitive, lane.stream, executable.count, array)
        if status:
            raise executable.library.error(status, f"an execution of {executable.plan.what}")

    def __call__(self) -> None:
        """Compute.

        Raises:
            OutOfMemory, InlayError: as `submit`.
        """
        self.submit()
        if self.executable.plan.is_asynchronous:
            self.executable.lanes.lane.wait()

    def arguments(self, lane: Lane) -> "Array[ExecutionArgument]":
        """What the library is given in the thread of `lane`, whose scratchpad is large enough."""
        return self._slots.with_scratchpad(lane.memory) if self.executable.scratch else self._slots.array

    @property
    def memories(self) -> Mapping[str, Any]:
        """What it is bound to."""
        return self._kept

    def __del__(self) -> None:
        self.executable.give_back(self._slots)
