"""Cache write: a compiled reorder whose destination begins at a position that is known at the run.

    dst[position : position + rows] = src       along the axis, at the address dst + position * stride

The position is read at each call, so one implementation writes all steps of decoding.
"""

from collections.abc import Callable, Mapping
from ctypes import c_int64

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments, Unimplemented
from inlay.layout import Layout
from inlay.memory import Memory
from inlay.memory.reorder_cache import find_reorder
from inlay.primitives.engine import Operation, PlainImplementation


def supports_cache_write(operation: Operation) -> bool:
    """Return whether the operation is a write at equal distances along the axis, of elements of whole bytes."""
    return operation.kind == "cache_write" and _find_stride(operation) is not None


def create_cache_write(operation: Operation) -> PlainImplementation:
    """Compile the reorder of the rows.

    Raises:
        Unimplemented: positions are not at equal distances in memory, or the rows cannot be reordered.
    """
    stride = _find_stride(operation)
    if stride is None:
        raise Unimplemented("the positions of dst are not at equal distances of whole bytes: describe it with strides")
    descs = operation.descs
    src, dst, axis = descs["src"], descs["dst"], _axis(operation)
    move = find_reorder(src, dst.submemory(src.dims, (0,) * dst.ndims)).run
    count, extent = src.dims[axis], dst.dims[axis]

    def bind(memories: Mapping[str, Memory]) -> Callable[[], None]:
        rows, place, cache = memories["src"], memories["position"], memories["dst"]
        position = c_int64.from_address(place.address)
        rows_address, cache_address, last = rows.address, cache.address, extent - count

        def run() -> None:
            first = position.value
            if not 0 <= first <= last:
                raise InvalidArguments(
                    f"CacheWrite: position is {first}: it is from 0 to {last}, since dst has {extent} elements along "
                    f"axis {axis} and src {count}"
                )
            move(rows_address, cache_address + first * stride)

        run.memories = memories  # type: ignore[attr-defined]  # keeps them alive
        return run

    return PlainImplementation(operation, descs, "compiled", bind)


def _axis(operation: Operation) -> int:
    """Return the axis of the positions."""
    axis = operation.parameters["axis"]
    assert isinstance(axis, int)
    return axis


def _find_stride(operation: Operation) -> int | None:
    """Return the bytes between neighboring positions of the destination; None if they differ."""
    src, dst = operation.descs["src"], operation.descs["dst"]
    if not _is_plain(src) or not _is_plain(dst) or dst.data_type is None:
        return None
    return dst.strides[_axis(operation)] * dst.data_type.itemsize


def _is_plain(desc: MemoryDesc) -> bool:
    """Return whether a descriptor has a stride for each axis, and elements of whole bytes."""
    is_whole = desc.data_type is not None and not desc.data_type.is_sub_byte
    return desc.kind == "blocked" and isinstance(desc.layout, Layout) and not desc.inner_blocks and is_whole
