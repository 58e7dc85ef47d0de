"""Checks of the two descriptors of a reorder, and of the extras that it computes.

They are made before anything is compiled, also for reorders that are moved one coordinate at a time.
"""

from inlay.descriptor import MemoryDesc
from inlay.descriptor.extras import ASYMMETRIC_SRC, S8S8, SCALE_ADJUST
from inlay.errors import InvalidArguments, Unimplemented
from inlay.layout import Layout


def require_same_dims(src: MemoryDesc, dst: MemoryDesc) -> None:
    """Check that source and destination have the same dims.

    Raises:
        InvalidArguments: the dims differ.
    """
    if src.dims != dst.dims:
        raise InvalidArguments(f"a reorder keeps the dims: source {src.dims}, destination {dst.dims}")


def require_distinct(dst: Layout) -> None:
    """Check that every element of the destination has an offset of its own.

    Raises:
        InvalidArguments: some elements share an offset.
    """
    if dst.overlaps:
        raise InvalidArguments("elements of the destination overlap: give every element an offset of its own")


def require_factor(src: MemoryDesc, wanted: float) -> None:
    """Check that weights of the source were multiplied by 1 or by the factor `wanted`.

    Raises:
        Unimplemented: they were multiplied by another factor.
    """
    if src.extras.scale_adjust not in (1, wanted):
        raise Unimplemented(
            f"the weights of the source were multiplied by {src.extras.scale_adjust}, which a reorder does not undo: "
            "describe it without extras"
        )


def require_extras(src: MemoryDesc, dst: MemoryDesc) -> None:
    """Check that a reorder can compute the extras of the destination, and need not undo those of the source.

    Raises:
        Unimplemented: the destination has extras of an RNN or a GPU, compensation for other weights than s8 or without
            memory of its own, or the weights of the source were multiplied by another factor.
    """
    extras = dst.extras
    require_factor(src, extras.scale_adjust)
    if extras.flags & ~(S8S8 | SCALE_ADJUST | ASYMMETRIC_SRC):
        raise Unimplemented(
            f"the destination has extras of an RNN or a GPU ({extras!r}), which a reorder does not compute: give it "
            "flags 1, 2 and 8 only"
        )
    if not extras.flags & (S8S8 | ASYMMETRIC_SRC):
        return
    layout, data_type = dst.require_layout("reorder")
    if data_type.name != "s8":
        raise Unimplemented(f"compensation is a sum of s8 weights, and the destination is {data_type}: make it s8")
    end = dst.offset0 + layout.span[1]
    behind = dst.size - sum(extras.buffer_sizes(dst.padded_dims).values())
    if layout.size and end > behind:
        raise Unimplemented(
            f"elements of the destination reach byte {end}, and its compensation starts at byte {behind}: reorder to "
            "the whole tensor, not to a part of it"
        )
