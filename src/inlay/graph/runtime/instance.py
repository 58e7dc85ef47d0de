"""`Instance`: a compiled program bound to memory of its own.

    instance.feed(check_inputs(inputs, ...))    copies each input into its buffer, or binds the steps to its memory
    instance.run()                              executes one flat list of calls
    instance.fetch(out)                         copies results into arrays of the caller or new ones

An engine may return from a call before the step is done. The instance waits for the engine before NumPy or Inlay reads
a result, and at the end of a run. One thread uses an instance at a time; `InstancePool` has an instance for each run
that goes on at once.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from inlay.data_type import as_data_type
from inlay.descriptor import MemoryDesc
from inlay.errors import OutOfMemory
from inlay.graph.background import yield_to_runs
from inlay.graph.network import Tensor
from inlay.graph.op_graph import Array
from inlay.graph.program import Program
from inlay.graph.runtime.arena import MemoryPlan
from inlay.graph.runtime.guards import NO_GUARDS, RunGuards, batched_guard, guard, stored_dtype
from inlay.graph.runtime.prepared_steps import Call, PreparedStep
from inlay.memory import Memory, reorder
from inlay.memory.buffers import Bytes, address_of, allocate
from inlay.memory.frameworks import to_numpy
from inlay.memory.reorder_cache import cached_desc, find_reorder
from inlay.primitives.engine import Engine


@dataclass(frozen=True, slots=True)
class CompiledProgram:
    """A compiled program: all that its instances share."""

    program: Program
    """The program."""
    tensors: Mapping[str, Tensor]
    """Dims and types of the tensors that buffers hold."""
    prepared: Sequence[PreparedStep]
    """The compiled steps in order."""
    memory_plan: MemoryPlan
    """The location of every buffer."""
    engine: Engine
    """The engine that computes the steps."""
    guards: RunGuards = NO_GUARDS
    """The buffers that a run checks for NaN, infinities and very large numbers."""

    @property
    def scratch(self) -> int:
        """Bytes of the scratchpad that an instance provides; an engine may have another one of its own."""
        return max((prepared.scratch for prepared in self.prepared), default=0)


@dataclass(frozen=True, slots=True)
class _BatchEntry:
    """A call that the engine can execute in one batch with its neighbors: a step, or a check between steps."""

    step: str
    """Name of the step; empty for a check."""
    call: Any
    """The call, which `Engine.batch` accepts."""


_MOST_COPIED = 1 << 16
"""Most bytes of an input or result that NumPy copies on the calling thread. A copy takes 1 to 5 us; to bind the readers
of an input to another address takes 10 to 30 us, and to call a reorder about 5 us."""


@dataclass(frozen=True, slots=True)
class _InputSlot:
    """The buffer of an input."""

    buffer: str
    """Name of the buffer."""
    allocation: str
    """Name of its allocation."""
    is_external: bool
    """True if steps may read the caller's memory in place of the buffer."""
    is_row_major: bool
    """True if the buffer has the format of a row-major array."""
    is_state: bool
    """True if steps write the caller's memory, which a `DecodingState` keeps at one address."""
    array: Array | None
    """The elements of the buffer, whose address never changes; None if the caller's memory may replace it."""


@dataclass(frozen=True, slots=True)
class _OutputSlot:
    """The buffer of an output."""

    tensor: Tensor
    """Dims and type of the output."""
    buffer: str
    """Name of the buffer."""
    array: Array | None
    """The elements of the buffer, if it is small, row-major, and its address never changes; else None."""


