"""The cache of reorders between two addresses, and the bytes that a descriptor addresses.

`find_reorder` returns the reorder for two descriptors and attributes: compiled code where the compiler supports them,
else the reference implementation, which moves one coordinate at a time (groups of scales that cut through blocks need
it). Both are cached by descriptors and attributes.
"""

import ctypes
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from inlay.data_type import DataType
from inlay.descriptor import MemoryDesc, kinds
from inlay.descriptor.fields import addressed_layout, require_start_in_buffer
from inlay.errors import InvalidArguments, Unimplemented, shown
from inlay.forks import import_lock
from inlay.layout import Dims, Layout
from inlay.memory.buffers import address_of
from inlay.memory.result_pool import allocate_result
from inlay.notation import Notation
from inlay.reordering.attributes import PLAIN, Attributes, Operands, require_attributes, view_codes
from inlay.reordering.reference import reference_reorder
from inlay.reordering.requirements import require_distinct, require_extras, require_same_dims

if TYPE_CHECKING:
    from inlay.reordering import CompiledReorder


@lru_cache(maxsize=512)
def cached_desc(dims: Dims, data_type: DataType, format: Notation | str | None) -> MemoryDesc:
    """Return the descriptor of a tensor with this format; equal arguments return a cached descriptor.

    Raises:
        InvalidArguments, FormatTagError, PatternError, NotationError: as `MemoryDesc`.
    """
    return MemoryDesc(dims, data_type, format)


def byte_extent(desc: object) -> tuple[int, int, DataType]:
    """Return the range of bytes of the buffer that `desc` addresses, as begin and end, and the data type.

    Raises:
        InvalidArguments: `desc` is no descriptor, has no layout and is not opaque, or addresses bytes before the start
            of the buffer.
        Unimplemented: a dim or stride is RUNTIME.

    >>> byte_extent(MemoryDesc((4, 6), "f32").submemory((2, 3), (2, 3)))[:2]
    (60, 96)
    """
    if not isinstance(desc, MemoryDesc):
        raise InvalidArguments(
            f"desc is {shown(desc)}: describe the memory first, as in MemoryDesc((2, 3), 'f32', 'ab')"
        )
    return _byte_extent(desc)


