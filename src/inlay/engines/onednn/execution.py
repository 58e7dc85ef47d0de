"""Execution of primitives: memories are bound once, then each execution is one call of the library.

Each Python thread has its own `ThreadContext`: a stream, a scratchpad that all its primitives share, and the number of
OpenMP threads that was set last.

    contexts.current                    context of the calling thread, created at the first access
    context.reserve(nbytes)             grows the scratchpad
    context.set_num_threads(threads)    sets the number of OpenMP threads for calls of this thread

One scratchpad suffices because the primitives of a thread run one after the other; it is as large as the largest
request. When a thread ends, its context is reused by the next new thread: SYCL keeps 20 kB for each stream that ever
executed.

**Forks.** A fork copies only the calling thread, and the library would wait for the missing ones. OpenMP threads are
therefore ended before the fork, and the parent and the child start new ones when they compute (`omp_pause_resource`,
OpenMP 5.0). With another runtime, or an OpenMP without that function, the child raises an error when it uses the
library.

    bound = executable.bind(memories)    creates a dnnl_memory for each argument and an array of (code, memory)
    bound()                              calls dnnl_primitive_execute, and waits if the library is asynchronous

Several threads may call a `BoundPrimitive` at once, because each uses its own context. A primitive always runs on the
number of threads that it was created for: its scratchpad has room for that number. When a `BoundPrimitive` is deleted,
its `ArgumentArray` is reused with other addresses.
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
from inlay.engines.onednn.library import Library, LibraryHandle, create_handle
from inlay.errors import InlayError, InvalidArguments, PerformanceWarning
from inlay.forks import at_fork
from inlay.memory import Memory
from inlay.memory.buffers import address_of, allocate
from inlay.onednn_abi import ARGUMENTS, IN_ORDER, ExecutionArgument
from inlay.primitives.engine import ThreadTeam
from inlay.reordering.threads import apply_thread_limit

MOST_PER_PROCESSOR: Final = 16
"""Maximum number of OpenMP threads per processor: GNU OpenMP ends the process at about 30,000 threads."""


def limit_openmp_threads(threads: int, processors: int) -> int:
    """Return the smaller of `threads`, the setting of OpenMP, and the maximum for this number of processors.

    Warns:
        PerformanceWarning: the maximum is smaller.

    >>> limit_openmp_threads(8, 2)
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
    """The OpenMP threads of the library; OpenMP keeps their number separately for each Python thread."""

    def __init__(self, library: Library) -> None:
        """Look up the functions of the OpenMP that the library is linked to; other runtimes have none."""
        self._library = library
        self._ended_threads = self._lost_threads = False
        self._pause = _find_pause_function(library)
        _teams.add(self)
        self._set: Any = None
        self.max_threads = 0
        """Number of threads that OpenMP starts by default; 0 with another runtime."""
        if library.runtime == "omp" and hasattr(library.cdll, "omp_set_num_threads"):
            most: Any = library.cdll["omp_get_max_threads"]
            most.restype = c_int
            self._set = library.cdll["omp_set_num_threads"]
            self._set.argtypes = (c_int,)
            self._set.restype = None
            self.max_threads = limit_openmp_threads(most(), os.cpu_count() or 1)

    @property
    def num_threads(self) -> int:
        """Number of threads that `inlay.set_num_threads` allows now; 0 with a runtime that has no such limit."""
        return apply_thread_limit(self.max_threads)

    def set_num_threads(self, threads: int) -> None:
        """Set the number of OpenMP threads for the calling Python thread.

        Raises:
            InlayError: this process was forked and the threads of the library did not survive.
        """
        self.require_threads()
        if self._set is not None:
            self._set(threads)

    def require_threads(self) -> None:
        """Raise an error if the library cannot compute in this process.

        Raises:
            InlayError: this process was forked and the threads of the library did not survive.
        """
        if self._lost_threads:
            raise InlayError(
                f"{self._library.name} runs on {self._library.runtime} and was used before this process was forked, "
                "which left its threads behind: start processes by spawn, as multiprocessing.get_context('spawn') does"
            )

    def end_threads(self) -> None:
        """End the library's threads of the calling Python thread, before a fork."""
        self._ended_threads = self._pause()

    def mark_threads_lost(self) -> None:
        """Record in a forked child that the library cannot compute, unless its threads were ended before the fork."""
        self._lost_threads |= not self._ended_threads


