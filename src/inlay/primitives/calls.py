"""The attributes of a primitive and the arguments of its calls: what is refused, and what each call brings.

Values of attributes are arguments of each call:

    scales={"weights": Scales(mask=1)}      argument weights_scales: one f32 for each output channel
    post_ops=(Binary("add", desc),)         argument post_op_0_src_1: memory of desc, broadcast

`expected` settles when a primitive is created which arguments it reads and writes; `checked` holds a call against it:
each argument is there, is memory of its descriptor, and lies on nothing that it must not. What is written may be left
out and is new memory then.

Source: oneAPI specification, "Primitive attributes".
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NoReturn, get_args

import numpy as np

from inlay.data_type import as_data_type
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, shown
from inlay.layout import Dims
from inlay.memory import Memory, pack, reorder
from inlay.memory.sparse_entries import validate_sparse
from inlay.primitives.algorithms import ALL_ELTWISE, BINARY
from inlay.primitives.attributes import (
    PLAIN,
    Binary,
    DepthwiseConvolution,
    Eltwise,
    FpmathMode,
    PostOp,
    PReLU,
    PrimitiveAttributes,
    ScratchpadMode,
    Sum,
)
from inlay.primitives.engine import Implementation, Operation
from inlay.primitives.recurrent_rules import require_recurrent
from inlay.primitives.rules import broadcast, choice, desc_of, integer, number, type_of
from inlay.reordering.attributes import QuantizationAttribute, Scales, ZeroPoints, operand, require_exact_numbers

_LARGEST = 2**31 - 1
_MODES = {"scratchpad_mode": get_args(ScratchpadMode), "fpmath_mode": get_args(FpmathMode)}


def require_attributes(place: str, operation: Operation) -> None:
    """Refuse attributes that do not fit the operation's arguments.

    Raises:
        InvalidArguments: so it is.
    """
    attributes: Any = operation.attributes
    if attributes is PLAIN:
        return
    if not isinstance(attributes, PrimitiveAttributes):
        raise InvalidArguments(
            f"{place}: attributes are {shown(attributes)}: give PrimitiveAttributes, as in "
            "PrimitiveAttributes(post_ops=(attributes.Eltwise('relu'),))"
        )
    for name, modes in _MODES.items():
        choice(place, name, getattr(attributes, name), modes)
    for what, kind in (("scales", Scales), ("zero_points", ZeroPoints)):
        if not isinstance(getattr(attributes, what), Mapping):
            raise InvalidArguments(
                f"{place}: {what} are {shown(getattr(attributes, what))}: give a mapping, as in "
                f"{what}={{'src': {kind.__name__}()}}"
            )
        for argument, entry in getattr(attributes, what).items():
            _require_entry(place, what, argument, entry, kind, operation.descs)
    if attributes.recurrent is not None and operation.kind not in ("lstm", "gru", "reorder"):
        raise InvalidArguments(f"{place}: attribute recurrent is for LSTM, GRU and their weights: leave it out")
    if attributes.recurrent is not None:
        require_recurrent(place, attributes.recurrent)
    if not isinstance(attributes.post_ops, (tuple, list)):
        raise InvalidArguments(
            f"{place}: post_ops are {shown(attributes.post_ops)}: give a tuple, as in "
            "post_ops=(attributes.Eltwise('relu'),)"
        )
    if attributes.post_ops and operation.direction != "forward":
        raise InvalidArguments(f"{place}: post_ops follow forward primitives: leave them out of a gradient")
    for i, post_op in enumerate(attributes.post_ops):
        _require_post_op(f"{place}: post_op {i}", post_op, operation.descs.get("dst"))


def _require_entry(
    place: str, what: str, argument: str, entry: object, kind: type, descs: Mapping[str, MemoryDesc]
) -> None:
    if argument not in descs:
        raise InvalidArguments(f"{place}: {what} are for {shown(argument)}: the arguments are {', '.join(descs)}")
    if not isinstance(entry, kind):
        raise InvalidArguments(
            f"{place}: {what} of {argument} are {shown(entry)}: give a {kind.__name__}; the values come with each "
            f"call, as {argument}_{what}"
        )
    data_type = type_of(descs[argument])
    if kind is ZeroPoints and descs[argument].kind == "sparse":
        raise InvalidArguments(
            f"{place}: zero_points of {argument}, which is sparse, would make elements that are not stored differ from "
            "zero: leave them out"
        )
    if kind is ZeroPoints and data_type.kind == "float":
        raise InvalidArguments(f"{place}: zero_points are for integers: {argument} is {data_type}")


def _require_post_op(place: str, post_op: PostOp, dst: MemoryDesc | None) -> None:
    match post_op:
        case Eltwise(algorithm=algorithm, alpha=alpha, beta=beta):
            choice(place, "algorithm", algorithm, ALL_ELTWISE)
            number(place, "alpha", alpha)
            number(place, "beta", beta)
        case Binary(algorithm=algorithm, src_1=src_1):
            choice(place, "algorithm", algorithm, [name for name in BINARY if name != "select"])
            desc_of(place, "src_1", src_1)
            if dst is not None and broadcast(place, ("dst", "src_1"), dst.dims, src_1.dims) != dst.dims:
                raise InvalidArguments(
                    f"{place}: src_1 {src_1.dims} is larger than dst {dst.dims}: dst is not repeated"
                )
        case PReLU(mask=mask):
            if integer(place, "mask", mask, 0) >> (12 if dst is None else dst.ndims):
                raise InvalidArguments(
                    f"{place}: mask is {mask}: set a bit for each axis of dst along which weights differ, of 0 to "
                    f"{11 if dst is None else dst.ndims - 1}"
                )
        case Sum():
            _require_sum(place, post_op, dst)
        case DepthwiseConvolution(kernel=kernel, stride=stride, padding=padding):
            for name, value, least in (("kernel", kernel, 1), ("stride", stride, 1), ("padding", padding, 0)):
                if integer(place, name, value, least) > _LARGEST:
                    raise InvalidArguments(f"{place}: {name} is {value}: it is at most {_LARGEST}")
        case _:
            raise InvalidArguments(
                f"{place} is {shown(post_op)}: give one of Sum, Eltwise, Binary, PReLU, DepthwiseConvolution of "
                "primitives.attributes"
            )


def _require_sum(place: str, post_op: Sum, dst: MemoryDesc | None) -> None:
    number(place, "scale", post_op.scale)
    if integer(place, "zero_point", post_op.zero_point, -_LARGEST) > _LARGEST:
        raise InvalidArguments(f"{place}: zero_point is {post_op.zero_point}: it is at most {_LARGEST}")
    if post_op.data_type is None or dst is None:
        return
    if as_data_type(post_op.data_type).bits != type_of(dst).bits:
        raise InvalidArguments(
            f"{place}: dst is {type_of(dst)}, which cannot be read as {post_op.data_type}: give a type of as many bits"
        )


def values_descs(operation: Operation) -> dict[str, MemoryDesc]:
    """By name, the descriptor of the values of each attribute that has some; those of a depthwise convolution left out.

    Scales and zero points lie in row-major order of the axes that their mask names, in one axis.
    """
    found = {
        name: MemoryDesc((prod(entry.shape(dims)),), entry.type, "a")
        for name, (entry, dims) in value_entries(operation).items()
    }
    dst = operation.descs.get("dst")
    for i, post_op in enumerate(operation.attributes.post_ops):
        if isinstance(post_op, Binary):
            found[f"post_op_{i}_src_1"] = post_op.src_1
        elif isinstance(post_op, PReLU) and dst is not None:
            shape = tuple([n if post_op.mask >> axis & 1 else 1 for axis, n in enumerate(dst.dims)])
            found[f"post_op_{i}_weights"] = MemoryDesc(shape, "f32")
    return found


def value_entries(operation: Operation) -> dict[str, tuple[QuantizationAttribute, Dims]]:
    """By name of a value, the scales or zero points that it is of, and the dims of the argument that has them."""
    attributes = operation.attributes
    return {
        f"{argument}_{what}": (entry, operation.descs[argument].dims)
        for what, entries in (("scales", attributes.scales), ("zero_points", attributes.zero_points))
        for argument, entry in entries.items()
    }


def value_memory(
    place: str, name: str, value: object, desc: MemoryDesc, entry: tuple[QuantizationAttribute, Dims] | None = None
) -> Memory:
    """Memory of `desc` that holds `value`, a number or an array of as many, converted as `inlay.reorder` does.

    `entry` are the scales or zero points and the dims of their tensor; None for an operand of a post-operation.

    Raises:
        InvalidArguments: it has another number of values, or one that the type cannot hold.
    """
    said = f"{place}: {name}"
    if entry is not None:
        return pack(operand(said, *entry, value).reshape(desc.dims), desc)
    array = require_exact_numbers(said, value, type_of(desc))
    if array.size != prod(desc.dims):
        raise InvalidArguments(
            f"{said} is {shown(value)}: give memory, or an array, of {prod(desc.dims)} values of {desc.data_type}"
        )
    return pack(array.reshape(desc.dims), desc)


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
    values: Mapping[str, tuple[QuantizationAttribute, Dims] | None]
    """Arguments that are values of attributes, for which a number or an array will do: the scales or zero points and
    the dims of their tensor; None for an operand of a post-operation."""
    sparse: tuple[str, ...]
    """Arguments of several buffers."""
    is_empty: bool
    """Whether nothing that is written has an element."""
    vanishes: bool
    """Whether what drives the results has no element, so that they are zero: statistics or gradients of no images."""


@dataclass(frozen=True, slots=True)
class CallArguments:
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
) -> CallArguments:
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
    return CallArguments(found, tuple(fresh), is_kept and not fresh)


def checking(memories: Sequence[Memory], run: Callable[[], None]) -> Callable[[], None]:
    """What checks where the elements of all these sparse memories belong, each time, and then runs `run`.

    It raises InvalidArguments as `memory.conversion.validate_sparse`.
    """

    def run_checked() -> None:
        for memory in memories:
            validate_sparse(memory.desc, memory.buffers)
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
