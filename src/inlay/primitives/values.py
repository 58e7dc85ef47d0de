"""Attributes of primitives: what is refused, and of which form the values are that each call brings.

    scales={"weights": Scales(mask=1)}      argument weights_scales: one f32 for each output channel
    post_ops=(Binary("add", desc),)         argument post_op_0_src_1: memory of desc, broadcast

Source: oneAPI specification, "Primitive attributes".
"""

from collections.abc import Mapping
from math import prod
from typing import Any, get_args

from inlay.data_type import as_data_type
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, shown
from inlay.layout import Dims
from inlay.memory import Memory, pack
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
from inlay.primitives.operation import Operation
from inlay.primitives.recurrent_rules import require_recurrent
from inlay.primitives.rules import broadcast, choice, desc_of, integer, number, type_of
from inlay.reordering.attributes import Entry, Scales, ZeroPoints
from inlay.reordering.operands import exact_numbers, operand

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
    found = {}
    attributes = operation.attributes
    for what, entries in (("scales", attributes.scales), ("zero_points", attributes.zero_points)):
        for argument, entry in entries.items():
            count = prod(entry.shape(operation.descs[argument].dims))
            found[f"{argument}_{what}"] = MemoryDesc((count,), entry.type, "a")
    dst = operation.descs.get("dst")
    for i, post_op in enumerate(attributes.post_ops):
        if isinstance(post_op, Binary):
            found[f"post_op_{i}_src_1"] = post_op.src_1
        elif isinstance(post_op, PReLU) and dst is not None:
            found[f"post_op_{i}_weights"] = MemoryDesc(_masked(dst.dims, post_op.mask), "f32")
    return found


def _masked(dims: Dims, mask: int) -> Dims:
    return tuple([n if mask >> i & 1 else 1 for i, n in enumerate(dims)])


def value_entries(operation: Operation) -> dict[str, tuple[Entry, Dims]]:
    """By name of a value, the scales or zero points that it is of, and the dims of the argument that has them."""
    attributes = operation.attributes
    return {
        f"{argument}_{what}": (entry, operation.descs[argument].dims)
        for what, entries in (("scales", attributes.scales), ("zero_points", attributes.zero_points))
        for argument, entry in entries.items()
    }


def value_memory(
    place: str, name: str, value: object, desc: MemoryDesc, entry: tuple[Entry, Dims] | None = None
) -> Memory:
    """Memory of `desc` that holds `value`, a number or an array of as many, converted as `inlay.reorder` does.

    `entry` are the scales or zero points and the dims of their tensor; None for an operand of a post-operation.

    Raises:
        InvalidArguments: it has another number of values, or one that the type cannot hold.
    """
    said = f"{place}: {name}"
    if entry is not None:
        return pack(operand(said, *entry, value).reshape(desc.dims), desc)
    array = exact_numbers(said, value, type_of(desc))
    if array.size != prod(desc.dims):
        raise InvalidArguments(
            f"{said} is {shown(value)}: give memory, or an array, of {prod(desc.dims)} values of {desc.data_type}"
        )
    return pack(array.reshape(desc.dims), desc)