_PAUSE: Final = 1
"""omp_pause_soft: threads end, settings stay."""
_PAUSING: Final = ("omp_pause_resource", "omp_get_initial_device")


def _find_pause_function(library: Library) -> Callable[[], bool]:
    """Return a function that ends the library's threads of the calling thread and returns whether it succeeded."""
    if library.runtime == "sequential":
        return lambda: True
    if library.runtime != "omp" or not all(hasattr(library.cdll, name) for name in _PAUSING):
        return lambda: False
    pause, host = (library.cdll[name] for name in _PAUSING)
    return lambda: pause(_PAUSE, host()) == 0


_TEAM_FUNCTIONS: Final = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")


def find_thread_team(library: Library) -> ThreadTeam | None:
    """Return the entry points of GNU OpenMP, if the library is linked to it; None with another runtime or OpenMP."""
    if library.runtime != "omp" or not all(hasattr(library.cdll, name) for name in _TEAM_FUNCTIONS):
        return None
    return ThreadTeam(*(cast(library.cdll[name], c_void_p).value or 0 for name in _TEAM_FUNCTIONS))


class ThreadContext:
    """The resources of one Python thread for executions: a stream, a scratchpad, a number of threads."""

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
    """Address of the `dnnl_stream_t`."""
    memory: int
    """Address of the `dnnl_memory_t` of the scratchpad."""
    size: int
    """Size of the scratchpad in bytes."""
    threads: int
    """Number of OpenMP threads that was set last in this thread; -1 if none was set."""

    def __init__(self, library: Library, engine: LibraryHandle, scratch: LibraryHandle, team: OpenMPTeam) -> None:
        """Create a stream and an empty scratchpad; `scratch` is the native descriptor of a row of bytes."""
        self._library, self._engine, self._team = library, engine, team
        self._stream = create_handle(library, "stream_create", "stream", engine.value, IN_ORDER)
        self._buffer = allocate(0)
        self._handle = create_handle(library, "memory_create", "memory", scratch.value, engine.value, None)
        self.stream, self.memory = self._stream.value, self._handle.value
        self.size, self.threads = 0, -1
        _thread_contexts.add(self)

    def set_num_threads(self, threads: int) -> None:
        """Set the number of OpenMP threads for later executions of this Python thread."""
        self._team.set_num_threads(threads)
        self.threads = threads

    def reserve(self, nbytes: int) -> None:
        """Grow the scratchpad to at least `nbytes` bytes.

        Raises:
            OutOfMemory: the memory cannot be allocated.
        """
        if nbytes > self.size:
            self.wait()
            larger = allocate(nbytes)
            set_handle = self._library.functions["memory_set_data_handle"]
            self._library.require(set_handle(self.memory, address_of(larger)), lambda: "its scratchpad")
            self._buffer, self.size = larger, nbytes

    def wait(self) -> None:
        """Wait until all executions that this thread started are complete.

        Raises:
            InlayError: this process was forked and the threads of the library did not survive.
        """
        # Without this check, `stream_wait` waits forever for a lock that a lost thread held at the fork.
        self._team.require_threads()
        self._library.require(self._library.functions["stream_wait"](self.stream), lambda: "a stream")


class _ContextLease:
    """Returns the context of a thread to the list of spare contexts when the thread ends."""

    __slots__ = ("_context", "_spare")

    def __init__(self, context: ThreadContext, spare: list[ThreadContext]) -> None:
        self._context, self._spare = context, spare

    def __del__(self) -> None:
        self._context.threads = -1  # the number that was set in OpenMP was set for the ended thread
        self._spare.append(self._context)


class ThreadContexts(threading.local):
    """The context of each thread, created or reused at the first access in the thread."""

    def __init__(self, spare: list[ThreadContext], make: Callable[[], ThreadContext]) -> None:
        """Reuse a context of `spare`, or create one by `make`; Python calls this once in each thread."""
        try:
            self.current = spare.pop()
        except IndexError:
            self.current = make()
        self._lease = _ContextLease(self.current, spare)


_teams: "WeakSet[OpenMPTeam]" = WeakSet()
_thread_contexts: "WeakSet[ThreadContext]" = WeakSet()


def _end_threads() -> None:
    """End the OpenMP threads of the forking thread."""
    for team in list(_teams):
        team.end_threads()


