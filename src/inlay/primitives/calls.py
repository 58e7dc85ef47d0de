"""The checks of a call: each argument is there, is memory of its descriptor, and lies on nothing that it must not.

`expected` settles when a primitive is created which arguments it reads and writes; `checked` holds a call against it.
What is written may be left out and is new memory then.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.layout import Dims
from inlay.memory import Memory, pack, reorder
from inlay.memory.conversion import require_stored
from inlay.primitives.attributes import PLAIN
from inlay.primitives.operation import Implementation, Operation
from inlay.primitives.values import value_entries, value_memory, values_descs
from inlay.reordering.attributes import Entry


@dataclass(frozen=True, slots=True)
class Expected:
    """What the calls of one primitive bring."""

    descs: Mapping[str, MemoryDesc]
    """The descriptor of each argument, none `any`."""
    reads: tuple[str, ...]
    """What is read."""
    writes: tuple[str, ...]
    """What is written, the scratchpad too."""
    results: tuple[str, ...]
    """What a call answers: what is written but the scratchpad."""
    values: Mapping[str, tuple[Entry, Dims] | None]
    """Arguments that are values of attributes, for which a number or an array will do: the scales or zero points and
    the dims of their tensor; None for an operand of a post-operation."""
    sparse: tuple[str, ...]
    """Arguments of several buffers."""
    is_empty: bool
    """Whether nothing that is written has an element."""
    vanishes: bool
    """Whether what drives the results has no element, so that they are zero: statistics or gradients of no images."""


@dataclass(frozen=True, slots=True)
class Given:
    """The memories of one call, checked."""

    memories: dict[str, Memory]
    """Each argument, new memory included."""
    fresh: tuple[str, ...]
    """What was left out and is new."""
    is_kept: bool
    """Whether all are the caller's own: then the next call may bring the very same."""


def expected(operation: Operation, implementation: Implementation) -> Expected:
    """What calls of this implementation bring."""
    chosen, given = implementation.descs, operation.descs
    reads = [name for name in _reads(operation) if name in given or (name == "workspace" and name in chosen)]
    writes = [name for name in _writes(operation) if name in given or (name == "workspace" and name in chosen)]
    results, drivers = tuple(writes), _drives(operation)
    values: dict[str, MemoryDesc] = {}
    if operation.attributes is not PLAIN:
        values = values_descs(operation)
        reads += [*values, *[name for name in chosen if name.startswith("post_op_") and name not in values]]
        if operation.attributes.scratchpad_mode == "user" and chosen.get("scratchpad", _NOTHING).size:
            writes.append("scratchpad")
    # What was asked for, what its values are, and what the engine chose, each before the other.
    descs = {name: chosen.get(name) or values.get(name) or given[name] for name in (*reads, *writes)}
    is_empty = all(0 in descs[name].dims for name in results if name != "workspace")
    vanishes = all(0 in descs[name].dims for name in drivers if name in descs)
    sparse = tuple(name for name, desc in descs.items() if desc.kind == "sparse")
    kinds = {**dict.fromkeys(values), **value_entries(operation)} if values else {}
    return Expected(descs, tuple(reads), tuple(writes), results, kinds, sparse, is_empty, vanishes)


_NOTHING = MemoryDesc()


def _reads(operation: Operation) -> list[str]:
    """What the operation may read: the signature's row, with all sources and without statistics that it computes."""
    row = operation.signature.reads
    names = [name for name in row if name not in _STATISTICS or _reads_statistics(operation)]
    return names + [name for name in operation.descs if name not in row and name.startswith("src_")]


def _writes(operation: Operation) -> list[str]:
    row = operation.signature.writes
    names = [name for name in row if name not in _STATISTICS or not _reads_statistics(operation)]
    return names + [name for name in operation.descs if name not in row and name.startswith("diff_src_1")]


def _drives(operation: Operation) -> tuple[str, ...]:
    """What the other results are sums over: forward what becomes dst, backward its gradient."""
    return ("dst", "dst_layer") if operation.direction == "forward" else ("diff_dst", "diff_dst_layer")


