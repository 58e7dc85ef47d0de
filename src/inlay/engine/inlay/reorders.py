"""Inlay's reorders as implementations: compiled between layouts, conversions where a side is sparse."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from inlay.errors import Unimplemented
from inlay.memory import Memory
from inlay.memory.conversion import recode
from inlay.memory.moves import find_reorder
from inlay.primitives.attributes import reorder_attributes
from inlay.primitives.operation import Operation, PlainImplementation
from inlay.reordering.attributes import PLAIN, Attributes
from inlay.reordering.operands import operands

_Memories = Mapping[str, Memory]


def reorder(operation: Operation) -> PlainImplementation:
    """Compile the reorder between two layouts.

    Raises:
        InvalidArguments: the descriptors or attributes do not fit.
        Unimplemented: compiled reorders do not have it.
    """
    attributes = reorder_attributes(operation.attributes)
    src, dst = operation.descs["src"], operation.descs["dst"]
    if attributes == PLAIN:
        find_reorder(src, dst)
        return PlainImplementation(operation, operation.descs, "compiled", _bind_move)
    find_reorder(src, dst, attributes)
    return PlainImplementation(operation, operation.descs, "compiled", partial(_bind_computation, attributes))


def _bind_move(memories: _Memories) -> Callable[[], None]:
    src, dst = memories["src"], memories["dst"]
    move = find_reorder(src.desc, dst.desc).run

    def run() -> None:
        move(src.address, dst.address)

    return run


def _bind_computation(attributes: Attributes, memories: _Memories) -> Callable[[], None]:
    """What moves these memories; values of attributes are read each time."""
    src, dst = memories["src"], memories["dst"]
    compute = find_reorder(src.desc, dst.desc, attributes).run
    dims = dst.desc.dims
    given = {name: (memories[name], attributes.entry(name).shape(dims)) for name in attributes.names}

    def run() -> None:
        values: Any = {name: memory.unpack().reshape(shape) for name, (memory, shape) in given.items()}
        compute(src.address, dst.address, operands(attributes, dims, values), 0)

    return run


def conversion(operation: Operation) -> PlainImplementation:
    """Prepare the conversion with a sparse side.

    Raises:
        Unimplemented: there are attributes.
    """
    if reorder_attributes(operation.attributes) != PLAIN:
        raise Unimplemented("a conversion of sparse memory has no attributes: reorder the dense memory")
    return PlainImplementation(operation, operation.descs, "converted", _bind_conversion)


def _bind_conversion(memories: _Memories) -> Callable[[], None]:
    src, dst = memories["src"], memories["dst"]
    return partial(recode, src.desc, src.buffers, dst.desc, dst.buffers)
