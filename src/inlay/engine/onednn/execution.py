"""Running a primitive: its arguments settled once, then one call of the library each time.

    bound = executable.bind(memories)       a dnnl_memory for each argument, an array of (code, memory)
    bound()                                 dnnl_primitive_execute, and a wait where the library only begins there

What is bound once may be called from several threads at once: what they must not share stands in their `Lane`s. A
primitive runs on as many threads as it was made for, whatever was said since: its scratchpad has room for so many.

The library's memory objects are used again: those of a `Bound` that is gone serve the next one, with other addresses.
"""

from collections.abc import Mapping, Sequence
from ctypes import Array, addressof, byref, c_void_p, sizeof
from dataclasses import dataclass
from typing import Any

from inlay.engine.onednn.arguments import Argument
from inlay.engine.onednn.handles import Handle
from inlay.engine.onednn.lanes import Lane, Lanes
from inlay.engine.onednn.library import Library
from inlay.errors import InvalidArguments
from inlay.memory import Memory
from inlay.memory.buffers import address_of
from inlay.onednn_abi import ARGUMENTS, ExecutionArgument

_SCRATCHPAD = ARGUMENTS["scratchpad"]
_STEP = sizeof(ExecutionArgument)
_MEMORY_AT = ExecutionArgument.memory.offset
_LANES_REMEMBERED = 64
_SPARE = 4
_PLAIN_KINDS = ("blocked", "opaque")


@dataclass(frozen=True, slots=True)
class Plan:
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

    def __init__(self, library: Library, lanes: Lanes, engine: Handle, plan: Plan) -> None:
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