class Instance:
    """A compiled program with memory, ready to run."""

    def __init__(self, compiled: CompiledProgram) -> None:
        """Allocate memory, and bind all steps to it.

        Raises:
            OutOfMemory: it cannot be allocated.
        """
        self.compiled = compiled
        """The compiled program."""
        plan = compiled.memory_plan
        try:
            arena = allocate(plan.arena.nbytes)
            self._external = {name: allocate(plan.sizes[name]) for name in sorted(plan.external)}
            self._scratch = allocate(compiled.scratch)
        except OutOfMemory:
            raise OutOfMemory(
                f"{plan.nbytes + compiled.scratch} bytes for the tensors of a run cannot be allocated: give the inputs "
                "smaller dims, or a smaller batch"
            ) from None
        self._allocations: dict[str, Bytes] = {
            name: arena[offset : offset + plan.sizes[name]] for name, offset in plan.arena.offsets.items()
        }
        self._allocations |= self._external
        self.dynamic: dict[str, Array] = {}
        """Result of the last run for each output whose dims depend on the data, by name."""
        self._memories: dict[str, Memory] = {}
        self._calls: list[Call] = []
        self._step_calls: dict[str, Call] = {}
        self._replace_call: dict[str, Callable[[Any], None]] = {}
        self._bound_states: dict[str, Array | Memory] = {}  # the states to which the steps are bound
        self._waits = any(prepared.is_submitted for prepared in compiled.prepared)
        self._inputs = {tensor: self._input_slot(name) for tensor, name in compiled.program.inputs.items()}
        self._outputs = {tensor: self._output_slot(name) for tensor, name in compiled.program.outputs.items()}
        self._fill()
        self._readers = {name: self._readers_of(name) for name in plan.external}

    def _fill(self) -> None:
        """Bind every step; successive steps that the engine can batch become one call."""
        guards = self.compiled.guards
        pending: list[_BatchEntry] = []
        for name in guards.inputs:
            if self._inputs[self.compiled.program.buffers[name].tensor].array is None:
                self._calls.append(partial(self._guard, name))
            else:
                self._add_guard(name, pending)
        for prepared in self.compiled.prepared:
            yield_to_runs()
            call, name = prepared.bind(self), prepared.step.name
            if call is None:
                continue
            self._step_calls[name] = call
            if prepared.is_joined:
                pending.append(_BatchEntry(name, call))
            else:
                self._add_batch(pending)
                self._replace_call[name] = partial(self._calls.__setitem__, len(self._calls))
                self._calls.append(call)
            for buffer in (guards.after or {}).get(name, ()):
                self._add_guard(buffer, pending)
        self._add_batch(pending)

    def _add_guard(self, name: str, pending: list[_BatchEntry]) -> None:
        """Add the check of a buffer: to the batch if the engine can execute it there, else as a call of its own.

        A call from Python between two calls that use the engine's threads slows down the second one.
        """
        is_masked = name in self.compiled.guards.masked
        is_fixed = self.compiled.memory_plan.locations[name].allocation not in self._external
        check = batched_guard(self.compiled.engine, self._elements(name), is_masked=is_masked) if is_fixed else None
        if check is not None:
            pending.append(_BatchEntry("", check))
        else:
            self._add_batch(pending)
            self._calls.append(partial(self._guard, name))

    def _guard(self, name: str) -> None:
        """Check a buffer at its present address; an input may have another one in each run."""
        guard(self._elements(name), is_masked=name in self.compiled.guards.masked)

    def _elements(self, name: str) -> Array:
        """Return the present elements of a buffer, padding included."""
        compiled = self.compiled
        return self._data(name).view(stored_dtype(compiled.program.buffers[name], compiled.tensors))

    def _data(self, name: str) -> Bytes:
        """Return the present bytes of a buffer."""
        location = self.compiled.memory_plan.locations[name]
        return self._allocations[location.allocation][location.offset : location.end]

    def _add_batch(self, pending: list[_BatchEntry]) -> None:
        """Append the pending entries as batches of the engine, and empty the list."""
        if not pending:
            return
        steps = iter(one.step for one in pending)
        for batch in self.compiled.engine.batch([one.call for one in pending]):
            self._calls.append(batch.submit)
            for i in range(len(batch)):
                if step := next(steps):
                    self._replace_call[step] = partial(batch.put, i)
        pending.clear()
        if self._waits:
            self._calls.append(self._wait)

    def _wait(self) -> None:
        self.compiled.engine.wait()

    def _readers_of(self, allocation: str) -> list[PreparedStep]:
        """Return the steps that read an allocation, or write it if it is a state."""

        def used_buffers(prepared: PreparedStep) -> tuple[str, ...]:
            return *prepared.step.reads.values(), *prepared.step.writes.values()

        locations = self.compiled.memory_plan.locations
        return [
            prepared
            for prepared in self.compiled.prepared
            if any(locations[name].allocation == allocation for name in used_buffers(prepared))
        ]

    def memory(self, name: str) -> Memory:
        """Return the memory of a buffer that has a descriptor."""
        found = self._memories.get(name)
        if found is None:
            desc, location = self.compiled.program.buffers[name].desc, self.compiled.memory_plan.locations[name]
            assert desc is not None
            found = self._memories[name] = Memory(desc, self._allocations[location.allocation][location.offset :])
        return found

    def array(self, name: str) -> Array:
        """Return the elements of a buffer in a plain format as an array that shares its memory.

        Its type is that of the buffer, which may be narrower than that of the tensor.
        """
        buffer, location = self.compiled.program.buffers[name], self.compiled.memory_plan.locations[name]
        tensor = self.compiled.tensors[buffer.tensor]
        if buffer.desc is None:
            data = self._allocations[location.allocation][location.offset : location.end]
            return data.view(tensor.dtype).reshape(tensor.dims)
        return to_numpy(self.memory(name), copy=False).view(stored_dtype(buffer, self.compiled.tensors))

    def scratch(self, desc: MemoryDesc) -> Memory:
        """Return the scratchpad that steps share, as memory of `desc`."""
        return Memory(desc, self._scratch)

    def _input_slot(self, name: str) -> _InputSlot:
        """Return the description of an input's buffer."""
        allocation, is_row_major = self.compiled.memory_plan.locations[name].allocation, self._is_row_major(name)
        is_external = allocation in self._external
        is_state = name in self.compiled.program.states.values()  # steps write it in the caller's memory
        is_small = not is_external or self._external[allocation].size <= _MOST_COPIED
        is_fixed = is_row_major and is_small and not is_state
        array = self.array(name) if is_fixed else None
        return _InputSlot(name, allocation, is_external, is_row_major, is_state, array)

    def _output_slot(self, name: str) -> _OutputSlot:
        """Return the description of an output's buffer."""
        location = self.compiled.memory_plan.locations.get(name)
        tensor = self.compiled.tensors[self.compiled.program.buffers[name].tensor]
        is_fixed = (
            location is not None
            and not tensor.is_dynamic
            and location.allocation not in self._external
            and location.end - location.offset <= _MOST_COPIED
            and self._is_row_major(name)
        )
        return _OutputSlot(tensor, name, self.array(name) if is_fixed else None)

    def _is_row_major(self, name: str) -> bool:
        """Return whether the elements of a buffer are in the order and the size of a row-major array."""
        desc = self.compiled.program.buffers[name].desc
        return desc is None or (desc.data_type is not None and desc == cached_desc(desc.dims, desc.data_type, None))

    def feed(self, inputs: Mapping[str, Array | Memory]) -> None:
        """Make all inputs available to the steps.

        Small inputs are copied; larger ones are read in place where their format allows it, and copied elsewhere.
        """
        for tensor, value in inputs.items():
            if value is self._bound_states.get(tensor):
                continue
            slot = self._inputs[tensor]
            if slot.array is not None and not isinstance(value, Memory):
                np.copyto(slot.array, value, casting="no")
                continue
            is_replaceable = slot.is_external and slot.array is None
            data = self._bytes_in_place(slot, value) if is_replaceable else None
            if is_replaceable:
                self._rebind(slot.allocation, self._external[slot.allocation] if data is None else data)
            if data is None:
                self._bound_states.pop(tensor, None)
                self._copy(slot.buffer, value)
            elif slot.is_state:
                self._bound_states[tensor] = value

    def _bytes_in_place(self, slot: _InputSlot, value: Array | Memory) -> Bytes | None:
        """Return the bytes of an input if it has the format of its buffer; None if it must be copied."""
        if isinstance(value, Memory):
            return value.buffer if value.desc == self.compiled.program.buffers[slot.buffer].desc else None
        return value.reshape(-1).view(np.uint8) if slot.is_row_major and value.flags.aligned else None

    def _rebind(self, allocation: str, data: Bytes) -> None:
        """Replace the memory of an external allocation by `data`, and bind its readers anew if the address changed."""
        if address_of(self._allocations[allocation]) == address_of(data):
            return
        self._allocations[allocation] = data
        for name, location in self.compiled.memory_plan.locations.items():
            if location.allocation == allocation:
                self._memories.pop(name, None)
        for prepared in self._readers[allocation]:
            call = prepared.bind(self)
            if call is not None:
                self._step_calls[prepared.step.name] = call
                self._replace_call[prepared.step.name](call)

    def _copy(self, name: str, value: Array | Memory) -> None:
        """Copy an input into its buffer."""
        desc = self.compiled.program.buffers[name].desc
        if desc is not None and isinstance(value, Memory):
            reorder(value, desc, out=self.memory(name))
        else:
            np.copyto(self.array(name), to_numpy(value) if isinstance(value, Memory) else value, casting="no")

    def run(self) -> None:
        """Execute all calls; if one fails, wait for the engine before the exception propagates."""
        is_done = False
        try:
            for call in self._calls:
                call()
            is_done = True
        finally:
            if not is_done:
                self.finish()

    def release_memory(self) -> None:
        """Release all memory, without waiting for the collection of cyclic references; the instance is of no use then.

        Results of runs remain valid.
        """
        self._calls, self._step_calls, self._replace_call = [], {}, {}
        self._memories, self._allocations, self._external, self._bound_states = {}, {}, {}, {}
        self._inputs, self._outputs, self.dynamic = {}, {}, {}
        self._scratch = self._scratch[:0].copy()

    def calls(self) -> list[tuple[PreparedStep, Call | None]]:
        """Return every step with its present call, None for a step that writes no element."""
        return [(prepared, self._step_calls.get(prepared.step.name)) for prepared in self.compiled.prepared]

    def finish(self) -> None:
        """Wait until the engine has finished all submitted calls."""
        if self._waits:
            self._wait()

    def fetch(self, out: Mapping[str, Array]) -> dict[str, Array]:
        """Return all results, in the row-major arrays of `out` or in new ones."""
        return {name: self._fetch_output(slot, out.get(name)) for name, slot in self._outputs.items()}

    def _fetch_output(self, slot: _OutputSlot, into: Array | None) -> Array:
        """Return an output, in the row-major array `into` or in a new one."""
        if slot.array is None:
            return self.copy_out(slot.buffer, into)
        result = _allocate_array(slot.tensor) if into is None else into
        np.copyto(result, slot.array)
        return result

    def copy_out(self, name: str, into: Array | None = None) -> Array:
        """Copy the elements of a buffer into a row-major array, `into` or a new one.

        Raises:
            OutOfMemory: a new array cannot be allocated.
        """
        buffer = self.compiled.program.buffers[name]
        tensor = self.compiled.tensors[buffer.tensor]
        if tensor.is_dynamic:
            return self.dynamic[tensor.name]
        result = _allocate_array(tensor) if into is None else into
        desc = buffer.desc
        if desc is None or desc.data_type is None:
            np.copyto(result, self.array(name))
        elif result.size:
            is_narrow = desc.data_type.itemsize < tensor.dtype.itemsize
            plain = cached_desc(desc.dims, as_data_type(tensor.dtype) if is_narrow else desc.data_type, None)
            find_reorder(desc, plain).run(self.memory(name).address, address_of(result))
        return result