def _lose_threads() -> None:
    """Record in a forked child which libraries cannot compute."""
    for team in list(_teams):
        team.mark_threads_lost()
    for context in list(_thread_contexts):
        context.threads = -1  # the next execution sets the number again, which raises an error if threads are lost


at_fork(before=_end_threads, after_in_child=_lose_threads)


_SCRATCHPAD = ARGUMENTS["scratchpad"]
_ROW_BYTES = sizeof(ExecutionArgument)
_MEMORY_OFFSET = ExecutionArgument.memory.offset
_MAX_SCRATCHPAD_ARRAYS = 64
_MAX_SPARE = 4
_PLAIN_KINDS = ("blocked", "opaque")
"""Kinds of descriptors whose memory has one buffer, so that a memory object can be reused with another address."""


@dataclass(frozen=True, slots=True)
class ExecutionPlan:
    """The data that all executions of a primitive share."""

    primitive: LibraryHandle
    """The primitive of the library."""
    arguments: Sequence[Argument]
    """Arguments that the caller binds."""
    ignored: frozenset[str]
    """Names of arguments that the caller may bind although the primitive does not use them, such as statistics."""
    implicit: Sequence[Argument]
    """Arguments that the library needs and the caller does not bind; the engine binds memory of zeros."""
    scratch: int
    """Size of the scratchpad that the engine provides, in bytes; 0 for none."""
    threads: int
    """Number of threads that the primitive runs on."""
    is_asynchronous: bool
    """True if a call only starts an execution, so that the engine must wait for it."""
    operation_name: str
    """Kind and direction of the operation, for messages."""


class ArgumentArray:
    """The array of (code, memory object) that is passed to an execution; owns the memory objects."""

    __slots__ = ("_by_scratchpad", "_destroy", "array", "handles")

    def __init__(self, library: Library, count: int) -> None:
        """Allocate an array of `count` arguments, without memory objects."""
        self._destroy = library.functions["memory_destroy"]
        self.array: Array[ExecutionArgument] = (ExecutionArgument * count)()
        """Codes and addresses of memory objects."""
        self.handles: tuple[int, ...] = ()
        """Addresses of the memory objects; empty until all are created."""
        self._by_scratchpad: dict[int, Array[ExecutionArgument]] = {}

    def with_scratchpad(self, memory: int) -> "Array[ExecutionArgument]":
        """Return the array with the memory object of a scratchpad as its last argument."""
        extended = self._by_scratchpad.get(memory)
        if extended is None:
            extended = (ExecutionArgument * (len(self.array) + 1))(*self.array, ExecutionArgument(_SCRATCHPAD, memory))
            if len(self._by_scratchpad) >= _MAX_SCRATCHPAD_ARRAYS:
                self._by_scratchpad.clear()
            self._by_scratchpad[memory] = extended
        return extended

    def __del__(self) -> None:
        for entry in self.array:
            if entry.memory:
                self._destroy(entry.memory)


