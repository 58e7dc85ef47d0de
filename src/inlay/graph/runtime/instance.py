"""`Instance`: a program in memory of its own, every call bound to its addresses.

    instance.feed(taken(inputs, ...))   copied into its buffer, or read where it lies
    instance.run()                      one flat list of calls
    instance.fetch(out)                 results, in arrays of the caller or new ones

Inputs are arrays of NumPy, tensors of PyTorch, whatever has DLPack, checked against those of the network. Each becomes
an array, row-major, or memory of a descriptor that says its strides; nothing is copied where a descriptor can say them.

What an engine begins and does not finish is waited for once, before NumPy or Inlay reads it or at the end. One thread
uses an instance at a time; a session has a pool of as many as ran at once.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, OutOfMemory, printable
from inlay.graph.network import Tensor
from inlay.graph.op_graph import Array
from inlay.graph.program import Program
from inlay.graph.runtime.arena import Laid
from inlay.graph.runtime.compiling import Call, PreparedStep
from inlay.graph.runtime.guards import NO_GUARDS, RunGuards, guard, joined_guard
from inlay.layout import Dims
from inlay.memory import Memory, reorder
from inlay.memory.buffers import Bytes, address_of, allocate, view_as_array
from inlay.memory.frameworks import from_array, from_torch, to_numpy
from inlay.memory.reorder_cache import cached_desc, find_reorder
from inlay.primitives.engine import Engine

Fed: TypeAlias = Array | Memory
"""An input as instances take it."""


def taken(inputs: object, tensors: Iterable[Tensor]) -> dict[str, Fed]:
    """The inputs of a run by name, of the types that `tensors` say; dims are for the caller to compare.

    Raises:
        InvalidArguments: `inputs` is no mapping, one is missing or unknown, is no array, or has another type.
    """
    wanted = {tensor.name: tensor for tensor in tensors}
    if not isinstance(inputs, Mapping):
        raise InvalidArguments(
            f"inputs are a {type(inputs).__name__}: give a mapping of names to arrays, of {_listed(wanted.values())}"
        )
    if unknown := [name for name in inputs if name not in wanted]:
        raise InvalidArguments(f"the network has no input {unknown[0]!r}: it takes {_listed(wanted.values())}")
    if missing := [name for name in wanted if name not in inputs]:
        raise InvalidArguments(f"input {missing[0]} is missing: the network takes {_listed(wanted.values())}")
    return {name: _taken(tensor, inputs[name]) for name, tensor in wanted.items()}


def dims_of(value: Fed) -> Dims:
    """The dims of an input."""
    return value.desc.dims if isinstance(value, Memory) else value.shape


def require_dims(tensor: Tensor, dims: Dims, remedy: str) -> None:
    """Refuse an input of other dims than the network was compiled for.

    Raises:
        InvalidArguments: so it is.
    """
    if dims != tensor.dims:
        raise InvalidArguments(f"input {tensor.name} has dims {dims}, the session is for {tensor.dims}: {remedy}")


def out_arrays(out: object, tensors: Iterable[Tensor]) -> dict[str, Array]:
    """The arrays that results shall be written to, by name; those that are left out are new.

    Raises:
        InvalidArguments: `out` is no mapping, a name is no output, or an array is none of NumPy's, has other dims or
            another type, is read-only, or not row-major.
    """
    wanted = {tensor.name: tensor for tensor in tensors}
    if out is None:
        return {}
    if not isinstance(out, Mapping):
        raise InvalidArguments(f"out is a {type(out).__name__}: give a mapping of outputs to arrays")
    for name, array in out.items():
        if name not in wanted:
            raise InvalidArguments(f"the network has no output {name!r}: it gives {_listed(wanted.values())}")
        _require_result(wanted[name], array)
    return dict(out)


def _require_result(tensor: Tensor, array: Any) -> None:
    is_fit = isinstance(array, np.ndarray) and array.shape == tensor.dims and array.dtype == tensor.dtype
    if not is_fit or not (array.flags.writeable and array.flags.c_contiguous):
        given = f"{array.dtype} of dims {array.shape}" if isinstance(array, np.ndarray) else f"a {type(array).__name__}"
        raise InvalidArguments(
            f"out of {tensor.name} is {given}: give a writable, row-major array of {tensor.dtype} and dims "
            f"{tensor.dims}"
        )


def _listed(tensors: Iterable[Tensor]) -> str:
    return ", ".join(f"{printable(tensor.name)} {tensor.dims} {tensor.dtype}" for tensor in tensors) or "none"


def _taken(tensor: Tensor, value: Any) -> Fed:
    torch = sys.modules.get("torch")
    is_torch = torch is not None and isinstance(value, torch.Tensor)
    if isinstance(value, Memory):
        fed: Fed = value
    elif is_torch and value.ndim and value.dtype != torch.bool:  # type: ignore[union-attr]
        fed = from_torch(value)
    else:
        fed = _of_array(tensor, value.detach().cpu() if is_torch else value)
    dtype = fed.desc.data_type.dtype if isinstance(fed, Memory) and fed.desc.data_type else getattr(fed, "dtype", None)
    if dtype != tensor.dtype:
        raise InvalidArguments(
            f"input {tensor.name} is {dtype}, the network takes {tensor.dtype}: convert it, as with "
            f"astype({str(tensor.dtype)!r})"
        )
    return fed


def _of_array(tensor: Tensor, value: object) -> Fed:
    """An array as it is if it is row-major, as memory if a descriptor can say its strides, else a copy."""
    if isinstance(value, (list, tuple, str, int, float)):
        raise InvalidArguments(
            f"input {tensor.name} is a {type(value).__name__}: give an array of {tensor.dtype} and dims {tensor.dims}"
        )
    array = np.asarray(value) if isinstance(value, np.generic) else view_as_array(value, f"input {tensor.name}")
    if array.flags.c_contiguous:
        return array
    try:
        return from_array(array)
    except InvalidArguments:
        return np.ascontiguousarray(array)


@dataclass(frozen=True, slots=True)
class Compiled:
    """A program with all that instances share."""

    program: Program
    """What is run."""
    tensors: Mapping[str, Tensor]
    """What the buffers hold."""
    prepared: Sequence[PreparedStep]
    """Its steps."""
    laid: Laid
    """Where its buffers lie."""
    engine: Engine
    """What computes."""
    guards: RunGuards = NO_GUARDS
    """What a run checks."""

    @property
    def scratch(self) -> int:
        """Bytes of the scratchpad that steps share; the engine has one of its own for the others."""
        return max((prepared.scratch for prepared in self.prepared), default=0)


@dataclass(frozen=True, slots=True)
class _Joinable:
    """What the engine may execute in a batch with its neighbors: a step, or a check between steps."""

    step: str
    """The name of the step; empty for a check."""
    call: Any
    """What `batch` of the engine takes."""
    alone: Call
    """What does the same by itself."""


class Instance:
    """A program that can run."""

    def __init__(self, compiled: Compiled) -> None:
        """Take memory, and bind all calls to it.

        Raises:
            OutOfMemory: there is no room.
        """
        self.compiled = compiled
        """The program."""
        laid = compiled.laid
        try:
            arena = allocate(laid.arena.nbytes)
            self._own = {home: allocate(laid.sizes[home]) for home in sorted(laid.lent)}
            self._scratch = allocate(compiled.scratch)
        except OutOfMemory:
            raise OutOfMemory(
                f"{laid.nbytes + compiled.scratch} bytes for the tensors of a run cannot be allocated: give the inputs "
                "smaller dims, or a smaller batch"
            ) from None
        self._homes: dict[str, Bytes] = {
            home: arena[offset : offset + laid.sizes[home]] for home, offset in laid.arena.offsets.items()
        }
        self._homes |= self._own
        self._memories: dict[str, Memory] = {}
        self._calls: list[Call] = []
        self._each: dict[str, Call] = {}
        self._put: dict[str, Callable[[Any], None]] = {}
        self._waits = any(prepared.is_submitted for prepared in compiled.prepared)
        self._fill()
        self._readers = {home: self._readers_of(home) for home in compiled.laid.lent}

    def _fill(self) -> None:
        """Bind every step; what the engine can do together is one call, and is waited for where it is needed."""
        guards = self.compiled.guards
        waiting: list[_Joinable] = []
        self._calls += [partial(self._guard, name) for name in guards.inputs]
        for prepared in self.compiled.prepared:
            call, name = prepared.bound(self), prepared.step.name
            if call is None:
                continue
            self._each[name] = call
            if prepared.is_joined:
                waiting.append(_Joinable(name, call, call))
            else:
                self._join(waiting)
                self._put[name] = partial(self._calls.__setitem__, len(self._calls))
                self._calls.append(call)
            for buffer in (guards.after or {}).get(name, ()):
                self._add_guard(buffer, waiting)
        self._join(waiting)

    def _add_guard(self, name: str, waiting: list[_Joinable]) -> None:
        """Check a buffer after the calls before: with what the engine does next to them, or by a call of its own.

        A call from Python between two calls for the engine's threads makes the second one slower too.
        """
        is_masked, alone = name in self.compiled.guards.masked, partial(self._guard, name)
        joined = None if is_masked else joined_guard(self.compiled.engine, self._data(name))
        if joined is not None:
            waiting.append(_Joinable("", joined, alone))
        else:
            self._join(waiting)
            self._calls.append(alone)

    def _guard(self, name: str) -> None:
        """Check a buffer; where an input is read may be another place in each run."""
        guard(self._data(name), is_masked=name in self.compiled.guards.masked)

    def _data(self, name: str) -> Bytes:
        """The bytes of a buffer where they are now."""
        place = self.compiled.laid.places[name]
        return self._homes[place.home][place.offset : place.end]

    def _join(self, waiting: list[_Joinable]) -> None:
        """Add calls that the engine executes together, and leave none of them waiting."""
        if not any(one.step for one in waiting):
            self._calls += [check.alone for check in waiting]
            waiting.clear()
            return
        steps = iter(one.step for one in waiting)
        for batch in self.compiled.engine.batch([one.call for one in waiting]):
            self._calls.append(batch.submit)
            for i in range(len(batch)):
                if step := next(steps):
                    self._put[step] = partial(batch.put, i)
        waiting.clear()
        if self._waits:
            self._calls.append(self._wait)

    def _wait(self) -> None:
        self.compiled.engine.wait()

    def _readers_of(self, home: str) -> list[PreparedStep]:
        places = self.compiled.laid.places
        return [
            prepared
            for prepared in self.compiled.prepared
            if any(places[name].home == home for name in prepared.step.reads.values())
        ]

    def memory(self, name: str) -> Memory:
        """The memory of a buffer that has a descriptor."""
        found = self._memories.get(name)
        if found is None:
            desc, place = self.compiled.program.buffers[name].desc, self.compiled.laid.places[name]
            assert desc is not None
            found = self._memories[name] = Memory(desc, self._homes[place.home][place.offset :])
        return found

    def array(self, name: str) -> Array:
        """The elements of a buffer of a plain format, a view."""
        buffer, place = self.compiled.program.buffers[name], self.compiled.laid.places[name]
        tensor = self.compiled.tensors[buffer.tensor]
        if buffer.desc is None:
            data = self._homes[place.home][place.offset : place.end]
            return data.view(tensor.dtype).reshape(tensor.dims)
        return to_numpy(self.memory(name), copy=False).view(tensor.dtype)

    def scratch(self, desc: MemoryDesc) -> Memory:
        """The scratchpad that steps share, as memory of `desc`."""
        return Memory(desc, self._scratch)

    def feed(self, inputs: Mapping[str, Array | Memory]) -> None:
        """Bring all inputs, of the right dims and types, to where they are read; arrays are row-major."""
        for tensor, value in inputs.items():
            name = self.compiled.program.inputs[tensor]
            home = self.compiled.laid.places[name].home
            data = self._bytes_as_read(name, value) if home in self._own else None
            if home in self._own:
                self._turn(home, self._own[home] if data is None else data)
            if data is None:
                self._copy(name, value)

    def _bytes_as_read(self, name: str, value: Array | Memory) -> Bytes | None:
        """The bytes of an input that has the format of its buffer; None if it has another."""
        desc = self.compiled.program.buffers[name].desc
        if isinstance(value, Memory):
            return value.buffer if value.desc == desc else None
        is_row_major = desc is None or (
            desc.data_type is not None and desc == cached_desc(desc.dims, desc.data_type, None)
        )
        return value.reshape(-1).view(np.uint8) if is_row_major and value.flags.aligned else None

    def _turn(self, home: str, data: Bytes) -> None:
        """Let the home's bytes be `data`: what reads it is bound anew, unless it was there before."""
        if address_of(self._homes[home]) == address_of(data):
            return
        self._homes[home] = data
        for name, place in self.compiled.laid.places.items():
            if place.home == home:
                self._memories.pop(name, None)
        for prepared in self._readers[home]:
            call = prepared.bound(self)
            if call is not None:
                self._each[prepared.step.name] = call
                self._put[prepared.step.name](call)

    def _copy(self, name: str, value: Array | Memory) -> None:
        """Copy an input into its buffer."""
        desc = self.compiled.program.buffers[name].desc
        if desc is not None and isinstance(value, Memory):
            reorder(value, desc, out=self.memory(name))
        else:
            np.copyto(self.array(name), to_numpy(value) if isinstance(value, Memory) else value, casting="no")

    def run(self) -> None:
        """Do every step; what the engine began is waited for even if a step fails."""
        is_done = False
        try:
            for call in self._calls:
                call()
            is_done = True
        finally:
            if not is_done:
                self.finish()

    def calls(self) -> list[tuple[PreparedStep, Call | None]]:
        """Every step with the call that does it now, None where there is nothing to do."""
        return [(prepared, self._each.get(prepared.step.name)) for prepared in self.compiled.prepared]

    def finish(self) -> None:
        """Wait for what the engine began."""
        if self._waits:
            self._wait()

    def fetch(self, out: Mapping[str, Array]) -> dict[str, Array]:
        """All results, in the arrays of `out`, row-major, or in new ones."""
        return {tensor: self.copied(name, out.get(tensor)) for tensor, name in self.compiled.program.outputs.items()}

    def copied(self, name: str, into: Array | None = None) -> Array:
        """The elements of a buffer in an array, row-major, a new one unless it is given.

        Raises:
            OutOfMemory: there is no room for a new one.
        """
        buffer = self.compiled.program.buffers[name]
        tensor = self.compiled.tensors[buffer.tensor]
        result = _new(tensor) if into is None else into
        desc = buffer.desc
        if desc is None or desc.data_type is None:
            np.copyto(result, self.array(name))
        elif result.size:
            plain = cached_desc(desc.dims, desc.data_type, None)
            find_reorder(desc, plain).run(self.memory(name).address, address_of(result))
        return result


