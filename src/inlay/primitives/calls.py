"""Checks of the attributes of a primitive when it is created, and of the arguments of each of its calls.

The values of attributes are arguments of each call:

    scales={"weights": Scales(mask=1)}       argument weights_scales: one f32 per output channel
    post_ops=(BinaryPostOp("add", desc),)    argument post_op_0_src_1: memory of desc, broadcast

When a primitive is created, `require_attributes` checks its attributes and `infer_call_signature` determines which
arguments a call reads and writes. `check_call` then checks each call: every argument that is read is present, every
memory has the right descriptor, and memory that is written shares no bytes with other arguments. A result that the
caller leaves out gets new memory.

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
from inlay.forks import import_lock
from inlay.layout import Dims
from inlay.memory import Memory, pack, reorder
from inlay.memory.padding_contents import ZERO
from inlay.memory.sparse_entries import validate_sparse
from inlay.primitives.algorithms import ALL_ELTWISE, BINARY
from inlay.primitives.attributes import (
    PLAIN,
    BinaryPostOp,
    DepthwiseConvolution,
    EltwisePostOp,
    FpmathMode,
    PostOp,
    PReLUPostOp,
    PrimitiveAttributes,
    ScratchpadMode,
    SumPostOp,
)
from inlay.primitives.engine import Implementation, Operation
from inlay.primitives.recurrent_rules import require_recurrent
from inlay.primitives.rules import (
    broadcast_dims,
    require_choice,
    require_desc,
    require_integer,
    require_number,
    type_of,
)
from inlay.reordering.attributes import QuantizationAttribute, Scales, ZeroPoints, operand, require_exact_numbers

_LARGEST = 2**31 - 1
_MODES = {"scratchpad_mode": get_args(ScratchpadMode), "fpmath_mode": get_args(FpmathMode)}


def require_attributes(primitive_name: str, operation: Operation) -> None:
    """Check that the attributes of an operation are valid for its arguments.

    Raises:
        InvalidArguments: an attribute has a wrong type or value, or names an argument that the operation lacks.
    """
    attributes: Any = operation.attributes
    if attributes is PLAIN:
        return
    if not isinstance(attributes, PrimitiveAttributes):
        raise InvalidArguments(
            f"{primitive_name}: attributes are {shown(attributes)}: give PrimitiveAttributes, as in "
            "PrimitiveAttributes(post_ops=(attributes.EltwisePostOp('relu'),))"
        )
    for name, modes in _MODES.items():
        require_choice(primitive_name, name, getattr(attributes, name), modes)
    for name in ("fpmath_integers", "rounds_source"):
        if not isinstance(getattr(attributes, name), bool):
            value = shown(getattr(attributes, name))
            raise InvalidArguments(f"{primitive_name}: {name} is {value}: give True or False")
    _require_quantization(primitive_name, operation)
    if attributes.recurrent is not None and operation.kind not in ("lstm", "gru", "reorder"):
        raise InvalidArguments(
            f"{primitive_name}: attribute recurrent is for LSTM, GRU and their weights: leave it out"
        )
    if attributes.recurrent is not None:
        require_recurrent(primitive_name, attributes.recurrent)
    if not isinstance(attributes.post_ops, (tuple, list)):
        raise InvalidArguments(
            f"{primitive_name}: post_ops are {shown(attributes.post_ops)}: give a tuple, as in "
            "post_ops=(attributes.EltwisePostOp('relu'),)"
        )
    if attributes.post_ops and operation.direction != "forward":
        raise InvalidArguments(f"{primitive_name}: post_ops follow forward primitives: leave them out of a gradient")
    for i, post_op in enumerate(attributes.post_ops):
        _require_post_op(f"{primitive_name}: post_op {i}", post_op, operation.descs.get("dst"))


def require_no_attributes(primitive_name: str, attributes: PrimitiveAttributes | None) -> None:
    """Check that a primitive that has no attributes is given none.

    Raises:
        InvalidArguments: there are attributes.
    """
    if attributes is not None and attributes != PLAIN:
        raise InvalidArguments(f"{primitive_name}: it has no attributes: leave {shown(attributes)} out")


def _require_quantization(primitive_name: str, operation: Operation) -> None:
    """Check the scales and the zero points."""
    for attribute, kind in (("scales", Scales), ("zero_points", ZeroPoints)):
        entries: Any = getattr(operation.attributes, attribute)
        if not isinstance(entries, Mapping):
            raise InvalidArguments(
                f"{primitive_name}: {attribute} are {shown(entries)}: give a mapping, as in "
                f"{attribute}={{'src': {kind.__name__}()}}"
            )
        for argument, entry in entries.items():
            _require_entry(primitive_name, attribute, argument, entry, kind, operation.descs)


def _require_entry(
    primitive_name: str, attribute: str, argument: str, entry: object, kind: type, descs: Mapping[str, MemoryDesc]
) -> None:
    """Check the scales or zero points of one argument; `kind` is the class that they must have."""
    if argument not in descs:
        raise InvalidArguments(
            f"{primitive_name}: {attribute} are for {shown(argument)}: the arguments are {', '.join(descs)}"
        )
    if not isinstance(entry, kind):
        raise InvalidArguments(
            f"{primitive_name}: {attribute} of {argument} are {shown(entry)}: give a {kind.__name__}; the values come "
            f"with each call, as {argument}_{attribute}"
        )
    data_type = type_of(descs[argument])
    if kind is ZeroPoints and descs[argument].kind == "sparse":
        raise InvalidArguments(
            f"{primitive_name}: zero_points of {argument}, which is sparse, would make elements that are not stored "
            "differ from zero: leave them out"
        )
    if kind is ZeroPoints and data_type.kind == "float":
        raise InvalidArguments(f"{primitive_name}: zero_points are for integers: {argument} is {data_type}")


def _require_post_op(context: str, post_op: PostOp, dst: MemoryDesc | None) -> None:
    """Check one post-operation; `context` begins the error text."""
    match post_op:
        case EltwisePostOp(algorithm=algorithm, alpha=alpha, beta=beta):
            require_choice(context, "algorithm", algorithm, ALL_ELTWISE)
            require_number(context, "alpha", alpha)
            require_number(context, "beta", beta)
        case BinaryPostOp(algorithm=algorithm, src_1=src_1):
            require_choice(context, "algorithm", algorithm, [name for name in BINARY if name != "select"])
            require_desc(context, "src_1", src_1)
            if dst is not None and broadcast_dims(context, ("dst", "src_1"), dst.dims, src_1.dims) != dst.dims:
                raise InvalidArguments(
                    f"{context}: src_1 {src_1.dims} is larger than dst {dst.dims}: dst is not repeated"
                )
        case PReLUPostOp(mask=mask):
            if require_integer(context, "mask", mask, 0) >> (12 if dst is None else dst.ndims):
                raise InvalidArguments(
                    f"{context}: mask is {mask}: set a bit for each axis of dst along which weights differ, of "
                    f"0 to {11 if dst is None else dst.ndims - 1}"
                )
        case SumPostOp():
            _require_sum(context, post_op, dst)
        case DepthwiseConvolution(kernel=kernel, stride=stride, padding=padding):
            for name, value, least in (("kernel", kernel, 1), ("stride", stride, 1), ("padding", padding, 0)):
                if require_integer(context, name, value, least) > _LARGEST:
                    raise InvalidArguments(f"{context}: {name} is {value}: it is at most {_LARGEST}")
        case _:
            raise InvalidArguments(
                f"{context} is {shown(post_op)}: give one of SumPostOp, EltwisePostOp, BinaryPostOp, "
                "PReLUPostOp, DepthwiseConvolution of primitives.attributes"
            )


def _require_sum(context: str, post_op: SumPostOp, dst: MemoryDesc | None) -> None:
    """Check the numbers and the data type of a sum."""
    require_number(context, "scale", post_op.scale)
    if require_integer(context, "zero_point", post_op.zero_point, -_LARGEST) > _LARGEST:
        raise InvalidArguments(f"{context}: zero_point is {post_op.zero_point}: it is at most {_LARGEST}")
    if post_op.data_type is None or dst is None:
        return
    if as_data_type(post_op.data_type).bits != type_of(dst).bits:
        raise InvalidArguments(
            f"{context}: dst is {type_of(dst)}, which cannot be read as {post_op.data_type}: give a type of as "
            "many bits"
        )


def attribute_value_descs(operation: Operation) -> dict[str, MemoryDesc]:
    """Return the descriptor of each argument that holds values of attributes, by its name.

    Scales and zero points are one-dimensional: row-major over the axes in their mask. The arguments of depthwise
    convolutions are not included; the engine chooses their formats.
    """
    descs = {
        name: MemoryDesc((prod(entry.shape(dims)),), entry.type, "a")
        for name, (entry, dims) in attribute_value_entries(operation).items()
    }
    dst = operation.descs.get("dst")
    for i, post_op in enumerate(operation.attributes.post_ops):
        if isinstance(post_op, BinaryPostOp):
            descs[f"post_op_{i}_src_1"] = post_op.src_1
        elif isinstance(post_op, PReLUPostOp) and dst is not None:
            shape = tuple([n if post_op.mask >> axis & 1 else 1 for axis, n in enumerate(dst.dims)])
            descs[f"post_op_{i}_weights"] = MemoryDesc(shape, "f32")
    return descs


def attribute_value_entries(operation: Operation) -> dict[str, tuple[QuantizationAttribute, Dims]]:
    """Return the scales or zero points of each argument of values, with the dims of the tensor that they scale.

    The keys are names of arguments, such as `src_scales`.
    """
    attributes = operation.attributes
    return {
        f"{tensor}_{attribute}": (entry, operation.descs[tensor].dims)
        for attribute, entries in (("scales", attributes.scales), ("zero_points", attributes.zero_points))
        for tensor, entry in entries.items()
    }


def pack_attribute_value(
    primitive_name: str,
    name: str,
    value: object,
    desc: MemoryDesc,
    entry: tuple[QuantizationAttribute, Dims] | None = None,
) -> Memory:
    """Convert a number or an array to memory of `desc`, with the checks of `inlay.reorder`.

    `entry` has the scales or zero points and the dims of their tensor; None for an operand of a post-operation.

    Raises:
        InvalidArguments: the number of values is wrong, or the data type cannot represent a value.
    """
    label = f"{primitive_name}: {name}"
    if entry is not None:
        return pack(operand(label, *entry, value).reshape(desc.dims), desc)
    array = require_exact_numbers(label, value, type_of(desc))
    if array.size != prod(desc.dims):
        raise InvalidArguments(
            f"{label} is {shown(value)}: give memory, or an array, of {prod(desc.dims)} values of {desc.data_type}"
        )
    return pack(array.reshape(desc.dims), desc)


@dataclass(frozen=True, slots=True)
class CallSignature:
    """The arguments that a call of one primitive reads and writes, with their final descriptors."""

    descs: Mapping[str, MemoryDesc]
    """Descriptor of each argument, none `any`."""
    reads: tuple[str, ...]
    """Names of the arguments that a call reads."""
    writes: tuple[str, ...]
    """Names of the arguments that a call writes, including the scratchpad."""
    results: tuple[str, ...]
    """Names of the arguments that a call returns: `writes` without the scratchpad."""
    values: Mapping[str, tuple[QuantizationAttribute, Dims] | None]
    """Arguments with values of attributes, which may be numbers or arrays instead of memory. The entry is the scales or
    zero points and the dims of their tensor; None for an operand of a post-operation."""
    sparse: tuple[str, ...]
    """Names of the sparse arguments, whose memory has several buffers."""
    is_empty: bool
    """True if no result has an element, so that there is nothing to compute."""
    is_all_zero: bool
    """True if the results are sums over no elements, and therefore 0: statistics or gradients of an empty batch."""


@dataclass(frozen=True, slots=True)
class CallArguments:
    """The checked memories of one call."""

    memories: dict[str, Memory]
    """Memory of each argument, by its name."""
    allocated: tuple[str, ...]
    """Names of the results that the caller left out; their memory is new."""
    is_repeatable: bool
    """True if the caller passed every memory, so that a later call with the same objects needs no checks."""


def infer_call_signature(operation: Operation, implementation: Implementation) -> CallSignature:
    """Determine the arguments of calls of an implementation."""
    engine_descs, caller_descs = implementation.descs, operation.descs
    reads = [
        name for name in _reads(operation) if name in caller_descs or (name == "workspace" and name in engine_descs)
    ]
    writes = [
        name for name in _writes(operation) if name in caller_descs or (name == "workspace" and name in engine_descs)
    ]
    results, summed = tuple(writes), _summed_arguments(operation)
    values: dict[str, MemoryDesc] = {}
    if operation.attributes is not PLAIN:
        values = attribute_value_descs(operation)
        reads += [*values, *[name for name in engine_descs if name.startswith("post_op_") and name not in values]]
        if operation.attributes.scratchpad_mode == "user" and engine_descs.get("scratchpad", _ZERO_DESC).size:
            writes.append("scratchpad")
    # The engine's descriptor of an argument takes precedence, then that of attribute values, then the caller's.
    descs = {name: engine_descs.get(name) or values.get(name) or caller_descs[name] for name in (*reads, *writes)}
    is_empty = all(0 in descs[name].dims for name in results if name != "workspace")
    is_all_zero = all(0 in descs[name].dims for name in summed if name in descs)
    sparse = tuple(name for name, desc in descs.items() if desc.kind == "sparse")
    entries = {**dict.fromkeys(values), **attribute_value_entries(operation)} if values else {}
    return CallSignature(descs, tuple(reads), tuple(writes), results, entries, sparse, is_empty, is_all_zero)


_ZERO_DESC = MemoryDesc()


def _reads(operation: Operation) -> list[str]:
    """Return the names that the operation may read: its row of the table, extended by all numbered sources.

    Mean and variance are excluded if the operation computes them.
    """
    row = operation.signature.reads
    names = [name for name in row if name not in _STATISTICS or _reads_statistics(operation)]
    return names + [name for name in operation.descs if name not in row and name.startswith("src_")]


def _writes(operation: Operation) -> list[str]:
    """Return the names that the operation may write; mean and variance are excluded if it reads them."""
    row = operation.signature.writes
    names = [name for name in row if name not in _STATISTICS or not _reads_statistics(operation)]
    return names + [name for name in operation.descs if name not in row and name.startswith("diff_src_1")]


def _summed_arguments(operation: Operation) -> tuple[str, ...]:
    """Return the arguments over whose elements the other results are sums: the destination, or its gradient."""
    return ("dst", "dst_layer") if operation.direction == "forward" else ("diff_dst", "diff_dst_layer")


_STATISTICS = ("mean", "variance")


def _reads_statistics(operation: Operation) -> bool:
    """Return whether mean and variance are inputs: in backward primitives, and with `use_global_stats`."""
    flags = operation.parameters.get("flags", frozenset())
    return operation.direction != "forward" or (isinstance(flags, frozenset) and "use_global_stats" in flags)


def check_call(
    primitive_name: str, signature: CallSignature, in_place: frozenset[tuple[str, str]], memories: Mapping[str, object]
) -> CallArguments:
    """Check the arguments of a call, allocate the results that it leaves out, and return all memories.

    Kernels rely on zeros in the padding that they read. So padding that is not stated to be zero is checked, and
    zeros are written into it where it holds something else.

    `in_place` has the pairs (read argument, written argument) that may be the same memory.

    Raises:
        InvalidArguments: an argument is missing, unknown, not a Memory, or of a descriptor that is not equivalent; a
            written one is read-only, or overlaps another one; or one that is read is read-only and its padding is not
            zero.
        OutOfMemory: new memory cannot be allocated.
    """
    arguments: dict[str, Memory] = {}
    is_repeatable = True
    for name in signature.reads:
        value = memories.get(name)
        memory = value if isinstance(value, Memory) else _pack_or_refuse(primitive_name, signature, name, value)
        is_repeatable &= memory is value
        desc = signature.descs[name]
        if memory.desc is not desc and not _is_interchangeable(memory.desc, desc):
            _refuse_read(primitive_name, name, memory.desc, desc)
        arguments[name] = memory
    allocated = []
    for name in signature.writes:
        value = memories.get(name)
        if value is None:
            allocated.append(name)
            arguments[name] = Memory(signature.descs[name])
        else:
            arguments[name] = _check_result(primitive_name, name, value, signature.descs[name])
            is_repeatable &= arguments[name] is value
    if len(memories) > len(arguments) - len(allocated):
        _require_known(primitive_name, signature, memories)
    _require_apart(primitive_name, signature, arguments, in_place)
    if signature.sparse:
        _require_buffers_apart(primitive_name, signature, arguments)
    for name in signature.reads:
        _require_zero_padding(arguments[name], f"{primitive_name}: {name}")
    return CallArguments(arguments, tuple(allocated), is_repeatable and not allocated)


def _require_zero_padding(memory: Memory, purpose: str) -> None:
    """Make sure that the padding of an argument that is read is zero."""
    if memory.padding != ZERO:
        with import_lock:
            # Imported here because it loads compiled loops, which planned runs do not need.
            from inlay.memory.memory_padding import require_zero_padding

        require_zero_padding(memory, purpose)


def guard_sparse_entries(memories: Sequence[Memory], run: Callable[[], None]) -> Callable[[], None]:
    """Return a function that checks the metadata of the sparse memories and then calls `run`, at each call.

    It raises InvalidArguments for wrong indices or pointers: see `memory.sparse_entries.validate_sparse`.
    """

    def run_checked() -> None:
        for memory in memories:
            validate_sparse(memory.desc, memory.buffers)
        run()

    return run_checked


def _is_interchangeable(one: MemoryDesc, other: MemoryDesc) -> bool:
    """Return whether both descriptors store each element at the same byte, so that memory of one fits the other."""
    return one == other or (one.size == other.size and one.equivalent(other))


def make_zero_fill(memories: Sequence[Memory]) -> Callable[[], None]:
    """Return a function that sets all elements of the memories to 0 and leaves their gaps alone."""
    zeros = [pack(np.zeros(memory.desc.dims, np.float32), memory.desc) for memory in memories]

    def run() -> None:
        for zero, memory in zip(zeros, memories, strict=True):
            reorder(zero, memory.desc, out=memory)

    return run


def _pack_or_refuse(primitive_name: str, signature: CallSignature, name: str, value: object) -> Memory:
    """Return new memory for a number or an array that is the value of an attribute; raise an error for all else."""
    if value is None:
        raise InvalidArguments(f"{primitive_name}: {name} is missing: the arguments are {', '.join(signature.reads)}")
    if name in signature.values:
        return pack_attribute_value(primitive_name, name, value, signature.descs[name], signature.values[name])
    raise InvalidArguments(
        f"{primitive_name}: {name} is a {type(value).__name__}: give memory, as inlay.pack(array, "
        f"primitive.{_desc_expression(name)}) makes"
    )


def _check_result(primitive_name: str, name: str, value: object, desc: MemoryDesc) -> Memory:
    """Check memory that is written, and return it; a scratchpad may be larger than needed."""
    if not isinstance(value, Memory):
        raise InvalidArguments(
            f"{primitive_name}: {name} is a {type(value).__name__}: give Memory(primitive.{_desc_expression(name)}), "
            "or leave it out"
        )
    if value.desc is not desc and not _is_interchangeable(value.desc, desc):
        if name != "scratchpad" or value.desc.size < desc.size:
            _refuse_written(primitive_name, name, value.desc, desc)
        value = Memory(desc, value.buffer)
    if not value.is_writable:
        raise InvalidArguments(f"{primitive_name}: {name} is read-only: give a writable buffer, or leave it out")
    return value


def _require_known(primitive_name: str, signature: CallSignature, memories: Mapping[str, object]) -> None:
    """Check that the call has no unknown argument."""
    for name, value in memories.items():
        if name not in signature.descs and value is not None:
            known = ", ".join((*signature.reads, *signature.writes))
            raise InvalidArguments(f"{primitive_name}: it has no argument {name!r}: the arguments are {known}")


def _require_apart(
    primitive_name: str, signature: CallSignature, arguments: Mapping[str, Memory], in_place: frozenset[tuple[str, str]]
) -> None:
    """Check that written memory overlaps no other memory of the call, unless the pair may be in place."""
    names = tuple(arguments)
    first = len(signature.reads)
    for i in range(first, len(names)):
        dst = arguments[names[i]]
        begin, end = dst.begin, dst.end
        for name in names[:i]:
            other = arguments[name]
            if other.begin < end and begin < other.end:
                if (
                    (name, names[i]) in in_place
                    and other.address == dst.address
                    and _is_interchangeable(other.desc, dst.desc)
                ):
                    continue
                _refuse_shared(primitive_name, name, names[i], min(end, other.end) - max(begin, other.begin), in_place)


def _require_buffers_apart(primitive_name: str, signature: CallSignature, arguments: Mapping[str, Memory]) -> None:
    """Check that written memory overlaps no buffer of a sparse argument, and written sparse buffers overlap nothing."""
    for written in signature.writes:
        for name, other in arguments.items():
            if name == written or not {name, written} & set(signature.sparse):
                continue
            for begin, end in arguments[written].extents:
                for low, high in other.extents:
                    if low < end and begin < high:
                        _refuse_shared(primitive_name, name, written, min(end, high) - max(begin, low), frozenset())


def _refuse_shared(
    primitive_name: str, one: str, other: str, nbytes: int, in_place: frozenset[tuple[str, str]]
) -> NoReturn:
    """Raise the error of two arguments that share bytes."""
    why = (
        "it works in place only where both are the same memory of the same format"
        if (one, other) in in_place
        else "it does not work in place"
    )
    raise InvalidArguments(
        f"{primitive_name}: {one} and {other} share {nbytes} bytes, and {why}: give {other} another buffer"
    )


def _desc_expression(name: str) -> str:
    """Return the expression that gets the descriptor of an argument from a primitive, for an error text."""
    return f"{name}_desc" if name in _PROPERTIES else f"desc({name!r})"


_PROPERTIES = frozenset(
    "src weights bias dst diff_src diff_weights diff_bias diff_dst workspace scratchpad".split()  # noqa: SIM905
)


def _refuse_read(primitive_name: str, name: str, actual: MemoryDesc, desc: MemoryDesc) -> NoReturn:
    """Raise the error of an input with a wrong descriptor."""
    _refuse_small(primitive_name, name, actual, desc)
    _refuse_count(primitive_name, name, actual, desc)
    raise InvalidArguments(
        f"{primitive_name}: {name} has the format {actual}, the primitive takes {desc}: add a reorder, "
        f"inlay.reorder({name}, primitive.{_desc_expression(name)})"
    )


def _refuse_written(primitive_name: str, name: str, actual: MemoryDesc, desc: MemoryDesc) -> NoReturn:
    """Raise the error of a result with a wrong descriptor."""
    _refuse_small(primitive_name, name, actual, desc)
    raise InvalidArguments(
        f"{primitive_name}: {name} has the format {actual}, the primitive writes {desc}: give "
        f"Memory(primitive.{_desc_expression(name)}), or leave it out, and reorder the result, inlay.reorder({name}, "
        f"{actual!r})"
    )


def _refuse_count(primitive_name: str, name: str, actual: MemoryDesc, desc: MemoryDesc) -> None:
    """Raise an error if two sparse descriptors differ only in properties that `str` omits, such as `nnz`."""
    if actual.kind != desc.kind or desc.kind != "sparse" or str(actual) != str(desc):
        return
    raise InvalidArguments(
        f"{primitive_name}: {name} is {actual!r}, and the primitive was created for {desc!r}: create one for the "
        f"memory, or reorder it, inlay.reorder({name}, primitive.{_desc_expression(name)}), if it stores as many "
        "elements"
    )


def _refuse_small(primitive_name: str, name: str, actual: MemoryDesc, desc: MemoryDesc) -> None:
    """Raise an error for a mismatch that no reorder can fix: a workspace or scratchpad too small, or other dims."""
    if name in ("workspace", "scratchpad") and actual.size < desc.size:
        raise InvalidArguments(
            f"{primitive_name}: {name} of {actual.size} bytes is too small, {desc.size} are needed: give "
            f"Memory(primitive.{_desc_expression(name)})"
        )
    if actual.dims != desc.dims:
        raise InvalidArguments(
            f"{primitive_name}: {name} has dims {actual.dims}, the primitive was created for {desc.dims}: create one "
            "for these dims"
        )
