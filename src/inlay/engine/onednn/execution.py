"""Running a primitive: its arguments settled once, then one call of the library each time.

    bound = implementation.bind(memories)       a dnnl_memory for each argument, an array of (code, memory)
    bound()                                     dnnl_primitive_execute, and a wait where the library only begins there

Each Python thread has a `Lane` of its own: a stream, a scratchpad that all its primitives share, and the number of
threads that the library was last told. So what is bound once may be called from several threads at once.

A primitive runs on as many threads as it was made for, whatever was said since: its scratchpad has room for so many.
"""

import threading
from collections.abc import Mapping, Sequence
from ctypes import Array, addressof, byref, c_int, c_void_p, sizeof
from dataclasses import dataclass
from typing import Any

from inlay.descriptor import MemoryDesc
from inlay.engine.onednn.declarations import ARGUMENTS, IN_ORDER, ExecutionArgument
from inlay.engine.onednn.handles import Handle, created
from inlay.engine.onednn.library import Library
from inlay.errors import InvalidArguments
from inlay.memory import Memory
from inlay.memory.buffers import address_of, allocate
from inlay.reordering.processors import limited

_SCRATCHPAD = ARGUMENTS["scratchpad"]
_STEP = sizeof(ExecutionArgument)
_MEMORY_AT = ExecutionArgument.memory.offset
_LANES_REMEMBERED = 64


class Team:
    """How many threads the library starts: OpenMP's number, which each Python thread has for itself."""

    def __init__(self, library: Library) -> None:
        """Find the functions of the OpenMP that the library was linked to, if it was."""
        self._set: Any = None
        self.most = 0
        """As many as OpenMP starts if it is told nothing; 0 where another runtime decides."""
        if library.runtime == "omp" and hasattr(library.cdll, "omp_set_num_threads"):
            most: Any = library.cdll["omp_get_max_threads"]
            most.restype = c_int
            self._set = library.cdll["omp_set_num_threads"]
            self._set.argtypes = (c_int,)
            self._set.restype = None
            self.most = most()

    @property
    def wanted(self) -> int:
        """What `set_num_threads` allows now; 0 where it has no say."""
        return limited(self.most)

    def tell(self, threads: int) -> None:
        """Set the number for the calling Python thread."""
        if self._set is not None:
            self._set(threads)


class Lane:
    """What one Python thread executes with."""

    __slots__ = ("_buffer", "_engine", "_handle", "_library", "_stream", "_team", "memory", "size", "stream", "threads")

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
            self._buffer = allocate(nbytes)
            set_handle = self._library.functions["memory_set_data_handle"]
            self._library.require(set_handle(self.memory, address_of(self._buffer)), lambda: "its scratchpad")
            self.size = nbytes

    def wait(self) -> None:
        """Return when everything that was begun in this thread is done."""
        self._library.require(self._library.functions["stream_wait"](self.stream), lambda: "a stream")


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a primitive."""

    name: str
    """As the signature calls it."""
    code: int
    """As the library calls it."""
    desc: MemoryDesc
    """What its memory is."""
    handle: Handle
    """The library's descriptor of it, or what that belongs to."""
    pointer: int
    """The library's descriptor of it."""
    shift: int
    """Bytes from the address of the memory to the address that the library is given."""


class Lanes(threading.local):
    """The lane of each thread, made when it is first asked for."""

    def __init__(self, library: Library, engine: Handle, scratch: Handle, team: Team) -> None:
        """Called once in each thread."""
        self.lane = Lane(library, engine, scratch, team)