def _allocate_array(tensor: Tensor) -> Array:
    """Allocate an array for a tensor."""
    try:
        return np.empty(tensor.dims, tensor.dtype)
    except MemoryError:
        raise OutOfMemory(
            f"{tensor.name!r}, {tensor.dtype} of dims {tensor.dims}, cannot be allocated: give the inputs smaller "
            "dims, or a smaller batch"
        ) from None


class InstancePool:
    """The instances of a compiled program: as many as ever ran at once."""

    __slots__ = ("_is_closed", "compiled", "free")

    def __init__(self, compiled: CompiledProgram) -> None:
        """Create one instance.

        Raises:
            OutOfMemory: its memory cannot be allocated.
        """
        self.compiled = compiled
        """The compiled program."""
        self.free = [Instance(compiled)]
        """The instances that no run uses now."""
        self._is_closed = False

    @contextmanager
    def instance(self) -> Iterator[Instance]:
        """Provide an instance that no other thread uses, creating one if all are in use.

        Raises:
            OutOfMemory: the memory of another one cannot be allocated.
        """
        instance = self.acquire()
        try:
            yield instance
        finally:
            self.release(instance)

    def acquire(self) -> Instance:
        """Return an instance that no other thread uses, until `release` gets it back; for `instance` without its cost.

        Raises:
            OutOfMemory: the memory of another one cannot be allocated.
        """
        try:
            return self.free.pop()
        except IndexError:
            return Instance(self.compiled)

    def release(self, instance: Instance) -> None:
        """Make an instance available to other runs; if the pool is closed, release its memory."""
        self.free.append(instance)
        if self._is_closed:
            self.close()

    def close(self) -> None:
        """Release the memory of all instances; one in use is released when its run ends.

        Later runs are possible; each has an instance of its own.
        """
        self._is_closed = True
        with suppress(IndexError):  # several threads may close it, so the list may be empty at any time
            while True:
                self.free.pop().release_memory()
