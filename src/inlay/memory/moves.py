"""What runs between two addresses, and how far from an address a descriptor reaches.

Elements are moved, converted and computed on by compiled code; what it does not do (groups that cut through blocks) is
the work of the reference, coordinate by coordinate. `find_reorder` keeps what was compiled for descriptors.
"""

import ctypes
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from inlay.data_type import DataType
from inlay.descriptor import MemoryDesc, kinds
from inlay.errors import InvalidArguments, Unimplemented, shown
from inlay.layout import Dims, Layout
from inlay.memory.buffers import address_of, allocate
from inlay.notation.format_tag import FormatTag
from inlay.reordering import CompiledReorder, compile_reorder
from inlay.reordering.attributes import PLAIN, Attributes, Operands, require_attributes, view_codes
from inlay.reordering.compensation import require_extras
from inlay.reordering.problem import require_distinct, require_same_dims
from inlay.reordering.reference import reference_reorder


@lru_cache(maxsize=512)
def described(dims: Dims, data_type: DataType, format: FormatTag | str | None) -> MemoryDesc:
    """The descriptor of a tensor by format, remembered.

    Raises:
        InvalidArguments, FormatTagError: as `MemoryDesc`.
    """
    return MemoryDesc(dims, data_type, format)


def reach(desc: object) -> tuple[int, int, DataType]:
    """The first byte of the buffer that `desc` reaches, the one past the last, and its type.

    Raises:
        InvalidArguments: `desc` is no descriptor, has no layout and is not opaque, or reaches below the start of the
            buffer.
        Unimplemented: a dim or stride is RUNTIME.

    >>> reach(MemoryDesc((4, 6), "f32").submemory((2, 3), (2, 3)))[:2]
    (60, 96)
    """
    if not isinstance(desc, MemoryDesc):
        raise InvalidArguments(
            f"desc is {shown(desc)}: describe the memory first, as in MemoryDesc((2, 3), 'f32', 'ab')"
        )
    return _reach(desc)


@lru_cache(maxsize=512)
def _reach(desc: MemoryDesc) -> tuple[int, int, DataType]:
    if isinstance(desc.layout, kinds.Opaque) and desc.data_type is not None:
        return 0, desc.layout.nbytes, desc.data_type
    if not isinstance(desc.layout, Layout) or desc.data_type is None:
        raise InvalidArguments(f"memory needs a layout: {desc!r} is of kind {desc.kind}; {_NO_LAYOUT[desc.kind]}")
    if desc.has_runtime:
        raise Unimplemented(f"memory needs known dims and strides: {desc!r} has RUNTIME ones, bind them first")
    low, high = desc.layout.span
    if low == high:
        return 0, 0, desc.data_type
    if low + desc.offset0 < 0:
        raise InvalidArguments(
            f"{desc!r} reaches {-low - desc.offset0} elements below the start of its buffer: give it a larger offset0"
        )
    bits = desc.data_type.bits
    end = -(-(high + desc.offset0) * bits // 8)
    # What lies behind the elements of int8 weights belongs to the memory.
    return (low + desc.offset0) * bits // 8, max(end, desc.size) if desc.extras else end, desc.data_type


_NO_LAYOUT = {
    "undef": "it describes nothing",
    "any": "give a format tag, or ask a primitive which format it takes",
    "sparse": "its elements are in several buffers, which inlay.to_dense joins",
    "host_scalar": "its value is passed with the call",
}


class ReferenceReorder:
    """A reorder by the reference, one coordinate after the other: what no compiled code does."""

    def __init__(self, src: MemoryDesc, dst: MemoryDesc, attributes: Attributes = PLAIN) -> None:
        """Refuse what no reorder does.

        Raises:
            InvalidArguments: the dims differ, a side has no layout, or elements of the destination overlap.
            Unimplemented: as `require_extras`.
        """
        self._nbytes = _require_reorder(src, dst)
        self._sides = (src, dst)
        self._attributes = attributes

    @property
    def problem(self) -> None:
        """Nothing that could be compiled or tuned."""
        return None

    def run(self, src_address: int, dst_address: int, values: Operands | None = None, seed: int = 0) -> None:
        """Move from the buffer at one address to the buffer at the other."""
        pairs = zip(self._nbytes, (src_address, dst_address), strict=True)
        src, dst = (np.ctypeslib.as_array((ctypes.c_uint8 * n).from_address(at)) for n, at in pairs)
        codes = view_codes(values or {})
        reference_reorder(self._sides[0], src, self._sides[1], dst, self._attributes, codes, seed=seed)

    def explain(self, target: str | None = None) -> str:
        """What is moved and how, as text."""
        lines = [f"{self._sides[0]} -> {self._sides[1]}", "  moved coordinate by coordinate: there is nothing to tune"]
        if self._attributes != PLAIN:
            lines.append(f"  {self._attributes}")
        return "\n".join(lines)

    def assembly(self, target: str | None = None) -> str:
        """Refuse: no machine code is made.

        Raises:
            Unimplemented: always.
        """
        raise Unimplemented("these elements are moved coordinate by coordinate: there is no machine code to show")


def _require_reorder(src: MemoryDesc, dst: MemoryDesc) -> tuple[int, int]:
    """Refuse what no reorder does; bytes that each side reaches."""
    require_same_dims(src, dst)
    nbytes = (reach(src)[1], reach(dst)[1])
    require_distinct(dst.require_layout("reorder")[0])
    require_extras(src, dst)
    return nbytes


AnyReorder: TypeAlias = CompiledReorder | ReferenceReorder
"""What runs between two addresses, and can say how."""


@lru_cache(maxsize=4096)
def find_reorder(src: MemoryDesc, dst: MemoryDesc, attributes: Attributes = PLAIN) -> AnyReorder:
    """The reorder from memory described by `src` to memory described by `dst`: compiled now, or found in this cache.

    This is the one cache of reorders in memory; `cache_clear` makes each be decided anew. Leave `attributes` out where
    there are none: with PLAIN, the reorder is compiled once more.

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
        return compile_reorder(src, dst)
    by_coordinate = ReferenceReorder(src, dst, attributes)
    require_attributes(attributes, src, dst)
    try:
        return compile_reorder(src, dst, attributes)
    except Unimplemented:
        return by_coordinate


def logical_array(desc: MemoryDesc, address: int) -> npt.NDArray[Any]:
    """The elements that `desc` describes in the buffer at `address`, as a new row-major array of shape `desc.dims`.

    Raises:
        OutOfMemory: there is no room for the array.
    """
    _, data_type = desc.require_layout("unpack")
    carrier = data_type.widened
    plain = described(desc.dims, carrier, None)
    array = allocate(plain.size).view(carrier.dtype).reshape(plain.dims)
    find_reorder(desc, plain).run(address, address_of(array))
    return array.astype(data_type.dtype, copy=False)