class Bound:
    """A primitive with its memories: each call computes once.

    `submit` begins only, where the library works in the background; whoever uses it keeps this object until the engine
    was waited for.
    """

    __slots__ = (
        "__weakref__",
        "_arguments",
        "_arrays",
        "_count",
        "_destroy",
        "_execute",
        "_is_asynchronous",
        "_kept",
        "_lanes",
        "_library",
        "_primitive",
        "_scratch",
        "_threads",
        "_what",
    )

    def __init__(
        self,
        library: Library,
        lanes: Lanes,
        primitive: Handle,
        array: "Array[ExecutionArgument]",
        kept: object,
        plan: "Plan",
    ) -> None:
        """Own the memory objects in `array`; `kept` is what must live as long."""
        self._library, self._lanes, self._primitive, self._kept = library, lanes, primitive, kept
        self._count, self._scratch, self._threads = len(array), plan.scratch, plan.threads
        self._is_asynchronous, self._what = plan.is_asynchronous, plan.what
        self._execute = library.functions["primitive_execute"]
        self._destroy = library.functions["memory_destroy"]
        self._arguments = array
        self._arrays: dict[int, Array[ExecutionArgument]] = {}

    def submit(self) -> None:
        """Begin to compute, in the order of the thread's calls."""
        lane = self._lanes.lane
        if lane.threads != self._threads:
            lane.tell(self._threads)
        array = self._arguments
        count = self._count
        if self._scratch:
            if lane.size < self._scratch:
                lane.reserve(self._scratch)
            array = self._arrays.get(lane.memory) or self._with(lane.memory)
            count += 1
        status = self._execute(self._primitive.value, lane.stream, count, array)
        if status:
            raise self._library.error(status, f"an execution of {self._what}")

    def __call__(self) -> None:
        """Compute."""
        self.submit()
        if self._is_asynchronous:
            self._lanes.lane.wait()

    def _with(self, scratchpad: int) -> "Array[ExecutionArgument]":
        """The arguments of a thread whose scratchpad this is."""
        array = (ExecutionArgument * (self._count + 1))(*self._arguments[: self._count])
        array[self._count] = ExecutionArgument(_SCRATCHPAD, scratchpad)
        if len(self._arrays) >= _LANES_REMEMBERED:
            self._arrays.clear()
        self._arrays[scratchpad] = array
        return array

    def __del__(self) -> None:
        for entry in self._arguments:
            if entry.memory:
                self._destroy(entry.memory)


@dataclass(frozen=True, slots=True)
class Plan:
    """What all executions of a primitive have in common."""

    arguments: Sequence[Argument]
    """What each execution is given."""
    hidden: Sequence[Argument]
    """What the library asks for and never reads: memory of the engine's own."""
    scratch: int
    """Bytes of the engine's own scratchpad; 0 for none."""
    threads: int
    """On how many it runs."""
    is_asynchronous: bool
    """Whether an execution must be waited for."""
    what: str
    """For messages."""

    def bound(
        self, library: Library, lanes: Lanes, engine: Handle, primitive: Handle, memories: Mapping[str, Memory]
    ) -> Bound:
        """The primitive with these memories.

        Raises:
            InvalidArguments: one is missing, or too many are given.
        """
        if len(memories) != len(self.arguments) or any(a.name not in memories for a in self.arguments):
            self._refuse(memories)
        given = dict(memories)
        for argument in self.hidden:
            given[argument.name] = Memory(argument.desc)
        array = (ExecutionArgument * len(given))()
        bound = Bound(library, lanes, primitive, array, (given, self), self)
        for i, argument in enumerate((*self.arguments, *self.hidden)):
            array[i].code = argument.code
            status = _create_memory(library, argument, given[argument.name], engine, addressof(array) + i * _STEP)
            if status:
                raise library.error(status, f"memory of {argument.name}, {argument.desc!r}")
        return bound

    def _refuse(self, memories: Mapping[str, Memory]) -> None:
        names = [argument.name for argument in self.arguments]
        missing = [name for name in names if name not in memories]
        problem = f"{missing[0]} is missing" if missing else f"there is no {next(iter(memories.keys() - set(names)))}"
        raise InvalidArguments(f"memories of {self.what}: {problem}; it takes {', '.join(names)}")


def _create_memory(library: Library, argument: Argument, memory: Memory, engine: Handle, at: int) -> int:
    """Write a `dnnl_memory_t` of `memory` into the entry at an address; the status."""
    out = c_void_p.from_address(at + _MEMORY_AT)
    functions = library.functions
    if memory.desc.kind == "host_scalar":
        return int(functions["memory_create_host_scalar"](byref(out), argument.pointer, memory.address))
    buffers = memory.buffers
    if len(buffers) == 1:
        address = memory.address + argument.shift
        return int(functions["memory_create"](byref(out), argument.pointer, engine.value, address))
    handles = (c_void_p * len(buffers))(*map(address_of, buffers))
    return int(functions["memory_create_v2"](byref(out), argument.pointer, engine.value, len(buffers), handles))
