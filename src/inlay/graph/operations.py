"""From an operation of a graph, with formats for its tensors, to what an engine is asked.

>>> function = {"algorithm": "relu", "alpha": 0.0, "beta": 0.0}
>>> relu = Op("relu", "eltwise", {"src": "x"}, {"dst": "y"}, parameters=function)
>>> image = MemoryDesc((1, 16, 4, 4), "f32", "nhwc")
>>> operation_of(relu, {"src": image, "dst": image}).descs["dst"].tag
'acdb'
"""

from collections.abc import Mapping, Sequence

from inlay.data_type import as_number_type
from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.graph.op import Array, Op
from inlay.primitives.attributes import PLAIN, PostOp, PrimitiveAttributes
from inlay.primitives.operation import Operation
from inlay.primitives.signatures import SIGNATURES


def operation_of(op: Op, descs: Mapping[str, MemoryDesc], post_ops: Sequence[PostOp] = ()) -> Operation:
    """What an engine is asked for `op`, a primitive, whose tensors have these formats, `any` where it may choose.

    `descs` has a descriptor for each argument that is read or written, and may have one for a constant. Constants
    without one are `any` where they are weights, else dense in row-major order.

    Raises:
        InvalidArguments: `op` is a view or a reference, an argument has no descriptor, or there is no such argument; or
            a constant has a type that oneDNN lacks.
    """
    row = SIGNATURES.get((op.kind, "forward"))
    if row is None:
        raise InvalidArguments(f"{op.name} is a {op.kind}: only primitives are asked of an engine")
    needed, known = {*op.reads, *op.writes}, {*op.reads, *op.writes, *op.constants}
    if missing := sorted(needed - descs.keys()):
        raise InvalidArguments(f"{op.name}, a {op.kind}: descs lack {', '.join(missing)}: give a format, or any")
    if unknown := sorted(descs.keys() - known):
        raise InvalidArguments(
            f"{op.name}, a {op.kind}, has no {', '.join(unknown)}: it has {', '.join(sorted(known))}"
        )
    constants = {
        name: constant_desc(array, name in row.free and "weights" in name) for name, array in op.constants.items()
    }
    attributes = PrimitiveAttributes(post_ops=tuple(post_ops)) if post_ops else PLAIN
    return Operation(op.kind, "forward_inference", {**constants, **descs}, dict(op.parameters), attributes)


def constant_desc(array: Array, is_free: bool = False) -> MemoryDesc:
    """The descriptor of a constant: in a format that the engine chooses if it `is_free`, else dense and row-major.

    Raises:
        InvalidArguments: oneDNN has no such type.
    """
    return MemoryDesc(array.shape, as_number_type(array.dtype), "any" if is_free else None)
