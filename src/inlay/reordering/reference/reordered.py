"""A whole reorder: elements read, computed on and written, with padding and compensation."""

from inlay.descriptor import MemoryDesc
from inlay.errors import InvalidArguments
from inlay.reordering.attributes import PLAIN, Attributes
from inlay.reordering.reference.compensation import write_compensation
from inlay.reordering.reference.elements import Bytes, read_codes, write_codes
from inlay.reordering.reference.formula import Values, computed


def reference_reorder(
    src: MemoryDesc,
    src_buffer: Bytes,
    dst: MemoryDesc,
    dst_buffer: Bytes,
    attributes: Attributes = PLAIN,
    values: Values | None = None,
    *,
    seed: int = 0,
) -> None:
    """Write the tensor that `src` describes in `src_buffer` into `dst_buffer`, as `dst` describes.

    Both buffers are arrays of bytes that hold the whole span of their layout from element 0 on. `values` are the codes
    of the values of each attribute that has some, in arrays of its shape.

    Post-conditions:
        For every coordinate x < dims, the element of dst at x is the element of src at x, computed and converted.
        For every other coordinate x < dst.padded_dims, the element of dst at x is zero.
        Where the extras of dst have compensation, its numbers lie behind the elements.
        Every other bit of `dst_buffer`, and all of `src_buffer`, is unchanged.

    Raises:
        InvalidArguments: the dims differ, or a descriptor has no layout.

    >>> import numpy as np
    >>> src, dst = MemoryDesc((3,), "u8", "a"), MemoryDesc((3,), "u8", "A4a")
    >>> packed = np.full(6, 99, np.uint8)
    >>> reference_reorder(src, np.array([1, 2, 3], np.uint8), dst, packed)
    >>> packed.tolist()
    [1, 2, 3, 0, 99, 99]
    """
    if src.dims != dst.dims:
        raise InvalidArguments(f"a reorder keeps the dims: source {src.dims}, destination {dst.dims}")
    types = (src.require_layout("reorder")[1], dst.require_layout("reorder")[1])
    codes = computed(
        read_codes(src, src_buffer),
        types,
        attributes,
        values,
        old=read_codes(dst, dst_buffer) if attributes.sum is not None else None,
        factor=1.0 if src.extras.scale_adjust == dst.extras.scale_adjust else dst.extras.scale_adjust,
        seed=seed,
    )
    write_codes(dst, dst_buffer, codes)
    if dst.extras:
        write_compensation(dst, dst_buffer, codes)