_STATISTICS = ("mean", "variance")


def _reads_statistics(operation: Operation) -> bool:
    flags = operation.parameters.get("flags", frozenset())
    return operation.direction != "forward" or (isinstance(flags, frozenset) and "use_global_stats" in flags)


def checked(
    place: str, expected: Expected, in_place: frozenset[tuple[str, str]], memories: Mapping[str, object]
) -> Given:
    """The memories of a call, where what is left out of what is written is new.

    Raises:
        InvalidArguments: an argument is missing, unknown, no Memory, of a descriptor that is not equivalent, read-only
            although it is written, or lies on another one.
        OutOfMemory: there is no room for new memory.
    """
    found: dict[str, Memory] = {}
    is_kept = True
    for name in expected.reads:
        value = memories.get(name)
        memory = value if isinstance(value, Memory) else _not_memory(place, expected, name, value)
        is_kept &= memory is value
        desc = expected.descs[name]
        if memory.desc is not desc and not _is_alike(memory.desc, desc):
            _refuse_read(place, name, memory.desc, desc)
        found[name] = memory
    fresh = []
    for name in expected.writes:
        value = memories.get(name)
        if value is None:
            fresh.append(name)
            found[name] = Memory(expected.descs[name])
        else:
            found[name] = _written(place, name, value, expected.descs[name])
            is_kept &= found[name] is value
    if len(memories) > len(found) - len(fresh):
        _require_known(place, expected, memories)
    _require_apart(place, expected, found, in_place)
    if expected.sparse:
        _require_buffers_apart(place, expected, found)
    return Given(found, tuple(fresh), is_kept and not fresh)


def checking(memories: Sequence[Memory], run: Callable[[], None]) -> Callable[[], None]:
    """What checks where the elements of all these sparse memories belong, each time, and then runs `run`.

    It raises InvalidArguments as `memory.conversion.require_stored`.
    """

    def run_checked() -> None:
        for memory in memories:
            require_stored(memory.desc, memory.buffers)
        run()

    return run_checked


def _is_alike(one: MemoryDesc, other: MemoryDesc) -> bool:
    """Whether memory of the one may take the place of memory of the other: both place each element at the same byte."""
    return one == other or (one.size == other.size and one.equivalent(other))


def zeroing(memories: Sequence[Memory]) -> Callable[[], None]:
    """What writes zeros to the elements of all these memories."""
    zeros = [pack(np.zeros(memory.desc.dims, np.float32), memory.desc) for memory in memories]

    def run() -> None:
        for zero, memory in zip(zeros, memories, strict=True):
            reorder(zero, memory.desc, out=memory)

    return run


def _not_memory(place: str, expected: Expected, name: str, value: object) -> Memory:
    """Memory for the value of an attribute; anything else is refused."""
    if value is None:
        raise InvalidArguments(f"{place}: {name} is missing: a call brings {', '.join(expected.reads)}")
    if name in expected.values:
        return value_memory(place, name, value, expected.descs[name], expected.values[name])
    raise InvalidArguments(
        f"{place}: {name} is a {type(value).__name__}: give memory, as inlay.pack(array, primitive.{_said(name)}) makes"
    )


def _written(place: str, name: str, value: object, desc: MemoryDesc) -> Memory:
    if not isinstance(value, Memory):
        raise InvalidArguments(
            f"{place}: {name} is a {type(value).__name__}: give Memory(primitive.{_said(name)}), or leave it out"
        )
    if value.desc is not desc and not _is_alike(value.desc, desc):
        if name != "scratchpad" or value.desc.size < desc.size:
            _refuse_written(place, name, value.desc, desc)
        value = Memory(desc, value.buffer)
    if not value.is_writable:
        raise InvalidArguments(f"{place}: {name} is read-only: give a writable buffer, or leave it out")
    return value


def _require_known(place: str, expected: Expected, memories: Mapping[str, object]) -> None:
    for name, value in memories.items():
        if name not in expected.descs and value is not None:
            known = ", ".join((*expected.reads, *expected.writes))
            raise InvalidArguments(f"{place}: it has no argument {name!r}: a call brings {known}")


