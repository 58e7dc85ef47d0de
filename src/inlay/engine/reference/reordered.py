"""The reorder primitive: Inlay's own reorder, told of the primitive's attributes."""

from inlay.engine.reference.values import Memories
from inlay.errors import Unimplemented
from inlay.memory import reorder
from inlay.primitives.attributes import Sum
from inlay.primitives.operation import Operation
from inlay.reordering.attributes import Attributes


def reordered(operation: Operation, memories: Memories) -> None:
    """Move the source into the destination."""
    wanted = attributes_of(operation)
    values = {name: memories[name].unpack() for name in wanted.names}
    reorder(memories["src"], memories["dst"].desc, attributes=wanted, out=memories["dst"], **values)


def attributes_of(operation: Operation) -> Attributes:
    """The attributes of the primitive as those of a reorder.

    Raises:
        Unimplemented: there is a post-operation that a reorder has not.
        InvalidArguments: the attributes are none that a reorder may have.
    """
    attributes = operation.attributes
    match attributes.post_ops:
        case ():
            beta = None
        case (Sum(scale=beta, zero_point=0, data_type=None),):
            pass
        case _:
            raise Unimplemented(
                f"a reorder is followed by one sum without a zero point or a type: {attributes.post_ops} are other "
                "post-operations, run them as primitives of their own"
            )
    return Attributes(
        src_scales=attributes.scales.get("src"),
        dst_scales=attributes.scales.get("dst"),
        src_zero_points=attributes.zero_points.get("src"),
        dst_zero_points=attributes.zero_points.get("dst"),
        sum=beta,
    )