def _new(tensor: Tensor) -> Array:
    """An array for a tensor."""
    try:
        return np.empty(tensor.dims, tensor.dtype)
    except MemoryError:
        raise OutOfMemory(
            f"{tensor.name!r}, {tensor.dtype} of dims {tensor.dims}, cannot be allocated: give the inputs smaller "
            "dims, or a smaller batch"
        ) from None


class InstancePool:
    """The instances of a compiled program: as many as ran at once."""

    __slots__ = ("_is_closed", "compiled", "free")

    def __init__(self, compiled: Compiled) -> None:
        """Have one instance.

        Raises:
            OutOfMemory: there is no room.
        """
        self.compiled = compiled
        """The program."""
        self.free = [Instance(compiled)]
        """The instances that no run uses."""
        self._is_closed = False

    @contextmanager
    def instance(self) -> Iterator[Instance]:
        """An instance that no other thread uses, made if all are in use.

        Raises:
            OutOfMemory: there is no room for another one.
        """
        try:
            instance = self.free.pop()
        except IndexError:
            instance = Instance(self.compiled)
        try:
            yield instance
        finally:
            if not self._is_closed:
                self.free.append(instance)

    def close(self) -> None:
        """Give back the memory of all instances; one in use gives it back when its run ends."""
        self._is_closed = True
        self.free.clear()