def _require_apart(
    place: str, expected: Expected, found: Mapping[str, Memory], in_place: frozenset[tuple[str, str]]
) -> None:
    """Refuse memory that is written and shared with other memory of the call, unless the kind works in place."""
    names = tuple(found)
    first = len(expected.reads)
    for i in range(first, len(names)):
        dst = found[names[i]]
        begin, end = dst.begin, dst.end
        for name in names[:i]:
            other = found[name]
            if other.begin < end and begin < other.end:
                if (name, names[i]) in in_place and other.address == dst.address and _is_alike(other.desc, dst.desc):
                    continue
                _refuse_shared(place, name, names[i], min(end, other.end) - max(begin, other.begin), in_place)


def _require_buffers_apart(place: str, expected: Expected, found: Mapping[str, Memory]) -> None:
    """Refuse memory that is written and lies on a buffer of sparse memory, or the other way round."""
    for written in expected.writes:
        for name, other in found.items():
            if name == written or not {name, written} & set(expected.sparse):
                continue
            for begin, end in found[written].extents:
                for low, high in other.extents:
                    if low < end and begin < high:
                        _refuse_shared(place, name, written, min(end, high) - max(begin, low), frozenset())


def _refuse_shared(place: str, one: str, other: str, nbytes: int, in_place: frozenset[tuple[str, str]]) -> NoReturn:
    why = (
        "it works in place only where both are the same memory of the same format"
        if (one, other) in in_place
        else "it does not work in place"
    )
    raise InvalidArguments(f"{place}: {one} and {other} share {nbytes} bytes, and {why}: give {other} another buffer")


def _said(name: str) -> str:
    """How a descriptor is asked for."""
    return f"{name}_desc" if name in _PROPERTIES else f"desc({name!r})"


_PROPERTIES = frozenset(
    "src weights bias dst diff_src diff_weights diff_bias diff_dst workspace scratchpad".split()  # noqa: SIM905
)


def _refuse_read(place: str, name: str, given: MemoryDesc, desc: MemoryDesc) -> NoReturn:
    _refuse_small(place, name, given, desc)
    _refuse_count(place, name, given, desc)
    raise InvalidArguments(
        f"{place}: {name} has the format {given}, the primitive takes {desc}: add a reorder, "
        f"inlay.reorder({name}, primitive.{_said(name)})"
    )


def _refuse_written(place: str, name: str, given: MemoryDesc, desc: MemoryDesc) -> NoReturn:
    _refuse_small(place, name, given, desc)
    raise InvalidArguments(
        f"{place}: {name} has the format {given}, the primitive writes {desc}: give "
        f"Memory(primitive.{_said(name)}), or leave it out, and reorder the result, inlay.reorder({name}, {given!r})"
    )


def _refuse_count(place: str, name: str, given: MemoryDesc, desc: MemoryDesc) -> None:
    """Refuse sparse memory that differs by what its text does not say: how much it stores, or its other types."""
    if given.kind != desc.kind or desc.kind != "sparse" or str(given) != str(desc):
        return
    raise InvalidArguments(
        f"{place}: {name} is {given!r}, and the primitive was created for {desc!r}: create one for the memory, or "
        f"reorder it, inlay.reorder({name}, primitive.{_said(name)}), if it stores as many elements"
    )


def _refuse_small(place: str, name: str, given: MemoryDesc, desc: MemoryDesc) -> None:
    """Refuse memory that no reorder would make right: too small a scratch, or of other dims."""
    if name in ("workspace", "scratchpad") and given.size < desc.size:
        raise InvalidArguments(
            f"{place}: {name} of {given.size} bytes is too small, {desc.size} are needed: give "
            f"Memory(primitive.{_said(name)})"
        )
    if given.dims != desc.dims:
        raise InvalidArguments(
            f"{place}: {name} has dims {given.dims}, the primitive was created for {desc.dims}: create one for "
            "these dims"
        )