@lru_cache(maxsize=512)
def _byte_extent(desc: MemoryDesc) -> tuple[int, int, DataType]:
    """Compute `byte_extent` of a descriptor, with a cache."""
    if isinstance(desc.layout, kinds.Opaque) and desc.data_type is not None:
        return 0, desc.layout.nbytes, desc.data_type
    if isinstance(desc.layout, kinds.SwizzledLayout) and desc.data_type is not None:
        start = desc.offset0 * desc.data_type.bits // 8
        return start, start + desc.size, desc.data_type
    if not isinstance(desc.layout, Layout) or desc.data_type is None:
        raise InvalidArguments(f"memory needs a layout: {desc!r} is of kind {desc.kind}; {_NO_LAYOUT[desc.kind]}")
    if desc.has_runtime:
        raise Unimplemented(f"memory needs known dims and strides: {desc!r} has RUNTIME ones, bind them first")
    low, high = desc.layout.span
    if low == high:
        return 0, 0, desc.data_type
    require_start_in_buffer(desc, desc.layout)
    bits = desc.data_type.bits
    end = -(-(high + desc.offset0) * bits // 8)
    # Int8 weights with extras are followed by their compensation, which is part of the memory.
    return (low + desc.offset0) * bits // 8, max(end, desc.size) if desc.extras else end, desc.data_type


_NO_LAYOUT = {
    "undef": "it describes nothing",
    "any": "give a format tag, or query a primitive for its format",
    "sparse": "its elements are in several buffers, which inlay.to_dense joins",
    "host_scalar": "its value is passed with the call",
}


class ReferenceReorder:
    """A reorder by the reference implementation, one coordinate at a time, for cases without compiled code."""

    def __init__(self, src: MemoryDesc, dst: MemoryDesc, attributes: Attributes = PLAIN) -> None:
        """Check that a reorder between these descriptors exists.

        Raises:
            InvalidArguments: the dims differ, a side has no layout, or elements of the destination overlap.
            Unimplemented: as `require_extras`.
        """
        self._nbytes = _require_reorder(src, dst)
        self._sides = (src, dst)
        self._attributes = attributes

    @property
    def problem(self) -> None:
        """None: there is no problem of the reorder compiler, so nothing can be tuned."""
        return None

    def run(self, src_address: int, dst_address: int, values: Operands | None = None, seed: int = 0) -> None:
        """Reorder the elements of the buffer at `src_address` into the buffer at `dst_address`.

        `values` are the scales and zero points of the attributes; `seed` is that of stochastic rounding.
        """
        pairs = zip(self._nbytes, (src_address, dst_address), strict=True)
        src, dst = (np.ctypeslib.as_array((ctypes.c_uint8 * n).from_address(at)) for n, at in pairs)
        codes = view_codes(values or {})
        reference_reorder(self._sides[0], src, self._sides[1], dst, self._attributes, codes, seed=seed)

    def explain(self, target: str | None = None) -> str:
        """Return the descriptors, the method and the attributes as text."""
        lines = [f"{self._sides[0]} -> {self._sides[1]}", "  moved coordinate by coordinate: there is nothing to tune"]
        if self._attributes != PLAIN:
            lines.append(f"  {self._attributes}")
        return "\n".join(lines)

    def assembly(self, target: str | None = None) -> str:
        """Raise an error: this reorder has no machine code.

        Raises:
            Unimplemented: always.
        """
        raise Unimplemented("these elements are moved coordinate by coordinate: there is no machine code to show")


def _require_reorder(src: MemoryDesc, dst: MemoryDesc) -> tuple[int, int]:
    """Check that a reorder between these descriptors exists, and return the sizes of both buffers, in bytes."""
    require_same_dims(src, dst)
    nbytes = (byte_extent(src)[1], byte_extent(dst)[1])
    require_distinct(addressed_layout(dst, "reorder")[0])
    require_extras(src, dst)
    return nbytes


AnyReorder: TypeAlias = "CompiledReorder | ReferenceReorder"
"""A reorder between two addresses, with `run`, `explain` and `assembly`."""


@lru_cache(maxsize=4096)
def find_reorder(src: MemoryDesc, dst: MemoryDesc, attributes: Attributes = PLAIN) -> AnyReorder:
    """Return the reorder from memory described by `src` to memory described by `dst`, compiled or from this cache.

    This is the only cache of reorders in the process; `find_reorder.cache_clear()` empties it. Leave `attributes` out
    if there are none: a call that passes PLAIN has another cache key and compiles the reorder again.

    Raises:
        InvalidArguments: the dims differ, a side has no layout, elements of the destination overlap, or the attributes
            do not fit the descriptors.
        Unimplemented: a side is sparse, a dim or stride is RUNTIME, or the destination has extras that no reorder
            computes.
    """
    for desc in (src, dst):
        if desc.kind == "sparse":
            raise Unimplemented(
                f"no move between two addresses exists for {desc!r}, which has several buffers: "
                "inlay.reorder(memory, dst) converts sparse memory"
            )
    if attributes == PLAIN:
        if dst.extras or src.extras.scale_adjust != 1:
            _require_reorder(src, dst)
        return _compile(src, dst)
    reference = ReferenceReorder(src, dst, attributes)
    require_attributes(attributes, src, dst)
    try:
        return _compile(src, dst, attributes)
    except Unimplemented:
        return reference


def _compile(src: MemoryDesc, dst: MemoryDesc, attributes: Attributes = PLAIN) -> "CompiledReorder":
    """Compile a reorder; the compiler is loaded by the first one, which networks in their planned formats lack."""
    with import_lock:
        from inlay.reordering import compile_reorder

    return compile_reorder(src, dst, attributes)


def logical_array(desc: MemoryDesc, address: int) -> npt.NDArray[Any]:
    """Return the elements that `desc` describes in the buffer at `address`, as a new row-major array.

    Raises:
        OutOfMemory: the operating system cannot provide the bytes of the array.
    """
    _, data_type = addressed_layout(desc, "unpack")
    carrier = data_type.widened
    plain = cached_desc(desc.dims, carrier, None)
    array = allocate_result(plain, plain.size).view(carrier.dtype).reshape(plain.dims)
    find_reorder(desc, plain).run(address, address_of(array))
    return array.astype(data_type.dtype, copy=False)