class Executable:
    """A primitive of the library, to which memories are bound."""

    __slots__ = (
        "_engine",
        "_names",
        "_set_handle",
        "_spare",
        "count",
        "execute",
        "library",
        "plan",
        "primitive",
        "scratch",
        "thread_contexts",
        "threads",
    )

    def __init__(
        self, library: Library, thread_contexts: ThreadContexts, engine: LibraryHandle, plan: ExecutionPlan
    ) -> None:
        """Look up everything that executions need."""
        self.library, self.thread_contexts, self.plan, self._engine = library, thread_contexts, plan, engine
        self.execute = library.functions["primitive_execute"]
        self.primitive, self.scratch, self.threads = plan.primitive.value, plan.scratch, plan.threads
        self.count = len(plan.arguments) + len(plan.implicit) + bool(plan.scratch)
        self._set_handle = library.functions["memory_set_data_handle"]
        self._names = frozenset(argument.name for argument in plan.arguments) | plan.ignored
        is_plain = all(argument.desc.kind in _PLAIN_KINDS for argument in plan.arguments)
        self._spare: list[ArgumentArray] | None = [] if is_plain and not plan.implicit else None

    def bind(self, memories: Mapping[str, Memory]) -> "BoundPrimitive":
        """Bind memories, by argument name, to the primitive.

        Raises:
            InvalidArguments: an argument is missing, or a name is not an argument.
            OutOfMemory: the library cannot create a memory object.
        """
        if memories.keys() != self._names:
            self._refuse(memories)
        owned = dict(memories)
        array = self._reuse_array(owned) if self._spare else self._create_array(owned)
        return BoundPrimitive(self, array, owned)

    def _reuse_array(self, memories: dict[str, Memory]) -> ArgumentArray:
        """Return the array of a deleted `BoundPrimitive` with the addresses of these memories."""
        try:
            assert self._spare is not None
            reused = self._spare.pop()
        except IndexError:  # another thread took the last one
            return self._create_array(memories)
        for handle, argument in zip(reused.handles, self.plan.arguments, strict=True):
            status = self._set_handle(handle, memories[argument.name].address + argument.shift)
            if status:
                raise self.library.error(status, f"memory of {argument.name}, {argument.desc!r}")
        return reused

    def _create_array(self, memories: dict[str, Memory]) -> ArgumentArray:
        """Create memory objects for all arguments; implicit arguments are added to `memories`."""
        for argument in self.plan.implicit:
            memories[argument.name] = Memory(argument.desc)
            memories[argument.name].buffer[:] = 0
        every = (*self.plan.arguments, *self.plan.implicit)
        created = ArgumentArray(self.library, len(every))
        for i, argument in enumerate(every):
            created.array[i].code = argument.code
            field = addressof(created.array) + i * _ROW_BYTES + _MEMORY_OFFSET
            status = self._create_memory(argument, memories[argument.name], c_void_p.from_address(field))
            if status:
                raise self.library.error(status, f"memory of {argument.name}, {argument.desc!r}")
        created.handles = tuple(entry.memory for entry in created.array)
        return created

    def _create_memory(self, argument: Argument, memory: Memory, out: c_void_p) -> int:
        """Create a `dnnl_memory_t` for `memory`, store its address in `out`, and return the status."""
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

    def recycle(self, array: ArgumentArray) -> None:
        """Store the array of a deleted `BoundPrimitive` for reuse; at most `_MAX_SPARE` arrays are stored."""
        if self._spare is not None and len(self._spare) < _MAX_SPARE:
            self._spare.append(array)

    def _refuse(self, memories: Mapping[str, Memory]) -> None:
        """Raise the error that names a missing or an unknown argument."""
        names = [*(argument.name for argument in self.plan.arguments), *sorted(self.plan.ignored)]
        missing = [name for name in names if name not in memories]
        problem = f"{missing[0]} is missing" if missing else f"there is no {min(memories.keys() - set(names))}"
        raise InvalidArguments(f"memories of {self.plan.operation_name}: {problem}; it takes {', '.join(names)}")


class BoundPrimitive:
    """A primitive with its memories; each call executes it once.

    If the library is asynchronous, `submit` only starts the execution, and the caller keeps this object alive until
    `OnednnEngine.wait` returns.
    """

    __slots__ = ("__weakref__", "_array", "executable", "memories")

    executable: Executable
    """The primitive."""
    memories: Mapping[str, Memory]
    """The bound memories by argument name, implicit arguments included."""

    def __init__(self, executable: Executable, array: ArgumentArray, memories: dict[str, Memory]) -> None:
        """Take `array`, which is recycled when this object is deleted."""
        self.executable, self._array, self.memories = executable, array, memories

    def submit(self) -> None:
        """Start an execution; executions of one thread run in the order of their calls.

        Raises:
            OutOfMemory: the scratchpad cannot be allocated.
            InlayError: the library fails.
        """
        executable = self.executable
        context = executable.thread_contexts.current
        if context.threads != executable.threads:
            context.set_num_threads(executable.threads)
        array = self._array.array
        if executable.scratch:
            if context.size < executable.scratch:
                context.reserve(executable.scratch)
            array = self._array.with_scratchpad(context.memory)
        status = executable.execute(executable.primitive, context.stream, executable.count, array)
        if status:
            raise executable.library.error(status, f"an execution of {executable.plan.operation_name}")

    def __call__(self) -> None:
        """Execute the primitive and wait for it.

        Raises:
            OutOfMemory, InlayError: as `submit`.
        """
        self.submit()
        if self.executable.plan.is_asynchronous:
            self.executable.thread_contexts.current.wait()

    def arguments(self, context: ThreadContext) -> "Array[ExecutionArgument]":
        """Return the arguments of an execution in the thread of `context`, whose scratchpad is large enough."""
        return self._array.with_scratchpad(context.memory) if self.executable.scratch else self._array.array

    def __del__(self) -> None:
        self.executable.recycle(self._array)
